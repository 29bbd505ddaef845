//! JSON values as written in the input: numbers keep their text, whatever their length.
//!
//! A number converted to floating point loses digits: 18446744073709551616 and 18446744073709551617 would be the same key.

use serde_core::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object.
#[derive(Debug, Default)]
pub(super) struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Returns the member `name`. Of two members of one name, neither is guessed to be meant.
    pub(super) fn get(&self, name: &str) -> Result<Option<&'a RawValue>, String> {
        let mut named = self.0.iter().filter(|(other, _)| other == name);
        match (named.next(), named.next()) {
            (_, Some(_)) => Err(format!("two members {name:?}")),
            (found, None) => Ok(found.map(|(_, value)| *value)),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(member) = map.next_entry()? {
                    all.push(member);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_map(All).map(Members)
    }
}

/// Returns the string of a value; `None` if it is not a string, or if an escape in it is not a valid character.
pub(super) fn string(value: &RawValue) -> Option<String> {
    if value.get().starts_with('"') { serde_json::from_str(value.get()).ok() } else { None }
}

/// True if a value is null.
pub(super) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// Returns a value of any kind without blanks between its parts. Strings have no unnecessary escapes; numbers are unchanged.
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

/// Returns the length of the string literal at the start of `text`.
fn literal(text: &str) -> usize {
    let mut escaped = false;
    let end = text.bytes().skip(1).position(|b| {
        let end = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        end
    });
    end.map_or(text.len(), |at| at + 2)
}

/// Returns a string literal without unnecessary escapes; unchanged if an escape is not a valid character.
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
    fn strings_are_compared_by_their_decoded_value() {
        assert_eq!(compacted(r#" [ "\u0041 \" \\" , "a b" ] "#), r#"["A \" \\","a b"]"#);
        assert_eq!(compacted(r#"["\ud800 x", "y"]"#), r#"["\ud800 x","y"]"#, "an unpaired surrogate");
        assert_eq!(compacted(r#"{"$serde_json::private::Number": "7"}"#), {
            r#"{"$serde_json::private::Number":"7"}"#
        });
        let value: &RawValue = serde_json::from_str(r#" "\u0041" "#).unwrap();
        assert_eq!(string(value).as_deref(), Some("A"));
        assert_eq!(string(serde_json::from_str("7").unwrap()), None);
    }
}
