//! The catalogue of a database: which families its typed tables have made, and what is in them.
//!
//! It is a family of its own, with a row for each table and each index:
//!
//! | key | value |
//! | --- | --- |
//! | `(table, "")` | the types of key and value; the family of the rows |
//! | `(table, index)` | the type of the keys, or nothing until the index is complete; the family of the entries, and that of their rows |
//! | `("", "")` | the family of the catalogue itself |
//!
//! A family is named by its id, which the database never uses again. So a row of the catalogue is not taken for one about a family
//! that has got the name of a dropped or renamed one. A catalogue without its own id was written before it had ids, or was copied
//! from another database: then each of its rows is about the family that has the name now, and gets its id.

use tidesdb::{Comparator, Db, Error as DbError, Family, FamilyId, FamilyOptions};

use crate::error::{Error, Result};
use crate::key::{Prefix, decode, encode};

/// Name of the family of the catalogue.
pub(crate) const CATALOGUE: &str = "tidesdb-typed";
/// Precedes the ids of families in a value.
const FAMILY: &str = "\nfamily ";
/// Separates the id of the entries from that of their rows.
const OF: &str = " of ";

/// The catalogue of an open database.
pub(crate) struct Catalogue<'d> {
    pub(crate) db: &'d Db,
    pub(crate) family: Family,
    /// False if its ids are not those of this database, and it cannot be written.
    is_bound: bool,
}

/// What the catalogue says of a table or an index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Types of key and value of a table; type of the keys of a complete index, otherwise empty.
    pub(crate) types: String,
    /// Id of the family; `None` if there was none of the name when the catalogue was taken over.
    pub(crate) family: Option<FamilyId>,
    /// Id of the rows that an index is of.
    pub(crate) rows: Option<FamilyId>,
}

/// A table, or an index of it: the key of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) table: String,
    /// Empty for the table itself.
    pub(crate) index: String,
}

impl Name {
    pub(crate) fn new(table: &str, index: &str) -> Self {
        Self { table: table.to_owned(), index: index.to_owned() }
    }

    /// Name of the family.
    pub(crate) fn family(&self) -> String {
        if self.index.is_empty() { self.table.clone() } else { format!("{}.{}", self.table, self.index) }
    }

    /// As in a message.
    pub(crate) fn describe(&self) -> String {
        match self.index.is_empty() {
            true => format!("table {}", self.table),
            false => format!("index {} of table {}", self.index, self.table),
        }
    }

    /// The key of the record.
    pub(crate) fn key(&self) -> Vec<u8> {
        encode::<(String, String)>((&self.table, &self.index))
    }

    /// Returns each table and each index whose family is called `family`.
    fn all_of(family: &str) -> impl Iterator<Item = Self> {
        let indexes = family.match_indices('.').map(|(dot, _)| Self::new(&family[..dot], &family[dot + 1..]));
        indexes.filter(|name| !name.table.is_empty() && !name.index.is_empty()).chain([Self::new(family, "")])
    }

    /// Returns the error of a definition that needs a family which is not its own.
    pub(crate) fn taken(&self, by: impl Into<String>) -> Error {
        Error::NameTaken { family: self.family(), wanted: self.describe(), by: by.into() }
    }
}

impl Record {
    /// The value of the row.
    pub(crate) fn to_text(&self) -> String {
        match (self.family, self.rows) {
            (None, _) => self.types.clone(),
            (Some(family), None) => format!("{}{FAMILY}{}", self.types, family.0),
            (Some(family), Some(rows)) => format!("{}{FAMILY}{}{OF}{}", self.types, family.0, rows.0),
        }
    }

    fn from_text(text: &str) -> Self {
        let ids = |ids: &str| {
            let (family, rows) = ids.split_once(OF).map_or((ids, None), |(ids, rows)| (ids, Some(rows)));
            let rows = rows.map(|rows| rows.parse().map(FamilyId)).transpose().ok()?;
            Some((FamilyId(family.parse().ok()?), rows))
        };
        match text.rsplit_once(FAMILY).and_then(|(types, all)| Some((types, ids(all)?))) {
            Some((types, (family, rows))) => Self { types: types.to_owned(), family: Some(family), rows },
            None => Self { types: text.to_owned(), ..Self::default() },
        }
    }
}

