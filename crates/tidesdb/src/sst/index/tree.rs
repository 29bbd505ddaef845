//! A static search tree over sorted numbers. A node has sixteen keys and seventeen children, so a lookup touches two
//! cache lines per level and no branch depends on the data (Khuong and Morin, "Array Layouts for Comparison-Based
//! Searching", 2017; the B-tree layout).

const KEYS: usize = 16;
const CHILDREN: usize = KEYS + 1;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([u64; KEYS]);

/// A searchable array of sorted numbers.
#[derive(Debug)]
pub(in crate::sst) struct Tree {
    /// All levels from the root to the leaves. The leaves contain the numbers in order. Padding is `u64::MAX`.
    nodes: Box<[Node]>,
    /// Index of the first node of each level, from the root to the leaves.
    levels: Box<[usize]>,
}

impl Tree {
    /// Builds a tree of sorted `numbers`.
    pub(in crate::sst) fn new(numbers: &[u64]) -> Self {
        let mut layers = vec![leaves(numbers)];
        let mut smallest: Vec<u64> = numbers.chunks(KEYS).map(|c| c[0]).collect();
        while smallest.len() > 1 {
            layers.push(smallest.chunks(CHILDREN).map(|children| node(&children[1..])).collect());
            smallest = smallest.chunks(CHILDREN).map(|c| c[0]).collect();
        }
        let (mut nodes, mut levels) = (Vec::new(), Vec::new());
        for layer in layers.iter().rev() {
            levels.push(nodes.len());
            nodes.extend_from_slice(layer);
        }
        Self { nodes: nodes.into(), levels: levels.into() }
    }

    /// Returns how many numbers are smaller than `n`.
    #[inline]
    pub(in crate::sst) fn below(&self, n: u64) -> usize {
        let mut at = 0;
        for &level in &self.levels[..self.levels.len() - 1] {
            at = at * CHILDREN + self.below_in(level + at, n);
        }
        let leaves = self.levels[self.levels.len() - 1];
        at * KEYS + self.below_in(leaves + at, n)
    }

    /// Returns number `i`; `u64::MAX` past the end.
    #[inline]
    pub(in crate::sst) fn get(&self, i: usize) -> u64 {
        let leaves = self.levels[self.levels.len() - 1];
        self.nodes.get(leaves + i / KEYS).map_or(u64::MAX, |node| node.0[i % KEYS])
    }

    /// Returns the size in memory, in bytes.
    pub(in crate::sst) fn bytes(&self) -> usize {
        size_of_val(&*self.nodes) + size_of_val(&*self.levels)
    }

    /// Returns how many keys of a node are smaller than `n`: first the quarter, then the position in it. Seven
    /// comparisons, no branch.
    #[inline]
    fn below_in(&self, node: usize, n: u64) -> usize {
        let Some(Node(keys)) = self.nodes.get(node) else { return 0 };
        let less = |i: usize| usize::from(keys[i] < n);
        let quarter = 4 * (less(3) + less(7) + less(11));
        quarter + less(quarter) + less(quarter + 1) + less(quarter + 2) + less(quarter + 3)
    }
}

fn leaves(numbers: &[u64]) -> Vec<Node> {
    numbers.chunks(KEYS).map(node).collect()
}

fn node(keys: &[u64]) -> Node {
    let mut node = Node([u64::MAX; KEYS]);
    for (to, from) in node.0.iter_mut().zip(keys) {
        *to = *from;
    }
    node
}
