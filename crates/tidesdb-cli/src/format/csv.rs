//! Comma-separated values (RFC 4180), of any bytes. A column is named by the header, or by its number from 1.
//!
//! The value is a column, or, if only the key's column is named, the whole row as a JSON object. Files that `dump` writes have the
//! columns `key`, `value` and, unless it was omitted, `expiry`: seconds of the UNIX epoch, empty for rows that never expire.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::BufRead;

use serde_json::{Map, Value};

use super::records::{Record, Records};
use super::{EXPIRY, Lines, Row, RowError, Rows, parse_expiry, show_expiry};

/// Names of the columns to read.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Column of the key.
    pub(crate) key: Option<String>,
    /// Column of the value.
    pub(crate) value: Option<String>,
    /// Column of the expiry.
    pub(crate) expiry: Option<String>,
    /// True if the first row names the columns.
    pub(crate) header: bool,
}

impl Default for Columns {
    fn default() -> Self {
        Self { key: None, value: None, expiry: None, header: true }
    }
}

/// Columns by position.
#[derive(Clone, Copy, Debug)]
struct Places {
    key: usize,
    /// `None`: the whole row.
    value: Option<usize>,
    /// `None`: rows never expire.
    expiry: Option<usize>,
}

/// Reads rows.
pub(crate) struct CsvRows<R> {
    records: Records<R>,
    columns: Columns,
    places: Option<Places>,
    /// The first record, if it names the columns.
    header: Record,
    /// Fields of the first record: each has as many.
    width: Option<usize>,
    json: Vec<u8>,
}

impl<R: BufRead> CsvRows<R> {
    /// Creates a reader of the rows of `input`.
    pub(crate) fn new(input: R, columns: Columns) -> Self {
        let (records, header) = (Records::new(Lines::new(input)), Record::default());
        Self { records, columns, places: None, header, width: None, json: Vec::new() }
    }

    fn find_columns(&mut self) -> Result<Places, RowError> {
        if self.columns.header
            && let Some(header) = self.records.advance().map_err(unfit_header)?
        {
            self.header = header.clone();
            self.width = Some(header.len());
        }
        let names: Vec<_> = self.header.fields().map(String::from_utf8_lossy).collect();
        let number = |wanted: &str| wanted.parse::<usize>().ok().filter(|n| *n > 0);
        let mut by_number = true;
        let mut find = |wanted: &str| -> Result<usize, RowError> {
            let named = names.iter().position(|name| name == wanted);
            by_number &= named.is_none();
            let place = named.or_else(|| number(wanted).map(|n| n - 1));
            place.ok_or_else(|| RowError::Unfit(no_column(wanted, &names)))
        };
        let (default_key, default_value) = if self.columns.header { ("key", "value") } else { ("1", "2") };
        let key = find(self.columns.key.as_deref().unwrap_or(default_key))?;
        let value = match (&self.columns.value, &self.columns.key) {
            (Some(value), _) => Some(find(value)?),
            (None, None) => Some(find(default_value)?),
            (None, Some(_)) => None,
        };
        // In a file with our own columns `expiry` has our meaning; in any other file a column of this name may mean something else.
        let own = self.columns.key.is_none() && self.columns.header;
        let expiry = match &self.columns.expiry {
            Some(expiry) => Some(find(expiry)?),
            None => names.iter().position(|name| own && name == EXPIRY),
        };
        if !by_number || value.is_none() {
            refuse_duplicates(&names)?;
        }
        Ok(Places { key, value, expiry })
    }
}

/// Writes a whole row to `json`: an object by column name, or an array if there is no header.
fn row_as_json(header: Option<&Record>, record: &Record, json: &mut Vec<u8>) -> Result<(), RowError> {
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).map_err(|_| RowError::Bad {
            line: record.line,
            why: "a field is not UTF-8 and cannot be written as JSON; name one column with --value"
                .to_owned(),
        })?;
        Ok::<_, RowError>(Value::from(text))
    };
    let row = if let Some(header) = header {
        let mut object = Map::new();
        for (name, field) in header.fields().zip(record.fields()) {
            object.insert(String::from_utf8_lossy(name).into_owned(), text(field)?);
        }
        Value::Object(object)
    } else {
        Value::Array(record.fields().map(text).collect::<Result<_, _>>()?)
    };
    json.clear();
    json.extend_from_slice(row.to_string().as_bytes());
    Ok(())
}

