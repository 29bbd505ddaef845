//! The fuzz targets. For any input, each target returns, after right answers or errors that describe the problem.

use std::sync::{Arc, OnceLock};

use tidesdb::internals::codec::{Decoder, FieldClass, FieldWriter};
use tidesdb::internals::engine::Report;
use tidesdb::internals::files;
use tidesdb::internals::memory::Memory;
use tidesdb::internals::sst::{Table, TableContext, TableCursor, TableMeta};
use tidesdb::internals::types::{EntryCursor, FamilyId, SEQ_MAX, VlogId};
use tidesdb::internals::version::Change;
use tidesdb::internals::vlog::{VlogPointer, VlogSet};
use tidesdb::{Comparator, Db, Error, Family, FamilyStats, Ingest, RecoveryMode, TreeStats};
use tidesdb_io::sim::{self, SimDisk};
use tidesdb_io::{Dir, Env};

use super::base::{Base, options};
use super::foreign::{self, FOLDER};
use super::seal;
use crate::world::PATH;

/// Maximum number of rows and steps per scan, so that a hostile count does not cost minutes.
const ROWS_MAX: usize = 2000;

/// A target and its seed inputs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, which is also the name of its folder in the corpus.
    pub name: &'static str,
    /// Runs an input.
    pub run: fn(&[u8]),
    /// Returns valid inputs with their names; the same each time.
    pub seeds: fn() -> Vec<(String, Vec<u8>)>,
}

/// All targets.
pub const TARGETS: [Target; 14] = [
    Target { name: "manifest", run: manifest, seeds: manifest_seeds },
    Target { name: "current", run: current, seeds: current_seeds },
    Target { name: "names", run: names, seeds: names_seeds },
    Target { name: "table", run: table, seeds: table_seeds },
    Target { name: "merge", run: merge, seeds: table_seeds },
    Target { name: "vlog", run: vlog, seeds: vlog_seeds },
    Target { name: "log", run: log, seeds: log_seeds },
    Target { name: "ingest", run: ingest, seeds: foreign::tables },
    Target { name: "taking", run: taking, seeds: taking_seeds },
    Target { name: "figures", run: figures, seeds: figures_seeds },
    Target { name: "search", run: super::search::run, seeds: super::search::seeds },
    Target { name: "ini", run: tidesdb_capi::fuzz::ini, seeds: ini_seeds },
    Target { name: "arguments", run: tidesdb_capi::fuzz::arguments, seeds: argument_seeds },
    Target { name: "calls", run: super::calls::run, seeds: super::calls::seeds },
];

/// Returns the database whose files are modified.
///
/// # Panics
/// Panics if the database cannot be built.
pub fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| Base::build().unwrap_or_else(|e| panic!("cannot build the base database: {e}")))
}

/// Panics on an error that blames the engine, which no hostile file may cause.
fn must_be_clean(e: &Error) {
    match e {
        Error::Internal { .. } => panic!("a hostile file caused an error that blames the engine: {e}"),
        Error::Poisoned { cause } => must_be_clean(cause),
        Error::CommitUnknown { cause, .. } => must_be_clean(cause),
        _ => {}
    }
}

fn clean<T>(result: Result<T, Error>) -> Option<T> {
    result.inspect_err(must_be_clean).ok()
}

/// Opens the database, reads, verifies and writes it, closes it and reopens it.
fn exercise(env: &Env, mode: RecoveryMode) {
    let Some(db) = clean(options(env).recovery(mode).open()) else { return };
    read(&db);
    if clean(db.put(b"new", b"value")).is_some() {
        let found = db.get(b"new");
        assert!(!matches!(&found, Ok(None)), "a put is not seen");
        clean(found);
    }
    clean(db.flush());
    clean(db.compact());
    if let Some(family) = clean(db.create_family("another", Default::default())) {
        clean(family.put(b"k", b"v"));
    }
    read(&db);
    if clean(db.close()).is_some()
        && let Some(db) = clean(options(env).read_only(true).open())
    {
        read(&db);
    }
}

