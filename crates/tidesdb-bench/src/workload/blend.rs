//! Blends: all threads read, update, insert and scan at the same time, as in YCSB. Threads overwrite each other's keys,
//! so any complete value of the right key is a correct answer; inserted keys must be found.

use super::lane::{Lane, Limit};
use super::{Bench, Measured, Model};
use crate::engine::{Engine, Result, Session};
use crate::keys::Pattern;
use crate::rng::Rng;

const KINDS: [&str; 5] = ["GET", "UPDATE", "INSERT", "SCAN", "MODIFY"];

/// Random choices of one thread.
struct Choice<'a> {
    bench: &'a Bench<'a>,
    rng: Rng,
    /// Keys that existed at the start.
    loaded: u64,
    thread: u64,
    /// Keys that this thread inserted.
    inserted: u64,
}

impl Bench<'_> {
    pub(super) fn blended(&self, engine: &dyn Engine, limit: Limit) -> Result<Measured> {
        let loaded = self.spec.population();
        let b = self.spec.blend;
        let mut end = 0;
        let ends = [b.read, b.update, b.insert, b.scan, b.modify].map(|share| {
            end += u64::from(share);
            end
        });
        let done = self.parallel(engine, &KINDS, limit, |lane, session| {
            let mut choice = Choice {
                bench: self,
                rng: Rng::new(self.spec.seed, lane.thread),
                loaded,
                thread: lane.thread,
                inserted: 0,
            };
            while lane.more() {
                let dice = choice.rng.below(100);
                let kind = ends.iter().position(|end| dice < *end).unwrap_or(0);
                choice.act(kind, lane, session)?;
                lane.lap(kind, 1)?;
            }
            Ok(choice.inserted)
        })?;
        Ok(Measured { versions: false, ..Measured::of(done, Model::Inserted) })
    }
}

impl Choice<'_> {
    fn act(&mut self, kind: usize, lane: &mut Lane<'_>, session: &mut dyn Session) -> Result<()> {
        let version = lane.done as u32;
        match KINDS[kind] {
            "GET" => self.get(lane, session).map(drop),
            "UPDATE" => {
                lane.put(session, self.pick(), version)?;
                session.commit()
            }
            "INSERT" => {
                let index = self.own(self.inserted);
                self.inserted += 1;
                lane.put(session, index, version)?;
                session.commit()
            }
            "SCAN" => self.scan(lane, session),
            _ => {
                let index = self.get(lane, session)?;
                lane.put(session, index, version)?;
                session.commit()
            }
        }
    }

    fn get(&mut self, lane: &mut Lane<'_>, session: &mut dyn Session) -> Result<u64> {
        let index = self.pick();
        let found = lane.get(session, index, None)?;
        lane.check.ensure(found, || "a key that was written is missing".to_owned());
        Ok(index)
    }

    fn scan(&mut self, lane: &mut Lane<'_>, session: &mut dyn Session) -> Result<()> {
        let item = lane.aim(self.pick());
        let rows = 1 + self.rng.below(self.bench.spec.range);
        let due = lane.check.due();
        let (check, mut last) = (&mut lane.check, None);
        session.refresh()?;
        let found = session.range(&lane.key, rows, &mut |key, value| {
            if due || last.is_none() {
                let id = check.row(due, last, key, value);
                check.ensure(last.is_some() || id == item.id, || "a scan began at a wrong key".to_owned());
                last = Some(id);
            }
        })?;
        check.ensure((1..=rows).contains(&found), || format!("a scan of {rows} rows found {found}"));
        Ok(())
    }

    /// Returns the index of an existing key.
    fn pick(&mut self) -> u64 {
        let zipf = self.bench.zipf.as_deref();
        let popular = matches!(self.bench.spec.pattern, Pattern::Zipfian | Pattern::Scrambled);
        match zipf {
            Some(zipf) if self.bench.spec.blend.latest => {
                let age = zipf.draw(&mut self.rng) - 1;
                self.back(age)
            }
            Some(zipf) if popular => zipf.draw(&mut self.rng) - 1,
            _ => self.rng.below(self.loaded),
        }
    }

    /// Returns the index that was inserted `age` insertions ago, as seen by this thread.
    fn back(&self, age: u64) -> u64 {
        match self.inserted.checked_sub(age + 1) {
            Some(n) => self.own(n),
            None => self.loaded - 1 - (age - self.inserted).min(self.loaded - 1),
        }
    }

    /// Returns the index of this thread's `n`th new key.
    fn own(&self, n: u64) -> u64 {
        self.bench.inserted(self.thread, n)
    }
}
