//! T14: random operations, compared with a model that keeps versions. A case is a history.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use testkit::history::{Place, REQUIRED, REQUIRED_SIM, Totals, history};
use testkit::process;
use testkit::report::{Cases, exit, finish};
use testkit::watch::Watch;

/// One in this many histories runs on a real directory with threads.
const REAL_ONE_IN: u64 = 8;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    /// Operations of all histories together.
    #[arg(long, default_value_t = 1_000_000)]
    ops: u64,
    /// Operations of a history.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    length: u64,
    /// Where the databases are; one history of eight is in a real directory by default.
    #[arg(long)]
    place: Option<Only>,
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    Sim,
    Real,
}

pub(crate) fn runner() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported with its history
    let Args { cases, ops, length, place: only, threads } = process::arguments();
    let watch = Watch::start(Duration::from_secs(120));
    let place = |n: u64| match only {
        Some(Only::Sim) => Place::Sim,
        Some(Only::Real) => Place::Real(2),
        None if n.is_multiple_of(REAL_ONE_IN) => Place::Real(2),
        None => Place::Sim,
    };
    let totals = Mutex::new(Totals::default());
    let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    let enough = || {
        let totals = lock();
        totals.ops >= ops || totals.violations >= 5
    };
    cases.run(threads, &[], enough, |n| {
        watch.begin(&format!("history {n} {:?}", place(n)));
        let more = history(n, length as usize, place(n));
        watch.end();
        lock().merge(more);
    });
    let totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut required = REQUIRED.to_vec();
    if only != Some(Only::Real) {
        required.extend(REQUIRED_SIM);
    }
    let missing = if cases.case.is_some() { Vec::new() } else { totals.missing(&required) };
    if !missing.is_empty() {
        eprintln!("T14: these outcomes never happened: {}", missing.join("; "));
    }
    let figures = [
        ("histories", totals.histories),
        ("ops", totals.ops),
        ("outcomes", totals.coverage.len() as u64),
        ("missing", missing.len() as u64),
        ("violations", totals.violations),
        ("seed", cases.seed),
    ];
    exit(finish("T14", &figures, cases.floors(&[("ops", ops)])) && missing.is_empty())
}
