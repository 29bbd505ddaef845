//! `tidesdb compact`: merges tables.

use serde_json::json;
use tidesdb::{Db, JobStats};

use crate::failure::{Exit, Outcome};
use crate::host;
use crate::output::Out;
use crate::progress::{Progress, Seen};
use crate::session::{Session, Target};
use crate::text::{count, size};

/// Merge all tables of a family into one sorted run
///
/// Removes deleted, expired and overwritten entries and frees their space. Without --family, compacts all families.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(super) target: Target,
    /// Only write memtables to tables
    #[arg(long)]
    flush_only: bool,
}

impl Compact {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let started = host::now();
        let db = session.db.clone();
        let _progress = Progress::watch(None, move || running(&db));
        session.db.flush()?;
        let names = match &session.common.family {
            Some(name) => vec![name.clone()],
            None => session.db.families(),
        };
        for name in names {
            let family = session.family_named(&name)?;
            let before = family.stats();
            if !self.flush_only {
                family.compact()?;
            }
            let after = family.stats();
            let tables = |s: &tidesdb::FamilyStats| s.level_tables.iter().sum::<usize>();
            let bytes = |s: &tidesdb::FamilyStats| s.level_bytes.iter().sum::<u64>();
            let secs = started.elapsed().as_secs_f64();
            if session.common.json {
                out.json(&json!({
                    "family": name, "seconds": secs,
                    "tables_before": tables(&before), "bytes_before": bytes(&before),
                    "tables_after": tables(&after), "bytes_after": bytes(&after),
                }))?;
            } else {
                let told = |s| format!("{}, {}", count(tables(s) as u64, "table", "tables"), size(bytes(s)));
                let name = out.name(&name);
                out.line(format!("{name}: {} -> {}, {secs:.2} s", told(&before), told(&after)))?;
            }
        }
        Ok(Exit::Done)
    }
}

/// Returns what the jobs of the database have done.
fn running(db: &Db) -> Seen {
    Seen { done: 0, text: told(&db.stats().jobs) }
}

/// Returns one line about jobs. Between two jobs there is none for a moment.
fn told(jobs: &[JobStats]) -> String {
    let job = |job: &JobStats| {
        let (done, all) = (size(job.bytes_done), size(job.bytes));
        let work = if job.kind == "flush" { "flushes" } else { "merges" };
        format!("{} {work} {done} of {all}", job.family)
    };
    if jobs.is_empty() { "preparing".to_owned() } else { jobs.iter().map(job).collect::<Vec<_>>().join("; ") }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn the_bar_names_all_jobs() {
        let mut jobs = [JobStats::default(), JobStats::default()];
        (jobs[0].kind, jobs[0].family, jobs[0].bytes) = ("flush", "a".to_owned(), 2048);
        (jobs[1].kind, jobs[1].family, jobs[1].bytes) = ("Full", "b".to_owned(), 10);
        jobs[1].bytes_done = 5;
        assert_eq!(told(&jobs), "a flushes 0 B of 2.0 KiB; b merges 5 B of 10 B");
        assert_eq!(running(&Stage::new().db).text, "preparing");
    }

    #[test]
    fn overwritten_entries_go() {
        let stage = Stage::with(&["a", "b"]);
        stage.run(&["compact", "--flush-only"]);
        stage.run(&["put", "a", "new"]);
        stage.run(&["delete", "b"]);
        let text = stage.run(&["compact"]);
        assert!(text.starts_with("default: 2 tables, ") && text.contains(" -> 1 table, "), "{text}");
        assert_eq!(stage.db.stats().families[0].table_entries, 1);
        assert_eq!(stage.run(&["get", "a"]), "new");
    }
}
