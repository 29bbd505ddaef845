//! `tidesdb export`: the rows of a family as tables, which `tidesdb ingest` takes.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use serde_json::json;
use tidesdb::{Error, Family, TableBuilder};

use super::ingest::{TABLE_SUFFIX, values_of};
use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::output::Out;
use crate::progress::{Progress, ROWS_PER_UPDATE};
use crate::range::{KeysArgs, Range};
use crate::session::Session;
use crate::text::{count, rates, size};

/// Write the rows of a family as tables, which `ingest` takes
///
/// The tables are STEM-000001.klog and so on, each with STEM-000001.klog.vlog beside it if it has long values. They have the
/// rows as of now with their expiry, in the compression and with the filter of the family. `ingest` takes them into another
/// family, another database, or on another machine, far faster than `load` reads a dump. The family must have the same
/// key order. No file is replaced, and a failure leaves none.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Export {
    /// What the names of the tables begin with, in a directory that exists
    #[arg(value_hint = ValueHint::FilePath)]
    stem: PathBuf,
    #[command(flatten)]
    keys: KeysArgs,
}

/// Longer values are written in chunks, as a stream writes them: a reader of a part reads only the chunks of the part.
const CHUNKED_FROM: usize = 1 << 20;

/// Result of an export.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    rows: u64,
    bytes: u64,
}

impl Export {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let range = self.keys.resolve(session)?;
        let family = session.family()?;
        check_free(&self.stem)?;
        let started = host::now();
        let progress = Progress::new(None);
        let mut tables = family.table_builder(&self.stem)?;
        let written = write(session, &family, &range, &mut tables, &progress)?;
        progress.say("syncing");
        let paths = tables.finish()?;
        drop(progress);
        let file_bytes: u64 = paths.iter().map(|table| len(table) + len(&values_of(table))).sum();
        let secs = started.elapsed().as_secs_f64();
        if session.common.json {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            out.json(&json!({
                "rows": written.rows, "bytes": written.bytes, "tables": paths, "file_bytes": file_bytes, "seconds": secs,
            }))?;
            return Ok(Exit::Done);
        }
        let rows = count(written.rows, "row", "rows");
        let content = size(written.bytes);
        out.line(format!("{rows}, {content} in {}", rates(written.rows, written.bytes, secs)))?;
        let tables = count(paths.len() as u64, "table", "tables");
        match (paths.first(), paths.last()) {
            (Some(first), Some(last)) if first != last => {
                let (first, last) = (first.display(), last.display());
                out.line(format!("{tables}, {}: {first} to {last}", size(file_bytes)))?;
            }
            (Some(only), _) => out.line(format!("{tables}, {}: {}", size(file_bytes), only.display()))?,
            (None, _) => out.line("no table: there is no row")?,
        }
        Ok(Exit::Done)
    }
}

/// Returns the length of a file; 0 if there is none.
fn len(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Refuses names that tables of an earlier export have: together they would be taken for one.
fn check_free(stem: &Path) -> Outcome<()> {
    let Some(name) = stem.file_name().and_then(|name| name.to_str()) else {
        return Err(Failure::usage(format!("{} does not end with a name for tables", stem.display())));
    };
    let folder = stem.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).map_err(|e| Failure::file("read", folder, &e))?;
    for entry in entries {
        let entry = entry.map_err(|e| Failure::file("read", folder, &e))?;
        let found = entry.file_name();
        let number = found.to_str().and_then(|found| found.strip_prefix(name)?.strip_prefix('-'));
        let number = number.and_then(|rest| rest.split_once(TABLE_SUFFIX)).map(|(number, _)| number);
        if number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())) {
            let what = format!("{} exists already", entry.path().display());
            return Err(
                Failure::usage(what).next("choose another STEM, or remove the tables of the earlier export")
            );
        }
    }
    Ok(())
}

/// Writes the rows as of now.
fn write(
    session: &Session,
    family: &Family,
    range: &Range,
    tables: &mut TableBuilder,
    progress: &Progress,
) -> Outcome<Written> {
    let snapshot = session.db.snapshot();
    let mut cursor = snapshot.cursor(family)?;
    range.seek(&mut cursor)?;
    let mut written = Written::default();
    while cursor.valid() && written.rows < range.limit() {
        let expiry = cursor.expiry();
        let len = match cursor.entry() {
            Ok((key, value)) if value.len() > CHUNKED_FROM => {
                tables.put_stream_expiring(key, value, expiry)?;
                (key.len() + value.len()) as u64
            }
            Ok((key, value)) => {
                tables.put_expiring(key, value, expiry)?;
                (key.len() + value.len()) as u64
            }
            // The value does not fit into the memory of cursors.
            Err(Error::Busy { .. } | Error::MemoryLimit { .. }) => {
                let key = cursor.key();
                let Some(reader) = snapshot.value_reader(family, key)? else {
                    cursor.next()?; // it has expired since the cursor came to it
                    continue;
                };
                let len = key.len() as u64 + reader.len();
                tables.put_stream_expiring(key, reader, expiry)?;
                len
            }
            Err(e) => return Err(e.into()),
        };
        written = Written { rows: written.rows + 1, bytes: written.bytes + len };
        if written.rows.is_multiple_of(ROWS_PER_UPDATE) {
            progress.update(written.rows, written.bytes);
        }
        cursor.next()?;
    }
    Ok(written)
}
