//! T11 on a real file system: fills a small tmpfs through the engine, looks at what it says and does, makes room and goes on.
//! Needs the right to mount; says so and ends well without it. `tmpfs [--rounds N] [--seed S] [--mib N]`.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use testkit::report::{argument, exit, finish};
use testkit::rng::Rng;
use testkit::watch::Watch;
use tidesdb::{Db, Error, FamilyOptions, SyncMode};

/// A mounted tmpfs; unmounted when dropped.
struct Mount<'p>(&'p Path);

impl<'p> Mount<'p> {
    fn new(path: &'p Path, mib: u64) -> Option<Self> {
        let size = format!("size={mib}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tidesdb-test"]).arg(path).output();
        mount.ok().filter(|out| out.status.success()).map(|_| Self(path))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

/// What one round saw.
#[derive(Default)]
struct Round {
    acked: u64,
    refused: u64,
    went_on: bool,
}

fn main() -> ExitCode {
    let rounds = argument("rounds").unwrap_or(6);
    let seed = argument("seed").unwrap_or(1);
    let mib = argument("mib").unwrap_or(24);
    let Ok(temp) = tempfile::tempdir() else {
        eprintln!("no temporary directory");
        return ExitCode::FAILURE;
    };
    let watch = Watch::start(Duration::from_secs(90));
    let (mut acked, mut refused, mut went_on, mut violations) = (0, 0, 0, 0);
    for n in 0..rounds {
        watch.begin(&format!("round {n}"));
        let Some(_mount) = Mount::new(temp.path(), mib) else {
            println!("T11-tmpfs SKIPPED: mounting a tmpfs is not permitted here");
            return ExitCode::SUCCESS;
        };
        match round(temp.path(), seed + n) {
            Ok(round) => {
                acked += round.acked;
                refused += round.refused;
                went_on += u64::from(round.went_on);
            }
            Err(e) => {
                eprintln!("VIOLATION seed {}: {e}", seed + n);
                violations += 1;
            }
        }
    }
    let figures = [
        ("rounds", rounds),
        ("acked", acked),
        ("refused", refused),
        ("went_on", went_on),
        ("violations", violations),
        ("seed", seed),
    ];
    exit(finish("T11-tmpfs", &figures, &[("acked", rounds * 100), ("refused", rounds)]))
}

fn open(path: &Path, seed: u64) -> tidesdb::Result<Db> {
    let family = FamilyOptions::default().write_buffer(512 << 10);
    Db::options(path)
        .sync([SyncMode::Full, SyncMode::None][(seed % 2) as usize])
        .background_threads([2, 0][(seed / 2 % 2) as usize])
        .default_family(family)
        .with(|o| {
            o.wal_segment_bytes = 1 << 20;
            o.disk_free_min = [0, 2 << 20][(seed / 4 % 2) as usize];
        })
        .open()
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

fn value(n: u64) -> Vec<u8> {
    let mut rng = Rng::new(n);
    let len = [100, 400, 3000][rng.below(3) as usize];
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Whether the disk is what the error is about.
fn is_full(e: &Error) -> bool {
    match e {
        Error::NoSpace { .. } | Error::Busy { .. } => true,
        Error::Io { source, .. } => source.kind() == std::io::ErrorKind::StorageFull,
        Error::Poisoned { cause } | Error::CommitUnknown { cause, .. } => is_full(cause),
        _ => false,
    }
}

fn round(path: &Path, seed: u64) -> Result<Round, String> {
    // What is deleted later to make room.
    let ballast = path.join("ballast");
    std::fs::write(&ballast, vec![1; 6 << 20]).map_err(|e| e.to_string())?;
    let dir = path.join("db");
    let db = open(&dir, seed).map_err(|e| format!("open: {e}"))?;
    let mut out = Round::default();
    // Commits that were refused or are in doubt; no later one has their number.
    let mut holes = Vec::new();
    let mut n = 0;
    while out.refused < 20 && n < 200_000 {
        match db.put(&key(n), &value(n)) {
            Ok(_) => out.acked += 1,
            Err(e) if is_full(&e) => {
                out.refused += 1;
                holes.push((n, matches!(e, Error::CommitUnknown { .. })));
            }
            Err(e) => return Err(format!("put {n}: {e}")),
        }
        n += 1;
    }
    look(&db, n, &holes).map_err(|e| format!("while the disk is full: {e}"))?;
    std::fs::remove_file(&ballast).map_err(|e| e.to_string())?;
    let again = db.put(&key(n), &value(n));
    let db = match again {
        Ok(_) => {
            out.went_on = true;
            db
        }
        Err(Error::Poisoned { .. }) => {
            db.abandon();
            let db = open(&dir, seed).map_err(|e| format!("open with room: {e}"))?;
            db.put(&key(n), &value(n)).map_err(|e| format!("put with room after the open: {e}"))?;
            db
        }
        Err(e) => return Err(format!("put with room: {e}")),
    };
    look(&db, n + 1, &holes).map_err(|e| format!("with room: {e}"))?;
    db.flush().map_err(|e| format!("flush with room: {e}"))?;
    let report = db.verify().map_err(|e| e.to_string())?;
    if !report.is_ok() {
        return Err(format!("verify: {report}"));
    }
    db.close().map_err(|e| format!("close: {e}"))?;
    let db = open(&dir, seed).map_err(|e| format!("last open: {e}"))?;
    look(&db, n + 1, &holes).map_err(|e| format!("after the last open: {e}"))?;
    db.abandon();
    Ok(out)
}

/// All acknowledged commits are there, the refused ones are not.
fn look(db: &Db, end: u64, holes: &[(u64, bool)]) -> Result<(), String> {
    for n in 0..end {
        let hole = holes.iter().find(|(hole, _)| *hole == n);
        let got = db.get(&key(n)).map_err(|e| format!("get {n}: {e}"))?;
        match (got, hole) {
            (Some(v), None | Some((_, true))) if *v == *value(n) => {}
            (None, Some(_)) => {}
            (Some(_), Some((_, false))) => return Err(format!("refused commit {n} is there")),
            _ => return Err(format!("acknowledged commit {n} is gone or wrong")),
        }
    }
    Ok(())
}
