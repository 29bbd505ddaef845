//! Rows on their way into a family: in batches, or in sorted tables as long as the input is sorted. The rest of a long input is sorted first.
//!
//! The first rows are batches in any case, so a small load leaves no small table, and an unsorted input begins none. What goes to tables becomes visible,
//! and survives a kill, with the commit that takes them: after each 1 GiB, or 10 s. The first row that does not come after the last one ends the
//! tables.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use tidesdb::{Comparator, Family, KEY_BYTES_MAX, SortedWriter, SyncMode, WriteBatch, WriteOptions};

use super::sorter::Sorter;
use crate::failure::Outcome;
use crate::format::{self, Row};
use crate::host;
use crate::session::{Session, Sync};

/// A batch is committed when it has this many rows ...
const BATCH_ROWS: u64 = 1000;
/// ... or this many bytes.
const BATCH_BYTES: u64 = 4 << 20;
/// If at least so much of the input is left when it turns out not to be sorted, the rest is sorted.
const SORT_FROM: u64 = 1 << 30;
/// So many bytes of rows are sorted at a time: they are on the disk once more meanwhile.
const SORT_BYTES: u64 = 16 << 30;

/// When rows go to tables, and when the tables are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Rows go to tables after so many bytes of sorted rows.
    pub(super) sorted_from: u64,
    /// The tables of so many bytes of rows are taken by one commit ...
    pub(super) run_bytes: u64,
    /// ... or those of so much time.
    pub(super) run_time: Duration,
    /// If they have fewer bytes by then, the rest of the input is batches: it would become many small tables.
    pub(super) slow_bytes: u64,
    /// See [`SORT_FROM`].
    pub(super) sort_from: u64,
    /// See [`SORT_BYTES`].
    pub(super) sort_bytes: u64,
    /// So many bytes of them are sorted in memory.
    pub(super) sort_chunk: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sorted_from: 4 << 20,
            run_bytes: 1 << 30,
            run_time: Duration::from_secs(10),
            slow_bytes: 64 << 20,
            sort_from: SORT_FROM,
            sort_bytes: SORT_BYTES,
            sort_chunk: 64 << 20,
        }
    }
}

/// Why rows go to batches for the rest of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    /// The user wants each batch to be durable.
    Durable,
    /// The key in this line does not come after that of the row before it.
    Order(u64),
    /// The rows up to this line came slowly.
    Slow(u64),
}

/// Result of a load.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: u64,
    /// Rows that were written to sorted tables.
    pub(super) sorted: u64,
    /// Rows that were sorted before.
    pub(super) sorted_first: u64,
    pub(super) batches: Option<Because>,
    /// Bytes of the keys and values.
    pub(super) content: u64,
    pub(super) bytes: u64,
    pub(super) replaced: u64,
    pub(super) bad: u64,
    pub(super) first_bad: Option<String>,
    /// Rows whose value ends with a carriage return.
    pub(super) returns: u64,
}

/// Writes rows to a family.
pub(super) struct Loader<'a> {
    session: &'a Session,
    family: &'a Family,
    order: Comparator,
    options: WriteOptions,
    limits: Limits,
    batch: WriteBatch,
    /// The tables that are being written.
    run: Option<Run>,
    /// Sorts the rest of the input.
    sorter: Option<Sorter>,
    /// Rows since the last commit.
    pending: Pending,
    /// The last key, while the input is sorted; empty at first.
    last_key: Vec<u8>,
    last_line: u64,
    seen: Seen,
    pub(super) tally: Tally,
}

/// Tables that one commit takes.
struct Run {
    writer: SortedWriter,
    began: Instant,
}

/// Rows that are not committed yet.
#[derive(Default)]
struct Pending {
    rows: u64,
    bytes: u64,
    replaced: u64,
    /// Rows and bytes since [`Loader::add`] last asked for a step.
    since: (u64, u64),
}

