//! Maintenance of the whole database: flush, compact, verify.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Db;
use crate::family::FamilyCore;
use crate::health::HealthReport;
use crate::sst::Table;
use crate::types::{EntryCursor, Kind};
use crate::vlog::ValuePlace;
use crate::{Error, Result, collect, compact, files, flush};

/// Timeout of one wait for running merges, and the number of timeouts before giving up (30 seconds in total).
const LOOK: Duration = Duration::from_millis(10);
const LOOKS_MAX: u32 = 3000;

/// Result of [`Db::verify`]. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read in full.
    pub tables: usize,
    /// Value logs read in full.
    pub vlogs: usize,
    /// Entries found in tables.
    pub entries: u64,
    /// Pointers whose values were read.
    pub pointers: u64,
    /// Entries in memtables. The log has them and the next open checks it; [`Db::flush`] writes them to tables.
    pub unflushed: u64,
    /// All problems found, each with file and offset.
    pub damage: Vec<Error>,
}

impl VerifyReport {
    /// Returns whether no problem was found.
    pub fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tables with {} entries, {} value logs with {} referenced values: ",
            self.tables, self.entries, self.vlogs, self.pointers
        )?;
        match self.is_ok() {
            true => write!(f, "all good")?,
            false => write!(f, "{} problems", self.damage.len())?,
        }
        self.damage.iter().try_for_each(|e| write!(f, "\n  {e}"))?;
        match self.unflushed {
            0 => Ok(()),
            n => write!(f, "\n  {n} entries are in no table yet: to check them too, flush and verify again"),
        }
    }
}

impl Db {
    /// Writes everything committed so far, in all families, to tables.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`, `ReadOnly`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        flush::all(&engine.maintenance, &engine.write.all_families())
    }

    /// Flushes, then merges each family into one sorted run without deleted, expired or hidden versions. A large family is merged
    /// piece by piece, so that it takes little extra disk space; the pieces that are done stay if a later one fails.
    ///
    /// # Errors
    /// As [`Db::flush`]; `Corrupt`; `Busy` if [`Db::cancel_compactions`] stopped it.
    pub fn compact(&self) -> Result<()> {
        let engine = &self.inner.engine;
        let _call = engine.write.begin_call()?;
        self.flush()?;
        for family in engine.write.all_families() {
            compact::everything(&engine.maintenance, &family)?;
            collect::all(&engine.maintenance, &family, engine.stored_to())?;
        }
        engine.maintenance.remove_obsolete();
        engine.return_memory(Duration::ZERO);
        Ok(())
    }

    /// Returns the health of the database. A closed database keeps its last state.
    pub fn health(&self) -> HealthReport {
        self.inner.engine.health()
    }

    /// Sets how many bytes per second all merges together may write; 0 = no limit. Flushes are not limited. Running merges adapt at
    /// once. The limit lasts until the database is closed; see [`DbOptions::compaction_bytes_per_second`].
    ///
    /// [`DbOptions::compaction_bytes_per_second`]: crate::DbOptions::compaction_bytes_per_second
    pub fn set_compaction_rate(&self, bytes_per_second: u64) {
        self.inner.engine.write.merges.set_rate(bytes_per_second);
    }

    /// Stops all running merges, discards their output and keeps the input tables. Until the database is closed, no
    /// merge starts on its own and no writer waits for one; [`Db::compact`] and [`Family::compact`] still work. Returns
    /// when no merge runs.
    ///
    /// [`Family::compact`]: crate::Family::compact
    ///
    /// # Errors
    /// `Busy` if a merge still runs after 30 seconds; it will stop later. `Poisoned`, `ReadOnly`, `Closed`.
    pub fn cancel_compactions(&self) -> Result<()> {
        let engine = &self.inner.engine;
        engine.write.check_writable()?;
        engine.write.merges.stop();
        engine.write.pacing.progress.advance(); // wakes writers that wait for merges
        let mut looks = 0;
        for family in engine.write.all_families() {
            // The holder of this lock may be about to start a merge.
            while !family.claims.are_none() {
                if looks == LOOKS_MAX {
                    return Err(Error::Busy { cause: "a merge is still stopping; call again" });
                }
                let seen = engine.write.pacing.progress.current();
                looks += u32::from(!engine.write.pacing.progress.wait_while(seen, Some(LOOK)));
            }
        }
        Ok(())
    }

    /// Reads and checks every byte of every table and value log: checksums, order, indexes against data, filters,
    /// counts, pointers against values. Damage is listed in the report, not returned as an error.
    /// Commits that no flush has written yet are in the log, which is checked when it is read: by the next open.
    ///
    /// # Errors
    /// `Closed`.
    pub fn verify(&self) -> Result<VerifyReport> {
        let engine = &self.inner.engine;
        engine.reads.check_open()?;
        let mut report = VerifyReport::default();
        for family in engine.write.all_families() {
            let view = family.owned_view();
            if family.is_dropped() {
                continue; // a drop sets the flag first and empties the view afterwards
            }
            report.unflushed += view.memtables().map(|slot| slot.map.entries()).sum::<u64>();
            let version = view.version.clone();
            if let Err(e) = version.check() {
                report.damage.push(e);
            }
            for slot in version.tables() {
                verify_table(&family, slot.table(), &mut report);
            }
            for (id, info) in version.vlogs() {
                report.vlogs += 1;
                match family.vlog.scan(*id, |_| {}) {
                    Err(e) => report.damage.push(e),
                    // Bytes outside any record may be values whose commit a crash cut off. Only referenced values must
                    // be readable, which is checked above.
                    Ok(file) if !file.is_whole() => {
                        tracing::info!(
                            vlog = id.0,
                            live = info.live_bytes,
                            "a value log has bytes outside any record"
                        );
                    }
                    Ok(_) => {}
                }
            }
        }
        Ok(report)
    }
}

/// Reads and checks a table and the values that it points to.
fn verify_table(family: &FamilyCore, table: &Arc<Table>, report: &mut VerifyReport) {
    report.tables += 1;
    let checked = table.verify().and_then(|entries| {
        report.entries += entries;
        follow_pointers(family, table, report)
    });
    report.damage.extend(checked.err());
}

/// Reads each value that `table` points to. Stops at the first damage.
fn follow_pointers(family: &FamilyCore, table: &Arc<Table>, report: &mut VerifyReport) -> Result<()> {
    if table.meta().vlog_refs.is_empty() {
        return Ok(());
    }
    let name = files::table(table.meta().id);
    let mut cursor = crate::sst::TableCursor::bypassing_cache(Arc::clone(table));
    cursor.seek_to_first()?;
    while cursor.valid() {
        if cursor.kind() == Kind::PutPointer {
            let place = ValuePlace::decode(cursor.value()?)
                .ok_or_else(|| Error::corrupt(&name, 0, "an entry holds a malformed pointer"))?;
            match place {
                ValuePlace::Record(pointer) => drop(family.vlog.read(&pointer)?),
                ValuePlace::Chunks(place) => family.vlog.read_chunks(&place, |_| Ok(()))?,
            }
            report.pointers += 1;
        }
        cursor.next()?;
    }
    Ok(())
}
