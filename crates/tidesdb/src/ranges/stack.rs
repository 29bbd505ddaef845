//! [`RangeStack`]: the range deletes of a transaction, of which the latest can be undone. [`Cover`]: which keys they cover.
//!
//! Only the newest range delete over a key matters. So **borders** cut the key space into pieces, and each border knows the newest range
//! delete over the piece that begins there. A new range delete is newer than all others: it replaces the borders in its interval by its
//! two ends. It keeps the replaced ones, which its undo puts back.
//!
//! The borders are an AVL tree whose nodes never change: a change makes new nodes on the paths to the ends of an interval and shares
//! the others (Blelloch, Ferizovic and Sun, "Just Join for Parallel Ordered Sets", 2016). So a change and a lookup cost O(log n), and a
//! cursor shares the cover as of its creation at the cost of one pointer. Each node and border charges its memory for as long as
//! anything shares it.

use std::sync::Arc;

use super::RangeTombstone;
use super::index::Around;
use crate::memory::{Charge, Memory, Use, block_bytes};
use crate::types::{Comparator, SeqNo};

/// Bytes of the two counters of an `Arc`.
const COUNTERS: usize = 2 * size_of::<usize>();

/// The place between two pieces.
#[derive(Debug)]
struct Border {
    /// First key of the piece after it.
    key: Box<[u8]>,
    /// The newest range delete over that piece; 0 = none.
    newest: SeqNo,
    _charge: Charge,
}

#[derive(Debug)]
struct Node {
    left: Tree,
    border: Arc<Border>,
    right: Tree,
    height: u8,
    _charge: Charge,
}

type Tree = Option<Arc<Node>>;

/// The newest range delete over each key. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cover {
    /// The newest range delete over the piece before the first border; 0 = none.
    first: SeqNo,
    borders: Tree,
}

impl Cover {
    /// Returns whether there is no range delete.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.borders.is_none()
    }

    /// Returns the newest range delete over `key`; 0 = none.
    pub fn newest(&self, order: &Comparator, key: &[u8]) -> SeqNo {
        self.around(order, key).seq
    }

    /// Like [`Cover::newest`]; also returns the piece around `key`.
    pub(super) fn around(&self, order: &Comparator, key: &[u8]) -> Around<'_> {
        let mut around = Around { seq: self.first, from: None, to: None };
        let mut tree = &self.borders;
        while let Some(node) = tree {
            let border = &*node.border;
            if order.compare(&border.key, key).is_le() {
                (around.seq, around.from) = (border.newest, Some(&*border.key));
                tree = &node.right;
            } else {
                around.to = Some(&*border.key);
                tree = &node.left;
            }
        }
        around
    }
}

/// What a range delete replaced.
#[derive(Debug)]
struct Replaced {
    start: Option<Arc<Border>>,
    end: Option<Arc<Border>>,
    first: SeqNo,
    borders: Tree,
}

/// Range deletes with rising numbers.
#[derive(Debug)]
pub struct RangeStack {
    memory: Arc<Memory>,
    cover: Cover,
    replaced: Vec<Replaced>,
    /// Memory of `replaced`.
    charge: Charge,
}

impl RangeStack {
    /// Creates an empty stack, whose memory is that of transactions.
    pub fn new(memory: &Arc<Memory>) -> Self {
        let charge = Charge::new(Use::Transactions);
        Self { memory: Arc::clone(memory), cover: Cover::default(), replaced: Vec::new(), charge }
    }

    /// Returns what the range deletes cover.
    pub fn cover(&self) -> &Cover {
        &self.cover
    }

    /// Adds a range delete, whose number must be above those of all others.
    pub fn push(&mut self, order: &Comparator, range: RangeTombstone) {
        let nodes = Nodes(&self.memory);
        let ends = (range.start.as_deref(), range.end.as_deref());
        let [before, inside, after] = nodes.cut(order, &self.cover.borders, ends);
        let after_end = last(&inside).or(last(&before)).map_or(self.cover.first, |border| border.newest);
        let start = range.start.map(|key| nodes.border(key, range.seq));
        let end = range.end.map(|key| nodes.border(key, after_end));
        let first = if start.is_none() { range.seq } else { self.cover.first };
        let begun = match &start {
            Some(start) => nodes.join(before, start, None),
            None => before, // no border is before the start
        };
        let borders = match &end {
            Some(end) => nodes.join(begun, end, after),
            None => begun, // no border is after the end
        };
        let before = std::mem::replace(&mut self.cover, Cover { first, borders });
        self.replaced.push(Replaced { start, end, first: before.first, borders: inside });
        self.charge.set(&self.memory, (self.replaced.capacity() * size_of::<Replaced>()) as u64);
    }

    /// Undoes the newest range delete, if there is one.
    pub fn pop(&mut self, order: &Comparator) {
        let Some(Replaced { start, end, first, borders }) = self.replaced.pop() else { return };
        let nodes = Nodes(&self.memory);
        let ends = (start.as_ref().map(|start| &*start.key), end.as_ref().map(|end| &*end.key));
        let [before, _, after] = nodes.cut(order, &self.cover.borders, ends);
        let borders = nodes.concat(nodes.concat(before, borders), after);
        self.cover = Cover { first, borders };
    }
}

