//! The corpus: generated valid inputs, and inputs that once caused a failure. They are stored in `corpus/`, with a
//! folder for each target.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidesdb::internals::sst::{TableOptions, TableWriter};
use tidesdb::internals::types::{EntryRef, FamilyId, Kind, TableId, VlogId};
use tidesdb::internals::vlog::VlogSet;
use tidesdb::{Comparator, Compression};
use tidesdb_io::sim;

use super::targets::{Target, base};
use super::{seal, targets};
use crate::world::PATH;

/// Prefix of the names of inputs that were found by fuzzing.
pub const FOUND: &str = "found-";

/// Returns the folder of the corpus.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Reads the inputs of `target`, sorted by name.
///
/// # Errors
/// Returns the error of the system.
pub fn read(target: &Target) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut out = Vec::new();
    for entry in std::fs::read_dir(folder().join(target.name))? {
        let entry = entry?;
        out.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    out.sort();
    Ok(out)
}

/// Writes the generated inputs.
///
/// # Errors
/// Returns the error of the system.
pub fn write() -> std::io::Result<()> {
    for target in targets::TARGETS {
        let folder = folder().join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (name, input) in (target.seeds)() {
            std::fs::write(folder.join(name), input)?;
        }
    }
    Ok(())
}

const COMPRESSIONS: [Compression; 4] =
    [Compression::None, Compression::Lz4, Compression::Zstd, Compression::Snappy];

/// Builds small tables in both key orders and of each compression, with several versions, kinds and expiries, and long
/// and short values.
pub(super) fn tables() -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for (i, compression) in COMPRESSIONS.into_iter().enumerate() {
        for (choice, order) in [Comparator::bytewise(), Comparator::reverse_bytewise()].iter().enumerate() {
            let file = build_table(compression, order, 0);
            let input = table_input((choice | ((i % 2) << 1)) as u8, file);
            out.push((format!("{}-{}", compression.name(), order.name()), input));
        }
    }
    // Long fences cause several partitions with few blocks each: once with all partitions resident, once read one by
    // one.
    for (name, choice) in [("partitions-resident", 6), ("partitions-read", 2)] {
        let file = build_table(Compression::Lz4, &Comparator::bytewise(), 40);
        out.push((name.to_owned(), table_input(choice, file)));
    }
    out
}

fn table_input(choice: u8, file: Option<Vec<u8>>) -> Vec<u8> {
    let parts = file.and_then(|file| seal::table_parts(&file)).unwrap_or_default();
    [&[choice][..], &parts].concat()
}

/// Builds a table with `long` keys of about 4,000 bytes in addition to short ones.
fn build_table(compression: Compression, order: &Comparator, long: u8) -> Option<Vec<u8>> {
    let (env, disk, _clock) = sim::env(5);
    let dir = env.disk.open_dir(PATH.as_ref(), true).ok()?;
    let options = TableOptions { compression, filter_bits_per_key: 10 };
    let mut writer = TableWriter::create(&dir, TableId(900), [7; 16], options, order.clone()).ok()?;
    let mut keys: Vec<Vec<u8>> = (0..40).map(|n| format!("key{n:03}").into_bytes()).collect();
    keys.extend((0..long).map(|n| [&[b'l'; 4000][..], &[n]].concat()));
    keys.extend([b"a".to_vec(), b"versions".to_vec(), vec![b'w'; 300]]);
    keys.sort_by(|a, b| order.compare(a, b));
    for (n, key) in keys.iter().enumerate() {
        let versions = if key == b"versions" { 300 } else { 1 };
        for version in (0..versions).rev() {
            let value = vec![n as u8; if versions > 1 { 2 } else { [3, 40, 900][n % 3] }];
            let kind = if n % 9 == 4 { Kind::Delete } else { Kind::Put };
            let value = if kind == Kind::Put { &value[..] } else { &[] };
            let expiry = if n % 5 == 2 { 1_800_000_000_250 + n as u64 } else { 0 };
            writer.add(EntryRef { key, seq: 100 + version, kind, expiry, value }).ok()?;
        }
    }
    let (meta, _) = writer.complete().ok()?;
    disk.read_file(format!("{PATH}/{}", tidesdb::internals::files::table(meta.id))).ok()
}

/// Builds a small value log of each compression.
pub(super) fn vlogs() -> Vec<(String, Vec<u8>)> {
    COMPRESSIONS.into_iter().filter_map(|c| Some((c.name().to_owned(), build_vlog(c)?))).collect()
}

fn build_vlog(compression: Compression) -> Option<Vec<u8>> {
    let (env, disk, _clock) = sim::env(6);
    let dir = env.disk.open_dir(PATH.as_ref(), true).ok()?;
    let set = VlogSet::new(dir, Arc::clone(&env.entropy), FamilyId(1), 1 << 20, || Ok(VlogId(1)));
    for n in 0..12usize {
        let mut value = vec![n as u8; [20, 200, 3000][n % 3]];
        value.iter_mut().step_by(7).enumerate().for_each(|(i, b)| *b = (i * n) as u8);
        set.append(&value, compression).ok()?;
    }
    disk.read_file(format!("{PATH}/{}", tidesdb::internals::files::vlog(VlogId(1)))).ok()
}

/// Returns the log segments of the base, once for each recovery mode of interest.
pub(super) fn segments() -> Vec<(String, Vec<u8>)> {
    let disk = base().disk();
    let names = disk.file_names(PATH).unwrap_or_default();
    let mut out = Vec::new();
    for name in names.into_iter().filter(|name| name.ends_with(".wal")) {
        let Ok(file) = disk.read_file(format!("{PATH}/{name}")) else { continue };
        let Some(parts) = seal::segment_parts(&file) else { continue };
        for mode in [0u8, 2] {
            out.push((format!("{name}-{mode}"), [&[mode][..], &parts].concat()));
        }
    }
    out
}
