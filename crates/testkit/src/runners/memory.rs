//! T48, one number for memory: a mixed load with large transactions and many families runs in a control group a quarter larger
//! than `memory_limit`. It is killed and reopened. The kernel must never kill it, its anonymous memory must stay
//! within 115 % of the limit, and the breakdown must differ from it by at most 10 % of the limit in nine of ten samples.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::memory::{Group, Plan, Seen, child, run};
use testkit::process;
use testkit::report::{self, OneCase, exit, finish, temp_dir, violation};
use testkit::watch::Watch;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    one: OneCase,
    /// `memory_limit` in MiB.
    #[arg(long, default_value_t = 256)]
    limit: u64,
    /// Size of the control group in MiB; a quarter more than the limit by default.
    #[arg(long)]
    group: Option<u64>,
    /// What is written.
    #[arg(long, default_value_t = 3000)]
    mib: u64,
    /// Size of a large transaction in MiB.
    #[arg(long, default_value_t = 100)]
    transaction: u64,
    #[arg(long, default_value_t = 100)]
    families: u64,
    #[arg(long, default_value_t = 1)]
    kills: u64,
    /// Where the temporary folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The folder of the database of a process that is the load.
    #[arg(long, hide = true)]
    child: Option<PathBuf>,
    /// The file that the load writes its process number to, to join a control group.
    #[arg(long, hide = true)]
    join: Option<PathBuf>,
    /// 1 for the load that is not killed.
    #[arg(long, hide = true, default_value_t = 0)]
    last: u64,
}

pub(crate) fn runner() -> ExitCode {
    let args: Args = process::arguments();
    let plan = Plan {
        limit: args.limit << 20,
        group: args.group.unwrap_or(args.limit * 5 / 4) << 20,
        bytes: args.mib << 20,
        transaction: args.transaction << 20,
        families: args.families,
        kills: args.kills,
        seed: args.one.case,
    };
    match &args.child {
        Some(dir) => in_child(dir, plan, &args),
        None => in_parent(plan, args.dir.as_deref()),
    }
}

fn in_child(dir: &Path, plan: Plan, args: &Args) -> ExitCode {
    if let Some(procs) = &args.join
        && let Err(e) = std::fs::write(procs, std::process::id().to_string())
    {
        println!("failed: join the control group: {e}");
        return ExitCode::FAILURE;
    }
    match child(dir, plan, args.last == 1) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("failed: {e}");
            ExitCode::FAILURE
        }
    }
}

fn in_parent(plan: Plan, dir: Option<&Path>) -> ExitCode {
    report::begin(&[], plan.seed);
    let watch = Watch::start(Duration::from_secs(3600));
    watch.begin("the load");
    let group = Group::new(plan.group);
    if let Err(why) = &group {
        println!("the load runs without a control group: {why}");
    }
    let done =
        temp_dir(dir).map_err(|e| e.to_string()).and_then(|temp| run(temp.path(), plan, group.as_ref().ok()));
    let mut violations = u64::from(done.is_err());
    let seen = done.unwrap_or_else(|e| {
        violation(e);
        Seen::default()
    });
    let share = seen.peak * 100 / plan.limit;
    if seen.killed {
        violation("the kernel killed the load for its memory");
        violations += 1;
    }
    if share > 115 {
        violation(format_args!("anonymous memory reached {share} % of the limit"));
        violations += 1;
    }
    if seen.apart_p90 > 10 {
        violation(format_args!(
            "in a tenth of the samples the breakdown differs from the memory by {} % of the limit or more",
            seen.apart_p90
        ));
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
    exit(finish("T48", &figures, &floors))
}
