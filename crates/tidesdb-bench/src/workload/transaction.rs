//! Transactions. Each of them adds one to the counters of its keys. The version of a value is its counter, so one lost update
//! is found when all rows have been read.
//!
//! A transaction that conflicts is retried with the same keys; its latency is that of all its attempts. A thread with its own
//! keys knows every counter, and every read is compared with it. With shared keys the sum is checked at the end: exactly at
//! the levels that forbid lost updates, and as a bound at the others.

use serde::{Deserialize, Serialize};

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Ended, Engine, Result, Session, Transactions};
use crate::keys::{Pattern, Stream};
use crate::rng::Rng;
use crate::spec::{Contention, Isolation};

const TX: usize = 0;
/// Maximum number of attempts of a transaction; more fail its row.
const ATTEMPTS_MAX: u64 = 100_000;

/// Results of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transacted {
    /// Number of committed transactions.
    pub committed: u64,
    /// Number of attempts that conflicted.
    pub conflicts: u64,
}

impl Transacted {
    /// Returns the conflicts in percent of all attempts.
    pub fn conflict_rate(&self) -> f64 {
        100.0 * self.conflicts as f64 / (self.committed + self.conflicts).max(1) as f64
    }
}

/// Expected counters of all keys.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Number of committed updates for each index.
    updates: Vec<u32>,
    /// True if updates may be lost.
    loose: bool,
}

impl Counted {
    /// Returns the counter of each index, as far as it is known.
    pub(super) fn versions(&self) -> impl Iterator<Item = u32> {
        self.updates.iter().map(|n| if self.loose { 0 } else { *n })
    }

