//! Keys: types with an encoding whose byte order is the order of the type.
//!
//! | type | encoding |
//! | --- | --- |
//! | `u8` to `u128`, `i8` to `i128` | big-endian, with the sign bit flipped if signed |
//! | `f32`, `f64` | big-endian, in the order of `total_cmp` |
//! | `bool` | one byte, 0 or 1 |
//! | `String`, `Vec<u8>` | at the end of a key: the bytes themselves; elsewhere: the bytes 0 and 1 as `01 01` and `01 02`, then 0 |
//! | `Option<T>` | 0 for `None`; 1 and the encoding of `T` for `Some` |
//! | `[T; N]`, tuples | one component after the other |

mod numbers;
mod text;
mod compound;
mod prefix;

pub use prefix::Prefix;

use crate::error::Malformed;

/// A type whose values can be keys: of a table, of an index, or as a component of a tuple. Encoded keys sort as the
/// type does, and no encoding inside a tuple is the beginning of another one.
///
/// Implement it for a type of your own by delegating to one of these types:
///
/// ```
/// use tidesdb_typed::{Key, Malformed, TableDefinition};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
/// struct UserId(u64);
///
/// impl Key for UserId {
///     type Ref<'a> = Self;
///     fn name() -> String { "UserId".into() }
///     fn encode(key: Self, last: bool, out: &mut Vec<u8>) { u64::encode(key.0, last, out) }
///     fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed> { u64::decode(bytes, last).map(Self) }
///     fn to_ref(&self) -> Self { *self }
/// }
///
/// const NAMES: TableDefinition<UserId, String> = TableDefinition::new("names");
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// let names = NAMES.open(&db)?;
/// names.put(UserId(7), "ann")?;
/// assert_eq!(names.get(UserId(7))?.as_deref(), Some("ann"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Key: Sized + 'static {
    /// The form in which callers pass a key: `&str` for `String`, `u64` for `u64`, a tuple of such forms for a tuple.
    type Ref<'a>: Copy;

    /// Returns the name of the type. It is stored with the table and compared when the table is opened.
    fn name() -> String;

    /// Appends the encoding of `key` to `out`. If `last`, nothing follows in the key, so the encoding may extend to its
    /// end.
    fn encode(key: Self::Ref<'_>, last: bool, out: &mut Vec<u8>);

    /// Decodes a key from the beginning of `bytes` and removes what it has read.
    ///
    /// # Errors
    /// [`Malformed`] if `encode` does not write such bytes.
    fn decode(bytes: &mut &[u8], last: bool) -> Result<Self, Malformed>;

    /// Borrows the key in the form in which callers pass it.
    fn to_ref(&self) -> Self::Ref<'_>;
}

/// Encodes a whole key. The database has no empty keys, so a key of a type with one value, such as `()`, is one byte, 0. An empty string
/// at the end of a key has no byte before which nothing sorts, so its encoding is empty, and writes refuse it:
/// [`Error::EmptyKey`](crate::Error::EmptyKey).
///
/// ```
/// use tidesdb_typed::{decode, encode};
/// let low = encode::<(String, i32)>(("a", -1));
/// let high = encode::<(String, i32)>(("a", 1));
/// assert!(low < high);
/// assert_eq!(decode::<(String, i32)>(&low)?, ("a".to_owned(), -1));
/// # Ok::<(), tidesdb_typed::Malformed>(())
/// ```
pub fn encode<K: Key>(key: K::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    K::encode(key, true, &mut out);
    if is_unit::<K>() && out.is_empty() {
        out.extend(UNIT);
    }
    out
}

/// Decodes a whole key; see [`encode`].
///
/// # Errors
/// [`Malformed`] if [`encode`] does not write such bytes, except for no bytes of a type with one value.
pub fn decode<K: Key>(bytes: &[u8]) -> Result<K, Malformed> {
    let whole = decode_all(bytes);
    if whole.is_err() && is_unit::<K>() && *bytes == UNIT { decode_all(&[]) } else { whole }
}

/// Decodes a key that takes all of `bytes`, which may be empty.
pub(crate) fn decode_all<K: Key>(mut bytes: &[u8]) -> Result<K, Malformed> {
    let key = K::decode(&mut bytes, true)?;
    if bytes.is_empty() { Ok(key) } else { Err(Malformed::new("bytes are left over")) }
}

/// The key of a type with one value, if its encoding is empty.
pub(crate) const UNIT: [u8; 1] = [0];

/// True if the type has one value, and so no order to keep.
const fn is_unit<K>() -> bool {
    size_of::<K>() == 0
}

/// Removes the first `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], Malformed> {
    let (first, rest) = bytes.split_first_chunk().ok_or(Malformed::new("it ends too early"))?;
    *bytes = rest;
    Ok(*first)
}
