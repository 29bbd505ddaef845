//! T41, one number for memory: a mixed load with large transactions and many families runs in a control group a quarter larger
//! than `memory_limit`. It is killed and reopened. The kernel must never kill it, its anonymous memory must stay
//! within 115 % of the limit, and the breakdown must differ from it by at most 10 % of the limit in nine of ten samples.
//! Usage: `memory [--limit MIB] [--group MIB] [--mib N] [--transaction MIB] [--families N] [--kills N] [--seed S] [--dir PATH]`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use testkit::memory::{Group, Plan, Seen, child, run};
use testkit::report::{argument, exit, finish, temp_dir, text_argument};
use testkit::watch::Watch;

fn main() -> ExitCode {
    let limit = argument("limit").unwrap_or(256);
    let plan = Plan {
        limit: limit << 20,
        group: argument("group").unwrap_or(limit * 5 / 4) << 20,
        bytes: argument("mib").unwrap_or(3000) << 20,
        transaction: argument("transaction").unwrap_or(100) << 20,
        families: argument("families").unwrap_or(100),
        kills: argument("kills").unwrap_or(1),
        seed: argument("seed").unwrap_or(1),
    };
    match text_argument("child") {
        Some(dir) => in_child(Path::new(&dir), plan),
        None => in_parent(plan),
    }
}

fn in_child(dir: &Path, plan: Plan) -> ExitCode {
    if let Some(procs) = text_argument("join")
        && let Err(e) = std::fs::write(&procs, std::process::id().to_string())
    {
        println!("failed: join the control group: {e}");
        return ExitCode::FAILURE;
    }
    match child(dir, plan, argument("last") == Some(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("failed: {e}");
            ExitCode::FAILURE
        }
    }
}

fn in_parent(plan: Plan) -> ExitCode {
    let watch = Watch::start(Duration::from_secs(3600));
    watch.begin("the load");
    let group = Group::new(plan.group);
    if let Err(why) = &group {
        println!("the load runs without a control group: {why}");
    }
    let done =
        temp_dir().map_err(|e| e.to_string()).and_then(|temp| run(temp.path(), plan, group.as_ref().ok()));
    let mut violations = u64::from(done.is_err());
    let seen = done.unwrap_or_else(|e| {
        eprintln!("VIOLATION: {e}");
        Seen::default()
    });
    let share = seen.peak * 100 / plan.limit;
    if seen.killed {
        eprintln!("VIOLATION: the kernel killed the load for its memory");
        violations += 1;
    }
    if share > 115 {
        eprintln!("VIOLATION: anonymous memory reached {share} % of the limit");
        violations += 1;
    }
    if seen.apart_p90 > 10 {
        eprintln!(
            "VIOLATION: in a tenth of the samples the breakdown differs from the memory by {} % of the limit or more",
            seen.apart_p90
        );
        violations += 1;
    }
    let figures = [
        ("limit_mib", plan.limit >> 20),
        ("killed", seen.killed.into()),
        ("peak_mib", seen.peak >> 20),
        ("peak_percent", share),
        ("rss_percent", seen.peak_rss * 100 / plan.limit),
        ("apart_max_percent", seen.apart_max),
        ("apart_p90_percent", seen.apart_p90),
        ("mib", seen.bytes >> 20),
        ("seconds", seen.millis / 1000),
        ("transactions", seen.transactions),
        ("rows", seen.rows),
        ("refused", seen.refused),
        ("idle_ppm", seen.idle_ppm),
        ("samples", seen.samples),
        ("violations", violations),
        ("seed", plan.seed),
    ];
    let floors = [("mib", plan.bytes >> 20), ("transactions", 2), ("rows", 1000), ("samples", 100)];
    exit(finish("T41-memory", &figures, &floors))
}
