//! Writes of a transaction that are taken back: to a savepoint, after reads and scans that showed them.

use std::sync::Arc;

use tidesdb::{Isolation, Transaction};

use super::ledger::may_expire;
use super::world::{Tracked, World};
use crate::rng::Rng;

/// Keys around the first write that are scanned before, meanwhile and afterwards.
const AROUND: u64 = 12;

/// A row with its key.
type Row = (Vec<u8>, Vec<u8>);

/// The begin of what is written in vain: key number `n` of the family `t`; `key` makes its bytes.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) t: &'a Arc<Tracked>,
    pub(super) n: u64,
    pub(super) key: fn(u64) -> Vec<u8>,
}

impl Place<'_> {
    /// Writes around the place and takes that back, perhaps in parts. The transaction then sees what it saw before.
    pub(super) fn write_in_vain(
        self,
        world: &World,
        rng: &mut Rng,
        tx: &mut Transaction,
    ) -> tidesdb::Result<()> {
        let seen = self.rows(tx)?;
        let before = tx.savepoint();
        for _ in 0..1 + rng.below(3) {
            let inner = tx.savepoint();
            for _ in 0..1 + rng.below(3) {
                self.write(rng, tx)?;
            }
            if rng.one_in(2) {
                self.rows(tx)?; // from now on its writes are sorted
            }
            match rng.below(3) {
                0 => tx.rollback_to(inner)?,
                1 => tx.release(inner)?,
                _ => {}
            }
        }
        tx.rollback_to(before)?;
        if rng.one_in(2) {
            tx.release(before)?;
        }
        // At the other levels others change what it sees.
        if matches!(tx.isolation(), Isolation::Snapshot | Isolation::Serializable) {
            self.compare(world, tx, seen)?;
        }
        Ok(())
    }

    /// Writes something to a key near the place, or deletes some keys there.
    fn write(self, rng: &mut Rng, tx: &mut Transaction) -> tidesdb::Result<()> {
        let (family, n) = (&self.t.family, self.n + rng.below(4));
        let key = (self.key)(n);
        match rng.below(6) {
            0 => tx.delete(family, key),
            1 => tx.delete_range(family, key..(self.key)(n + 1 + rng.below(4))),
            2 if family.current_options().merge_operator.is_some() => tx.merge(family, key, "in vain"),
            3 => tx.put(family, key, vec![b'v'; rng.below(2000) as usize]),
            _ => tx.put(family, key, "in vain"),
        }
    }

    /// The rows around the place that do not expire.
    fn rows(self, tx: &Transaction) -> tidesdb::Result<Vec<Row>> {
        let (low, high) = (self.n.saturating_sub(AROUND / 2), self.n + AROUND / 2);
        let rows = tx.range(&self.t.family, (self.key)(low)..(self.key)(high))?;
        let rows = rows.map(|row| row.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.filter(|row| !matches!(row, Ok((key, _)) if may_expire(key))).collect()
    }

    fn compare(self, world: &World, tx: &Transaction, seen: Vec<Row>) -> tidesdb::Result<()> {
        let now = self.rows(tx)?;
        let shown = |rows: &[Row], key: &[u8]| {
            rows.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone())
        };
        for (key, _) in seen.iter().chain(&now) {
            let (was, is) = (shown(&seen, key), shown(&now, key));
            let found = tx.get(&self.t.family, key)?.map(|value| value.to_vec());
            if was != is || was != found {
                let what = [was, is, found].map(|value| value.map_or(0, |value| 1 + value.len()));
                world.fail(format!(
                    "after a rollback to a savepoint a transaction sees other rows: key {} of family {}, lengths + 1 \
                     before it, in a scan, in a get: {what:?}",
                    String::from_utf8_lossy(key),
                    self.t.no
                ));
            }
        }
        Ok(())
    }
}
