//! Merge operators: how the operands of a key become its value.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::VALUE_BYTES_MAX;
use crate::callback::contained;

/// Applies an operand to a value; see [`MergeOperator::custom`].
type MergeFn = dyn Fn(&mut Vec<u8>, &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// Checks an operand; see [`MergeOperator::check_operands`].
type CheckFn = dyn Fn(&[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync;

/// A named, associative function that combines a value with an operand. The name is stored with the family and checked
/// at each open. See `docs/concepts/merge-operators.md` in the repository.
#[derive(Clone)]
pub struct MergeOperator {
    name: Arc<str>,
    /// `None` if only the name is known.
    merge: Option<Arc<MergeFn>>,
    /// `None` if every operand is valid.
    check: Option<Arc<CheckFn>>,
    is_built_in: bool,
}

/// Names with this beginning are those of built-in operators.
const BUILT_IN: &str = "tidesdb.";
const ADD: &str = "tidesdb.add";
const MAX: &str = "tidesdb.max";
const MIN: &str = "tidesdb.min";
/// The separator follows.
const APPEND: &str = "tidesdb.append:";

impl MergeOperator {
    /// Adds eight-byte little-endian integers, signed or unsigned. A sum that overflows wraps around. An operand of another length is
    /// refused when it is written; with a value of another length, which was put, reads fail.
    pub fn add() -> Self {
        Self::built_in(ADD, |value, operand| {
            let wrong = || format!("a number of {} bytes and one of {}, not 8", value.len(), operand.len());
            let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| wrong());
            let sum = number(value)?.wrapping_add(number(operand)?);
            value.copy_from_slice(&sum.to_le_bytes());
            Ok(())
        })
        .check_operands(|operand| match operand.len() {
            8 => Ok(()),
            _ => Err("a number has 8 bytes".into()),
        })
    }

    /// Keeps the greatest value in byte order.
    pub fn max() -> Self {
        Self::built_in(MAX, |value, operand| {
            if operand > value.as_slice() {
                operand.clone_into(value);
            }
            Ok(())
        })
    }

    /// Keeps the least value in byte order.
    pub fn min() -> Self {
        Self::built_in(MIN, |value, operand| {
            if operand < value.as_slice() {
                operand.clone_into(value);
            }
            Ok(())
        })
    }

    /// Appends the operand after `separator`. The separator is part of the operator's name.
    pub fn append(separator: &str) -> Self {
        let between = separator.as_bytes().to_vec();
        Self::built_in(format!("{APPEND}{separator}"), move |value, operand| {
            value.extend_from_slice(&between);
            value.extend_from_slice(operand);
            Ok(())
        })
    }

    /// A user-defined operator with a user-defined name of 1 to 255 bytes. Names that begin with `tidesdb.` are reserved.
    ///
    /// `merge` replaces its first argument, a value or the combination of older operands, by the combination with its
    /// second argument, the next newer operand. It must be associative and depend on its arguments only: the engine
    /// combines neighbouring operands with each other before it has the value, in any grouping, always older before
    /// newer. The first operand of a key without a value is its value.
    ///
    /// If `merge` returns an error or panics, reads of the key fail with [`Error::Merge`](crate::Error::Merge) and merges of tables
    /// keep the value and all operands as they are.
    ///
    /// ```
    /// use tidesdb::MergeOperator;
    /// // Values are sets of flags.
    /// let union = MergeOperator::custom("flags", |value, operand| match (&mut value[..], operand) {
    ///     ([flags], [more]) => Ok(*flags |= more),
    ///     _ => Err("flags are one byte".into()),
    /// });
    /// assert_eq!(union.name(), "flags");
    /// ```
    pub fn custom(
        name: impl Into<Arc<str>>,
        merge: impl Fn(&mut Vec<u8>, &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), merge: Some(Arc::new(merge)), check: None, is_built_in: false }
    }

    /// Sets a check of each operand before it is written. If `check` returns an error or panics, the write fails with
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) and nothing is written. It runs in the thread that writes.
    ///
    /// Without a check, an operand that `merge` cannot combine is found when the key is read. Operands that are stored already
    /// are not checked.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// use tidesdb::{FamilyOptions, MergeOperator};
    /// let union = MergeOperator::custom("flags", |flags, more| Ok(flags[0] |= more[0])).check_operands(|operand| match operand {
    ///     [_] => Ok(()),
    ///     _ => Err("flags are one byte".into()),
    /// });
    /// let doors = db.create_family("doors", FamilyOptions::default().merge_operator(union))?;
    /// doors.merge("front", [1])?;
    /// assert!(doors.merge("front", "open").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn check_operands(
        mut self,
        check: impl Fn(&[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        self.check = Some(Arc::new(check));
        self
    }

    fn built_in(
        name: impl Into<Arc<str>>,
        merge: impl Fn(&mut Vec<u8>, &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    ) -> Self {
        Self { is_built_in: true, ..Self::custom(name, merge) }
    }

    /// The built-in operator of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            ADD => Some(Self::add()),
            MAX => Some(Self::max()),
            MIN => Some(Self::min()),
            _ => name.strip_prefix(APPEND).map(Self::append),
        }
    }

    /// The operator of a stored name: a built-in one, or unresolved until the caller's operator replaces it.
    pub(crate) fn of_stored_name(name: &str) -> Self {
        Self::by_name(name).unwrap_or_else(|| Self {
            name: name.into(),
            merge: None,
            check: None,
            is_built_in: false,
        })
    }

    /// The stored name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true for a custom operator with a reserved name: the next open would take it for a built-in one.
    pub(crate) fn takes_reserved_name(&self) -> bool {
        self.merge.is_some() && !self.is_built_in && self.name.starts_with(BUILT_IN)
    }

    /// Returns true if only the name of the operator is known.
    pub fn is_unresolved(&self) -> bool {
        self.merge.is_none()
    }

    /// Checks an operand that is to be written.
    ///
    /// # Errors
    /// Why it is not valid.
    pub(crate) fn check(&self, operand: &[u8]) -> Result<(), String> {
        let Some(check) = &self.check else { return Ok(()) };
        contained(|| check(operand).map_err(|e| e.to_string()))
            .unwrap_or_else(|| Err("its check panicked".into()))
    }

    /// Applies `operand` to `value`.
    ///
    /// # Errors
    /// Why it failed. `value` is then undefined.
    pub(crate) fn apply(&self, value: &mut Vec<u8>, operand: &[u8]) -> Result<(), String> {
        let Some(merge) = &self.merge else {
            return Err("it is not known here; register it with OpenOptions::merge_operator".into());
        };
        // A value that a panic leaves half done is discarded.
        match contained(|| merge(value, operand).map_err(|e| e.to_string())) {
            Some(Ok(())) if value.len() <= VALUE_BYTES_MAX => Ok(()),
            Some(Ok(())) => Err("the value would exceed 4 GiB".into()),
            Some(Err(e)) => Err(e),
            None => Err("it panicked".into()),
        }
    }
}

