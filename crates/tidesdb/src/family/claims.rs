//! Which tables the merges of a family use while they run.
//!
//! Merges run concurrently if they share no table and write to different key ranges of a level. A merge is planned and claims
//! its tables under one lock. Merges requested by a user need the whole tree and run alone.
//!
//! Tables in which a merge met damage are quarantined: planned merges leave them out for a while, so merges of other tables go on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidesdb_sync::{Condvar, Mutex, MutexGuard, rank};

use crate::types::TableId;

/// What a running merge uses.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its inputs.
    pub tables: Vec<TableId>,
    /// Level of its outputs.
    pub level: u8,
    /// First key of its inputs.
    pub smallest: Vec<u8>,
    /// Last key of its inputs.
    pub largest: Vec<u8>,
}

impl Claim {
    fn quarantine(tables: Vec<TableId>) -> Self {
        Self { tables, level: 0, smallest: Vec::new(), largest: Vec::new() }
    }

    /// Returns true for the claim of damaged tables: no merge runs, and nothing is written.
    pub fn is_quarantine(&self) -> bool {
        self.level == 0
    }
}

/// The running merges of one family.
#[derive(Debug, Default)]
pub struct Claims {
    running: Mutex<Running, { rank::CLAIMS }>,
    ended: Condvar,
    installing: Mutex<(), { rank::INSTALLING }>,
    /// True while tables are quarantined.
    has_quarantined: AtomicBool,
}

/// The first pause after which a damaged table is merged again.
const QUARANTINE_MIN: Duration = Duration::from_secs(1);
/// The longest such pause.
const QUARANTINE_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, Default)]
struct Running {
    /// By the order in which they began. One that runs alone has no claim.
    merges: BTreeMap<u64, Option<Claim>>,
    begun: u64,
    /// Merges that wait until they can run alone; no other begins.
    waiting: usize,
    /// Damaged tables.
    quarantined: BTreeMap<TableId, Quarantine>,
}

/// A damaged table.
#[derive(Debug, Default)]
struct Quarantine {
    /// Number of merges that failed because of it.
    failures: u32,
    /// The time until which merges leave it out.
    until: Duration,
}

impl Running {
    fn add(&mut self, claim: Option<Claim>) -> u64 {
        self.begun += 1;
        self.merges.insert(self.begun, claim);
        self.begun
    }
}

impl Claims {
    /// Begins the merge that `plan` returns for the claims of all running merges and of the tables that are quarantined at `now`.
    /// Returns `None` if there is none, or if a merge runs alone or is about to.
    pub fn begin<P>(
        &self,
        now: Duration,
        plan: impl FnOnce(&[Claim]) -> Option<(P, Claim)>,
    ) -> Option<(P, Claimed<'_>)> {
        let mut running = self.running.lock();
        if running.waiting > 0 || running.merges.values().any(Option::is_none) {
            return None;
        }
        let mut claims: Vec<Claim> = running.merges.values().flatten().cloned().collect();
        let damaged = running.quarantined.iter().filter(|(_, table)| now < table.until).map(|(id, _)| *id);
        let tables: Vec<TableId> = damaged.collect();
        if !tables.is_empty() {
            claims.push(Claim::quarantine(tables));
        }
        let (plan, claim) = plan(&claims)?;
        let id = running.add(Some(claim));
        Some((plan, Claimed { of: self, id }))
    }

