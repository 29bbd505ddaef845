//! T08: runs scripts on a healthy disk and checks the order of all calls against the rules of `testkit::order`. A case is a
//! script.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::faults;
use testkit::order::Counts;
use testkit::process;
use testkit::report::{self, Cases, exit, finish, violation};
use testkit::trial::rehearse;
use testkit::watch::Watch;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    #[arg(long, default_value_t = 300)]
    scripts: u64,
}

pub(crate) fn runner() -> ExitCode {
    let Args { cases, scripts } = process::arguments();
    let watch = Watch::start(Duration::from_secs(60));
    let (mut counts, mut violations) = (Counts::default(), 0);
    for number in cases.numbers(1_000_000, scripts) {
        report::begin(&[], number);
        watch.begin(&format!("script {number}"));
        match rehearse(&faults::trial(number)) {
            Ok((_, more)) => counts.add(more),
            Err(e) => {
                violations += 1;
                violation(format_args!("script {number}: {e}"));
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
        ("seed", cases.seed),
    ];
    let floors = [
        ("records", scripts * 10),
        ("installs", scripts / 2),
        ("removals", scripts / 2),
        ("switches", scripts),
    ];
    exit(finish("T08", &figures, cases.floors(&floors)))
}
