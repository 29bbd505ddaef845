//! A transaction's own writes, sorted for reading. Made when they are first read, kept up with the batch afterwards.

use std::sync::Arc;

use tidesdb_memtable::{Memtable, Version};

use crate::family::FamilyCore;
use crate::types::{FamilyId, Kind, SEQ_MAX, Slice};
use crate::write::WriteBatch;
use crate::{Error, Result};

/// Batches up to this many operations are looked through; longer ones are sorted.
const LOOK_THROUGH_MAX: usize = 16;

/// What the transaction itself says of a key.
pub(super) enum OwnWrite {
    Value(Slice),
    Deleted,
}

/// Own writes by family. Versions are numbered in the order of the operations.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    maps: Vec<(FamilyId, Arc<Memtable>)>,
    /// Bytes of the batch that are in the maps.
    covered: usize,
    count: u64,
}

impl OwnWrites {
    /// Forgets everything: the batch was cut back or cleared.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The writes of `family` as a map; `None` if it has none.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn map(
        &mut self,
        batch: &WriteBatch,
        family: &Arc<FamilyCore>,
    ) -> Result<Option<Arc<Memtable>>> {
        if !batch.has_family(family) {
            return Ok(None);
        }
        self.catch_up(batch)?;
        Ok(self.find(family.id).cloned())
    }

    /// What the batch says of `key`, if anything.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn get(
        &mut self,
        batch: &WriteBatch,
        family: &Arc<FamilyCore>,
        key: &[u8],
    ) -> Result<Option<OwnWrite>> {
        if !batch.has_family(family) {
            return Ok(None);
        }
        if self.covered == 0 && batch.len() <= LOOK_THROUGH_MAX {
            let order = &family.options.comparator;
            let mut last = None;
            for op in batch.ops_from(0) {
                let op = op?;
                if op.family == family.id && order.compare(op.key, key).is_eq() {
                    last = Some(op);
                }
            }
            return Ok(last.map(|op| own_write(op.kind, op.value)));
        }
        self.catch_up(batch)?;
        let Some(map) = self.find(family.id) else { return Ok(None) };
        let found = map.get(key, SEQ_MAX);
        Ok(found.map(|e| own_write(Kind::from_u8(e.kind).unwrap_or(Kind::Delete), e.value)))
    }

    fn find(&self, family: FamilyId) -> Option<&Arc<Memtable>> {
        self.maps.iter().find(|(id, _)| *id == family).map(|(_, map)| map)
    }

    /// Adds the operations that came since the last time.
    fn catch_up(&mut self, batch: &WriteBatch) -> Result<()> {
        for op in batch.ops_from(self.covered) {
            let op = op?;
            if self.find(op.family).is_none() {
                let family =
                    batch.family(op.family).ok_or_else(|| Error::internal("a batch lost a family"))?;
                self.maps.push((op.family, family.staging_memtable(u64::from(op.family.0))));
            }
            self.count += 1;
            let version = Version { seq: self.count, kind: op.kind as u8, expiry: op.expiry };
            let map = self.find(op.family).ok_or_else(|| Error::internal("a map that was just made"))?;
            map.insert(op.key, version, op.value)
                .map_err(|_| Error::MemoryLimit { what: "the writes of a transaction".into() })?;
        }
        self.covered = batch.body_bytes();
        Ok(())
    }
}

fn own_write(kind: Kind, value: &[u8]) -> OwnWrite {
    if kind.is_tombstone() { OwnWrite::Deleted } else { OwnWrite::Value(value.into()) }
}