impl fmt::Debug for MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MergeOperator").field(&self.name()).finish()
    }
}

/// Operands of one key, collected from the newest to the oldest. The memory is reused.
#[derive(Debug, Default)]
pub struct Operands {
    bytes: Vec<u8>,
    /// End of each operand in `bytes`.
    ends: Vec<usize>,
}

impl Operands {
    /// Bytes of memory.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }

    /// Number of operands.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Removes all operands.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds an operand older than all before it.
    pub fn push(&mut self, operand: &[u8]) {
        self.bytes.extend_from_slice(operand);
        self.ends.push(self.bytes.len());
    }

    /// Bytes of all operands.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The operands, newest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let start = |i: usize| i.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.ends.iter().enumerate().map(move |(i, end)| &self.bytes[start(i)..*end])
    }

    /// Combines `base` with all operands, or the operands alone if there is no base. Without either, returns an empty
    /// value.
    ///
    /// # Errors
    /// Why the operator failed.
    pub fn fold(&self, operator: &MergeOperator, base: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let mut oldest_first = self.iter().rev();
        let mut value = base.or_else(|| oldest_first.next()).unwrap_or_default().to_vec();
        for operand in oldest_first {
            operator.apply(&mut value, operand)?;
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(
        operator: &MergeOperator,
        base: Option<&[u8]>,
        newest_first: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let mut operands = Operands::default();
        newest_first.iter().for_each(|operand| operands.push(operand));
        operands.fold(operator, base)
    }

    #[test]
    fn operands_apply_from_the_oldest_to_the_newest() {
        let append = MergeOperator::append(", ");
        assert_eq!(fold(&append, None, &[b"c", b"b", b"a"]).unwrap(), b"a, b, c");
        assert_eq!(fold(&append, Some(b"x"), &[b"b", b"a"]).unwrap(), b"x, a, b");
        assert_eq!(fold(&append, Some(b"x"), &[]).unwrap(), b"x");
    }

    #[test]
    fn built_in_operators_are_found_by_their_names() {
        for operator in
            [MergeOperator::add(), MergeOperator::max(), MergeOperator::min(), MergeOperator::append("\n")]
        {
            assert_eq!(MergeOperator::by_name(operator.name()).unwrap().name(), operator.name());
        }
        assert!(MergeOperator::by_name("mine").is_none());
        assert!(MergeOperator::of_stored_name("mine").is_unresolved());
    }

    #[test]
    fn add_wraps_around_and_refuses_other_lengths() {
        let n = |n: i64| n.to_le_bytes();
        let sum = fold(&MergeOperator::add(), Some(&n(i64::MAX)), &[&n(-5), &n(2)]).unwrap();
        assert_eq!(sum, n(i64::MAX - 3));
        assert!(fold(&MergeOperator::add(), Some(b"7"), &[&n(1)]).is_err());
        assert!(fold(&MergeOperator::add(), Some(&n(1)), &[b"7"]).is_err());
    }

    #[test]
    fn only_operators_of_numbers_check_operands() {
        let checks = |operator: MergeOperator, len| operator.check(&vec![0; len]).is_ok();
        for len in [0, 7, 8, 9] {
            assert_eq!(checks(MergeOperator::add(), len), len == 8);
            assert_eq!(checks(MergeOperator::by_name("tidesdb.add").unwrap(), len), len == 8);
            assert!(checks(MergeOperator::max(), len) && checks(MergeOperator::append(""), len));
        }
    }

    #[test]
    fn max_and_min_compare_bytes() {
        assert_eq!(fold(&MergeOperator::max(), Some(b"m"), &[b"b", b"z", b"k"]).unwrap(), b"z");
        assert_eq!(fold(&MergeOperator::min(), Some(b"m"), &[b"b", b"z", b"k"]).unwrap(), b"b");
    }

    #[test]
    fn a_panic_of_an_operator_is_an_error() {
        let broken = MergeOperator::custom("broken", |_, _| panic!("planted"));
        assert_eq!(fold(&broken, None, &[b"b", b"a"]).unwrap_err(), "it panicked");
        assert_eq!(fold(&broken, None, &[b"a"]).unwrap(), b"a", "one operand is not combined");
    }
}
