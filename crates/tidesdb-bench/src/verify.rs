//! Checks of the answers of an engine.
//!
//! Every operation is checked for whether there is an answer; its bytes are checked for one of 64, or for all if the row requests
//! it. After the operations all rows are read in order, and the keys must be exactly those of the model: two [`Summary`] are
//! equal only if the sets are, except for a collision of 64-bit sums.

use crate::keys::Keys;
use crate::rng::mix;
use crate::values::Values;

/// One of this many answers is checked byte by byte.
pub const SAMPLE: u64 = 64;

/// A set of keys with versions, reduced to what a comparison needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of keys.
    pub count: u64,
    /// Sum of their versions.
    pub versions: u64,
    sum: u64,
}

impl Summary {
    /// Adds a key that is not in it.
    #[inline]
    pub fn add(&mut self, id: u64, version: u32) {
        self.add_apart(id, version, version);
    }

    /// Adds a key; `version` is compared and `counted` only added up.
    #[inline]
    pub fn add_apart(&mut self, id: u64, version: u32, counted: u32) {
        self.count += 1;
        self.versions += u64::from(counted);
        self.sum = self.sum.wrapping_add(mix(id.wrapping_add(mix(u64::from(version) + 1))));
    }

    /// Adds a set without common keys.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.versions += other.versions;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Compares `self`, which was found, with `wanted`.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn compare(&self, wanted: &Self) -> Result<(), String> {
        if self.count != wanted.count {
            return Err(format!("{} keys are in the database, it should be {}", self.count, wanted.count));
        }
        if self.sum != wanted.sum {
            return Err(format!(
                "the {} keys in the database, or their versions, are not those that were written",
                self.count
            ));
        }
        Ok(())
    }
}

/// The checks of one thread. The first fault is kept until [`Check::verdict`].
#[derive(Clone, Debug)]
pub struct Check {
    keys: Keys,
    values: Values,
    every: u64,
    left: u64,
    lenient: bool,
    fault: Option<String>,
    checked: u64,
}

impl Check {
    /// Creates a check of one of `every` answers in full; if `lenient`, faults are ignored.
    pub fn new(keys: Keys, values: Values, every: u64, lenient: bool) -> Self {
        Self { keys, values, every, left: 1, lenient, fault: None, checked: 0 }
    }

    /// Returns whether the next answer is to be checked in full.
    #[inline]
    pub fn due(&mut self) -> bool {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.every;
            return true;
        }
        false
    }

    /// Checks the answer `value` for the key `id`; it should be of version `want`, if that is known.
    #[inline]
    pub fn value(&mut self, due: bool, id: u64, want: Option<u32>, value: &[u8]) {
        if let Some(want) = want {
            let version = self.values.version(value);
            self.ensure(version == want, || format!("version {version} of a value, the newest is {want}"));
        }
        if due {
            self.checked += 1;
            if let Err(what) = self.values.check(&self.keys, id, value) {
                self.fail(|| what);
            }
        }
    }

    /// Checks a row of an ordered read and returns the identity of its key. `after` is the identity of the previous row.
    #[inline]
    pub fn row(&mut self, due: bool, after: Option<u64>, key: &[u8], value: &[u8]) -> u64 {
        let Some(id) = self.keys.read(key) else {
            self.fail(|| format!("a key that was never written: {:?}", String::from_utf8_lossy(key)));
            return 0;
        };
        self.ensure(after.is_none_or(|before| before < id), || "keys out of order".to_owned());
        self.value(due, id, None, value);
        id
    }

    /// Records a fault unless `right`.
    #[inline]
    pub fn ensure(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.fail(what);
        }
    }

    #[cold]
    fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.fault.is_none() && !self.lenient {
            self.fault = Some(what());
        }
    }

    /// Returns the result of all checks so far.
    ///
    /// # Errors
    /// The first fault.
    #[inline]
    pub fn verdict(&mut self) -> Result<(), String> {
        if self.fault.is_some() {
            return self.fault.take().map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Returns how many answers were compared byte by byte.
    pub fn checked(&self) -> u64 {
        self.checked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Pattern;
    use crate::values::Filling;

    fn check(every: u64, lenient: bool) -> Check {
        let keys = Keys::new(Pattern::Seq, 16, 100).unwrap();
        Check::new(keys, Values::new(20, Filling::Percent(0)).unwrap(), every, lenient)
    }

    #[test]
    fn the_first_of_each_sample_is_due() {
        let mut check = check(3, false);
        let due: Vec<bool> = (0..7).map(|_| check.due()).collect();
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }

    #[test]
    fn faults_are_kept_once_and_lenient_checks_keep_none() {
        let mut strict = check(1, false);
        strict.value(true, 1, None, b"wrong");
        strict.ensure(false, || "later".to_owned());
        assert!(strict.verdict().unwrap_err().contains("instead of 20"));
        assert_eq!((strict.verdict(), strict.checked()), (Ok(()), 1));
        let mut lenient = check(1, true);
        lenient.value(true, 1, None, b"wrong");
        assert_eq!((lenient.verdict(), lenient.checked()), (Ok(()), 1));
    }

    #[test]
    fn order_matters() {
        let mut check = check(64, false);
        assert_eq!(check.row(false, Some(4), b"000000000000005\0", b""), 5);
        assert_eq!(check.verdict(), Ok(()));
        check.row(false, Some(5), b"000000000000005\0", b"");
        assert!(check.verdict().unwrap_err().contains("order"));
        check.row(false, None, b"other", b"");
        assert!(check.verdict().unwrap_err().contains("never written"));
    }

    #[test]
    fn summaries_distinguish_sets() {
        let of = |items: &[(u64, u32)]| {
            let mut s = Summary::default();
            items.iter().for_each(|(id, version)| s.add(*id, *version));
            s
        };
        assert_eq!(of(&[(1, 0), (2, 5)]), of(&[(2, 5), (1, 0)]));
        assert!(of(&[(1, 0)]).compare(&of(&[(1, 0), (2, 0)])).unwrap_err().contains("it should be 2"));
        for other in [[(1, 5), (2, 0)], [(1, 1), (2, 5)], [(3, 0), (2, 5)]] {
            assert!(of(&[(1, 0), (2, 5)]).compare(&of(&other)).is_err());
        }
    }
}
