//! `tidesdb load`: loads the rows of a file into a family.
//!
//! Rows are committed in batches, or in sorted tables, in the order of the input, so an interrupted load leaves a prefix of the input; or, of
//! rows that were sorted first, some.
//! The last of several rows with the same key wins.

mod loader;
mod sorter;

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::json;

use self::loader::{Because, Limits, Loader, Tally};
use crate::failure::{Exit, Failure, Outcome};
use crate::format::{self, Counted, CsvRows, Format, JsonlRows, RowError, Rows, TsvRows};
use crate::host;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::Session;
use crate::text::{count, grouped, rates, size};

/// Load rows from a TSV, CSV or JSON lines file
///
/// The database is created if it does not exist. Unless --sync is given, everything is made durable once, at the end. A row
/// whose key exists already replaces its value; the number of such rows is printed. Rows that come in key order are written as
/// tables, which is faster, unless --sync is full or interval. The expiry of rows is read as `dump` writes it:
/// \@SECONDS after the value in TSV, the column or member "expiry" in CSV and JSON lines.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Load {
    /// Input file; - or none: standard input
    file: Option<PathBuf>,
    /// Format [default: from the extension: .tsv, .tab, .csv, .jsonl, .ndjson]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// CSV column (name, or number from 1) or JSON member that is the key
    #[arg(long, alias = "key-column", value_name = "NAME")]
    key: Option<String>,
    /// CSV column or JSON member that is the value; with --key alone, the whole row
    #[arg(long, alias = "value-column", value_name = "NAME", requires = "key")]
    value: Option<String>,
    /// CSV column or JSON member with the expiry of the row, in seconds since 1970; empty, null and 0 mean never
    #[arg(long, value_name = "NAME")]
    expiry: Option<String>,
    /// CSV without a header: columns are named by number
    #[arg(long)]
    no_header: bool,
    /// TSV: treat a backslash as an ordinary byte, also in the expiry that `dump` writes
    #[arg(long)]
    no_escapes: bool,
    /// TSV: lines end with a carriage return and a line feed, as Windows writes them
    #[arg(long)]
    crlf: bool,
    /// Skip malformed rows and count them
    #[arg(long)]
    skip_bad: bool,
}

const READ_BYTES: usize = 1 << 20;

/// An open input.
struct Input {
    rows: Box<dyn Rows>,
    format: Format,
    /// Bytes read so far.
    read: Rc<Cell<u64>>,
    /// Total bytes, if known.
    total: Option<u64>,
}

impl Load {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let family = session.family()?;
        let started = host::now();
        let mut input = self.open(session)?;
        let progress = Progress::new(input.total);
        let mut loader = Loader::new(session, &family, Limits::default())?;
        let left = || input.total.map_or(0, |total| total.saturating_sub(input.read.get()));
        let shown = |rows| progress.update(rows, input.read.get());
        let mut result = self.feed(&mut *input.rows, &mut loader, left, shown);
        // Keep the rows before a malformed one.
        if let Ok(()) | Err(LoadError::Row(_)) = &result {
            if loader.sorts() {
                progress.say("writing sorted rows");
            }
            result = loader.commit().map_err(LoadError::Engine).and(result);
        }
        result.map_err(|e| self.explain(e, loader.tally.rows))?;
        progress.say("syncing");
        session.db.sync()?;
        drop(progress);
        loader.tally.bytes = input.read.get();
        tell(&loader.tally, started.elapsed().as_secs_f64(), session.common.json, out)?;
        let Tally { rows, returns, .. } = loader.tally;
        if input.format == Format::Tsv && rows > 0 && returns == rows && !session.common.json {
            out.line("every value ends with a carriage return: --crlf would have left it out")?;
        }
        Ok(Exit::Done)
    }

    fn open(&self, session: &Session) -> Outcome<Input> {
        let path = self.file.as_deref().filter(|path| *path != Path::new("-"));
        let Some(format) = self.format.or_else(|| path.and_then(Format::of)) else {
            let name = path.map_or("the standard input".to_owned(), |path| path.display().to_string());
            let what = format!("the format of {name} is unknown");
            return Err(Failure::usage(what).next("add --format tsv, --format csv or --format jsonl"));
        };
        self.check_options(format)?;
        let (input, total): (Box<dyn Read>, _) = match path {
            None => {
                session.check_input()?;
                (Box::new(io::stdin()), None)
            }
            Some(path) => {
                // Windows refuses to open it.
                if path.is_dir() {
                    return Err(Failure::usage(format!("{} is a directory", path.display())));
                }
                let file = host::open(path).map_err(|e| Failure::file("open", path, &e))?;
                let meta = file.metadata().map_err(|e| Failure::file("read", path, &e))?;
                (Box::new(file), meta.is_file().then_some(meta.len()))
            }
        };
        let (counted, read) = Counted::new(input);
        let input = BufReader::with_capacity(READ_BYTES, counted);
        Ok(Input { rows: self.rows(input, format), format, read, total })
    }

    fn check_options(&self, format: Format) -> Outcome<()> {
        let given = [
            (self.key.is_some() && format == Format::Tsv, "--key is for CSV and JSON lines"),
            (self.expiry.is_some() && format == Format::Tsv, "--expiry is for CSV and JSON lines"),
            (self.no_header && format != Format::Csv, "--no-header is for CSV"),
            (self.no_escapes && format != Format::Tsv, "--no-escapes is for TSV"),
            (self.crlf && format != Format::Tsv, "--crlf is for TSV: the other formats take both line ends"),
        ];
        match given.iter().find(|(wrong, _)| *wrong) {
            Some((_, why)) => Err(Failure::usage(*why)),
            None => Ok(()),
        }
    }

    fn rows(&self, input: impl BufRead + 'static, format: Format) -> Box<dyn Rows> {
        let (key, value, expiry) = (self.key.clone(), self.value.clone(), self.expiry.clone());
        match format {
            Format::Tsv => Box::new(TsvRows::new(input, !self.no_escapes).with_crlf(self.crlf)),
            Format::Csv => {
                Box::new(CsvRows::new(input, format::Columns { key, value, expiry, header: !self.no_header }))
            }
            Format::Jsonl => Box::new(JsonlRows::new(input, format::Fields { key, value, expiry })),
        }
    }

    /// Reads all rows into `loader`; calls `shown` with the number of rows after each batch. `left` returns how many bytes of the input
    /// are left, as far as that is known. The last rows are not committed.
    fn feed(
        &self,
        rows: &mut dyn Rows,
        loader: &mut Loader<'_>,
        left: impl Fn() -> u64,
        shown: impl Fn(u64),
    ) -> Result<(), LoadError> {
        loop {
            let full = match rows.next_row() {
                Ok(None) => return Ok(()),
                Ok(Some(row)) => {
                    loader.turn(&row, &left).map_err(LoadError::Engine)?;
                    match loader.add(&row) {
                        Ok(full) => full,
                        // If the engine rejects a row, such as one with an empty key, the row is malformed.
                        Err(tidesdb::Error::InvalidArgument { what }) => {
                            self.bad(row.line, what.to_string(), &mut loader.tally)?;
                            false
                        }
                        Err(e) => return Err(LoadError::Engine(e)),
                    }
                }
                Err(RowError::Bad { line, why }) => {
                    self.bad(line, why, &mut loader.tally)?;
                    false
                }
                Err(e) => return Err(LoadError::Row(e)),
            };
            if full {
                loader.step().map_err(LoadError::Engine)?;
                shown(loader.added());
            }
        }
    }

    fn bad(&self, line: u64, why: String, tally: &mut Tally) -> Result<(), LoadError> {
        if !self.skip_bad {
            return Err(LoadError::Row(RowError::Bad { line, why }));
        }
        tally.bad += 1;
        tally.first_bad.get_or_insert_with(|| format!("line {line}: {why}"));
        Ok(())
    }

    fn explain(&self, e: LoadError, rows: u64) -> Failure {
        let name = self.file.as_ref().map_or("standard input".into(), |file| file.display().to_string());
        let loaded = format!("loaded before it: {}", count(rows, "row", "rows"));
        match e {
            LoadError::Engine(e) => {
                Failure::from(e).next(format!("{loaded}; fix the cause and load the file again"))
            }
            LoadError::Row(RowError::Io(e)) => {
                Failure::failed(format!("cannot read {name}: {e}")).next(loaded)
            }
            LoadError::Row(RowError::Unfit(why)) => {
                Failure::usage(format!("{name}: {why}")).next("see --key, --value, --expiry, --no-header")
            }
            LoadError::Row(RowError::Bad { line, why }) => {
                Failure::usage(format!("{name}, line {line}: {why}"))
                    .next(format!("{loaded}; fix the line and load again, or add --skip-bad"))
            }
        }
    }
}

