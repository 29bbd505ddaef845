//! Reads every byte of a table again and checks it: checksums, order, index against data, filter, counts.

use std::cmp::Ordering;
use std::sync::Arc;

use super::block::Block;
use super::filter::Filter;
use super::index::Fence;
use super::layout::{FOOTER_BYTES, open_section};
use super::reader::{check_props, read_footer};
use super::source::Window;
use super::{Table, TableMeta};
use crate::Result;
use crate::codec::key_hash;
use crate::types::{KEY_BYTES_MAX, Kind, SeqNo};

/// Bytes that are read at once.
const AHEAD_BYTES: usize = 256 << 10;

/// What the walk has seen so far.
struct Walk {
    meta: TableMeta,
    key: Vec<u8>,
    last: Vec<u8>,
    last_seq: SeqNo,
}

impl Table {
    /// Reads and checks the whole file, and returns the number of entries.
    ///
    /// # Errors
    /// `Corrupt` naming the first place where the file is not what was written; `Io`.
    pub fn verify(&self) -> Result<u64> {
        self.verify_sections()?;
        let mut walk =
            Walk { meta: TableMeta::default(), key: Vec::new(), last: Vec::new(), last_seq: SeqNo::MAX };
        let (mut window, mut keys, mut values) = (Window::default(), Vec::new(), Vec::new());
        let ahead = (AHEAD_BYTES, self.footer.filter_at);
        for b in 0..self.index.blocks() {
            let fence = self.fence(b)?;
            let len = usize::try_from(fence.disk).map_err(|_| self.corrupt(fence.at, "block too long"))?;
            let read = self.source.read_ahead((fence.at, len), ahead, &mut window, &self.name)?;
            let shape = self.decode_keys(fence, read, &mut keys)?;
            let block = Block { shape: &shape, bytes: &keys };
            self.decode_values(fence, block, &read[fence.key_part..], &mut values)?;
            self.verify_entries(b, fence, block, &values, &mut walk)?;
        }
        let found = TableMeta {
            id: self.meta.id,
            salt: self.meta.salt,
            file_bytes: self.meta.file_bytes,
            compression: self.meta.compression,
            purged_to: self.meta.purged_to,
            largest: walk.last,
            ..walk.meta
        };
        match found.difference(&self.meta) {
            None => Ok(found.entries),
            Some(what) => Err(self
                .corrupt(self.footer.props_at, &format!("{what} of the entries differ from the properties"))),
        }
    }

    /// Footer, properties, index and filter, read anew.
    fn verify_sections(&self) -> Result<()> {
        let (meta, name) = (&self.meta, &self.name);
        let footer = read_footer(&self.source, meta, name)?;
        if footer != self.footer {
            return Err(self.corrupt(
                meta.file_bytes - FOOTER_BYTES as u64,
                "footer changed since the table was opened",
            ));
        }
        let mut buf = Vec::new();
        let mut read = |start: u64, end: u64| -> Result<Arc<[u8]>> {
            let len = usize::try_from(end - start).map_err(|_| self.corrupt(start, "section too long"))?;
            self.source.read(start, len, &mut buf, name).map(Arc::from)
        };
        let props = read(footer.props_at, meta.file_bytes - FOOTER_BYTES as u64)?;
        check_props(&props, &footer, meta, name)?;
        let filter = read(footer.filter_at, footer.index_at)?;
        if Filter::decode(&filter, &meta.salt, name, footer.filter_at)? != self.filter {
            return Err(self.corrupt(footer.filter_at, "filter changed since the table was opened"));
        }
        let index = read(footer.index_at, footer.props_at)?;
        open_section(&meta.salt, footer.index_at, &index, name, "index").map(|_| ())
    }

    /// Checks the entries of a block against those before, the index, the filter and the rules of kinds.
    fn verify_entries(
        &self,
        b: usize,
        fence: Fence,
        block: Block<'_>,
        values: &[u8],
        walk: &mut Walk,
    ) -> Result<()> {
        for i in 0..block.len() {
            block.key_into(i, &mut walk.key);
            let seq = block.seq(i);
            if walk.key.len() > KEY_BYTES_MAX {
                return Err(self.corrupt(fence.at, "key too long"));
            }
            let order = self.comparator.compare(&walk.last, &walk.key);
            let first = walk.meta.entries == 0;
            let new_key = first || order == Ordering::Less;
            if !new_key && (order == Ordering::Greater || seq >= walk.last_seq) {
                return Err(self.corrupt(fence.at, "entries out of order"));
            }
            if i == 0 {
                self.verify_fence(b, fence, new_key, seq, walk)?;
            }
            if new_key && !self.filter.may_contain(key_hash(&walk.key)) {
                return Err(self.corrupt(self.footer.filter_at, "filter denies a key of the table"));
            }
            let (start, end) = block.value_span(i);
            let value =
                values.get(start..end).ok_or_else(|| self.corrupt(fence.at, "value outside its block"))?;
            self.count(walk, (block.kind(i), block.expiry(i), value), seq, new_key, fence)?;
            std::mem::swap(&mut walk.key, &mut walk.last);
            walk.last_seq = seq;
        }
        Ok(())
    }

    /// Checks that the fence before block `b` separates it from what came before.
    fn verify_fence(&self, b: usize, fence: Fence, new_key: bool, seq: SeqNo, walk: &Walk) -> Result<()> {
        let Some(i) = b.checked_sub(1) else { return Ok(()) };
        let separator = self.index.fence(i);
        let after_last = self.comparator.compare(&walk.last, &separator);
        let before_first = self.comparator.compare(&separator, &walk.key).is_le();
        let good = match self.index.goes_on(b) {
            None => new_key && after_last.is_lt() && before_first,
            Some(first_seq) => !new_key && after_last.is_eq() && first_seq == seq,
        };
        if good { Ok(()) } else { Err(self.corrupt(fence.at, "index does not fit the block")) }
    }

    fn count(
        &self,
        walk: &mut Walk,
        (kind, expiry, value): (Kind, u32, &[u8]),
        seq: SeqNo,
        new_key: bool,
        fence: Fence,
    ) -> Result<()> {
        let meta = &mut walk.meta;
        if meta.entries == 0 {
            meta.smallest.clone_from(&walk.key);
            meta.min_seq = seq;
        }
        if kind.is_tombstone() && !value.is_empty() {
            return Err(self.corrupt(fence.at, "tombstone with a value"));
        }
        if kind == Kind::PutPointer && meta.note_pointer(value).is_err() {
            return Err(self.corrupt(fence.at, "malformed pointer into a value log"));
        }
        meta.entries += 1;
        meta.keys += u64::from(new_key);
        meta.tombstones += u64::from(kind.is_tombstone());
        meta.single_deletes += u64::from(kind == Kind::SingleDelete);
        meta.min_seq = meta.min_seq.min(seq);
        meta.max_seq = meta.max_seq.max(seq);
        meta.raw_key_bytes += walk.key.len() as u64;
        meta.raw_value_bytes += value.len() as u64;
        meta.note_expiry(expiry);
        Ok(())
    }
}
