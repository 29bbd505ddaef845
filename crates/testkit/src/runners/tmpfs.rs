//! T49, a full disk on a real file system: several writers fill a small tmpfs through the engine. Then another file takes the rest
//! of the disk, and the database is closed or abandoned. It must open, read, delete and drop on the full disk, and
//! accept writes again once there is space. Needs the right to mount; without it, the test is reported as skipped and
//! succeeds. Then rows are overwritten for a while on a disk with less free space than data. A case
//! is a round.
//!
//! With `--dir`, the disk is one that somebody else has mounted: a drive of Windows.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use testkit::process;
use testkit::report::{self, Cases, exit, finish, violation};
use testkit::rng::Rng;
use testkit::scarce;
use testkit::watch::Watch;
use tidesdb::{Db, Error, FamilyOptions, SyncMode};

/// What a round makes on the disk: the database, a file that takes the rest, and one that is removed later to make room.
const NAMES: [&str; 3] = ["db", "ballast", "room"];

/// An empty file system.
enum Mount<'p> {
    /// A tmpfs, which is unmounted when this is dropped.
    Own(&'p Path),
    /// One of somebody else. What a round made is removed.
    Given(&'p Path),
}

impl<'p> Mount<'p> {
    fn new(path: &'p Path, given: bool, mib: u64) -> Option<Self> {
        if given {
            return Some(Self::Given(path));
        }
        let size = format!("size={mib}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tidesdb-test"]).arg(path).output();
        mount.ok().filter(|out| out.status.success()).map(|_| Self::Own(path))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        match self {
            Self::Own(path) => drop(Command::new("umount").arg(path).output()),
            Self::Given(path) => {
                for path in NAMES.map(|name| path.join(name)) {
                    let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
                }
            }
        }
    }
}

/// Figures of one round.
#[derive(Default)]
struct Round {
    acked: u64,
    refused: u64,
    deleted: u64,
}

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    #[arg(long, default_value_t = 6)]
    rounds: u64,
    /// Size of the disk.
    #[arg(long, default_value_t = 48)]
    mib: u64,
    /// Seconds of the part with scarce space.
    #[arg(long, default_value_t = 60)]
    scarce: u64,
    /// An empty file system of that size, in place of a tmpfs that is mounted for each round.
    #[arg(long)]
    dir: Option<PathBuf>,
}

pub(crate) fn runner() -> ExitCode {
    let Args { cases, rounds, mib, scarce: seconds, dir } = process::arguments();
    let Ok(temp) = tempfile::tempdir() else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    let (path, given) = (dir.as_deref().unwrap_or(temp.path()), dir.is_some());
    let watch = Watch::start(Duration::from_secs(180));
    let (mut acked, mut refused, mut deleted, mut violations) = (0, 0, 0, 0);
    for n in cases.numbers(1, rounds) {
        report::begin(&[], n);
        watch.begin(&format!("round {n}"));
        let Some(_mount) = Mount::new(path, given, mib) else {
            println!("T49 SKIPPED: mounting a tmpfs is not permitted here");
            return ExitCode::SUCCESS;
        };
        match round(path, n, (mib << 20) / 3) {
            Ok(round) => {
                acked += round.acked;
                refused += round.refused;
                deleted += round.deleted;
            }
            Err(e) => {
                violation(e);
                violations += 1;
            }
        }
    }
    let figures = [
        ("rounds", rounds),
        ("acked", acked),
        ("refused", refused),
        ("deleted", deleted),
        ("violations", violations),
        ("seed", cases.seed),
    ];
    let floors = [("acked", rounds * 20), ("refused", rounds), ("deleted", rounds)];
    let good = finish("T49", &figures, cases.floors(&floors));
    if !good || seconds == 0 || given || cases.case.is_some() {
        return exit(good);
    }
    report::begin_only(&[("seed", cases.seed.to_string()), ("rounds", "0".to_owned())]);
    watch.begin("scarce space");
    exit(scarce_space(temp.path(), cases.seed, seconds))
}