impl<'d> Catalogue<'d> {
    /// Opens the catalogue; creates it if there is none.
    pub(crate) fn open(db: &'d Db) -> Result<Self> {
        let family = db.family_or_create(CATALOGUE, FamilyOptions::default())?;
        let mut catalogue = Self { db, family, is_bound: true };
        let own = Name::new("", "");
        let marker = Record { family: Some(catalogue.family.id()), ..Record::default() };
        if catalogue.record(&own)? == Some(marker.clone()) {
            return Ok(catalogue);
        }
        catalogue.is_bound = false;
        let mut records = catalogue.checked()?;
        records.push((own, marker));
        let bound = db.transact(|tx| {
            let put =
                |(name, record): &(Name, Record)| tx.put(&catalogue.family, name.key(), record.to_text());
            records.iter().try_for_each(put)
        });
        match bound {
            Ok(()) => catalogue.is_bound = true,
            Err(DbError::ReadOnly) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(catalogue)
    }

    /// Returns all records, if the rows of the family are those of a catalogue: another program may use the name.
    fn checked(&self) -> Result<Vec<(Name, Record)>> {
        let foreign = || Error::NameTaken {
            family: CATALOGUE.to_owned(),
            wanted: "the catalogue of typed tables".to_owned(),
            by: "has rows that no table wrote".to_owned(),
        };
        if !is_bytewise(&self.family) {
            return Err(foreign());
        }
        let mut records = Vec::new();
        for row in self.family.iter()? {
            let (key, text) = row?;
            let (Ok((table, index)), Ok(text)) =
                (decode::<(String, String)>(&key), std::str::from_utf8(&text))
            else {
                return Err(foreign());
            };
            let (name, record) = (Name { table, index }, Record::from_text(text));
            let is_of_table = records.last().is_some_and(|(last, _): &(Name, _)| last.table == name.table);
            let fits = if name.index.is_empty() { record.types.contains(" -> ") } else { is_of_table };
            if name.table.is_empty() && name.index.is_empty() {
                continue;
            }
            if name.table.is_empty() || !fits {
                return Err(foreign());
            }
            records.push((name, record));
        }
        let bind = |(name, record)| self.bound(&name, record).map(|record| (name, record));
        records.into_iter().map(bind).collect()
    }

    /// Returns `record` with the families that have the names now. A name that two records have is that of a table, if one of the two
    /// is: its rows exist nowhere else.
    fn bound(&self, name: &Name, record: Record) -> Result<Record> {
        let id = |name: &str| existing(self.db, name).map(|found| found.map(|family| family.id()));
        let family = name.family();
        if name.index.is_empty() {
            return Ok(Record { family: id(&family)?, rows: None, ..record });
        }
        let mut is_shared = false;
        for other in Name::all_of(&family).filter(|other| other != name) {
            is_shared |= self.family.contains(other.key())?;
        }
        let family = if is_shared { None } else { id(&family)? };
        Ok(Record { rows: family.and(id(&name.table)?), family, ..record })
    }

    /// Returns what is recorded of a table or an index.
    pub(crate) fn record(&self, name: &Name) -> Result<Option<Record>> {
        let text = self.family.get_map(name.key(), |text| String::from_utf8_lossy(text).into_owned())?;
        match text.map(|text| Record::from_text(&text)) {
            Some(record) if !self.is_bound => self.bound(name, record).map(Some),
            record => Ok(record),
        }
    }

    /// Records a table or an index.
    pub(crate) fn set(&self, name: &Name, record: &Record) -> Result<()> {
        self.family.put(name.key(), record.to_text())?;
        Ok(())
    }

    /// Forgets an index.
    pub(crate) fn remove(&self, name: &Name) -> Result<()> {
        self.family.delete(name.key())?;
        Ok(())
    }

    /// Returns the recorded indexes of a table.
    pub(crate) fn indexes_of(&self, table: &str) -> Result<Vec<Name>> {
        let mut of_table = Vec::new();
        <(&str,) as Prefix<(String, String)>>::encode(&(table,), &mut of_table);
        let mut names = Vec::new();
        for key in self.family.prefix(of_table)?.keys() {
            if let Ok((table, index)) = decode::<(String, String)>(&key?)
                && !index.is_empty()
            {
                names.push(Name { table, index });
            }
        }
        Ok(names)
    }

    /// Returns the table or the index that made `family` under the name that it has.
    pub(crate) fn owner(&self, family: &Family) -> Result<Option<Name>> {
        for name in Name::all_of(&family.name()) {
            if self.record(&name)?.is_some_and(|record| record.family == Some(family.id())) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Returns the table or the index that made `family`, whatever name it has now. Reads the whole catalogue.
    pub(crate) fn maker(&self, family: &Family) -> Result<Option<(Name, Record)>> {
        for key in self.family.iter()?.keys() {
            let Ok((table, index)) = decode::<(String, String)>(&key?) else { continue };
            let name = Name { table, index };
            if let Some(record) = self.record(&name)?
                && record.family == Some(family.id())
            {
                return Ok(Some((name, record)));
            }
        }
        Ok(None)
    }
}

/// Returns the family called `name`, if there is one.
pub(crate) fn existing(db: &Db, name: &str) -> Result<Option<Family>> {
    match db.family(name) {
        Ok(family) => Ok(Some(family)),
        Err(DbError::NotFound { .. }) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Returns whether the keys of a family sort as encoded keys do.
pub(crate) fn is_bytewise(family: &Family) -> bool {
    family.current_options().comparator.name() == Comparator::bytewise().name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for types in ["", "u32 -> String", "unique String", "a\nfamily of b", "x\nfamily 7 of 8"] {
            for (family, rows) in [(Some(FamilyId(3)), None), (Some(FamilyId(3)), Some(FamilyId(u32::MAX)))] {
                let record = Record { types: types.to_owned(), family, rows };
                assert_eq!(Record::from_text(&record.to_text()), record);
            }
        }
        let old = Record { types: "u32 -> String".to_owned(), ..Record::default() };
        assert_eq!(Record::from_text("u32 -> String"), old);
    }

    #[test]
    fn a_family_has_a_name_of_each_table_and_index_that_could_have_made_it() {
        let all = |family| Name::all_of(family).map(|name| name.describe()).collect::<Vec<_>>();
        assert_eq!(all("a"), ["table a"]);
        assert_eq!(all("a.b.c"), ["index b.c of table a", "index c of table a.b", "table a.b.c"]);
        assert_eq!(all(".a."), ["index  of table .a", "table .a."][1..]);
        for name in Name::all_of("..a..b.") {
            assert_eq!(name.family(), "..a..b.");
        }
    }
}
