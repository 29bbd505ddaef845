//! Opens tables: checks names and types, builds indexes that are new, drops those that are no longer listed.
//!
//! An open first looks at every family that it needs, and refuses those that another table, another index or another program made.
//! Then it changes them, in an order that a crash may cut off anywhere. A family is created before the catalogue names it, and is empty
//! when it does. An index is complete once all its entries are there, and is dropped before a table is handed out that does not list it.
//! So the open deletes only families that the catalogue names, by their ids, as indexes of this table.

use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use tidesdb::{Comparator, Db, Error as DbError, Family, FamilyOptions};

use crate::catalogue::{CATALOGUE, Catalogue, Name, Record, existing, is_bytewise};
use crate::definition::TableDefinition;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::key::{Key, decode};
use crate::schema::{OpenIndex, Schema};
use crate::value::Value;

/// Rows that one transaction indexes.
const ROWS_AT_ONCE: usize = 1000;
/// Begins the names of families that the library keeps for itself, such as those of the C library.
const OF_THE_LIBRARY: &str = "tidesdb:";

/// Held while a table is opened, so that an index is built once.
static OPENING: Mutex<()> = Mutex::new(());

/// Opens the table of `definition`. In a database that is open for reading only, table and indexes must exist.
pub(crate) fn open<K: Key, V: Value>(
    definition: &TableDefinition<K, V>,
    db: &Db,
    options: FamilyOptions,
) -> Result<Schema<V>> {
    let _one_at_a_time = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    open_or_create(definition, db, options).map_err(|e| match e {
        Error::Database(DbError::ReadOnly) => {
            let what = format!("table {:?} or one of its indexes", definition.name).into();
            Error::Database(DbError::NotFound { what })
        }
        e => e,
    })
}

fn open_or_create<K: Key, V: Value>(
    definition: &TableDefinition<K, V>,
    db: &Db,
    options: FamilyOptions,
) -> Result<Schema<V>> {
    let table = definition.name;
    check_names(definition)?;
    let catalogue = Catalogue::open(db)?;
    let name = Name::new(table, "");
    let found = find_rows::<K, V>(&catalogue, table, &name, &options)?;
    let mut indexes = Vec::new();
    for &index in definition.indexes {
        indexes.push((index, find_index(&catalogue, table, found.as_ref(), index)?));
    }
    let family = db.family_or_create(table, options)?;
    let record = Record { types: types::<K, V>(), family: Some(family.id()), rows: None };
    if catalogue.record(&name)?.as_ref() != Some(&record) {
        catalogue.set(&name, &record)?;
    }
    match drop_unlisted(definition, &catalogue) {
        Err(Error::Database(DbError::ReadOnly)) => {} // nothing is written that they could miss
        done => done?,
    }
    let mut schema = Schema { table, family, indexes: Vec::new() };
    for (index, found) in indexes {
        let family = match found {
            FoundIndex::Complete(family) => family,
            FoundIndex::Outdated => {
                drop_index(&catalogue, &Name::new(table, index.name()))?;
                make_index(&catalogue, &schema, index)?
            }
            FoundIndex::None => make_index(&catalogue, &schema, index)?,
        };
        schema.indexes.push(OpenIndex { index, family });
    }
    Ok(schema)
}

/// The types of a table, as they are recorded.
fn types<K: Key, V: Value>() -> String {
    format!("{} -> {}", K::name(), V::name())
}

/// Refuses names that no table can have.
fn check_names<K: Key, V: Value>(definition: &TableDefinition<K, V>) -> Result<()> {
    let table = definition.name;
    if table == CATALOGUE || table.starts_with(OF_THE_LIBRARY) {
        return Err(Name::new(table, "").taken("belongs to TidesDB itself"));
    }
    for (at, index) in definition.indexes.iter().enumerate() {
        if index.name().is_empty() {
            let what = format!("an index of table {table} has no name").into();
            return Err(Error::Database(DbError::InvalidArgument { what }));
        }
        if definition.indexes[..at].iter().any(|other| other.name() == index.name()) {
            return Err(Name::new(table, index.name()).taken("another index of the definition needs too"));
        }
    }
    Ok(())
}

/// Returns the family of the rows, if there is one and the table may use it.
fn find_rows<K: Key, V: Value>(
    catalogue: &Catalogue<'_>,
    table: &'static str,
    name: &Name,
    options: &FamilyOptions,
) -> Result<Option<Family>> {
    let mismatch = |stored: String| Error::Mismatch { table, stored, wanted: types::<K, V>() };
    let of_order = |order: &Comparator| mismatch(format!("a family with the key order {}", order.name()));
    let Some(family) = existing(catalogue.db, table)? else {
        let is_known = options.comparator.name() == Comparator::bytewise().name();
        return if is_known { Ok(None) } else { Err(of_order(&options.comparator)) };
    };
    if !is_bytewise(&family) {
        return Err(of_order(&family.current_options().comparator));
    }
    if let Some(record) = catalogue.record(name)?
        && record.family == Some(family.id())
    {
        let is_alike = record.types == types::<K, V>();
        return if is_alike { Ok(Some(family)) } else { Err(mismatch(record.types)) };
    }
    if let Some(owner) = catalogue.owner(&family)? {
        return Err(name.taken(format!("belongs to {}", owner.describe())));
    }
    let (Some(first), Some(last)) = (family.first()?, family.last()?) else { return Ok(Some(family)) };
    // Rows that the table did not put there: the family was created by hand, loaded, or renamed.
    match catalogue.maker(&family)? {
        Some((maker, _)) if !maker.index.is_empty() => {
            return Err(name.taken(format!("has the entries of {}", maker.describe())));
        }
        Some((maker, record)) if record.types != types::<K, V>() => {
            return Err(mismatch(format!("{} under the name {}", record.types, maker.table)));
        }
        _ => {}
    }
    for (key, value) in [first, last] {
        let decoded = decode::<K>(&key).and_then(|_| V::decode(&value));
        decoded.map_err(|cause| mismatch(format!("a family of other rows ({cause})")))?;
    }
    Ok(Some(family))
}

