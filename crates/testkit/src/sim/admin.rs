//! Threads that change the catalog, flush, merge, copy, and capture the disk.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use tidesdb::{Db, Error, Reader};
use tidesdb_io::sim::{Fault, Image, OpKind, OpSet, SimDisk, errno};
use tidesdb_sync::scheduler;

use super::ledger::{Found, Rows, values};
use super::plan::{Backing, PATH, Weather};
use super::store::Shaky;
use super::world::{Capture, Tracked, World, lock, rows};
use crate::model::{FamilyNo, listed};
use crate::rng::Rng;

/// Most families of a run.
const FAMILIES_MAX: usize = 6;
/// Names of new families beside those that are counted: prefixes of each other, in other cases, and like those of files.
const NAMES: [&str; 10] = ["a", "A", "a.b", "a.b.c", "a/b", "../a", "000001.klog", "CURRENT", "f0", "f1"];
/// Calls that read files beside a close.
const CLOSING_CALLS: u64 = 12;

pub(super) fn rng_of(world: &World, who: u64) -> Rng {
    Rng::new(world.plan.seed.wrapping_mul(1000) + 500 + who)
}

pub(super) fn pause(world: &World, rng: &mut Rng) {
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
            10 if !world.is_stormy() => verify(world),
            _ => t.family.flush(),
        };
        judged(world, "maintenance", done, these);
    }
}

/// Reads all files, none of which is damaged unless there is a storm.
fn verify(world: &World) -> Result<(), Error> {
    let report = world.db.verify()?;
    if !report.is_ok() && !world.is_stormy() {
        world.fail(format!("verify: {report}"));
    }
    Ok(())
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
        let name = free_name(world, &mut rng, made);
        let one = world.pick(&mut rng);
        match (rng.below(5), one) {
            (0, Some(t)) if families.len() > 1 => drop_one(world, &t),
            // No family gets a name again that it had.
            (1, Some(t)) => rename(world, &t, format!("renamed{made}")),
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

/// Returns a name for a new family: often one that looks like another name, or that a dropped family had.
fn free_name(world: &World, rng: &mut Rng, made: u64) -> String {
    let known = names_of(&world.all_families());
    let mut free = NAMES.iter().filter(|name| !known.iter().any(|known| known == *name));
    let n = free.clone().count() as u64;
    let name = if n > 0 && rng.one_in(2) { free.nth(rng.below(n) as usize) } else { None };
    name.map_or_else(|| format!("n{made}"), |name| (*name).to_owned())
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
    let Some(rows) = judged(world, "a scan of a clone", rows(&clone), &[]) else {
        judged(world, "a drop of a clone", world.db.drop_family(&name), &[]); // nobody knows it, and its name stays free
        return;
    };
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
            if let Some(store) = &world.store {
                store.set_down(false);
            }
            if let Some(shelf) = &world.shelf {
                shelf.set_down(false);
            }
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
                checkpoint(world, &format!("/copy{captured}"));
            }
            3 if world.plan.has("clock") => step_clock(world, &mut rng),
            4 if captured < world.plan.captures => {
                if let Some(store) = &world.store {
                    upload(world, store);
                }
            }
            _ => {}
        }
        if let (Some(store), Some(copying)) = (&world.store, world.plan.copying) {
            store.set_down(copying.fails && rng.one_in(2));
        }
        if let (Some(shelf), Some(Backing::Failing)) = (&world.shelf, world.plan.backing) {
            shelf.set_down(rng.one_in(2));
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
        look(world, &mut reader);
        look_at_figures(world);
        if rng.one_in(8) {
            reader = None;
        }
    }
}

/// Opens a reader beside the writer, or lets it see what is new, and reads all families.
fn look(world: &World, reader: &mut Option<Reader>) {
    let opened = match reader {
        None => Db::options(PATH)
            .env(world.env.clone())
            .memory_limit(64 << 20)
            .comparator(listed())
            .open_reader()
            .map(|opened| {
                let view = opened.view();
                *reader = Some(opened);
                view
            }),
        Some(reader) => reader.refresh(),
    };
    let Some(view) = judged(world, "a reader beside the writer", opened, &[]) else { return };
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
}

