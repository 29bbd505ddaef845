//! `tidesdb scan`: the rows of a range.

use serde_json::json;

use crate::failure::{Exit, Outcome};
use crate::output::{Out, row_json};
use crate::progress::{Progress, ROWS_PER_UPDATE};
use crate::range::RangeArgs;
use crate::session::{Session, Target};

/// Print the rows of a range of keys, in order
///
/// Prints one line per row: the key, a tab, and the value, escaped like TSV output of `dump`. On a terminal, control characters
/// and bytes that are not UTF-8 are escaped too.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(flatten)]
    range: RangeArgs,
    /// Print keys without their values
    #[arg(short, long)]
    keys_only: bool,
    /// Print only the number of rows
    #[arg(short, long)]
    count: bool,
}

impl Scan {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let range = self.range.resolve(session)?;
        let values = !self.keys_only && !self.count;
        let progress = if self.count { Progress::new(None) } else { Progress::of_rows(out) };
        let (mut seen, mut bytes) = (0, 0);
        let rows = range.walk(&session.family()?, values, |key, value, _| {
            (seen, bytes) = (seen + 1, bytes + (key.len() + value.len()) as u64);
            if seen % ROWS_PER_UPDATE == 0 {
                progress.update(seen, bytes);
            }
            let value = values.then_some(value);
            match (self.count, session.common.json) {
                (true, _) => {}
                (false, true) => out.json(&row_json(key, value))?,
                (false, false) => out.row(key, value)?,
            }
            Ok(true)
        })?;
        drop(progress);
        match (self.count, session.common.json) {
            (true, true) => out.json(&json!({ "rows": rows }))?,
            (true, false) => out.line(rows.to_string())?,
            _ => {}
        }
        Ok(Exit::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;

    #[test]
    fn ranges() {
        let stage = Stage::with(&["a", "aa", "b", "c"]);
        for (words, expected) in [
            (&["scan", "-k"][..], "a\naa\nb\nc\n"),
            (&["scan", "--prefix", "a"], "a\ta\naa\taa\n"),
            (&["scan", "--from", "aa", "--to", "c", "--keys-only"], "aa\nb\n"),
            (&["scan", "--reverse", "--limit", "2", "-k"], "c\nb\n"),
            (&["scan", "-e", "--prefix", "\\x61", "-c"], "2\n"),
            (&["scan", "--count", "--json"], "{\"rows\":4}\n"),
            (&["scan", "--json", "-n1"], "{\"key\":\"a\",\"value\":\"a\"}\n"),
            (&["scan", "--limit", "0"], ""),
            (&["scan", "--prefix", "x"], ""),
        ] {
            assert_eq!(stage.run(words), expected, "{words:?}");
        }
    }
}
