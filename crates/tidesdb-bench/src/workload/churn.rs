//! Churn: keys are overwritten, deleted, written again and read. Each thread has its own keys, so the model knows the
//! newest version of every key and compares every read with it.

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::rng::Rng;
use crate::verify::Summary;

const WRITE: usize = 0;
const READ: usize = 1;
/// Maximum number of reads between two commits.
const READS: u64 = 64;

/// The newest version of each key of a thread, plus one; 0 if it was deleted.
struct Newest(Vec<u32>);

impl Bench<'_> {
    pub(super) fn churn(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let share = self.spec.share();
        let done = self.parallel(engine, &["CHURN", "GET"], limit, |lane, session| {
            let first = lane.thread * share;
            let mut rng = Rng::new(self.spec.seed, lane.thread);
            let mut newest = Newest(vec![1; share as usize]);
            while lane.more() {
                let batch = lane.batch(self.spec.batch);
                for n in 0..batch {
                    newest.change(
                        lane,
                        session,
                        first,
                        rng.below(share),
                        ((lane.done + n) as u32, rng.below(3) == 0),
                    )?;
                }
                session.commit()?;
                lane.lap(WRITE, batch)?;
                for _ in 0..batch.min(READS) {
                    newest.read(lane, session, first, rng.below(share))?;
                    lane.lap(READ, 1)?;
                }
            }
            Ok(newest.summary(lane, first))
        })?;
        Ok(Measured::of(done, |lanes| {
            let mut all = Summary::default();
            lanes.iter().for_each(|lane| all.merge(lane));
            Model::Known(all)
        }))
    }
}

impl Newest {
    /// Deletes the key at `at` if `delete` is set and the key exists; otherwise writes its next version.
    fn change(
        &mut self,
        lane: &mut Lane<'_>,
        session: &mut dyn Session,
        first: u64,
        at: u64,
        (version, delete): (u32, bool),
    ) -> Result<()> {
        let newest = &mut self.0[at as usize];
        if delete && *newest > 0 {
            *newest = 0;
            lane.aim(first + at);
            return session.delete(&lane.key);
        }
        let version = version % (u32::MAX - 1) + 1;
        *newest = version + 1;
        lane.put(session, first + at, version)
    }

    fn read(&self, lane: &mut Lane<'_>, session: &mut dyn Session, first: u64, at: u64) -> Result<()> {
        let newest = self.0[at as usize];
        let found = lane.get(session, first + at, newest.checked_sub(1))?;
        lane.check.ensure(found == (newest > 0), || match found {
            true => "a deleted key is back".to_owned(),
            false => "a key that was written is missing".to_owned(),
        });
        Ok(())
    }

    fn summary(&self, lane: &Lane<'_>, first: u64) -> Summary {
        let mut all = Summary::default();
        for (at, newest) in self.0.iter().enumerate().filter(|(_, newest)| **newest > 0) {
            all.add(lane.keys.item(first + at as u64).id, newest - 1);
        }
        all
    }
}