fn read(db: &Db) {
    for name in db.families() {
        let Some(family) = clean(db.family(&name)) else { continue };
        for key in [&b"key03"[..], b"word1/1", b"brief1", b"", b"\xff"] {
            clean(family.get(key));
        }
        for both in [clean(family.iter())] {
            let Some(mut iter) = both else { continue };
            let _ = iter.by_ref().take(ROWS_MAX).map(clean).all(|row| row.is_some());
            let _ = iter.rev().take(ROWS_MAX).map(clean).all(|row| row.is_some());
        }
        if let Some(iter) = clean(family.iter()) {
            let _ = iter.rev().take(ROWS_MAX).map(clean).all(|row| row.is_some());
        }
        let _ = family.stats();
    }
    if let Some(report) = clean(db.verify()) {
        report.damage.iter().for_each(must_be_clean);
    }
    let _ = db.stats();
}

fn on(disk: SimDisk) -> Env {
    sim::env_on(disk, 99).0
}

/// Tests a manifest in its short form, see [`super::manifest`].
fn manifest(data: &[u8]) {
    let forged = base().manifest.with(data);
    let Ok((env, _)) = base().with_manifest(&forged) else { return };
    exercise(&env, RecoveryMode::Tail);
}

fn manifest_seeds() -> Vec<(String, Vec<u8>)> {
    vec![("base".into(), base().manifest.encode())]
}

/// Tests the content of a slot of `FIGURES`: what is read can be printed, and is the same when it is written and read again. The first time
/// that drops trees of families that are not there.
fn figures(data: &[u8]) {
    let Some(report) = clean(Report::decode(data, files::FIGURES, 0)) else { return };
    let again = |report: &Report| Report::decode(&report.encode(usize::MAX), files::FIGURES, 0);
    let Ok(once) = again(&report) else { panic!("what was read cannot be written: {}", report.stats) };
    let text = once.stats.to_string();
    let twice = again(&once).map(|twice| twice.stats.to_string());
    assert_eq!(twice.ok(), Some(text), "written again it is another report");
}

fn figures_seeds() -> Vec<(String, Vec<u8>)> {
    let mut report = Report { version: "1.2.3".into(), ..Report::default() };
    report.health.causes.push("merges were cancelled".into());
    let stats = &mut report.stats;
    (stats.wal_bytes, stats.cache_hit_share, stats.remote) = (12_345, 0.5, Some(Default::default()));
    for name in ["default", "g\u{fc}n"] {
        let (mut family, mut tree) = (FamilyStats::default(), TreeStats::default());
        (family.name, family.level_bytes) = (name.into(), vec![1, 0, 300]);
        (tree.family, tree.levels) = (name.into(), vec![Default::default(); 2]);
        stats.families.push(family);
        stats.trees.push(tree);
    }
    vec![("base".into(), report.encode(usize::MAX))]
}

/// Tests the file `CURRENT`, sealed.
fn current(data: &[u8]) {
    let mut file = data.to_vec();
    if file.len() == 64 {
        let crc = tidesdb::internals::codec::bound_crc(&[0; 16], 0, &[&file[..60]]);
        super::bytes::put(&mut file, 60, &crc.to_le_bytes());
    }
    let disk = base().disk();
    if disk.write_file(format!("{PATH}/CURRENT"), &file).is_ok() {
        exercise(&on(disk), RecoveryMode::Tail);
    }
}

fn current_seeds() -> Vec<(String, Vec<u8>)> {
    vec![("base".into(), base().manifest.current())]
}

/// Tests names of files in the directory, one per line. Each file contains its name.
fn names(data: &[u8]) {
    let disk = base().disk();
    for name in String::from_utf8_lossy(data).lines().take(40) {
        let hostile =
            name.is_empty() || name.len() > 200 || name.contains(['/', '\0']) || name.starts_with("..");
        let path = format!("{PATH}/{name}");
        if !hostile && disk.read_file(&path).is_err() && disk.write_file(&path, name.as_bytes()).is_err() {
            return;
        }
    }
    exercise(&on(disk), RecoveryMode::Tail);
}

