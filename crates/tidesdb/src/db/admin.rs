//! Care for the whole database: flush, compact, verify.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Db;
use crate::family::FamilyCore;
use crate::sources::TableSlot;
use crate::types::{EntryCursor, Kind};
use crate::vlog::VlogPointer;
use crate::{Error, Result, compact, files, flush};

/// How long one look for merges that run takes, and after how many of them nobody waits any longer.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS_MAX: u32 = 3000;

/// What [`Db::verify`] checked. Its `Display` is for people.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables read in full.
    pub tables: usize,
    /// Value logs read in full.
    pub vlogs: usize,
    /// Entries found in tables.
    pub entries: u64,
    /// Pointers followed to their value.
    pub pointers: u64,
    /// Everything that is wrong, each with file and offset.
    pub damage: Vec<Error>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.damage.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tables with {} entries, {} value logs with {} values referred to: ",
            self.tables, self.entries, self.vlogs, self.pointers
        )?;
        if self.is_ok() {
            return write!(f, "all good");
        }
        write!(f, "{} problems", self.damage.len())?;
        self.damage.iter().try_for_each(|e| write!(f, "\n  {e}"))
    }
}

impl Db {
    /// Writes everything committed so far, of all families, to tables.
    ///
    /// # Errors
    /// `NoSpace`, `Io`, `Poisoned`, `ReadOnly`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        let shared = &self.inner.shared;
        shared.check_writable()?;
        shared.all_families().iter().try_for_each(|f| flush::all(shared, f))
    }

    /// Flushes and merges each family into one sorted run without deleted, expired or hidden versions.
    ///
    /// # Errors
    /// As [`Db::flush`]; `Corrupt`.
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        let shared = &self.inner.shared;
        shared.all_families().iter().try_for_each(|f| compact::everything(shared, f))?;
        shared.remove_obsolete();
        Ok(())
    }

    /// Stops all merges that run: what they wrote is thrown away, and the tables stay as they were. From now on none begins by
    /// itself until the database is closed, and no writer waits for one; [`Db::compact`] and [`Family::compact`] still work.
    /// Returns when none runs.
    ///
    /// [`Family::compact`]: crate::Family::compact
    ///
    /// # Errors
    /// `Busy` if one still runs after half a minute: it will stop. `Poisoned`, `ReadOnly`, `Closed`.
    pub fn cancel_compactions(&self) -> Result<()> {
        let shared = &self.inner.shared;
        shared.check_writable()?;
        shared.merges.stop();
        shared.debt.progress.advance(); // writers that wait for them
        let mut looks = 0;
        for family in shared.all_families() {
            // Whoever holds it may be about to begin one.
            while family.compacting.try_lock().is_none() {
                if looks == LOOKS_MAX {
                    return Err(Error::Busy { cause: "a merge has not come to an end yet" });
                }
                let seen = shared.debt.progress.current();
                looks += u32::from(!shared.debt.progress.wait_while(seen, Some(LOOK)));
            }
        }
        Ok(())
    }

    /// Reads every byte of every table and value log and checks it: checksums, order, indexes against data, filters,
    /// counts, pointers against values. Damage is listed in the report, not returned as an error.
    ///
    /// # Errors
    /// `Closed`.
    pub fn verify(&self) -> Result<VerifyReport> {
        let shared = &self.inner.shared;
        shared.check_open()?;
        let mut report = VerifyReport::default();
        for family in shared.all_families() {
            let version = family.owned_view().version.clone();
            if let Err(e) = version.check() {
                report.damage.push(e);
            }
            for slot in version.tables() {
                report.tables += 1;
                match slot.table().verify() {
                    Ok(entries) => report.entries += entries,
                    Err(e) => {
                        report.damage.push(e);
                        continue;
                    }
                }
                if let Err(e) = follow_pointers(&family, slot, &mut report) {
                    report.damage.push(e);
                }
            }
            for (id, info) in version.vlogs() {
                report.vlogs += 1;
                match family.vlog.verify_file(*id) {
                    Err(e) => report.damage.push(e),
                    // Bytes that are no record can be values whose commit a crash cut off: what matters is that every value
                    // that is referred to can be read, which is checked above.
                    Ok(file) if !file.is_whole() => {
                        tracing::info!(
                            vlog = id.0,
                            live = info.live_bytes,
                            "a value log has bytes that are no record"
                        );
                    }
                    Ok(_) => {}
                }
            }
        }
        Ok(report)
    }
}

/// Reads each value that `slot` points to. Stops at the first damage.
fn follow_pointers(family: &Arc<FamilyCore>, slot: &Arc<TableSlot>, report: &mut VerifyReport) -> Result<()> {
    if slot.meta().vlog_refs.is_empty() {
        return Ok(());
    }
    let name = files::table(slot.meta().id);
    let mut cursor = crate::sst::TableCursor::new(Arc::clone(slot.table()));
    cursor.seek_to_first()?;
    while cursor.valid() {
        if cursor.kind() == Kind::PutPointer {
            let pointer = VlogPointer::decode(cursor.value()?)
                .ok_or_else(|| Error::corrupt(&name, 0, "an entry holds a pointer of a wrong length"))?;
            family.vlog.read(&pointer)?;
            report.pointers += 1;
        }
        cursor.next()?;
    }
    Ok(())
}
