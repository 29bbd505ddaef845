//! [`RangeIndex`]: a set of tombstones indexed for the question "which tombstones cover this key?".
//!
//! The borders of all tombstones cut the key space into pieces. A segment tree over the pieces (Bentley, 1977) stores
//! each tombstone in O(log n) nodes. A lookup visits the nodes on the path from the key's piece to the root.

use std::cmp::Ordering;
use std::sync::Arc;

use super::RangeTombstone;
use crate::types::{Comparator, SeqNo};

/// A piece of the key space around a key in which the newest range tombstone is the same.
#[derive(Clone, Copy, Default)]
pub struct Around<'a> {
    /// The newest range tombstone; 0 = none.
    pub seq: SeqNo,
    /// First key of the piece; `None` = no border.
    pub from: Option<&'a [u8]>,
    /// First key after the piece; `None` = no border.
    pub to: Option<&'a [u8]>,
}

impl<'a> Around<'a> {
    /// Takes account of another set of range tombstones, whose piece around the same key is `other`.
    pub(super) fn narrow(&mut self, order: &Comparator, other: Self) {
        self.seq = self.seq.max(other.seq);
        self.from = tighter(self.from, other.from, |a, b| order.compare(a, b).is_ge());
        self.to = tighter(self.to, other.to, |a, b| order.compare(a, b).is_le());
    }
}

/// Returns the border that is nearer to the key.
pub fn tighter<'a>(
    a: Option<&'a [u8]>,
    b: Option<&'a [u8]>,
    nearer: impl Fn(&[u8], &[u8]) -> bool,
) -> Option<&'a [u8]> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if nearer(a, b) { a } else { b }),
        (a, b) => a.or(b),
    }
}

/// The index; immutable.
#[derive(Debug)]
pub(super) struct RangeIndex {
    tombstones: Vec<Arc<RangeTombstone>>,
    /// Borders between pieces: starts and ends, sorted, without duplicates.
    borders: Vec<Border>,
    /// `seqs[nodes[i]..nodes[i + 1]]` are the numbers of node `i`, ascending. The leaf of piece `p` is node `pieces +
    /// p`.
    nodes: Vec<u32>,
    seqs: Vec<SeqNo>,
    /// The newest tombstone.
    max_seq: SeqNo,
}

/// A border is the start or the end of a tombstone.
#[derive(Clone, Copy, Debug)]
struct Border {
    tombstone: u32,
    is_end: bool,
}

impl RangeIndex {
    pub(super) fn new(order: &Comparator, tombstones: Vec<Arc<RangeTombstone>>) -> Self {
        let max_seq = tombstones.iter().map(|tombstone| tombstone.seq).max().unwrap_or(0);
        let (borders, nodes, seqs) = (Vec::new(), Vec::new(), Vec::new());
        let mut this = Self { tombstones, borders, nodes, seqs, max_seq };
        let all = (0..this.tombstones.len() as u32)
            .flat_map(|tombstone| [false, true].map(|is_end| Border { tombstone, is_end }));
        let mut borders: Vec<Border> = all.filter(|b| this.key(*b).is_some()).collect();
        borders.sort_by(|a, b| this.compare(order, *a, *b));
        borders.dedup_by(|a, b| this.compare(order, *a, *b).is_eq());
        this.borders = borders;
        let pieces = this.borders.len() + 1;
        let mut held: Vec<Vec<SeqNo>> = vec![Vec::new(); 2 * pieces];
        for tombstone in &this.tombstones {
            let mut low = pieces + tombstone.start.as_ref().map_or(0, |key| this.piece(order, key));
            let mut high = pieces + tombstone.end.as_ref().map_or(pieces, |key| this.piece(order, key));
            while low < high {
                if low % 2 == 1 {
                    held[low].push(tombstone.seq);
                    low += 1;
                }
                if high % 2 == 1 {
                    high -= 1;
                    held[high].push(tombstone.seq);
                }
                (low, high) = (low / 2, high / 2);
            }
        }
        for node in &mut held {
            node.sort_unstable();
            this.nodes.push(this.seqs.len() as u32);
            this.seqs.extend_from_slice(node);
        }
        this.nodes.push(this.seqs.len() as u32);
        this
    }

    pub(super) fn max_seq(&self) -> SeqNo {
        self.max_seq
    }

    pub(super) fn tombstones(&self) -> &[Arc<RangeTombstone>] {
        &self.tombstones
    }

    /// Returns the newest tombstone over `key` that is not newer than `snapshot`; 0 = none.
    pub(super) fn newest(&self, order: &Comparator, key: &[u8], snapshot: SeqNo) -> SeqNo {
        self.newest_in(self.piece(order, key), snapshot)
    }

    /// Returns the oldest tombstone over `key` that is newer than `seq`.
    pub(super) fn oldest_above(&self, order: &Comparator, key: &[u8], seq: SeqNo) -> Option<SeqNo> {
        let above = |node: usize| {
            let seqs = self.node(node);
            seqs.get(seqs.partition_point(|s| *s <= seq)).copied()
        };
        self.way_up(self.piece(order, key)).filter_map(above).min()
    }

    /// Like [`RangeIndex::newest`]; also returns the piece around `key`, in which the answer is the same for all
    /// keys.
    pub(super) fn around(&self, order: &Comparator, key: &[u8], snapshot: SeqNo) -> Around<'_> {
        let piece = self.piece(order, key);
        let from = piece.checked_sub(1).and_then(|b| self.border(b));
        Around { seq: self.newest_in(piece, snapshot), from, to: self.border(piece) }
    }

    fn newest_in(&self, piece: usize, snapshot: SeqNo) -> SeqNo {
        let newest = |node: usize| {
            let seqs = self.node(node);
            seqs[..seqs.partition_point(|s| *s <= snapshot)].last().copied().unwrap_or(0)
        };
        self.way_up(piece).map(newest).max().unwrap_or(0)
    }

    /// Returns the piece that contains `key`: the number of borders at or before it.
    fn piece(&self, order: &Comparator, key: &[u8]) -> usize {
        self.borders
            .partition_point(|border| self.key(*border).is_some_and(|at| order.compare(at, key).is_le()))
    }

    fn way_up(&self, piece: usize) -> impl Iterator<Item = usize> {
        let leaf = self.borders.len() + 1 + piece;
        std::iter::successors(Some(leaf), |node| (*node > 1).then_some(node / 2))
    }

    fn node(&self, node: usize) -> &[SeqNo] {
        match (self.nodes.get(node), self.nodes.get(node + 1)) {
            (Some(from), Some(to)) => &self.seqs[*from as usize..*to as usize],
            _ => &[],
        }
    }

    fn border(&self, index: usize) -> Option<&[u8]> {
        self.borders.get(index).and_then(|border| self.key(*border))
    }

    fn key(&self, border: Border) -> Option<&[u8]> {
        let tombstone = self.tombstones.get(border.tombstone as usize)?;
        if border.is_end { tombstone.end.as_deref() } else { tombstone.start.as_deref() }
    }

    fn compare(&self, order: &Comparator, a: Border, b: Border) -> Ordering {
        match (self.key(a), self.key(b)) {
            (Some(a), Some(b)) => order.compare(a, b),
            _ => Ordering::Equal,
        }
    }
}