/// Reads what the writer has published, and its history: they are whole, and say nothing that has not happened yet.
fn look_at_figures(world: &World) {
    let options = || Db::options(PATH).env(world.env.clone());
    let what = "a look at the figures of the writer";
    let Some(found) = judged(world, what, options().writer_figures(), &[]) else { return };
    let Some([seconds, minutes]) = judged(world, what, options().writer_history(), &[]) else { return };
    let newest = world.db.stats().visible_seq;
    let published = found.into_iter().map(|figures| figures.stats.visible_seq);
    let recorded = [seconds, minutes].into_iter().flat_map(|history| history.series("visible_seq"));
    let recorded = recorded.map(|(_, seq)| seq.cast_unsigned());
    for seq in published.chain(recorded).filter(|seq| *seq > newest) {
        world.fail(format!("{what}: sequence number {seq} is visible, and the newest is {newest}"));
    }
}

/// Makes calls that read files beside a close, until it has ended. They succeed, or say that the database is closed.
pub(super) fn look_beside_close(world: &World) {
    let mut rng = rng_of(world, 6);
    let mut reader = None;
    let mut copies = 0;
    for _ in 0..CLOSING_CALLS {
        if world.stops() {
            return;
        }
        pause(world, &mut rng);
        let families = world.all_families();
        let t = rng.pick(&families);
        let done = match rng.below(8) {
            0..2 => t.family.flush(),
            2..4 => t.family.compact(),
            4 if !world.is_stormy() => verify(world),
            4 | 5 => world.db.sync().map(drop),
            6 if !world.is_stormy() => {
                copies += 1;
                checkpoint(world, &format!("/late{copies}"));
                Ok(())
            }
            _ => {
                if world.plan.has_readers() {
                    look(world, &mut reader);
                }
                let _ = (world.db.stats(), t.family.stats());
                Ok(())
            }
        };
        if let Err(e) = done {
            return world.failed("a call beside a close", &e, std::slice::from_ref(t));
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

/// The names of families now.
pub(super) fn names_of(families: &[Arc<Tracked>]) -> Vec<String> {
    families.iter().map(|t| lock(&t.name).clone()).collect()
}

/// Returns those of `families` that still have the names that they had before a copy was made. A family that was dropped or renamed
/// meanwhile may or may not be in the copy, under either name.
pub(super) fn still_named(families: &[Arc<Tracked>], names: Vec<String>) -> Vec<(FamilyNo, String)> {
    let is_known = |t: &Tracked, name: &String| t.is_settled() && *lock(&t.name) == *name;
    let still = families.iter().zip(names).filter(|(t, name)| is_known(t, name));
    still.map(|(t, name)| (t.no, name)).collect()
}

fn checkpoint(world: &World, path: &str) {
    let least = world.acked();
    let families = world.all_families();
    let names = names_of(&families);
    let Some(()) = judged(world, "a checkpoint", world.db.checkpoint(path), &families) else { return };
    let families = still_named(&families, names);
    let what = "a checkpoint".to_owned();
    lock(&world.captures).push(Capture {
        disk: world.disk.fork(),
        what,
        path: path.to_owned(),
        families,
        least,
        optional: vec![],
        was_killed: false,
        objects: None,
    });
}

/// Uploads all that was acknowledged. Then the folder is lost, to be restored from the store after the run.
fn upload(world: &World, store: &Shaky) {
    let (least, failed) = (world.acked(), store.failures());
    let families = world.all_families();
    let names = names_of(&families);
    let done = world.db.upload();
    if done.as_ref().is_err_and(|e| !matches!(e, Error::Corrupt { .. })) && store.failures() > failed {
        return;
    }
    let Some(()) = judged(world, "an upload", done, &families) else { return };
    lock(&world.captures).push(Capture {
        disk: SimDisk::new(world.plan.seed),
        what: "a restore".to_owned(),
        path: PATH.to_owned(),
        families: still_named(&families, names),
        least,
        optional: vec![],
        was_killed: false,
        objects: world.objects(),
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