impl<R: BufRead> Rows for CsvRows<R> {
    fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError> {
        let places = match self.places {
            Some(places) => places,
            None => {
                let found = self.find_columns()?;
                *self.places.insert(found)
            }
        };
        let Some(record) = self.records.advance()? else { return Ok(None) };
        let (line, len) = (record.line, record.len());
        let width = *self.width.get_or_insert(len);
        if len != width {
            let fields = if len == 1 { "field" } else { "fields" };
            return Err(RowError::Bad { line, why: format!("{len} {fields} where {width} are expected") });
        }
        if places.value.is_none() {
            row_as_json(self.columns.header.then_some(&self.header), record, &mut self.json)?;
        }
        let field = |at: usize| {
            let why = || format!("there is no column {}, the row has {len}", at + 1);
            record.get(at).ok_or_else(|| RowError::Bad { line, why: why() })
        };
        let key = field(places.key)?;
        let value = match places.value {
            Some(at) => field(at)?,
            None => &self.json,
        };
        let expiry = places
            .expiry
            .map_or(Ok(0), |at| parse_expiry(field(at)?).map_err(|why| RowError::Bad { line, why }))?;
        Ok(Some(Row { line, key, value, expiry }))
    }
}

/// A malformed header is no row that can be skipped: the next row would be taken for the header.
fn unfit_header(e: RowError) -> RowError {
    match e {
        RowError::Bad { line, why } => RowError::Unfit(format!("the header, line {line}: {why}")),
        e => e,
    }
}

/// Refuses a header in which two columns have one name: which of them is meant, and an object of both, are not to be guessed.
fn refuse_duplicates(names: &[Cow<'_, str>]) -> Result<(), RowError> {
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(&***name)) {
        Some(name) => Err(RowError::Unfit(format!(
            "two columns are named {name:?}: rename one, or name the columns to load by number"
        ))),
        None => Ok(()),
    }
}

