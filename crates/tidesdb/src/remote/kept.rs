//! Dead value logs that stay on disk for the object store: the log that it will get refers to them.
//!
//! Between two rounds of uploads the store gets the log, and the values that it refers to. A value log that no table refers to any more may
//! hold such values. While the store does not answer, there would be more and more of them. So they are kept like the segments of the log:
//! up to a number of bytes, and not on a full disk. If they are more, they all go. The store then does not get the log any further: the
//! next round uploads the tables instead, which need none of them.
//!
//! [`Kept::from`] is the number from which a commit may be one that the store still gets from the log; [`NONE`] if there is none: the
//! next upload is a round in any case.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_sync::Mutex;

use crate::types::{FamilyId, SeqNo};

/// No value log is kept.
const NONE: SeqNo = SeqNo::MAX;

/// Which dead value logs are kept.
#[derive(Debug)]
pub struct Kept {
    from: AtomicU64,
    /// Their bytes by family.
    bytes: Mutex<BTreeMap<FamilyId, u64>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { from: AtomicU64::new(NONE), bytes: Mutex::default() }
    }
}

impl Kept {
    /// Returns the number from which value logs are kept: those to which only earlier commits refer may go.
    pub fn from(&self) -> SeqNo {
        self.from.load(Ordering::SeqCst)
    }

    /// Called when a round begins, before its boundary is known: keeps what commits from `tail` on refer to.
    pub fn begin(&self, tail: SeqNo) {
        // Of what was kept before, nothing is: a family may have no value log left that would say so.
        self.bytes.lock().clear();
        self.from.store(tail, Ordering::SeqCst);
    }

    /// Returns true if every value log is there that commits since [`Kept::begin`] refer to.
    pub fn has_all(&self) -> bool {
        self.from() != NONE
    }

    /// Called when the store has the log up to `end`. Returns false if a value log is gone: then the store does not get the log further.
    pub fn advance(&self, end: SeqNo) -> bool {
        let next = |from: SeqNo| (from != NONE).then(|| from.max(end));
        self.from.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).is_ok()
    }

    /// Keeps none: the store will not get the log, or there is no room for them.
    pub fn give_up(&self) {
        self.from.store(NONE, Ordering::SeqCst);
    }

    /// Records that `bytes` are kept for `family`. Gives up if that is more than `max` together.
    pub fn set(&self, family: FamilyId, bytes: u64, max: u64) {
        let mut all = self.bytes.lock();
        match bytes {
            0 => all.remove(&family),
            _ => all.insert(family, bytes),
        };
        if all.values().sum::<u64>() > max {
            self.give_up();
        }
    }

    /// Called when `family` was dropped: nothing of it is kept.
    pub fn forget(&self, family: FamilyId) {
        self.bytes.lock().remove(&family);
    }

    /// Returns the bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes.lock().values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_kept_or_none() {
        let (kept, [a, b]) = (Kept::default(), [FamilyId(1), FamilyId(2)]);
        assert!(!kept.has_all() && !kept.advance(5), "nothing is kept before the first round");
        kept.begin(7);
        assert_eq!((kept.from(), kept.advance(5), kept.from()), (7, true, 7));
        assert_eq!((kept.advance(9), kept.from()), (true, 9));
        kept.set(a, 60, 100);
        kept.set(b, 40, 100);
        assert_eq!((kept.bytes(), kept.has_all()), (100, true));
        kept.set(b, 41, 100);
        assert_eq!((kept.has_all(), kept.advance(11), kept.from()), (false, false, NONE));
        kept.begin(12);
        assert_eq!(
            (kept.bytes(), kept.from()),
            (0, 12),
            "what a family kept before does not count for the others"
        );
        kept.set(b, 41, 100);
        kept.forget(b);
        kept.set(a, 100, 100);
        assert_eq!((kept.bytes(), kept.has_all()), (100, true), "a dropped family does not count");
    }
}