fn height(tree: &Tree) -> u8 {
    tree.as_ref().map_or(0, |node| node.height)
}

/// Returns the last border of `tree`.
fn last(tree: &Tree) -> Option<&Border> {
    let mut node = tree.as_deref()?;
    while let Some(right) = &node.right {
        node = right;
    }
    Some(&node.border)
}

/// Makes trees. Heights of siblings differ by at most two.
struct Nodes<'m>(&'m Arc<Memory>);

impl Nodes<'_> {
    fn charge(&self, bytes: usize) -> Charge {
        let mut charge = Charge::new(Use::Transactions);
        charge.set(self.0, bytes as u64);
        charge
    }

    fn border(&self, key: Box<[u8]>, newest: SeqNo) -> Arc<Border> {
        let _charge = self.charge(block_bytes(key.len()) + block_bytes(size_of::<Border>() + COUNTERS));
        Arc::new(Border { key, newest, _charge })
    }

    fn node(&self, left: Tree, border: &Arc<Border>, right: Tree) -> Tree {
        let height = height(&left).max(height(&right)) + 1;
        let _charge = self.charge(block_bytes(size_of::<Node>() + COUNTERS));
        Some(Arc::new(Node { left, border: Arc::clone(border), right, height, _charge }))
    }

    /// Like [`Nodes::node`], for heights that differ by at most three.
    fn balance(&self, left: Tree, border: &Arc<Border>, right: Tree) -> Tree {
        match (&left, &right) {
            (Some(l), _) if l.height > height(&right) + 2 => match &l.right {
                Some(inner) if inner.height > height(&l.left) => {
                    let outer = self.node(inner.right.clone(), border, right);
                    let left = self.node(l.left.clone(), &l.border, inner.left.clone());
                    self.node(left, &inner.border, outer)
                }
                inner => {
                    let outer = self.node(inner.clone(), border, right);
                    self.node(l.left.clone(), &l.border, outer)
                }
            },
            (_, Some(r)) if r.height > height(&left) + 2 => match &r.left {
                Some(inner) if inner.height > height(&r.right) => {
                    let outer = self.node(left, border, inner.left.clone());
                    let right = self.node(inner.right.clone(), &r.border, r.right.clone());
                    self.node(outer, &inner.border, right)
                }
                inner => {
                    let outer = self.node(left, border, inner.clone());
                    self.node(outer, &r.border, r.right.clone())
                }
            },
            _ => self.node(left, border, right),
        }
    }

    /// Returns the borders of `left`, then `border`, then those of `right`.
    fn join(&self, left: Tree, border: &Arc<Border>, right: Tree) -> Tree {
        match (&left, &right) {
            (Some(l), _) if l.height > height(&right) + 2 => {
                let joined = self.join(l.right.clone(), border, right);
                self.balance(l.left.clone(), &l.border, joined)
            }
            (_, Some(r)) if r.height > height(&left) + 2 => {
                let joined = self.join(left, border, r.left.clone());
                self.balance(joined, &r.border, r.right.clone())
            }
            _ => self.node(left, border, right),
        }
    }

    /// Returns the borders of `left`, then those of `right`.
    fn concat(&self, left: Tree, right: Tree) -> Tree {
        match &right {
            None => left,
            Some(node) => {
                let (first, rest) = self.take_first(node);
                self.join(left, &first, rest)
            }
        }
    }

    /// Returns the first border, and the others.
    fn take_first(&self, node: &Node) -> (Arc<Border>, Tree) {
        let Some(left) = &node.left else { return (Arc::clone(&node.border), node.right.clone()) };
        let (first, rest) = self.take_first(left);
        (first, self.balance(rest, &node.border, node.right.clone()))
    }

    /// Returns the borders before `start`, those up to and including `end`, and those after it.
    fn cut(
        &self,
        order: &Comparator,
        tree: &Tree,
        (start, end): (Option<&[u8]>, Option<&[u8]>),
    ) -> [Tree; 3] {
        let (before, rest) = match start {
            Some(start) => self.split(tree, &|key| order.compare(key, start).is_lt()),
            None => (None, tree.clone()),
        };
        let (inside, after) = match end {
            Some(end) => self.split(&rest, &|key| order.compare(key, end).is_le()),
            None => (rest, None),
        };
        [before, inside, after]
    }

    /// Returns the borders for which `is_before` is true, which are the first ones, and the others.
    fn split(&self, tree: &Tree, is_before: &impl Fn(&[u8]) -> bool) -> (Tree, Tree) {
        let Some(node) = tree else { return (None, None) };
        if is_before(&node.border.key) {
            let (inner, after) = self.split(&node.right, is_before);
            (self.join(node.left.clone(), &node.border, inner), after)
        } else {
            let (before, inner) = self.split(&node.left, is_before);
            (before, self.join(inner, &node.border, node.right.clone()))
        }
    }
}

#[cfg(test)]
impl Cover {
    /// Returns the number of borders and the height of the tree.
    pub(super) fn shape(&self) -> (usize, u8) {
        fn count(tree: &Tree) -> usize {
            tree.as_ref().map_or(0, |node| count(&node.left) + 1 + count(&node.right))
        }
        (count(&self.borders), height(&self.borders))
    }
}