impl<'a> Loader<'a> {
    pub(super) fn new(session: &'a Session, family: &'a Family, limits: Limits) -> Outcome<Self> {
        let is_durable = matches!(session.common.sync, Some(Sync(SyncMode::Full | SyncMode::Interval(_))));
        let batches = is_durable.then_some(Because::Durable);
        Ok(Self {
            session,
            family,
            order: family.current_options().comparator,
            options: session.write_options(SyncMode::None),
            limits,
            batch: WriteBatch::new(),
            run: None,
            sorter: None,
            pending: Pending::default(),
            last_key: Vec::new(),
            last_line: 0,
            seen: Seen::new(family)?,
            tally: Tally { batches, ..Tally::default() },
        })
    }

    /// Ends the tables if `row` does not come after the last one. To be called before the row is [added](Self::add); `left` returns how many
    /// bytes of the input are left.
    pub(super) fn turn(&mut self, row: &Row<'_>, left: impl Fn() -> u64) -> tidesdb::Result<()> {
        // A row that will be refused changes nothing.
        let is_key = (1..=KEY_BYTES_MAX).contains(&row.key.len());
        if self.tally.batches.is_some() || !is_key || self.last_key.is_empty() {
            return Ok(());
        }
        if self.order.compare(row.key, &self.last_key).is_gt() {
            return Ok(());
        }
        let sorts = left() >= self.limits.sort_from;
        if self.run.is_some() || sorts {
            self.commit()?;
        }
        if sorts {
            self.sorter = Some(Sorter::new(
                &self.session.path,
                &self.family.current_options(),
                self.limits.sort_chunk,
            )?);
        }
        self.tally.batches = Some(Because::Order(row.line));
        Ok(())
    }

    /// Adds a row. Returns whether [`Self::step`] is due.
    pub(super) fn add(&mut self, row: &Row<'_>) -> tidesdb::Result<bool> {
        let expiry = format::moment_of(row.expiry);
        let is_there = match (&mut self.sorter, &mut self.run) {
            (Some(sorter), _) => {
                sorter.add(row)?;
                false // it is looked for once the rows are sorted
            }
            (_, Some(run)) => {
                run.writer.rows().put_expiring(row.key, row.value, expiry)?;
                self.seen.is_there(self.family, &self.order, row.key, false)?
            }
            _ => {
                self.batch.put_expiring(self.family, row.key, row.value, expiry)?;
                self.seen.is_there(self.family, &self.order, row.key, true)?
            }
        };
        self.tally.returns += u64::from(row.value.last() == Some(&b'\r'));
        if self.tally.batches.is_none() {
            self.last_key.clear();
            self.last_key.extend_from_slice(row.key);
        }
        self.last_line = row.line;
        let bytes = (row.key.len() + row.value.len()) as u64;
        let Pending { rows, bytes: all, replaced, since } = &mut self.pending;
        (*rows, *all, *replaced) = (*rows + 1, *all + bytes, *replaced + u64::from(is_there));
        *since = (since.0 + 1, since.1 + bytes);
        let is_late = self.run.as_ref().is_some_and(|run| run.began.elapsed() >= self.limits.run_time);
        Ok(is_late || since.0 >= BATCH_ROWS || since.1 >= BATCH_BYTES)
    }

    /// Commits the batch, or the tables if it is time, and chooses where the next rows go.
    pub(super) fn step(&mut self) -> tidesdb::Result<()> {
        self.pending.since = (0, 0);
        if let Some(sorter) = &mut self.sorter {
            let is_full = self.pending.bytes >= self.limits.sort_bytes;
            return if is_full { self.commit() } else { sorter.step() };
        }
        let Some(run) = &self.run else {
            self.commit()?;
            let sorted = self.tally.batches.is_none() && self.tally.content >= self.limits.sorted_from;
            return if sorted { self.begin_run() } else { Ok(()) };
        };
        let is_full = self.pending.bytes >= self.limits.run_bytes;
        if !is_full && run.began.elapsed() < self.limits.run_time {
            return Ok(());
        }
        let is_slow = !is_full && self.pending.bytes < self.limits.slow_bytes;
        self.commit()?;
        if is_slow {
            self.tally.batches = Some(Because::Slow(self.last_line));
            return Ok(());
        }
        self.begin_run()
    }

