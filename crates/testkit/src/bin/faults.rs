//! Makes every call of the engine to the disk fail (T09), every sync with three models (T10), and the disk full at many points
//! (T11), and checks for violated promises.
//! `faults [--cases N] [--seed S] [--threads T] [--points P] [--only 9|10|11] [--script SEED]`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::faults::{self, Totals};
use testkit::group;
use testkit::report::{argument, exit, finish};
use testkit::watch::Watch;

/// Runs the script of a number in one worker.
type Script<'a> = dyn Fn(u64, &Watch) -> Totals + Sync + 'a;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported with its case
    let seed = argument("seed").unwrap_or(1);
    let cases = argument("cases").unwrap_or(6_000);
    let points = argument("points").unwrap_or(150) as usize;
    let only = argument("only");
    let wanted = |n: u64| only.is_none_or(|only| only == n);
    let watch = Watch::start(Duration::from_secs(60));
    let mut good = true;
    if wanted(9) {
        let t = run(seed, cases, &watch, &|n, w| faults::every_call(n, points, |what| w.begin(what)));
        good &= end("T09", &t, seed, cases);
    }
    if wanted(10) {
        let per_kind = points / 12 + 2;
        let mut t =
            run(seed, cases / 2, &watch, &|n, w| faults::every_sync(n, per_kind, |what| w.begin(what)));
        let groups = run(seed, cases / 10, &watch, &|n, w| group::many(n, 10, |what| w.begin(what)));
        t.merge(&groups);
        good &= end("T10", &t, seed, cases / 2);
    }
    if wanted(11) {
        let t = run(seed, cases / 4, &watch, &|n, w| {
            faults::every_budget(n, points as u64 / 2, |what| w.begin(what))
        });
        good &= end("T11", &t, seed, cases / 4);
    }
    exit(good)
}

fn end(test: &str, totals: &Totals, seed: u64, cases: u64) -> bool {
    finish(test, &totals.figures(seed), &[("cases", cases), ("errors", cases / 10), ("went_on", 1)])
}

/// Runs scripts on all threads until there are enough cases.
fn run(seed: u64, cases: u64, watch: &Watch, script: &Script<'_>) -> Totals {
    let next = AtomicU64::new(argument("script").unwrap_or(seed * 1_000_000));
    let totals = Mutex::new(Totals::default());
    let enough = || {
        let totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.cases >= cases || totals.violations >= 20
    };
    std::thread::scope(|scope| {
        for _ in 0..argument("threads").unwrap_or(2) {
            scope.spawn(|| {
                while !enough() {
                    let more = script(next.fetch_add(1, Relaxed), watch);
                    watch.end();
                    totals.lock().unwrap_or_else(PoisonError::into_inner).merge(&more);
                    if argument("script").is_some() {
                        break;
                    }
                }
            });
        }
    });
    totals.into_inner().unwrap_or_else(PoisonError::into_inner)
}
