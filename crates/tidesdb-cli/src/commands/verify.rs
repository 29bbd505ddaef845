//! `tidesdb verify`: reads and checks everything.

use serde_json::{Value, json};
use tidesdb::{Error, RecoveryReport, TreeStats, VerifyReport};

use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::output::{Out, Style};
use crate::progress::{Progress, Seen};
use crate::session::{Session, Target};
use crate::text::{count, size};

/// Read every byte of every table and value log and check it
///
/// Opening reads and checks the log. This command then checks checksums, the order of the keys, indexes and filters against
/// the data, and that every referenced value exists. Changes nothing. Each damage is printed with its file
/// and offset; exit code 1 if there is any.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    pub(super) target: Target,
}

impl Verify {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let started = host::now();
        let before = host::bytes_read();
        let progress = Progress::watch(None, move || reading(before));
        let report = session.db.verify()?;
        drop(progress);
        let secs = started.elapsed().as_secs_f64();
        // The open has read and checked the whole log.
        let log = session.db.recovery_report();
        if session.common.json {
            out.json(&report_json(&report, log, &session.left_out()?, secs))?;
        } else {
            print(&report, log, &session.left_out()?, secs, out)?;
        }
        Ok(if report.is_ok() && log.damage.is_none() { Exit::Done } else { Exit::No })
    }

    /// Prints the damage if the database is so damaged that it cannot be opened; returns any other failure unchanged.
    pub(crate) fn not_open(failure: Failure, json: bool, out: &mut Out<'_>) -> Outcome {
        let Some(damage) = failure.damage() else { return Err(failure) };
        if json {
            out.json(&json!({ "ok": false, "damage": [damage_json(damage)] }))?;
        } else {
            out.line(out.paint(Style::Bad, "damage"))?;
            out.line(format!("  {damage}"))?;
            out.line("the database cannot be opened, so nothing else was checked")?;
        }
        Ok(Exit::No)
    }
}

/// Returns how much has been read since the process had read `before` bytes.
fn reading(before: Option<u64>) -> Seen {
    let read = host::bytes_read().zip(before).map(|(now, before)| now.saturating_sub(before));
    Seen { done: 0, text: read.map_or("reading".to_owned(), |read| format!("{} read", size(read))) }
}

fn print(
    report: &VerifyReport,
    log: &RecoveryReport,
    left_out: &[TreeStats],
    secs: f64,
    out: &mut Out<'_>,
) -> Outcome<()> {
    if !log.clean {
        out.line(format!("log: {log}"))?;
    }
    out.line(format!(
        "read {} with {} and {} with {} in {secs:.2} s",
        count(report.tables as u64, "table", "tables"),
        count(report.entries, "entry", "entries"),
        count(report.vlogs as u64, "value log", "value logs"),
        count(report.pointers, "value", "values"),
    ))?;
    for TreeStats { family, order, .. } in left_out {
        out.line(format!("family {family:?} was not checked: its key order {order:?} is not known here"))?;
    }
    let damage: Vec<&Error> = log.damage.iter().chain(&report.damage).collect();
    if damage.is_empty() {
        return out.line(out.paint(Style::Good, "all good"));
    }
    let title = count(damage.len() as u64, "damaged place", "damaged places");
    out.line(out.paint(Style::Bad, &title))?;
    damage.iter().try_for_each(|damage| out.line(format!("  {damage}")))?;
    out.line("restore a checkpoint, or save what can be read with `tidesdb dump`")
}

fn report_json(report: &VerifyReport, log: &RecoveryReport, left_out: &[TreeStats], secs: f64) -> Value {
    json!({
        "ok": report.is_ok() && log.damage.is_none(),
        "log_commits": log.commits,
        "tables": report.tables,
        "not_checked": left_out.iter().map(|tree| &tree.family).collect::<Vec<_>>(),
        "entries": report.entries,
        "vlogs": report.vlogs,
        "pointers": report.pointers,
        "seconds": secs,
        "damage": log.damage.iter().chain(&report.damage).map(damage_json).collect::<Vec<_>>(),
    })
}

fn damage_json(damage: &Error) -> Value {
    match damage {
        Error::Corrupt { file, offset, what } => json!({ "file": **file, "offset": offset, "what": **what }),
        other => json!({ "what": other.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn a_whole_database_is_good() {
        let stage = Stage::with(&["a", "b"]);
        stage.db.flush().unwrap();
        let text = stage.run(&["verify"]);
        assert!(text.starts_with("read 1 table with 2 entries and 0 value logs with 0 values in "), "{text}");
        assert!(text.ends_with("all good\n"), "{text}");
        let json: Value = serde_json::from_str(&stage.run(&["verify", "--json"])).unwrap();
        assert_eq!((&json["ok"], &json["entries"]), (&Value::from(true), &Value::from(2)));
    }

    #[test]
    fn the_bar_shows_the_bytes_that_were_read() {
        assert_eq!(reading(None).text, "reading");
        let all = reading(Some(0)).text;
        assert!(host::bytes_read().is_none() || (all.ends_with(" read") && all != "0 B read"), "{all}");
        assert!(host::bytes_read().is_none() || reading(Some(u64::MAX)).text == "0 B read");
    }

    #[test]
    fn damage_at_open_is_reported_as_damage() {
        let damage = Error::Corrupt { file: "000003.klog".into(), offset: 9, what: "checksum".into() };
        let mut bytes = Vec::new();
        let exit = Verify::not_open(damage.into(), true, &mut Out::new(&mut bytes, false)).unwrap();
        assert_eq!(exit, Exit::No);
        let json: Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(
            (&json["damage"][0]["file"], &json["damage"][0]["offset"]),
            (&"000003.klog".into(), &9.into())
        );
        let locked = Failure::from(Error::Closed);
        assert!(Verify::not_open(locked, false, &mut Out::new(&mut bytes, false)).is_err());
    }
}
