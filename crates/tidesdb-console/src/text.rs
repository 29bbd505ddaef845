//! Bytes as text, and back: escapes, base64, words of a command line, readable numbers.
//!
//! The escapes are `\t`, `\n`, `\r`, `\0`, `\\` and `\xHH`. [`unescape`] restores the output of [`escape`] byte for byte.

use std::borrow::Cow;
use std::fmt::Write;

/// Which bytes get an escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// Only what a key in a TSV line cannot contain: backslash, tab, line feed.
    Key,
    /// Only what a value in a TSV line cannot contain: backslash, line feed.
    Value,
    /// Also control characters and bytes that are not UTF-8, for display.
    Terminal,
}

/// Appends `bytes` with escapes.
pub fn escape(bytes: &[u8], how: Escape, out: &mut Vec<u8>) {
    if how == Escape::Terminal {
        return escape_for_terminal(bytes, out);
    }
    let special = |b: &u8| matches!(b, b'\\' | b'\n') || (*b == b'\t' && how == Escape::Key);
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(special) {
        out.extend_from_slice(&rest[..at]);
        push_escape(rest[at], out);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

fn escape_for_terminal(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => push_escape(b'\\', out),
                c if c.is_control() => {
                    let mut buf = [0; 4];
                    c.encode_utf8(&mut buf).bytes().for_each(|b| push_escape(b, out));
                }
                c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        chunk.invalid().iter().for_each(|b| push_escape(*b, out));
    }
}

fn push_escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'\\' => b'\\',
        b'\t' => b't',
        b'\n' => b'n',
        b'\r' => b'r',
        _ => {
            out.extend_from_slice(format!("\\x{byte:02x}").as_bytes());
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// Returns `text` with an escape in the place of each control character, except line feed and tab: a terminal acts on the others. For
/// messages, which contain names and paths of somebody else. A backslash stays as it is.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + 16);
    for c in text.chars() {
        let mut buf = [0; 4];
        let bytes = c.encode_utf8(&mut buf).as_bytes();
        match acts(c) {
            true => bytes.iter().for_each(|b| push_escape(*b, &mut out)),
            false => out.extend_from_slice(bytes),
        }
    }
    Cow::Owned(String::from_utf8(out).unwrap_or_default())
}

/// True for characters that a terminal acts on, except those that end a line or separate columns.
fn acts(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// Like [`plain`], for any bytes: what is not UTF-8 gets escapes. Returns how many bytes were used: all but an incomplete character at the end.
pub(crate) fn plain_bytes(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let mut rest = bytes;
    loop {
        let (valid, invalid) = match std::str::from_utf8(rest) {
            Ok(valid) => (valid, Some(0)),
            Err(e) => {
                let valid = std::str::from_utf8(&rest[..e.valid_up_to()]).unwrap_or_default();
                (valid, e.error_len())
            }
        };
        out.extend_from_slice(plain(valid).as_bytes());
        rest = &rest[valid.len()..];
        match invalid {
            None | Some(0) => return bytes.len() - rest.len(),
            Some(len) => {
                rest[..len].iter().for_each(|b| push_escape(*b, out));
                rest = &rest[len..];
            }
        }
    }
}

/// Returns JSON text with an escape in the place of each control character. They are parts of strings: serde_json escapes the others.
pub fn plain_json(text: String) -> String {
    // The first byte of each of them: 7f, or c2 before 80 to 9f.
    if !text.bytes().any(|b| b == 0x7f || b == 0xc2) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c.is_control() {
            true => drop(write!(out, "\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

/// Returns `bytes` as text for a terminal or a message.
pub fn printable(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    escape(bytes, Escape::Terminal, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends `text` with its escapes resolved.
///
/// # Errors
/// Names the unknown escape.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| *b == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let (byte, used) = resolve(rest)?;
        out.push(byte);
        rest = &rest[used..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Returns the byte that the escape after a backslash stands for, and the length of the escape.
fn resolve(rest: &[u8]) -> Result<(u8, usize), String> {
    let byte = match rest.first() {
        Some(b't') => b'\t',
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b'0') => 0,
        Some(b'\\') => b'\\',
        Some(b'x') => {
            let digits = rest.get(1..3).and_then(|d| std::str::from_utf8(d).ok());
            let byte = digits.filter(|d| !d.starts_with('+')).and_then(|d| u8::from_str_radix(d, 16).ok());
            return byte.map(|b| (b, 3)).ok_or_else(|| r"\x needs two hexadecimal digits".to_owned());
        }
        Some(other) => {
            return Err(format!(r"unknown escape \{}; write a backslash as \\", printable(&[*other])));
        }
        None => return Err(r"a backslash at the end; write a backslash as \\".to_owned()),
    };
    Ok((byte, 1))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes `bytes` in base64 with padding (RFC 4648, section 4).
pub fn base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let n = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let digit = BASE64[(n >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

/// Decodes base64; `None` unless `text` is canonical base64.
pub fn unbase64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let digits = text.trim_end_matches('=');
    for chunk in digits.as_bytes().chunks(4) {
        let mut n = 0u32;
        for digit in chunk {
            n = n << 6 | BASE64.iter().position(|b| b == digit)? as u32;
        }
        n <<= 6 * (4 - chunk.len());
        let bytes = [(n >> 16) as u8, (n >> 8) as u8, n as u8];
        out.extend_from_slice(&bytes[..chunk.len().checked_sub(1)?]);
    }
    (base64(&out) == text).then_some(out)
}

/// Splits a command line into words, separated by blanks. `'...'` is literal, `"..."` may contain escapes and `\"`.
///
/// # Errors
/// An unmatched quote, or an unknown escape.
pub fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut out = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        rest = one_word(rest, &mut word)?.trim_start();
        out.push(word);
    }
    Ok(out)
}

/// Reads a word from the front of `rest`; returns the rest after it.
fn one_word<'a>(mut rest: &'a str, word: &mut Vec<u8>) -> Result<&'a str, String> {
    while let Some(c) = rest.chars().next().filter(|c| !c.is_whitespace()) {
        let after = &rest[c.len_utf8()..];
        match c {
            '\'' => {
                let end = after.find('\'').ok_or("unmatched '")?;
                word.extend_from_slice(&after.as_bytes()[..end]);
                rest = &after[end + 1..];
            }
            '"' => {
                let end = end_of_quote(after).ok_or("unmatched \"")?;
                let inner = after[..end].replace("\\\"", "\\x22");
                unescape(inner.as_bytes(), word)?;
                rest = &after[end + 1..];
            }
            _ => {
                word.extend_from_slice(&rest.as_bytes()[..c.len_utf8()]);
                rest = after;
            }
        }
    }
    Ok(rest)
}

/// Returns the position of the closing `"`.
fn end_of_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|b| {
        let end = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        end
    })
}

/// Formats a number with separated thousands.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a number of bytes with a unit.
pub fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut scaled = bytes as f64;
    let mut unit = "B";
    for larger in units {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{scaled:.1} {unit}") }
}

/// Formats a time in the unit that suits it.
pub fn time(secs: f64) -> String {
    match secs {
        secs if secs < 1e-3 => format!("{:.1} us", secs * 1e6),
        secs if secs < 1.0 => format!("{:.2} ms", secs * 1e3),
        secs => format!("{secs:.2} s"),
    }
}

/// Formats a time that somebody waits for, in whole seconds.
pub fn span(secs: f64) -> String {
    match secs.round() as u64 {
        s if s >= 3600 => format!("{} h {:02} min", s / 3600, s / 60 % 60),
        s if s >= 60 => format!("{} min {:02} s", s / 60, s % 60),
        s => format!("{s} s"),
    }
}

/// Formats rows and bytes in a time, with their rates.
pub fn rates(rows: u64, bytes: u64, secs: f64) -> String {
    let secs = secs.max(1e-6);
    let mut out = format!("{secs:.2} s");
    let per_second = grouped((rows as f64 / secs) as u64);
    // Writing to a string cannot fail.
    let _ = write!(out, ", {per_second} rows/s, {}/s", size((bytes as f64 / secs) as u64));
    out
}

/// Formats `n` with the singular or plural noun.
pub fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        assert_eq!([0.4, 59.6, 3725.0].map(span), ["0 s", "1 min 00 s", "1 h 02 min"]);
    }

    #[test]
    fn times_have_a_unit_that_suits_them() {
        assert_eq!([2.5e-5, 0.0025, 1.5, 90.0].map(time), ["25.0 us", "2.50 ms", "1.50 s", "90.00 s"]);
    }

    fn escaped(bytes: &[u8], how: Escape) -> Vec<u8> {
        let mut out = Vec::new();
        escape(bytes, how, &mut out);
        out
    }

    #[test]
    fn any_bytes_survive_escaping() {
        let all: Vec<u8> = (0..=255).chain([b'\\', b'\\', b'x', b'4', b'1', b'\\', b'\n']).collect();
        for how in [Escape::Key, Escape::Value, Escape::Terminal] {
            let text = escaped(&all, how);
            assert!(!text.contains(&b'\n'));
            assert_eq!(text.contains(&b'\t'), how == Escape::Value);
            let mut back = Vec::new();
            unescape(&text, &mut back).unwrap();
            assert_eq!(back, all, "{how:?}");
        }
    }

    #[test]
    fn terminals_get_no_control_characters() {
        let text = escaped("a\u{1b}[31m\u{9b}\u{e9}\u{85}\u{ff}".as_bytes(), Escape::Terminal);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, "a\\x1b[31m\\xc2\\x9b\u{e9}\\xc2\\x85\u{ff}");
        assert_eq!(printable(b"\xff\x00ok"), r"\xff\x00ok");
    }

    #[test]
    fn messages_and_json_contain_no_control_characters() {
        let hostile = "a\u{1b}]0;x\u{7}\r\u{9b}2J\u{7f}\\d\tb\n";
        assert_eq!(plain(hostile), "a\\x1b]0;x\\x07\\r\\xc2\\x9b2J\\x7f\\d\tb\n");
        assert!(matches!(plain("a\tb\n\u{e9}"), Cow::Borrowed(_)));
        let json = plain_json(serde_json::Value::from(hostile).to_string());
        assert!(!json.contains(char::is_control), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    /// However the bytes are cut, the text is the same.
    #[test]
    fn bytes_become_text_piece_by_piece() {
        let all = "a\u{1b}[1m\u{e9}\u{85}\u{1f40b}\n".as_bytes();
        let all = [all, b"\xff\xe9x\xf0\x9f\t"].concat();
        let mut whole = Vec::new();
        assert_eq!(plain_bytes(&all, &mut whole), all.len());
        assert_eq!(
            String::from_utf8(whole.clone()).unwrap(),
            "a\\x1b[1m\u{e9}\\xc2\\x85\u{1f40b}\n\\xff\\xe9x\\xf0\\x9f\t"
        );
        for cut in 1..all.len() {
            let (mut out, mut tail) = (Vec::new(), Vec::new());
            for part in all.chunks(cut) {
                tail.extend_from_slice(part);
                let used = plain_bytes(&tail, &mut out);
                tail.drain(..used);
                assert!(tail.len() < 4, "an incomplete character");
            }
            assert!(tail.is_empty() && out == whole, "{cut}");
        }
    }

    #[test]
    fn wrong_escapes_are_named() {
        let bad = |text: &str| unescape(text.as_bytes(), &mut Vec::new()).unwrap_err();
        assert!(bad(r"C:\dir").contains(r"unknown escape \d"));
        assert!(bad(r"\x4").contains("two hexadecimal digits"));
        assert!(bad(r"\x+4").contains("two hexadecimal digits"));
        assert!(bad("end\\").contains("at the end"));
    }

    #[test]
    fn base64_both_ways() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd", "//79")]
        {
            assert_eq!(base64(bytes), text);
            assert_eq!(unbase64(text).unwrap(), bytes);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unbase64(&base64(&all)).unwrap(), all);
        for bad in ["Zg", "Zh==", "Z", "====", "Zm9v=", "Zm 9"] {
            assert_eq!(unbase64(bad), None, "{bad}");
        }
    }

    #[test]
    fn words_know_quotes() {
        let of = |line: &str| words(line).unwrap();
        assert_eq!(of("  put a  b "), [b"put", &b"a"[..], b"b"]);
        assert_eq!(of(r#"'a \x' "b \x41\"\\" pre'fix'"x""#), [&br"a \x"[..], br#"b A"\"#, b"prefixx"]);
        assert_eq!(of("''"), [b""]);
        assert!(words("'a").is_err() && words(r#""a\""#).is_err() && words(r#""\q""#).is_err());
        assert!(of("").is_empty());
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(count(1, "row", "rows"), "1 row");
    }
}
