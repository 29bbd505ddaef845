//! One simulated file: the bytes that reads see, the bytes that survive a power failure, and the changes in
//! between.
//!
//! Invariant: unless `diverged`, applying all of `writes` and `lens` to `durable` in order of `seq` gives
//! `cached`. A failed sync that dropped its pages sets `diverged`; then only pages written later can become
//! durable. `blocks` lies within the length of `cached`.

use std::ops::Range;
use std::sync::Arc;

use super::SyncModel;
use super::bytes::{Bytes, PAGE};
use super::world::is_handed;

/// A write since the last sync.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) seq: u64,
    pub(super) offset: u64,
    pub(super) data: Arc<[u8]>,
    /// Made through a map, so the kernel may have written the page back in the middle of the copy.
    pub(super) mapped: bool,
    /// The sync that handed it to the device, if one did.
    pub(super) handed: Option<u64>,
}

impl Write {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// A change of length since the last sync.
#[derive(Clone, Copy, Debug)]
pub(super) struct LenChange {
    pub(super) seq: u64,
    pub(super) len: u64,
    /// The sync that handed it to the device, if one did.
    pub(super) handed: Option<u64>,
}

/// The parts of a file that take space of the disk, to the byte. Sorted; no two of them touch.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks(Vec<Range<u64>>);

impl Blocks {
    /// Bytes that all parts take.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|part| part.end - part.start).sum()
    }

    /// Bytes of `range` that take no space yet.
    pub(super) fn missing(&self, range: &Range<u64>) -> u64 {
        let common = |part: &Range<u64>| part.end.min(range.end).saturating_sub(part.start.max(range.start));
        range.end - range.start - self.0.iter().map(common).sum::<u64>()
    }

    /// Returns how far from its start `range` can take space if `room` bytes of the disk are left.
    pub(super) fn reach(&self, range: &Range<u64>, mut room: u64) -> u64 {
        let mut at = range.start;
        for part in self.0.iter().filter(|part| part.end > range.start && part.start < range.end) {
            let gap = part.start.saturating_sub(at);
            if gap > room {
                break;
            }
            room -= gap;
            at = part.end;
        }
        at.saturating_add(room).min(range.end)
    }

    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        self.0.retain(|part| {
            let touches = part.start <= end && part.end >= start;
            if touches {
                (start, end) = (start.min(part.start), end.max(part.end));
            }
            !touches
        });
        let at = self.0.partition_point(|part| part.start < start);
        self.0.insert(at, start..end);
    }

    fn cut(&mut self, len: u64) {
        self.0.retain(|part| part.start < len);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(len);
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) durable: Bytes,
    pub(super) cached: Bytes,
    /// Content that was durable before the last sync, for stale reads.
    pub(super) previous: Bytes,
    pub(super) writes: Vec<Write>,
    pub(super) lens: Vec<LenChange>,
    pub(super) diverged: bool,
    /// What the file takes of the disk: what was written or allocated. The rest is holes.
    pub(super) blocks: Blocks,
}

impl Inode {
    /// A file without holes whose bytes are all durable.
    pub(super) fn clean(bytes: Bytes) -> Self {
        Self::default().replaced(bytes)
    }

    /// The file with the content `bytes`, which is durable. What it took of the disk stays; what it never had takes space.
    pub(super) fn replaced(&self, bytes: Bytes) -> Self {
        let mut this = Self { blocks: self.blocks.clone(), ..Self::default() };
        this.fit(self.cached.len(), bytes.len());
        (this.durable, this.cached) = (bytes.clone(), bytes);
        this
    }

    /// Adapts the space to a change of the length that the file's user did not make.
    fn fit(&mut self, from: u64, to: u64) {
        self.blocks.cut(to);
        if to > from {
            self.blocks.add(from..to);
        }
    }

    /// Takes space for `range`. Extends the file to its end.
    pub(super) fn allocate(&mut self, seq: u64, range: Range<u64>) {
        if range.end > self.cached.len() {
            self.set_len(seq, range.end);
        }
        self.blocks.add(range);
    }

    pub(super) fn write(&mut self, seq: u64, offset: u64, data: &[u8], mapped: bool) {
        let old_len = self.cached.len();
        self.blocks.add(offset..offset + data.len() as u64);
        self.cached.write(offset, data);
        self.writes.push(Write { seq, offset, data: data.into(), mapped, handed: None });
        if self.cached.len() != old_len {
            self.lens.push(LenChange { seq, len: self.cached.len(), handed: None });
        }
    }

    pub(super) fn set_len(&mut self, seq: u64, len: u64) {
        if len != self.cached.len() {
            self.cached.set_len(len);
            self.blocks.cut(len);
            self.lens.push(LenChange { seq, len, handed: None });
        }
    }

