//! `tidesdb dump`: the rows of a family as a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::format::{Format, RowWriter};
use crate::host;
use crate::output::Out;
use crate::progress::Progress;
use crate::range::{Range, RangeArgs};
use crate::session::Session;
use crate::text::{count, rates, size};

/// Write the rows of a family to a file or the standard output, in key order
///
/// What is dumped, `load` reads back byte for byte.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Dump {
    /// The file; - or none: standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Its format [default: what its extension says, else tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    #[command(flatten)]
    range: RangeArgs,
}

const WRITE_BYTES: usize = 1 << 20;
/// The progress is told once in this many rows.
const ROWS_PER_UPDATE: u64 = 4096;

impl Dump {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let range = self.range.resolve(session)?;
        let path = self.output.as_deref().filter(|path| path.as_os_str() != "-");
        let format = self.format.or_else(|| path.and_then(Format::of)).unwrap_or(Format::Tsv);
        let Some(path) = path else {
            write(session, &range, format, out, |_, _| ())?;
            return Ok(Exit::Done);
        };
        let started = host::now();
        let file = File::create(path).map_err(|e| Failure::file("create", path, &e))?;
        let progress = Progress::new(None);
        let to = BufWriter::with_capacity(WRITE_BYTES, file);
        let (rows, bytes) = write(session, &range, format, to, |rows, bytes| progress.update(rows, bytes))?;
        drop(progress);
        let secs = started.elapsed().as_secs_f64();
        if session.common.json {
            out.json(&json!({ "rows": rows, "bytes": bytes, "seconds": secs }))?;
        } else {
            out.line(format!(
                "{}, {} in {}",
                count(rows, "row", "rows"),
                size(bytes),
                rates(rows, bytes, secs)
            ))?;
        }
        Ok(Exit::Done)
    }
}

/// Writes the rows; returns how many rows and bytes.
fn write(
    session: &Session,
    range: &Range,
    format: Format,
    to: impl Write,
    shown: impl Fn(u64, u64),
) -> Outcome<(u64, u64)> {
    let mut writer = RowWriter::new(to, format)?;
    let mut done = 0u64;
    let rows = range.walk(&session.family()?, true, |key, value| {
        writer.write(key, value)?;
        done += 1;
        if done.is_multiple_of(ROWS_PER_UPDATE) {
            shown(done, writer.bytes());
        }
        Ok(true)
    })?;
    let bytes = writer.bytes();
    writer.finish()?;
    Ok((rows, bytes))
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;

    #[test]
    fn a_dump_reads_back_in_every_format() {
        let stage = Stage::new();
        for (n, b) in (0..=255u8).rev().enumerate() {
            stage.db.put(&[b, b'k', b], &[b'v', b, n as u8]).unwrap();
        }
        let plain = stage.run(&["dump", "--format", "jsonl"]);
        for name in ["a.tsv", "a.csv", "a.jsonl"] {
            let path = stage.dir.path().join(name);
            let path = path.to_str().unwrap();
            assert!(stage.run(&["dump", "--output", path]).starts_with("256 rows, "));
            stage.run(&["families", "create", name]);
            stage.run(&["load", path, "--family", name]);
            assert_eq!(stage.run(&["dump", "--format", "jsonl", "--family", name]), plain, "{name}");
        }
    }

    #[test]
    fn ranges_and_order() {
        let stage = Stage::with(&["b", "a", "c"]);
        assert_eq!(stage.run(&["dump"]), "a\ta\nb\tb\nc\tc\n");
        assert_eq!(stage.run(&["dump", "--from", "b", "--format", "csv"]), "key,value\nb,b\nc,c\n");
        assert_eq!(stage.run(&["dump", "--reverse", "--limit", "1"]), "c\tc\n");
    }
}
