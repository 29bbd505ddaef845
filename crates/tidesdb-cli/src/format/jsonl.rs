//! JSON objects, one per line.
//!
//! Objects that `dump` writes have the members `key` and `value`, strings; bytes that are not UTF-8 are in base64 in `key_base64` and
//! `value_base64`. A row that expires has the member `expiry`, in seconds of the UNIX epoch. Any other objects can be read by naming
//! the member that is the key; the value is then another member, or the unchanged line. Numbers keep their text.

use std::io::BufRead;

use super::raw::{self, Members};
use super::{EXPIRY, Lines, Row, RowError, Rows, parse_expiry};
use crate::{output, text};

/// Names of the members to read. If none is named, the format is that of `dump`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// Member that is the key.
    pub(crate) key: Option<String>,
    /// Member that is the value.
    pub(crate) value: Option<String>,
    /// Member with the expiry of a row.
    pub(crate) expiry: Option<String>,
}

/// Reads rows.
pub(crate) struct JsonlRows<R> {
    lines: Lines<R>,
    fields: Fields,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: BufRead> JsonlRows<R> {
    /// Creates a reader of the rows of `input`.
    pub(crate) fn new(input: R, fields: Fields) -> Self {
        Self { lines: Lines::new(input), fields, key: Vec::new(), value: Vec::new() }
    }
}

impl<R: BufRead> Rows for JsonlRows<R> {
    fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let line = self.lines.number;
        let bad = |why: String| RowError::Bad { line, why };
        let object: Members<'_> =
            serde_json::from_slice(&self.lines.line).map_err(|e| bad(format!("not a JSON object: {e}")))?;
        self.key = match &self.fields.key {
            Some(name) => member(&object, name),
            None => own_member(&object, "key"),
        }
        .map_err(bad)?;
        // In other objects a member of this name may mean something else.
        let own = self.fields.key.is_none().then_some(EXPIRY);
        let expiry = self.fields.expiry.as_deref().or(own);
        let expiry = expiry.map_or(Ok(0), |name| expiry_of(&object, name)).map_err(bad)?;
        let whole = self.fields.key.is_some() && self.fields.value.is_none();
        if whole {
            let value = self.lines.line.trim_ascii();
            return Ok(Some(Row { line, key: &self.key, value, expiry }));
        }
        self.value = match &self.fields.value {
            Some(name) => member(&object, name),
            None => own_member(&object, "value"),
        }
        .map_err(bad)?;
        Ok(Some(Row { line, key: &self.key, value: &self.value, expiry }))
    }
}

/// Returns a member of any kind: strings without quotes, everything else as JSON.
fn member(object: &Members<'_>, name: &str) -> Result<Vec<u8>, String> {
    let value = object.get(name)?.ok_or_else(|| format!("no member {name:?}"))?;
    let text = match value.get().starts_with('"') {
        true => raw::string(value).ok_or_else(|| format!("{name:?}: an escape is not a valid character"))?,
        false => raw::compact(value),
    };
    Ok(text.into_bytes())
}

/// Returns a string member, or the decoded base64 of the other name.
fn own_member(object: &Members<'_>, name: &str) -> Result<Vec<u8>, String> {
    let encoded = format!("{name}_base64");
    let wrong = || format!("needs a string in {name:?} or in {encoded:?}, and not both");
    match (object.get(name)?, object.get(&encoded)?) {
        (Some(text), None) => raw::string(text).map(String::into_bytes).ok_or_else(wrong),
        (None, Some(text)) => {
            let text = raw::string(text).ok_or_else(wrong)?;
            text::unbase64(&text).ok_or(format!("{encoded:?} is not base64"))
        }
        (None, None) => {
            Err(format!("no member {name:?}; for other objects name the member of the key with --key"))
        }
        (Some(_), Some(_)) => Err(wrong()),
    }
}

/// Returns the expiry of a row: a number of seconds, or a string with one. A null or missing member means never.
fn expiry_of(object: &Members<'_>, name: &str) -> Result<u64, String> {
    match object.get(name)? {
        None => Ok(0),
        Some(value) if raw::is_null(value) => Ok(0),
        Some(value) => parse_expiry(raw::string(value).as_deref().unwrap_or(value.get()).as_bytes()),
    }
}