fn names_seeds() -> Vec<(String, Vec<u8>)> {
    let usual = "000099.wal\n000098.klog\n000097.vlog\n000096.manifest\n000095.wal.free\n000094.klog.orphan\n\
                 000093.wal.lost\nSYNC-FAILED\nCURRENT.new\n";
    let large = [u64::MAX, u64::MAX - 1, 1 << 63, 1 << 56, (1 << 56) - 1, 1 << 47, 1 << 32, (1 << 32) - 1]
        .iter()
        .flat_map(|n| ["wal", "klog", "vlog", "manifest"].map(|ext| format!("{n:06}.{ext}\n")))
        .collect::<String>();
    vec![("usual".into(), usual.into()), ("large".into(), large.into())]
}

/// Returns the key order of a fuzzed table, chosen by the first byte of the input.
fn table_order(byte: u8) -> Comparator {
    if byte.is_multiple_of(2) { Comparator::bytewise() } else { Comparator::reverse_bytewise() }
}

/// Opens a table in its short form, after a byte that selects key order and access. Returns `None` if it is refused.
pub fn open_table(data: &[u8]) -> Option<Arc<Table>> {
    let (choice, parts) = data.split_first()?;
    let (file, props) = seal::table(parts);
    let meta = table_meta(&file, &props)?;
    let (env, disk, _clock) = sim::env(3);
    disk.log_ops(false);
    let dir = env.disk.open_dir(PATH.as_ref(), true).ok()?;
    disk.write_file(format!("{PATH}/{}", files::table(meta.id)), &file).ok()?;
    // Index and filter are resident if they fit into memory. Otherwise every search reads partitions.
    let context = TableContext::new(&dir, &Memory::new(0), if choice & 4 == 0 { 0 } else { 1 << 20 });
    clean(Table::open(&context, &table_order(*choice), Arc::new(meta)))
}

/// Tests a table that [`open_table`] opens.
fn table(data: &[u8]) {
    let Some(table) = open_table(data) else { return };
    look_up(&table);
    for bypassing in [false, true] {
        let cursor = match bypassing {
            true => TableCursor::bypassing_cache(Arc::clone(&table)),
            false => TableCursor::new(Arc::clone(&table)),
        };
        walk(cursor);
    }
    clean(table.verify());
    clean(table.inspect_blocks(&mut |block| {
        clean(block.checked);
    }));
}

/// Tests a table in its short form as an additional table of the base: it is read, merged with the others and verified.
fn merge(data: &[u8]) {
    let Some((choice, parts)) = data.split_first() else { return };
    let (file, props) = seal::table(parts);
    let Some(meta) = table_meta(&file, &props) else { return };
    let mut manifest = base().manifest.clone();
    let (family, level) = (FamilyId(1), 1 + choice % 2);
    let name = files::table(meta.id);
    manifest.push([Change::AddTable {
        family,
        level,
        generation: u32::from(choice / 2 % 2),
        meta: Arc::new(meta),
    }]);
    let Ok((env, disk)) = base().with_manifest(&manifest) else { return };
    if disk.write_file(format!("{PATH}/{name}"), &file).is_ok() {
        exercise(&env, RecoveryMode::Tail);
    }
}

/// Returns the metadata that a manifest would have for the file.
fn table_meta(file: &[u8], props: &[u8]) -> Option<TableMeta> {
    let footer = file.get(file.len().checked_sub(64)?..)?;
    let mut bytes = Vec::new();
    let mut fields = FieldWriter::new(&mut bytes);
    fields.number(1, FieldClass::Required, super::bytes::u64_at(footer, 16)?);
    fields.bytes(2, FieldClass::Required, &footer[..16]);
    fields.number(3, FieldClass::Required, file.len() as u64);
    bytes.extend_from_slice(props);
    clean(TableMeta::decode(&mut Decoder::new(&bytes, "manifest", 0)))
}

