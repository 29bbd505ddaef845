//! The small database whose files the fuzz targets modify.

use std::sync::Arc;

use tidesdb::{Comparator, Compression, Db, Error, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::Env;
use tidesdb_io::sim::{self, SimDisk};

use super::manifest::Manifest;
use crate::model::moment;
use crate::world::PATH;

/// A database with tables in both levels, range tombstones, value logs, two families besides the default one, one of
/// them with a custom key order, and a log with every kind of operation.
#[derive(Debug)]
pub struct Base {
    disk: SimDisk,
    /// Manifest in force.
    pub manifest: Manifest,
}

fn by_length() -> Comparator {
    Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)))
}

/// Returns the options with which the targets open a database.
pub fn options(env: &Env) -> tidesdb::OpenOptions {
    Db::options(PATH)
        .env(env.clone())
        .sync(SyncMode::Full)
        .background_threads(0)
        .cache_bytes(64 << 10)
        .allow_unknown(true)
        .comparator(by_length())
        .with(|o| {
            o.wal_segment_bytes = 16 << 10;
            o.disk_free_min = 0;
        })
}

impl Base {
    /// Builds the database, with the same bytes each time.
    ///
    /// # Errors
    /// Returns the engine's error as text.
    pub fn build() -> Result<Self, String> {
        let (env, disk, _clock) = sim::env(7);
        fill(&env).map_err(|e| e.to_string())?;
        let disk = disk.fork();
        disk.log_ops(false);
        let current = disk.read_file(format!("{PATH}/CURRENT")).map_err(|e| e.to_string())?;
        let number = super::bytes::u64_at(&current, 16).unwrap_or(0);
        let file = disk.read_file(format!("{PATH}/{number:06}.manifest")).map_err(|e| e.to_string())?;
        let manifest = Manifest::of_file(&file).ok_or("the manifest of the base cannot be parsed")?;
        Ok(Self { disk, manifest })
    }

    /// Returns a copy of the disk.
    pub fn disk(&self) -> SimDisk {
        let disk = self.disk.fork();
        disk.log_ops(false);
        disk
    }

    /// Returns the environment and disk of a copy in which `manifest` is in force.
    ///
    /// # Errors
    /// Returns the error of the simulated disk as text.
    pub fn with_manifest(&self, manifest: &Manifest) -> Result<(Env, Arc<SimDisk>), String> {
        let disk = self.disk();
        let write = |name: &str, bytes: &[u8]| {
            disk.write_file(format!("{PATH}/{name}"), bytes).map_err(|e| e.to_string())
        };
        write(&manifest.name(), &manifest.to_file())?;
        write("CURRENT", &manifest.current())?;
        let (env, disk, _clock) = sim::env_on(disk, 99);
        Ok((env, disk))
    }
}

fn fill(env: &Env) -> Result<(), Error> {
    let db = options(env).default_family(FamilyOptions::default().write_buffer_bytes(1 << 20)).open()?;
    let words = FamilyOptions::default().compression(Compression::Zstd).value_threshold(64);
    let words = db.create_family("words", words)?;
    let own = db.create_family("own", FamilyOptions::default().comparator(by_length()))?;
    for round in 0..3u8 {
        for n in 0..12u8 {
            let mut batch = WriteBatch::new();
            batch.put(db.default_family(), format!("key{:02}", n * 3 + round).as_bytes(), &[n; 40])?;
            batch.put(&words, format!("word{n}/{round}").as_bytes(), &[n ^ round; 90])?;
            batch.put(&own, &vec![b'a' + n; 1 + usize::from(n)], b"own")?;
            batch.put_expiring(
                &words,
                format!("brief{n}").as_bytes(),
                b"short",
                moment(1_800_000_000_250 + u64::from(n % 2)),
            )?;
            if n % 4 == 1 {
                batch.delete(db.default_family(), format!("key{n:02}").as_bytes())?;
                batch.single_delete(&words, format!("word{n}/0").as_bytes())?;
                batch.delete_range(&words, format!("b{n}")..format!("brief{n}"))?;
            }
            db.write(&mut batch)?;
        }
        match round {
            0 => {
                db.flush()?;
                db.compact()?;
            }
            1 => db.flush()?,
            _ => drop(db.sync()?),
        }
    }
    db.abandon();
    Ok(())
}
