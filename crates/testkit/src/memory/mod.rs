//! A mixed load in a process of its own, inside a memory control group, and the parent that watches it.

mod group;
mod load;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

pub use group::Group;
use group::memory_of;
pub use load::run as child;
use tidesdb_io::{Clock, RealClock};

use crate::process;

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// `memory_limit` of the database in bytes.
    pub limit: u64,
    /// Limit of the control group in bytes.
    pub group: u64,
    /// Bytes of keys and values to write in all.
    pub bytes: u64,
    /// Bytes of one large transaction.
    pub transaction: u64,
    /// Number of column families.
    pub families: u64,
    /// How often the load is killed and goes on in a new process.
    pub kills: u64,
    /// Seed of the load.
    pub seed: u64,
}

/// What the parent saw of the two processes.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Highest anonymous resident memory in bytes.
    pub peak: u64,
    /// Highest resident memory in bytes, with pages of files that are mapped.
    pub peak_rss: u64,
    /// Duration of the load in milliseconds.
    pub millis: u64,
    /// Samples taken.
    pub samples: u64,
    /// True if the system killed a process for its memory.
    pub killed: bool,
    /// Largest difference between the breakdown and the resident memory, in percent of the limit.
    pub apart_max: u64,
    /// Largest such difference in 90 % of the samples.
    pub apart_p90: u64,
    /// Commits refused with `Busy` or `MemoryLimit`.
    pub refused: u64,
    /// Large transactions committed.
    pub transactions: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Rows read.
    pub rows: u64,
    /// Processor time of the idle database, in millionths of one core.
    pub idle_ppm: u64,
}

/// Interval between two looks at the memory of the process.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the load in one process after another over one directory: all but the last are killed while they write.
///
/// # Errors
/// A process that fails for another reason than its memory.
pub fn run(dir: &Path, plan: Plan, group: Option<&Group>) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let (clock, mut lasts) = (RealClock::new(), vec![false; plan.kills as usize]);
    lasts.push(true);
    let begun = clock.mono();
    for last in lasts {
        let process = start(dir, plan, group, last)?;
        if !watch(process, last, &mut seen)? {
            break;
        }
    }
    seen.millis = (clock.mono() - begun).as_millis() as u64;
    if let Some(group) = group {
        seen.killed |= group.has_killed();
    }
    Ok(seen)
}

fn start(dir: &Path, plan: Plan, group: Option<&Group>, last: bool) -> Result<Child, String> {
    let number = |n: u64| n.to_string();
    let mut command = process::itself()?;
    command.args(["--child", &dir.display().to_string(), "--last", &number(last.into())]);
    command.args(["--limit", &number(plan.limit >> 20), "--mib", &number(plan.bytes >> 20)]);
    command.args(["--transaction", &number(plan.transaction >> 20), "--families", &number(plan.families)]);
    command.args(["--kills", &number(plan.kills), "--seed", &number(plan.seed)]);
    if let Some(group) = group {
        command.args(["--join", &group.procs().display().to_string()]);
    }
    command.stdout(Stdio::piped()).spawn().map_err(|e| format!("start the load: {e}"))
}

/// Watches one process to its end. Returns whether the run goes on.
fn watch(mut process: Child, last: bool, seen: &mut Seen) -> Result<bool, String> {
    let pid = process.id();
    let out = process.stdout.take().ok_or("the load has no output")?;
    let (lines, peak) = std::thread::scope(|scope| {
        let sampler = scope.spawn(move || sample(pid));
        let lines: Vec<String> = BufReader::new(out)
            .lines()
            .map_while(Result::ok)
            .inspect(|line| {
                if !last && line == "half" {
                    let _ = process.kill();
                }
                println!("  {line}");
            })
            .collect();
        let ended = process.wait();
        (lines, sampler.join().map(|peak| (peak, ended)))
    });
    let (sampled, ended) = peak.map_err(|_| "the sampler panicked")?;
    seen.peak = seen.peak.max(sampled.anonymous);
    seen.peak_rss = seen.peak_rss.max(sampled.resident);
    seen.samples += sampled.samples;
    note(&lines, seen);
    let reached = lines.iter().any(|line| line == if last { "done" } else { "half" });
    let ended = ended.map_err(|e| format!("wait: {e}"))?;
    if !reached && ended.code().is_none() {
        seen.killed = true;
        return Ok(false);
    }
    if !reached {
        return Err(format!("the load ended early: {ended}"));
    }
    Ok(true)
}

/// Highest figures of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Sampled {
    anonymous: u64,
    resident: u64,
    samples: u64,
}

/// Samples the memory of the process until it ends.
fn sample(pid: u32) -> Sampled {
    let (clock, mut all) = (RealClock::new(), Sampled::default());
    while let Some((anonymous, resident)) = memory_of(pid) {
        all.anonymous = all.anonymous.max(anonymous);
        all.resident = all.resident.max(resident);
        all.samples += 1;
        clock.sleep(LOOK);
    }
    all
}

/// Adds up what the process printed: `sample` lines with the difference between memory and breakdown, and `total` lines.
fn note(lines: &[String], seen: &mut Seen) {
    let mut apart: Vec<u64> = Vec::new();
    for line in lines {
        let text = |name: &str| {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or("")
        };
        let field = |name: &str| text(name).parse::<u64>().unwrap_or(0);
        if line.starts_with("sample ") {
            apart.extend(text("apart").split(',').filter_map(|n| n.parse::<u64>().ok()));
        } else if line.starts_with("total ") {
            seen.refused += field("refused");
            seen.transactions += field("transactions");
            seen.bytes += field("mib") << 20;
            seen.rows += field("rows");
            seen.idle_ppm = seen.idle_ppm.max(field("idle_ppm"));
        }
    }
    apart.sort_unstable();
    seen.apart_max = seen.apart_max.max(apart.last().copied().unwrap_or(0));
    seen.apart_p90 = seen.apart_p90.max(apart.get(apart.len() * 9 / 10).copied().unwrap_or(0));
}
