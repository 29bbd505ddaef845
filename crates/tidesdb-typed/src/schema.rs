//! An open table without its key type: the family of the rows, the families of the indexes, and the writes that change
//! them together.
//!
//! Rows: encoded key to encoded value. Unique index: encoded index key to the key of the row. Other index: encoded index
//! key and the key of the row, to nothing. Index keys are encoded as if something followed, so that none is the beginning of another, and
//! none is empty, except that of a type with one value.

use std::time::SystemTime;

use tidesdb::{Family, Isolation, Iter, ReadOptions, Transaction};

use crate::error::{Error, Malformed, Result};
use crate::index::Index;
use crate::key::{self, Key};
use crate::value::Value;

/// An open table.
pub(crate) struct Schema<V: Value> {
    pub(crate) table: &'static str,
    pub(crate) family: Family,
    pub(crate) indexes: Vec<OpenIndex<V>>,
}

/// An index of an open table.
pub(crate) struct OpenIndex<V: Value> {
    pub(crate) index: &'static dyn Index<V>,
    pub(crate) family: Family,
}

impl<V: Value> Schema<V> {
    /// Encodes the key of a row that is written.
    pub(crate) fn written_key<K: Key>(&self, key: K::Ref<'_>) -> Result<Vec<u8>> {
        let encoded = key::encode::<K>(key);
        match encoded.is_empty() {
            true => Err(Error::EmptyKey { table: self.table, kind: K::name() }),
            false => Ok(encoded),
        }
    }

    /// Decodes the key of a row.
    pub(crate) fn key<K: Key>(&self, bytes: &[u8]) -> Result<K> {
        key::decode(bytes).map_err(|cause| self.damaged("key", K::name(), cause))
    }

    /// Decodes the value of a row.
    pub(crate) fn value(&self, bytes: &[u8]) -> Result<V::Owned> {
        V::decode(bytes).map_err(|cause| self.damaged("value", V::name(), cause))
    }

    /// Reports stored bytes that cannot be decoded.
    pub(crate) fn damaged(&self, part: &'static str, kind: String, cause: Malformed) -> Error {
        Error::Decode { table: self.table, part, kind, cause }
    }

