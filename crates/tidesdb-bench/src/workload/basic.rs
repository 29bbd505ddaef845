//! Basic workloads: puts, gets, deletes, seeks, ranges, and the scan of all rows.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::lane::{Gathered, Lane, Limit};
use super::transaction::transactions_of;
use super::{Bench, Measured, Model, Phase};
use crate::engine::{Engine, Result, Session};
use crate::keys::Stream;
use crate::measure::now;
use crate::spec::Workload;
use crate::verify::Summary;

impl Bench<'_> {
    pub(super) fn write(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let puts = self.puts(engine, limit, |thread| self.writing(thread))?;
        Ok(Measured::of(puts, Model::Written))
    }

    pub(super) fn read(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let gets = self.gets(engine, limit, |thread| self.reading(thread, None))?;
        Ok(Measured::of(gets, |_| Model::Filled))
    }

    pub(super) fn mixed(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let puts = self.puts(engine, limit, |thread| self.writing(thread))?;
        let gets = self
            .gets(engine, limit, |thread| self.reading(thread, Some(puts.lanes[thread as usize].max(1))))?;
        let mut measured = Measured::of(puts, Model::Written);
        measured.phases.extend(gets.phases);
        measured.checked += gets.checked;
        measured.processor += gets.processor;
        Ok(measured)
    }

    /// Puts in batches; each thread returns its number of puts.
    pub(super) fn puts(
        &self,
        engine: &dyn Engine,
        limit: Limit,
        stream: impl Fn(u64) -> Stream + Sync,
    ) -> Result<Gathered<u64>> {
        self.parallel(engine, &["PUT"], limit, |lane, session| {
            let mut stream = stream(lane.thread);
            while lane.more() {
                let batch = lane.batch(self.spec.batch);
                if let Some(level) = self.spec.level().filter(|_| self.spec.workload == Workload::Write) {
                    lane.put_all(transactions_of(session)?, level, &mut stream, batch)?;
                    lane.lap(0, batch)?;
                    continue;
                }
                for _ in 0..batch {
                    lane.put(session, stream.advance(), self.spec.version)?;
                }
                session.commit()?;
                lane.lap(0, batch)?;
            }
            Ok(lane.done)
        })
    }

    fn gets(
        &self,
        engine: &dyn Engine,
        limit: Limit,
        stream: impl Fn(u64) -> Stream + Sync,
    ) -> Result<Gathered<()>> {
        self.parallel(engine, &["GET"], limit, |lane, session| {
            let mut stream = stream(lane.thread);
            while lane.more() {
                let found = lane.get(session, stream.advance(), Some(self.spec.version))?;
                lane.check.ensure(found, || "a key that was written is missing".to_owned());
                lane.lap(0, 1)?;
            }
            Ok(())
        })
    }

    pub(super) fn deletes(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let done = self.parallel(engine, &["DELETE"], limit, |lane, session| {
            let mut stream = self.writing(lane.thread);
            while lane.more() {
                let batch = lane.batch(self.spec.batch);
                for _ in 0..batch {
                    lane.aim(stream.advance());
                    session.delete(&lane.key)?;
                }
                session.commit()?;
                lane.lap(0, batch)?;
            }
            Ok(lane.done)
        })?;
        // Previous stages may have overwritten keys, so versions are not compared.
        Ok(Measured { versions: !self.spec.is_stage(), ..Measured::of(done, Model::Deleted) })
    }

    pub(super) fn seek(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let done = self.parallel(engine, &["SEEK"], limit, |lane, session| {
            let mut stream = self.reading(lane.thread, None);
            while lane.more() {
                self.seek_once(lane, session, stream.advance())?;
                lane.lap(0, 1)?;
            }
            Ok(())
        })?;
        Ok(Measured::of(done, |_| Model::Filled))
    }

    /// Seeks the key of `index`, which exists.
    pub(super) fn seek_once(&self, lane: &mut Lane<'_>, session: &mut dyn Session, index: u64) -> Result<()> {
        lane.aim(index);
        let mut right = false;
        let valid = session.seek(&lane.key, &mut |key| right = *key == lane.key[..])?;
        lane.check.ensure(valid && right, || "a seek to an existing key found another one".to_owned());
        Ok(())
    }

    pub(super) fn ranges(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let done = self.parallel(engine, &["RANGE"], limit, |lane, session| {
            let mut stream = self.reading(lane.thread, None);
            while lane.more() {
                self.range_once(lane, session, (stream.advance(), self.spec.range))?;
                lane.lap(0, 1)?;
            }
            Ok(())
        })?;
        Ok(Measured::of(done, |_| Model::Filled))
    }

    /// Reads up to `limit` rows, from the key of `index` on, which exists.
    pub(super) fn range_once(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        (index, limit): (u64, u64),
    ) -> Result<()> {
        let (item, due) = (lane.aim(index), lane.check.due());
        let (check, mut last) = (&mut lane.check, None);
        let rows = session.range(&lane.key, limit, &mut |key, value| {
            if !due {
                std::hint::black_box((key, value));
                return;
            }
            let id = check.row(true, last, key, value);
            let right = last.map_or(id == item.id, |last| self.order.follows(last, id));
            check.ensure(right, || "a range skipped a key or began at a wrong key".to_owned());
            last = Some(id);
        })?;
        let right = match self.order.rows(item.id, limit) {
            Some(wanted) => rows == wanted,
            None => (1..=limit).contains(&rows),
        };
        check.ensure(right, || format!("a range returned {rows} rows; some are missing"));
        Ok(())
    }

    /// Scans all rows on one thread; returns the phase, the summary of the rows, and the number of values compared in
    /// full.
    ///
    /// # Errors
    /// Returns a failed read, keys out of order, or keys or values that were never written.
    pub fn iterate(&self, engine: &dyn Engine, versions: bool) -> Result<(Phase, Summary, u64)> {
        let stop = AtomicBool::new(false);
        let mut lane = self.lane(0, 0, Limit::Count(1), &stop);
        let mut session = engine.session()?;
        let (mut found, mut last) = (Summary::default(), None);
        let (check, values) = (&mut lane.check, lane.values);
        let board = self.board.as_deref().filter(|_| self.spec.workload == Workload::Iterate);
        board.inspect(|board| board.name(&["ITER"]));
        let start = now();
        let ops = session.iterate(&mut |key, value| {
            let due = check.due();
            let id = check.row(due, last, key, value);
            let version = values.version(value);
            found.add_apart(id, if versions { version } else { 0 }, version);
            board.inspect(|board| board.beat(0, 0, 1, Duration::ZERO));
            last = Some(id);
        })?;
        let seconds = start.elapsed().as_secs_f64();
        check.verdict()?;
        Ok((Phase { operation: "ITER".to_owned(), ops, seconds, latency: None }, found, check.checked()))
    }
}
