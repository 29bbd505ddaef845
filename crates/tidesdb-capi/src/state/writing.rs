//! Writes of the extended interface: single ones without a transaction, and batches.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::{
    Isolation, KeyBounds, SeqNo, SyncMode, TransactOptions, Transaction, WriteBatch, WriteOptions,
};

use super::family::{Family, stricter};
use super::{Database, FAMILIES, TRANSACTIONS};
use crate::abi::extended::{
    self, NEVER_EXPIRES, OP_DELETE, OP_DELETE_PREFIX, OP_DELETE_RANGE, OP_MERGE, OP_PUT, OP_SINGLE_DELETE,
    X_SYNC_DEFAULT, X_SYNC_FULL, X_SYNC_INTERVAL, X_SYNC_NONE,
};
use crate::callback;
use crate::failure::{Answer, Failure, invalid};
use crate::handle::Handle;

/// The options of a write, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    /// `None`: the sync mode of the family.
    pub(crate) sync: Option<SyncMode>,
    expiry: Expiry,
}

/// When a put row expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// The default of the family.
    Default,
    Never,
    After(Duration),
    At(SystemTime),
}

/// The last moment at which a row can expire, in UNIX milliseconds.
const EXPIRY_MAX_MS: u64 = (1 << 48) - 1;

impl Writing {
    /// No options.
    pub(crate) const DEFAULT: Self = Self { sync: None, expiry: Expiry::Default };

    /// Checks the options.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`.
    pub(crate) fn of(options: &extended::WriteOptions) -> Answer<Self> {
        let sync = match options.sync_mode {
            X_SYNC_DEFAULT => None,
            X_SYNC_NONE => Some(SyncMode::None),
            X_SYNC_FULL => Some(SyncMode::Full),
            X_SYNC_INTERVAL if options.sync_interval_us > 0 => {
                Some(SyncMode::Interval(Duration::from_micros(options.sync_interval_us)))
            }
            X_SYNC_INTERVAL => return Err(invalid!("TDB_X_SYNC_INTERVAL needs sync_interval_us above 0")),
            _ => return Err(invalid!("sync_mode is none of TDB_X_SYNC_")),
        };
        if options.flags & !NEVER_EXPIRES != 0 {
            return Err(invalid!("the flags of a write are unknown"));
        }
        let expiry = match (options.flags & NEVER_EXPIRES, options.ttl_ms, options.expires_at_ms) {
            (0, 0, 0) => Expiry::Default,
            (NEVER_EXPIRES, 0, 0) => Expiry::Never,
            (0, ttl, 0) => Expiry::After(Duration::from_millis(ttl.min(EXPIRY_MAX_MS))),
            (0, 0, at) => Expiry::At(UNIX_EPOCH + Duration::from_millis(at.min(EXPIRY_MAX_MS))),
            _ => {
                return Err(invalid!("a row has one expiry: ttl_ms, expires_at_ms or TDB_X_NEVER_EXPIRES"));
            }
        };
        Ok(Self { sync, expiry })
    }

    /// Fails if the options set an expiry, for a write that puts no row.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`.
    pub(crate) fn without_expiry(self) -> Answer<Self> {
        match self.expiry {
            Expiry::Default => Ok(self),
            _ => Err(invalid!("only a put has an expiry")),
        }
    }

    /// Fails if the options set a sync mode, for a write that is committed later.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`.
    pub(crate) fn without_sync(self) -> Answer<Self> {
        match self.sync {
            None => Ok(self),
            Some(_) => Err(invalid!("the sync mode is that of the commit: give it there")),
        }
    }

    /// Returns the moment at which a row expires that is put into `family` now.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a time that is too long.
    pub(crate) fn expiry(&self, family: &tidesdb::Family) -> Answer<Option<SystemTime>> {
        Ok(match self.expiry {
            Expiry::Default => family.default_expiry()?,
            Expiry::Never => None,
            Expiry::After(ttl) => Some(family.expiry_after(ttl)?),
            Expiry::At(at) => Some(at),
        })
    }

    /// Returns the sync mode of a commit to `family`.
    pub(super) fn sync_for(&self, family: &Family, database: &Database) -> SyncMode {
        self.sync.unwrap_or_else(|| stricter(database.sync(), family.sync()))
    }

    /// Returns the engine's options for a commit to `family`.
    fn options(&self, family: &Family, database: &Database) -> WriteOptions {
        WriteOptions::default().sync(self.sync_for(family, database))
    }

    /// Puts a row.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`, `ERR_MEMORY_LIMIT`; the engine's errors.
    #[inline]
    pub(crate) fn put(&self, cf: Handle, key: &[u8], value: &[u8]) -> Answer<SeqNo> {
        callback::not_in_order()?;
        let family = super::family(cf)?;
        let database = family.database()?;
        database.check_size(key, value)?;
        let options = self.options(&family, &database);
        if self.expiry == Expiry::Default {
            return Ok(family.engine().put_with(key, value, &options)?);
        }
        let mut batch = WriteBatch::new();
        batch.put_expiring(family.engine(), key, value, self.expiry(family.engine())?)?;
        Ok(database.engine()?.write_with(&mut batch, &options)?)
    }

