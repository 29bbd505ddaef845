//! T13: random transactions of all levels at once, checked one by one; then lists that transactions of one level append to, checked
//! for cycles in what their clients saw. N transactions each; the lists divide them among the levels.
//! `isolation [--transactions N] [--seed S]`.

use std::process::ExitCode;
use std::time::Duration;

use testkit::isolation::append::{self, Anomaly, level_name};
use testkit::isolation::{Findings, LEVELS, check, run};
use testkit::report::{argument, enough, exit, finish, line};
use testkit::watch::Watch;
use tidesdb::Isolation;

/// Transactions per database.
const ROUND: u64 = 40_000;
/// Transactions per database of lists.
const LISTS_ROUND: u64 = 10_000;
/// Number of violations printed.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let transactions = argument("transactions").unwrap_or(1_000_000);
    let seed = argument("seed").unwrap_or(1);
    let watch = Watch::start(Duration::from_secs(120));
    let mut good = registers(transactions, seed, &watch);
    for level in LEVELS {
        good &= lists(level, transactions / LEVELS.len() as u64, seed, &watch);
    }
    exit(good)
}

/// Runs transactions of all levels on plain values.
fn registers(transactions: u64, seed: u64, watch: &Watch) -> bool {
    let mut all = Findings::default();
    let (mut done, mut violations) = (0, 0);
    let mut round = 0;
    while done < transactions {
        let threads = [2, 4, 8, 16][round as usize % 4];
        watch.begin(&format!("round {round} with {threads} threads"));
        let number = seed * 10_000 + round;
        let judged = tempfile::tempdir()
            .map_err(|e| e.to_string())
            .and_then(|dir| run(dir.path(), threads, ROUND / threads as u64, number))
            .map(|(records, base)| (records.len() as u64, check(&records, &base)));
        match judged {
            Ok((count, found)) => {
                done += count;
                violations += found.violations.len() as u64;
                found.violations.iter().take(SHOWN).for_each(|v| eprintln!("VIOLATION round {number}: {v}"));
                all.committed += found.committed;
                all.refused += found.refused;
                all.lost_updates += found.lost_updates;
                all.write_skews += found.write_skews;
                all.phantoms += found.phantoms;
                all.changed_reads += found.changed_reads;
            }
            Err(e) => {
                violations += 1;
                eprintln!("VIOLATION round {number}: {e}");
                break;
            }
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
        ("seed", seed),
    ];
    // If the checker does not see anomalies that weak levels allow, it would not see those that strong levels forbid either.
    let floors = [
        ("committed", transactions / 4),
        ("refused", transactions / 1000),
        ("lost_updates_where_allowed", transactions / 100_000),
        ("write_skews_where_allowed", transactions / 100_000),
        ("phantoms_where_allowed", transactions / 100_000),
        ("changed_reads_where_allowed", transactions / 100_000),
    ];
    finish("T13", &figures, &floors)
}

/// Runs transactions of one level on lists.
fn lists(level: Isolation, transactions: u64, seed: u64, watch: &Watch) -> bool {
    let test = format!("T13-append level={}", level_name(level));
    let mut all = append::Findings::default();
    let mut round = 0;
    while all.transactions < transactions {
        let threads = [16, 2, 8, 4][round as usize % 4];
        watch.begin(&format!("{test} round {round} with {threads} threads"));
        let number = seed * 10_000 + round;
        let history = tempfile::tempdir()
            .map_err(|e| e.to_string())
            .and_then(|dir| append::run(dir.path(), level, (threads, LISTS_ROUND / threads as u64), number));
        match history {
            Ok(history) => {
                let found = append::check(&history);
                found
                    .reports
                    .iter()
                    .take(SHOWN)
                    .for_each(|v| eprintln!("VIOLATION {test} round {number}: {v}"));
                all.add(found);
            }
            Err(e) => {
                eprintln!("VIOLATION {test} round {number}: {e}");
                return false;
            }
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
    println!("{} seen=[{}] seed={seed}", line(&test, &figures), names.join(" "));
    let floors = [("committed", transactions / 10), ("edges", transactions / 2)];
    // As above: anomalies that the level allows must occur.
    let expected: Vec<_> =
        Anomaly::expected(level).iter().map(|anomaly| (anomaly.name(), 1 + transactions / 100_000)).collect();
    enough(&test, &figures, &floors) & enough(&test, &seen, &expected) && all.forbidden == 0
}
