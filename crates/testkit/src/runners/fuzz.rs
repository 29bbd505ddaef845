//! Fuzz: runs the fuzz targets. A case is an input of a target and a seed.
//!
//! Each target runs in its own process with a limit on its memory; this process watches it. Input `n` of a run is
//! generated from the seed and `n` alone, so the number identifies an input that killed the process. A panic, an abort,
//! a hang and excessive memory are findings; on Windows memory has no limit. Each finding is shrunk and written to `target/fuzz`.

#![expect(
    clippy::disallowed_methods,
    reason = "watches a process: uses its own files and threads, not those of a database"
)]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use testkit::fuzz::targets::{TARGETS, Target};
use testkit::fuzz::{corpus, mutate};
use testkit::process;
use testkit::report::{self, exit, finish, violation};
use testkit::rng::Rng;
use tidesdb_io::{Clock, RealClock};

/// Address space limit of a process that runs inputs, in bytes.
const MEMORY_MAX: u64 = 2 << 30;
/// Time limit of one input.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of findings per target; then the next target starts.
const FINDINGS_MAX: usize = 10;
/// Maximum number of attempts to shrink a finding.
const SHRINKS_MAX: usize = 150;

#[derive(Parser)]
struct Args {
    /// Runs this target alone; the first one is run by `--case` and `--input` by default.
    #[arg(long, value_parser = TARGETS.map(|t| t.name))]
    target: Option<String>,
    /// Chooses the inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Time of each target.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Runs this input alone.
    #[arg(long, requires = "target")]
    case: Option<u64>,
    /// Runs the input in this file alone.
    #[arg(long)]
    input: Option<PathBuf>,
    /// Writes the valid part of the corpus.
    #[arg(long)]
    write_corpus: bool,
    /// The file in which a process that runs inputs says how far it is.
    #[arg(long, hide = true)]
    progress: Option<PathBuf>,
    /// The first input of such a process.
    #[arg(long, hide = true, default_value_t = 0)]
    from: u64,
}

