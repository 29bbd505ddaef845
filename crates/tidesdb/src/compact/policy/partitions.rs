//! Where sorted runs divide into partitions.

use std::ops::Range;

use super::tree::{TableView, Tree, sum_bytes};
use crate::order;

/// Some sorted runs, newest first, of which the last is the largest level, and the partitions of their keys. A partition ends at every key
/// where a table of the last run begins and that no table spans, and at both ends.
#[derive(Debug)]
pub(super) struct Partitions<'t, 'a> {
    /// Each run with its level.
    runs: Vec<(u8, &'t [TableView<'a>])>,
    /// For each end of a partition, the index of the first table of the last run after it, and where its row in `upper` begins.
    ends: Vec<(usize, usize)>,
    /// Rows with the index of the first table after an end in each other run. Ends with no such table between them share a row.
    upper: Vec<usize>,
}

impl<'t, 'a> Partitions<'t, 'a> {
    /// The partitions of the runs of `levels`, of which the last is the largest level. Goes through all tables once, in key order.
    pub(super) fn new(tree: &'t Tree<'a>, levels: Range<u8>) -> Self {
        let mut runs: Vec<(u8, &[TableView<'a>])> =
            tree.runs[tree.runs_in(levels.clone())].iter().map(|run| (run.level, &*run.tables)).collect();
        if runs.last().is_none_or(|(level, _)| *level + 1 < levels.end) {
            runs.push((levels.end - 1, &[]));
        }
        let mut at = vec![0; runs.len() - 1];
        let mut this = Self { runs, ends: vec![(0, 0)], upper: at.clone() };
        let upper = this.runs[..at.len()].iter().enumerate();
        let upper = upper.flat_map(|(index, (_, tables))| tables.iter().map(move |t| (index, t)));
        let mut upper: Vec<(usize, &TableView<'_>)> = upper.collect();
        order::sort_by(&mut upper, |a, b| tree.compare(a.1.smallest, b.1.smallest));
        let mut upper = upper.into_iter().peekable();
        // The last key of the upper tables passed; `None` if they end before the last partition's end.
        let mut reached: Option<&[u8]> = None;
        let largest = this.runs[at.len()].1;
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
        at.iter_mut().zip(&this.runs).for_each(|(at, (_, tables))| *at = tables.len());
        this.push(largest.len(), &at);
        this
    }

    fn push(&mut self, number: usize, at: &[usize]) {
        if !at.is_empty() && !self.upper.ends_with(at) {
            self.upper.extend(at);
        }
        self.ends.push((number, self.upper.len() - at.len()));
    }

    /// Number of partitions.
    pub(super) fn len(&self) -> usize {
        self.ends.len() - 1
    }

    /// Index of the first table of the largest level in a partition.
    pub(super) fn begins(&self, at: usize) -> usize {
        self.ends[at].0
    }

    /// The level of each run.
    pub(super) fn levels(&self) -> impl Iterator<Item = u8> {
        self.runs.iter().map(|(level, _)| *level)
    }

    /// Index of the run of the largest level.
    pub(super) fn last(&self) -> usize {
        self.runs.len() - 1
    }

    /// Tables of a run in some neighbouring partitions.
    pub(super) fn tables(&self, run: usize, partitions: Range<usize>) -> &'t [TableView<'a>] {
        let first = |at: usize| {
            let (number, row) = self.ends[at];
            if run == self.last() { number } else { self.upper[row + run] }
        };
        &self.runs[run].1[first(partitions.start)..first(partitions.end)]
    }

    /// Bytes of a run in some neighbouring partitions.
    pub(super) fn bytes(&self, run: usize, partitions: Range<usize>) -> u64 {
        sum_bytes(self.tables(run, partitions))
    }

    /// Returns true if a partition has no table above the largest level.
    fn is_bare(&self, at: usize) -> bool {
        self.ends[at].1 == self.ends[at + 1].1
    }

    /// Number of the first `upper` runs that hold something in a partition.
    pub(super) fn runs(&self, at: usize, upper: usize) -> usize {
        if self.is_bare(at) {
            return 0;
        }
        (0..upper).filter(|run| !self.tables(*run, at..at + 1).is_empty()).count()
    }

    /// Bytes of the first `upper` runs for each byte of the last; 0 if a running job uses the partition.
    pub(super) fn fill(&self, at: usize, upper: usize) -> f64 {
        if self.is_bare(at) {
            return 0.0;
        }
        let top: u64 = (0..upper).map(|run| self.bytes(run, at..at + 1)).sum();
        let is_taken = |run| self.tables(run, at..at + 1).iter().any(|t| t.taken);
        if top == 0 || (0..self.runs.len()).any(is_taken) {
            return 0.0;
        }
        top as f64 / self.bytes(self.last(), at..at + 1).max(1) as f64
    }

    /// The partition at `at`, with neighbours that are at least half as full, up to `bytes_max`.
    pub(super) fn widened(&self, at: usize, fills: &[f64], bytes_max: u64) -> Range<usize> {
        let bytes = |at: usize| (0..self.runs.len()).map(|run| self.bytes(run, at..at + 1)).sum::<u64>();
        let mut size = bytes(at);
        let mut joins = |next: &usize| {
            size = size.saturating_add(bytes(*next));
            fills[*next] >= fills[at] / 2.0 && size <= bytes_max
        };
        let after = (at + 1..self.len()).take_while(&mut joins).count();
        let before = (0..at).rev().take_while(&mut joins).count();
        at - before..at + 1 + after
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::model::{Dice, Key, key};
    use super::super::tree::Run;
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
    fn partitions_end_at_all_keys_that_no_table_spans() {
        let order = Comparator::bytewise();
        for seed in 1..=500 {
            let mut dice = Dice(seed * 0x9E37_79B9 + 1);
            let levels: Vec<_> = (0..2 + dice.below(4)).map(|_| ranges(&mut dice)).collect();
            let tree = levels
                .iter()
                .zip(2..)
                .map(|(tables, level)| Run { level, tables: tables.iter().map(view).collect() });
            let tree = Tree::new(&order, tree.collect());
            let (first, last) = (2 + dice.below(levels.len() as u64) as u8, levels.len() as u8 + 1);
            let (largest, upper) = levels[usize::from(first) - 2..].split_last().unwrap();
            let upper: Vec<_> = upper.iter().filter(|level| !level.is_empty()).cloned().collect();
            // The indices of the first table after each end in each run.
            let mut expected = vec![vec![0; upper.len() + 1]];
            for (number, (key, _)) in largest.iter().enumerate().skip(1) {
                if !upper.iter().flatten().any(|(from, to)| from < key && key <= to) {
                    let ended = upper.iter().map(|level| level.iter().filter(|(_, to)| to < key).count());
                    expected.push(ended.chain([number]).collect());
                }
            }
            expected.push(upper.iter().chain([largest]).map(Vec::len).collect());
            let found = Partitions::new(&tree, first..last + 1);
            assert_eq!(found.len(), expected.len() - 1, "seed {seed}");
            for (at, pair) in expected.windows(2).enumerate() {
                let tables: Vec<_> =
                    (0..=upper.len()).map(|run| found.tables(run, at..at + 1).len()).collect();
                let wanted: Vec<_> = pair[0].iter().zip(&pair[1]).map(|(from, to)| to - from).collect();
                assert_eq!(tables, wanted, "seed {seed}");
                let bare = wanted[..upper.len()].iter().all(|n| *n == 0);
                assert_eq!(found.is_bare(at), bare, "seed {seed}");
            }
        }
    }
}
