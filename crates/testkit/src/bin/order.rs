//! T08: runs scripts on a healthy disk and checks the order of all calls against the rules of `testkit::order`. Usage:
//! `order [--scripts N] [--seed S]`.

use std::process::ExitCode;
use std::time::Duration;

use testkit::faults;
use testkit::order::Counts;
use testkit::report::{argument, exit, finish};
use testkit::trial::rehearse;
use testkit::watch::Watch;

fn main() -> ExitCode {
    let scripts = argument("scripts").unwrap_or(300);
    let seed = argument("seed").unwrap_or(1);
    let watch = Watch::start(Duration::from_secs(60));
    let (mut counts, mut violations) = (Counts::default(), 0);
    for n in 0..scripts {
        let number = seed * 1_000_000 + n;
        watch.begin(&format!("script {number}"));
        match rehearse(&faults::trial(number)) {
            Ok((_, more)) => counts.add(more),
            Err(e) => {
                violations += 1;
                eprintln!("VIOLATION seed {number}: {e}");
            }
        }
    }
    let figures = [
        ("scripts", scripts),
        ("calls", counts.ops),
        ("records", counts.records),
        ("installs", counts.installs),
        ("removals", counts.removals),
        ("switches", counts.switches),
        ("violations", violations),
        ("seed", seed),
    ];
    let floors = [
        ("records", scripts * 10),
        ("installs", scripts / 2),
        ("removals", scripts / 2),
        ("switches", scripts),
    ];
    exit(finish("T08", &figures, &floors))
}