pub(crate) fn runner() -> ExitCode {
    let args: Args = process::arguments();
    let Args { seed, seconds, .. } = args;
    if args.write_corpus {
        return exit(corpus::write().is_ok());
    }
    let wanted = |t: &Target| args.target.as_deref().is_none_or(|n| n == t.name);
    let targets: Vec<Target> = TARGETS.into_iter().filter(wanted).collect();
    let Some(first) = targets.first() else { return exit(false) };
    if let Some(n) = args.case {
        return run_alone(first, &nth(&seeds(first), seed, n));
    }
    if let Some(file) = &args.input {
        return std::fs::read(file).map_or(exit(false), |input| run_alone(first, &input));
    }
    if let Some(progress) = &args.progress {
        return work(first, seed, args.from, seconds, progress);
    }
    if !process::LIMITS_MEMORY {
        eprintln!(
            "no limit on memory is set on this system: an input that needs too much of it is not found"
        );
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

/// Returns the seed inputs of a target: those in the tree, or newly built ones if there are none.
fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let read = corpus::read(target).unwrap_or_default();
    let all = if read.is_empty() { (target.seeds)() } else { read };
    all.into_iter().map(|(_, input)| input).collect()
}

fn nth(seeds: &[Vec<u8>], seed: u64, n: u64) -> Vec<u8> {
    mutate::input(seeds, &mut Rng::new(seed.wrapping_mul(0x1_0000_0001).wrapping_add(n)))
}

fn limit_memory() {
    if let Err(e) = process::limit_memory(MEMORY_MAX) {
        eprintln!("{e}");
    }
}

/// Stores the number of an input in the file of the progress.
fn store(mut progress: &File, n: u64) -> io::Result<()> {
    progress.seek(SeekFrom::Start(0))?;
    progress.write_all(&n.to_le_bytes())
}

/// Returns the number that [`store`] has stored.
fn stored(mut progress: &File) -> u64 {
    let mut bytes = [0; 8];
    let _ = progress.seek(SeekFrom::Start(0)).and_then(|_| progress.read_exact(&mut bytes));
    u64::from_le_bytes(bytes)
}

/// Runs one input; a panic becomes an error with its location.
fn run(target: &Target, input: &[u8], place: &Mutex<String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input)))
        .map_err(|_| place.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Records the location of panics instead of printing them.
fn panics() -> Arc<Mutex<String>> {
    let place = Arc::new(Mutex::new(String::new()));
    let noted = Arc::clone(&place);
    std::panic::set_hook(Box::new(move |info| {
        let text = info.to_string().replace('\n', " ");
        *noted.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }));
    place
}

fn run_alone(target: &Target, input: &[u8]) -> ExitCode {
    limit_memory();
    let place = panics();
    match run(target, input, &place) {
        Ok(()) => exit(true),
        Err(what) => {
            println!("{what}");
            exit(false)
        }
    }
}

/// Runs inputs in the child process: stores each number before it starts the input, and prints each panic.
fn work(target: &Target, seed: u64, from: u64, seconds: u64, progress: &Path) -> ExitCode {
    limit_memory();
    let place = panics();
    let clock = RealClock::new();
    let seeds = seeds(target);
    let Ok(file) = File::options().write(true).open(progress) else { return exit(false) };
    let mut n = from;
    while clock.mono().as_secs() < seconds {
        if store(&file, n).is_err() {
            return exit(false);
        }
        if let Err(what) = run(target, &nth(&seeds, seed, n), &place) {
            println!("{n} {what}");
        }
        n += 1;
    }
    exit(store(&file, n).is_ok())
}

#[derive(Debug, Default)]
struct Run {
    executions: u64,
    /// Findings, one per location.
    findings: Vec<String>,
}

/// Runs a target for `seconds` seconds and watches its process.
fn watch(target: &Target, seed: u64, seconds: u64) -> Run {
    let clock = RealClock::new();
    let mut run = Run::default();
    while clock.mono().as_secs() < seconds && run.findings.len() < FINDINGS_MAX {
        let left = seconds - clock.mono().as_secs();
        let Some((next, ended)) = session(target, seed, run.executions, left, &mut run.findings) else {
            run.findings.push("cannot start the process of the target".to_owned());
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

/// Runs one process. Returns the next input number, and why the process ended unless its time was over.
fn session(
    target: &Target,
    seed: u64,
    from: u64,
    seconds: u64,
    findings: &mut Vec<String>,
) -> Option<(u64, Option<String>)> {
    let progress = std::env::temp_dir().join(format!("tidesdb-fuzz-{}.progress", std::process::id()));
    std::fs::write(&progress, from.to_le_bytes()).ok()?;
    let file = File::open(&progress).ok()?;
    let number = || stored(&file);
    let mut child = process::itself()
        .ok()?
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

/// Waits until `child` ends; returns how it ended, unless it succeeded. Kills a child that makes no progress.
fn wait(child: &mut Child, number: &dyn Fn() -> u64) -> Option<String> {
    let clock = RealClock::new();
    let (mut last, mut since) = (number(), clock.mono());
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("the process ended: {status}")),
            Err(e) => return Some(format!("cannot wait for the process: {e}")),
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

/// Records a finding unless its location is known, and writes its input after shrinking it.
fn found(target: &Target, seed: u64, n: u64, what: &str, findings: &mut Vec<String>) {
    if findings.iter().any(|known| known == what) {
        return;
    }
    findings.push(what.to_owned());
    report::begin(&[("target", target.name.to_owned()), ("seed", seed.to_string())], n);
    violation(what);
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

/// Returns true if the input in `path` fails in a separate process.
fn fails(target: &Target, path: &Path) -> bool {
    let Ok(mut itself) = process::itself() else { return false };
    let child = itself
        .args(["--target", target.name, "--input"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    child.is_ok_and(|mut child| wait(&mut child, &|| 0).is_some())
}

/// Removes parts of the input, in decreasing sizes, as long as the input still fails.
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
