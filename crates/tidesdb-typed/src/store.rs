//! Where a table reads and writes: the database, a snapshot, or a transaction.

use std::cell::RefCell;
use std::ops::Bound;
use std::time::SystemTime;

use tidesdb::{Cursor, Db, Family, Iter, ReadOptions, Savepoint, Slice, Snapshot, Transaction};

/// A range of encoded keys.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// A transaction that a table works in; see [`Table::within`](crate::Table::within).
#[derive(Debug)]
pub struct Within<'t>(pub(crate) RefCell<&'t mut Transaction>);

/// What a table can read from: [`Db`], [`Snapshot`], or a transaction.
pub trait Read: sealed::Read {}

/// What a table can write to: [`Db`], or a transaction.
pub trait Write: Read + sealed::Write {}

impl Read for Db {}
impl Write for Db {}
impl Read for Snapshot {}
impl Read for Within<'_> {}
impl Write for Within<'_> {}
impl<S: Read> Read for &S {}

/// Undoes what was written to a transaction since it was made, unless it is kept.
struct Undo<'t> {
    savepoint: Savepoint,
    tx: &'t mut Transaction,
}

impl Undo<'_> {
    fn keep(&mut self) {
        let _ = self.tx.release(self.savepoint); // it exists, so this cannot fail
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        // After a release there is nothing to roll back to.
        if self.tx.rollback_to(self.savepoint).is_ok() {
            let _ = self.tx.release(self.savepoint);
        }
    }
}

pub(crate) mod sealed {
    use super::*;

