//! The order of disk calls (T08, in `crash`). For any test, the log of calls satisfies these rules, for an engine without background
//! threads on a healthy disk.
//!
//! 1. When a manifest is written and tables were created since its last write, each of these tables is synced, and so
//!    is the directory with their names. All value logs are synced, too, unless the log has unsynced records: a
//!    compaction does not refer to the values of these records, and a flush syncs those of its family.
//! 2. A table, value log, manifest or log segment is removed only if the manifest in force has no unsynced byte and no
//!    switch of `CURRENT` is unsynced. Tables that were never named in a manifest may be removed at any time.
//! 3. `CURRENT` is switched only to a manifest that is synced and whose name is durable, by a synced file.
//! 4. A log segment gets its name only after its header is synced, and gets records only after its name is durable.
//! 5. When records of the log are synced, the values that they may refer to were synced before.

use std::collections::BTreeSet;

use tidesdb_io::sim::{Op, OpKind, OpSet};

/// Number of times that each rule was tested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of calls checked.
    pub ops: u64,
    /// Number of manifest writes that could name new tables.
    pub installs: u64,
    /// Number of removed names.
    pub removals: u64,
    /// Number of switches of `CURRENT`.
    pub switches: u64,
    /// Number of writes of log records.
    pub records: u64,
}

impl Counts {
    /// Adds the counts of another log.
    pub fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.installs += other.installs;
        self.removals += other.removals;
        self.switches += other.switches;
        self.records += other.records;
    }
}

/// State of one directory, as needed by the rules.
#[derive(Default)]
struct Checker {
    counts: Counts,
    /// Files with unsynced bytes.
    dirty: BTreeSet<String>,
    /// Files whose name is not durable.
    unnamed: BTreeSet<String>,
    /// Tables created since the last write of a manifest.
    fresh: BTreeSet<String>,
    /// Whether `CURRENT` was switched and the directory is not synced yet.
    switched: bool,
    manifest: Option<String>,
    /// Whether the log has unsynced records.
    unsynced_records: bool,
}

/// Size of a segment header in bytes; records follow it.
const SEGMENT_HEADER_BYTES: u64 = 4096;

/// Checks the calls below `dir`, starting with the creation of the database.
///
/// # Errors
/// Describes the first call that violates a rule.
pub fn check(dir: &str, ops: &[Op]) -> Result<Counts, String> {
    let mut checker = Checker::default();
    for op in ops.iter().filter(|op| op.ok) {
        checker.counts.ops += 1;
        let name = match op.path.strip_prefix(dir) {
            Some("") => "",
            Some(rest) => rest.trim_start_matches('/'),
            None => continue,
        };
        checker
            .step(op, name)
            .map_err(|rule| format!("call {} ({:?} {}): {rule}", op.index, op.kind, op.path))?;
    }
    Ok(checker.counts)
}

/// Identifies a segment by its number, also while it has the suffix `.free`.
fn identity(name: &str) -> String {
    name.trim_end_matches(".free").to_owned()
}

impl Checker {
    fn step(&mut self, op: &Op, name: &str) -> Result<(), String> {
        match op.kind {
            OpKind::Create => self.created(name, op.len),
            OpKind::SyncDir if name.is_empty() => {
                self.unnamed.clear();
                self.switched = false;
                Ok(())
            }
            OpKind::SyncData | OpKind::SyncAll => self.synced(op, name),
            OpKind::Rename => self.renamed(name),
            OpKind::Unlink => self.unlinked(name),
            kind if OpSet::WRITES.has(kind) => self.written(op, name),
            OpKind::SetLen | OpKind::Allocate => {
                self.dirty.insert(identity(name));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn synced(&mut self, op: &Op, name: &str) -> Result<(), String> {
        self.dirty.remove(&identity(name));
        if identity(name).ends_with(".wal") && op.kind == OpKind::SyncData {
            self.unsynced_records = false;
            if let Some(vlog) = self.dirty.iter().find(|f| f.ends_with(".vlog")) {
                return Err(format!("rule 5: log records are synced before {vlog}"));
            }
        }
        Ok(())
    }

    fn created(&mut self, name: &str, prealloc: u64) -> Result<(), String> {
        self.unnamed.insert(identity(name));
        if prealloc > 0 {
            self.dirty.insert(identity(name));
        }
        if name.ends_with(".klog") {
            self.fresh.insert(name.to_owned());
        }
        if name.ends_with(".manifest") {
            self.manifest = Some(name.to_owned());
        }
        Ok(())
    }

    fn written(&mut self, op: &Op, name: &str) -> Result<(), String> {
        let identity = identity(name);
        if identity.ends_with(".wal") && op.offset >= SEGMENT_HEADER_BYTES {
            self.counts.records += 1;
            self.unsynced_records = true;
            if self.unnamed.contains(&identity) {
                return Err("rule 4: a record is written to a segment whose name is not durable".into());
            }
        }
        if name.ends_with(".manifest") {
            self.manifest = Some(name.to_owned());
            self.manifest_written()?;
        }
        self.dirty.insert(identity);
        Ok(())
    }

    fn manifest_written(&mut self) -> Result<(), String> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        self.counts.installs += 1;
        for table in std::mem::take(&mut self.fresh) {
            if self.dirty.contains(&table) {
                return Err(format!("rule 1: {table} is not synced"));
            }
            if self.unnamed.contains(&table) {
                return Err(format!("rule 1: the name of {table} is not durable"));
            }
        }
        match self.dirty.iter().chain(&self.unnamed).find(|f| f.ends_with(".vlog")) {
            Some(vlog) if !self.unsynced_records => Err(format!("rule 1: {vlog} is not synced")),
            _ => Ok(()),
        }
    }

    fn renamed(&mut self, from: &str) -> Result<(), String> {
        if from == "CURRENT.new" {
            return self.current_switched();
        }
        if from.ends_with(".wal.free") {
            // The segment is either reused under another number or prepared: in both cases its new name is not durable
            // yet.
            if self.dirty.contains(&identity(from)) {
                return Err("rule 4: a segment gets its name before its header is synced".into());
            }
            self.unnamed.insert(identity(from));
            return Ok(());
        }
        // Kept for reuse: its unsynced bytes are not needed any more.
        self.dirty.remove(&identity(from));
        self.removed()
    }

    fn current_switched(&mut self) -> Result<(), String> {
        self.counts.switches += 1;
        if self.dirty.contains("CURRENT.new") {
            return Err("rule 3: the new CURRENT is not synced".into());
        }
        if let Some(manifest) = &self.manifest {
            if self.dirty.contains(manifest) {
                return Err(format!("rule 3: {manifest} is not synced"));
            }
            if self.unnamed.contains(manifest) {
                return Err(format!("rule 3: the name of {manifest} is not durable"));
            }
        }
        self.switched = true;
        Ok(())
    }

    fn unlinked(&mut self, name: &str) -> Result<(), String> {
        let known = [".klog", ".vlog", ".manifest", ".wal"].iter().any(|ext| name.ends_with(ext));
        let never_named = self.fresh.remove(name);
        self.dirty.remove(&identity(name));
        if known && !never_named { self.removed() } else { Ok(()) }
    }

    fn removed(&mut self) -> Result<(), String> {
        self.counts.removals += 1;
        if self.switched {
            return Err("rule 2: a file is removed before the switch of CURRENT is durable".into());
        }
        match self.dirty.iter().find(|f| f.ends_with(".manifest")) {
            Some(manifest) => Err(format!("rule 2: a file is removed while {manifest} is not synced")),
            None => Ok(()),
        }
    }
}
