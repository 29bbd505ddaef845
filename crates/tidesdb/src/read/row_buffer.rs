//! The row buffer: rows that a cursor has copied in advance. It saves processor time; read-ahead ([`Readahead`](crate::types::Readahead))
//! decides what is read from disk.
//!
//! Asking all sources in turn for one row costs more than copying several rows from one source. So a cursor that has
//! moved forward for some steps, and whose values were read, copies rows in advance. It copies half as many as it has
//! shown, so little is read in vain. If the last scan was that long, the next one is expected to be as long: the cursor
//! then copies from the first step on, up to the end of the expected scan or at most three rows further, because fewer
//! than four rows are not worth a copy. Where sources alternate, it copies seldom. All rows of a cursor have one read
//! timestamp, so it does not matter when they are read.

use crate::types::{EntryMeta, RowSpan, Rows};
use crate::{Error, Result};

/// Steps before rows are copied.
const STEPS: u32 = 16;
/// Minimum and maximum number of rows to copy; fewer are not worth it.
const FEWEST: usize = 4;
const MOST: usize = 16;
/// Sentinel: no rows are copied.
const NEVER: u32 = u32::MAX;
/// Maximum number of extra steps before the next attempt, after attempts that copied too few rows.
const PAUSE_MAX: u32 = 255;

/// The buffered rows and the cursor's position in them.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    rows: Rows,
    at: usize,
    /// Whether the value of the current row was read.
    wanted: bool,
    /// Consecutive steps from rows whose values were read, counted up to the last buffered row.
    steps: u32,
    /// Length of the last scan.
    expected: u32,
    /// Number of steps after which rows are copied.
    first: u32,
    /// Number of steps at which to fill the buffer next.
    due: u32,
    /// Extra steps before the next attempt, after attempts that copied too few rows.
    pause: u32,
    /// Error reported after the last buffered row.
    failed: Option<Error>,
}

impl RowBuffer {
    /// Creates an empty buffer. With `may`, it may be filled.
    pub(super) fn new(may: bool) -> Self {
        let first = if may { STEPS } else { NEVER };
        Self { first, due: first, ..Self::default() }
    }

    /// Returns whether the cursor stands on a buffered row.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Moves to the next buffered row and returns true, or returns false at the last one.
    #[inline]
    pub(super) fn step(&mut self) -> bool {
        let there = self.at + 1 < self.rows.len();
        self.at += usize::from(there);
        there
    }

    /// Returns key and value of the current row.
    #[inline]
    pub(super) fn row(&self) -> (&[u8], &[u8]) {
        self.rows.get(self.at)
    }

    /// Returns the bytes of the rows, and the span of each row from the current one on.
    #[inline]
    pub(super) fn parts(&self) -> (&[u8], &[RowSpan]) {
        let (bytes, spans) = self.rows.parts();
        (bytes, spans.get(self.at..).unwrap_or_default())
    }

