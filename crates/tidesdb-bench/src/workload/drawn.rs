//! Overwrites of drawn keys while another thread reads: a steady load with duplicates, uniform or by Zipf's law.
//!
//! Each writer draws from its own part of the keys, so the newest version of a key is known. The version of a put is
//! its position among the puts of its thread, so the timed part needs no table of versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::keys::{Stream, Zipf};
use crate::rng::Rng;
use crate::verify::Summary;

const PUT: usize = 0;
const GET: usize = 1;

impl Bench<'_> {
    pub(super) fn write_while_reading(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let writers = self.spec.threads as u64;
        let (writing, zipf) = (AtomicUsize::new(self.spec.threads), self.zipf_of_share());
        let kinds = &["PUT", "GET"][..];
        let done = self.parallel_on(self.spec.crew(), engine, (kinds, limit), |lane, session| {
            if lane.thread == writers {
                return self.read_until(lane, session, &writing);
            }
            let done = self.put_drawn(lane, session, zipf.as_ref());
            writing.fetch_sub(1, Ordering::Relaxed);
            done
        })?;
        // A row that follows another one of this kind does not know the versions of keys that it did not write.
        let versions = self.spec.version == 0;
        Ok(Measured { versions, ..Measured::of(done, Model::Drawn) })
    }

    /// Puts drawn keys, each with its position as the version. Returns the number of puts.
    fn put_drawn(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        zipf: Option<&Arc<Zipf>>,
    ) -> Result<u64> {
        let (mut stream, first) = (self.draws(lane.thread, zipf), lane.thread * self.spec.share());
        while lane.more() {
            let batch = lane.batch(self.spec.batch);
            for n in 0..batch {
                lane.put(session, first + stream.advance(), self.version_at(lane.done + n))?;
            }
            session.commit()?;
            lane.lap(PUT, batch)?;
        }
        Ok(lane.done)
    }

    /// Gets random keys until the writers are done. Returns 0: it does no puts.
    fn read_until(
        &self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        writing: &AtomicUsize,
    ) -> Result<u64> {
        let mut stream = self.drawing(lane.thread);
        while writing.load(Ordering::Relaxed) > 0 && !lane.is_stopped() {
            let found = lane.get(session, stream.advance(), None)?;
            lane.check.ensure(found, || "a key that was written is missing".to_owned());
            lane.lap(GET, 1)?;
        }
        Ok(0)
    }

    /// Returns the version of the put at a position, above that of all keys before the operations.
    pub(super) fn version_at(&self, position: u64) -> u32 {
        self.spec.version.wrapping_add(1).wrapping_add(position as u32)
    }

    /// Returns the distribution of one thread's keys, if it is Zipf's.
    fn zipf_of_share(&self) -> Option<Arc<Zipf>> {
        let shape = || Arc::new(Zipf::new(self.spec.share(), self.spec.theta, self.spec.theta_offset));
        self.zipf.is_some().then(shape)
    }

    /// Returns the keys that a thread draws, counted from the first key of its part.
    pub(super) fn draws(&self, thread: u64, zipf: Option<&Arc<Zipf>>) -> Stream {
        let rng = Rng::new(self.spec.seed.wrapping_add(u64::from(self.spec.version)), thread);
        match zipf {
            Some(zipf) => Stream::Zipf { rng, zipf: zipf.clone() },
            None => Stream::Uniform { rng, n: self.spec.share() },
        }
    }

    /// Returns the contents after this many drawn puts of each thread. If the versions before are unknown, all
    /// versions are 0.
    pub(super) fn drawn(&self, puts: &[u64]) -> Summary {
        let (share, zipf) = (self.spec.share(), self.zipf_of_share());
        let known = self.spec.version == 0;
        let mut all = Summary::default();
        for (thread, puts) in (0..self.spec.threads as u64).zip(puts) {
            let mut versions = vec![self.spec.version; share as usize];
            let mut stream = self.draws(thread, zipf.as_ref());
            (0..*puts).for_each(|at| versions[stream.advance() as usize] = self.version_at(at));
            for (index, version) in (thread * share..).zip(versions) {
                all.add(self.keys.item(index).id, if known { version } else { 0 });
            }
        }
        all
    }
}