    pub trait Read {
        /// A view at one read timestamp, for reads that belong together.
        type View<'a>: super::Read
        where
            Self: 'a;
        fn view(&self) -> Self::View<'_>;
        fn get(&self, family: &Family, key: &[u8]) -> tidesdb::Result<Option<Slice>>;
        fn multi_get(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<Option<Slice>>>;
        fn contains(&self, family: &Family, key: &[u8]) -> tidesdb::Result<bool>;
        fn multi_contains(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<bool>>;
        fn range(&self, family: &Family, range: Bounds) -> tidesdb::Result<Iter>;
        fn prefix(&self, family: &Family, prefix: &[u8]) -> tidesdb::Result<Iter>;
        fn cursor(&self, family: &Family, options: &ReadOptions) -> tidesdb::Result<Cursor>;
    }

    pub trait Write {
        fn put(
            &self,
            family: &Family,
            key: &[u8],
            value: &[u8],
            expiry: Option<SystemTime>,
        ) -> tidesdb::Result<()>;
        fn delete(&self, family: &Family, key: &[u8]) -> tidesdb::Result<()>;
        /// Runs `body` in the transaction, or in one of its own, which it may repeat. If it fails or panics, the transaction is as before.
        fn transact<R>(&self, body: impl FnMut(&mut Transaction) -> crate::Result<R>) -> crate::Result<R>;
    }

    impl Read for Db {
        type View<'a> = Snapshot;

        fn view(&self) -> Snapshot {
            self.snapshot()
        }

        fn get(&self, family: &Family, key: &[u8]) -> tidesdb::Result<Option<Slice>> {
            family.get(key)
        }

        fn multi_get(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<Option<Slice>>> {
            family.multi_get(keys)
        }

        fn contains(&self, family: &Family, key: &[u8]) -> tidesdb::Result<bool> {
            family.contains(key)
        }

        fn multi_contains(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<bool>> {
            family.multi_contains(keys)
        }

        fn range(&self, family: &Family, range: Bounds) -> tidesdb::Result<Iter> {
            family.range(range)
        }

        fn prefix(&self, family: &Family, prefix: &[u8]) -> tidesdb::Result<Iter> {
            family.prefix(prefix)
        }

        fn cursor(&self, family: &Family, options: &ReadOptions) -> tidesdb::Result<Cursor> {
            family.cursor_with(options)
        }
    }

    impl Write for Db {
        fn put(
            &self,
            family: &Family,
            key: &[u8],
            value: &[u8],
            expiry: Option<SystemTime>,
        ) -> tidesdb::Result<()> {
            family.put_expiring(key, value, expiry).map(drop)
        }

        fn delete(&self, family: &Family, key: &[u8]) -> tidesdb::Result<()> {
            family.delete(key).map(drop)
        }

        fn transact<R>(&self, body: impl FnMut(&mut Transaction) -> crate::Result<R>) -> crate::Result<R> {
            Db::transact(self, body)
        }
    }

    impl Read for Snapshot {
        type View<'a> = Snapshot;

        fn view(&self) -> Snapshot {
            self.clone()
        }

        fn get(&self, family: &Family, key: &[u8]) -> tidesdb::Result<Option<Slice>> {
            Snapshot::get(self, family, key)
        }

        fn multi_get(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<Option<Slice>>> {
            Snapshot::multi_get(self, family, keys)
        }

        fn contains(&self, family: &Family, key: &[u8]) -> tidesdb::Result<bool> {
            Snapshot::contains(self, family, key)
        }

        fn multi_contains(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<bool>> {
            Snapshot::multi_contains(self, family, keys)
        }

        fn range(&self, family: &Family, range: Bounds) -> tidesdb::Result<Iter> {
            Snapshot::range(self, family, range)
        }

        fn prefix(&self, family: &Family, prefix: &[u8]) -> tidesdb::Result<Iter> {
            Snapshot::prefix(self, family, prefix)
        }

        fn cursor(&self, family: &Family, options: &ReadOptions) -> tidesdb::Result<Cursor> {
            self.cursor_with(family, options)
        }
    }

    impl<'t> Read for Within<'t> {
        type View<'a>
            = &'a Within<'t>
        where
            Self: 'a;

        fn view(&self) -> &Self {
            self
        }

        fn get(&self, family: &Family, key: &[u8]) -> tidesdb::Result<Option<Slice>> {
            self.0.borrow().get(family, key)
        }

        fn multi_get(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<Option<Slice>>> {
            self.0.borrow().multi_get(family, keys)
        }

        fn contains(&self, family: &Family, key: &[u8]) -> tidesdb::Result<bool> {
            self.0.borrow().contains(family, key)
        }

        fn multi_contains(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<bool>> {
            self.0.borrow().multi_contains(family, keys)
        }

        fn range(&self, family: &Family, range: Bounds) -> tidesdb::Result<Iter> {
            self.0.borrow().range(family, range)
        }

        fn prefix(&self, family: &Family, prefix: &[u8]) -> tidesdb::Result<Iter> {
            self.0.borrow().prefix(family, prefix)
        }

        fn cursor(&self, family: &Family, options: &ReadOptions) -> tidesdb::Result<Cursor> {
            self.0.borrow().cursor_with(family, options)
        }
    }

    impl Write for Within<'_> {
        fn put(
            &self,
            family: &Family,
            key: &[u8],
            value: &[u8],
            expiry: Option<SystemTime>,
        ) -> tidesdb::Result<()> {
            self.0.borrow_mut().put_expiring(family, key, value, expiry)
        }

        fn delete(&self, family: &Family, key: &[u8]) -> tidesdb::Result<()> {
            self.0.borrow_mut().delete(family, key)
        }

        fn transact<R>(
            &self,
            mut body: impl FnMut(&mut Transaction) -> crate::Result<R>,
        ) -> crate::Result<R> {
            let mut tx = self.0.borrow_mut();
            let savepoint = tx.savepoint();
            tx.rollback_to(savepoint)?; // without memory for the savepoint nothing is written
            let mut writes = Undo { savepoint, tx: &mut tx };
            let done = body(writes.tx)?;
            writes.keep();
            Ok(done)
        }
    }

    impl<S: super::Read> Read for &S {
        type View<'a>
            = S::View<'a>
        where
            Self: 'a;

        fn view(&self) -> Self::View<'_> {
            (**self).view()
        }

        fn get(&self, family: &Family, key: &[u8]) -> tidesdb::Result<Option<Slice>> {
            (**self).get(family, key)
        }

        fn multi_get(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<Option<Slice>>> {
            (**self).multi_get(family, keys)
        }

        fn contains(&self, family: &Family, key: &[u8]) -> tidesdb::Result<bool> {
            (**self).contains(family, key)
        }

        fn multi_contains(&self, family: &Family, keys: &[Vec<u8>]) -> tidesdb::Result<Vec<bool>> {
            (**self).multi_contains(family, keys)
        }

        fn range(&self, family: &Family, range: Bounds) -> tidesdb::Result<Iter> {
            (**self).range(family, range)
        }

        fn prefix(&self, family: &Family, prefix: &[u8]) -> tidesdb::Result<Iter> {
            (**self).prefix(family, prefix)
        }

        fn cursor(&self, family: &Family, options: &ReadOptions) -> tidesdb::Result<Cursor> {
            (**self).cursor(family, options)
        }
    }
}
