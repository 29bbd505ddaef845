//! Threads that change the catalog, flush, merge, copy, and capture the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidesdb::{Db, Error};
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, errno};
use tidesdb_sync::scheduler;

use super::ledger::{Found, Rows, values};
use super::plan::{PATH, Weather};
use super::world::{Capture, Tracked, World, lock, rows};
use crate::model::listed;
use crate::rng::Rng;

/// Most families of a run.
const FAMILIES_MAX: usize = 6;

fn rng_of(world: &World, who: u64) -> Rng {
    Rng::new(world.plan.seed.wrapping_mul(1000) + 500 + who)
}

fn pause(world: &World, rng: &mut Rng) {
    world.env.clock.sleep(Duration::from_micros(1 << rng.below(17)));
}

/// Judges the result of a call; only a success is returned.
fn judged<T>(world: &World, what: &str, done: Result<T, Error>, families: &[Arc<Tracked>]) -> Option<T> {
    done.inspect_err(|e| world.failed(what, e, families)).ok()
}

/// Flushes and merges until the clients have ended.
pub(super) fn maintain(world: &World) {
    let mut rng = rng_of(world, 1);
    while world.working.load(SeqCst) > 0 && !world.stops() {
        pause(world, &mut rng);
        let families = world.all_families();
        if families.is_empty() {
            continue;
        }
        let t = rng.pick(&families);
        let these = std::slice::from_ref(t);
        let from = format!("k{:03}", rng.below(40));
        let done = match rng.below(12) {
            0 | 1 => t.family.flush(),
            2 => t.family.start_flush(),
            3 => t.family.compact(),
            4 => t.family.compact_range(from.as_bytes()..),
            5 => world.db.flush(),
            6 => world.db.compact(),
            7 => world.db.cancel_compactions(),
            8 if world.plan.has("options") => {
                let mut options = t.family.current_options();
                options = options.write_buffer_bytes(1 << (10 + rng.below(6)));
                options = options.value_threshold(40 << rng.below(6));
                t.family.change_options(options)
            }
            9 => {
                let _ = (world.db.stats(), t.family.stats(), world.db.health());
                Ok(())
            }
            10 if !world.is_stormy() => match world.db.verify() {
                Ok(report) if !report.is_ok() && !world.is_stormy() => {
                    world.fail(format!("verify: {report}"));
                    Ok(())
                }
                other => other.map(drop),
            },
            _ => t.family.flush(),
        };
        judged(world, "maintenance", done, these);
    }
}

/// Makes, drops, renames and clones families until the clients have ended.
pub(super) fn change_catalog(world: &World) {
    let mut rng = rng_of(world, 2);
    let mut made = 0;
    while world.working.load(SeqCst) > 0 && !world.stops() {
        pause(world, &mut rng);
        pause(world, &mut rng);
        let families = world.families();
        made += 1;
        let name = format!("n{made}");
        let one = world.pick(&mut rng);
        match (rng.below(5), one) {
            (0, Some(t)) if families.len() > 1 => drop_one(world, &t),
            (1, Some(t)) => rename(world, &t, name),
            (2 | 3, Some(t)) if families.len() < FAMILIES_MAX && world.plan.has("clones") => {
                clone(world, &t, name)
            }
            _ if families.len() < FAMILIES_MAX => {
                let options = world.plan.family(rng.below(6) as usize);
                if let Some(family) = judged(world, "a create", world.db.create_family(&name, options), &[]) {
                    world.add(family, name, Rows::new());
                }
            }
            _ => {}
        }
    }
}

fn drop_one(world: &World, t: &Arc<Tracked>) {
    t.dropping.store(true, SeqCst);
    lock(&world.families).retain(|other| other.no != t.no);
    let name = lock(&t.name).clone();
    scheduler::note("drop", t.no as u64, &name);
    judged(world, "a drop", world.db.drop_family(&name), &[]);
}

fn rename(world: &World, t: &Arc<Tracked>, new: String) {
    t.is_changing.store(true, SeqCst);
    let old = lock(&t.name).clone();
    if judged(world, "a rename", world.db.rename_family(&old, &new), &[]).is_some() {
        *lock(&t.name) = new;
        t.is_changing.store(false, SeqCst);
    }
}

fn clone(world: &World, t: &Arc<Tracked>, name: String) {
    let source = lock(&t.name).clone();
    let (before, from) = (world.snapshot().seq(), world.time().0);
    scheduler::note("clone", t.no as u64, &format!("{source} to {name}"));
    let Some(clone) = judged(world, "a clone", world.db.clone_family(&source, &name), &[]) else { return };
    let after = world.db.snapshot().seq();
    let Some(rows) = judged(world, "a scan of a clone", rows(&clone), &[]) else { return };
    world.read("a clone", t.no, (before, after), from, Found::All(values(&rows)));
    let no = world.add(clone, name, rows);
    lock(&world.ledger).note_clone(no);
}

