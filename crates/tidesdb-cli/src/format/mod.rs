//! File formats of rows: TSV, CSV and JSON lines, read and written.
//!
//! Rows written in a format are read back byte for byte, whatever the keys and values contain, together with their expiry.
//! `docs/reference/cli.md` describes each format.

mod raw;
mod records;
mod csv;
mod jsonl;
mod tsv;

use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::text;

pub(crate) use self::csv::{Columns, CsvRows, write_csv_header, write_csv_row};
pub(crate) use self::jsonl::{Fields, JsonlRows, write_jsonl_row};
pub(crate) use self::tsv::{TsvRows, write_tsv_row};

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One line KEY<TAB>VALUE per row, with escapes; \@SECONDS after the value if it expires
    Tsv,
    /// Comma-separated values, with a header: key, value, expiry
    Csv,
    /// One JSON object per line
    Jsonl,
}

impl Format {
    /// Returns the format for a file's extension.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" | "tab" => Some(Self::Tsv),
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            _ => None,
        }
    }
}

/// Why a row could not be read.
#[derive(Debug)]
pub(crate) enum RowError {
    /// The input cannot be read.
    Io(io::Error),
    /// This row is malformed; reading can continue with the next one.
    Bad {
        /// Its line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The input as a whole does not match the options.
    Unfit(String),
}

impl From<io::Error> for RowError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// A row of the input, valid until the next is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) line: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Expiry in milliseconds of the UNIX epoch; 0 = never.
    pub(crate) expiry: u64,
}

/// Name of the column or member with the expiry of a row.
const EXPIRY: &str = "expiry";

/// The largest expiry that a row can have: 48 bits of milliseconds.
const EXPIRY_MAX: u64 = (1 << 48) - 1;

/// Returns `moment` in milliseconds since 1970.
pub(crate) fn millis_of(moment: SystemTime) -> u64 {
    let time = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(time.as_millis()).unwrap_or(EXPIRY_MAX)
}

/// Returns the moment `millis` milliseconds after 1970; `None` for 0, which means never.
pub(crate) fn moment_of(millis: u64) -> Option<SystemTime> {
    (millis > 0).then(|| UNIX_EPOCH + Duration::from_millis(millis.min(EXPIRY_MAX)))
}

/// Shows an expiry in seconds, with milliseconds where it has some.
fn show_expiry(expiry: u64) -> String {
    match (expiry / 1000, expiry % 1000) {
        (seconds, 0) => seconds.to_string(),
        (seconds, millis) => format!("{seconds}.{millis:03}"),
    }
}

/// Parses an expiry in seconds with at most three decimals; empty and 0 mean never. Returns milliseconds.
fn parse_expiry(text: &[u8]) -> Result<u64, String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(0);
    }
    millis_in(text).filter(|millis| *millis <= EXPIRY_MAX).ok_or_else(|| {
        format!(
            "expiry is {:?}, not a number of seconds since 1970 with at most three decimals up to {}",
            text::printable(text),
            show_expiry(EXPIRY_MAX)
        )
    })
}

/// Returns a number of seconds with at most three decimals, in milliseconds.
fn millis_in(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 3 {
        return None;
    }
    let millis: u64 = format!("{decimals:0<3}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(millis)
}

/// Reads rows one after another into a reused buffer.
pub(crate) trait Rows {
    /// Returns the next row; `None` at the end.
    fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError>;
}

/// The longest line, or record of a CSV file, that is read.
pub(crate) const LINE_BYTES_MAX: usize = 1 << 30;
/// Bytes of a line that are read at a time.
const PART_BYTES: usize = 64 << 10;
/// From this length on, a line is refused if there is no memory for the copies that are made of it.
const LONG_BYTES: usize = 4 << 20;
/// Copies of a line: its parts, the row in the batch, and the row in the log.
const COPIES: usize = 3;

/// Reads lines without their line feed. The last one may lack it. A line that is too long is refused, and reading goes on behind it.
pub(crate) struct Lines<R> {
    input: R,
    pub(crate) line: Vec<u8>,
    pub(crate) number: u64,
    /// True if the line had a line feed.
    is_ended: bool,
    /// True if a carriage return before the line feed belongs to the end of a line.
    crlf: bool,
    bytes_max: usize,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0, is_ended: false, crlf: false, bytes_max: LINE_BYTES_MAX }
    }

    /// Reads the next line; `false` at the end.
    pub(crate) fn advance(&mut self) -> Result<bool, RowError> {
        self.line.clear();
        self.is_ended = false;
        loop {
            // The allocator would end the process: room for a part first, and then the part.
            if self.line.try_reserve(PART_BYTES).is_err() {
                return self.refuse();
            }
            let part = (&mut self.input).take(PART_BYTES as u64).read_until(b'\n', &mut self.line)?;
            self.is_ended = part > 0 && self.line.last() == Some(&b'\n');
            if part == 0 || self.is_ended {
                break;
            }
            if self.line.len() > self.bytes_max {
                return self.refuse();
            }
        }
        if self.line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        if self.is_ended {
            self.line.pop();
        }
        if self.crlf && self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        self.check_length(self.line.len())?;
        Ok(true)
    }

    /// Refuses the rest of a line.
    fn refuse(&mut self) -> Result<bool, RowError> {
        self.number += 1;
        let len = std::mem::take(&mut self.line).len();
        self.input.skip_until(b'\n')?;
        self.check_length(len.saturating_add(1))?;
        Err(self.too_long(format!("there is no memory for a line of {} and more", text::size(len as u64))))
    }

    /// Refuses a row of `len` bytes if it is too long, or the memory has no room for what becomes of it.
    fn check_length(&self, len: usize) -> Result<(), RowError> {
        if len > self.bytes_max {
            return Err(self.too_long(format!(
                "longer than {}, the longest line that is read",
                text::size(self.bytes_max as u64)
            )));
        }
        if len > LONG_BYTES && Vec::<u8>::new().try_reserve_exact(len.saturating_mul(COPIES)).is_err() {
            return Err(self.too_long(format!("there is no memory for a line of {}", text::size(len as u64))));
        }
        Ok(())
    }

    fn too_long(&self, why: String) -> RowError {
        RowError::Bad { line: self.number, why }
    }
}