    /// Waits for all merges and begins one that runs alone.
    pub fn begin_alone(&self) -> Claimed<'_> {
        let mut running = self.running.lock();
        running.waiting += 1;
        while !running.merges.is_empty() {
            self.ended.wait(&mut running);
        }
        running.waiting -= 1;
        let id = running.add(None);
        Claimed { of: self, id }
    }

    /// Returns true if no merge runs and none is being planned.
    pub fn are_none(&self) -> bool {
        self.running.lock().merges.is_empty()
    }

    /// Quarantines damaged `tables` that failed a merge at `now`: each time twice as long.
    pub fn quarantine(&self, tables: &[TableId], now: Duration) {
        let mut running = self.running.lock();
        for id in tables {
            let table = running.quarantined.entry(*id).or_default();
            table.until = now + (QUARANTINE_MIN * (1 << table.failures.min(16))).min(QUARANTINE_MAX);
            table.failures += 1;
        }
        self.has_quarantined.store(!running.quarantined.is_empty(), Ordering::Relaxed);
    }

    /// Ends the quarantine of `tables`, which are no longer in use.
    pub fn forget(&self, tables: impl IntoIterator<Item = TableId>) {
        let mut running = self.running.lock();
        for id in tables {
            running.quarantined.remove(&id);
        }
        self.has_quarantined.store(!running.quarantined.is_empty(), Ordering::Relaxed);
    }

    /// Returns true if there are damaged tables.
    pub fn has_quarantined(&self) -> bool {
        self.has_quarantined.load(Ordering::Relaxed)
    }

    /// Lock held from reading the version until the edit that depends on it is installed.
    pub fn installing(&self) -> MutexGuard<'_, ()> {
        self.installing.lock()
    }
}

/// A merge that runs, until this is dropped.
#[derive(Debug)]
pub struct Claimed<'a> {
    of: &'a Claims,
    id: u64,
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.of.running.lock().merges.remove(&self.id);
        self.of.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(9);

    fn claim(id: u64) -> Claim {
        Claim { tables: vec![TableId(id)], level: 2, smallest: b"a".to_vec(), largest: b"b".to_vec() }
    }

    #[test]
    fn merges_see_the_claims_of_those_that_run() {
        let claims = Claims::default();
        let (_, first) = claims.begin(NOW, |seen| Some((assert!(seen.is_empty()), claim(1)))).unwrap();
        let tables = |seen: &[Claim]| seen.iter().map(|c| c.tables[0].0).collect::<Vec<_>>();
        let (seen, second) = claims.begin(NOW, |seen| Some((tables(seen), claim(2)))).unwrap();
        assert_eq!(seen, [1]);
        drop(first);
        let (seen, third) = claims.begin(NOW, |seen| Some((tables(seen), claim(3)))).unwrap();
        assert_eq!(seen, [2]);
        assert!(claims.begin(NOW, |_| None::<((), Claim)>).is_none() && !claims.are_none());
        drop((second, third));
        assert!(claims.are_none());
    }

    #[test]
    fn one_that_runs_alone_waits_for_the_others_and_keeps_them_out() {
        let claims = Claims::default();
        let ((), running) = claims.begin(NOW, |_| Some(((), claim(1)))).unwrap();
        std::thread::scope(|s| {
            let alone = s.spawn(|| drop(claims.begin_alone()));
            while claims.running.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(claims.begin(NOW, |_| Some(((), claim(2)))).is_none(), "one waits to run alone");
            drop(running);
            alone.join().unwrap();
        });
        let alone = claims.begin_alone();
        assert!(claims.begin(NOW, |_| Some(((), claim(2)))).is_none() && !claims.are_none());
        drop(alone);
        assert!(claims.begin(NOW, |_| Some(((), claim(2)))).is_some());
    }

    #[test]
    fn damaged_tables_are_left_out_for_ever_longer_pauses() {
        let claims = Claims::default();
        let left_out = |now: u64| {
            let mut tables = Vec::new();
            claims.begin(Duration::from_secs(now), |seen| {
                tables.extend(seen.iter().flat_map(|claim| claim.tables.clone()));
                None::<((), Claim)>
            });
            tables
        };
        claims.quarantine(&[TableId(1), TableId(2)], Duration::ZERO);
        assert_eq!((left_out(0).len(), left_out(1).len(), claims.has_quarantined()), (2, 0, true));
        claims.quarantine(&[TableId(2)], Duration::from_secs(1));
        assert_eq!((left_out(2), left_out(3)), (vec![TableId(2)], vec![]));
        claims.forget([TableId(1)]);
        assert!(claims.has_quarantined());
        claims.forget([TableId(2), TableId(3)]);
        assert!(!claims.has_quarantined());
    }
}
