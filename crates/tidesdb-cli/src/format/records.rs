//! Records of RFC 4180, of any bytes. A field is enclosed in quotes or contains none: what is neither is refused, not guessed.
//!
//! Lines end with a line feed, or a carriage return and a line feed; the last one may lack it. Empty lines are skipped, and so is the byte
//! order mark of a file.

use std::io::BufRead;

use super::{Lines, RowError};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads records, one after another.
pub(super) struct Records<R> {
    lines: Lines<R>,
    record: Record,
}

/// The fields of a record.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    /// Line on which it begins, from 1.
    pub(super) line: u64,
    bytes: Vec<u8>,
    /// End of each field in `bytes`.
    ends: Vec<usize>,
}

impl Record {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&[u8]> {
        let begin = if at == 0 { 0 } else { *self.ends.get(at - 1)? };
        self.bytes.get(begin..*self.ends.get(at)?)
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    fn end_field(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

/// Where the parser is in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another field, from this position.
    Field(usize),
    End,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(lines: Lines<R>) -> Self {
        Self { lines, record: Record::default() }
    }

    /// Reads the next record; `None` at the end. After a malformed record, reading goes on with the next line.
    pub(super) fn advance(&mut self) -> Result<Option<&Record>, RowError> {
        let mut begin = loop {
            if !self.lines.advance()? {
                return Ok(None);
            }
            let mark = self.lines.number == 1 && self.lines.line.starts_with(BYTE_ORDER_MARK);
            let begin = if mark { BYTE_ORDER_MARK.len() } else { 0 };
            if !matches!(&self.lines.line[begin..], b"" | b"\r") {
                break begin;
            }
        };
        self.record.line = self.lines.number;
        self.record.bytes.clear();
        self.record.ends.clear();
        loop {
            let quoted = self.lines.line.get(begin) == Some(&b'"');
            let next = if quoted { self.quoted(begin + 1)? } else { self.plain(begin)? };
            self.record.end_field();
            match next {
                Next::Field(at) => begin = at,
                Next::End => return Ok(Some(&self.record)),
            }
        }
    }

    fn bad<T>(&self, why: &str) -> Result<T, RowError> {
        Err(RowError::Bad { line: self.lines.number, why: why.to_owned() })
    }

    /// Reads a field without quotes.
    fn plain(&mut self, begin: usize) -> Result<Next, RowError> {
        let rest = &self.lines.line[begin..];
        let (field, next) = match rest.iter().position(|b| *b == b',') {
            Some(comma) => (&rest[..comma], Next::Field(begin + comma + 1)),
            None => (rest.strip_suffix(b"\r").unwrap_or(rest), Next::End),
        };
        if field.contains(&b'"') {
            return self.bad("a quote inside of a field that does not begin with one");
        }
        if field.contains(&b'\r') {
            return self.bad("a carriage return without a line feed, outside of quotes");
        }
        self.record.bytes.extend_from_slice(field);
        Ok(next)
    }

    /// Reads a field behind its quote, up to the closing one, which may be on a later line.
    fn quoted(&mut self, mut at: usize) -> Result<Next, RowError> {
        let opened = self.lines.number;
        loop {
            let rest = &self.lines.line[at..];
            let Some(quote) = rest.iter().position(|b| *b == b'"') else {
                self.record.bytes.extend_from_slice(rest);
                self.record.bytes.push(b'\n');
                self.lines.check_length(self.record.bytes.len())?;
                if !self.lines.is_ended || !self.lines.advance()? {
                    let why = "a quote that is not closed before the end of the input".to_owned();
                    return Err(RowError::Bad { line: opened, why });
                }
                at = 0;
                continue;
            };
            self.record.bytes.extend_from_slice(&rest[..quote]);
            at += quote + 1;
            match &self.lines.line[at..] {
                [b'"', ..] => {
                    self.record.bytes.push(b'"');
                    at += 1;
                }
                [b',', ..] => return Ok(Next::Field(at + 1)),
                b"" | b"\r" => return Ok(Next::End),
                _ => return self.bad("text after the quote that closes a field"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record or what is wrong with it, with its line.
    type Read = Result<(u64, Vec<String>), (u64, String)>;

    fn read(text: &[u8]) -> Vec<Read> {
        let mut records = Records::new(Lines::new(text));
        let mut out = Vec::new();
        loop {
            let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
            out.push(match records.advance() {
                Ok(None) => return out,
                Ok(Some(record)) => Ok((record.line, record.fields().map(text).collect())),
                Err(RowError::Bad { line, why }) => Err((line, why)),
                Err(e) => panic!("{e:?}"),
            });
        }
    }

    fn fields(text: &str) -> Vec<Vec<String>> {
        read(text.as_bytes()).into_iter().map(|record| record.unwrap().1).collect()
    }

    #[test]
    fn records_of_the_standard() {
        for (text, wanted) in [
            ("a,b\n", &[&["a", "b"][..]][..]),
            ("a,b\r\nc,d", &[&["a", "b"], &["c", "d"]]),
            ("\"a\",\"b\"\r\n\"c\"\r\n", &[&["a", "b"], &["c"]]),
            ("\"a\"\"b\",\"\",,\"\"\"\"\n", &[&["a\"b", "", "", "\""]]),
            ("\"a\r\nb\n\n\",c\n", &[&["a\r\nb\n\n", "c"]]),
            ("\n\r\na\n\n\nb\n\n", &[&["a"], &["b"]]),
            ("\u{feff}a,\u{feff}b\n", &[&["a", "\u{feff}b"]]),
            ("\u{feff}\"a\"\n", &[&["a"]]),
            (",\n", &[&["", ""]]),
            (" a , b \n", &[&[" a ", " b "]]),
            ("\"\"\n", &[&[""]]),
            ("", &[]),
        ] {
            assert_eq!(fields(text), wanted, "{text:?}");
        }
        let lines: Vec<u64> = read(b"\na\n\"b\n\",1\n\nc").into_iter().map(|r| r.unwrap().0).collect();
        assert_eq!(lines, [2, 3, 6], "the lines on which records begin");
        assert_eq!(read(b"\xff,\"\x00\n\xfe\"")[0].as_ref().unwrap().1.len(), 2, "any bytes");
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_line() {
        for (text, line, why) in [
            ("\"1\"x\n", 1, "after the quote"),
            ("a,\"1\" \n", 1, "after the quote"),
            ("a\n\"b\nc\"\"\"d\n", 3, "after the quote"),
            ("a\"b\n", 1, "inside of a field"),
            ("x,\n,a\"\n", 2, "inside of a field"),
            ("a\rb\n", 1, "carriage return"),
            ("a\r\r\n", 1, "carriage return"),
            ("x\n\"a\n\nb,c\n", 2, "not closed"),
            ("\"", 1, "not closed"),
            ("\"a\n", 1, "not closed"),
            ("a,\"b\"\"", 1, "not closed"),
            ("\"a\r", 1, "not closed"),
        ] {
            let found = read(text.as_bytes());
            let (at, said) = found.iter().find_map(|record| record.as_ref().err()).expect(text);
            assert!(*at == line && said.contains(why), "{text:?}: line {at}: {said}");
        }
        let found = read(b"a\n\"1\"x,y\nb\n");
        assert!(found[1].is_err() && found[2] == Ok((3, vec!["b".to_owned()])), "{found:?}");
    }

    /// Whatever is written as the standard says is read back; whatever is read and written again is the same.
    #[test]
    fn random_text_is_read_as_written_or_refused() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: u64| {
            // xorshift64* (Vigna, 2016)
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
        };
        let mut refused = 0;
        for _ in 0..20_000 {
            let text: Vec<u8> = (0..draw(12)).map(|_| b"\",\n\rab"[draw(6) as usize]).collect();
            let found = read(&text);
            if found.iter().any(Result::is_err) {
                refused += 1;
                continue;
            }
            let mut again = Vec::new();
            for (_, fields) in found.iter().flatten() {
                for (n, field) in fields.iter().enumerate() {
                    if n > 0 {
                        again.push(b',');
                    }
                    again.extend(format!("\"{}\"", field.replace('"', "\"\"")).bytes());
                }
                again.push(b'\n');
            }
            let all = |found: &[Read]| {
                found.iter().map(|record| record.as_ref().unwrap().1.clone()).collect::<Vec<_>>()
            };
            assert_eq!(all(&read(&again)), all(&found), "{text:?}");
            // No quote is lost: outside of doubled ones they enclose fields, in pairs.
            let quotes = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'"').count();
            assert_eq!(quotes(&text) % 2, 0, "{text:?}");
        }
        assert!((5_000..19_000).contains(&refused), "{refused}");
    }
}
