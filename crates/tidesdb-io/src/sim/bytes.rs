//! The bytes of a simulated file: copy-on-write pages in a two-level tree.
//!
//! A clone costs one reference count, so snapshots of whole disks are cheap. A write copies one page and one
//! leaf if they are shared. A missing page reads as zeros. Invariant: bytes past `len` are zero or missing, so
//! growing a file never shows old content.

use std::sync::Arc;

/// Size of a page, in bytes.
pub(super) const PAGE: u64 = 4096;
const PAGE_LEN: usize = 4096;
/// Pages in a leaf.
const FANOUT: usize = 64;
/// Longest file: keeps a hostile offset from exhausting memory.
pub(super) const MAX_LEN: u64 = 1 << 36;

type Page = [u8; PAGE_LEN];

#[derive(Clone, Debug)]
struct Leaf {
    pages: [Option<Arc<Page>>; FANOUT],
}

/// Copy-on-write content of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes {
    len: u64,
    leaves: Arc<Vec<Option<Arc<Leaf>>>>,
}

/// A part of a range that lies in one page.
struct Piece {
    page: usize,
    start: usize,
    len: usize,
}

/// Splits `[offset, offset + len)` at page boundaries. Offsets are below `MAX_LEN`, beyond addresses of 32 bits; the number of a page is not.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let (mut page, mut start) = ((offset / PAGE) as usize, (offset % PAGE) as usize);
    let mut left = len;
    std::iter::from_fn(move || {
        (left > 0).then(|| {
            let piece = Piece { page, start, len: (PAGE_LEN - start).min(left) };
            left -= piece.len;
            (page, start) = (page + 1, 0);
            piece
        })
    })
}

impl Bytes {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn page(&self, index: usize) -> Option<&Page> {
        self.leaves.get(index / FANOUT)?.as_ref()?.pages[index % FANOUT].as_deref()
    }

    fn page_mut(&mut self, index: usize) -> &mut Page {
        let leaves = Arc::make_mut(&mut self.leaves);
        if leaves.len() <= index / FANOUT {
            leaves.resize(index / FANOUT + 1, None);
        }
        let leaf =
            leaves[index / FANOUT].get_or_insert_with(|| Arc::new(Leaf { pages: [const { None }; FANOUT] }));
        let page = Arc::make_mut(leaf).pages[index % FANOUT].get_or_insert_with(|| Arc::new([0; PAGE_LEN]));
        Arc::make_mut(page)
    }

    /// Copies bytes at `offset` into `buf`. Returns how many there were before the end of the file.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let mut done = 0;
        for piece in pieces(if n == 0 { 0 } else { offset }, n) {
            let to = &mut buf[done..done + piece.len];
            match self.page(piece.page) {
                Some(page) => to.copy_from_slice(&page[piece.start..piece.start + piece.len]),
                None => to.fill(0),
            }
            done += piece.len;
        }
        n
    }

    /// Copies `data` to `offset`, growing the file if needed. The range must end at or below [`MAX_LEN`].
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut done = 0;
        for piece in pieces(offset, data.len()) {
            let from = &data[done..done + piece.len];
            self.page_mut(piece.page)[piece.start..piece.start + piece.len].copy_from_slice(from);
            done += piece.len;
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    /// Like [`Bytes::write`], but drops the part of `data` past the end of the file.
    pub(super) fn overwrite(&mut self, offset: u64, data: &[u8]) {
        let room = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.write(offset, &data[..data.len().min(room)]);
    }

    /// Truncates, or extends with zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.len {
            let (keep, rest) = (len.div_ceil(PAGE) as usize, (len % PAGE) as usize);
            if rest > 0 && self.page(keep - 1).is_some() {
                self.page_mut(keep - 1)[rest..].fill(0);
            }
            let leaves = Arc::make_mut(&mut self.leaves);
            leaves.truncate(keep.div_ceil(FANOUT));
            if let Some(Some(leaf)) = leaves.get_mut(keep / FANOUT) {
                Arc::make_mut(leaf).pages[keep % FANOUT..].fill(None);
            }
        }
        self.len = len;
    }

    /// Returns the range `[offset, offset + len)`, cut at the end of the file.
    pub(super) fn range(&self, offset: u64, len: u64) -> Vec<u8> {
        let len = self.len.saturating_sub(offset).min(len);
        let mut out = vec![0; len as usize];
        self.read(&mut out, offset);
        out
    }

    /// Returns all bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        self.range(0, self.len)
    }
}
