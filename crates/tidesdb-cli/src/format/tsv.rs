//! Lines `KEY<TAB>VALUE`. The first tab ends the key; the value may contain more tabs.
//!
//! A line ends at a line feed and nothing else is trimmed, unless lines end as on Windows. With escapes, `\t \n \r \0 \\ \xHH` stand for their bytes;
//! only what a line cannot contain is written escaped, so plain text stays unchanged. `\@SECONDS` at the end of a line is
//! the expiry of the row; rows that never expire have none.

use std::io::BufRead;

use super::{Lines, Row, RowError, Rows, parse_expiry, show_expiry};
use crate::text::{self, Escape};

/// Reads rows.
pub(crate) struct TsvRows<R> {
    lines: Lines<R>,
    escapes: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: BufRead> TsvRows<R> {
    /// Creates a reader of the rows of `input`; without `escapes` a backslash is an ordinary byte.
    pub(crate) fn new(input: R, escapes: bool) -> Self {
        Self { lines: Lines::new(input), escapes, key: Vec::new(), value: Vec::new() }
    }

    /// Makes a carriage return before a line feed a part of the end of the line, if `crlf` is set.
    pub(crate) fn with_crlf(mut self, crlf: bool) -> Self {
        self.lines.crlf = crlf;
        self
    }
}

impl<R: BufRead> Rows for TsvRows<R> {
    fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let line = self.lines.number;
        let text = &*self.lines.line;
        let bad = |why: String| RowError::Bad { line, why };
        let Some(tab) = text.iter().position(|b| *b == b'\t') else {
            return Err(bad("no tab between key and value".to_owned()));
        };
        let (mut key, mut value) = (&text[..tab], &text[tab + 1..]);
        let mut expiry = 0;
        if self.escapes && text.contains(&b'\\') {
            if let Some(at) = expiry_mark(value) {
                let seconds = &value[at + MARK.len()..];
                if seconds.is_empty() {
                    return Err(bad("expiry: no seconds after \\@".to_owned()));
                }
                expiry = parse_expiry(seconds).map_err(bad)?;
                value = &value[..at];
            }
            self.key.clear();
            self.value.clear();
            text::unescape(key, &mut self.key).map_err(|e| bad(format!("key: {e}")))?;
            text::unescape(value, &mut self.value).map_err(|e| bad(format!("value: {e}")))?;
            (key, value) = (&self.key, &self.value);
        }
        Ok(Some(Row { line, key, value, expiry }))
    }
}

/// Precedes the expiry of a row.
const MARK: &[u8] = b"\\@";

/// Returns the position of the mark in a value with escapes. Skips an escape, a backslash and the next byte, as a whole.
fn expiry_mark(value: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = value[at..].iter().position(|b| *b == b'\\') {
        at += found;
        if value[at..].starts_with(MARK) {
            return Some(at);
        }
        at = (at + 2).min(value.len());
    }
    None
}

/// Appends a row that expires at `expiry`; 0 = never.
pub(crate) fn write_tsv_row(key: &[u8], value: &[u8], expiry: u64, out: &mut Vec<u8>) {
    text::escape(key, Escape::Key, out);
    out.push(b'\t');
    text::escape(value, Escape::Value, out);
    if expiry > 0 {
        out.extend_from_slice(MARK);
        out.extend_from_slice(show_expiry(expiry).as_bytes());
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_all, read_whole};
    use super::*;

    #[test]
    fn first_tab_splits_and_escapes_resolve() {
        let text = b"a\tb\tc\n\\x41\\t\t\\n\\\\\nlast\t";
        let rows = read_all(&mut TsvRows::new(&text[..], true));
        let row = |k: &[u8], v: &[u8]| Ok((k.to_vec(), v.to_vec()));
        assert_eq!(rows, [row(b"a", b"b\tc"), row(b"A\t", b"\n\\"), row(b"last", b"")]);
    }

    #[test]
    fn without_escapes_a_backslash_is_a_byte() {
        let rows = read_all(&mut TsvRows::new(&b"C:\\dir\tx\\q\r\n"[..], false));
        assert_eq!(rows, [Ok((b"C:\\dir".to_vec(), b"x\\q\r".to_vec()))]);
    }

    #[test]
    fn lines_that_end_as_on_windows() {
        let text = b"a\t1\r\nb\t2\r\r\nc\t3\\@5\r\nd\t4\r";
        let rows = read_whole(&mut TsvRows::new(&text[..], true).with_crlf(true));
        let row = |k: &[u8], v: &[u8], expiry| Ok((k.to_vec(), v.to_vec(), expiry));
        assert_eq!(
            rows,
            [row(b"a", b"1", 0), row(b"b", b"2\r", 0), row(b"c", b"3", 5000), row(b"d", b"4", 0)]
        );
    }

    #[test]
    fn bad_rows_are_reported_and_skipped() {
        let rows = read_all(&mut TsvRows::new(&b"a\tb\nno\n\nc\\q\td\ne\tf\\x1\ng\th\n"[..], true));
        let lines: Vec<u64> = rows.iter().filter_map(|r| r.as_ref().err().map(|(line, _)| *line)).collect();
        assert_eq!(lines, [2, 3, 4, 5]);
        assert_eq!(rows.iter().filter(|r| r.is_ok()).count(), 2);
        assert!(rows[3].as_ref().unwrap_err().1.starts_with("key: unknown escape"));
    }

    #[test]
    fn plain_rows_are_written_unchanged() {
        let mut out = Vec::new();
        write_tsv_row(b"key", b"a\tb \xff\r", 0, &mut out);
        assert_eq!(out, b"key\ta\tb \xff\r\n");
    }

    #[test]
    fn expiry_follows_the_value() {
        let mut out = Vec::new();
        write_tsv_row(b"k", b"v", 1_900_000_000_000, &mut out);
        assert_eq!(out, b"k\tv\\@1900000000\n");
        out.clear();
        write_tsv_row(b"k", b"v", 1_900_000_000_250, &mut out);
        assert_eq!(out, b"k\tv\\@1900000000.250\n");
        let text = b"a\tv\\@5\nb\tv\\\\@5\nc\tv\\\\\\@5\nd\t\\@4294967295.007\ne\t\\@0\n";
        let row = |k: &[u8], v: &[u8], expiry| Ok((k.to_vec(), v.to_vec(), expiry));
        let expected = [
            row(b"a", b"v", 5000),
            row(b"b", b"v\\@5", 0),
            row(b"c", b"v\\", 5000),
            row(b"d", b"", 4_294_967_295_007),
        ];
        let rows = read_whole(&mut TsvRows::new(&text[..], true));
        assert_eq!((&rows[..4], &rows[4]), (&expected[..], &row(b"e", b"", 0)));
        for bad in ["a\t\\@", "a\t\\@x", "a\t\\@281474976710.656", "a\t\\@5\tx", "a\t\\@5\\@5", "\\@5\tx"] {
            assert!(read_whole(&mut TsvRows::new(bad.as_bytes(), true))[0].is_err(), "{bad}");
        }
        assert_eq!(read_whole(&mut TsvRows::new(&b"a\tv\\@5\n"[..], false)), [row(b"a", b"v\\@5", 0)]);
    }
}