/// Appends a row in the format that `dump` writes.
pub(crate) fn write_jsonl_row(key: &[u8], value: &[u8], expiry: u64, out: &mut Vec<u8>) {
    let mut row = output::row_json(key, Some(value));
    if expiry > 0 {
        row[EXPIRY] = if expiry.is_multiple_of(1000) {
            (expiry / 1000).into()
        } else {
            (expiry as f64 / 1000.0).into()
        };
    }
    out.extend_from_slice(text::plain_json(row.to_string()).as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_all, read_whole};
    use super::*;

    fn rows(text: &str, key: &str, value: &str) -> Vec<Result<(String, String), (u64, String)>> {
        let own = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let text_of = |b: Vec<u8>| String::from_utf8(b).unwrap();
        let fields = Fields { key: own(key), value: own(value), expiry: None };
        let read = read_all(&mut JsonlRows::new(text.as_bytes(), fields));
        read.into_iter().map(|row| row.map(|(k, v)| (text_of(k), text_of(v)))).collect()
    }

    #[test]
    fn objects_with_key_and_value_members() {
        let text = "{\"key\":\"a\\u0000\",\"value\":\"b\"}\n {\"value_base64\":\"Yw==\",\"key_base64\":\"ZA==\"} \r\n";
        let ok = |k: &str, v: &str| Ok((k.to_owned(), v.to_owned()));
        assert_eq!(rows(text, "", ""), [ok("a\0", "b"), ok("d", "c")]);
    }

    #[test]
    fn other_objects() {
        let text = r#" {"id": 7, "name": "x", "list": [1, 2]} "#;
        let ok = |k: &str, v: &str| [Ok((k.to_owned(), v.to_owned()))];
        assert_eq!(rows(text, "id", ""), ok("7", text.trim()));
        assert_eq!(rows(text, "name", "list"), ok("x", "[1,2]"));
        assert_eq!(rows(text, "list", "id"), ok("[1,2]", "7"));
    }

    #[test]
    fn keys_and_values_that_are_numbers_keep_their_text() {
        let numbers =
            ["18446744073709551616", "18446744073709551617", "1.0", "1e3", "-0", "0.10000000000000000001"];
        for number in numbers {
            let text = format!("{{\"id\": {number}, \"n\": [ {number} ]}}");
            assert_eq!(rows(&text, "id", "n"), [Ok((number.to_owned(), format!("[{number}]")))]);
            assert_eq!(rows(&text, "n", "id"), [Ok((format!("[{number}]"), number.to_owned()))]);
            assert_eq!(rows(&text, "id", ""), [Ok((number.to_owned(), text))]);
        }
    }

    #[test]
    fn expiry_is_a_member() {
        let read = |text: &str, fields| read_whole(&mut JsonlRows::new(text.as_bytes(), fields));
        let row = |k: &str, v: &str, expiry| Ok((k.as_bytes().to_vec(), v.as_bytes().to_vec(), expiry));
        let own = r#"{"key":"a","value":"1","expiry":EXPIRY}"#;
        for (written, expiry) in [
            ("7", 7000),
            ("4294967296.25", 4_294_967_296_250),
            ("0", 0),
            ("null", 0),
            ("\"9\"", 9000),
            ("\"\"", 0),
        ] {
            let text = own.replace("EXPIRY", written);
            assert_eq!(read(&text, Fields::default()), [row("a", "1", expiry)]);
            let fields =
                Fields { key: Some("key".to_owned()), value: Some("value".to_owned()), expiry: None };
            assert_eq!(read(&text, fields.clone()), [row("a", "1", 0)], "another meaning");
            let named = Fields { expiry: Some("expiry".to_owned()), ..fields };
            assert_eq!(read(&text, named), [row("a", "1", expiry)]);
        }
        for written in ["7.0001", "-1", "1e3", "281474976711", "true", "[7]", "{}", "\"soon\""] {
            let found = read(&own.replace("EXPIRY", written), Fields::default());
            assert!(found[0].as_ref().unwrap_err().1.contains("not a number of seconds"), "{written}");
        }
        let mut out = Vec::new();
        write_jsonl_row(b"a", b"1", 7000, &mut out);
        write_jsonl_row(b"a", b"1", 1_900_000_000_007, &mut out);
        let row = |expiry: &str| format!("{{\"key\":\"a\",\"value\":\"1\",\"expiry\":{expiry}}}\n");
        assert_eq!(String::from_utf8(out).unwrap(), row("7") + &row("1900000000.007"));
    }

    /// Of two members of one name the first one was lost.
    #[test]
    fn two_members_of_one_name_are_refused_if_they_are_read() {
        let text = r#"{"id":1,"x":2,"x":3}"#;
        for (key, value) in [("x", "id"), ("id", "x"), ("x", "")] {
            assert_eq!(
                rows(text, key, value)[0].as_ref().unwrap_err().1,
                "two members \"x\"",
                "{key} {value}"
            );
        }
        assert_eq!(rows(text, "id", ""), [Ok(("1".to_owned(), text.to_owned()))], "the value is the line");
        assert!(rows(r#"{"key":"a","key":"b","value":""}"#, "", "")[0].is_err());
    }

    #[test]
    fn bad_rows_are_reported_and_skipped() {
        let text = "{\"key\":\"a\",\"value\":\"b\"}\n[1]\n{\"key\":1,\"value\":\"\"}\n{\"key\":\"a\"}\n{\"key_base64\":\"?\"}\n\n";
        let found = rows(text, "", "");
        let bad: Vec<u64> = found.iter().filter_map(|r| r.as_ref().err().map(|(line, _)| *line)).collect();
        assert_eq!(bad, [2, 3, 4, 5, 6]);
    }
}
