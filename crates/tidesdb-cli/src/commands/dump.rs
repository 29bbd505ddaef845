//! `tidesdb dump`: the rows of a family as a file.

use std::io::{BufWriter, Write};
use std::path::PathBuf;

use serde_json::json;

use crate::failure::{Exit, Outcome};
use crate::format::{Format, LINE_BYTES_MAX, RowWriter};
use crate::host;
use crate::new_file::NewFile;
use crate::output::{Out, tell};
use crate::progress::{Progress, ROWS_PER_UPDATE};
use crate::range::{Range, RangeArgs};
use crate::session::{Session, Target};
use crate::text::{count, rates, size};

/// Write the rows of a family to a file or the standard output, in key order
///
/// `load` reads the output back byte for byte, including the expiry of rows: in TSV as \@SECONDS after the value, in
/// CSV as the column "expiry", in JSON lines as the member "expiry", always in seconds since 1970.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(super) target: Target,
    /// Output file, which is replaced when all rows are written; - or none: standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format [default: from the extension of the file, otherwise tsv]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Omit the expiry: if loaded again, the rows never expire
    #[arg(long)]
    no_expiry: bool,
    #[command(flatten)]
    range: RangeArgs,
}

const WRITE_BYTES: usize = 1 << 20;

impl Dump {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let range = self.range.resolve(session)?;
        let path = self.output.as_deref().filter(|path| path.as_os_str() != "-");
        let format = self.format.or_else(|| path.and_then(Format::of)).unwrap_or(Format::Tsv);
        let Some(path) = path else {
            let progress = Progress::of_rows(out);
            let shown = |rows, bytes| progress.update(rows, bytes);
            let written = self.write(session, &range, format, out, shown)?;
            drop(progress);
            warn(&written);
            return Ok(Exit::Done);
        };
        let started = host::now();
        let progress = Progress::new(None);
        session.family()?; // before there is a file
        let mut to = BufWriter::with_capacity(WRITE_BYTES, NewFile::create(path)?);
        let shown = |rows, bytes| progress.update(rows, bytes);
        let written = self.write(session, &range, format, &mut to, shown);
        drop(progress);
        let flushed = to.flush();
        let (file, _) = to.into_parts();
        let written = match written.and_then(|written| Ok(flushed.map(|()| written)?)) {
            Ok(written) => file.finish().map(|()| written)?,
            // They may be all that can be read.
            Err(failure) => return Err(file.leave(failure)),
        };
        warn(&written);
        let (rows, bytes) = (written.rows, written.bytes);
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

    /// Writes the rows.
    fn write(
        &self,
        session: &Session,
        range: &Range,
        format: Format,
        to: impl Write,
        shown: impl Fn(u64, u64),
    ) -> Outcome<Written> {
        let mut writer = RowWriter::new(to, format, !self.no_expiry)?;
        let (mut done, mut expiries_lost) = (0u64, 0);
        let rows = range.walk(&session.family()?, true, |key, value, expiry| {
            writer.write(key, value, expiry)?;
            expiries_lost += u64::from(self.no_expiry && expiry > 0);
            done += 1;
            if done.is_multiple_of(ROWS_PER_UPDATE) {
                shown(done, writer.bytes());
            }
            Ok(true)
        })?;
        let (bytes, too_long) = (writer.bytes(), writer.too_long());
        writer.finish()?;
        Ok(Written { rows, bytes, expiries_lost, too_long })
    }
}

/// Result of a dump.
struct Written {
    rows: u64,
    bytes: u64,
    /// Rows with an expiry that was omitted.
    expiries_lost: u64,
    /// Rows that are too long for `load`.
    too_long: u64,
}

/// Prints warnings on the standard error stream, because the output may be the rows themselves.
fn warn(written: &Written) {
    if written.too_long > 0 {
        let (rows, max) = (count(written.too_long, "row is", "rows are"), size(LINE_BYTES_MAX as u64));
        tell(format!(
            "tidesdb: {rows} longer than {max}, the longest line that load reads: copy with get --file and put --file\n"
        ));
    }
    if written.expiries_lost > 0 {
        let rows = count(written.expiries_lost, "row that expires", "rows that expire");
        tell(format!(
            "tidesdb: {rows} would become permanent when loaded again, because --no-expiry omits the expiry\n"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use crate::format;

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

    fn all(stage: &Stage, family: &str) -> Vec<(Vec<u8>, Vec<u8>, u64)> {
        let mut cursor = stage.db.family(family).unwrap().cursor().unwrap();
        let mut rows = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.valid() {
            let expiry = cursor.expiry().map_or(0, format::millis_of);
            let (key, value) = cursor.entry().unwrap();
            rows.push((key.to_vec(), value.to_vec(), expiry));
            cursor.next().unwrap();
        }
        rows
    }

    /// `dump` did not write the expiry of rows, so that they became permanent once they were loaded again.
    #[test]
    fn a_dump_preserves_the_expiry() {
        let stage = Stage::new();
        let far = 5_000_000_000_000; // after 2106
        let mut batch = tidesdb::WriteBatch::new();
        for b in 0..=255u8 {
            let expiry = if b % 3 == 0 { 0 } else { far + u64::from(b) * 125 };
            let (key, value, moment) = ([b, b'\\', b], [b'\\', b'@', b], format::moment_of(expiry));
            batch.put_expiring(stage.db.default_family(), &key, &value, moment).unwrap();
        }
        stage.db.write(&mut batch).unwrap();
        let rows = all(&stage, "default");
        assert_eq!(rows.iter().filter(|row| row.2 > 0).count(), 170);
        for name in ["a.tsv", "a.csv", "a.jsonl"] {
            let path = stage.dir.path().join(name);
            let path = path.to_str().unwrap();
            stage.run(&["dump", "--output", path]);
            stage.run(&["families", "create", name]);
            stage.run(&["load", path, "--family", name]);
            assert_eq!(all(&stage, name), rows, "{name}");
            let without = format!("{name}-without");
            stage.run(&["dump", "--output", path, "--no-expiry"]);
            stage.run(&["families", "create", &without]);
            stage.run(&["load", path, "--family", &without]);
            let never: Vec<_> = rows.iter().map(|(k, v, _)| (k.clone(), v.clone(), 0)).collect();
            assert_eq!(all(&stage, &without), never, "{name}");
        }
    }

    #[test]
    fn ranges_and_order() {
        let stage = Stage::with(&["b", "a", "c"]);
        assert_eq!(stage.run(&["dump"]), "a\ta\nb\tb\nc\tc\n");
        assert_eq!(stage.run(&["dump", "--from", "b", "--format", "csv"]), "key,value,expiry\nb,b,\nc,c,\n");
        assert_eq!(stage.run(&["dump", "--reverse", "--limit", "1"]), "c\tc\n");
    }
}