    /// Moves `n` rows forward, at most to the last row, and counts their values as read.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) {
        self.at = self.at.saturating_add(n).min(self.rows.len().saturating_sub(1));
        self.wanted = true;
    }

    /// Returns sequence number, kind and expiry of the current row.
    pub(super) fn entry_meta(&self) -> EntryMeta {
        self.rows.entry_meta(self.at)
    }

    /// Records that the value of the current row was read.
    #[inline]
    pub(super) fn note_value(&mut self) {
        self.wanted = true;
    }

    /// Records a step to a row that is not buffered. Returns whether to fill the buffer now.
    #[inline]
    pub(super) fn note_step(&mut self) -> bool {
        if !std::mem::take(&mut self.wanted) {
            self.start();
            return false;
        }
        // Stays below the sentinel, so a disabled buffer never becomes due.
        self.steps = self.steps.saturating_add(1).min(NEVER - 1);
        self.steps >= self.due
    }

    /// Starts a new count of steps.
    #[inline]
    fn start(&mut self) {
        let not_shown = self.rows.len().saturating_sub(self.at + 1);
        self.expected = self.steps.saturating_sub(not_shown as u32);
        self.steps = 0;
        self.pause /= 2;
        self.due =
            if self.expected >= self.first { self.pause + 1 } else { self.first.saturating_add(self.pause) };
    }

    /// Lets `read` fill the buffer.
    pub(super) fn fill(&mut self, read: impl FnOnce(&mut Rows) -> Result<()>) {
        let more = if self.steps < self.expected { self.expected - self.steps + 1 } else { self.steps / 2 };
        self.rows.clear((more as usize).clamp(FEWEST, MOST));
        self.at = 0;
        self.failed = read(&mut self.rows).err();
        self.steps = self.steps.saturating_add(self.rows.len().saturating_sub(1) as u32);
        self.pause = if self.rows.len() < FEWEST { (self.pause * 2 + 1).min(PAUSE_MAX) } else { 0 };
        self.due = self.steps.saturating_add(self.pause + 1);
    }

    /// Empties the buffer after the last row, before the cursor moves on.
    ///
    /// # Errors
    /// Returns the error met after the last buffered row.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.rows.clear(0);
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Discards the buffer because the cursor moves elsewhere.
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

    /// Seeks, then makes `steps` steps over endless rows, reading each value. Returns at which steps rows were copied,
    /// and how many.
    fn run(ahead: &mut RowBuffer, steps: usize) -> Vec<(usize, usize)> {
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
                    while rows.push(b"key", b"value", EntryMeta::default()) {}
                    read.push((step, rows.len()));
                    Ok(())
                });
            }
        }
        read
    }

    #[test]
    fn a_long_scan_copies_more_rows_each_time() {
        let mut ahead = RowBuffer::new(true);
        assert_eq!(run(&mut ahead, 15), []);
        assert_eq!(run(&mut ahead, 60), [(16, 8), (24, 12), (36, 16), (52, 16)]);
    }

    #[test]
    fn a_scan_as_long_as_the_last_copies_from_the_first_step_and_nothing_in_vain() {
        let mut ahead = RowBuffer::new(true);
        run(&mut ahead, 40);
        for _ in 0..3 {
            assert_eq!(run(&mut ahead, 40), [(1, 16), (17, 16), (33, 8)]);
        }
        // Copying continues if the scan is longer than the last one.
        assert_eq!(run(&mut ahead, 60), [(1, 16), (17, 16), (33, 8), (41, 16), (57, 16)]);
        // If fewer than four expected rows are left, it copies four.
        run(&mut ahead, 50);
        assert_eq!(run(&mut ahead, 50), [(1, 16), (17, 16), (33, 16), (49, 4)]);
        run(&mut ahead, 40);
        run(&mut ahead, 60);
        // Rows that were copied but not shown are not expected by the next scan.
        assert_eq!(run(&mut ahead, 60), [(1, 16), (17, 16), (33, 16), (49, 12)]);
    }

    #[test]
    fn short_scans_copy_nothing_except_once_after_a_long_scan() {
        let mut ahead = RowBuffer::new(true);
        run(&mut ahead, 100);
        assert_eq!(run(&mut ahead, 8), [(1, 16)]);
        assert_eq!(run(&mut ahead, 8), []);
        run(&mut ahead, 100);
        ahead.forget();
        assert_eq!(run(&mut ahead, 8), [], "a seek without a step resets the expectation");
    }

    #[test]
    fn a_disabled_buffer_copies_nothing() {
        let mut ahead = RowBuffer::new(false);
        assert!(run(&mut ahead, 1000).is_empty() && run(&mut ahead, 1000).is_empty());
        ahead.steps = u32::MAX - 3;
        for _ in 0..10 {
            ahead.note_value();
            assert!(!ahead.note_step());
        }
    }

    #[test]
    fn attempts_become_rare_when_sources_alternate() {
        let mut ahead = RowBuffer::new(true);
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
