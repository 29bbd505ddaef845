//! T13: random transactions of all levels at once, judged one by one. `isolation [--transactions N] [--seed S]`.

use std::process::ExitCode;
use std::time::Duration;

use testkit::isolation::{Findings, check, run};
use testkit::report::{argument, exit, finish};
use testkit::watch::Watch;

/// Transactions on one database.
const ROUND: u64 = 40_000;
/// Printed violations.
const SHOWN: usize = 5;

fn main() -> ExitCode {
    let transactions = argument("transactions").unwrap_or(1_000_000);
    let seed = argument("seed").unwrap_or(1);
    let watch = Watch::start(Duration::from_secs(120));
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
    // A judge that sees nothing of what the weak levels allow would see nothing of what the strong ones forbid.
    let floors = [
        ("committed", transactions / 4),
        ("refused", transactions / 1000),
        ("lost_updates_where_allowed", transactions / 100_000),
        ("write_skews_where_allowed", transactions / 100_000),
        ("phantoms_where_allowed", transactions / 100_000),
        ("changed_reads_where_allowed", transactions / 100_000),
    ];
    exit(finish("T13", &figures, &floors))
}
