//! T27: damages every byte of every file of small databases and reports damage that is not detected. A case
//! is a shape of database.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use testkit::process;
use testkit::report::{self, exit, finish, violation};
use testkit::sweep::{Report, SHAPES, Subject, missing_kinds};
use testkit::watch::Watch;

#[derive(Parser)]
struct Args {
    /// Chooses the contents of the databases and the damage.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Damages this shape of database alone.
    #[arg(long, value_parser = clap::value_parser!(u64).range(..SHAPES.len() as u64))]
    case: Option<u64>,
    /// Damages one byte of so many.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    stride: u64,
    /// Blocks that are replaced, swapped or cleared.
    #[arg(long, default_value_t = 300)]
    blocks: u64,
    #[arg(long, default_value_t = 2)]
    threads: u64,
}

pub(crate) fn runner() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported with its case
    let Args { seed, case, stride, blocks, threads } = process::arguments();
    let only = case.map(|n| n as usize);
    let watch = Watch::start(Duration::from_secs(600));
    let next = AtomicUsize::new(0);
    let all = Mutex::new((Report::default(), 0u64));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let shape = next.fetch_add(1, Relaxed);
                    if shape >= SHAPES.len() {
                        return watch.end();
                    }
                    if only.is_some_and(|only| only != shape) {
                        continue;
                    }
                    report::case(&[("seed", seed.to_string())], shape as u64, || {
                        let report = Subject::build(shape, seed + shape as u64)
                            .map(|s| s.sweep(stride, blocks, seed, |what| watch.begin(what)));
                        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                        match report {
                            Ok(report) => all.0.merge(report),
                            Err(e) => {
                                violation(format_args!("{}: {e}", SHAPES[shape]));
                                all.1 += 1;
                            }
                        }
                    });
                }
            });
        }
    });
    let (report, broken) = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    print(&report);
    let t = report.total();
    let missing = if only.is_some() { 0 } else { missing_kinds(&report).len() as u64 };
    let figures = [
        ("bytes", t.bytes),
        ("mutations", t.mutations),
        ("detected", t.detected),
        ("declared", t.harmless),
        ("undeclared", t.undeclared),
        ("silent", t.silent),
        ("violations", t.silent + t.undeclared + broken + missing),
        ("seed", seed),
    ];
    exit(finish("T27", &figures, &[("mutations", t.bytes / stride), ("detected", t.bytes / stride / 8)]))
}

fn print(report: &Report) {
    for (kind, f) in &report.kinds {
        println!(
            "{kind:>10}: {:>2} files {:>7} bytes {:>8} mutations {:>8} detected {:>7} declared {:>5} undeclared {:>5} silent",
            f.files, f.bytes, f.mutations, f.detected, f.harmless, f.undeclared, f.silent
        );
    }
    for (why, n) in &report.declared {
        println!("  declared: {n:>8} x {why}");
    }
}