    /// Runs a write of one operation that has no expiry.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`; the engine's errors.
    #[inline]
    pub(crate) fn one(
        &self,
        cf: Handle,
        write: impl FnOnce(&tidesdb::Family, &WriteOptions) -> tidesdb::Result<SeqNo>,
    ) -> Answer<SeqNo> {
        callback::not_in_order()?;
        self.without_expiry()?;
        let family = super::family(cf)?;
        let options = self.options(&family, &*family.database()?);
        Ok(write(family.engine(), &options)?)
    }

    /// Runs `body` in a transaction of its own, again if it conflicts, and commits it. `body` gets the expiry of a row that it puts. It is not
    /// generic, so that the loop is compiled once.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS`, `ERR_CONFLICT`; those of `body`, which then has no effect; the engine's errors.
    pub(crate) fn alone(
        &self,
        cf: Handle,
        body: &mut dyn FnMut(&mut Transaction, &tidesdb::Family, Option<SystemTime>) -> Answer,
    ) -> Answer {
        callback::not_in_order()?;
        let family = super::family(cf)?;
        let database = family.database()?;
        let expiry = self.expiry(family.engine())?;
        let options = TransactOptions::default()
            .isolation(Isolation::RepeatableRead)
            .write(self.options(&family, &database));
        database.engine()?.transact_with(&options, |txn| body(txn, family.engine(), expiry))
    }
}