    /// Encodes a value.
    pub(crate) fn encode(&self, value: V::Ref<'_>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        V::encode(value, &mut out).map_err(|cause| Error::Encode {
            table: self.table,
            kind: V::name(),
            cause,
        })?;
        Ok(out)
    }

    /// Returns the value that reads will have. Its index keys are those of the row: an encoding may round, or leave a field out, and a later change of
    /// the row finds only the entries of what it reads.
    fn stored(&self, encoded: &[u8]) -> Result<V::Owned> {
        V::decode(encoded).map_err(|cause| Error::Encode { table: self.table, kind: V::name(), cause })
    }

    /// Sets the row `key` to `value` until `expiry` (`None` = forever), together with its index entries.
    pub(crate) fn put(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        value: V::Ref<'_>,
        expiry: Option<SystemTime>,
    ) -> Result<()> {
        let encoded = self.encode(value)?;
        if !self.indexes.is_empty() {
            let old = self.read(tx, key)?;
            self.change_indexes(tx, key, old.as_ref(), Some((&encoded, expiry)))?;
        }
        Ok(tx.put_expiring(&self.family, key, encoded, expiry)?)
    }

    /// Deletes the row `key` with its index entries.
    pub(crate) fn delete(&self, tx: &mut Transaction, key: &[u8]) -> Result<()> {
        if !self.indexes.is_empty() {
            let old = self.read(tx, key)?;
            self.change_indexes(tx, key, old.as_ref(), None)?;
        }
        Ok(tx.delete(&self.family, key)?)
    }

    /// Like [`Schema::put`], and returns the value that the row had.
    pub(crate) fn replace(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        value: V::Ref<'_>,
        expiry: Option<SystemTime>,
    ) -> Result<Option<V::Owned>> {
        let encoded = self.encode(value)?;
        let old = self.read(tx, key)?;
        self.change_indexes(tx, key, old.as_ref(), Some((&encoded, expiry)))?;
        tx.put_expiring(&self.family, key, encoded, expiry)?;
        Ok(old)
    }

    /// Like [`Schema::delete`], and returns the value that the row had. Writes nothing if there is no such row.
    pub(crate) fn take(&self, tx: &mut Transaction, key: &[u8]) -> Result<Option<V::Owned>> {
        let old = self.read(tx, key)?;
        if old.is_some() {
            self.change_indexes(tx, key, old.as_ref(), None)?;
            tx.delete(&self.family, key)?;
        }
        Ok(old)
    }

    /// Reads the row `key`.
    fn read(&self, tx: &Transaction, key: &[u8]) -> Result<Option<V::Owned>> {
        tx.get(&self.family, key)?.map(|old| self.value(&old)).transpose()
    }

    /// Deletes `rows` with their index entries.
    pub(crate) fn delete_all(&self, tx: &mut Transaction, rows: Iter) -> Result<()> {
        for key in rows.keys() {
            self.delete(tx, &key?)?;
        }
        Ok(())
    }

    /// Replaces the index entries of the row `key`, which has the value `old`, by those of `new`, an encoded value and its expiry. Entries expire
    /// with their row.
    fn change_indexes(
        &self,
        tx: &mut Transaction,
        key: &[u8],
        old: Option<&V::Owned>,
        new: Option<(&[u8], Option<SystemTime>)>,
    ) -> Result<()> {
        if self.indexes.is_empty() {
            return Ok(());
        }
        if matches!(tx.isolation(), Isolation::ReadUncommitted | Isolation::ReadCommitted) {
            return Err(Error::WeakIsolation { table: self.table });
        }
        let expiry = new.and_then(|(_, expiry)| expiry);
        let new = new.map(|(encoded, _)| self.stored(encoded)).transpose()?;
        // An index entry of both the old and the new value is not written again if it already expires at the same time as the
        // new row.
        let stays = new.is_some() && old.is_some() && expiry_of(tx, &self.family, key)? == Some(expiry);
        for open in &self.indexes {
            let before = old.map_or(Vec::new(), |old| open.index.keys(V::to_ref(old)));
            let after = new.as_ref().map_or(Vec::new(), |new| open.index.keys(V::to_ref(new)));
            for index_key in before.iter().filter(|key| after.binary_search(key).is_err()) {
                let entry = open.entry(index_key, key).0;
                // The row, and so its entry, may have expired since it was read; then another row may have it.
                if open.index.is_unique() && tx.get(&open.family, &entry)?.is_some_and(|row| *row != *key) {
                    continue;
                }
                tx.delete(&open.family, entry)?;
            }
            for index_key in after.iter().filter(|key| !stays || before.binary_search(key).is_err()) {
                self.add_entry(tx, open, index_key, (key, expiry))?;
            }
        }
        Ok(())
    }

    /// Adds the index entry of `index_key` and a row, which is given by its key and its expiry.
    pub(crate) fn add_entry(
        &self,
        tx: &mut Transaction,
        open: &OpenIndex<V>,
        index_key: &[u8],
        (key, expiry): (&[u8], Option<SystemTime>),
    ) -> Result<()> {
        let (entry, row) = open.entry(index_key, key);
        if open.index.is_unique() && tx.get(&open.family, &entry)?.is_some_and(|row| *row != *key) {
            return Err(Error::Duplicate { table: self.table, index: open.index.name() });
        }
        Ok(tx.put_expiring(&open.family, entry, row, expiry)?)
    }
}

/// Returns when the row `key` expires, if it exists. The caller has read the row in `tx`, so its commit depends on it already.
fn expiry_of(tx: &Transaction, family: &Family, key: &[u8]) -> Result<Option<Option<SystemTime>>> {
    let mut cursor = tx.cursor_with(family, &ReadOptions::default().keys_only(true))?;
    cursor.set_range(key..=key);
    cursor.seek_to_first()?;
    Ok(cursor.valid().then(|| cursor.expiry()))
}

impl<V: Value> OpenIndex<V> {
    /// Returns key and value of the entry for `index_key` and the row `key`.
    pub(crate) fn entry<'k>(&self, index_key: &[u8], key: &'k [u8]) -> (Vec<u8>, &'k [u8]) {
        match (self.index.is_unique(), index_key) {
            (true, []) => (key::UNIT.to_vec(), key), // of a type with one value: at most one row has it
            (true, _) => (index_key.to_vec(), key),
            (false, _) => ([index_key, key].concat(), &[]),
        }
    }
}
