//! T13: concurrent random transactions of all levels, judged one by one; then transactions of one level that append to
//! lists, judged by the cycles in the results their clients saw. A case is a database, with either part.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::isolation::append::{self, Anomaly, level_name};
use testkit::isolation::{Findings, LEVELS, check, run};
use testkit::process;
use testkit::report::{self, Cases, enough, exit, finish, line, violation};
use testkit::watch::Watch;
use tidesdb::Isolation;

/// Transactions per database.
const ROUND: u64 = 40_000;
/// Transactions per database of lists.
const LISTS_ROUND: u64 = 10_000;
/// Maximum number of violations to print per round.
const SHOWN: usize = 5;

/// Numbers of a seed.
const NUMBERS: u64 = 10_000;
/// The part with plain values; the others have the names of levels.
const REGISTERS: &str = "registers";

const PARTS: [&str; 6] =
    [REGISTERS, "read-uncommitted", "read-committed", "repeatable-read", "snapshot", "serializable"];

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    /// Transactions of each part; the lists divide them among the levels.
    #[arg(long, default_value_t = 1_000_000)]
    transactions: u64,
    /// Runs one part alone: `registers`, or the lists of a level.
    #[arg(long, value_parser = PARTS)]
    only: Option<String>,
}

pub(crate) fn runner() -> ExitCode {
    let Args { cases, transactions, only } = process::arguments();
    let watch = Watch::start(Duration::from_secs(120));
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let mut good = !wanted(REGISTERS) || registers(transactions, &cases, &watch);
    for level in LEVELS.into_iter().filter(|level| wanted(level_name(*level))) {
        good &= lists(level, transactions / LEVELS.len() as u64, &cases, &watch);
    }
    exit(good)
}

/// Returns the number of the database `round`, and whether only one database was requested, so that it is the last one.
fn number(cases: &Cases, round: u64) -> (u64, bool) {
    (cases.first(NUMBERS) + round, cases.case.is_some())
}

/// Runs transactions of all levels on plain values.
fn registers(transactions: u64, cases: &Cases, watch: &Watch) -> bool {
    let mut all = Findings::default();
    let (mut done, mut violations) = (0, 0);
    let mut round = 0;
    while done < transactions {
        let (number, is_last) = number(cases, round);
        let threads = [2, 4, 8, 16][number as usize % 4];
        report::begin(&[("only", REGISTERS.to_owned())], number);
        watch.begin(&format!("round {number} with {threads} threads"));
        let judged = tempfile::tempdir()
            .map_err(|e| e.to_string())
            .and_then(|dir| run(dir.path(), threads, ROUND / threads as u64, number))
            .map(|(records, base)| (records.len() as u64, check(&records, &base)));
        match judged {
            Ok((count, found)) => {
                done += count;
                violations += found.violations.len() as u64;
                found.violations.iter().take(SHOWN).for_each(violation);
                all.committed += found.committed;
                all.refused += found.refused;
                all.lost_updates += found.lost_updates;
                all.write_skews += found.write_skews;
                all.phantoms += found.phantoms;
                all.changed_reads += found.changed_reads;
            }
            Err(e) => {
                violations += 1;
                violation(e);
                break;
            }
        }
        if is_last {
            break;
        }
        round += 1;
    }
    let figures = [
        ("transactions", done),
        ("committed", all.committed),
        ("refused", all.refused),
        ("lost_updates_where_allowed", all.lost_updates),
        ("write_skews_where_allowed", all.write_skews),
        ("phantoms_where_allowed", all.phantoms),
        ("changed_reads_where_allowed", all.changed_reads),
        ("violations", violations),
        ("seed", cases.seed),
    ];
    // The anomalies that weak levels allow must be seen. Otherwise the check could not detect what the strong levels
    // forbid.
    let floors = [
        ("committed", transactions / 4),
        ("refused", transactions / 1000),
        ("lost_updates_where_allowed", transactions / 100_000),
        ("write_skews_where_allowed", transactions / 100_000),
        ("phantoms_where_allowed", transactions / 100_000),
        ("changed_reads_where_allowed", transactions / 100_000),
    ];
    finish("T13", &figures, cases.floors(&floors))
}

/// Runs transactions of one level on lists.
fn lists(level: Isolation, transactions: u64, cases: &Cases, watch: &Watch) -> bool {
    let test = format!("T13-append level={}", level_name(level));
    let mut all = append::Findings::default();
    let mut round = 0;
    while all.transactions < transactions {
        let (number, is_last) = number(cases, round);
        let threads = [16, 2, 8, 4][number as usize % 4];
        report::begin(&[("only", level_name(level).to_owned())], number);
        watch.begin(&format!("{test} round {number} with {threads} threads"));
        let history = tempfile::tempdir()
            .map_err(|e| e.to_string())
            .and_then(|dir| append::run(dir.path(), level, (threads, LISTS_ROUND / threads as u64), number));
        match history {
            Ok(history) => {
                let found = append::check(&history);
                found.reports.iter().take(SHOWN).for_each(violation);
                all.add(found);
            }
            Err(e) => {
                violation(e);
                return false;
            }
        }
        if is_last {
            break;
        }
        round += 1;
    }
    let figures = [
        ("transactions", all.transactions),
        ("committed", all.committed),
        ("refused", all.refused),
        ("edges", all.edges),
        ("cycles", all.cycles),
        ("forbidden", all.forbidden),
    ];
    let seen: Vec<(&str, u64)> = all.seen.iter().map(|(anomaly, n)| (anomaly.name(), *n)).collect();
    let names: Vec<String> = seen.iter().map(|(name, n)| format!("{name}:{n}")).collect();
    println!("{} seen=[{}] seed={}", line(&test, &figures), names.join(" "), cases.seed);
    let floors = [("committed", transactions / 10), ("edges", transactions / 2)];
    // As above: the anomalies that the level allows must be seen.
    let expected: Vec<_> =
        Anomaly::expected(level).iter().map(|anomaly| (anomaly.name(), 1 + transactions / 100_000)).collect();
    let is_enough =
        enough(&test, &figures, cases.floors(&floors)) & enough(&test, &seen, cases.floors(&expected));
    is_enough && all.forbidden == 0 && report::has_none()
}
