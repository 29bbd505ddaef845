//! File formats of rows: TSV, CSV and JSON lines, read and written.
//!
//! What is written in a format reads back in it byte for byte, whatever the keys and values hold. `docs/cli.md` describes
//! each format.

mod csv;
mod jsonl;
mod tsv;

use std::cell::Cell;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::rc::Rc;

pub(crate) use self::csv::{Columns, CsvRows, write_csv_header, write_csv_row};
pub(crate) use self::jsonl::{Fields, JsonlRows, write_jsonl_row};
pub(crate) use self::tsv::{TsvRows, write_tsv_row};

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A line KEY<TAB>VALUE for each row, with escapes
    Tsv,
    /// Comma-separated values, with a header
    Csv,
    /// A JSON object on a line for each row
    Jsonl,
}

impl Format {
    /// The format that a file's extension names.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "tsv" | "tab" => Some(Self::Tsv),
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            _ => None,
        }
    }
}

/// Why there is no row.
#[derive(Debug)]
pub(crate) enum RowError {
    /// The input cannot be read.
    Io(io::Error),
    /// This row is malformed; the next can be read.
    Bad {
        /// Its line, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
    /// The input as a whole is not what the options say.
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
}

/// Reads rows one after another, into memory that is used again.
pub(crate) trait Rows {
    /// The next row; `None` at the end.
    fn next_row(&mut self) -> Result<Option<Row<'_>>, RowError>;
}

/// Reads lines without their line feed. The last one may lack it.
struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    fn advance(&mut self) -> io::Result<bool> {
        self.line.clear();
        if self.input.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        Ok(true)
    }
}

/// Counts the bytes that are read through it.
pub(crate) struct Counted<R> {
    input: R,
    read: Rc<Cell<u64>>,
}

impl<R> Counted<R> {
    /// `input`, and the number of bytes read from it.
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

/// Writes rows in a format, through memory that is used again.
pub(crate) struct RowWriter<W> {
    out: W,
    format: Format,
    scratch: Vec<u8>,
    bytes: u64,
}

impl<W: Write> RowWriter<W> {
    /// Rows for `out`; writes the header, if the format has one.
    pub(crate) fn new(out: W, format: Format) -> io::Result<Self> {
        let mut this = Self { out, format, scratch: Vec::new(), bytes: 0 };
        if format == Format::Csv {
            write_csv_header(&mut this.scratch);
        }
        this.emit()?;
        Ok(this)
    }

    /// Writes a row.
    pub(crate) fn write(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.scratch.clear();
        match self.format {
            Format::Tsv => write_tsv_row(key, value, &mut self.scratch),
            Format::Csv => write_csv_row(key, value, &mut self.scratch),
            Format::Jsonl => write_jsonl_row(key, value, &mut self.scratch),
        }
        self.emit()
    }

    fn emit(&mut self) -> io::Result<()> {
        self.bytes += self.scratch.len() as u64;
        self.out.write_all(&self.scratch)
    }

    /// Bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the output.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row, or the line and the reason of a bad one.
    type Read = Result<(Vec<u8>, Vec<u8>), (u64, String)>;

    /// Every row of `rows`.
    pub(super) fn read_all(rows: &mut dyn Rows) -> Vec<Read> {
        let mut out = Vec::new();
        loop {
            match rows.next_row() {
                Ok(Some(row)) => out.push(Ok((row.key.to_vec(), row.value.to_vec()))),
                Ok(None) => return out,
                Err(RowError::Bad { line, why }) => out.push(Err((line, why))),
                Err(e) => panic!("{e:?}"),
            }
        }
    }

    /// Rows with every byte, alone and between others, as key and as value.
    fn hostile() -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        for b in 0..=255u8 {
            rows.push((vec![b], vec![b]));
            rows.push((vec![b'k', b, b'k'], vec![b'v', b, b, b'v']));
            rows.push((vec![b, b'"', b], vec![b'\\', b]));
        }
        rows.push((b"empty".to_vec(), Vec::new()));
        rows.push((b"\\x41\\t".to_vec(), b"\"\",\r\n,\t\\".to_vec()));
        rows.push((b"\xef\xbb\xbfkey".to_vec(), "\u{1f40b}\u{2028}\u{feff}".as_bytes().to_vec()));
        rows.push(((0..=255).collect(), (0..=255).rev().collect()));
        rows
    }

    #[test]
    fn every_format_keeps_any_bytes() {
        for format in [Format::Tsv, Format::Csv, Format::Jsonl] {
            let mut writer = RowWriter::new(Vec::new(), format).unwrap();
            for (key, value) in hostile() {
                writer.write(&key, &value).unwrap();
            }
            let text = writer.finish().unwrap();
            let mut rows: Box<dyn Rows> = match format {
                Format::Tsv => Box::new(TsvRows::new(&text[..], true)),
                Format::Csv => Box::new(CsvRows::new(&text[..], Default::default())),
                Format::Jsonl => Box::new(JsonlRows::new(&text[..], Default::default())),
            };
            let back: Vec<_> = read_all(&mut *rows).into_iter().collect::<Result<_, _>>().unwrap();
            for (found, expected) in back.iter().zip(hostile()) {
                assert_eq!(*found, expected, "{format:?}");
            }
            assert_eq!(back.len(), hostile().len(), "{format:?}");
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
