//! Reads every byte of a table again and checks checksums, order, index against data, filter and counts.

use std::cmp::Ordering;

use super::block::{Block, ShortKey};
use super::filter::Filter;
use super::index::{Fence, Index};
use super::layout::FOOTER_BYTES;
use super::partitions::CurrentPartition;
use super::window::Window;
use super::{Table, TableMeta};
use crate::Result;
use crate::codec::key_hash;
use crate::types::{EntryMeta, KEY_BYTES_MAX, Kind, SeqNo};

/// State of a verification scan.
struct Verification {
    /// The filter, read from the file again.
    filter: Filter,
    near: CurrentPartition,
    meta: TableMeta,
    key: ShortKey,
    last: ShortKey,
    last_seq: SeqNo,
}

impl Table {
    /// Reads and checks the whole file, and returns the number of entries.
    ///
    /// # Errors
    /// `Corrupt` with the first location where the file differs from what was written; `Io`.
    pub fn verify(&self) -> Result<u64> {
        let mut walk = Verification {
            filter: self.verify_sections()?,
            near: CurrentPartition::bypassing(),
            meta: TableMeta::default(),
            key: ShortKey::new(),
            last: ShortKey::new(),
            last_seq: SeqNo::MAX,
        };
        let (mut window, mut keys, mut values) = (Window::whole(false), Vec::new(), Vec::new());
        for b in 0..self.blocks() {
            let fence = self.fence(&mut walk.near, b)?;
            let len = usize::try_from(fence.disk).map_err(|_| self.corrupt(fence.at, "block too long"))?;
            window.step(b.wrapping_sub(1), b);
            let read = window.block(self, &mut walk.near, fence, len)?;
            let shape = self.decode_keys(fence, &mut walk.near, read, &mut keys)?;
            let block = Block { shape: &shape, bytes: &keys };
            let end = self.decode_values(fence, block, &read[fence.key_part..], &mut values)?;
            self.check_padding(fence, end, &read[fence.key_part..])?;
            self.verify_entries(b, fence, block, &values, &mut walk)?;
        }
        let found = TableMeta {
            id: self.meta.id,
            salt: self.meta.salt,
            file_bytes: self.meta.file_bytes,
            compression: self.meta.compression,
            purged_to: self.meta.purged_to,
            largest: walk.last.into_vec(),
            ..walk.meta
        };
        // The comparator decides which keys are the same key.
        let keys = if self.comparator.is_unresolved() { self.meta.keys } else { found.keys };
        let found = TableMeta { keys, ..found };
        match found.difference(&self.meta) {
            None => Ok(found.entries),
            Some(what) => Err(self.corrupt(
                self.footer.props_at,
                &format!("the {what} of the entries differ from the properties"),
            )),
        }
    }

    /// Reads footer, properties, index and filter again, except for partitions that the scan itself reads. Returns the
    /// filter.
    fn verify_sections(&self) -> Result<Filter> {
        let (meta, opening) = (&self.meta, self.opening());
        let end = opening.read(self.footer.index_at, meta.file_bytes)?;
        let footer = opening.footer(&end)?;
        let footer_at = meta.file_bytes - FOOTER_BYTES as u64;
        if footer != self.footer {
            return Err(self.corrupt(footer_at, "footer changed since the table was opened"));
        }
        let (front, props) = end.split_at((footer.props_at - footer.index_at) as usize);
        opening.check_props(&props[..props.len() - FOOTER_BYTES], &footer)?;
        let (top, shape) = opening.top(&footer, front)?;
        if let Index::Resident(_) = self.guide.index {
            top.partitions().try_for_each(|partition| opening.partition_index(&top, partition).map(drop))?;
        }
        let filter = shape.join(&opening.filter_partitions(&footer, shape)?);
        match self.guide.index {
            Index::Resident(_) if filter != self.guide.filter => {
                Err(self.corrupt(footer.filter_at, "filter changed since the table was opened"))
            }
            _ => Ok(filter),
        }
    }