/// Why a load ended early.
enum LoadError {
    Row(RowError),
    Engine(tidesdb::Error),
}

fn tell(tally: &Tally, secs: f64, json: bool, out: &mut Out<'_>) -> Outcome<()> {
    if json {
        return out.json(&json!({
            "rows": tally.rows, "bytes": tally.bytes, "seconds": secs, "replaced": tally.replaced, "bad": tally.bad,
            "sorted": tally.sorted, "sorted_first": tally.sorted_first, "unsorted_line": unsorted_line(tally),
        }));
    }
    let rows = count(tally.rows, "row", "rows");
    out.line(format!("{rows}, {} in {}", size(tally.bytes), rates(tally.rows, tally.bytes, secs)))?;
    if tally.replaced > 0 {
        out.line(format!("{} replaced a value: the last one wins", count(tally.replaced, "row", "rows")))?;
    }
    if let Some(first) = &tally.first_bad {
        out.line(format!(
            "{} skipped, the first in {first}",
            count(tally.bad, "malformed row", "malformed rows")
        ))?;
    }
    if let Some(way) = way(tally) {
        out.line(way)?;
    }
    Ok(())
}

/// Returns the line whose row does not come after the one before it; `None` if that was not checked, or there is none.
fn unsorted_line(tally: &Tally) -> Option<u64> {
    match tally.batches {
        Some(Because::Order(line)) => Some(line),
        _ => None,
    }
}

/// Describes how the rows were written. A load that is too small for tables needs no word.
fn way(tally: &Tally) -> Option<String> {
    let sorted =
        count(tally.sorted, "row was written as a sorted table", "rows were written as sorted tables");
    let line = |line| format!("line {}", grouped(line));
    match tally.batches {
        Some(Because::Order(at)) if tally.sorted_first > 0 => Some(format!(
            "{sorted}; {} from {} on were sorted first",
            count(tally.sorted_first, "row", "rows"),
            line(at)
        )),
        Some(Because::Order(at)) if tally.sorted > 0 => Some(format!(
            "{sorted}; from {} on in batches: its key does not come after the one before it",
            line(at)
        )),
        Some(Because::Order(at)) if tally.content >= Limits::default().sorted_from => Some(format!(
            "all rows were written in batches: the key in {} does not come after the one before it",
            line(at)
        )),
        Some(Because::Slow(at)) => {
            Some(format!("{sorted}; after {} in batches: the rows came slowly", line(at)))
        }
        _ => (tally.sorted > 0).then_some(sorted),
    }
}

#[cfg(test)]
mod tests;
