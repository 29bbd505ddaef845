//! Workloads for data larger than memory: overwriting every key, multi-gets, and gets while another thread writes.
//!
//! All keys have the same version when such a row begins, so a read knows the newest version without a table in memory.

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::keys::Stream;
use crate::rng::Rng;

const GET: usize = 0;
const PUT: usize = 1;
/// Offset of the readers' random lanes, so that they differ from those of other threads with the same seed.
const READERS: u64 = 1 << 32;

impl Bench<'_> {
    /// Returns the part of a sweep over all keys that belongs to `thread`.
    pub(super) fn sweeping(&self, thread: u64) -> Stream {
        Stream::sweep(self.spec.population(), thread * self.spec.share())
    }

    /// Returns a stream of keys drawn uniformly.
    pub(super) fn drawing(&self, thread: u64) -> Stream {
        let rng = Rng::new(self.spec.seed, READERS + thread);
        Stream::Uniform { rng, n: self.spec.population() }
    }

    pub(super) fn overwrite(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let done = self.parallel(engine, &["PUT"], limit, |lane, session| {
            self.put_next_version(lane, session, (0, self.spec.quota()))?;
            Ok(lane.done)
        })?;
        Ok(Measured::of(done, |steps| Model::Rewritten(0, steps)))
    }

    /// Puts the next version of the first `keys` keys of the thread's sweep, as operations of `kind`.
    pub(super) fn put_next_version(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        of: (usize, u64),
    ) -> Result<()> {
        let stream = match self.spec.bulk {
            true => self.slice(lane.thread, self.spec.share()),
            false => self.sweeping(lane.thread),
        };
        self.put_versions(lane, session, (stream, self.spec.version + 1), of)
    }

    /// Puts `version` of the keys of `stream`, as operations of `kind`, until the thread has done `keys` operations.
    pub(super) fn put_versions(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        (mut stream, version): (Stream, u32),
        (kind, keys): (usize, u64),
    ) -> Result<()> {
        while lane.done < keys && lane.more() {
            let batch = self.spec.batch.min(keys - lane.done);
            for _ in 0..batch {
                lane.put(session, stream.advance(), version)?;
            }
            session.commit()?;
            lane.lap(kind, batch)?;
        }
        Ok(())
    }

    pub(super) fn multi_gets(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let done = self.parallel(engine, &["MULTIGET"], limit, |lane, session| {
            let mut stream = self.reading(lane.thread, None);
            let mut keys = vec![lane.key.clone(); self.spec.batch as usize];
            let mut ids = vec![0; keys.len()];
            while lane.more() {
                let batch = lane.batch(self.spec.batch) as usize;
                for (key, id) in keys[..batch].iter_mut().zip(&mut ids) {
                    *id = lane.aim(stream.advance()).id;
                    key.copy_from_slice(&lane.key);
                }
                let (due, check) = (lane.check.due(), &mut lane.check);
                let found = session.multi_get(&keys[..batch], &mut |place, value| {
                    let id = ids.get(place).copied().unwrap_or_default();
                    check.value(due, id, Some(self.spec.version), value);
                })?;
                check.ensure(found == batch as u64, || "a key that was written is missing".to_owned());
                lane.lap(0, batch as u64)?;
            }
            Ok(())
        })?;
        Ok(Measured::of(done, |_| Model::Filled))
    }

    pub(super) fn read_while_writing(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let readers = self.spec.threads as u64;
        let kinds = &["GET", "PUT"][..];
        let done = self.parallel_on(self.spec.crew(), engine, (kinds, limit), |lane, session| {
            if lane.thread == readers {
                return self.write_on(lane, session);
            }
            let mut stream = self.drawing(lane.thread);
            while lane.more() {
                self.get_any_from(lane, session, stream.advance())?;
                lane.lap(GET, 1)?;
            }
            Ok(0)
        })?;
        let keys = self.spec.population();
        Ok(Measured::of(done, |puts| {
            let puts: u64 = puts.iter().sum();
            Model::Rewritten((puts / keys) as u32, vec![puts % keys])
        }))
    }

    /// Runs the writer of `ReadWhileWriting`: sweeps over all keys repeatedly, each time with the next version. Returns
    /// the number of puts.
    fn write_on(&self, lane: &mut Lane<'_>, session: &mut dyn Session) -> Result<u64> {
        let (mut stream, keys) = (self.sweeping(0), self.spec.population());
        while lane.more() {
            let batch = lane.batch(self.spec.batch);
            for n in 0..batch {
                let version = self.spec.version + 1 + ((lane.done + n) / keys) as u32;
                lane.put(session, stream.advance(), version)?;
            }
            session.commit()?;
            lane.lap(PUT, batch)?;
        }
        Ok(lane.done)
    }

    /// Gets a key and checks that the version is the initial one or a newer one.
    pub(super) fn get_any_from(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        index: u64,
    ) -> Result<()> {
        let item = lane.aim(index);
        let (due, check, values) = (lane.check.due(), &mut lane.check, lane.values);
        let found = session.get(&lane.key, &mut |value| {
            let version = values.version(value);
            check.ensure(version >= self.spec.version, || format!("version {version} of a value is too old"));
            check.value(due, item.id, None, value);
        })?;
        check.ensure(found, || "a key that was written is missing".to_owned());
        Ok(())
    }
}
