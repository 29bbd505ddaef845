//! Clones: a family made of what another one shows at one moment.
//!
//! All rows of a clone get the sequence number of that moment, not that of their commits: a reader older than the clone sees
//! nothing in it, and every other reader sees all of it. So readers never see a part of the source.

use std::sync::Arc;

use super::Db;
use super::catalog::{core, find, publish_new};
use crate::family::FamilyCore;
use crate::merge::Purge;
use crate::rewrite::{self, FLUSH_LEVEL, Rewritten, Target};
use crate::shared::{Family, Shared};
use crate::sources::Source;
use crate::types::{EntryCursor, Kind};
use crate::version::{Change, VersionEdit};
use crate::{Error, Result};

impl Db {
    /// Makes a family `new` with the contents and options that `source` has now. The clone did not exist before: a snapshot or a
    /// transaction that is older finds it empty, and its rows are as new as a commit of this moment
    /// ([`Cursor::version_seq`](crate::Cursor::version_seq)). One taken at this very moment, or later, finds all of it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let before = db.snapshot();
    /// db.put(b"k", b"v")?;
    /// let copy = db.clone_family("default", "copy")?;
    /// assert!(copy.contains(b"k")?);
    /// assert!(!before.contains(&copy, b"k")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `InvalidArgument` (name, or a source that waits), `Corrupt`, `NoSpace`, `Io`, `ReadOnly`, `Poisoned`, `Closed`:
    /// nothing was made, and no file is left unless it could not be removed or the manifest may name it.
    pub fn clone_family(&self, source: &str, new: &str) -> Result<Family> {
        let shared = &self.inner.shared;
        shared.write.check_writable()?;
        drop(shared.write.log.pledge_merge(0)?);
        let _catalog = shared.catalog.lock();
        let from = self.handle(find(shared, source)?);
        if find(shared, new).is_ok() || shared.orders.waiting_family(new).is_some() {
            return Err(Error::Exists { what: format!("column family {new:?}").into() });
        }
        let options = from.options();
        let id = shared.maintenance.versions.new_family_id()?;
        let to = core(shared, id, new, options.clone(), from.core.owned_view().version.clone());
        let mut files = CloneFiles { shared, to, out: Rewritten::default() };
        files.copy(&from)?;
        // What was copied becomes durable: so must every commit before it.
        shared.write.sync_to(shared.write.log.sequencer().visible_end())?;
        let mut edit = VersionEdit::new();
        edit.push(Change::CreateFamily { family: id, name: new.into(), options: options.clone() });
        edit.push(Change::FlushedTo { family: id, seq: shared.write.log.sequencer().visible_end() - 1 });
        files.out.add_to(&shared.maintenance, &files.to, FLUSH_LEVEL, &mut edit)?;
        publish_new(shared, id, new, options, edit).map(|core| self.handle(core))
    }
}

/// Tables and value logs of a clone that is being made. Dropping them removes the files, unless the manifest names them or may
/// do so.
struct CloneFiles<'a> {
    shared: &'a Arc<Shared>,
    /// Stands for the clone until there is one.
    to: Arc<FamilyCore>,
    out: Rewritten,
}

impl CloneFiles<'_> {
    /// Writes what `from` shows now, durable.
    fn copy(&mut self, from: &Family) -> Result<()> {
        let mut cursor = from.cursor()?;
        let seq = cursor.seq();
        cursor.seek_to_first()?;
        let to = Arc::clone(&self.to);
        let staging = || to.staging_memtable(self.shared.write.env.entropy.next_u64());
        let mut map = staging();
        while cursor.valid() {
            let (key, expiry) = (cursor.key().to_vec(), cursor.expiry());
            let value = cursor.value()?;
            let separate = value.len() >= to.options.value_threshold();
            let pointer =
                if separate { Some(to.vlog.append(value, to.options.compression())?.encode()) } else { None };
            let kind = if separate { Kind::PutPointer } else { Kind::Put };
            let version = tidesdb_memtable::Version { seq, kind: kind as u8, expiry };
            map.insert(&key, version, pointer.as_ref().map_or(value, |p| &p[..]))
                .map_err(|_| Error::MemoryLimit { what: "cloning a family".into() })?;
            cursor.next()?;
            if map.allocated_bytes() >= to.options.write_buffer_bytes() || !cursor.valid() {
                let full = std::mem::replace(&mut map, staging());
                let mut source = Source::memtable(&full);
                source.seek_to_first()?;
                let part = rewrite::run(
                    &self.shared.maintenance,
                    &to,
                    source,
                    Target::flush(true),
                    &Purge::nothing(),
                )?;
                self.out.tables.extend(part.tables);
            }
        }
        to.vlog.sync()
    }
}

impl Drop for CloneFiles<'_> {
    fn drop(&mut self) {
        let versions = &self.shared.maintenance.versions;
        if versions.is_poisoned() || versions.version(self.to.id).is_some() {
            return;
        }
        self.out.abandon(&self.shared.maintenance);
        self.to.vlog.doom();
    }
}
