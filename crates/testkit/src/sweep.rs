//! T27: every byte of every file of a database is damaged. Either the damage is reported, or nothing is lost and the
//! place is declared padding (see [`crate::damage`]). Data is never silently lost or wrong, nothing panics, and an open
//! that encounters damage does not delete or shorten any file.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidesdb::{Compression, Db, Error, SyncMode, WriteBatch};
use tidesdb_io::Env;
use tidesdb_io::sim::{self, Image, SimDisk};

use crate::check;
use crate::damage::{self, Damage, Victim};
use crate::model::Contents;
use crate::report::violation;
use crate::rng::Rng;
use crate::world::{Config, PATH};

/// Names of the databases to damage.
pub const SHAPES: [&str; 6] =
    ["sealed log", "sealed log, machine stopped", "closed", "closed, plain", "mixed", "many tables"];

/// Result for a damaged database.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// The damage was reported.
    Detected,
    /// All data is intact, and this is the declared reason.
    Harmless(&'static str),
    /// All data is intact, but no declaration says that the damage may go unnoticed.
    Undeclared,
    /// A promise was broken.
    Broken(String),
}

/// Figures of one kind of file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Number of files.
    pub files: u64,
    /// Total size of the files in bytes.
    pub bytes: u64,
    /// Number of changes tried.
    pub mutations: u64,
    /// Number of changes that were reported.
    pub detected: u64,
    /// Number of changes of declared padding.
    pub harmless: u64,
    /// Number of changes outside declared padding that were not reported, although nothing was lost.
    pub undeclared: u64,
    /// Number of changes with lost or wrong data, panics or deleted files.
    pub silent: u64,
}

/// Figures by kind of file, and how often each declaration of padding applied.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Figures by kind of file.
    pub kinds: BTreeMap<String, Figures>,
    /// Number of changes by declaration.
    pub declared: BTreeMap<&'static str, u64>,
    told: u64,
}

impl Report {
    /// Adds another report.
    pub fn merge(&mut self, other: Self) {
        for (kind, f) in other.kinds {
            let own = self.kinds.entry(kind).or_default();
            own.files += f.files;
            own.bytes += f.bytes;
            own.mutations += f.mutations;
            own.detected += f.detected;
            own.harmless += f.harmless;
            own.undeclared += f.undeclared;
            own.silent += f.silent;
        }
        for (why, n) in other.declared {
            *self.declared.entry(why).or_default() += n;
        }
    }

    /// Returns the sum over all kinds.
    pub fn total(&self) -> Figures {
        let mut sum = Figures::default();
        for f in self.kinds.values() {
            sum.files += f.files;
            sum.bytes += f.bytes;
            sum.mutations += f.mutations;
            sum.detected += f.detected;
            sum.harmless += f.harmless;
            sum.undeclared += f.undeclared;
            sum.silent += f.silent;
        }
        sum
    }
}

const LOST_KEY: &str = "a key was lost without an error";

/// A database to damage, and its contents.
pub struct Subject {
    disk: SimDisk,
    config: Config,
    contents: Contents,
    victims: Vec<Victim>,
    name: &'static str,
}

impl Subject {
    /// Builds the database with that number in [`SHAPES`].
    ///
    /// # Errors
    /// Returns the engine's error as text.
    pub fn build(shape: usize, seed: u64) -> Result<Self, String> {
        let compression = match shape {
            3 => Compression::None,
            5 => Compression::Zstd,
            _ => Compression::Lz4,
        };
        let config = Config {
            sync: SyncMode::Full,
            write_buffer: 1 << 20,
            wal_segment: 16 << 10,
            vlog_file: 256 << 20,
            divides: false,
            merges: shape % 2 == 1,
            compression,
        };
        let (env, disk, _clock) = sim::env(seed);
        let db = config.open(&env, PATH.as_ref()).map_err(|e| e.to_string())?;
        fill(&db, &config, shape, seed).map_err(|e| e.to_string())?;
        let contents = check::dump(&db)?;
        let closed = matches!(shape, 2 | 3);
        if closed {
            db.close().map_err(|e| e.to_string())?;
        } else {
            db.sync().map_err(|e| e.to_string())?;
            db.abandon();
        }
        let disk = if shape == 1 { disk.crash_image(&Image::SYNCED, seed) } else { disk.fork() };
        let current = disk.read_file(format!("{PATH}/CURRENT")).map_err(|e| e.to_string())?;
        let number = current.get(16..24).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let current = format!("{number:06}.manifest");
        let mut victims = Vec::new();
        for name in disk.file_names(PATH).map_err(|e| e.to_string())? {
            let bytes = disk.read_file(format!("{PATH}/{name}")).map_err(|e| e.to_string())?;
            victims.push(Victim::new(&name, bytes, &current, closed));
        }
        Ok(Self { disk, config, contents, victims, name: SHAPES[shape] })
    }

