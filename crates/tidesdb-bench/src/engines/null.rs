//! An engine that stores nothing: it counts, and answers reads from the generator. The remaining time is the cost of the
//! benchmark itself.

use crate::engine::{Config, Ended, Engine, Result, Session, Stats, Transactions};
use crate::keys::{Item, Keys};
use crate::spec::Isolation;
use crate::values::Values;

struct Null {
    keys: Keys,
    values: Values,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    Ok(Box::new(Null { keys: config.spec.keys()?, values: config.spec.values()? }))
}

impl Engine for Null {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let (key, value) = (self.keys.buffer(), self.values.buffer());
        Ok(Box::new(NullSession { null: self, key, value, pending: 0, committed: 0 }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn settings(&self) -> String {
        "none".to_owned()
    }

    fn keeps_data(&self) -> bool {
        false
    }
}

struct NullSession<'a> {
    null: &'a Null,
    key: Vec<u8>,
    value: Vec<u8>,
    pending: u64,
    committed: u64,
}

impl NullSession<'_> {
    /// Returns the first version of the value of `id`.
    fn answer(&mut self, id: u64) -> &[u8] {
        let item = Item { id, low: self.null.keys.lows(id)[0] };
        self.null.values.fill(item, 0, &mut self.value);
        &self.value
    }
}

impl Session for NullSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        std::hint::black_box((key, value));
        self.pending += 1;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        std::hint::black_box(key);
        self.pending += 1;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.committed += std::mem::take(&mut self.pending);
        std::hint::black_box(self.committed);
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let id = self.null.keys.read(key).ok_or("a key that the generator does not make")?;
        value(self.answer(id));
        Ok(true)
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        found(key);
        Ok(true)
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let first = self.null.keys.read(key).ok_or("a key that the generator does not make")?;
        for step in 0..limit {
            let id = first.saturating_add(step);
            self.answer(id);
            self.null.keys.write(id, &mut self.key);
            row(&self.key, &self.value);
        }
        Ok(limit)
    }

    fn iterate(&mut self, _row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        Ok(0)
    }

    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    fn transactions(&mut self) -> Option<&mut dyn Transactions> {
        Some(self)
    }
}

impl Transactions for NullSession<'_> {
    fn begin(&mut self, level: Isolation) -> Result<()> {
        std::hint::black_box(level);
        Ok(())
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Session::get(self, key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Session::put(self, key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        Session::delete(self, key)
    }

    fn commit(&mut self) -> Result<Ended> {
        Session::commit(self).map(|()| Ended::Committed)
    }

    fn rollback(&mut self) -> Result<()> {
        self.pending = 0;
        Ok(())
    }
}
