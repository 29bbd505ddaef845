//! T14: random operations compared with a model with versions.
//! `model [--ops N] [--seed S] [--threads T] [--length N] [--history SEED] [--place sim|real]`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::history::{Place, REQUIRED, REQUIRED_SIM, Totals, history};
use testkit::report::{argument, exit, finish, text_argument};
use testkit::watch::Watch;

/// One history in this many runs in a real directory with threads.
const REAL_ONE_IN: u64 = 8;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported with its history
    let seed = argument("seed").unwrap_or(1);
    let ops = argument("ops").unwrap_or(1_000_000);
    let length = argument("length").unwrap_or(2_000).max(1);
    let only = text_argument("place");
    let watch = Watch::start(Duration::from_secs(120));
    let place = |n: u64| match only.as_deref() {
        Some("sim") => Place::Sim,
        Some("real") => Place::Real(2),
        _ if n.is_multiple_of(REAL_ONE_IN) => Place::Real(2),
        _ => Place::Sim,
    };
    let next = AtomicU64::new(seed * 1_000_000);
    let totals = Mutex::new(Totals::default());
    let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(n) = argument("history") {
        lock().merge(history(n, length as usize, place(n)));
    } else {
        std::thread::scope(|scope| {
            for _ in 0..argument("threads").unwrap_or(2) {
                scope.spawn(|| {
                    while lock().ops < ops && lock().violations < 5 {
                        let n = next.fetch_add(1, Relaxed);
                        watch.begin(&format!("history {n} {:?}", place(n)));
                        let more = history(n, length as usize, place(n));
                        watch.end();
                        lock().merge(more);
                    }
                });
            }
        });
    }
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut required = REQUIRED.to_vec();
    if only.as_deref() != Some("real") {
        required.extend(REQUIRED_SIM);
    }
    let missing = if argument("history").is_some() { Vec::new() } else { totals.missing(&required) };
    if !missing.is_empty() {
        eprintln!("T14: never happened: {}", missing.join("; "));
    }
    let covered = totals.coverage.len() as u64;
    let figures = [
        ("histories", totals.histories),
        ("ops", totals.ops),
        ("outcomes", covered),
        ("missing", missing.len() as u64),
        ("violations", totals.violations),
        ("seed", seed),
    ];
    let floors = if argument("history").is_some() { vec![] } else { vec![("ops", ops)] };
    exit(finish("T14", &figures, &floors) && missing.is_empty())
}
