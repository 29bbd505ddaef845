//! Tables that were built outside of a database, and the record of a log that takes some.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidesdb::{Compression, Db, FamilyOptions, Ingest, MergeOperator, TableBuilder};
use tidesdb_io::Env;
use tidesdb_io::sim::{self, SimDisk};

use super::base::options;
use super::bytes::{put, u32_at};
use super::seal;
use crate::world::PATH;

/// Folder of the tables.
pub const FOLDER: &str = "/built";
/// The kind of the record, and where its header has it.
const INGEST: u8 = 5;
const KIND_AT: usize = 27;
const RECORD_HEADER: usize = 32;
/// Used part of the header of a segment, with which its short form begins.
const SEGMENT_USED: usize = 96;

/// Settings of the family whose tables are built; some have a merge operator.
pub fn family(choice: u8) -> FamilyOptions {
    let codecs = [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy];
    let family = FamilyOptions::default()
        .write_buffer_bytes(1 << 20)
        .value_threshold(64)
        .compression(codecs[usize::from(choice >> 2 & 3)]);
    if choice & 1 == 0 { family.merge_operator(MergeOperator::append(",")) } else { family }
}

/// A table and its value log, which is empty if it has none, from an input: a byte that chooses settings, the length of the short form of the
/// table (u32) and that, and the value log.
pub fn files(data: &[u8]) -> Option<(u8, Vec<u8>, Vec<u8>)> {
    let (choice, rest) = data.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (parts, values) = rest.split_at(rest.len().min(u32::from_le_bytes(*length) as usize));
    let mut values = values.to_vec();
    seal::vlog(&mut values);
    Some((*choice, seal::table(parts).0, values))
}

type Fill = fn(&mut TableBuilder) -> tidesdb::Result<()>;

/// What the tables of the seeds hold.
const FILLS: [(&str, u8, Fill); 4] =
    [("rows", 0, rows), ("values", 5, values), ("operands", 8, operands), ("partitions", 13, partitions)];

fn rows(to: &mut TableBuilder) -> tidesdb::Result<()> {
    to.delete_range("a".."b")?;
    for n in 0..30u8 {
        let key = format!("key{n:02}");
        match n % 5 {
            3 => to.delete(key)?,
            4 => to.put_with_ttl(key, [n; 3], Duration::from_secs(1 << 30))?,
            _ => to.put(key, [n; 40])?,
        }
    }
    to.delete_range("key40"..)
}

fn values(to: &mut TableBuilder) -> tidesdb::Result<()> {
    for n in 0..12u8 {
        to.put(format!("key{n:02}"), vec![n; [20, 90, 900][usize::from(n % 3)]])?;
    }
    to.put_stream("stream", &[7; 3000][..])
}

fn operands(to: &mut TableBuilder) -> tidesdb::Result<()> {
    (0..10u8).try_for_each(|n| to.merge(format!("key{n:02}"), [b'a' + n; 5]))
}

fn partitions(to: &mut TableBuilder) -> tidesdb::Result<()> {
    (0..14u8).try_for_each(|n| to.put([&[b'l'; 4000][..], &[n]].concat(), [n; 30]))
}

/// Builds a table and returns its path.
fn build(env: &Env, db: &Db, name: &str, fill: Fill) -> tidesdb::Result<Vec<PathBuf>> {
    let folder = env.disk.open_dir(FOLDER.as_ref(), true);
    folder.map_err(|e| tidesdb::Error::Io {
        op: "open",
        file: FOLDER.into(),
        offset: None,
        cause: Arc::new(e),
    })?;
    let mut rows = db.default_family().table_builder(format!("{FOLDER}/{name}"))?;
    fill(&mut rows)?;
    rows.finish()
}

/// Tables with rows of every kind, each with its value log.
pub fn tables() -> Vec<(String, Vec<u8>)> {
    let input = |(name, choice, fill): (&str, u8, Fill)| {
        let (env, disk, _clock) = sim::env(8);
        let db = options(&env).default_family(family(choice)).open().ok()?;
        let path = build(&env, &db, name, fill).ok()?.pop()?;
        let parts = seal::table_parts(&disk.read_file(&path).ok()?)?;
        let values = disk.read_file(format!("{}.vlog", path.display())).unwrap_or_default();
        Some((
            name.to_owned(),
            [&[choice][..], &(parts.len() as u32).to_le_bytes(), &parts, &values].concat(),
        ))
    };
    FILLS.into_iter().filter_map(input).collect()
}

/// A killed database whose log takes tables.
#[derive(Debug)]
pub struct Taking {
    disk: SimDisk,
    name: String,
    /// The segment up to the end of the header of the record, in its short form.
    head: Vec<u8>,
    /// The body of the record.
    body: Vec<u8>,
}

/// Returns it, the same each time.
///
/// # Panics
/// Panics if it cannot be built.
pub fn taking() -> &'static Taking {
    static TAKING: OnceLock<Taking> = OnceLock::new();
    TAKING.get_or_init(|| Taking::build().expect("cannot build a database that takes tables"))
}

impl Taking {
    fn build() -> Option<Self> {
        let (env, disk, _clock) = sim::env(9);
        let db = options(&env).default_family(family(0)).open().ok()?;
        db.put("key05", "before").ok()?;
        let mut ingest = Ingest::new();
        for (name, _, fill) in &FILLS[..3] {
            ingest = ingest.tables(db.default_family(), build(&env, &db, name, *fill).ok()?);
        }
        db.ingest(&ingest).ok()?;
        db.sync().ok()?;
        db.abandon();
        let disk = disk.fork();
        disk.log_ops(false);
        let names = disk.file_names(PATH).ok()?;
        names.into_iter().filter(|name| name.ends_with(".wal")).find_map(|name| {
            let parts = seal::segment_parts(&disk.read_file(format!("{PATH}/{name}")).ok()?)?;
            let mut at = SEGMENT_USED;
            while parts.get(at + KIND_AT).is_some_and(|kind| *kind != INGEST) {
                at += RECORD_HEADER + (u32_at(&parts, at + 4)? as usize).next_multiple_of(8);
            }
            let (from, len) = (at + RECORD_HEADER, u32_at(&parts, at + 4)? as usize);
            let (head, mut body) = (parts.get(..from)?.to_vec(), parts.get(from..)?.to_vec());
            body.resize(len, 0); // the short form has no zeros at its end
            Some(Self { disk: disk.fork(), name, head, body })
        })
    }

    /// The disk with another body of the record.
    pub fn with(&self, body: &[u8]) -> Option<SimDisk> {
        let mut parts = self.head.clone();
        let at = parts.len() - RECORD_HEADER;
        put(&mut parts, at + 4, &(body.len() as u32).to_le_bytes());
        parts.extend_from_slice(body);
        let disk = self.disk.fork();
        disk.log_ops(false);
        disk.write_file(format!("{PATH}/{}", self.name), &seal::segment(&parts).0).ok()?;
        Some(disk)
    }

    /// The body as it is.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}
