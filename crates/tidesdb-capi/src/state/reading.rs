//! Where a read of the extended interface looks: the newest commits, a transaction, or a snapshot.

use std::ffi::c_uint;
use std::sync::Arc;

use tidesdb::{Cursor, Explanation, RangeExplanation, ReadOptions, Slice, ValueReader};

use super::snapshot::{self, Shot};
use super::transaction::Tracking;
use super::{Database, Family, TRANSACTIONS, Used};
use crate::abi::extended::{self, KEYS_ONLY, UNTRACKED};
use crate::failure::{Answer, invalid};
use crate::handle::Handle;

/// The options of a read, checked.
pub(crate) struct Reading {
    from: From,
    pub(crate) keys_only: bool,
}

/// What a read sees.
enum From {
    Newest,
    Transaction(Handle, Tracking),
    Snapshot(Used<Shot>),
}

impl Reading {
    /// Checks the options of a function that takes the flags `takes`.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for other flags, a stale snapshot, or a transaction and a snapshot.
    pub(crate) fn of(options: &extended::ReadOptions, takes: c_uint) -> Answer<Self> {
        let others = options.flags & !takes;
        if others & !(KEYS_ONLY | UNTRACKED) != 0 {
            return Err(invalid!("the flags of a read are unknown"));
        }
        if others & KEYS_ONLY != 0 {
            return Err(invalid!(
                "this function does not take the flag TDB_X_KEYS_ONLY: it returns a value or explains a read"
            ));
        }
        if others != 0 {
            return Err(invalid!(
                "only tidesdb_x_get and tidesdb_x_contains take the flag TDB_X_UNTRACKED; read without it, or outside of the transaction"
            ));
        }
        let tracking = if options.flags & UNTRACKED == 0 { Tracking::Tracked } else { Tracking::Untracked };
        let from = match (Handle::of_word(options.txn), Handle::of_word(options.snapshot)) {
            (Handle::NULL, Handle::NULL) => From::Newest,
            (txn, Handle::NULL) => From::Transaction(txn, tracking),
            (Handle::NULL, shot) => From::Snapshot(snapshot::shot(shot)?),
            _ => return Err(invalid!("a read is of a transaction or of a snapshot, not of both")),
        };
        Ok(Self { from, keys_only: options.flags & KEYS_ONLY != 0 })
    }

    /// Runs `body` on what the read sees of a family.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for stale handles, `ERR_INVALID_DB` if a close has begun; those of `body`.
    #[inline]
    pub(crate) fn on<R>(&self, cf: Handle, body: impl FnOnce(View<'_>, Owner<'_>) -> Answer<R>) -> Answer<R> {
        match &self.from {
            From::Newest => {
                let family = super::family(cf)?;
                body(View::Newest(family.engine()), Owner::Of(&family))
            }
            From::Transaction(txn, tracking) => TRANSACTIONS.with(*txn, |txn| {
                let (engine, family, database) = txn.for_reading(cf)?;
                database.check_open()?;
                body(View::Transaction(engine, family, *tracking), Owner::Is(database))
            }),
            From::Snapshot(shot) => {
                let family = super::FAMILIES.share(cf)?;
                body(View::Snapshot(shot.engine(), family.engine()), Owner::Is(shot.database()))
            }
        }
    }
}

/// The database of a read. Most reads do not need it, so that of a family is looked up on request.
pub(crate) enum Owner<'v> {
    Of(&'v Family),
    Is(&'v Arc<Database>),
}

impl Owner<'_> {
    /// Returns the database.
    ///
    /// # Errors
    /// `ERR_INVALID_DB` if it is closed.
    pub(super) fn get(&self) -> Answer<Arc<Database>> {
        match self {
            Self::Of(family) => family.database(),
            Self::Is(database) => Ok(Arc::clone(database)),
        }
    }
}

/// What a read sees of a family.
pub(crate) enum View<'v> {
    Newest(&'v tidesdb::Family),
    Transaction(&'v tidesdb::Transaction, &'v tidesdb::Family, Tracking),
    Snapshot(&'v tidesdb::Snapshot, &'v tidesdb::Family),
}

