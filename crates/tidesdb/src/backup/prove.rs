//! Proves a generation: restores it, opens it, and compares its rows with those that were counted when it was made.
//!
//! Both counts read a view that no commit and no merge changes, with a clock that stands still: a row that expires between the two counts
//! is counted twice or never.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::{Clock, Env, crc32c};

use super::contents::{Contents, FamilyRows};
use super::pace::{PIECE_BYTES, Pace};
use super::restore;
use super::{Generation, Shared};
use crate::db::{Db, OpenOptions};
use crate::engine::Engine;
use crate::family::FamilyCore;
use crate::{Error, Result};

/// What a row counts beside its bytes towards the next look at whether to go on.
const ROW_BYTES: usize = 100;

/// A clock whose wall time stands still.
#[derive(Debug)]
struct Standing {
    clock: Arc<dyn Clock>,
    at: Duration,
}

impl Clock for Standing {
    fn wall(&self) -> Duration {
        self.at
    }

    fn mono(&self) -> Duration {
        self.clock.mono()
    }

    fn sleep(&self, d: Duration) {
        self.clock.sleep(d);
    }

    fn wait(&self, d: Duration, wait: &dyn Fn(Duration)) {
        self.clock.wait(d, wait);
    }
}

/// Options to open a copy of a database in `path`. `families` are those of the copy: the database may have dropped some of them since.
pub(super) fn options_of(engine: &Engine, path: &Path, families: &[Arc<FamilyCore>]) -> OpenOptions {
    let mut options =
        Db::options(path).env(engine.write.env.clone()).memory_limit(engine.write.options.memory_limit);
    if let Some(whole) = engine.write.memory.shared_whole() {
        options = options.within(whole);
    }
    for family in families {
        options = options.comparator(family.options.comparator.clone());
        if let Some(operator) = family.options.now().merge_operator.clone() {
            options = options.merge_operator(operator);
        }
    }
    options
}

/// Sets the time of expiry to `at`, in milliseconds since the UNIX epoch.
pub(super) fn at_time(options: OpenOptions, at: u64) -> OpenOptions {
    let env = options.environment().clone();
    let clock = Arc::new(Standing { clock: Arc::clone(&env.clock), at: Duration::from_millis(at) });
    options.env(Env { clock, ..env })
}

/// Counts the rows of all families.
pub(super) fn rows_of(db: &Db, pace: &Pace<'_>) -> Result<Vec<FamilyRows>> {
    let mut all = Vec::new();
    for name in db.families() {
        let family = db.family(&name)?;
        let (mut rows, mut crc, mut unchecked) = (0, 0, 0);
        for row in family.iter()? {
            let (key, value) = row?;
            for part in [&key[..], &value[..]] {
                crc = crc32c(crc, &(part.len() as u64).to_le_bytes());
                crc = crc32c(crc, part);
            }
            rows += 1;
            unchecked += ROW_BYTES + key.len() + value.len();
            if unchecked >= PIECE_BYTES {
                pace.look()?;
                unchecked = 0;
            }
        }
        all.push(FamilyRows { name, rows, crc });
    }
    Ok(all)
}

pub(super) fn run(shared: &Shared, number: u64, scratch: OpenOptions, pace: &Pace<'_>) -> Result<Generation> {
    let contents = restore::contents(shared, number)?;
    let path = scratch.folder().to_owned();
    let proven = restore::run(shared, number, &path, pace).and_then(|()| {
        let compared = compare(&contents, scratch, pace);
        if let Ok(dir) = shared.env.disk.open_dir(&path, false) {
            restore::clear(&*dir);
        }
        compared
    });
    let now = shared.now();
    match &proven {
        Err(e) if !e.is_corruption() => return Err(e.clone()), // says nothing about the generation
        _ => {}
    }
    let generation = shared.with_writer(|writer| {
        writer.change(|index| {
            index.find(number)?;
            let entry = index.generations.iter_mut().find(|entry| entry.number == number);
            let entry = entry.ok_or(Error::Closed)?;
            (entry.proven, entry.failed) = if proven.is_ok() { (now, 0) } else { (entry.proven, now) };
            Ok(entry.generation())
        })
    })?;
    proven.map(|()| generation)
}

fn compare(contents: &Contents, scratch: OpenOptions, pace: &Pace<'_>) -> Result<()> {
    let scratch = match &contents.counted {
        Some(counted) => at_time(scratch, counted.at),
        None => scratch,
    };
    let first = contents.state.families.values().next();
    let Some(first) = first else { return Ok(()) };
    let db = scratch.read_only(true).default_family_name(&*first.name).open()?;
    pace.look()?;
    let report = db.verify_while(&|| pace.glance())?;
    if let Some(damage) = report.damage.into_iter().next() {
        return Err(damage);
    }
    let found = rows_of(&db, pace)?;
    if let Some(counted) = &contents.counted {
        for wanted in &counted.families {
            let Some(found) = found.iter().find(|found| found.name == wanted.name) else {
                return Err(wrong(contents, &format!("family {:?} is missing", wanted.name)));
            };
            if found != wanted {
                let what = format!(
                    "family {:?} has {} rows with the checksum {:08x} instead of {} with {:08x}",
                    wanted.name, found.rows, found.crc, wanted.rows, wanted.crc
                );
                return Err(wrong(contents, &what));
            }
        }
        if found.len() != counted.families.len() {
            return Err(wrong(contents, "it has a family too many"));
        }
    }
    db.close()
}

fn wrong(contents: &Contents, what: &str) -> Error {
    Error::corrupt(&format!("generation {}", contents.number), 0, what)
}