    /// Commits the rows that were added.
    pub(super) fn commit(&mut self) -> tidesdb::Result<()> {
        if let Some(mut sorter) = self.sorter.take() {
            self.pending.replaced = self.write_sorted(&mut sorter)?;
            self.sorter = Some(sorter);
        } else if let Some(Run { writer, .. }) = self.run.take() {
            self.tally.sorted += writer.commit_with(&self.options)?.rows;
        } else {
            self.session.db.write_with(&mut self.batch, &self.options)?;
        }
        let Pending { rows, bytes, replaced, .. } = std::mem::take(&mut self.pending);
        self.tally.rows += rows;
        self.tally.content += bytes;
        self.tally.replaced += replaced;
        self.seen.committed();
        Ok(())
    }

    /// Returns whether rows are sorted before they are written.
    pub(super) fn sorts(&self) -> bool {
        self.sorter.is_some()
    }

    /// Returns the number of rows that were added.
    pub(super) fn added(&self) -> u64 {
        self.tally.rows + self.pending.rows
    }

    /// Writes the rows of `sorter` to tables. Returns how many of them replaced another one, of the family or among them.
    fn write_sorted(&mut self, sorter: &mut Sorter) -> tidesdb::Result<u64> {
        let (family, order, limits) = (self.family, &self.order, self.limits);
        let (mut replaced, mut rows, mut bytes) = (0, 0, 0);
        let mut writer = family.sorted_writer()?;
        sorter.drain(|row| {
            replaced += u64::from(self.seen.is_there(family, order, row.key, false)?);
            writer.rows().put_expiring(row.key, row.value, format::moment_of(row.expiry))?;
            rows += 1;
            bytes += (row.key.len() + row.value.len()) as u64;
            if bytes >= limits.run_bytes {
                std::mem::replace(&mut writer, family.sorted_writer()?).commit_with(&self.options)?;
                bytes = 0;
            }
            Ok(())
        })?;
        writer.commit_with(&self.options)?;
        self.tally.sorted += rows;
        self.tally.sorted_first += self.pending.rows;
        Ok(replaced + self.pending.rows.saturating_sub(rows))
    }

    fn begin_run(&mut self) -> tidesdb::Result<()> {
        self.run = Some(Run { writer: self.family.sorted_writer()?, began: host::now() });
        Ok(())
    }
}

/// Detects keys of the input that already exist, in the family or in an earlier row.
///
/// A key above all others needs no lookup, so sorted input costs nothing. Memory use is that of a batch.
struct Seen {
    /// The largest key of the family and the rows so far; empty if there is none.
    largest: Vec<u8>,
    /// Hashes of the keys of this batch, which are not visible in the family yet.
    pending: HashSet<u64>,
    hasher: RandomState,
}

impl Seen {
    fn new(family: &Family) -> Outcome<Self> {
        let mut cursor = family.cursor()?;
        cursor.seek_to_last()?;
        let largest = if cursor.valid() { cursor.key().to_vec() } else { Vec::new() };
        Ok(Self { largest, pending: HashSet::new(), hasher: RandomState::new() })
    }

    /// Returns whether `key` exists. Rows of tables are sorted, so none of those that are not visible yet has it.
    fn is_there(
        &mut self,
        family: &Family,
        order: &Comparator,
        key: &[u8],
        is_in_batch: bool,
    ) -> tidesdb::Result<bool> {
        let fresh = !is_in_batch || self.pending.insert(self.hasher.hash_one(key));
        if self.largest.is_empty() || order.compare(key, &self.largest).is_gt() {
            self.largest.clear();
            self.largest.extend_from_slice(key);
            return Ok(false);
        }
        Ok(!fresh || family.contains(key)?)
    }

    fn committed(&mut self) {
        self.pending.clear();
    }
}
