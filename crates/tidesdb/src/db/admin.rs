//! Maintenance of the whole database: flush, compact, verify.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Db;
use crate::family::FamilyCore;
use crate::health::HealthReport;
use crate::sources::TableVersion;
use crate::sst::Table;
use crate::types::{EntryCursor, VlogId};
use crate::vlog::{ValuePlace, VlogInfo};
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
            collect::all(&engine.maintenance, &family, engine.log_store())?;
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

    /// Sets from which duration on operations are reported as slow: as events `slow_operation`, at most one a second for each kind. `None`: none is. It lasts
    /// until the database is closed; see [`DbOptions::slow_operation`](crate::DbOptions::slow_operation).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use std::time::Duration;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// db.set_slow_operation(Some(Duration::from_millis(20)));
    /// db.set_slow_sync(Duration::from_millis(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_slow_operation(&self, from: Option<Duration>) {
        self.inner.engine.reads.set_slow_from(from);
    }

    /// Sets from which duration on syncs of the log are reported as slow; 0: none is. It lasts until the database is closed; see
    /// [`DbOptions::slow_sync`](crate::DbOptions::slow_sync).
    pub fn set_slow_sync(&self, from: Duration) {
        self.inner.engine.write.log.sync_times().set_slow_from(Some(from));
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
    /// A close waits for the table or value log that is being read; then the call ends.
    ///
    /// # Errors
    /// `Closed`, also if the database is closed meanwhile: damage that was found until then is not reported.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_while(&|| Ok(()))
    }

    /// Like [`Db::verify`], and ends with the error of `check`, which is asked now and then.
    pub(crate) fn verify_while(&self, check: &dyn Fn() -> Result<()>) -> Result<VerifyReport> {
        let engine = &self.inner.engine;
        engine.reads.check_open()?;
        let _call = engine.write.calls.begin()?;
        let check = || engine.write.jobs.check_open().and_then(|()| check());
        let mut report = VerifyReport::default();
        for family in engine.write.all_families() {
            let view = family.owned_view();
            if family.is_dropped() {
                continue; // a drop sets the flag first and empties the view afterwards
            }
            report.unflushed += view.memtables().map(|slot| slot.entries()).sum::<u64>();
            Verification { check: &check, family: &family, report: &mut report }.run(&view.version)?;
        }
        Ok(report)
    }
}

/// The check of one family.
struct Verification<'a> {
    /// Fails if it is to end.
    check: &'a dyn Fn() -> Result<()>,
    family: &'a FamilyCore,
    report: &'a mut VerifyReport,
}

impl Verification<'_> {
    /// Fails only if the database is being closed.
    fn run(&mut self, version: &TableVersion) -> Result<()> {
        if let Err(e) = version.check() {
            self.report.damage.push(e);
        }
        let overdrawn = self.overdrawn(version);
        for slot in version.tables() {
            (self.check)()?;
            self.report.tables += 1;
            match slot.table().verify() {
                Err(e) => self.report.damage.push(e),
                Ok(entries) => {
                    self.report.entries += entries;
                    let followed = self.follow_pointers(slot.table(), &overdrawn);
                    self.report.damage.extend(followed.err());
                }
            }
        }
        for (id, info) in version.vlogs() {
            (self.check)()?;
            self.report.vlogs += 1;
            match self.family.vlog.scan(*id, |_| {}) {
                Err(e) => self.report.damage.push(e),
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
        (self.check)() // what the close has removed meanwhile is no damage
    }

    /// Returns the value logs that are shorter than all that the tables refer to in them, and reports these. Each value has one entry in all
    /// tables, so what the pointers into any other file refer to takes no longer to read than the file.
    fn overdrawn(&mut self, version: &TableVersion) -> BTreeSet<VlogId> {
        let mut overdrawn = BTreeSet::new();
        for (id, info) in version.vlogs().iter().filter(|(_, info)| info.live_count > 0) {
            match self.family.vlog.info(*id) {
                Ok(VlogInfo { bytes, .. }) if bytes < info.used() => {
                    let what =
                        format!("tables refer to {} bytes of the value log, which has {bytes}", info.used());
                    self.report.damage.push(Error::corrupt(&files::vlog(*id), bytes, what));
                    overdrawn.insert(*id);
                }
                _ => {} // a file that cannot be opened is reported with the pointer
            }
        }
        overdrawn
    }

    /// Reads each value that `table`, which was verified, points to, but those in `overdrawn` files. Stops at the first damage.
    fn follow_pointers(&mut self, table: &Arc<Table>, overdrawn: &BTreeSet<VlogId>) -> Result<()> {
        if table.meta().vlog_refs.is_empty() {
            return Ok(());
        }
        let name = files::table(table.meta().id);
        let mut cursor = crate::sst::TableCursor::bypassing_cache(Arc::clone(table));
        cursor.seek_to_first()?;
        while cursor.valid() && (self.check)().is_ok() {
            if cursor.kind().holds_pointer() {
                let place = ValuePlace::decode(cursor.value()?)
                    .ok_or_else(|| Error::corrupt(&name, 0, "an entry holds a malformed pointer"))?;
                let mut is_readable = true;
                place.each_part(|vlog, _| is_readable &= !overdrawn.contains(&vlog));
                match place {
                    _ if !is_readable => {}
                    ValuePlace::Record(pointer) => drop(self.family.vlog.read(&pointer)?),
                    ValuePlace::Chunks(place) => self.family.vlog.read_chunks(&place, |_| Ok(()))?,
                }
                self.report.pointers += u64::from(is_readable);
            }
            cursor.next()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tidesdb_io::sim::{self, OpKind};

    use crate::read::{self, Located};
    use crate::vlog::ValuePlace;
    use crate::{Db, WriteBatch};

    /// A hostile table may point to one value as often as it has entries: a verification of a few megabytes then took hours.
    #[test]
    fn a_verification_reads_no_more_than_the_files_have() {
        let (env, disk, _clock) = sim::env(3);
        let db = Db::options("/db").env(env).background_threads(0).open().unwrap();
        let (family, reads) = (db.default_family(), &db.inner.engine.reads);
        let noise = |n: u32| (n.wrapping_mul(n).wrapping_add(n >> 3) >> 5) as u8;
        db.put_stream("honest", &*(0..3_000_000).map(noise).collect::<Vec<u8>>()).unwrap();
        assert!(db.flush().and_then(|()| db.verify()).unwrap().is_ok());
        let view = family.core.owned_view();
        let place = read::locate(reads, &family.core, &view, b"honest", None).unwrap();
        let Some(Located::Stored(ValuePlace::Chunks(place))) = place else { panic!("{place:?}") };
        let mut batch = WriteBatch::new();
        for n in 0..300u32 {
            batch.put_chunks(family, &n.to_le_bytes(), &place, Vec::new(), 0).unwrap();
        }
        db.write(&mut batch).unwrap();
        db.flush().unwrap();
        let names = disk.file_names("/db").unwrap();
        let files: usize =
            names.iter().map(|name| disk.read_file(format!("/db/{name}")).unwrap().len()).sum();
        let before = disk.ops().len();
        let report = db.verify().unwrap();
        let read: u64 =
            disk.ops()[before..].iter().filter(|op| op.kind == OpKind::Read).map(|op| op.len).sum();
        assert!(read <= 2 * files as u64, "{read} bytes were read of {files}");
        let [damage] = &report.damage[..] else { panic!("{report}") };
        assert!(damage.to_string().contains("tables refer to") && damage.is_corruption(), "{damage}");
    }
}