    /// Returns the files of the database.
    pub fn victims(&self) -> &[Victim] {
        &self.victims
    }

    /// Damages every file: every `stride`-th byte, and `blocks` random blocks of each file.
    pub fn sweep(&self, stride: u64, blocks: u64, seed: u64, mut begin: impl FnMut(&str)) -> Report {
        let mut rng = Rng::new(seed);
        let mut report = Report::default();
        for victim in &self.victims {
            let kind = kind(&victim.name);
            let mut figures = Figures { files: 1, bytes: victim.bytes.len() as u64, ..Figures::default() };
            begin(&format!("{}: {}", self.name, victim.name));
            for damage in damage::all(victim, &self.victims, stride, blocks, &mut rng) {
                figures.mutations += 1;
                let new = damage.apply(&victim.bytes);
                match self.judge(victim, new.as_deref()) {
                    Verdict::Detected => figures.detected += 1,
                    Verdict::Harmless(why) => {
                        figures.harmless += 1;
                        *report.declared.entry(why).or_default() += 1;
                    }
                    Verdict::Undeclared => {
                        figures.undeclared += 1;
                        report.tell(self.name, victim, &damage, "not reported, and not declared as padding");
                    }
                    Verdict::Broken(what) => {
                        figures.silent += 1;
                        report.tell(self.name, victim, &damage, &what);
                    }
                }
            }
            let part = Report { kinds: [(kind, figures)].into(), ..Report::default() };
            report.merge(part);
        }
        report
    }

    fn judge(&self, victim: &Victim, new: Option<&[u8]>) -> Verdict {
        let disk = self.disk.fork();
        let path = format!("{PATH}/{}", victim.name);
        let done = match new {
            Some(bytes) => disk.write_file(&path, bytes),
            None => disk.remove_file(&path),
        };
        if let Err(e) = done {
            return Verdict::Broken(format!("cannot damage the file: {e}"));
        }
        let (env, disk, _clock) = sim::env_on(disk, 99);
        disk.log_ops(false);
        let before = lengths(&disk);
        let seen = catch_unwind(AssertUnwindSafe(|| self.read_all(&env)));
        let met = match seen {
            Err(_) => return Verdict::Broken("panic".into()),
            Ok(Err(what)) => {
                let excuse = victim.nothing_tells(new).filter(|_| what == LOST_KEY);
                return excuse.map_or(Verdict::Broken(what), Verdict::Harmless);
            }
            Ok(Ok(met)) => met,
        };
        match met {
            Met::RefusedOpen => match lost_file(&before, &lengths(&disk)) {
                Some(name) => Verdict::Broken(format!("the open failed and removed or shortened {name}")),
                None => Verdict::Detected,
            },
            Met::Damage => match lost_file(&before, &lengths(&disk)).filter(|name| *name == victim.name) {
                Some(name) => Verdict::Broken(format!("{name} is damaged and was removed or shortened")),
                None => Verdict::Detected,
            },
            Met::Nothing => victim.excuse(new).map_or(Verdict::Undeclared, Verdict::Harmless),
        }
    }

    /// Opens the database and reads it in every way.
    fn read_all(&self, env: &Env) -> Result<Met, String> {
        let db = match self.config.open(env, PATH.as_ref()) {
            Ok(db) => db,
            Err(e) => return names_file(&e).map(|()| Met::RefusedOpen),
        };
        let mut met = Met::Nothing;
        if db.families() != self.contents.keys().cloned().collect::<Vec<_>>() {
            return Err(format!("silently lost families: {:?}", db.families()));
        }
        for (name, map) in &self.contents {
            let family = db.family(name).map_err(|e| e.to_string())?;
            for (key, value) in map {
                match family.get(key) {
                    Ok(Some(got)) if *got == **value => {}
                    Ok(Some(_)) => return Err("a value was wrong without an error".into()),
                    Ok(None) => return Err(LOST_KEY.into()),
                    Err(e) => (_, met) = (names_file(&e)?, Met::Damage),
                }
            }
            let forward = map.iter().collect::<Vec<_>>();
            let backward = map.iter().rev().collect::<Vec<_>>();
            let iter = || family.iter().map_err(|e| e.to_string());
            if walk(iter()?, &forward)? | walk(iter()?.rev(), &backward)? {
                met = Met::Damage;
            }
        }
        match db.verify() {
            Ok(report) if report.is_ok() => {}
            Ok(report) => {
                report.damage.iter().try_for_each(names_file)?;
                met = Met::Damage;
            }
            Err(e) => (_, met) = (names_file(&e)?, Met::Damage),
        }
        db.abandon();
        Ok(met)
    }
}

/// Where damage was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Met {
    Nothing,
    Damage,
    RefusedOpen,
}