fn look_up(table: &Arc<Table>) {
    let guard = tidesdb_sync::pin();
    let meta = table.meta();
    for key in [&meta.smallest[..], &meta.largest, b"k", b"key015", b"", b"v"] {
        for snapshot in [0, meta.min_seq, meta.max_seq, SEQ_MAX] {
            clean(table.get(key, tidesdb::internals::codec::key_hash(key), snapshot, true, &guard));
        }
        table.is_half_of(Some(key), None);
        table.blocks_within(std::ops::Bound::Included(key), std::ops::Bound::Unbounded);
    }
}

fn walk(mut cursor: TableCursor) {
    if clean(cursor.seek_to_first()).is_some() {
        for _ in 0..ROWS_MAX {
            if !cursor.valid()
                || clean(cursor.value().map(|v| v.len())).is_none()
                || clean(cursor.next()).is_none()
            {
                break;
            }
        }
    }
    if clean(cursor.seek_to_last()).is_some() {
        for _ in 0..ROWS_MAX {
            if !cursor.valid() || clean(cursor.prev()).is_none() {
                break;
            }
        }
    }
    for key in [&b"k"[..], b"key015", b"v", b""] {
        if clean(cursor.seek(key)).is_some() && cursor.valid() {
            clean(cursor.value().map(|v| v.len()));
            clean(cursor.next_key());
        }
    }
}

fn table_seeds() -> Vec<(String, Vec<u8>)> {
    super::corpus::tables()
}

/// Tests a value log; every 24 bytes of the input are also interpreted as a pointer.
fn vlog(data: &[u8]) {
    let mut file = data.to_vec();
    seal::vlog(&mut file);
    let (env, disk, _clock) = sim::env(3);
    disk.log_ops(false);
    let Ok(dir) = env.disk.open_dir(PATH.as_ref(), true) else { return };
    let id = VlogId(super::bytes::u32_at(&file, 16).unwrap_or(1));
    let family = FamilyId(super::bytes::u32_at(&file, 12).unwrap_or(1));
    if disk.write_file(format!("{PATH}/{}", files::vlog(id)), &file).is_err() {
        return;
    }
    let dir: Arc<dyn Dir> = dir;
    let set = VlogSet::new(dir, env.entropy, family, u64::MAX, || Err(Error::ReadOnly));
    let mut pointers = Vec::new();
    let report = clean(set.scan(id, |record| pointers.push(record.pointer)));
    if let Some(report) = report {
        assert!(report.valid_len <= report.len && report.gap_bytes <= report.len, "{report:?}");
    }
    for pointer in &pointers {
        if let Some(value) = clean(set.read(pointer)) {
            assert_eq!(value.len(), pointer.raw_len as usize);
        }
    }
    for bytes in data.chunks_exact(24).take(64) {
        let Some(pointer) = VlogPointer::decode(bytes) else { continue };
        for pointer in [pointer, VlogPointer { vlog: id, ..pointer }] {
            clean(set.read(&pointer));
        }
    }
}

fn vlog_seeds() -> Vec<(String, Vec<u8>)> {
    super::corpus::vlogs()
}

/// Tests a log segment in its short form, after a byte that selects the recovery mode. It replaces the log of the base.
fn log(data: &[u8]) {
    let Some((choice, parts)) = data.split_first() else { return };
    let (file, id) = seal::segment(parts);
    let disk = base().disk();
    for name in disk.file_names(PATH).unwrap_or_default() {
        if name.ends_with(".wal") && disk.remove_file(format!("{PATH}/{name}")).is_err() {
            return;
        }
    }
    if disk.write_file(format!("{PATH}/{}", files::wal(id)), &file).is_err() {
        return;
    }
    let modes = [RecoveryMode::Tail, RecoveryMode::PointInTime, RecoveryMode::Salvage, RecoveryMode::Strict];
    exercise(&on(disk), modes[usize::from(*choice) % 4]);
}

fn log_seeds() -> Vec<(String, Vec<u8>)> {
    super::corpus::segments()
}

/// Tests a table that was built outside of a database, in its short form, with its value log.
fn ingest(data: &[u8]) {
    take_table(data);
}