/// What is there of an index before the open changes anything.
enum FoundIndex {
    /// Its family, with the entries of all rows.
    Complete(Family),
    /// Its family, with entries of other rows or keys, or of a build that did not end.
    Outdated,
    /// No family, or an empty one that the index may use.
    None,
}

/// Returns what is there of an index of the table whose rows are `rows`.
fn find_index<V: Value>(
    catalogue: &Catalogue<'_>,
    table: &str,
    rows: Option<&Family>,
    index: &dyn Index<V>,
) -> Result<FoundIndex> {
    let name = Name::new(table, index.name());
    let Some(family) = existing(catalogue.db, &name.family())? else { return Ok(FoundIndex::None) };
    if let Some(record) = catalogue.record(&name)?
        && record.family == Some(family.id())
    {
        let is_complete = rows.is_some_and(|rows| record.rows == Some(rows.id()));
        return Ok(match is_complete && record.types == index.describe() {
            true => FoundIndex::Complete(family),
            false => FoundIndex::Outdated,
        });
    }
    if let Some(owner) = catalogue.owner(&family)? {
        return Err(name.taken(format!("belongs to {}", owner.describe())));
    }
    if !is_bytewise(&family) {
        let order = family.current_options().comparator;
        return Err(name.taken(format!("has the key order {}", order.name())));
    }
    if family.first()?.is_some() { Err(not_empty(&name)) } else { Ok(FoundIndex::None) }
}

fn not_empty(name: &Name) -> Error {
    name.taken("has rows that the index did not make: drop or rename the family, or rename the index")
}

/// Creates the family of an index, and writes the entries of all rows.
fn make_index<V: Value>(
    catalogue: &Catalogue<'_>,
    schema: &Schema<V>,
    index: &'static dyn Index<V>,
) -> Result<Family> {
    let (db, name) = (catalogue.db, Name::new(schema.table, index.name()));
    let family = db.family_or_create(&name.family(), FamilyOptions::default())?;
    let mut record =
        Record { types: String::new(), family: Some(family.id()), rows: Some(schema.family.id()) };
    // The scan conflicts with a row that another thread puts there meanwhile.
    db.transact(|tx| {
        let mut rows = tx.cursor(&family)?;
        rows.seek_to_first()?;
        if rows.valid() {
            return Err(not_empty(&name));
        }
        Ok(tx.put(&catalogue.family, name.key(), record.to_text())?)
    })?;
    build(schema, db, &OpenIndex { index, family: family.clone() })?;
    record.types = index.describe();
    catalogue.set(&name, &record)?;
    Ok(family)
}

/// Drops the indexes that the definition does not list: nothing would keep them consistent.
fn drop_unlisted<K: Key, V: Value>(
    definition: &TableDefinition<K, V>,
    catalogue: &Catalogue<'_>,
) -> Result<()> {
    for name in catalogue.indexes_of(definition.name)? {
        if !definition.indexes.iter().any(|index| index.name() == name.index) {
            drop_index(catalogue, &name)?;
            catalogue.remove(&name)?;
        }
    }
    Ok(())
}

/// Drops the family of an index, unless another family has its name now.
fn drop_index(catalogue: &Catalogue<'_>, name: &Name) -> Result<()> {
    let Some(record) = catalogue.record(name)? else { return Ok(()) };
    let Some(family) = existing(catalogue.db, &name.family())? else { return Ok(()) };
    if record.family == Some(family.id()) {
        match catalogue.db.drop_family(&name.family()) {
            Ok(()) | Err(DbError::NotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Writes the entries of all rows. Each transaction conflicts with writes to the rows that it indexes, so no entry can
/// be out of date.
fn build<V: Value>(schema: &Schema<V>, db: &Db, open: &OpenIndex<V>) -> Result<()> {
    let mut after = Bound::Unbounded;
    loop {
        let last = db.transact(|tx| {
            let mut last = None;
            let mut rows = tx.cursor(&schema.family)?;
            rows.set_range((after.clone(), Bound::Unbounded));
            rows.seek_to_first()?;
            for _ in 0..ROWS_AT_ONCE {
                if !rows.valid() {
                    break;
                }
                let expiry = rows.expiry();
                let (key, value) = rows.entry()?;
                for index_key in open.index.keys(V::to_ref(&schema.value(value)?)) {
                    schema.add_entry(tx, open, &index_key, (key, expiry))?;
                }
                last = Some(key.to_vec());
                rows.next()?;
            }
            Ok::<_, Error>(last)
        })?;
        match last {
            Some(key) => after = Bound::Excluded(key),
            None => return Ok(()),
        }
    }
}
