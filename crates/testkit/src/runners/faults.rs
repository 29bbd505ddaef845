//! Makes every disk call of the engine fail (T09), makes every sync fail by three models (T10), and fills the disk at
//! many points (T11). Reports every broken promise. A case is a script.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use testkit::faults::{self, Totals};
use testkit::group;
use testkit::process;
use testkit::report::{Cases, exit, finish};
use testkit::watch::Watch;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    numbers: Cases,
    /// Trials of a fault, of all scripts together.
    #[arg(long, default_value_t = 6_000)]
    cases: u64,
    /// Approximate number of calls of a script that fail.
    #[arg(long, default_value_t = 150)]
    points: usize,
    /// Runs T09, T10 or T11 alone.
    #[arg(long, value_parser = clap::value_parser!(u64).range(9..=11))]
    only: Option<u64>,
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

/// Runs the script with the given number on one thread.
type Script<'a> = dyn Fn(u64, &Watch) -> Totals + Sync + 'a;

pub(crate) fn runner() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported with its case
    let args: Args = process::arguments();
    let Args { numbers, cases, points, .. } = args;
    let wanted = |n: u64| args.only.is_none_or(|only| only == n);
    let watch = Watch::start(Duration::from_secs(60));
    let mut good = true;
    if wanted(9) {
        let t = run(&args, 9, cases, &watch, &|n, w| faults::every_call(n, points, |what| w.begin(what)));
        good &= end("T09", &t, &numbers, cases);
    }
    if wanted(10) {
        let per_kind = points / 12 + 2;
        let syncs = |n, w: &Watch| faults::every_sync(n, per_kind, |what| w.begin(what));
        let mut t = run(&args, 10, cases / 2, &watch, &syncs);
        let groups = |n, w: &Watch| group::many(n, 10, |what| w.begin(what));
        t.merge(&run(&args, 10, cases / 10, &watch, &groups));
        good &= end("T10", &t, &numbers, cases / 2);
    }
    if wanted(11) {
        let budgets = |n, w: &Watch| faults::every_budget(n, points as u64 / 2, |what| w.begin(what));
        let t = run(&args, 11, cases / 4, &watch, &budgets);
        good &= end("T11", &t, &numbers, cases / 4);
    }
    exit(good)
}

fn end(test: &str, totals: &Totals, numbers: &Cases, cases: u64) -> bool {
    let floors = [("cases", cases), ("errors", cases / 10), ("went_on", 1)];
    finish(test, &totals.figures(numbers.seed), numbers.floors(&floors))
}

/// Runs scripts of test `test` on all threads until there are enough cases.
fn run(args: &Args, test: u64, cases: u64, watch: &Watch, script: &Script<'_>) -> Totals {
    let totals = Mutex::new(Totals::default());
    let lock = || totals.lock().unwrap_or_else(PoisonError::into_inner);
    let enough = || {
        let totals = lock();
        totals.cases >= cases || totals.violations >= 20
    };
    args.numbers.run(args.threads, &[("only", test.to_string())], enough, |n| {
        let more = script(n, watch);
        watch.end();
        lock().merge(&more);
    });
    totals.into_inner().unwrap_or_else(PoisonError::into_inner)
}
