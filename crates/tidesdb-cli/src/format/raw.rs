//! JSON values as they were written: numbers keep their text, however long they are.
//!
//! A number that goes through a floating-point type loses digits: 18446744073709551616 and 18446744073709551617 would be one key.

use std::collections::HashMap;

use serde_json::value::RawValue;

/// The members of an object by name; the last of several with one name.
pub(super) type Members<'a> = HashMap<String, &'a RawValue>;

/// The string that a value is; `None` if it is something else, or if an escape in it stands for no character.
pub(super) fn string(value: &RawValue) -> Option<String> {
    if value.get().starts_with('"') { serde_json::from_str(value.get()).ok() } else { None }
}

/// Whether a value is null.
pub(super) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// A value of any kind without blanks between its parts. Strings in it have no needless escapes; numbers are as they were.
pub(super) fn compact(value: &RawValue) -> String {
    let mut rest = value.get();
    let mut out = String::with_capacity(rest.len());
    while let Some(c) = rest.chars().next() {
        let len = if c == '"' { literal(rest) } else { c.len_utf8() };
        let (part, after) = rest.split_at(len);
        rest = after;
        if c == '"' {
            out.push_str(&plain(part));
        } else if !c.is_ascii_whitespace() {
            out.push(c);
        }
    }
    out
}

/// Length of the string literal that `text` begins with.
fn literal(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|b| {
        let end = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        end
    });
    end.map_or(text.len(), |at| at + 2)
}

/// A string literal without needless escapes; as it is, if an escape stands for no character.
fn plain(literal: &str) -> String {
    let text = serde_json::from_str::<String>(literal);
    text.map_or_else(|_| literal.to_owned(), |text| serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(text: &str) -> String {
        compact(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn numbers_keep_their_text() {
        for number in [
            "0",
            "-0",
            "-0.0",
            "1.0",
            "1.10",
            "1e3",
            "1E3",
            "1e+3",
            "1E-0003",
            "1e400",
            "18446744073709551615",
            "18446744073709551616",
            "18446744073709551617",
            "-9223372036854775809",
            "0.1000000000000000055511151231257827021181583404541015625",
            "123456789012345678901234567890.12345678901234567890",
        ] {
            assert_eq!(compacted(number), number);
            assert_eq!(compacted(&format!(" [ {number} , {{ \"a\" : {number} }} ] ")), {
                format!("[{number},{{\"a\":{number}}}]")
            });
        }
    }

    #[test]
    fn strings_are_told_apart_by_what_they_say() {
        assert_eq!(compacted(r#" [ "\u0041 \" \\" , "a b" ] "#), r#"["A \" \\","a b"]"#);
        assert_eq!(compacted(r#"["\ud800 x", "y"]"#), r#"["\ud800 x","y"]"#, "half a character");
        assert_eq!(compacted(r#"{"$serde_json::private::Number": "7"}"#), {
            r#"{"$serde_json::private::Number":"7"}"#
        });
        let value: &RawValue = serde_json::from_str(r#" "\u0041" "#).unwrap();
        assert_eq!(string(value).as_deref(), Some("A"));
        assert_eq!(string(serde_json::from_str("7").unwrap()), None);
    }
}
