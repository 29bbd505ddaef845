//! Reads every byte of a table again and checks checksums, order, index against data, filter and counts. Reports the blocks one by one,
//! for inspection.

use std::cmp::Ordering;

use super::block::{Block, ShortKey};
use super::filter::Filter;
use super::index::{CurrentPartition, Fence, Index};
use super::layout::FOOTER_BYTES;
use super::open::Sections;
use super::window::Window;
use super::{Table, TableMeta};
use crate::Result;
use crate::codec::key_hash;
use crate::types::{EntryRef, KEY_BYTES_MAX, SeqNo};

/// A block as described by the index, and the result of reading it.
#[derive(Debug)]
pub struct BlockInfo {
    /// Number of the block, from 0.
    pub number: usize,
    /// Offset of the block.
    pub at: u64,
    /// Length of header, frame table and key section in bytes.
    pub key_bytes: u64,
    /// Length of the whole block in bytes.
    pub bytes: u64,
    /// The content, or the damage found.
    pub checked: Result<BlockContent>,
}

/// Summary of a valid block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockContent {
    /// Number of entries.
    pub entries: usize,
    /// Number of frames of values.
    pub frames: usize,
    /// The first key.
    pub first_key: Vec<u8>,
}

/// What a verification has seen so far.
struct Verification {
    /// The filter, read from the file again.
    filter: Filter,
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
        self.verify_each(&mut |_| Ok(()))
    }

    /// Like [`Table::verify`], and passes each entry to `visit`.
    ///
    /// # Errors
    /// As [`Table::verify`]; errors of `visit`.
    pub fn verify_each(&self, visit: &mut dyn FnMut(&EntryRef<'_>) -> Result<()>) -> Result<u64> {
        let mut walk = Verification {
            filter: self.verify_sections()?,
            meta: TableMeta { vlog_refs: self.meta().uncounted_refs(), ..TableMeta::default() },
            key: ShortKey::new(),
            last: ShortKey::new(),
            last_seq: SeqNo::MAX,
        };
        let blocks = self.blocks();
        let (mut window, mut near) = (Window::whole(false), CurrentPartition::bypassing());
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for b in 0..blocks.count() {
            let fence = blocks.index().fence(&mut near, b)?;
            window.step(b.wrapping_sub(1), b);
            let read = window.block(blocks, &mut near, fence, self.whole_length(fence)?)?;
            let shape = blocks.decode_all(fence, &mut near, read, &mut keys, &mut values)?;
            self.verify_entries(fence, Block { shape: &shape, bytes: &keys }, &values, &mut walk, visit)?;
        }
        let meta = self.meta();
        let found = TableMeta {
            id: meta.id,
            salt: meta.salt,
            file_bytes: meta.file_bytes,
            compression: meta.compression,
            purged_to: meta.purged_to,
            taken: meta.taken,
            built: meta.built.clone(),
            largest: walk.last.into_vec(),
            ..walk.meta
        };
        let is_named_in_vain = found.vlog_refs.iter().any(|r| r.count == 0);
        match found.difference(meta).or(is_named_in_vain.then_some("references to value logs")) {
            None => Ok(found.entries),
            Some(what) => Err(blocks.file().corrupt(
                self.footer().props_at,
                &format!("the {what} of the entries differ from the properties"),
            )),
        }
    }

    /// Reads and checks each block and passes the result to `visit`. Unlike [`Table::verify`], it continues after a damaged block.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the index is damaged. Damage in a block is reported to `visit` instead.
    pub fn inspect_blocks(&self, visit: &mut dyn FnMut(BlockInfo)) -> Result<()> {
        let mut near = CurrentPartition::bypassing();
        for number in 0..self.blocks().count() {
            let fence = self.blocks().index().fence(&mut near, number)?;
            let checked = match self.inspect_block(fence, &mut near) {
                Err(e) if !e.is_corruption() => return Err(e),
                other => other,
            };
            let (at, key_bytes, bytes) = (fence.at, fence.key_part as u64, fence.disk);
            visit(BlockInfo { number, at, key_bytes, bytes, checked });
        }
        Ok(())
    }

    fn inspect_block(&self, fence: Fence, near: &mut CurrentPartition) -> Result<BlockContent> {
        let (blocks, mut disk, mut keys) = (self.blocks(), Vec::new(), Vec::new());
        let read = blocks.file().read(fence.at, self.whole_length(fence)?, &mut disk)?;
        let shape = blocks.decode_all(fence, near, read, &mut keys, &mut Vec::new())?;
        let block = Block { shape: &shape, bytes: &keys };
        let first_key = block.key_at(0).into_vec();
        Ok(BlockContent { entries: block.len(), frames: block.frames().count(), first_key })
    }

    fn whole_length(&self, fence: Fence) -> Result<usize> {
        usize::try_from(fence.disk).map_err(|_| self.blocks().file().corrupt(fence.at, "block too long"))
    }

    /// Reads footer, properties, index and filter again, except for partitions that the scan itself reads. Returns the
    /// filter.
    fn verify_sections(&self) -> Result<Filter> {
        let (blocks, file) = (self.blocks(), self.blocks().file());
        let Sections { footer, top, filter } = Sections::read(file, blocks.order().is_bytewise())?;
        if footer != *self.footer() {
            let at = file.meta().file_bytes - FOOTER_BYTES as u64;
            return Err(file.corrupt(at, "footer changed since the table was opened"));
        }
        let filter = Filter::resident(filter, footer.filter_at, file)?;
        if blocks.is_resident() {
            Index::resident(&top, file, blocks.order().clone())?;
            if filter != *self.filter() {
                return Err(file.corrupt(footer.filter_at, "filter changed since the table was opened"));
            }
        }
        Ok(filter)
    }

    /// Checks the entries of a block against the previous entries, the filter and the rules for each kind. Its order, and that it lies
    /// between its fences, was checked when it was decoded.
    fn verify_entries(
        &self,
        fence: Fence,
        block: Block<'_>,
        values: &[u8],
        walk: &mut Verification,
        visit: &mut dyn FnMut(&EntryRef<'_>) -> Result<()>,
    ) -> Result<()> {
        let file = self.blocks().file();
        for i in 0..block.len() {
            block.key_into(i, &mut walk.key);
            let (seq, kind, expiry) = block.entry_meta(i).parts();
            if walk.key.len() > KEY_BYTES_MAX {
                return Err(file.corrupt(fence.at, "key longer than its limit"));
            }
            let order = self.blocks().order().compare(&walk.last, &walk.key);
            let new_key = walk.meta.entries == 0 || order == Ordering::Less;
            if !new_key && (order == Ordering::Greater || seq >= walk.last_seq) {
                return Err(file.corrupt(fence.at, "entries out of order"));
            }
            if new_key && !walk.filter.may_contain(key_hash(&walk.key)) {
                return Err(
                    file.corrupt(self.footer().filter_at, "filter denies a key that the table contains")
                );
            }
            let value = values
                .get(block.value_span(i))
                .ok_or_else(|| file.corrupt(fence.at, "value extends beyond its block"))?;
            let place = self.meta().place_of(kind, value);
            let value = place.as_deref().unwrap_or(value);
            let entry = EntryRef { key: &walk.key, seq, kind, expiry, value };
            walk.meta.note(&entry, new_key).map_err(|what| file.corrupt(fence.at, what))?;
            if walk.meta.vlog_refs.len() > self.meta().vlog_refs.len() {
                let what = "an entry refers to a value log that the properties do not name";
                return Err(file.corrupt(fence.at, what));
            }
            visit(&entry)?;
            std::mem::swap(&mut walk.key, &mut walk.last);
            walk.last_seq = seq;
        }
        Ok(())
    }
}
