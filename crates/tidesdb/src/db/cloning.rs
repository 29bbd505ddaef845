//! Clones: a new family with the contents of another family at one read timestamp.
//!
//! All rows of a clone get the read timestamp as their sequence number, not those of the original commits. A reader
//! older than the clone sees nothing in it, and every other reader sees all of it. No reader sees a part of the source.

use std::sync::Arc;

use super::Db;
use super::catalog::{core, find, new_id, publish_new, tell};
use crate::engine::Engine;
use crate::events::Event;
use crate::family::FamilyCore;
use crate::ingest::Room;
use crate::memory::Use;
use crate::merge::CoveringRanges;
use crate::read::Cursor;
use crate::rewrite::{self, FLUSH_LEVEL, RewriteTarget, Rewritten};
use crate::sources::Source;
use crate::types::{EntryCursor, Kind};
use crate::version::{Change, VersionEdit};
use crate::write::Family;
use crate::{Error, Result};

impl Db {
    /// Creates a family `new` with the current contents and options of `source`. Snapshots and transactions older than
    /// the clone find it empty; those taken now or later see all of it. Its rows have the sequence number of the read
    /// timestamp ([`Cursor::version_seq`](crate::Cursor::version_seq)).
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
    /// `NotFound`, `Exists`, `InvalidArgument` (name), `MemoryLimit`, `Corrupt`, `NoSpace`, `Io`, `ReadOnly`, `Poisoned`, `Closed`; `Merge`
    /// if the merge operator fails for a key. No family is created. No file is left, unless it could not be removed or the manifest may
    /// name it.
    pub fn clone_family(&self, source: &str, new: &str) -> Result<Family> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        engine.write.log.check_space_for_merge(0)?;
        let _catalog = engine.catalog.lock();
        let from = self.handle(find(engine, source)?);
        let id = new_id(engine, new)?;
        let options = from.current_options();
        let to = core(engine, id, new, options.clone(), from.core.owned_view().version.clone());
        let write = Arc::clone(&engine.write);
        let room = Room::new(
            Box::new(move |bytes| write.log.check_space_for_merge(bytes)),
            to.buffer_bytes() as u64,
        );
        let mut files = CloneFiles { engine, to, out: Rewritten::default(), room };
        files.copy(&from)?;
        // The copied rows become durable, so every commit before them must be durable too.
        engine.write.sync_to(engine.write.log.sequencer().visible_end())?;
        let mut edit = VersionEdit::new();
        edit.push(Change::CreateFamily { family: id, name: new.into(), options: options.clone() });
        edit.push(Change::FlushedTo { family: id, seq: engine.write.log.sequencer().visible_end() - 1 });
        files.out.add_to(&engine.maintenance, &files.to, |_| (FLUSH_LEVEL, 0), &mut edit)?;
        let made = publish_new(engine, id, new, options, edit)?;
        tell(engine, &Event::FamilyCreated { family: new.into(), source: source.into() });
        Ok(self.handle(made))
    }
}

/// Tables and value logs of a clone in progress. Dropping this removes the files, unless the manifest names them or may
/// name them.
struct CloneFiles<'a> {
    engine: &'a Arc<Engine>,
    /// Stand-in for the clone until it is published.
    to: Arc<FamilyCore>,
    out: Rewritten,
    room: Room,
}

impl CloneFiles<'_> {
    /// Writes the current contents of `from` durably.
    fn copy(&mut self, from: &Family) -> Result<()> {
        let mut cursor = from.cursor()?;
        let seq = cursor.seq();
        cursor.seek_to_first()?;
        let to = Arc::clone(&self.to);
        let staging = || to.memtable(self.engine.write.env.entropy.next_u64(), Use::Memtables);
        let mut map = staging();
        while cursor.valid() {
            let (key, expiry) = (cursor.key().to_vec(), cursor.stored_expiry());
            let (kind, value) = self.copy_value(from, &mut cursor)?;
            let version = tidesdb_memtable::Version { seq, kind: kind as u8, expiry };
            map.insert(&key, version, &value)
                .map_err(|_| Error::MemoryLimit { what: "cloning a family".into() })?;
            cursor.next()?;
            if map.allocated_bytes() >= to.buffer_bytes() || !cursor.valid() {
                self.engine.write.jobs.check_open()?;
                self.engine.write.log.check_space_for_merge(map.allocated_bytes() as u64)?;
                let full = std::mem::replace(&mut map, staging());
                let mut source = Source::memtable(&full);
                source.seek_to_first()?;
                let part = rewrite::run(
                    &self.engine.maintenance,
                    &to,
                    source,
                    RewriteTarget::flush(true),
                    &CoveringRanges::default(),
                )?;
                self.out.tables.extend(part.tables);
            }
        }
        to.vlog.sync()
    }

    /// Copies the value on which `cursor` stands. Returns the kind and the value of its new entry.
    fn copy_value(&mut self, from: &Family, cursor: &mut Cursor) -> Result<(Kind, Vec<u8>)> {
        let to = Arc::clone(&self.to);
        if let Some(place) = cursor.chunks()? {
            self.room.take(place.len)?;
            let place = to.vlog.copy_chunks(&from.core.vlog, &place, &mut Vec::new())?;
            return Ok((Kind::PutPointer, place.encode()));
        }
        let value = cursor.value()?;
        if value.len() < to.options.value_threshold() {
            return Ok((Kind::Put, value.to_vec()));
        }
        self.room.take(value.len() as u64)?;
        Ok((Kind::PutPointer, to.vlog.append(value, to.options.compression())?.encode().to_vec()))
    }
}

impl Drop for CloneFiles<'_> {
    fn drop(&mut self) {
        let versions = &self.engine.maintenance.versions;
        if versions.is_poisoned() || versions.version(self.to.id).is_some() {
            return;
        }
        self.out.abandon(&self.engine.maintenance);
        self.to.vlog.doom();
    }
}