    /// Checks whether all counters can add up to `sum`.
    pub(super) fn check(&self, sum: u64) -> Result<()> {
        let committed: u64 = self.updates.iter().map(|n| u64::from(*n)).sum();
        // However many updates are lost, the last update of each key remains.
        let keys = self.updates.iter().filter(|n| **n > 0).count() as u64;
        let words = format!("the counters add up to {sum}, {committed} updates were committed");
        match sum {
            sum if sum > committed => Err(format!("{words}: some came from nowhere")),
            sum if sum < keys || (!self.loose && sum < committed) => {
                Err(format!("{words}: {} are lost", committed - sum))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the transactions of a session.
pub(super) fn transactions_of(session: &mut dyn Session) -> Result<&mut dyn Transactions> {
    session.transactions().ok_or_else(|| "the engine has no transactions".to_owned())
}

impl Bench<'_> {
    pub(super) fn transactions(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let level = self.spec.level().unwrap_or(Isolation::ReadCommitted);
        let done = self.parallel(engine, &["TX"], limit, |lane, session| {
            let transactions = transactions_of(session)?;
            let mut client = self.client(lane.thread);
            while lane.more() {
                client.draw();
                client.commit(lane, transactions, level)?;
                lane.lap(TX, 1)?;
            }
            Ok(client)
        })?;
        let committed = done.phases.iter().map(|phase| phase.ops).sum();
        let conflicts = done.lanes.iter().map(|client| client.conflicts).sum();
        let loose = self.spec.contention == Contention::High && !level.keeps_updates();
        let mut measured = Measured::of(done, |clients| Model::Counted(self.counted(&clients, loose)));
        measured.versions = !loose;
        measured.transacted = Some(Transacted { committed, conflicts });
        Ok(measured)
    }

    /// Creates the client of a thread.
    fn client(&self, thread: u64) -> Client {
        let (first, span) = match self.spec.hot_keys() {
            Some(hot) => (0, hot),
            None => (thread * self.spec.share(), self.spec.share()),
        };
        let rng = Rng::new(self.spec.seed, thread);
        let stream = match (self.spec.pattern, &self.zipf) {
            (Pattern::Zipfian | Pattern::Scrambled, Some(zipf)) => Stream::Zipf { rng, zipf: zipf.clone() },
            _ => Stream::Uniform { rng, n: span },
        };
        Client {
            first,
            alone: self.spec.contention == Contention::Low,
            updates: vec![0; span as usize],
            stream,
            chosen: vec![0; self.spec.tx_ops as usize],
            conflicts: 0,
        }
    }

    fn counted(&self, clients: &[Client], loose: bool) -> Counted {
        let mut updates = vec![0; self.spec.population() as usize];
        for client in clients {
            let own = updates.iter_mut().skip(client.first as usize).zip(&client.updates);
            own.for_each(|(all, n)| *all += n);
        }
        Counted { updates, loose }
    }
}

/// State of a thread.
struct Client {
    /// The first of its indexes.
    first: u64,
    /// True if no other thread writes them.
    alone: bool,
    /// Number added to the counter of each index, including the open transaction.
    updates: Vec<u32>,
    stream: Stream,
    /// The indexes of the open transaction, relative to `first`.
    chosen: Vec<u64>,
    conflicts: u64,
}

impl Client {
    /// Chooses the keys of the next transaction.
    fn draw(&mut self) {
        let span = self.updates.len() as u64;
        for at in &mut self.chosen {
            *at = self.stream.advance() % span;
        }
    }

    /// Runs the transaction until it is committed.
    fn commit(&mut self, lane: &mut Lane<'_>, tx: &mut dyn Transactions, level: Isolation) -> Result<()> {
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 1 {
                // The conflicting thread may be waiting for this processor.
                std::thread::yield_now();
            }
            tx.begin(level)?;
            self.update(lane, tx)?;
            if tx.commit()? == Ended::Committed {
                return Ok(());
            }
            self.conflicts += 1;
            self.chosen.iter().for_each(|at| self.updates[*at as usize] -= 1);
        }
        Err(format!("a transaction conflicted {ATTEMPTS_MAX} times"))
    }

    /// Adds one to the counter of each key.
    fn update(&mut self, lane: &mut Lane<'_>, tx: &mut dyn Transactions) -> Result<()> {
        for at in &self.chosen {
            let item = lane.aim(self.first + at);
            let updates = &mut self.updates[*at as usize];
            let due = lane.check.due();
            let want = self.alone.then_some(*updates);
            let (check, values, mut counter) = (&mut lane.check, lane.values, 0);
            let found = tx.get(&lane.key, &mut |value| {
                check.value(due, item.id, want, value);
                counter = values.version(value);
            })?;
            check.ensure(found, || "a key that was written is missing".to_owned());
            *updates += 1;
            values.fill(item, counter.wrapping_add(1), &mut lane.value);
            tx.put(&lane.key, &lane.value)?;
        }
        Ok(())
    }
}

impl Lane<'_> {
    /// Puts the next `n` keys in one transaction.
    pub(super) fn put_all(
        &mut self,
        tx: &mut dyn Transactions,
        level: Isolation,
        stream: &mut Stream,
        n: u64,
    ) -> Result<()> {
        tx.begin(level)?;
        for _ in 0..n {
            let item = self.aim(stream.advance());
            self.values.fill(item, 0, &mut self.value);
            tx.put(&self.key, &self.value)?;
        }
        match tx.commit()? {
            Ended::Committed => Ok(()),
            Ended::Conflict => Err("a conflict on keys that no other thread writes".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_counters_are_exact_or_bounded() {
        let counted = |loose| Counted { updates: vec![3, 0, 2], loose };
        let words = |loose, sum| counted(loose).check(sum).err().unwrap_or_default();
        assert_eq!((words(false, 5), words(true, 5), words(true, 2)), Default::default());
        assert!(words(false, 4).contains("1 are lost"));
        assert!(words(true, 1).contains("4 are lost"), "the last update of each key remains at every level");
        assert!([false, true].iter().all(|loose| words(*loose, 6).contains("from nowhere")));
        assert!(counted(false).versions().eq([3, 0, 2]) && counted(true).versions().eq([0; 3]));
    }

    #[test]
    fn conflict_rates_count_attempts() {
        assert_eq!(Transacted { committed: 3, conflicts: 1 }.conflict_rate(), 25.0);
        assert_eq!(Transacted::default().conflict_rate(), 0.0);
    }
}
