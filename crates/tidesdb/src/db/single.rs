//! Operations on one row that read and write it, and on the first and the last row.

use super::Db;
use super::transact::transact;
use crate::options::{Isolation, TransactOptions};
use crate::read::{Cursor, Iter};
use crate::txn::Transaction;
use crate::types::Slice;
use crate::write::Family;
use crate::{Error, Result};

impl Family {
    /// Returns the first key and its value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
        self.ends()?.next().transpose()
    }

    /// Returns the last key and its value.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
        self.ends()?.next_back().transpose()
    }

    /// Iterates over all rows within one call.
    fn ends(&self) -> Result<Iter> {
        Ok(Iter::new(Cursor::of_call(&self.ctx.reads, &self.core, None)?, ..))
    }

    /// Removes the first key and returns it with its value. If several threads do this at once, each gets a different
    /// row.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let jobs = db.default_family();
    /// jobs.put("1", "write")?;
    /// jobs.put("2", "read")?;
    /// let (key, job) = jobs.pop_first()?.expect("a job waits");
    /// assert_eq!((&*key, &*job), (&b"1"[..], &b"write"[..]));
    /// assert_eq!(jobs.first()?, jobs.last()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`](crate::Db::transact).
    pub fn pop_first(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop(Iter::next)
    }

    /// Removes the last key and returns it with its value: see [`Family::pop_first`].
    ///
    /// # Errors
    /// As [`Db::transact`](crate::Db::transact).
    pub fn pop_last(&self) -> Result<Option<(Slice, Slice)>> {
        self.pop(Iter::next_back)
    }

    /// Removes the row that `end` takes from all rows.
    fn pop(
        &self,
        end: impl Fn(&mut Iter) -> Option<Result<(Slice, Slice)>>,
    ) -> Result<Option<(Slice, Slice)>> {
        transact(&self.ctx, &TransactOptions::default(), |tx| {
            let row = end(&mut tx.iter(self)?).transpose()?;
            if let Some((key, _)) = &row {
                tx.delete(self, key)?;
            }
            Ok::<_, Error>(row)
        })
    }

    /// Sets `key` to `value`, for the default TTL of the family if it has one, and returns the value that it had. Costs a [`Family::get`]
    /// and a commit that no other write of the key comes between.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let prices = db.default_family();
    /// assert_eq!(prices.replace("apple", "3")?, None);
    /// assert_eq!(prices.replace("apple", "4")?.as_deref(), Some(&b"3"[..]));
    /// assert_eq!(prices.take("apple")?.as_deref(), Some(&b"4"[..]));
    /// assert!(!prices.contains("apple")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`](crate::Db::transact).
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let (key, value) = (key.as_ref(), value.as_ref());
        transact(&self.ctx, &of_one_key(), |tx| tx.replace(self, key, value))
    }

    /// Deletes `key` and returns the value that it had: see [`Family::replace`]. If several threads do this at once, one of them gets the
    /// value. Writes nothing if the key does not exist.
    ///
    /// # Errors
    /// As [`Db::transact`](crate::Db::transact).
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let key = key.as_ref();
        transact(&self.ctx, &of_one_key(), |tx| tx.take(self, key))
    }

    /// Sets `key` to `new` if its value is `expected`; `None` is the value of a key that does not exist, and deletes it.
    /// Returns whether the value was as expected. A new value has the default TTL of the family.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let locks = db.default_family();
    /// assert!(locks.compare_and_swap("job", None, Some(b"ann"))?);
    /// assert!(!locks.compare_and_swap("job", None, Some(b"ben"))?);
    /// assert!(locks.compare_and_swap("job", Some(b"ann"), None)?);
    /// assert!(!locks.contains("job")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`](crate::Db::transact).
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let key = key.as_ref();
        transact(&self.ctx, &of_one_key(), |tx| {
            let as_expected = tx.get(self, key)?.as_deref() == expected;
            if as_expected {
                match new {
                    Some(value) => tx.put(self, key, value)?,
                    None => tx.delete(self, key)?,
                }
            }
            Ok::<_, Error>(as_expected)
        })
    }

    /// Sets `key` to the result of `change` for its value; `None` is the value of a key that does not exist, and deletes it. Returns
    /// the new value. `change` runs again if another commit writes the key meanwhile. The row then has the default TTL of the family,
    /// whatever TTL it had.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let visits = db.default_family();
    /// for n in 1..=3 {
    ///     let now = visits.update("page", |v| Some(vec![v.map_or(0, |v| v[0]) + 1]))?;
    ///     assert_eq!(now, Some(vec![n]));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`](crate::Db::transact).
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let key = key.as_ref();
        transact(&self.ctx, &of_one_key(), |tx| {
            let new = change(tx.get(self, key)?.as_deref());
            match &new {
                Some(value) => tx.put(self, key, value)?,
                None => tx.delete(self, key)?,
            }
            Ok::<_, Error>(new)
        })
    }
}

