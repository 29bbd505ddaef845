//! Where sorted levels divide into partitions.

use std::borrow::Cow;
use std::ops::Range;

use super::picture::{TableView, Tree};

/// The divisions of some levels, of which the last is the largest level: at every key where a table of the largest level begins and that no
/// table spans, and at both ends.
#[derive(Clone, Debug)]
pub(crate) struct Division {
    pub(super) levels: Range<u8>,
    /// For each division, the index of the first table of the largest level after it, and where its row in `upper` begins.
    divisions: Vec<(usize, usize)>,
    /// Rows with the index of the first table after a division in each upper level. Divisions with no upper table between them share a row.
    upper: Vec<usize>,
}

impl Division {
    /// The divisions of `levels`. The first that are asked for are kept in `tree`.
    pub(super) fn of<'t>(tree: &'t Tree<'_>, levels: Range<u8>) -> Cow<'t, Self> {
        let first = tree.division.get_or_init(|| Self::new(tree, levels.clone()));
        if first.levels == levels { Cow::Borrowed(first) } else { Cow::Owned(Self::new(tree, levels)) }
    }

    /// Goes through the tables of all levels once, in key order.
    fn new(tree: &Tree<'_>, levels: Range<u8>) -> Self {
        let upper_levels = levels.start..levels.end - 1;
        let mut at = vec![0; upper_levels.len()];
        let mut this = Self { levels, divisions: vec![(0, 0)], upper: at.clone() };
        let upper = upper_levels.clone().enumerate();
        let upper = upper.flat_map(|(index, level)| tree.level(level).iter().map(move |t| (index, t)));
        let mut upper: Vec<(usize, &TableView<'_>)> = upper.collect();
        upper.sort_by(|a, b| tree.compare(a.1.smallest, b.1.smallest));
        let mut upper = upper.into_iter().peekable();
        // The last key of the upper tables passed; `None` if they end before the last division.
        let mut reached: Option<&[u8]> = None;
        let largest = tree.level(upper_levels.end);
        for (number, table) in largest.iter().enumerate().skip(1) {
            let key = table.smallest;
            let is_spanned =
                |reached: Option<&[u8]>| reached.is_some_and(|last| tree.compare(last, key).is_ge());
            if is_spanned(reached) {
                continue;
            }
            while let Some((index, begun)) = upper.next_if(|(_, t)| tree.compare(t.smallest, key).is_lt()) {
                at[index] += 1;
                if reached.is_none_or(|last| tree.compare(last, begun.largest).is_lt()) {
                    reached = Some(begun.largest);
                }
            }
            if !is_spanned(reached) {
                reached = None;
                this.push(number, &at);
            }
        }
        at.iter_mut().zip(upper_levels).for_each(|(at, level)| *at = tree.level(level).len());
        this.push(largest.len(), &at);
        this
    }

    fn push(&mut self, number: usize, at: &[usize]) {
        if !at.is_empty() && !self.upper.ends_with(at) {
            self.upper.extend(at);
        }
        self.divisions.push((number, self.upper.len() - at.len()));
    }

    /// Number of partitions.
    pub(super) fn partitions(&self) -> usize {
        self.divisions.len() - 1
    }

    /// Indices of the tables of the level at `index`, in some neighbouring partitions.
    pub(super) fn tables(&self, index: usize, partitions: Range<usize>) -> Range<usize> {
        let is_largest = index + 1 == self.levels.len();
        let first = |at: usize| {
            let (number, row) = self.divisions[at];
            if is_largest { number } else { self.upper[row + index] }
        };
        first(partitions.start)..first(partitions.end)
    }

    /// Returns true if a partition has no table above the largest level.
    pub(super) fn is_bare(&self, at: usize) -> bool {
        self.divisions[at].1 == self.divisions[at + 1].1
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Dice, Key, key};
    use super::*;
    use crate::types::{Comparator, TableId};

    /// First and last keys of disjoint tables in key order.
    fn ranges(dice: &mut Dice) -> Vec<(Key, Key)> {
        let (width, gap) = (1 + dice.below(9), 1 + dice.below(9));
        let (mut from, mut ranges) = (dice.below(gap), Vec::new());
        while from < 60 && dice.below(20) > 0 {
            let to = from + dice.below(width);
            ranges.push((key(from), key(to)));
            from = to + 1 + dice.below(gap);
        }
        ranges
    }

    fn view((smallest, largest): &(Key, Key)) -> TableView<'_> {
        let (id, bytes, entries, tombstones, max_seq) = (TableId(1), 1, 1, 0, 1);
        TableView { id, smallest, largest, bytes, entries, tombstones, max_seq, expires: 0, taken: false }
    }

    #[test]
    fn divisions_are_all_keys_that_no_table_spans() {
        let order = Comparator::bytewise();
        for seed in 1..=500 {
            let mut dice = Dice(seed * 0x9E37_79B9 + 1);
            let levels: Vec<_> = (0..2 + dice.below(4)).map(|_| ranges(&mut dice)).collect();
            let tree =
                Tree::new(&order, levels.iter().map(|level| level.iter().map(view).collect()).collect());
            let (first, last) = (1 + dice.below(levels.len() as u64) as u8, levels.len() as u8);
            let (largest, upper) = levels[usize::from(first) - 1..].split_last().unwrap();
            // The indices of the first table after each division in each level.
            let mut expected = vec![vec![0; upper.len() + 1]];
            for (number, (key, _)) in largest.iter().enumerate().skip(1) {
                if !upper.iter().flatten().any(|(from, to)| from < key && key <= to) {
                    let ended = upper.iter().map(|level| level.iter().filter(|(_, to)| to < key).count());
                    expected.push(ended.chain([number]).collect());
                }
            }
            expected.push(upper.iter().chain([largest]).map(Vec::len).collect());
            let _ = Division::of(&tree, last..last + 1); // the tree keeps this one
            let found = Division::of(&tree, first..last + 1);
            assert_eq!(found.partitions(), expected.len() - 1, "seed {seed}");
            for (at, pair) in expected.windows(2).enumerate() {
                let tables: Vec<_> = (0..=upper.len()).map(|index| found.tables(index, at..at + 1)).collect();
                let wanted: Vec<_> = pair[0].iter().zip(&pair[1]).map(|(from, to)| *from..*to).collect();
                assert_eq!(tables, wanted, "seed {seed}");
                assert_eq!(
                    found.is_bare(at),
                    wanted[..upper.len()].iter().all(Range::is_empty),
                    "seed {seed}"
                );
            }
        }
    }
}
