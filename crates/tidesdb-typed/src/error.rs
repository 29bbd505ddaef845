//! Errors. Each names the table, and the index if there is one; none contains keys or values.

use std::borrow::Cow;
use std::fmt;

/// The result of a call on a table.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong with a table.
///
/// A body of [`Db::transact`](tidesdb::Db::transact) may fail with this error, or with one of your own that can be made of it and of
/// [`tidesdb::Error`]:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::TableDefinition;
/// const SEATS: TableDefinition<String, u32> = TableDefinition::new("seats");
///
/// #[derive(Debug, thiserror::Error)]
/// enum BookingError {
///     #[error("sold out")]
///     SoldOut,
///     #[error(transparent)]
///     Table(#[from] tidesdb_typed::Error),
///     #[error(transparent)]
///     Database(#[from] tidesdb::Error),
/// }
///
/// let seats = SEATS.open(&db)?;
/// let booked = db.transact(|tx| {
///     let seats = seats.within(tx);
///     let left = seats.get("whale watching")?.unwrap_or(0);
///     seats.put("whale watching", left.checked_sub(1).ok_or(BookingError::SoldOut)?)?;
///     Ok(left - 1)
/// });
/// assert!(matches!(booked, Err(BookingError::SoldOut)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The message names the table and the part of the row:
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use tidesdb_typed::{Error, TableDefinition};
/// const COUNTS: TableDefinition<String, u64> = TableDefinition::new("counts");
/// let counts = COUNTS.open(&db)?;
/// counts.family().put("apples", "many")?; // written without the table
/// let error = counts.get("apples").unwrap_err();
/// assert!(matches!(error, Error::Decode { table: "counts", .. }));
/// assert_eq!(error.to_string(), "table counts: a stored value is not of type u64: it ends too early");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] tidesdb::Error),
    /// Stored bytes are not what the table expects: another program wrote them, or the type has changed.
    #[error("table {table}: a stored {part} is not of type {kind}: {cause}")]
    Decode {
        /// The table.
        table: &'static str,
        /// Which part of the row: `key`, `value` or `index entry`.
        part: &'static str,
        /// The expected type.
        kind: String,
        /// What is wrong.
        cause: Malformed,
    },
    /// A value cannot be encoded. Nothing was written.
    #[error("table {table}: a value cannot be encoded as {kind}: {cause}")]
    Encode {
        /// The table.
        table: &'static str,
        /// The type.
        kind: String,
        /// What is wrong.
        cause: Malformed,
    },
    /// A key is encoded as no bytes: an empty string or byte string, or a tuple that ends with one and has nothing before it. The database
    /// has no empty keys, and no byte string sorts before all others. Reads find no such row. Nothing was written.
    #[error(
        "table {table}: an empty key cannot be stored; Option<{kind}> or a tuple as the key type has a place for it"
    )]
    EmptyKey {
        /// The table.
        table: &'static str,
        /// The type of the key.
        kind: String,
    },
    /// Another row has this key in a unique index. Nothing was written.
    #[error("table {table}: another row has the same key in the unique index {index}")]
    Duplicate {
        /// The table.
        table: &'static str,
        /// The index.
        index: &'static str,
    },
    /// The table was created with other types, or its family has a custom key order.
    #[error("table {table} was created as {stored}, but is opened as {wanted}")]
    Mismatch {
        /// The table.
        table: &'static str,
        /// What the database says.
        stored: String,
        /// What the definition says.
        wanted: String,
    },
    /// A family that the table or an index needs is not its own: another table, another index or another program made it. An index is the
    /// family `TABLE.INDEX`. Nothing was changed or deleted.
    #[error("{wanted} needs the family {family:?}, which {by}")]
    NameTaken {
        /// The family.
        family: String,
        /// The table or the index that needs it.
        wanted: String,
        /// Whose it is, as the end of a sentence.
        by: String,
    },
    /// The definition of the table does not list the index.
    #[error("table {table} has no index {index}: list it in TableDefinition::indexes")]
    NoIndex {
        /// The table.
        table: &'static str,
        /// The index.
        index: &'static str,
    },
    /// An index entry whose row does not exist, or has another index key now: another program changed the table without
    /// its indexes.
    #[error("table {table}: index {index} has an entry without its row")]
    MissingRow {
        /// The table.
        table: &'static str,
        /// The index.
        index: &'static str,
    },
    /// A row without its index entry; see [`Table::check_indexes`](crate::Table::check_indexes).
    #[error("table {table}: index {index} lacks the entry of a row")]
    MissingEntry {
        /// The table.
        table: &'static str,
        /// The index.
        index: &'static str,
    },
    /// The transaction's isolation level cannot keep indexes consistent. Nothing was written.
    #[error("table {table} has indexes: writing it needs isolation of at least RepeatableRead")]
    WeakIsolation {
        /// The table.
        table: &'static str,
    },
}

/// Says what is wrong with encoded bytes, or why a value cannot be encoded. Implementations of [`Key`](crate::Key) and
/// [`Value`](crate::Value) return it.
///
/// ```
/// use tidesdb_typed::Malformed;
/// assert_eq!(Malformed::new("not a colour").to_string(), "not a colour");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(Cow<'static, str>);

impl Malformed {
    /// Describes what is wrong, as the end of a sentence.
    pub fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}
