//! Rows that a cursor has read ahead.
//!
//! To ask all sources in turn for one row costs more than to copy a row in a run from one of them. So a cursor that has gone forwards
//! for some steps, whose values were asked for, copies rows: half as many as it has shown, so that little is read for nothing.
//! Where sources take turns it does so seldom. What a cursor shows is of one moment: it does not matter when it is read.

use crate::types::{RowSpan, Rows, Stamp};
use crate::{Error, Result};

/// Steps before rows are read ahead.
const STEPS: u32 = 16;
/// How many rows at least and at most; fewer are not worth it.
const FEWEST: usize = 4;
const MOST: usize = 16;
/// Most steps before it is tried again where it was not worth it.
const PAUSE_MAX: u32 = 255;

/// The rows, and where the cursor has come to among them.
#[derive(Debug)]
pub(super) struct Ahead {
    rows: Rows,
    at: usize,
    /// Whether the value of the row stood on was asked for.
    wanted: bool,
    /// Rows without a break whose values were asked for.
    steps: u32,
    /// When to read rows: at that many steps.
    due: u32,
    /// By how much it is put off where it is not worth it.
    pause: u32,
    /// What comes after the last row.
    failed: Option<Error>,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { rows: Rows::default(), at: 0, wanted: false, steps: 0, due: STEPS, pause: 0, failed: None }
    }
}

impl Ahead {
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
        self.steps = self.steps.saturating_add(1);
        self.steps >= self.due
    }

    /// Counts from nothing.
    #[inline]
    fn start(&mut self) {
        (self.steps, self.due) = (0, STEPS);
    }

    /// Has `read` fill the rows.
    pub(super) fn fill(&mut self, read: impl FnOnce(&mut Rows) -> Result<()>) {
        self.rows.clear((self.steps as usize / 2).clamp(FEWEST, MOST));
        self.at = 0;
        self.failed = read(&mut self.rows).err();
        self.steps = self.steps.saturating_add(self.rows.len() as u32);
        self.pause = if self.rows.len() < FEWEST { (self.pause * 2 + 1).min(PAUSE_MAX) } else { 0 };
        self.due = self.steps.saturating_add(self.pause);
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
        if self.is_active() {
            self.rows.clear(0);
            self.failed = None;
        }
        self.wanted = false;
        self.start();
    }
}