/// The errors of all methods are the engine's.
impl<'v> View<'v> {
    /// Returns the engine's family.
    pub(crate) fn family(&self) -> &'v tidesdb::Family {
        match self {
            Self::Newest(family) | Self::Transaction(_, family, _) | Self::Snapshot(_, family) => family,
        }
    }

    /// Passes the value of a key to `read`; `None` if there is none.
    #[inline]
    pub(crate) fn get<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Answer<Option<R>> {
        Ok(match self {
            Self::Newest(family) => family.get_map(key, read),
            Self::Transaction(txn, family, Tracking::Tracked) => txn.get_map(family, key, read),
            Self::Transaction(txn, family, Tracking::Untracked) => txn.get_untracked_map(family, key, read),
            Self::Snapshot(shot, family) => shot.get_map(family, key, read),
        }?)
    }

    /// Returns whether a key exists.
    pub(crate) fn contains(&self, key: &[u8]) -> Answer<bool> {
        Ok(match self {
            Self::Newest(family) => family.contains(key),
            Self::Transaction(txn, family, Tracking::Tracked) => txn.contains(family, key),
            Self::Transaction(txn, family, Tracking::Untracked) => txn.contains_untracked(family, key),
            Self::Snapshot(shot, family) => shot.contains(family, key),
        }?)
    }

    /// Returns the values of many keys. A transaction tracks all of them.
    pub(crate) fn multi_get(&self, keys: &[&[u8]]) -> Answer<Vec<Option<Slice>>> {
        Ok(match self {
            Self::Newest(family) => family.multi_get(keys),
            Self::Transaction(txn, family, _) => txn.multi_get(family, keys),
            Self::Snapshot(shot, family) => shot.multi_get(family, keys),
        }?)
    }

    /// Returns which of many keys exist. A transaction tracks all of them.
    pub(crate) fn multi_contains(&self, keys: &[&[u8]]) -> Answer<Vec<bool>> {
        Ok(match self {
            Self::Newest(family) => family.multi_contains(keys),
            Self::Transaction(txn, family, _) => txn.multi_contains(family, keys),
            Self::Snapshot(shot, family) => shot.multi_contains(family, keys),
        }?)
    }

    /// Returns a cursor. A transaction tracks what it reads.
    pub(crate) fn cursor(&self, keys_only: bool) -> Answer<Cursor> {
        let options = ReadOptions::default().keys_only(keys_only);
        Ok(match self {
            Self::Newest(family) => family.cursor_with(&options),
            Self::Transaction(txn, family, _) => txn.cursor_with(family, &options),
            Self::Snapshot(shot, family) => shot.cursor_with(family, &options),
        }?)
    }

    /// Returns a reader of a value; `None` if there is none. A transaction tracks the key.
    pub(crate) fn value_reader(&self, key: &[u8]) -> Answer<Option<ValueReader>> {
        Ok(match self {
            Self::Newest(family) => family.value_reader(key),
            Self::Transaction(txn, family, _) => txn.value_reader(family, key),
            Self::Snapshot(shot, family) => shot.value_reader(family, key),
        }?)
    }

    /// Explains a look-up.
    pub(crate) fn explain(&self, key: &[u8]) -> Answer<Explanation> {
        Ok(match self {
            Self::Newest(family) => family.explain(key),
            Self::Snapshot(shot, family) => shot.explain(family, key),
            Self::Transaction(..) => return Err(NOT_IN_TRANSACTIONS),
        }?)
    }

    /// Explains a scan of at most `rows_max` rows.
    pub(crate) fn explain_range(
        &self,
        range: &tidesdb::KeyBounds,
        rows_max: usize,
    ) -> Answer<RangeExplanation> {
        Ok(match self {
            Self::Newest(family) => family.explain_range(range, rows_max),
            Self::Snapshot(shot, family) => shot.explain_range(family, range, rows_max),
            Self::Transaction(..) => return Err(NOT_IN_TRANSACTIONS),
        }?)
    }
}

const NOT_IN_TRANSACTIONS: crate::failure::Failure =
    invalid!("reads of a transaction cannot be explained: explain the newest commits or a snapshot");
