//! T15: one history under random configurations gives equal answers. Usage: `metamorphic [--configs N] [--length N] [--keys N]
//! [--seed S]`.

use std::process::ExitCode;
use std::time::Duration;

use testkit::metamorphic::{Answers, Config, History, run};
use testkit::report::{argument, exit, finish};
use testkit::watch::Watch;

fn main() -> ExitCode {
    let configs = argument("configs").unwrap_or(24);
    let length = argument("length").unwrap_or(30_000);
    let keys = argument("keys").unwrap_or(3000);
    let seed = argument("seed").unwrap_or(1);
    let watch = Watch::start(Duration::from_secs(300));
    let history = History::new(seed, length as usize, keys);
    let mut violations = 0;
    let mut run = |name: &str, config: &Config| {
        watch.begin(name);
        run(&history, config).unwrap_or_else(|e| {
            eprintln!("VIOLATION seed {seed}, {name}: {e}\n{config}");
            violations += 1;
            Answers::default()
        })
    };
    let wanted = run("reference", &Config::reference());
    let mut all = Answers::default();
    let mut different = 0;
    for n in 0..configs {
        let config = Config::random(seed.wrapping_mul(1000) + n);
        let answers = run(&format!("configuration {n}"), &config);
        if let Some(at) = wanted.reads.iter().zip(&answers.reads).position(|(a, b)| a != b) {
            eprintln!("VIOLATION seed {seed}, configuration {n}: answer {at} differs\n{config}");
            different += 1;
        }
        different += u64::from(answers.reads.len() != wanted.reads.len());
        all.levels = all.levels.max(answers.levels);
        all.merges += answers.merges;
        all.parts += answers.parts;
        all.reopens += answers.reopens;
    }
    let figures = [
        ("configs", configs),
        ("answers", wanted.reads.len() as u64),
        ("merges", all.merges),
        ("parts", all.parts),
        ("levels", all.levels),
        ("reopens", all.reopens),
        ("violations", violations + different),
        ("seed", seed),
    ];
    let floors = [
        ("answers", length / 5),
        ("merges", configs * length / 1000),
        ("parts", configs * length / 1000),
        ("levels", 4),
        ("reopens", configs),
    ];
    exit(finish("T15-metamorphic", &figures, &floors))
}
