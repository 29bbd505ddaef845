//! Tests of the version set. All run on the simulated disk; failure messages contain the seeds.

mod codec;
mod crash;
mod detect;
mod faults;
mod follow;
mod limits;
mod runs;
mod logic;
mod order;
mod work;

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::sim::{self, SimDisk};
use tidesdb_io::{Dir, Env};

use super::*;
use crate::sst::{TableMeta, VlogRef};
use crate::types::{FamilyId, SeqNo, TableId, VlogId};
use crate::{Error, FamilyOptions, Result};

/// Directory of the test database.
const DB: &str = "/db";
/// Bytes of a segment in tests.
const SEGMENT: u64 = 1 << 20;

/// In tests, an open table is represented by its number.
type Set = VersionSet<TableId>;

fn dir_of(env: &Env) -> Arc<dyn Dir> {
    env.disk.open_dir(Path::new(DB), true).unwrap()
}

fn context(env: &Env, dir: &Arc<dyn Dir>) -> Context<TableId> {
    Context {
        dir: Arc::clone(dir),
        entropy: Arc::clone(&env.entropy),
        threads: Arc::clone(&env.threads),
        comparators: Vec::new(),
        operators: Vec::new(),
        lacks_operators: false,
        leaves_out: false,
        open_table: Arc::new(|_, meta| Ok(Arc::new(meta.id))),
    }
}

fn try_create(env: &Env) -> Result<Set> {
    let dir = env.disk.open_dir(Path::new(DB), true).map_err(|e| Error::io("open", DB, e))?;
    Set::create(context(env, &dir), SEGMENT)
}

fn create(env: &Env) -> Set {
    try_create(env).unwrap()
}

fn try_open(env: &Env) -> Result<(Set, ManifestReport)> {
    let dir = env.disk.open_dir(Path::new(DB), true).map_err(|e| Error::io("open", DB, e))?;
    Set::open(context(env, &dir), false)
}

fn open(env: &Env) -> (Set, ManifestReport) {
    try_open(env).unwrap()
}

/// Opens the database and begins a new manifest, as every recovery does.
fn recover(env: &Env) -> (Set, ManifestReport) {
    let (set, report) = open(env);
    install(&set, []).unwrap();
    (set, report)
}

/// Opens the database if it exists, otherwise creates it.
fn open_or_create(env: &Env) -> Result<Set> {
    let dir = env.disk.open_dir(Path::new(DB), true).map_err(|e| Error::io("open", DB, e))?;
    match presence(&*dir)? {
        Presence::Present => try_open(env).map(|(set, _)| set),
        Presence::Absent => try_create(env),
    }
}

/// Encodes a state for comparison, without counters, which may run ahead between sessions.
fn facts(state: &State) -> Vec<u8> {
    let all = state.snapshot();
    let mut out = Vec::new();
    let kept = all.changes.iter().filter(|c| !matches!(c, Change::NextIds { .. })).cloned();
    kept.collect::<VersionEdit>().encode(&mut out);
    out
}

fn meta(id: u64, keys: (&str, &str), seqs: (SeqNo, SeqNo), refs: &[(u32, u64, u64)]) -> Arc<TableMeta> {
    Arc::new(TableMeta {
        id: TableId(id),
        salt: [id as u8; 16],
        file_bytes: 1000 + id % 100,
        entries: 10,
        keys: 9,
        tombstones: 1,
        single_deletes: 0,
        smallest: keys.0.as_bytes().into(),
        largest: keys.1.as_bytes().into(),
        min_seq: seqs.0,
        max_seq: seqs.1,
        oldest_expiry: 0,
        newest_expiry: 0,
        has_eternal: true,
        raw_key_bytes: 90,
        raw_value_bytes: 900,
        purged_to: 0,
        compression: crate::Compression::Lz4,
        vlog_refs: refs.iter().map(|&(v, bytes, count)| VlogRef { vlog: VlogId(v), bytes, count }).collect(),
        ..TableMeta::default()
    })
}

fn edit(changes: impl IntoIterator<Item = Change>) -> VersionEdit {
    changes.into_iter().collect()
}

fn create_family(id: u32, name: &str) -> Change {
    Change::CreateFamily { family: FamilyId(id), name: name.into(), options: FamilyOptions::default() }
}

fn add(family: u32, level: u8, meta: &Arc<TableMeta>) -> Change {
    add_at(family, level, 0, meta)
}

fn add_at(family: u32, level: u8, generation: u32, meta: &Arc<TableMeta>) -> Change {
    Change::AddTable { family: FamilyId(family), level, generation, meta: Arc::clone(meta) }
}

fn remove(family: u32, level: u8, table: u64) -> Change {
    Change::RemoveTable { family: FamilyId(family), level, table: TableId(table) }
}

/// Installs with an empty `publish`.
fn install(set: &Set, changes: impl IntoIterator<Item = Change>) -> Result<()> {
    set.install(&edit(changes), |_| {})
}

/// Returns one step of the crash and fault scripts: a typical sequence of flushes and compactions.
fn step(set: &Set, n: u64) -> Vec<Change> {
    let family = 1 + (n % 2) as u32;
    let exists = set.state().families.contains_key(&FamilyId(family));
    if !exists {
        let id = set.new_family_id().unwrap();
        let name = format!("family {}", id.0);
        return vec![create_family(id.0, &name)];
    }
    let version = set.version(FamilyId(family)).unwrap();
    if version.level_len(1) >= 3 {
        let out = meta(set.new_table_id().unwrap().0, ("a", "z"), (1, n), &[]);
        let old: Vec<Change> =
            version.tables().map(|t| remove(family, level_of(&version, t.id()), t.id().0)).collect();
        return old.into_iter().chain([add(family, 2, &out)]).collect();
    }
    let flushed = meta(set.new_table_id().unwrap().0, ("b", "y"), (10 * n, 10 * n + 9), &[]);
    let seq = 10 * n + 9;
    vec![
        add(family, 1, &flushed),
        Change::FlushedTo { family: FamilyId(family), seq },
        Change::LastSeq { seq },
    ]
}

fn level_of(version: &FamilyVersion<TableId>, id: TableId) -> u8 {
    version.state.tables.get(id).unwrap().level
}

fn disk_with(seed: u64, installs: u64) -> (Env, Arc<SimDisk>, Set) {
    let (env, disk, _clock) = sim::env(seed);
    let set = create(&env);
    for n in 0..installs {
        let changes = step(&set, n);
        install(&set, changes).unwrap();
    }
    (env, disk, set)
}
