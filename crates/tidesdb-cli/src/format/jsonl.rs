//! JSON objects, one on a line.
//!
//! The own form has the members `key` and `value`, strings; bytes that are not UTF-8 are in base64 in `key_base64` and
//! `value_base64`. Any other objects can be read by naming the member that is the key; the value is then another
//! member, or the line as it stands.

use std::io::BufRead;

use serde_json::{Map, Value};

use super::{Lines, Row, RowError, Rows};
use crate::{output, text};

/// Which members are what; none named: the own form.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// Member that is the key.
    pub(crate) key: Option<String>,
    /// Member that is the value.
    pub(crate) value: Option<String>,
}

/// Reads rows.
pub(crate) struct JsonlRows<R> {
    lines: Lines<R>,
    fields: Fields,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: BufRead> JsonlRows<R> {
    /// Rows of `input`.
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
        let mut object: Map<String, Value> =
            serde_json::from_slice(&self.lines.line).map_err(|e| bad(format!("not a JSON object: {e}")))?;
        self.key = match &self.fields.key {
            Some(name) => member(&mut object, name),
            None => own_member(&mut object, "key"),
        }
        .map_err(bad)?;
        let whole = self.fields.key.is_some() && self.fields.value.is_none();
        if whole {
            let value = self.lines.line.trim_ascii();
            return Ok(Some(Row { line, key: &self.key, value }));
        }
        self.value = match &self.fields.value {
            Some(name) => member(&mut object, name),
            None => own_member(&mut object, "value"),
        }
        .map_err(bad)?;
        Ok(Some(Row { line, key: &self.key, value: &self.value }))
    }
}

/// A member of any kind: strings without quotes, all else as JSON.
fn member(object: &mut Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    match object.get_mut(name).map(Value::take) {
        None => Err(format!("no member {name:?}")),
        Some(Value::String(text)) => Ok(text.into_bytes()),
        Some(other) => Ok(other.to_string().into_bytes()),
    }
}

/// A string, or base64 under the other name.
fn own_member(object: &mut Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let encoded = format!("{name}_base64");
    match (object.get_mut(name).map(Value::take), object.get(&encoded)) {
        (Some(Value::String(text)), None) => Ok(text.into_bytes()),
        (None, Some(Value::String(text))) => text::unbase64(text).ok_or(format!("{encoded:?} is not base64")),
        (None, None) => {
            Err(format!("no member {name:?}; for other objects name the key's member with --key"))
        }
        _ => Err(format!("needs a string in {name:?} or in {encoded:?}, and not both")),
    }
}

/// Appends a row in the own form.
pub(crate) fn write_jsonl_row(key: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(output::row_json(key, Some(value)).to_string().as_bytes());
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::read_all;
    use super::*;

    fn rows(text: &str, key: &str, value: &str) -> Vec<Result<(String, String), (u64, String)>> {
        let own = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let text_of = |b: Vec<u8>| String::from_utf8(b).unwrap();
        let read =
            read_all(&mut JsonlRows::new(text.as_bytes(), Fields { key: own(key), value: own(value) }));
        read.into_iter().map(|row| row.map(|(k, v)| (text_of(k), text_of(v)))).collect()
    }

    #[test]
    fn own_form() {
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
    fn bad_rows_are_named_and_passed() {
        let text = "{\"key\":\"a\",\"value\":\"b\"}\n[1]\n{\"key\":1,\"value\":\"\"}\n{\"key\":\"a\"}\n{\"key_base64\":\"?\"}\n\n";
        let found = rows(text, "", "");
        let bad: Vec<u64> = found.iter().filter_map(|r| r.as_ref().err().map(|(line, _)| *line)).collect();
        assert_eq!(bad, [2, 3, 4, 5, 6]);
    }
}