fn no_column(wanted: &str, names: &[Cow<'_, str>]) -> String {
    let quoted: Vec<String> = names.iter().take(20).map(|name| format!("{name:?}")).collect();
    match names.is_empty() {
        true => format!("there is no column {wanted:?}: without a header, columns are numbers from 1"),
        false => format!("there is no column {wanted:?}; the header names {}", quoted.join(", ")),
    }
}

/// Appends the names of the columns.
pub(crate) fn write_csv_header(expiries: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(if expiries { b"key,value,expiry\n" } else { b"key,value\n" });
}

/// Appends a row, with a column for `expiry` unless that is `None`; the column is empty for 0.
pub(crate) fn write_csv_row(key: &[u8], value: &[u8], expiry: Option<u64>, out: &mut Vec<u8>) {
    write_field(key, out);
    out.push(b',');
    write_field(value, out);
    if let Some(expiry) = expiry {
        out.push(b',');
        if expiry > 0 {
            out.extend_from_slice(show_expiry(expiry).as_bytes());
        }
    }
    out.push(b'\n');
}

fn write_field(field: &[u8], out: &mut Vec<u8>) {
    if !field.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r')) {
        out.extend_from_slice(field);
        return;
    }
    out.push(b'"');
    for part in field.split_inclusive(|b| *b == b'"') {
        out.extend_from_slice(part);
        if part.ends_with(b"\"") {
            out.push(b'"');
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_all, read_whole};
    use super::*;

    fn columns(key: &str, value: &str, header: bool) -> Columns {
        let own = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        Columns { key: own(key), value: own(value), expiry: None, header }
    }

    fn rows(text: &str, columns: Columns) -> Vec<(String, String)> {
        let text_of = |b: Vec<u8>| String::from_utf8(b).unwrap();
        let read = read_all(&mut CsvRows::new(text.as_bytes(), columns));
        read.into_iter().map(|row| row.map(|(k, v)| (text_of(k), text_of(v))).unwrap()).collect()
    }

    fn unfit(text: &str, columns: Columns) -> String {
        match CsvRows::new(text.as_bytes(), columns).next_row() {
            Err(RowError::Unfit(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    const CITIES: &str = "name,country,people\nOslo,NO,709000\n\"Paris, \"\"ville\"\"\",FR,2100000\n";

    #[test]
    fn columns_by_name_by_number_or_the_whole_row() {
        let named = rows(CITIES, columns("name", "people", true));
        assert_eq!(named[1], ("Paris, \"ville\"".to_owned(), "2100000".to_owned()));
        assert_eq!(rows(CITIES, columns("2", "1", true))[0], ("NO".to_owned(), "Oslo".to_owned()));
        let whole = rows(CITIES, columns("name", "", true));
        assert_eq!(whole[0].1, r#"{"name":"Oslo","country":"NO","people":"709000"}"#);
        assert_eq!(
            rows("a,b\nc,d\n", columns("", "", false)),
            [("a".into(), "b".into()), ("c".into(), "d".into())]
        );
        assert_eq!(rows("a,b\n", columns("2", "", false)), [("b".into(), r#"["a","b"]"#.into())]);
    }

    #[test]
    fn a_missing_column_is_reported_with_the_existing_columns() {
        assert!(
            unfit(CITIES, Columns::default())
                .contains(r#"no column "key"; the header names "name", "country""#)
        );
        assert!(unfit("a,b\n", columns("x", "", false)).contains("numbers from 1"));
    }

    /// With `--skip-bad` the first row was taken for the header, and lost.
    #[test]
    fn a_malformed_header_ends_the_load() {
        for (text, line) in
            [("\"key\"x,value\na,1\nb,2\n", 1), ("\nkey,va\"lue\na,1\n", 2), ("key,\"value\na,1\n", 1)]
        {
            let why = unfit(text, Columns::default());
            assert!(why.starts_with(&format!("the header, line {line}: ")) && why.contains("quote"), "{why}");
        }
    }

    /// Of two columns of one name the first one was lost.
    #[test]
    fn two_columns_of_one_name_are_refused() {
        let text = "id,x,x\n1,2,3\n";
        for (key, value) in [("id", "x"), ("x", "id"), ("id", ""), ("1", ""), ("id", "2")] {
            assert!(
                unfit(text, columns(key, value, true)).contains("two columns are named \"x\""),
                "{key} {value}"
            );
        }
        assert_eq!(rows(text, columns("1", "3", true)), [("1".to_owned(), "3".to_owned())]);
        assert_eq!(rows(text, columns("1", "", false)).len(), 2, "without a header there are no names");
        assert!(unfit("key,value,,\n", Columns::default()).contains("two columns are named \"\""));
    }

    #[test]
    fn expiry_is_a_column() {
        let row = |k: &str, v: &str, expiry| Ok((k.as_bytes().to_vec(), v.as_bytes().to_vec(), expiry));
        let read = |text: &str, columns| read_whole(&mut CsvRows::new(text.as_bytes(), columns));
        let own = "expiry,key,value\n7,a,1\n,b,2\n0,c,3\n";
        assert_eq!(read(own, Columns::default()), [row("a", "1", 7000), row("b", "2", 0), row("c", "3", 0)]);
        assert_eq!(read(own, columns("key", "value", true))[0], row("a", "1", 0), "another meaning");
        let named = Columns { expiry: Some("expiry".to_owned()), ..columns("key", "value", true) };
        assert_eq!(read(own, named)[0], row("a", "1", 7000));
        let numbered = Columns { expiry: Some("3".to_owned()), ..columns("", "", false) };
        assert_eq!(read("a,b,5\n", numbered), [row("a", "b", 5000)]);
        let bad = read("key,value,expiry\na,1,soon\nb,2,\n", Columns::default());
        assert_eq!((bad[0].as_ref().unwrap_err().0, &bad[1]), (2, &row("b", "2", 0)));
    }

    #[test]
    fn bad_rows_are_reported_and_skipped() {
        let text = "key,value\na,1\nb\nc,2,3\nd,4\n";
        let read = read_all(&mut CsvRows::new(text.as_bytes(), Columns::default()));
        assert_eq!(read[1].as_ref().unwrap_err(), &(3, "1 field where 2 are expected".to_owned()));
        assert_eq!(read[2].as_ref().unwrap_err().0, 4);
        assert_eq!(read[3].as_ref().unwrap().0, b"d");
    }
}