/// Overwrites rows on a disk with less free space than data.
fn scarce_space(path: &Path, seed: u64, seconds: u64) -> bool {
    let Some(_mount) = Mount::new(path, false, scarce::DISK >> 20) else { return true };
    let seen = scarce::run(path, seed, Duration::from_secs(seconds));
    let violations = u64::from(seen.is_err());
    let seen = seen.unwrap_or_else(|e| {
        violation(e);
        scarce::Seen::default()
    });
    let written_max = 2048;
    let too_much = u64::from(seen.written_mib > written_max);
    if too_much > 0 {
        violation(format_args!("{} MiB were written, more than {written_max}", seen.written_mib));
    }
    let figures = [
        ("seconds", seconds),
        ("acked", seen.acked),
        ("refused", seen.refused),
        ("written_mib", seen.written_mib),
        ("free_min_mib", seen.free_mib),
        ("violations", violations + too_much),
        ("seed", seed),
    ];
    finish("T49-scarce", &figures, &[("acked", 100), ("refused", 1)])
}

/// Settings that differ between rounds.
#[derive(Clone, Copy)]
struct Plan {
    writers: u64,
    value_bytes: u64,
    /// Whether large values are stored in the log and the tables instead of a value log.
    inline: bool,
    segment_bytes: u64,
    threads: usize,
    sync: SyncMode,
}

impl Plan {
    fn new(seed: u64) -> Self {
        Self {
            writers: [8, 1, 3][(seed % 3) as usize],
            value_bytes: [1 << 20, 300, 4000][(seed / 2 % 3) as usize],
            inline: seed % 2 == 1,
            segment_bytes: [4 << 20, 1 << 20][(seed / 3 % 2) as usize],
            threads: if seed.is_multiple_of(5) { 0 } else { 2 },
            sync: [SyncMode::None, SyncMode::Full][(seed / 2 % 2) as usize],
        }
    }

    fn open(&self, path: &Path) -> tidesdb::Result<Db> {
        let mut family = FamilyOptions::default().write_buffer_bytes(2 << 20);
        if self.inline {
            family = family.value_threshold(usize::MAX);
        }
        Db::options(path)
            .sync(self.sync)
            .background_threads(self.threads)
            .default_family(family.clone())
            .with(|o| {
                o.wal_segment_bytes = self.segment_bytes;
                o.disk_free_min = 0;
            })
            .open()
    }

    fn value(&self, n: u64) -> Vec<u8> {
        let mut rng = Rng::new(n);
        let bytes = self.value_bytes - rng.below(self.value_bytes / 4);
        (0..bytes).map(|_| rng.next_u64() as u8).collect()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

/// Returns true if the error reports a full disk, so that the operation had no effect.
fn is_full(e: &Error) -> bool {
    matches!(e, Error::NoSpace { .. } | Error::Busy { .. })
}

/// Writes from all threads until each was refused five times. Returns the acknowledged numbers and the number of
/// refusals.
fn fill(db: &Db, plan: Plan, from: u64) -> Result<(Vec<u64>, u64), String> {
    let writer = |w: u64| {
        let (mut acked, mut refused) = (Vec::new(), 0);
        let mut n = from + w;
        while refused < 5 {
            match db.put(&key(n), &plan.value(n)) {
                Ok(_) => acked.push(n),
                Err(e) if is_full(&e) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(20)); // a flush may make room
                }
                Err(e) => return Err(format!("put {n}: {e}")),
            }
            n += plan.writers;
        }
        Ok((acked, refused))
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..plan.writers).map(|w| scope.spawn(move || writer(w))).collect();
        let (mut acked, mut refused) = (Vec::new(), 0);
        for writer in writers {
            let (more, no) = writer.join().map_err(|_| "a writer panicked".to_owned())??;
            acked.extend(more);
            refused += no;
        }
        Ok((acked, refused))
    })
}

/// Takes all remaining space of the disk.
fn take_the_rest(path: &Path) -> Result<(), String> {
    use std::io::Write;
    let mut file = std::fs::File::create(path).map_err(|e| e.to_string())?;
    let mut piece = 1 << 20;
    while piece > 0 {
        match file.write(&vec![1; piece]) {
            Ok(n) if n == piece => {}
            _ => piece /= 2,
        }
    }
    Ok(())
}