impl Db {
    /// Returns the first key and its value.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn first(&self) -> Result<Option<(Slice, Slice)>> {
        self.default_family().first()
    }

    /// Returns the last key and its value.
    ///
    /// # Errors
    /// As [`Db::get`].
    pub fn last(&self) -> Result<Option<(Slice, Slice)>> {
        self.default_family().last()
    }

    /// Removes the first key and returns it with its value: see [`Family::pop_first`].
    ///
    /// # Errors
    /// As [`Family::pop_first`].
    pub fn pop_first(&self) -> Result<Option<(Slice, Slice)>> {
        self.default_family().pop_first()
    }

    /// Removes the last key and returns it with its value: see [`Family::pop_first`].
    ///
    /// # Errors
    /// As [`Family::pop_first`].
    pub fn pop_last(&self) -> Result<Option<(Slice, Slice)>> {
        self.default_family().pop_last()
    }

    /// Sets `key` to `value` and returns the value that it had: see [`Family::replace`].
    ///
    /// # Errors
    /// As [`Family::replace`].
    pub fn replace(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default_family().replace(key, value)
    }

    /// Deletes `key` and returns the value that it had: see [`Family::take`].
    ///
    /// # Errors
    /// As [`Family::take`].
    pub fn take(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default_family().take(key)
    }

    /// Sets `key` to `new` if its value is `expected`: see [`Family::compare_and_swap`].
    ///
    /// # Errors
    /// As [`Family::compare_and_swap`].
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.default_family().compare_and_swap(key, expected, new)
    }

    /// Sets `key` to the result of `change` for its value: see [`Family::update`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// for _ in 0..3 {
    ///     db.update("visits", |v| Some(vec![v.map_or(0, |v| v[0]) + 1]))?;
    /// }
    /// assert_eq!(db.last()?.map(|(_, visits)| visits[0]), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Family::update`].
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        self.default_family().update(key, change)
    }
}

impl Transaction {
    /// Sets `key` to `value`, as [`Transaction::put`] does, and returns the value that it had, own writes included. For the commit it is a
    /// read and a write.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let stock = db.default_family();
    /// db.put("apple", "3")?;
    /// db.transact(|tx| {
    ///     let moved = tx.take(stock, "apple")?.unwrap_or_else(|| tidesdb::Slice::from(&b"0"[..]));
    ///     let before = tx.replace(stock, "pear", moved)?;
    ///     assert_eq!(before, None);
    ///     Ok::<_, tidesdb::Error>(())
    /// })?;
    /// assert_eq!(db.get("pear")?.as_deref(), Some(&b"3"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Transaction::put`]: nothing was written.
    pub fn replace(
        &mut self,
        family: &Family,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Slice>> {
        let old = self.get(family, &key)?;
        self.put(family, key, value)?;
        Ok(old)
    }

    /// Deletes `key` and returns the value that it had, own writes included. Writes nothing if the key does not exist. For the commit it is
    /// a read, and a write if there was a value.
    ///
    /// # Errors
    /// As [`Transaction::replace`].
    pub fn take(&mut self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        let old = self.get(family, &key)?;
        if old.is_some() {
            self.delete(family, key)?;
        }
        Ok(old)
    }

    /// Returns the first key and its value, own writes included.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn first(&self, family: &Family) -> Result<Option<(Slice, Slice)>> {
        self.iter(family)?.next().transpose()
    }

    /// Returns the last key and its value, own writes included.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn last(&self, family: &Family) -> Result<Option<(Slice, Slice)>> {
        self.iter(family)?.next_back().transpose()
    }
}

/// For a transaction that reads one key: its commit is refused if the key was written meanwhile.
fn of_one_key() -> TransactOptions {
    TransactOptions::default().isolation(Isolation::RepeatableRead)
}