    /// Orders two neighbours. Without the comparator, two different keys count as being in order.
    fn verified_order(&self, last: &[u8], key: &[u8]) -> Ordering {
        match self.comparator.is_unresolved() {
            true if last != key => Ordering::Less,
            true => Ordering::Equal,
            false => self.comparator.compare(last, key),
        }
    }

    /// Checks the entries of a block against the previous entries, the index, the filter and the rules for each kind.
    fn verify_entries(
        &self,
        b: usize,
        fence: Fence,
        block: Block<'_>,
        values: &[u8],
        walk: &mut Verification,
    ) -> Result<()> {
        for i in 0..block.len() {
            block.key_into(i, &mut walk.key);
            let seq = block.seq(i);
            if walk.key.len() > KEY_BYTES_MAX {
                return Err(self.corrupt(fence.at, "key longer than its limit"));
            }
            let order = self.verified_order(&walk.last, &walk.key);
            let first = walk.meta.entries == 0;
            let new_key = first || order == Ordering::Less;
            if !new_key && (order == Ordering::Greater || seq >= walk.last_seq) {
                return Err(self.corrupt(fence.at, "entries out of order"));
            }
            if i == 0 {
                self.verify_fence(b, fence, new_key, seq, walk)?;
            }
            if new_key && !walk.filter.may_contain(key_hash(&walk.key)) {
                return Err(
                    self.corrupt(self.footer.filter_at, "filter denies a key that the table contains")
                );
            }
            let value = values
                .get(block.value_span(i))
                .ok_or_else(|| self.corrupt(fence.at, "value extends beyond its block"))?;
            walk.count(block.entry_meta(i), value, new_key).map_err(|what| self.corrupt(fence.at, what))?;
            std::mem::swap(&mut walk.key, &mut walk.last);
            walk.last_seq = seq;
        }
        Ok(())
    }

    /// Checks that the fence before block `b` separates it from the previous entries.
    fn verify_fence(
        &self,
        b: usize,
        fence: Fence,
        new_key: bool,
        seq: SeqNo,
        walk: &mut Verification,
    ) -> Result<()> {
        let Some(border) = self.border(&mut walk.near, b)? else { return Ok(()) };
        if self.comparator.is_unresolved() {
            return Ok(());
        }
        let after_last = self.comparator.compare(&walk.last, &border.fence);
        let before_first = self.comparator.compare(&border.fence, &walk.key).is_le();
        let good = match border.goes_on {
            None => new_key && after_last.is_lt() && before_first,
            Some(first_seq) => !new_key && after_last.is_eq() && first_seq == seq,
        };
        if good { Ok(()) } else { Err(self.corrupt(fence.at, "index does not match the block")) }
    }
}

impl Verification {
    /// Counts the entry whose key is `key`. Returns what is wrong with it.
    fn count(
        &mut self,
        entry: EntryMeta,
        value: &[u8],
        new_key: bool,
    ) -> std::result::Result<(), &'static str> {
        let (seq, kind, expiry) = entry.parts();
        let meta = &mut self.meta;
        if meta.entries == 0 {
            meta.smallest = self.key.to_vec();
            meta.min_seq = seq;
        }
        if kind.is_tombstone() && !value.is_empty() {
            return Err("tombstone with a value");
        }
        if kind == Kind::PutPointer && meta.note_pointer(value).is_err() {
            return Err("malformed pointer into a value log");
        }
        meta.entries += 1;
        meta.keys += u64::from(new_key);
        meta.tombstones += u64::from(kind.is_tombstone());
        meta.single_deletes += u64::from(kind == Kind::SingleDelete);
        meta.min_seq = meta.min_seq.min(seq);
        meta.max_seq = meta.max_seq.max(seq);
        meta.raw_key_bytes += self.key.len() as u64;
        meta.raw_value_bytes += value.len() as u64;
        meta.note_expiry(expiry);
        Ok(())
    }
}