/// Has a database take a table in its short form, with its value log: it is refused and nothing changes, or its rows read back. Returns how
/// many it has.
pub fn take_table(data: &[u8]) -> Option<u64> {
    let (choice, table, values) = foreign::files(data)?;
    let (env, disk, _clock) = sim::env(3);
    disk.log_ops(false);
    env.disk.open_dir(FOLDER.as_ref(), true).ok()?;
    let db = options(&env).default_family(foreign::family(choice)).open().ok()?;
    let family = db.default_family();
    let old = [("a", "old"), ("key05", "old"), ("z", "old")];
    if old.iter().any(|(key, value)| db.put(key, value).is_err()) || db.flush().is_err() {
        return None;
    }
    let path = format!("{FOLDER}/t.klog");
    if disk.write_file(&path, &table).is_err()
        || (!values.is_empty() && disk.write_file(format!("{path}.vlog"), &values).is_err())
    {
        return None;
    }
    let (before, files) = (sound(family), disk.file_names(PATH).unwrap_or_default());
    let taking = Ingest::new().tables(family, [&path]);
    let taking = if choice & 2 == 0 { taking } else { taking.linking() };
    let Some(taken) = clean(db.ingest(&taking)) else {
        assert_eq!(sound(family), before, "a refused table changed rows");
        let mut now = disk.file_names(PATH).unwrap_or_default();
        now.retain(|name| !files.contains(name) && !name.ends_with(".wal"));
        assert!(now.is_empty(), "a refused table left files: {now:?}");
        return None;
    };
    let rows = sound(family);
    assert!(rows.len() as u64 <= before.len() as u64 + taken.rows, "more rows than the table has");
    assert_sound(db.flush().and_then(|()| db.put("new", "row")));
    assert_sound(db.delete("new"));
    assert_eq!(sound(family), rows, "a flush changed rows");
    assert_sound(db.compact());
    assert_eq!(sound(family), rows, "a merge changed rows");
    let report = assert_sound(db.verify());
    assert!(report.is_ok(), "a table was taken, and is damaged: {report}");
    assert_sound(db.close());
    let db = assert_sound(options(&env).default_family(foreign::family(choice)).open());
    assert_eq!(sound(db.default_family()), rows, "an open changed rows");
    Some(taken.rows)
}

/// A result that no checked table may spoil.
fn assert_sound<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|e| panic!("what was checked is damaged: {e}"))
}

/// All rows, which a scan in either direction and gets show alike.
fn sound(family: &Family) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pair = |row| {
        let (key, value): (tidesdb::Slice, tidesdb::Slice) = assert_sound(row);
        (key.into_vec(), value.into_vec())
    };
    let rows: Vec<_> = assert_sound(family.iter()).map(pair).collect();
    let mut back: Vec<_> = assert_sound(family.iter()).rev().map(pair).collect();
    back.reverse();
    assert_eq!(rows, back, "a scan backwards shows other rows");
    for (key, value) in rows.iter().take(ROWS_MAX) {
        let found = assert_sound(family.get(key)).map(tidesdb::Slice::into_vec);
        assert_eq!(
            found.as_ref(),
            Some(value),
            "a get of {:?} shows another value",
            key.escape_ascii().to_string()
        );
    }
    rows
}

/// Tests the body of a record that takes tables, after a byte that selects the recovery mode.
fn taking(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let Some(disk) = foreign::taking().with(body) else { return };
    let modes = [RecoveryMode::Tail, RecoveryMode::PointInTime, RecoveryMode::Salvage, RecoveryMode::Strict];
    exercise(&on(disk), modes[usize::from(*choice) % 4]);
}

fn taking_seeds() -> Vec<(String, Vec<u8>)> {
    let input = |mode: u8| [&[mode][..], foreign::taking().body()].concat();
    vec![("tail".into(), input(0)), ("salvage".into(), input(2))]
}

fn ini_seeds() -> Vec<(String, Vec<u8>)> {
    tidesdb_capi::fuzz::ini_seeds()
}

fn argument_seeds() -> Vec<(String, Vec<u8>)> {
    tidesdb_capi::fuzz::argument_seeds()
}
