//! Runs the fuzz targets.
//! `fuzz [--target NAME] [--seconds S] [--seed N] [--input FILE] [--write-corpus]`.
//!
//! Each target runs in a separate process with a limit on its memory. This process watches it. Input `n` of a run depends only on
//! seed and `n`, so the number is enough to reproduce the input that ended the other process. A panic, an
//! abort, a hang and excessive memory are findings; each is minimized and written to `target/fuzz`.

#![expect(
    clippy::disallowed_methods,
    reason = "watches a process: its files and threads do not belong to a database"
)]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use testkit::fuzz::targets::{TARGETS, Target};
use testkit::fuzz::{corpus, mutate};
use testkit::report::{argument, exit, finish, text_argument};
use testkit::rng::Rng;
use tidesdb_io::{Clock, RealClock};

/// Limit on the address space of a process that runs inputs, in bytes.
const MEMORY_MAX: u64 = 2 << 30;
/// Time limit for one input.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// Number of findings after which a target is stopped.
const FINDINGS_MAX: usize = 10;
/// Attempts to minimize a finding.
const SHRINKS_MAX: usize = 150;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.iter().any(|a| a == "--write-corpus") {
        return exit(corpus::write().is_ok());
    }
    let named = text_argument("target");
    let targets: Vec<Target> =
        TARGETS.into_iter().filter(|t| named.as_deref().is_none_or(|n| n == t.name)).collect();
    let Some(first) = targets.first() else {
        eprintln!("targets: {}", TARGETS.map(|t| t.name).join(" "));
        return exit(false);
    };
    if let Some(file) = text_argument("input") {
        return run_file(first, Path::new(&file));
    }
    let seed = argument("seed").unwrap_or(1);
    let seconds = argument("seconds").unwrap_or(600);
    if let Some(progress) = text_argument("progress") {
        return work(first, seed, argument("from").unwrap_or(0), seconds, &progress);
    }
    let mut good = true;
    for target in targets {
        let run = watch(&target, seed, seconds);
        let figures =
            [("executions", run.executions), ("violations", run.findings.len() as u64), ("seed", seed)];
        good &= finish(&format!("fuzz-{}", target.name), &figures, &[("executions", 1)]);
    }
    exit(good)
}

/// Returns the seeds of a target: those in the source tree, or newly built ones if it has none.
fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let read = corpus::read(target).unwrap_or_default();
    let all = if read.is_empty() { (target.seeds)() } else { read };
    all.into_iter().map(|(_, input)| input).collect()
}

fn nth(seeds: &[Vec<u8>], seed: u64, n: u64) -> Vec<u8> {
    mutate::input(seeds, &mut Rng::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(n)))
}

fn limit_memory() {
    let limit = Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    if let Err(e) = setrlimit(Resource::As, limit) {
        eprintln!("the memory limit cannot be set: {e}");
    }
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, none);
}

/// Runs one input; returns a panic as an error with its location.
fn run(target: &Target, input: &[u8], place: &Mutex<String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input)))
        .map_err(|_| place.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Records where panics happen instead of printing them.
fn panics() -> Arc<Mutex<String>> {
    let place = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&place);
    std::panic::set_hook(Box::new(move |info| {
        let text = info.to_string().replace('\n', " ");
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }));
    place
}

fn run_file(target: &Target, file: &Path) -> ExitCode {
    limit_memory();
    let place = panics();
    let Ok(input) = std::fs::read(file) else { return exit(false) };
    match run(target, &input, &place) {
        Ok(()) => exit(true),
        Err(what) => {
            println!("{what}");
            exit(false)
        }
    }
}

/// Runs inputs in the child process: writes each number before it begins, and each panic.
fn work(target: &Target, seed: u64, from: u64, seconds: u64, progress: &str) -> ExitCode {
    limit_memory();
    let place = panics();
    let clock = RealClock::new();
    let seeds = seeds(target);
    let Ok(file) = std::fs::OpenOptions::new().write(true).open(progress) else { return exit(false) };
    let mut n = from;
    while clock.mono().as_secs() < seconds {
        if file.write_all_at(&n.to_le_bytes(), 0).is_err() {
            return exit(false);
        }
        if let Err(what) = run(target, &nth(&seeds, seed, n), &place) {
            println!("{n} {what}");
        }
        n += 1;
    }
    let told = file.write_all_at(&n.to_le_bytes(), 0);
    exit(told.is_ok())
}

#[derive(Debug, Default)]
struct Run {
    executions: u64,
    /// Descriptions of the findings, one per location.
    findings: Vec<String>,
}

