//! Parts of the sums that callers and jobs hold until they are dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{HELD, Memory, Use};
use crate::{Error, Result};

/// Permission for a flush or merge to have long values in memory, see [`Memory::take_long`]. Its owner must not wait for other flushes or
/// merges.
#[derive(Debug)]
pub struct LongValue(Arc<Memory>);

impl LongValue {
    /// The caller has taken `long` of `memory`.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self(Arc::clone(memory))
    }
}

impl Drop for LongValue {
    fn drop(&mut self) {
        *self.0.long.lock() = false;
        self.0.long_ended.notify_one();
    }
}

/// Memory that is kept for a commit until this is dropped, see [`Memory::reserve`].
#[derive(Debug)]
pub struct Reservation {
    _charge: Charge,
    /// Set if the limit has no room for it.
    exceeds: Option<Arc<Memory>>,
}

impl Reservation {
    pub(super) fn new(charge: Charge, exceeds: Option<Arc<Memory>>) -> Self {
        Self { _charge: charge, exceeds }
    }

    /// Returns whether the limit had no room for it: others get none of this kind.
    pub fn exceeds(&self) -> bool {
        self.exceeds.is_some()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(memory) = &self.exceeds {
            memory.whole().exceeded.store(false, Ordering::Relaxed);
        }
    }
}

/// Bytes that are charged to the sum of one use until this is dropped.
#[derive(Debug)]
pub struct Charge {
    memory: Option<Arc<Memory>>,
    of: Use,
    bytes: u64,
}

impl Charge {
    /// `bytes` are in the sums of `memory` already.
    pub(super) fn taken(memory: &Arc<Memory>, of: Use, bytes: u64) -> Self {
        Self { memory: Some(Arc::clone(memory)), of, bytes }
    }

    /// Nothing is charged yet.
    pub const fn new(of: Use) -> Self {
        Self { memory: None, of, bytes: 0 }
    }

    /// The bytes that are charged.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the charge to `bytes`: they are in use already, or the caller cannot be refused.
    pub fn set(&mut self, memory: &Arc<Memory>, bytes: u64) {
        let is_other = self.memory.as_ref().is_some_and(|own| !Arc::ptr_eq(own, memory));
        if is_other {
            self.release(); // a batch that was used for another database
        }
        if bytes != self.bytes {
            self.memory
                .get_or_insert_with(|| Arc::clone(memory))
                .add(self.of, bytes.wrapping_sub(self.bytes));
            self.bytes = bytes;
        }
    }

    /// Changes the charge to `bytes`, which is more, before they are used. Returns the old one.
    ///
    /// # Errors
    /// If callers hold their share of the memory: `MemoryLimit` for a batch or transaction, `Busy` for a cursor or a value. The charge is as
    /// before. The first cursor or value that exceeds the share still gets what it asks for, because a value must be read whole.
    pub fn grow(&mut self, memory: &Arc<Memory>, bytes: u64) -> Result<u64> {
        self.grow_beside(memory, bytes, 0)
    }

    /// As [`Charge::grow`], if there is also room for `bytes` again and `later` beside all batches, which are not charged now: what the rows
    /// take in memtables.
    ///
    /// # Errors
    /// Those of [`Charge::grow`].
    pub fn grow_beside(&mut self, memory: &Arc<Memory>, bytes: u64, later: u64) -> Result<u64> {
        let before = self.bytes;
        let others = memory.whole().used_for(self.of).saturating_sub(before);
        match self.of {
            Use::Cursors if others >= memory.cursors_max() => return Err(Error::Busy { cause: HELD }),
            Use::Transactions => {
                let (max, inserted_max) = (memory.transactions_max(), memory.inserted_max());
                let again = bytes.saturating_add(later);
                if others.saturating_add(bytes) > max {
                    let what = format!(
                        "this batch or transaction would take {bytes} bytes, and others take {others}, of {max} that memory_limit allows for \
                         them; use smaller batches, and put_stream for a long value"
                    );
                    return Err(Error::MemoryLimit { what: what.into() });
                }
                if again > inserted_max {
                    let what = format!(
                        "the operations of this batch or transaction would take {bytes} bytes, and {again} more in memtables, of {inserted_max} that memory_limit allows for that; use smaller batches"
                    );
                    return Err(Error::MemoryLimit { what: what.into() });
                }
            }
            _ => {}
        }
        self.set(memory, bytes);
        Ok(before)
    }

    /// Charges nothing any more.
    pub fn release(&mut self) {
        if let Some(memory) = self.memory.take() {
            memory.add(self.of, self.bytes.wrapping_neg());
            self.bytes = 0;
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.release();
    }
}