/// A write of one operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
    SingleDelete(&'a [u8]),
    Merge(&'a [u8], &'a [u8]),
    /// Unbounded where an end is `None`.
    DeleteRange(Option<&'a [u8]>, Option<&'a [u8]>),
    DeletePrefix(&'a [u8]),
}

impl<'a> Op<'a> {
    /// Creates an operation of a list. A range without an end has an empty one.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for an unknown kind, an empty key, or a value where there is none.
    pub(crate) fn of(kind: u8, key: &'a [u8], value: &'a [u8]) -> Answer<Self> {
        let is_key = !key.is_empty() && key.len() <= tidesdb::KEY_BYTES_MAX;
        if !is_key && kind != OP_DELETE_RANGE {
            return Err(invalid!("a key is empty or longer than 64 KiB"));
        }
        if !value.is_empty() && matches!(kind, OP_DELETE | OP_SINGLE_DELETE | OP_DELETE_PREFIX) {
            return Err(invalid!("an operation that deletes keys has no value"));
        }
        let end = |end: &'a [u8]| if end.is_empty() { None } else { Some(end) };
        Ok(match kind {
            OP_PUT => Self::Put(key, value),
            OP_DELETE => Self::Delete(key),
            OP_SINGLE_DELETE => Self::SingleDelete(key),
            OP_MERGE => Self::Merge(key, value),
            OP_DELETE_RANGE => Self::DeleteRange(end(key), end(value)),
            OP_DELETE_PREFIX => Self::DeletePrefix(key),
            _ => return Err(invalid!("the kind of an operation is none of TDB_X_OP_")),
        })
    }

    /// Adds it to a transaction.
    ///
    /// # Errors
    /// The engine's errors.
    fn add_to(self, txn: &mut Transaction, family: &tidesdb::Family, how: &Writing) -> Answer {
        match self {
            Self::Put(key, value) => txn.put_expiring(family, key, value, how.expiry(family)?),
            Self::Delete(key) => txn.delete(family, key),
            Self::SingleDelete(key) => txn.single_delete(family, key),
            Self::Merge(key, operand) => txn.merge(family, key, operand),
            Self::DeleteRange(start, end) => txn.delete_range(family, bounds(start, end)),
            Self::DeletePrefix(prefix) => txn.delete_prefix(family, prefix),
        }?;
        Ok(())
    }
}

/// Adds an operation to a transaction.
///
/// # Errors
/// `ERR_INVALID_ARGS`, `ERR_BUSY`, `ERR_MEMORY_LIMIT`; the engine's errors.
pub(crate) fn add(txn: Handle, cf: Handle, op: Op<'_>, how: &Writing) -> Answer {
    callback::not_in_order()?;
    let mut lent = TRANSACTIONS.lend(txn)?;
    if let Op::Put(key, value) = op {
        lent.database().check_size(key, value)?;
    }
    lent.write(cf, |txn, family| op.add_to(txn, family, how))
}

/// Returns the range from `start` on to before `end`.
pub(crate) fn bounds(start: Option<&[u8]>, end: Option<&[u8]>) -> KeyBounds {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let start = start.map_or(Unbounded, |start| Included(start.to_vec()));
    (start, end.map_or(Unbounded, |end| Excluded(end.to_vec())))
}

/// Runs `add` on each operation of a list, up to the first failure, which gets the number of its operation.
///
/// # Errors
/// The first failure.
pub(super) fn each<'a>(
    ops: impl Iterator<Item = Answer<Op<'a>>>,
    mut add: impl FnMut(Op<'a>) -> Answer,
) -> Answer {
    for (at, op) in ops.enumerate() {
        op.and_then(&mut add).map_err(|failure| {
            Failure::text_of(failure.code(), format!("operation {at}: {}", failure.text()))
        })?;
    }
    Ok(())
}

/// Operations on any families of a database that are committed together.
pub(crate) struct Batch {
    engine: WriteBatch,
    database: Arc<Database>,
    /// The families that it writes; the most recent first.
    families: Vec<(Handle, Arc<Family>)>,
    /// Why a list of operations was added in part: the batch is not committed then.
    spoiled: Option<Failure>,
}

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new(database: &Arc<Database>) -> Self {
        Self {
            engine: WriteBatch::new(),
            database: Arc::clone(database),
            families: Vec::new(),
            spoiled: None,
        }
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` for a stale family or one of another database, `ERR_MEMORY_LIMIT`; the engine's errors.
    #[inline]
    pub(crate) fn add(&mut self, cf: Handle, op: Op<'_>, how: &Writing) -> Answer {
        self.meet(cf)?;
        let (batch, family) = (&mut self.engine, self.families[0].1.engine());
        match op {
            Op::Put(key, value) => {
                self.database.check_size(key, value)?;
                match how.expiry {
                    Expiry::Default => batch.put(family, key, value),
                    _ => batch.put_expiring(family, key, value, how.expiry(family)?),
                }
            }
            Op::Delete(key) => batch.delete(family, key),
            Op::SingleDelete(key) => batch.single_delete(family, key),
            Op::Merge(key, operand) => batch.merge(family, key, operand),
            Op::DeleteRange(start, end) => batch.delete_range(family, bounds(start, end)),
            Op::DeletePrefix(prefix) => batch.delete_prefix(family, prefix),
        }?;
        Ok(())
    }

    /// Adds a list of operations. After a failure the batch must be cleared.
    ///
    /// # Errors
    /// The first failure, with the number of its operation; as [`Batch::add`].
    pub(crate) fn add_all<'a>(
        &mut self,
        cf: Handle,
        ops: impl Iterator<Item = Answer<Op<'a>>>,
        how: &Writing,
    ) -> Answer {
        each(ops, |op| self.add(cf, op, how)).inspect_err(|failure| self.spoiled = Some(failure.clone()))
    }

    /// Moves a family to the front of `families`.
    #[inline]
    fn meet(&mut self, cf: Handle) -> Answer {
        match self.families.first() {
            Some((known, family)) if *known == cf && family.is_live() => Ok(()),
            _ => self.look_up(cf),
        }
    }

    #[cold]
    fn look_up(&mut self, cf: Handle) -> Answer {
        let family = FAMILIES.share(cf)?;
        if !Arc::ptr_eq(&family.database()?, &self.database) {
            return Err(invalid!("the family belongs to another database"));
        }
        match self.families.iter().position(|(known, _)| *known == cf) {
            Some(at) => self.families.swap(0, at),
            None => self.families.insert(0, (cf, family)),
        }
        Ok(())
    }

    /// Number of operations, and bytes of memory.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.engine.len(), self.engine.bytes())
    }

    /// Removes all operations; keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.engine.clear();
        self.families.clear();
        self.spoiled = None;
    }

    fn check(&self) -> Answer {
        callback::not_in_order()?;
        self.database.check_open()?;
        self.spoiled.clone().map_or(Ok(()), Err)
    }

    /// Returns the sync mode of the commit.
    fn sync(&self, how: &Writing) -> SyncMode {
        let kept = || {
            let modes = self.families.iter().map(|(_, family)| family.sync());
            modes.fold(self.database.sync(), stricter)
        };
        how.sync.unwrap_or_else(kept)
    }

    /// Commits all operations, or none. The batch is empty afterwards, unless this fails.
    ///
    /// # Errors
    /// The engine's errors.
    pub(crate) fn write(&mut self, how: &Writing) -> Answer<SeqNo> {
        self.check()?;
        let options = WriteOptions::default().sync(self.sync(how));
        let seq = self.database.engine()?.write_with(&mut self.engine, &options)?;
        self.families.clear();
        Ok(seq)
    }

    /// Takes all operations out, with the sync mode of the commit.
    ///
    /// # Errors
    /// `ERR_INVALID_DB`; why the batch is spoiled.
    pub(crate) fn take(&mut self, how: &Writing) -> Answer<(WriteBatch, SyncMode)> {
        self.check()?;
        let sync = self.sync(how);
        self.families.clear();
        Ok((std::mem::take(&mut self.engine), sync))
    }

    /// Returns the database.
    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }
}
