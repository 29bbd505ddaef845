//! Rows that a cursor has read ahead.
//!
//! To ask all sources in turn for one row costs more than to copy a row in a run from one of them. So a cursor that has gone forwards
//! for some steps, whose values were asked for, copies rows: half as many as it has shown, so that little is read for nothing.
//! One whose last run was that long is expected to make another such: it copies from the first step on, to where that run ended or up to
//! three rows behind, as fewer than four are not worth a copy.
//! Where sources take turns it does so seldom. What a cursor shows is of one moment: it does not matter when it is read.

use crate::types::{RowSpan, Rows, Stamp};
use crate::{Error, Result};

/// Steps before rows are read ahead.
const STEPS: u32 = 16;
/// How many rows at least and at most; fewer are not worth it.
const FEWEST: usize = 4;
const MOST: usize = 16;
/// So many steps no run has.
const NEVER: u32 = u32::MAX;
/// Most steps before it is tried again where it was not worth it.
const PAUSE_MAX: u32 = 255;

/// The rows, and where the cursor has come to among them.
#[derive(Debug)]
pub(super) struct Ahead {
    rows: Rows,
    at: usize,
    /// Whether the value of the row stood on was asked for.
    wanted: bool,
    /// Steps without a break from rows whose values were asked for, to the last of the rows.
    steps: u32,
    /// How many the last run had.
    expected: u32,
    /// How many make a run in which rows are read.
    first: u32,
    /// When to read rows: at that many steps.
    due: u32,
    /// By how much it is put off where it is not worth it.
    pause: u32,
    /// What comes after the last row.
    failed: Option<Error>,
}

impl Ahead {
    /// No rows yet; `may` is whether there may be some.
    pub(super) fn new(may: bool) -> Self {
        let first = if may { STEPS } else { NEVER };
        Self {
            rows: Rows::default(),
            at: 0,
            wanted: false,
            steps: 0,
            expected: 0,
            first,
            due: first,
            pause: 0,
            failed: None,
        }
    }

    /// None yet, for a cursor that may do what this one's may.
    pub(super) fn sibling(&self) -> Self {
        Self::new(self.first != NEVER)
    }

