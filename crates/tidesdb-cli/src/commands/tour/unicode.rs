//! The data of the tour: Unicode's list of characters, compiled into the program. See `data/unicode`.

/// `UnicodeData.txt`: one line per character, fields separated by semicolons.
const DATA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/unicode/UnicodeData.txt"));

/// A line of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Character<'a> {
    /// Code point of the character.
    pub(super) code: u32,
    /// All fields after the code point, unchanged.
    pub(super) fields: &'a str,
}

/// Returns all lines.
pub(super) fn characters() -> impl Iterator<Item = Character<'static>> + Clone {
    DATA.lines().filter_map(|line| {
        let (code, fields) = line.split_once(';')?;
        Some(Character { code: u32::from_str_radix(code, 16).ok()?, fields })
    })
}

/// Returns the key of a character, with a fixed number of digits, so that byte order equals numeric order.
pub(super) fn key(code: u32) -> String {
    format!("U+{code:06X}")
}

/// Returns the code point in a key.
pub(super) fn code(key: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(key).ok()?.strip_prefix("U+")?, 16).ok()
}

/// Returns the name in the fields of a character.
pub(super) fn name(fields: &[u8]) -> String {
    let end = fields.iter().position(|b| *b == b';').unwrap_or(fields.len());
    String::from_utf8_lossy(&fields[..end]).into_owned()
}

/// Returns the general category in the fields of a character.
pub(super) fn category(fields: &[u8]) -> &[u8] {
    fields.split(|b| *b == b';').nth(1).unwrap_or_default()
}

/// Formats a row for display: the character itself, its key, and its name.
pub(super) fn pretty(key: &[u8], fields: &[u8]) -> String {
    let visible = !matches!(category(fields).first(), Some(b'C' | b'Z' | b'M'));
    let symbol = code(key).and_then(char::from_u32).filter(|_| visible).unwrap_or(' ');
    format!("{symbol}  {}  {}", String::from_utf8_lossy(key), name(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_complete() {
        assert_eq!(DATA.lines().count(), 34_924);
        assert_eq!(characters().count(), 34_924);
        let keys: Vec<String> = characters().map(|c| key(c.code)).collect();
        assert!(keys.is_sorted(), "keys are in the order of the file");
        assert!(characters().all(|c| code(key(c.code).as_bytes()) == Some(c.code)));
    }

    #[test]
    fn fields() {
        let whale = characters().find(|c| c.code == 0x1F433).unwrap();
        assert_eq!(name(whale.fields.as_bytes()), "SPOUTING WHALE");
        assert_eq!(category(whale.fields.as_bytes()), b"So");
        assert_eq!(pretty(b"U+01F433", whale.fields.as_bytes()), "\u{1F433}  U+01F433  SPOUTING WHALE");
        assert_eq!(pretty(b"U+000007", b"<control>;Cc;0"), "   U+000007  <control>");
    }
}
