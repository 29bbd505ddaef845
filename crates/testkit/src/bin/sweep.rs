//! T27: damages every byte of every file of small databases and checks that the damage is reported.
//! `sweep [--stride N] [--blocks N] [--seed S] [--threads T] [--shape N]`.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::report::{argument, exit, finish};
use testkit::sweep::{Report, SHAPES, Subject, missing_kinds};
use testkit::watch::Watch;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| {})); // a panic is reported with its case
    let stride = argument("stride").unwrap_or(1).max(1);
    let blocks = argument("blocks").unwrap_or(300);
    let seed = argument("seed").unwrap_or(1);
    let only = argument("shape").map(|n| n as usize);
    let watch = Watch::start(Duration::from_secs(600));
    let next = AtomicUsize::new(0);
    let all = Mutex::new((Report::default(), 0u64));
    std::thread::scope(|scope| {
        for _ in 0..argument("threads").unwrap_or(2) {
            scope.spawn(|| {
                loop {
                    let shape = next.fetch_add(1, Relaxed);
                    if shape >= SHAPES.len() {
                        return watch.end();
                    }
                    if only.is_some_and(|only| only != shape) {
                        continue;
                    }
                    let report = Subject::build(shape, seed + shape as u64)
                        .map(|s| s.sweep(stride, blocks, seed, |what| watch.begin(what)));
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    match report {
                        Ok(report) => all.0.merge(report),
                        Err(e) => {
                            eprintln!("VIOLATION {}: {e}", SHAPES[shape]);
                            all.1 += 1;
                        }
                    }
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