    /// Returns the content that is durable after a successful sync.
    pub(super) fn settled(&self) -> Bytes {
        if !self.diverged {
            return self.cached.clone();
        }
        let mut bytes = self.durable.clone();
        for change in &self.lens {
            bytes.set_len(change.len);
        }
        // The system writes whole pages, so a write also persists the previously lost bytes of its page.
        let mut pages: Vec<u64> =
            self.writes.iter().flat_map(|w| w.offset / PAGE..w.end().div_ceil(PAGE)).collect();
        pages.sort_unstable();
        pages.dedup();
        for page in pages {
            bytes.write(page * PAGE, &self.cached.range(page * PAGE, PAGE));
        }
        bytes
    }

    pub(super) fn sync(&mut self) {
        let settled = self.settled();
        self.previous = std::mem::replace(&mut self.durable, settled);
        self.forget_pending();
    }

    /// Makes the bytes of a range durable and leaves all other writes and changes of the length pending.
    pub(super) fn sync_range(&mut self, offset: u64, len: u64) {
        let mut bytes = vec![0; len as usize];
        let read = self.cached.read(&mut bytes, offset);
        bytes.truncate(read);
        let end = offset + bytes.len() as u64;
        if self.lens.iter().any(|change| change.len < end) {
            return self.sync(); // the file was shorter meanwhile, which must not happen again
        }
        self.previous = self.durable.clone();
        self.durable.write(offset, &bytes);
        // Earlier writes may still become durable at any time, but not over these bytes.
        for write in &mut self.writes {
            let (from, to) = (write.offset.max(offset), write.end().min(end));
            if from < to {
                let mut data = write.data.to_vec();
                let span = |start: u64| (from - start) as usize..(to - start) as usize;
                data[span(write.offset)].copy_from_slice(&bytes[span(offset)]);
                write.data = data.into();
            }
        }
    }

    /// Records that sync number `sync` handed all changes to the device, which has them in its cache.
    pub(super) fn hand_over(&mut self, sync: u64) {
        let handed = self.writes.iter_mut().map(|write| &mut write.handed);
        handed.chain(self.lens.iter_mut().map(|change| &mut change.handed)).for_each(|handed| {
            *handed = handed.or(Some(sync));
        });
    }

    /// Makes durable what was handed to the device by sync `last` or earlier ones: a sync hands over all that is pending.
    pub(super) fn settle(&mut self, last: u64) {
        let writes = self.writes.iter().map(|write| (write.seq, write.handed));
        let all = writes.chain(self.lens.iter().map(|change| (change.seq, change.handed)));
        let Some(end) = all.filter(|(_, handed)| is_handed(*handed, last)).map(|(seq, _)| seq).max() else {
            return;
        };
        if self.diverged {
            return self.sync(); // the pages that were lost are not known apart
        }
        let settled = self.after(end);
        self.previous = std::mem::replace(&mut self.durable, settled);
        self.writes.retain(|write| write.seq > end);
        self.lens.retain(|change| change.seq > end);
    }

    /// Forgets the changes after number `last`.
    pub(super) fn forget_after(&mut self, last: u64) {
        if !self.diverged {
            self.cached = self.after(last);
            self.writes.retain(|write| write.seq <= last);
            self.lens.retain(|change| change.seq <= last);
        }
    }

    /// Returns the content after change number `last`.
    fn after(&self, last: u64) -> Bytes {
        let mut bytes = self.durable.clone();
        let mut lens = self.lens.iter().filter(|change| change.seq <= last).peekable();
        for write in self.writes.iter().filter(|write| write.seq <= last) {
            while let Some(change) = lens.next_if(|change| change.seq < write.seq) {
                bytes.set_len(change.len);
            }
            bytes.write(write.offset, &write.data);
        }
        lens.for_each(|change| bytes.set_len(change.len));
        bytes
    }

    /// Applies a failed sync.
    pub(super) fn fail_sync(&mut self, model: SyncModel) {
        match model {
            SyncModel::Bsd => {}
            SyncModel::Btrfs => {
                self.fit(self.cached.len(), self.durable.len());
                self.cached = self.durable.clone();
                self.diverged = false;
                self.forget_pending();
            }
            SyncModel::Linux => {
                self.diverged |= self.dirty();
                self.forget_pending();
            }
        }
    }

    pub(super) fn dirty(&self) -> bool {
        !self.writes.is_empty() || !self.lens.is_empty()
    }

    fn forget_pending(&mut self) {
        self.writes.clear();
        self.lens.clear();
    }

    /// Changes both the durable and the cached bytes, without the knowledge of the file's user.
    pub(super) fn damage(&mut self, change: impl Fn(&mut Bytes)) {
        let len = self.cached.len();
        change(&mut self.durable);
        change(&mut self.cached);
        self.fit(len, self.cached.len());
    }
}
