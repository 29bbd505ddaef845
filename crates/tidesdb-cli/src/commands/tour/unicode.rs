//! The data of the tour: Unicode's list of characters, part of the program itself. See `data/unicode`.

/// `UnicodeData.txt`: a line for each character, fields separated by semicolons.
const DATA: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/data/unicode/UnicodeData.txt"));

/// One line of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Character<'a> {
    /// Its number.
    pub(super) code: u32,
    /// All fields after the number, as they stand in the file.
    pub(super) fields: &'a str,
}

/// All lines.
pub(super) fn characters() -> impl Iterator<Item = Character<'static>> + Clone {
    DATA.lines().filter_map(|line| {
        let (code, fields) = line.split_once(';')?;
        Some(Character { code: u32::from_str_radix(code, 16).ok()?, fields })
    })
}

/// The key of a character: a fixed number of digits, so that byte order is the order of the numbers.
pub(super) fn key(code: u32) -> String {
    format!("U+{code:06X}")
}

/// The number in a key.
pub(super) fn code(key: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(key).ok()?.strip_prefix("U+")?, 16).ok()
}

/// The name in the fields of a character.
pub(super) fn name(fields: &[u8]) -> String {
    let end = fields.iter().position(|b| *b == b';').unwrap_or(fields.len());
    String::from_utf8_lossy(&fields[..end]).into_owned()
}

/// The general category in the fields of a character.
pub(super) fn category(fields: &[u8]) -> &[u8] {
    fields.split(|b| *b == b';').nth(1).unwrap_or_default()
}

/// A row for the eyes: the character itself, its key, and its name.
pub(super) fn pretty(key: &[u8], fields: &[u8]) -> String {
    let visible = !matches!(category(fields).first(), Some(b'C' | b'Z' | b'M'));
    let symbol = code(key).and_then(char::from_u32).filter(|_| visible).unwrap_or(' ');
    format!("{symbol}  {}  {}", String::from_utf8_lossy(key), name(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_whole() {
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
