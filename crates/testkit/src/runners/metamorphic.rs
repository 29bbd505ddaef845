//! T15: one history under random configurations gives equal answers. A case is a configuration.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::metamorphic::{Answers, Config, History, run};
use testkit::process;
use testkit::report::{self, exit, finish, violation};
use testkit::watch::Watch;

#[derive(Parser)]
struct Args {
    /// Chooses the history and the configurations.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Compares this configuration alone with the reference.
    #[arg(long)]
    case: Option<u64>,
    #[arg(long, default_value_t = 24)]
    configs: u64,
    /// Operations of the history.
    #[arg(long, default_value_t = 30_000)]
    length: u64,
    #[arg(long, default_value_t = 3000)]
    keys: u64,
}

pub(crate) fn runner() -> ExitCode {
    let Args { seed, case, configs, length, keys } = process::arguments();
    let numbers = case.map_or(0..configs, |n| n..n.saturating_add(1));
    let configs = numbers.end - numbers.start;
    let only = [("seed", seed.to_string())];
    let watch = Watch::start(Duration::from_secs(300));
    let history = History::new(seed, length as usize, keys);
    let mut violations = 0;
    let mut run = |name: &str, config: &Config| {
        watch.begin(name);
        run(&history, config).unwrap_or_else(|e| {
            violation(format_args!("{name}: {e}\n{config}"));
            violations += 1;
            Answers::default()
        })
    };
    report::begin_only(&[("seed", seed.to_string()), ("configs", "0".to_owned())]);
    let wanted = run("reference", &Config::reference());
    let mut all = Answers::default();
    let mut different = 0;
    for n in numbers {
        report::begin(&only, n);
        let config = Config::random(seed.wrapping_mul(1000) + n);
        let answers = run(&format!("configuration {n}"), &config);
        if let Some(at) = wanted.reads.iter().zip(&answers.reads).position(|(a, b)| a != b) {
            violation(format_args!("configuration {n}: answer {at} differs\n{config}"));
            different += 1;
        }
        different += u64::from(answers.reads.len() != wanted.reads.len());
        all.levels = all.levels.max(answers.levels);
        all.merges += answers.merges;
        all.parts += answers.parts;
        all.reopens += answers.reopens;
        all.views += answers.views;
        all.taken += answers.taken;
    }
    let figures = [
        ("configs", configs),
        ("answers", wanted.reads.len() as u64),
        ("merges", all.merges),
        ("parts", all.parts),
        ("levels", all.levels),
        ("reopens", all.reopens),
        ("views", all.views),
        ("taken", all.taken),
        ("violations", violations + different),
        ("seed", seed),
    ];
    let floors = [
        ("answers", length / 5),
        ("merges", configs * length / 1000),
        ("parts", configs * length / 1000),
        ("levels", 4),
        ("reopens", configs),
        ("views", length / 200),
        ("taken", configs * length / 2000),
    ];
    let floors = if case.is_some() || configs == 0 { &[][..] } else { &floors };
    exit(finish("T15", &figures, floors))
}