/// Counts the bytes that are read through it.
pub(crate) struct Counted<R> {
    input: R,
    read: Rc<Cell<u64>>,
}

impl<R> Counted<R> {
    /// Wraps `input` and returns the counter of bytes read from it.
    pub(crate) fn new(input: R) -> (Self, Rc<Cell<u64>>) {
        let read = Rc::new(Cell::new(0));
        (Self { input, read: Rc::clone(&read) }, read)
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buf)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}

/// Writes rows in a format, through a reused buffer.
pub(crate) struct RowWriter<W> {
    out: W,
    format: Format,
    /// True if the expiry is written.
    expiries: bool,
    scratch: Vec<u8>,
    bytes: u64,
    too_long: u64,
}

impl<W: Write> RowWriter<W> {
    /// Creates a writer of rows to `out`, with their expiry if `expiries`. Writes the header, if the format has one.
    pub(crate) fn new(out: W, format: Format, expiries: bool) -> io::Result<Self> {
        let mut this = Self { out, format, expiries, scratch: Vec::new(), bytes: 0, too_long: 0 };
        if format == Format::Csv {
            write_csv_header(expiries, &mut this.scratch);
        }
        this.emit()?;
        Ok(this)
    }

    /// Writes a row.
    pub(crate) fn write(&mut self, key: &[u8], value: &[u8], expiry: u64) -> io::Result<()> {
        self.scratch.clear();
        let known = self.expiries.then_some(expiry);
        match self.format {
            Format::Tsv => write_tsv_row(key, value, known.unwrap_or(0), &mut self.scratch),
            Format::Csv => write_csv_row(key, value, known, &mut self.scratch),
            Format::Jsonl => write_jsonl_row(key, value, known.unwrap_or(0), &mut self.scratch),
        }
        self.emit()
    }

    fn emit(&mut self) -> io::Result<()> {
        self.bytes += self.scratch.len() as u64;
        self.too_long += u64::from(self.scratch.len() > LINE_BYTES_MAX);
        self.out.write_all(&self.scratch)
    }

    /// Returns the number of bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of rows that are too long to be read again.
    pub(crate) fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Finishes the output.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row, or the line number of a bad row and the reason.
    type Read = Result<(Vec<u8>, Vec<u8>), (u64, String)>;
    /// The same with the expiry.
    type ReadWhole = Result<(Vec<u8>, Vec<u8>, u64), (u64, String)>;

    /// Reads all rows of `rows`.
    pub(super) fn read_whole(rows: &mut dyn Rows) -> Vec<ReadWhole> {
        let mut out = Vec::new();
        loop {
            match rows.next_row() {
                Ok(Some(row)) => out.push(Ok((row.key.to_vec(), row.value.to_vec(), row.expiry))),
                Ok(None) => return out,
                Err(RowError::Bad { line, why }) => out.push(Err((line, why))),
                Err(e) => panic!("{e:?}"),
            }
        }
    }

    /// Reads all rows of `rows`, which never expire.
    pub(super) fn read_all(rows: &mut dyn Rows) -> Vec<Read> {
        let never = |(key, value, expiry)| {
            assert_eq!(expiry, 0);
            (key, value)
        };
        read_whole(rows).into_iter().map(|row| row.map(never)).collect()
    }

