//! Which tables the merges of a family use while they run.
//!
//! Merges run concurrently if they share no table and write to different key ranges of a level. A merge is planned and claims
//! its tables under one lock. Merges requested by a user need the whole tree and run alone.

use std::collections::BTreeMap;

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

/// The running merges of one family.
#[derive(Debug, Default)]
pub struct Claims {
    running: Mutex<Running, { rank::CLAIMS }>,
    ended: Condvar,
    installing: Mutex<(), { rank::INSTALLING }>,
}

#[derive(Debug, Default)]
struct Running {
    /// By the order in which they began. One that runs alone has no claim.
    merges: BTreeMap<u64, Option<Claim>>,
    begun: u64,
    /// Merges that wait until they can run alone; no other begins.
    waiting: usize,
}

impl Running {
    fn add(&mut self, claim: Option<Claim>) -> u64 {
        self.begun += 1;
        self.merges.insert(self.begun, claim);
        self.begun
    }
}

impl Claims {
    /// Begins the merge that `plan` returns for the claims of all running merges. Returns `None` if there is none, or if a merge
    /// runs alone or is about to.
    pub fn begin<P>(&self, plan: impl FnOnce(&[Claim]) -> Option<(P, Claim)>) -> Option<(P, Claimed<'_>)> {
        let mut running = self.running.lock();
        if running.waiting > 0 || running.merges.values().any(Option::is_none) {
            return None;
        }
        let claims: Vec<Claim> = running.merges.values().flatten().cloned().collect();
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

    fn claim(id: u64) -> Claim {
        Claim { tables: vec![TableId(id)], level: 2, smallest: b"a".to_vec(), largest: b"b".to_vec() }
    }

    #[test]
    fn merges_see_the_claims_of_those_that_run() {
        let claims = Claims::default();
        let (_, first) = claims.begin(|seen| Some((assert!(seen.is_empty()), claim(1)))).unwrap();
        let tables = |seen: &[Claim]| seen.iter().map(|c| c.tables[0].0).collect::<Vec<_>>();
        let (seen, second) = claims.begin(|seen| Some((tables(seen), claim(2)))).unwrap();
        assert_eq!(seen, [1]);
        drop(first);
        let (seen, third) = claims.begin(|seen| Some((tables(seen), claim(3)))).unwrap();
        assert_eq!(seen, [2]);
        assert!(claims.begin(|_| None::<((), Claim)>).is_none() && !claims.are_none());
        drop((second, third));
        assert!(claims.are_none());
    }

    #[test]
    fn one_that_runs_alone_waits_for_the_others_and_keeps_them_out() {
        let claims = Claims::default();
        let ((), running) = claims.begin(|_| Some(((), claim(1)))).unwrap();
        std::thread::scope(|s| {
            let alone = s.spawn(|| drop(claims.begin_alone()));
            while claims.running.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(claims.begin(|_| Some(((), claim(2)))).is_none(), "one waits to run alone");
            drop(running);
            alone.join().unwrap();
        });
        let alone = claims.begin_alone();
        assert!(claims.begin(|_| Some(((), claim(2)))).is_none() && !claims.are_none());
        drop(alone);
        assert!(claims.begin(|_| Some(((), claim(2)))).is_some());
    }
}
