//! Opens tables: checks their types, builds indexes that are new, drops those that are no longer listed.
//!
//! The catalogue is a family with a row for each table (`(table, "")` to the types of key and value) and for each index
//! that is complete (`(table, index)` to the type of its keys).

use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use tidesdb::{Comparator, Db, Family, FamilyOptions};

use crate::definition::TableDefinition;
use crate::error::{Error, Result};
use crate::key::{Key, decode, encode};
use crate::schema::{OpenIndex, Schema};
use crate::value::Value;

/// Name of the family of the catalogue.
const CATALOGUE: &str = "tidesdb-typed";
/// Rows that one transaction indexes.
const ROWS_AT_ONCE: usize = 1000;

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
        Error::Database(tidesdb::Error::ReadOnly) => {
            let what = format!("table {:?} or one of its indexes", definition.name).into();
            Error::Database(tidesdb::Error::NotFound { what })
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
    let catalogue = family(db, CATALOGUE)?;
    let family_of_rows = db.family_or_create(table, options)?;
    let order = family_of_rows.current_options().comparator;
    let wanted = format!("{} -> {}", K::name(), V::name());
    if order.name() != Comparator::bytewise().name() {
        let stored = format!("a family with the key order {}", order.name());
        return Err(Error::Mismatch { table, stored, wanted });
    }
    match record(&catalogue, table, "")? {
        None => set_record(&catalogue, table, "", &wanted)?,
        Some(stored) if stored == wanted => {}
        Some(stored) => return Err(Error::Mismatch { table, stored, wanted }),
    }
    match drop_unlisted(definition, db, &catalogue) {
        Err(Error::Database(tidesdb::Error::ReadOnly)) => {} // nothing is written that they could miss
        done => done?,
    }
    let mut schema = Schema { table, family: family_of_rows, indexes: Vec::new() };
    for &index in definition.indexes {
        let open = OpenIndex { index, family: family(db, &family_name(table, index.name()))? };
        if record(&catalogue, table, index.name())?.is_none() {
            build(&schema, db, &open)?;
            set_record(&catalogue, table, index.name(), &index.describe())?;
        }
        schema.indexes.push(open);
    }
    Ok(schema)
}

/// Returns a family with its stored options; creates it with default options.
fn family(db: &Db, name: &str) -> Result<Family> {
    Ok(db.family_or_create(name, FamilyOptions::default())?)
}

/// Name of the family of an index.
fn family_name(table: &str, index: &str) -> String {
    format!("{table}.{index}")
}

/// Reads a row of the catalogue.
fn record(catalogue: &Family, table: &str, index: &str) -> Result<Option<String>> {
    let key = encode::<(String, String)>((table, index));
    Ok(catalogue.get_map(key, |text| String::from_utf8_lossy(text).into_owned())?)
}

/// Writes a row of the catalogue.
fn set_record(catalogue: &Family, table: &str, index: &str, text: &str) -> Result<()> {
    catalogue.put(encode::<(String, String)>((table, index)), text)?;
    Ok(())
}

/// Drops the indexes that the definition does not list, or lists with other keys: nothing would keep them consistent.
fn drop_unlisted<K: Key, V: Value>(
    definition: &TableDefinition<K, V>,
    db: &Db,
    catalogue: &Family,
) -> Result<()> {
    let mut of_table = Vec::new();
    <(&str,) as crate::Prefix<(String, String)>>::encode(&(definition.name,), &mut of_table);
    for row in catalogue.prefix(of_table)? {
        let (key, text) = row?;
        let Ok((_, name)) = decode::<(String, String)>(&key) else { continue };
        let is_listed = definition
            .indexes
            .iter()
            .any(|index| index.name() == name && index.describe().as_bytes() == &*text);
        if is_listed || name.is_empty() {
            continue;
        }
        catalogue.delete(&key)?; // first: a family without this row is not trusted
        match db.drop_family(&family_name(definition.name, &name)) {
            Ok(()) | Err(tidesdb::Error::NotFound { .. }) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Writes the entries of all rows. Each transaction conflicts with writes to the rows that it indexes, so no entry can
/// be out of date.
fn build<V: Value>(schema: &Schema<V>, db: &Db, open: &OpenIndex<V>) -> Result<()> {
    open.family.delete_range(..)?; // from a build that did not end
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