/// Captures disks, makes checkpoints, moves the clock and lets calls of the disk fail.
pub(super) fn control(world: &World) {
    let mut rng = rng_of(world, 3);
    let storm = rng.below(6);
    for n in 0.. {
        if world.working.load(SeqCst) == 0 || world.stops() {
            return;
        }
        pause(world, &mut rng);
        if n == storm {
            begin_storm(world, &mut rng);
        }
        if n == storm + 3 && world.is_stormy() {
            world.disk.clear_faults();
            world.disk.limit_space(None);
        }
        let captured = lock(&world.captures).len() as u64;
        match rng.below(6) {
            0 | 1 if captured < world.plan.captures => capture(world, &mut rng),
            2 if captured < world.plan.captures && world.plan.has("checkpoints") && !world.is_stormy() => {
                checkpoint(world, captured);
            }
            3 if world.plan.has("clock") => step_clock(world, &mut rng),
            _ => {}
        }
    }
}

/// Reads beside the writer, as another process would, until the clients have ended.
pub(super) fn follow(world: &World) {
    let mut rng = rng_of(world, 4);
    let mut reader = None;
    while world.working.load(SeqCst) > 0 && !world.stops() {
        pause(world, &mut rng);
        pause(world, &mut rng);
        let opened = match &reader {
            None => {
                Db::options(PATH).env(world.env.clone()).comparator(listed()).open_reader().map(|opened| {
                    let view = opened.view();
                    reader = Some(opened);
                    view
                })
            }
            Some(reader) => reader.refresh(),
        };
        let Some(view) = judged(world, "a reader beside the writer", opened, &[]) else { continue };
        let (seq, from) = (view.snapshot().seq(), world.time().0);
        scheduler::note("a reader sees", seq, "");
        for t in world.all_families() {
            let name = lock(&t.name).clone();
            let Ok(family) = view.family(&name) else { continue }; // the view may be older
            let Some(rows) = judged(world, "a scan beside the writer", rows(&family), &[]) else { break };
            if family.id() == t.family.id() {
                let found = Found::Range(None, None, values(&rows));
                world.read("a reader beside the writer", t.no, (seq, seq), from, found);
            }
        }
        if rng.one_in(8) {
            reader = None;
        }
    }
}

/// Captures the disk during a close.
pub(super) fn control_close(world: &World) {
    let mut rng = rng_of(world, 5);
    while (lock(&world.captures).len() as u64) < world.plan.captures && !world.stops() {
        pause(world, &mut rng);
        capture(world, &mut rng);
    }
}

fn capture(world: &World, rng: &mut Rng) {
    let durable = world.durable_now();
    let seed = rng.next_u64();
    if rng.one_in(4) {
        world.capture(world.disk.fork(), "a kill".to_owned(), world.acked(), true);
    } else {
        let image = rng.pick(&Image::STANDARD);
        let disk = world.disk.crash_image(image, seed);
        world.capture(disk, format!("a power failure, {image:?}"), durable, false);
    }
}

fn checkpoint(world: &World, n: u64) {
    let path = format!("/copy{n}");
    let least = world.acked();
    let families = world.all_families();
    let names: Vec<String> = families.iter().map(|t| lock(&t.name).clone()).collect();
    let Some(()) = judged(world, "a checkpoint", world.db.checkpoint(&path), &families) else { return };
    // A family that was dropped or renamed meanwhile may or may not be in the copy, under either name.
    let is_known = |t: &Tracked, name: &String| t.is_settled() && *lock(&t.name) == *name;
    let still = families.iter().zip(names).filter(|(t, name)| is_known(t, name));
    let families = still.map(|(t, name)| (t.no, name)).collect();
    let what = "a checkpoint".to_owned();
    lock(&world.captures).push(Capture {
        disk: world.disk.fork(),
        what,
        path,
        families,
        least,
        optional: vec![],
        was_killed: false,
    });
}

fn step_clock(world: &World, rng: &mut Rng) {
    let millis = rng.below(4000);
    if rng.one_in(2) {
        world.clock.step(millis as i64);
    } else {
        world.clock.step(-(millis as i64));
        *lock(&world.ahead) += millis;
    }
}

fn begin_storm(world: &World, rng: &mut Rng) {
    world.durable_now();
    world.is_stormy.store(world.plan.weather != Weather::Calm, SeqCst);
    match world.plan.weather {
        Weather::Calm => {}
        Weather::Cut => {
            world.disk.crash_now();
            world.stop();
        }
        Weather::Full => world.disk.limit_space(Some(rng.below(200_000))),
        Weather::Failing => {
            let kinds = [
                OpSet::SYNCS,
                OpSet::WRITES,
                OpSet::of(OpKind::SyncDir),
                OpSet::of(OpKind::Create),
                OpSet::of(OpKind::Read),
                OpSet::of(OpKind::Rename),
                OpSet::of(OpKind::Allocate),
                OpSet::ALL,
            ];
            let errors = [errno::EIO, errno::ENOSPC, errno::EMFILE];
            let fault = match rng.below(4) {
                0 => Fault::short(),
                _ => Fault::errno(*rng.pick(&errors)).on(*rng.pick(&kinds)),
            };
            world.disk.inject(fault.skip(rng.below(10)).every(1 + rng.below(3)).times(1 + rng.below(4)));
        }
    }
}