    /// Rows with every byte, alone and between others, as key and as value.
    fn hostile() -> Vec<(Vec<u8>, Vec<u8>, u64)> {
        let mut rows = Vec::new();
        for b in 0..=255u8 {
            let expiry = EXPIRY_MAX / 255 * u64::from(b); // up to the largest expiry
            rows.push((vec![b], vec![b], expiry));
            rows.push((vec![b'k', b, b'k'], vec![b'v', b, b, b'v'], 0));
            rows.push((vec![b, b'"', b], vec![b'\\', b], expiry));
        }
        rows.push((b"empty".to_vec(), Vec::new(), 0));
        rows.push((b"empty that expires".to_vec(), Vec::new(), 7));
        rows.push((b"\\@5".to_vec(), b"\\@5".to_vec(), 0));
        rows.push((b"\\\\@5".to_vec(), b"\\\\@5".to_vec(), 6));
        rows.push((b"\\x41\\t".to_vec(), b"\"\",\r\n,\t\\".to_vec(), 0));
        rows.push((b"\xef\xbb\xbfkey".to_vec(), "\u{1f40b}\u{2028}\u{feff}".as_bytes().to_vec(), 1));
        rows.push(((0..=255).collect(), (0..=255).rev().collect(), 0));
        rows
    }

    /// Returns random rows with many bytes that have a meaning in the formats.
    fn random(seed: u64, count: usize) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
        let mut state = seed;
        let mut next = move || {
            // xorshift64* (Vigna, 2016)
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize
        };
        let mut bytes = |longest: usize| -> Vec<u8> {
            const MEANT: &[u8] = b"\\\\\\@@0123456789\t\n\r\"\",,{}[]:xtnr \xff\0";
            let len = next() % (longest + 1);
            let one = |_| if next() % 4 == 0 { next() as u8 } else { MEANT[next() % MEANT.len()] };
            (0..len).map(one).collect()
        };
        let mut row = || {
            let expiry = bytes(6).iter().fold(0, |n, b| n << 8 | u64::from(*b));
            ([&bytes(1)[..], b"k", &bytes(12)].concat(), bytes(20), expiry)
        };
        (0..count).map(|_| row()).collect()
    }

    fn round_trip(format: Format, expiries: bool, rows: &[(Vec<u8>, Vec<u8>, u64)]) -> Vec<ReadWhole> {
        let mut writer = RowWriter::new(Vec::new(), format, expiries).unwrap();
        for (key, value, expiry) in rows {
            writer.write(key, value, *expiry).unwrap();
        }
        let text = writer.finish().unwrap();
        let mut rows: Box<dyn Rows> = match format {
            Format::Tsv => Box::new(TsvRows::new(&text[..], true)),
            Format::Csv => Box::new(CsvRows::new(&text[..], Default::default())),
            Format::Jsonl => Box::new(JsonlRows::new(&text[..], Default::default())),
        };
        read_whole(&mut *rows)
    }

    #[test]
    fn every_format_keeps_any_bytes_and_times() {
        for format in [Format::Tsv, Format::Csv, Format::Jsonl] {
            for expiries in [true, false] {
                let back = round_trip(format, expiries, &hostile());
                assert_eq!(back.len(), hostile().len(), "{format:?}");
                for (found, (key, value, expiry)) in back.into_iter().zip(hostile()) {
                    let expiry = if expiries { expiry } else { 0 };
                    assert_eq!(found, Ok((key, value, expiry)), "{format:?}");
                }
            }
        }
    }

    #[test]
    fn every_format_keeps_random_rows() {
        for seed in 1..=200 {
            let rows = random(seed, 50);
            for format in [Format::Tsv, Format::Csv, Format::Jsonl] {
                let back: Result<Vec<_>, _> = round_trip(format, true, &rows).into_iter().collect();
                assert_eq!(back.as_ref(), Ok(&rows), "{format:?}, seed {seed}");
            }
        }
    }

    #[test]
    fn an_expiry_is_a_number_of_seconds_with_milliseconds() {
        for (text, expiry) in [
            ("", 0),
            ("0", 0),
            (" 4294967295 ", 4_294_967_295_000),
            ("1.5", 1500),
            ("1.05", 1050),
            ("0.001", 1),
            ("281474976710.655", EXPIRY_MAX),
        ] {
            assert_eq!(parse_expiry(text.as_bytes()), Ok(expiry), "{text}");
        }
        for bad in [
            "281474976710.656",
            "-1",
            "+1",
            "1.0005",
            "1.",
            ".5",
            "1.+5",
            "1e9",
            "soon",
            "1 2",
            "0x1",
            "99999999999999999999",
        ] {
            assert!(parse_expiry(bad.as_bytes()).unwrap_err().contains("not a number of seconds"), "{bad}");
        }
    }

    #[test]
    fn extensions_name_formats() {
        assert_eq!(Format::of(Path::new("a/b.TSV")), Some(Format::Tsv));
        assert_eq!(Format::of(Path::new("b.csv")), Some(Format::Csv));
        assert_eq!(Format::of(Path::new("b.ndjson")), Some(Format::Jsonl));
        assert_eq!(Format::of(Path::new("b.txt")), None);
        assert_eq!(Format::of(Path::new("csv")), None);
    }

    #[test]
    fn reading_is_counted() {
        let (mut counted, read) = Counted::new(&b"hello"[..]);
        io::copy(&mut counted, &mut io::sink()).unwrap();
        assert_eq!(read.get(), 5);
    }
}