    /// Whether the cursor stands on one of the rows.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        !self.rows.is_empty()
    }

    /// One row on, if there is one.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        let there = self.at + 1 < self.rows.len();
        self.at += usize::from(there);
        there
    }

    /// Key and value of the row stood on.
    #[inline]
    pub(super) fn row(&self) -> (&[u8], &[u8]) {
        self.rows.get(self.at)
    }

    /// The bytes of the rows, and where each from the one stood on lies among them.
    #[inline]
    pub(super) fn parts(&self) -> (&[u8], &[RowSpan]) {
        let (bytes, spans) = self.rows.parts();
        (bytes, spans.get(self.at..).unwrap_or_default())
    }

    /// `n` rows on, whose values were of use, or to the last one.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) {
        self.at = self.at.saturating_add(n).min(self.rows.len().saturating_sub(1));
        self.wanted = true;
    }

    /// What is to be known of it beside.
    pub(super) fn stamp(&self) -> Stamp {
        self.rows.stamp(self.at)
    }

    /// The value of the row stood on was asked for.
    #[inline]
    pub(super) fn note_value(&mut self) {
        self.wanted = true;
    }

    /// A step was made to a row that was not read ahead; whether it is time to read rows.
    #[inline]
    pub(super) fn note_step(&mut self) -> bool {
        if !std::mem::take(&mut self.wanted) {
            self.start();
            return false;
        }
        // Never as many as who may not read ahead would wait for.
        self.steps = self.steps.saturating_add(1).min(NEVER - 1);
        self.steps >= self.due
    }

    /// Counts from nothing.
    #[inline]
    fn start(&mut self) {
        let not_shown = self.rows.len().saturating_sub(self.at + 1);
        self.expected = self.steps.saturating_sub(not_shown as u32);
        self.steps = 0;
        self.pause /= 2;
        self.due =
            if self.expected >= self.first { self.pause + 1 } else { self.first.saturating_add(self.pause) };
    }

    /// Has `read` fill the rows.
    pub(super) fn fill(&mut self, read: impl FnOnce(&mut Rows) -> Result<()>) {
        let more = if self.steps < self.expected { self.expected - self.steps + 1 } else { self.steps / 2 };
        self.rows.clear((more as usize).clamp(FEWEST, MOST));
        self.at = 0;
        self.failed = read(&mut self.rows).err();
        self.steps = self.steps.saturating_add(self.rows.len().saturating_sub(1) as u32);
        self.pause = if self.rows.len() < FEWEST { (self.pause * 2 + 1).min(PAUSE_MAX) } else { 0 };
        self.due = self.steps.saturating_add(self.pause + 1);
    }

    /// All rows were shown, and the cursor goes on.
    ///
    /// # Errors
    /// What comes after them could not be read.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.rows.clear(0);
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The cursor goes elsewhere.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.start();
        if self.is_active() {
            self.rows.clear(0);
            self.failed = None;
        }
        self.wanted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes `steps` on from a new place over rows without end, asking for each value; before which steps rows were read, and how many.
    fn run(ahead: &mut Ahead, steps: usize) -> Vec<(usize, usize)> {
        ahead.forget();
        let mut read = Vec::new();
        for step in 1..=steps {
            ahead.note_value();
            if ahead.step() {
                continue;
            }
            if ahead.is_active() {
                ahead.finish().unwrap();
            }
            if ahead.note_step() {
                ahead.fill(|rows| {
                    while rows.push(b"key", b"value", Stamp::default()) {}
                    read.push((step, rows.len()));
                    Ok(())
                });
            }
        }
        read
    }

    #[test]
    fn a_long_run_reads_more_and_more() {
        let mut ahead = Ahead::new(true);
        assert_eq!(run(&mut ahead, 15), []);
        assert_eq!(run(&mut ahead, 60), [(16, 8), (24, 12), (36, 16), (52, 16)]);
    }

    #[test]
    fn a_run_as_long_as_the_last_reads_from_the_first_step_and_nothing_for_nothing() {
        let mut ahead = Ahead::new(true);
        run(&mut ahead, 40);
        for _ in 0..3 {
            assert_eq!(run(&mut ahead, 40), [(1, 16), (17, 16), (33, 8)]);
        }
        // It goes on where there is more than the last time.
        assert_eq!(run(&mut ahead, 60), [(1, 16), (17, 16), (33, 8), (41, 16), (57, 16)]);
        // Where fewer than four are left it reads four.
        run(&mut ahead, 50);
        assert_eq!(run(&mut ahead, 50), [(1, 16), (17, 16), (33, 16), (49, 4)]);
        run(&mut ahead, 40);
        run(&mut ahead, 60);
        // What was read and not shown is not expected.
        assert_eq!(run(&mut ahead, 60), [(1, 16), (17, 16), (33, 16), (49, 12)]);
    }

    #[test]
    fn short_runs_read_nothing_but_once_after_a_long_one() {
        let mut ahead = Ahead::new(true);
        run(&mut ahead, 100);
        assert_eq!(run(&mut ahead, 8), [(1, 16)]);
        assert_eq!(run(&mut ahead, 8), []);
        run(&mut ahead, 100);
        ahead.forget();
        assert_eq!(run(&mut ahead, 8), [], "a seek after which there was no step");
    }

    #[test]
    fn who_may_not_reads_nothing() {
        let mut ahead = Ahead::new(false);
        assert!(run(&mut ahead, 1000).is_empty() && run(&mut ahead, 1000).is_empty());
        assert!(
            run(&mut ahead.sibling(), 1000).is_empty()
                && !run(&mut Ahead::new(true).sibling(), 1000).is_empty()
        );
        ahead.steps = u32::MAX - 3;
        for _ in 0..10 {
            ahead.note_value();
            assert!(!ahead.note_step());
        }
    }

    #[test]
    fn where_sources_take_turns_it_is_tried_seldom() {
        let mut ahead = Ahead::new(true);
        let mut tries = 0;
        for _ in 0..20 {
            ahead.forget();
            for _ in 0..100 {
                ahead.note_value();
                if ahead.note_step() {
                    ahead.fill(|_| Ok(()));
                    tries += 1;
                }
            }
        }
        assert!((4..40).contains(&tries), "{tries}");
    }
}
