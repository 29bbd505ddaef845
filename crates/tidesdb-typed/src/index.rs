//! Definitions of secondary indexes: a name, the type of the keys, and the function that takes the keys from a value.

use std::fmt;
use std::marker::PhantomData;

use crate::key::Key;
use crate::value::Value;

/// Defines a secondary index of a table with values of type `V`; its keys have type `I`. List it in
/// [`TableDefinition::indexes`](crate::TableDefinition::indexes), and read through it with
/// [`Table::by`](crate::Table::by). Each write of the table changes the row and the index in one transaction.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{Error, IndexDefinition, Postcard, TableDefinition};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct User { mail: String, tags: Vec<String> }
///
/// const BY_MAIL: IndexDefinition<Postcard<User>, String> =
///     IndexDefinition::unique("mail", |user, keys| keys.add(&user.mail));
/// const BY_TAG: IndexDefinition<Postcard<User>, String> =
///     IndexDefinition::new("tag", |user, keys| user.tags.iter().for_each(|tag| keys.add(tag)));
/// const USERS: TableDefinition<u64, Postcard<User>> =
///     TableDefinition::new("users").indexes(&[&BY_MAIL, &BY_TAG]);
///
/// let users = USERS.open(&db)?;
/// let ann = User { mail: "ann@example.org".into(), tags: vec!["admin".into(), "staff".into()] };
/// users.put(1, &ann)?;
/// assert_eq!(users.by(&BY_MAIL).get("ann@example.org")?.map(|(id, _)| id), Some(1));
/// assert_eq!(users.by(&BY_TAG).all("admin")?.count(), 1);
/// assert!(matches!(users.put(2, &ann), Err(Error::Duplicate { index: "mail", .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IndexDefinition<V: Value, I: Key> {
    name: &'static str,
    unique: bool,
    keys: fn(V::Ref<'_>, &mut IndexKeys<I>),
}

impl<V: Value, I: Key> IndexDefinition<V, I> {
    /// Defines an index in which many rows may have the same key. `keys` adds the keys of a value: none, one or many.
    ///
    /// The entries are stored, so `keys` must return the same for the same value in every version of the program. To
    /// change the function, change the name too: the next open then builds the index again.
    pub const fn new(name: &'static str, keys: fn(V::Ref<'_>, &mut IndexKeys<I>)) -> Self {
        Self { name, unique: false, keys }
    }

    /// Defines an index in which each key belongs to at most one row. A write that would give it to a second row fails
    /// with [`Error::Duplicate`](crate::Error::Duplicate).
    pub const fn unique(name: &'static str, keys: fn(V::Ref<'_>, &mut IndexKeys<I>)) -> Self {
        Self { name, unique: true, keys }
    }
}

impl<V: Value, I: Key> fmt::Debug for IndexDefinition<V, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndexDefinition").field("name", &self.name).field("unique", &self.unique).finish()
    }
}

/// Takes the keys of one value; see [`IndexDefinition::new`].
#[derive(Debug)]
pub struct IndexKeys<I> {
    encoded: Vec<Vec<u8>>,
    kind: PhantomData<fn(I)>,
}

impl<I: Key> IndexKeys<I> {
    /// Adds a key.
    pub fn add(&mut self, key: I::Ref<'_>) {
        self.encoded.push(inner::<I>(key));
    }
}

/// Encodes a key that something may follow.
pub(crate) fn inner<I: Key>(key: I::Ref<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    I::encode(key, false, &mut out);
    out
}

/// An index of a table with values of type `V`, whatever its keys. Only [`IndexDefinition`] implements it.
pub trait Index<V: Value>: Sync + sealed::Index<V> {}

impl<V: Value, I: Key> Index<V> for IndexDefinition<V, I> {}

pub(crate) mod sealed {
    use super::{IndexDefinition, IndexKeys, Key, PhantomData, Value};

    pub trait Index<V: Value> {
        /// Its name.
        fn name(&self) -> &'static str;
        /// Whether a key belongs to one row only.
        fn is_unique(&self) -> bool;
        /// The type of its keys, as it is stored.
        fn describe(&self) -> String;
        /// Returns the encoded keys of `value`, sorted, each once.
        fn keys(&self, value: V::Ref<'_>) -> Vec<Vec<u8>>;
    }

    impl<V: Value, I: Key> Index<V> for IndexDefinition<V, I> {
        fn name(&self) -> &'static str {
            self.name
        }

        fn is_unique(&self) -> bool {
            self.unique
        }

        fn describe(&self) -> String {
            format!("{}{}", if self.unique { "unique " } else { "" }, I::name())
        }

        fn keys(&self, value: V::Ref<'_>) -> Vec<Vec<u8>> {
            let mut keys = IndexKeys { encoded: Vec::new(), kind: PhantomData };
            (self.keys)(value, &mut keys);
            keys.encoded.sort_unstable();
            keys.encoded.dedup();
            keys.encoded
        }
    }
}