impl Report {
    fn tell(&mut self, shape: &str, victim: &Victim, damage: &Damage, what: &str) {
        self.told += 1;
        if self.told > 12 {
            return;
        }
        let detail = match damage {
            Damage::Append(bytes) => format!("Append {} bytes", bytes.len()),
            Damage::Graft { at, bytes, from } => format!("Graft {} bytes of {from} to {at}", bytes.len()),
            Damage::Replaced { by, .. } => format!("Replaced by {by}"),
            other => format!("{other:?}"),
        };
        let (name, bytes) = (&victim.name, victim.bytes.len());
        violation(format_args!("{shape}: {name} ({bytes} bytes): {detail}: {what}"));
    }
}

/// Checks that an error about damage names the file.
fn names_file(e: &Error) -> Result<(), String> {
    match e {
        Error::Corrupt { file, .. } | Error::FormatTooNew { file, .. } | Error::Io { file, .. }
            if !file.is_empty() =>
        {
            Ok(())
        }
        Error::NotFound { .. } | Error::Internal { .. } => Err(format!("damage was reported as: {e}")),
        Error::Poisoned { cause } => names_file(cause),
        _ => Err(format!("damage was reported without a file: {e}")),
    }
}

/// Checks the rows of a scan. Returns true if an error ended the scan; all rows before it must be right.
fn walk(
    iter: impl Iterator<Item = tidesdb::Result<(tidesdb::Slice, tidesdb::Slice)>>,
    expected: &[(&Vec<u8>, &Vec<u8>)],
) -> Result<bool, String> {
    let mut n = 0;
    for item in iter {
        let (k, v) = match item {
            Ok(kv) => kv,
            Err(e) => return names_file(&e).map(|()| true),
        };
        match expected.get(n) {
            Some((key, value)) if *k == ***key && *v == ***value => n += 1,
            _ => return Err("an iterator returned a wrong row without an error".into()),
        }
    }
    if n == expected.len() { Ok(false) } else { Err("an iterator ended early without an error".into()) }
}

fn lengths(disk: &SimDisk) -> BTreeMap<String, u64> {
    let names = disk.file_names(PATH).unwrap_or_default();
    let len = |name: &String| disk.read_file(format!("{PATH}/{name}")).map_or(0, |b| b.len() as u64);
    names.into_iter().map(|name| (name.clone(), len(&name))).collect()
}

/// Returns a file that was removed or shortened. Ignores files that were set aside.
fn lost_file(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Option<String> {
    let kept = |name: &str, len: u64| {
        ["", ".orphan", ".lost"]
            .iter()
            .any(|aside| after.get(&format!("{name}{aside}")).is_some_and(|n| *n >= len))
    };
    let transient = |name: &str| name.ends_with(".free") || name == "CURRENT";
    before.iter().find(|(name, len)| !transient(name) && !kept(name, **len)).map(|(name, _)| name.clone())
}

/// Returns the kind of a file, for the figures.
fn kind(name: &str) -> String {
    name.rsplit_once('.').map_or(name, |(_, ext)| ext).to_owned()
}

/// Writes the contents of a shape. Values in the value log are never overwritten, so every one is referenced.
fn fill(db: &Db, config: &Config, shape: usize, seed: u64) -> tidesdb::Result<()> {
    let mut rng = Rng::new(seed);
    let second = db.create_family("second", config.family())?;
    let third = db.create_family("..", config.family().value_threshold(64))?;
    let families = [db.default_family().clone(), second, third];
    let rounds = if shape == 5 { 4 } else { 2 };
    for round in 0..rounds {
        for n in 0..20u64 {
            let mut batch = WriteBatch::new();
            for (f, family) in families.iter().enumerate() {
                let key = format!("{f}/{:03}", (n * 7 + round * 3) % 50);
                let len = rng.below(60);
                batch.put(family, key.as_bytes(), &rng.bytes(len as usize))?;
            }
            if n.is_multiple_of(6) {
                let len = 600 + rng.below(300);
                batch.put(&families[0], format!("large/{round}/{n}").as_bytes(), &rng.bytes(len as usize))?;
            }
            if n.is_multiple_of(5) {
                batch.delete(&families[1], format!("1/{:03}", n % 50).as_bytes())?;
            }
            db.write(&mut batch)?;
        }
        let flush = match shape {
            0 | 1 => false,
            4 => round == 0,
            _ => true,
        };
        if flush {
            db.flush()?;
        }
    }
    Ok(())
}

/// Returns the required kinds of files that a sweep did not damage.
pub fn missing_kinds(report: &Report) -> BTreeSet<&'static str> {
    ["CURRENT", "LOCK", "klog", "manifest", "vlog", "wal"]
        .into_iter()
        .filter(|kind| report.kinds.get(*kind).is_none_or(|f| f.mutations == 0))
        .collect()
}
