//! The order of a family's keys.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::words::compare_bytes;

/// Compares two keys; must be a total order and never change for a name.
pub type KeyCompare = dyn Fn(&[u8], &[u8]) -> Ordering + Send + Sync;

/// A named key order. The name is stored with the family and checked at each open.
#[derive(Clone)]
pub struct Comparator(Repr);

#[derive(Clone)]
enum Repr {
    Bytewise,
    ReverseBytewise,
    Custom {
        name: Arc<str>,
        compare: Arc<KeyCompare>,
    },
    /// Only the name is known; compares in byte order, for tools that inspect files.
    Unresolved {
        name: Arc<str>,
    },
}

/// Where the keys with a common prefix lie in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixLayout {
    /// Next to each other, the shortest first.
    Ascending,
    /// Next to each other, the shortest last.
    Descending,
    /// Anywhere.
    Anywhere,
}

impl Comparator {
    /// Plain byte order: the default and the fastest.
    pub fn bytewise() -> Self {
        Self(Repr::Bytewise)
    }

    /// Reversed byte order.
    pub fn reverse_bytewise() -> Self {
        Self(Repr::ReverseBytewise)
    }

    /// Byte order after mapping ASCII letters to lower case; keys that differ only in case are the same key.
    pub fn case_insensitive() -> Self {
        Self::custom("case-insensitive", |a, b| {
            a.iter().map(u8::to_ascii_lowercase).cmp(b.iter().map(u8::to_ascii_lowercase))
        })
    }

    /// Eight-byte little-endian unsigned numbers; other lengths sort bytewise after them.
    pub fn u64_le() -> Self {
        Self::custom("u64", |a, b| number_order(a, b, u64::from_le_bytes))
    }

    /// Eight-byte little-endian signed numbers; other lengths sort bytewise after them.
    pub fn i64_le() -> Self {
        Self::custom("i64", |a, b| number_order(a, b, i64::from_le_bytes))
    }

    /// Byte order of the bytes before the first zero byte of each key, as C compares strings. Keys that differ only
    /// after it are the same key. Its stored name is `lexicographic`, that of libtidesdb.
    pub fn c_string() -> Self {
        Self::custom("lexicographic", |a, b| until_zero(a).cmp(until_zero(b)))
    }

    /// A user-defined order with a user-defined name. It must not be the name of a built-in order ([`Comparator::by_name`]): the next open
    /// would use that one.
    ///
    /// If `compare` panics in a commit, the commit fails: with `InvalidArgument` and no effect, or with `CommitUnknown` once it has its
    /// place in the log, and then the database refuses writes. A panic in a read reaches its caller.
    pub fn custom(
        name: impl Into<Arc<str>>,
        compare: impl Fn(&[u8], &[u8]) -> Ordering + Send + Sync + 'static,
    ) -> Self {
        Self(Repr::Custom { name: name.into(), compare: Arc::new(compare) })
    }

    /// The built-in order of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        let built_in = [
            Self::bytewise,
            Self::reverse_bytewise,
            Self::case_insensitive,
            Self::u64_le,
            Self::i64_le,
            Self::c_string,
        ];
        built_in.into_iter().map(|order| order()).find(|order| order.name() == name)
    }

    /// The order of a stored name: a built-in one, or unresolved until the caller's order replaces it.
    pub(crate) fn of_stored_name(name: &str) -> Self {
        Self::by_name(name).unwrap_or_else(|| Self(Repr::Unresolved { name: name.into() }))
    }

    /// Returns true if only the name of the order is known.
    pub(crate) fn is_unresolved(&self) -> bool {
        matches!(self.0, Repr::Unresolved { .. })
    }

    /// The stored name.
    pub fn name(&self) -> &str {
        match &self.0 {
            Repr::Bytewise => "bytewise",
            Repr::ReverseBytewise => "reverse-bytewise",
            Repr::Custom { name, .. } | Repr::Unresolved { name } => name,
        }
    }

    /// Returns true for plain byte order, which the fast paths need.
    #[inline]
    pub fn is_bytewise(&self) -> bool {
        matches!(self.0, Repr::Bytewise)
    }

    /// Where the keys with a common prefix lie.
    #[doc(hidden)]
    pub fn prefix_layout(&self) -> PrefixLayout {
        match &self.0 {
            Repr::Bytewise => PrefixLayout::Ascending,
            Repr::ReverseBytewise => PrefixLayout::Descending,
            Repr::Custom { .. } | Repr::Unresolved { .. } => PrefixLayout::Anywhere,
        }
    }

    /// Orders two keys.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match &self.0 {
            Repr::Bytewise | Repr::Unresolved { .. } => compare_bytes(a, b),
            Repr::ReverseBytewise => compare_bytes(b, a),
            Repr::Custom { compare, .. } => compare(a, b),
        }
    }

    /// The comparing function, if this is not plain byte order.
    pub(crate) fn custom_compare(&self) -> Option<Arc<KeyCompare>> {
        match &self.0 {
            Repr::Bytewise | Repr::Unresolved { .. } => None,
            Repr::ReverseBytewise => Some(Arc::new(|a: &[u8], b: &[u8]| b.cmp(a))),
            Repr::Custom { compare, .. } => Some(Arc::clone(compare)),
        }
    }
}

impl fmt::Debug for Comparator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Comparator").field(&self.name()).finish()
    }
}

fn until_zero(key: &[u8]) -> &[u8] {
    key.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn number_order<N: Ord>(a: &[u8], b: &[u8], decode: impl Fn([u8; 8]) -> N) -> Ordering {
    match (<[u8; 8]>::try_from(a), <[u8; 8]>::try_from(b)) {
        (Ok(a), Ok(b)) => decode(a).cmp(&decode(b)),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}
