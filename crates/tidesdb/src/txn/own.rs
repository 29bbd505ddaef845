//! A transaction's own writes, sorted for reading. Made when they are first read, kept up with the batch afterwards.

use tidesdb_memtable::Version;

use crate::family::FamilyCore;
use crate::ranges::RangeTombstone;
use crate::read::OwnReads;
use crate::shared::ReadCtx;
use crate::types::{Comparator, FamilyId, Kind, SEQ_MAX};
use crate::write::WriteBatch;
use crate::{Error, Result};

/// Batches up to this many operations are looked through; longer ones are sorted.
const LOOK_THROUGH_MAX: usize = 16;

/// What the transaction itself says of a key.
#[derive(Clone, Copy, Debug)]
pub(super) enum OwnWrite<'a> {
    Value(&'a [u8]),
    Deleted,
}

/// What own writes said of a key; if nothing, the reader comes back unused.
pub(super) enum Own<R, F> {
    Said(Option<R>),
    Silent(F),
}

impl<R, F: FnOnce(&[u8]) -> R> Own<R, F> {
    pub(super) fn said(own: OwnWrite<'_>, read: F) -> Self {
        Self::Said(match own {
            OwnWrite::Value(value) => Some(read(value)),
            OwnWrite::Deleted => None,
        })
    }
}

/// Own writes by family. Versions are numbered in the order of the operations.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    families: Vec<(FamilyId, OwnReads)>,
    /// Bytes of the batch that are in the maps.
    covered: usize,
    count: u64,
}

impl OwnWrites {
    /// Forgets everything: the batch was cut back or cleared.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a batch is so short, and not sorted yet, that [`look_through`] finds a key soonest.
    pub(super) fn is_short(&self, batch: &WriteBatch) -> bool {
        self.covered == 0 && batch.len() <= LOOK_THROUGH_MAX
    }

    /// Whether all of the batch is sorted, so that [`OwnWrites::get`] may be asked.
    pub(super) fn is_caught_up(&self, batch: &WriteBatch) -> bool {
        self.covered == batch.body_bytes()
    }

    /// What the sorted batch says of `key`, if anything.
    pub(super) fn get(&self, reads: &ReadCtx, family: &FamilyCore, key: &[u8]) -> Option<OwnWrite<'_>> {
        let own = self.of(family)?;
        if let Some(e) = own.map.get(key, SEQ_MAX) {
            return Some(own_write(reads, Kind::from_u8(e.kind).unwrap_or(Kind::Delete), e.expiry, e.value));
        }
        let order = &family.options.comparator;
        own.ranges.iter().any(|range| range.covers(order, key)).then_some(OwnWrite::Deleted)
    }

    /// The sorted writes of `family`, if it has any.
    pub(super) fn of(&self, family: &FamilyCore) -> Option<&OwnReads> {
        self.families.iter().find(|(id, _)| *id == family.id).map(|(_, own)| own)
    }

    fn find(&mut self, family: FamilyId) -> Option<&mut OwnReads> {
        self.families.iter_mut().find(|(id, _)| *id == family).map(|(_, own)| own)
    }

    /// Sorts the operations that came since the last time.
    ///
    /// # Errors
    /// `MemoryLimit`.
    pub(super) fn catch_up(&mut self, batch: &WriteBatch) -> Result<()> {
        for op in batch.ops_from(self.covered) {
            let op = op?;
            let family = batch.family(op.family).ok_or_else(|| Error::internal("a batch lost a family"))?;
            if self.find(op.family).is_none() {
                let map = family.staging_memtable(u64::from(op.family.0));
                self.families.push((op.family, OwnReads { map, ranges: Vec::new() }));
            }
            self.count += 1;
            let mut version = Version { seq: self.count, kind: op.kind as u8, expiry: op.expiry };
            let own = self.find(op.family).ok_or_else(|| Error::internal("a map that was just made"))?;
            if op.kind == Kind::RangeDelete {
                version.kind = Kind::Delete as u8;
                delete_range(own, &family.options.comparator, op.range_tombstone(0), version)?;
            } else {
                own.map.insert(op.key, version, op.value).map_err(|_| full())?;
            }
        }
        self.covered = batch.body_bytes();
        Ok(())
    }
}

/// What a short batch says of `key`, if anything.
///
/// # Errors
/// `Internal`: the batch cannot be read.
pub(super) fn look_through<'b>(
    reads: &ReadCtx,
    batch: &'b WriteBatch,
    family: &FamilyCore,
    key: &[u8],
) -> Result<Option<OwnWrite<'b>>> {
    let order = &family.options.comparator;
    let mut last = None;
    for op in batch.ops_from(0) {
        let op = op?;
        let same = match op.kind {
            Kind::RangeDelete => op.range_tombstone(0).covers(order, key),
            _ => order.compare(op.key, key).is_eq(),
        };
        if op.family == family.id && same {
            last = Some(own_write(reads, op.kind, op.expiry, op.value));
        }
    }
    Ok(last)
}

/// Deletes what the transaction itself wrote in the range, key by key, and notes the range for all the rest.
fn delete_range(
    own: &mut OwnReads,
    order: &Comparator,
    range: RangeTombstone,
    version: Version,
) -> Result<()> {
    let mut cursor = own.map.cursor();
    match &range.start {
        Some(start) => cursor.seek(start),
        None => cursor.seek_to_first(),
    }
    while cursor.valid() && range.covers(order, cursor.entry().key) {
        let key = cursor.entry().key.to_vec();
        cursor.next_key();
        own.map.insert(&key, version, &[]).map_err(|_| full())?;
    }
    own.ranges.push(range);
    Ok(())
}

fn full() -> Error {
    Error::MemoryLimit { what: "the writes of a transaction".into() }
}

/// An expired put hides what others wrote, as a delete does.
fn own_write<'v>(reads: &ReadCtx, kind: Kind, expiry: u32, value: &'v [u8]) -> OwnWrite<'v> {
    if kind.is_tombstone() || reads.is_expired(expiry) { OwnWrite::Deleted } else { OwnWrite::Value(value) }
}
