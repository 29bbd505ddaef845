//! Several families under load at once: one thread for each overwrites the keys of its family at a fixed rate. One
//! family is much larger than the others, so its merges could keep theirs waiting.

use super::lane::Limit;
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result};
use crate::keys::Stream;
use crate::spec::FAMILIES_MAX;
use crate::verify::Summary;

/// Names of the operations of each family.
const KINDS: [&str; FAMILIES_MAX] = ["PUT 1", "PUT 2", "PUT 3", "PUT 4", "PUT 5", "PUT 6", "PUT 7", "PUT 8"];

impl Bench<'_> {
    /// Puts all keys of all families.
    pub(super) fn fill_families(&self, engine: &dyn Engine) -> Result<()> {
        let limit = Limit::Count(u64::MAX);
        let kinds = &KINDS[..self.spec.families.len()];
        let done = self.parallel(engine, kinds, limit, |lane, session| {
            let family = lane.thread as usize;
            let first = self.first_of(family);
            while lane.done < self.spec.families[family] {
                let batch = self.spec.batch.min(self.spec.families[family] - lane.done);
                for n in 0..batch {
                    lane.put(session, first + lane.done + n, 0)?;
                }
                session.commit()?;
                lane.lap(family, batch)?;
            }
            Ok(())
        })?;
        drop(done);
        Ok(())
    }

    pub(super) fn families(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let kinds = &KINDS[..self.spec.families.len()];
        let done = self.parallel(engine, kinds, limit, |lane, session| {
            let family = lane.thread as usize;
            let (first, keys) = (self.first_of(family), self.spec.families[family]);
            let mut stream = Stream::sweep(keys, 0);
            while lane.more() {
                let batch = lane.batch(self.spec.batch);
                for n in 0..batch {
                    let version = 1 + ((lane.done + n) / keys) as u32;
                    lane.put(session, first + stream.advance(), version)?;
                }
                session.commit()?;
                lane.lap(family, batch)?;
            }
            Ok(lane.done)
        })?;
        Ok(Measured::of(done, Model::Families))
    }

    /// Compares the rows of each family with the expected ones.
    ///
    /// # Errors
    /// Returns a description of the difference.
    pub fn verify_families(&self, engine: &dyn Engine, puts: &[u64]) -> Result<()> {
        for (family, puts) in puts.iter().enumerate() {
            let (mut found, mut last) = (Summary::default(), None);
            let mut check = self.check();
            engine.session_of(family)?.iterate(&mut |key, value| {
                let due = check.due();
                let id = check.row(due, last, key, value);
                found.add(id, self.values.version(value));
                last = Some(id);
            })?;
            check.verdict()?;
            found
                .compare(&self.of_family(family, *puts))
                .map_err(|e| format!("family {}: {e}", family + 1))?;
        }
        Ok(())
    }

    /// Returns the contents of a family after this many puts.
    fn of_family(&self, family: usize, puts: u64) -> Summary {
        let (first, keys) = (self.first_of(family), self.spec.families[family]);
        let mut again = vec![false; keys as usize];
        let mut stream = Stream::sweep(keys, 0);
        (0..puts % keys).for_each(|_| again[stream.advance() as usize] = true);
        let mut all = Summary::default();
        for (index, again) in (first..).zip(again) {
            all.add(self.keys.item(index).id, (puts / keys) as u32 + u32::from(again));
        }
        all
    }

    /// Returns the index of the first key of a family.
    fn first_of(&self, family: usize) -> u64 {
        self.spec.families[..family].iter().sum()
    }
}