fn round(path: &Path, seed: u64, spare: u64) -> Result<Round, String> {
    let plan = Plan::new(seed);
    let [dir, ballast, room] = NAMES.map(|name| path.join(name));
    std::fs::write(&room, vec![1; spare as usize]).map_err(|e| e.to_string())?;
    let say = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let db = plan.open(&dir).map_err(say("open"))?;
    let side = db.create_family("side", FamilyOptions::default()).map_err(say("create"))?;
    (0..100).try_for_each(|n| side.put(&key(n), b"x").map(drop)).map_err(say("put aside"))?;
    let (acked, refused) = fill(&db, plan, 0)?;
    let mut out = Round { acked: acked.len() as u64, refused, deleted: 0 };
    check(&db, plan, &acked, &[]).map_err(|e| format!("while the disk is full: {e}"))?;
    match seed % 3 {
        0 => db.abandon(),
        _ => db.close().map_err(say("close on a full disk"))?,
    }
    take_the_rest(&ballast)?;
    let before = names(&dir)?;
    let db = plan.open(&dir).map_err(|e| format!("open on a full disk: {e}; {:?}", names(&dir)))?;
    check(&db, plan, &acked, &[]).map_err(|e| format!("after the open on a full disk: {e}"))?;
    let gone: Vec<u64> = acked.iter().step_by(acked.len() / 4 + 1).copied().collect();
    for n in &gone {
        db.delete(&key(*n)).map_err(say("delete on a full disk"))?;
        out.deleted += 1;
    }
    db.drop_family("side").map_err(say("drop on a full disk"))?;
    check(&db, plan, &acked, &gone).map_err(|e| format!("after deletes: {e}; files before {before:?}"))?;
    db.flush().map_err(say("flush of deletes on a full disk"))?;

    [&ballast, &room].into_iter().try_for_each(std::fs::remove_file).map_err(|e| e.to_string())?;
    with_room(db, plan, &dir, acked, &gone).map(|()| out)
}

/// The database is used further once there is room, and opened again.
fn with_room(db: Db, plan: Plan, dir: &Path, acked: Vec<u64>, gone: &[u64]) -> Result<(), String> {
    let say = |what: &'static str| move |e: Error| format!("{what}: {e}");
    let n = 1 << 40;
    db.put(&key(n), &plan.value(n)).map_err(say("put with room"))?;
    match db.compact() {
        Err(e) if !is_full(&e) => return Err(format!("compact with room: {e}")),
        _ => {} // merging everything may need more space than there is; it then has no effect
    }
    let report = db.verify().map_err(say("verify"))?;
    if !report.is_ok() {
        return Err(format!("verify: {report}"));
    }
    db.close().map_err(say("close"))?;
    let db = plan.open(dir).map_err(say("last open"))?;
    let acked: Vec<u64> = acked.into_iter().chain([n]).collect();
    check(&db, plan, &acked, gone).map_err(|e| format!("after the last open: {e}"))?;
    db.close().map_err(say("last close"))
}

fn names(dir: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| e.to_string())?;
    Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
}

/// Checks that all acknowledged commits exist, except the deleted ones, and that there are no other rows.
fn check(db: &Db, plan: Plan, acked: &[u64], gone: &[u64]) -> Result<(), String> {
    for n in acked {
        let got = db.get(&key(*n)).map_err(|e| format!("get {n}: {e}"))?;
        match (got, gone.contains(n)) {
            (Some(v), false) if *v == *plan.value(*n) => {}
            (None, true) => {}
            (None, false) => return Err(format!("acknowledged commit {n} is missing")),
            _ => return Err(format!("commit {n} is wrong")),
        }
    }
    let rows = db.iter().map_err(|e| e.to_string())?.count();
    if rows != acked.len() - gone.len() {
        return Err(format!("found {rows} rows, expected {}", acked.len() - gone.len()));
    }
    Ok(())
}
