//! `cargo xtask soak`: runs the test programs in turn, for hours, each round with the next seed.
//!
//! A program takes `--seed N` and reports failure by its exit code; the simulation runs ten thousand seeds in each round. The disk
//! of `crash` has the habits of another system in each round. The first failure ends the run and is printed with a command
//! that repeats the round; a program of the test kit prints a line `VIOLATION` with the command of the failed case.

use crate::cargo::Done;
use crate::{inject, sim, stages};
use std::path::Path;
use std::time::{Duration, Instant};

const PROGRAMS: [&str; 16] = [
    "model",
    "metamorphic",
    "isolation",
    CRASH,
    "faults",
    "sweep",
    "kill",
    "beside",
    "reopen",
    "fuzz",
    SIM,
    "descriptors",
    "sectors",
    "mounts",
    "memory",
    INJECT,
];

/// The only program that is not part of the test kit.
const INJECT: &str = "inject";
/// The simulation, which has a build of its own, and its seeds of a round.
const SIM: &str = "sim";
const SIM_SEEDS: u64 = 10_000;

/// The program that gives its simulated disk the habits of a system, and these systems.
const CRASH: &str = "crash";
const DISKS: [&str; 3] = ["linux", "macos", "windows"];

/// Options of a run.
#[derive(Debug, PartialEq)]
struct Plan {
    time: Duration,
    seed: u64,
    programs: Vec<String>,
}

/// Runs the plan given by `args`.
///
/// # Errors
/// If the arguments are invalid, and on the first failure of a program.
#[expect(clippy::disallowed_methods, reason = "a tool may look at the clock")]
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let mut plan = parse(args)?;
    if plan.programs.iter().any(|program| program == INJECT)
        && let Some(why) = inject::hindrance()
    {
        println!("soak: SKIPPED {INJECT}: {why}");
        plan.programs.retain(|program| program != INJECT);
    }
    plan.programs.retain(|program| program == INJECT || stages::has_program(root, program));
    if plan.programs.is_empty() {
        return Err("none of these programs can run here".to_owned());
    }
    let begin = Instant::now();
    let mut runs = 0;
    let mut seed = plan.seed;
    while begin.elapsed() < plan.time {
        for program in &plan.programs {
            let args = arguments(program, seed);
            let done = match program.as_str() {
                INJECT => inject::run(root, &args),
                SIM => sim::run(root, &args),
                program => stages::testkit(root, program, &args),
            };
            if let Err(message) = done {
                return Err(format!("{message}\nrepeat with: cargo xtask {program} {}", args.join(" ")));
            }
            runs += 1;
            let minutes = begin.elapsed().as_secs() / 60;
            println!("soak: {minutes} min, {runs} runs, last {program} with seed {seed}, 0 failures");
        }
        seed += 1;
    }
    println!("soak: done, {runs} runs, seeds {} to {}, 0 failures", plan.seed, seed.saturating_sub(1));
    Ok(())
}

/// Returns the arguments of a round.
fn arguments(program: &str, seed: u64) -> Vec<String> {
    if program == SIM {
        let (first, seeds) = (seed.saturating_mul(SIM_SEEDS), SIM_SEEDS);
        return ["--seed", &first.to_string(), "--seeds", &seeds.to_string()].map(str::to_owned).into();
    }
    let mut args = vec!["--seed".to_owned(), seed.to_string()];
    if program == CRASH {
        args.extend(["--disk".to_owned(), DISKS[(seed % 3) as usize].to_owned()]);
    }
    args
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let programs = PROGRAMS.iter().map(|program| (*program).to_owned()).collect();
    let mut plan = Plan { time: Duration::ZERO, seed: 1, programs };
    for pair in args.chunks(2) {
        let [key, value] = pair else { return Err(format!("`{}` needs a value", pair[0])) };
        match key.as_str() {
            "--hours" => plan.time = hours(value)?,
            "--seed" => plan.seed = value.parse().map_err(|_| format!("`{value}` is not a seed"))?,
            "--only" if PROGRAMS.contains(&value.as_str()) => plan.programs = vec![value.clone()],
            "--only" => return Err(format!("`{value}` is not one of {}", PROGRAMS.join(" "))),
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    if plan.time.is_zero() {
        return Err("the duration is missing: --hours H".to_owned());
    }
    Ok(plan)
}

fn hours(value: &str) -> Result<Duration, String> {
    let hours: f64 = value.parse().map_err(|_| format!("`{value}` is no number of hours"))?;
    Duration::try_from_secs_f64(hours * 3600.0).map_err(|_| format!("`{value}` is no number of hours"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_make_a_plan() {
        assert!(plan("--hours 1 --only inject").is_ok_and(|plan| plan.programs == [INJECT]));
        let plan = plan("--hours 0.5 --seed 7 --only crash").expect("all of it is right");
        assert_eq!(
            plan,
            Plan { time: Duration::from_secs(1800), seed: 7, programs: vec!["crash".to_owned()] }
        );
    }

    #[test]
    fn three_rounds_take_the_habits_of_each_system() {
        let disks: Vec<String> = (1..4).filter_map(|seed| arguments("crash", seed).pop()).collect();
        assert_eq!(disks, ["macos", "windows", "linux"]);
        assert_eq!(arguments("kill", 1), ["--seed", "1"]);
        assert_eq!(arguments("sim", 2), ["--seed", "20000", "--seeds", "10000"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in
            ["", "--hours", "--hours -1", "--hours x", "--hours 1 --only x", "--hours 1 --fast 1", "--seed 1"]
        {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