/// Runs a target for some seconds in a child process, and watches the process.
fn watch(target: &Target, seed: u64, seconds: u64) -> Run {
    let clock = RealClock::new();
    let mut run = Run::default();
    while clock.mono().as_secs() < seconds && run.findings.len() < FINDINGS_MAX {
        let left = seconds - clock.mono().as_secs();
        let Some((next, ended)) = session(target, seed, run.executions, left, &mut run.findings) else {
            run.findings.push("a process could not be started".to_owned());
            break;
        };
        run.executions = next;
        if let Some(what) = ended {
            found(target, seed, next, &what, &mut run.findings);
            run.executions += 1;
        }
    }
    run
}

/// Runs one process; returns the last number, and why it ended if not because of the time limit.
fn session(
    target: &Target,
    seed: u64,
    from: u64,
    seconds: u64,
    findings: &mut Vec<String>,
) -> Option<(u64, Option<String>)> {
    let progress = std::env::temp_dir().join(format!("tidesdb-fuzz-{}.progress", std::process::id()));
    std::fs::write(&progress, from.to_le_bytes()).ok()?;
    let file = std::fs::File::open(&progress).ok()?;
    let number = || {
        let mut bytes = [0; 8];
        let _ = file.read_exact_at(&mut bytes, 0);
        u64::from_le_bytes(bytes)
    };
    let mut child = Command::new(std::env::current_exe().ok()?)
        .args(["--target", target.name, "--seed", &seed.to_string(), "--from", &from.to_string()])
        .args(["--seconds", &seconds.to_string(), "--progress"])
        .arg(&progress)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let reader = listen(&mut child, &told);
    let ended = wait(&mut child, &number);
    if let Some(reader) = reader {
        let _ = reader.join();
    }
    let _ = std::fs::remove_file(&progress);
    for line in told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let (n, what) = line.split_once(' ').unwrap_or(("0", line));
        found(target, seed, n.parse().unwrap_or(0), what, findings);
    }
    Some((number(), ended))
}

fn listen(child: &mut Child, told: &Arc<Mutex<Vec<String>>>) -> Option<std::thread::JoinHandle<()>> {
    let (out, told) = (child.stdout.take()?, Arc::clone(told));
    Some(std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            told.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }))
}

/// Waits for the end of `child`; returns how it ended unless it was successful. Kills a child that makes no progress.
fn wait(child: &mut Child, number: &dyn Fn() -> u64) -> Option<String> {
    let clock = RealClock::new();
    let (mut last, mut since) = (number(), clock.mono());
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("the process ended: {status}")),
            Err(e) => return Some(format!("the process cannot be observed: {e}")),
            Ok(None) => {}
        }
        let now = number();
        if now != last {
            (last, since) = (now, clock.mono());
        }
        if clock.mono().saturating_sub(since) > INPUT_TIME_MAX {
            let _ = child.kill();
            let _ = child.wait();
            return Some(format!("an input took longer than {INPUT_TIME_MAX:?}"));
        }
        clock.sleep(Duration::from_millis(50));
    }
}

/// Records a finding unless its location is known, and writes the minimized input.
fn found(target: &Target, seed: u64, n: u64, what: &str, findings: &mut Vec<String>) {
    if findings.iter().any(|known| known == what) {
        return;
    }
    findings.push(what.to_owned());
    println!("VIOLATION fuzz-{} seed {seed} input {n}: {what}", target.name);
    let folder = PathBuf::from("target/fuzz");
    let path = folder.join(format!("{}-{seed}-{n}", target.name));
    let input = nth(&seeds(target), seed, n);
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, &input));
    if let Err(e) = written {
        eprintln!("{}: {e}", path.display());
        return;
    }
    let small = shrink(target, &path, input);
    if let Err(e) = std::fs::write(&path, &small) {
        eprintln!("{}: {e}", path.display());
    }
    println!("  {} bytes in {}", small.len(), path.display());
}

/// Returns whether the input in `path` fails, in a separate process.
fn fails(target: &Target, path: &Path) -> bool {
    let Ok(exe) = std::env::current_exe() else { return false };
    let child = Command::new(exe)
        .args(["--target", target.name, "--input"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.is_ok_and(|mut child| wait(&mut child, &|| 0).is_some())
}

/// Removes parts of the input, of decreasing size, as long as it fails.
fn shrink(target: &Target, path: &Path, mut input: Vec<u8>) -> Vec<u8> {
    let trial = path.with_extension("trial");
    let mut size = input.len().div_ceil(2);
    let mut tries = 0;
    while size > 0 && tries < SHRINKS_MAX {
        let mut at = 0;
        while at < input.len() && tries < SHRINKS_MAX {
            let mut less = input.clone();
            less.drain(at..(at + size).min(input.len()));
            tries += 1;
            if std::fs::write(&trial, &less).is_ok() && fails(target, &trial) {
                input = less;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    let _ = std::fs::remove_file(&trial);
    input
}
