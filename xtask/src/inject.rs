//! `cargo xtask inject`: runs a C program in which one system call fails, for each call in turn.
//!
//! `c-tests/inject` writes, reads, flushes, merges, copies, closes and reopens. The tool tries each kind of
//! call that the program makes on files and memory, each error that the kind may return, and each N. It runs
//! the program once with the N-th call of every thread failing (`strace -e inject`), until no thread makes N
//! calls. For the errors of a full or broken disk, it also runs it with that call and all later ones failing.
//! Required: the program ends by itself, with error codes, in time, without a panic. A second run without
//! failing calls must open the directory and find every successful commit, completely.

use crate::cargo::{Done, target, works};
use crate::install::{self, CRATE};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Kinds of calls and the errors that each may return. `!`: also runs with all later calls failing.
const CALLS: [(&str, &[&str]); 36] = [
    ("open", &["EIO", "EMFILE"]),
    ("openat", &["EIO", "EMFILE!", "ENOSPC!"]),
    ("close", &["EIO"]),
    ("read", &["EIO"]),
    ("pread64", &["EIO!"]),
    ("preadv", &["EIO"]),
    ("write", &["EIO", "ENOSPC!"]),
    ("pwrite64", &["EIO!", "ENOSPC!"]),
    ("pwritev", &["EIO!", "ENOSPC!"]),
    ("pwritev2", &["EIO!", "ENOSPC!"]),
    ("copy_file_range", &["EIO", "ENOSPC!"]),
    ("sendfile", &["EIO", "ENOSPC!"]),
    ("lseek", &["EIO"]),
    ("fsync", &["EIO!", "ENOSPC"]),
    ("fdatasync", &["EIO!", "ENOSPC"]),
    ("sync_file_range", &["EIO"]),
    ("rename", &["EIO", "ENOSPC"]),
    ("renameat", &["EIO", "ENOSPC!"]),
    ("renameat2", &["EIO", "ENOSPC!"]),
    ("linkat", &["EIO", "ENOSPC!", "EMLINK"]),
    ("unlink", &["EIO"]),
    ("unlinkat", &["EIO!"]),
    ("mkdir", &["EIO", "ENOSPC"]),
    ("mkdirat", &["EIO", "ENOSPC"]),
    ("ftruncate", &["EIO", "ENOSPC!"]),
    ("fallocate", &["EIO", "ENOSPC!", "EOPNOTSUPP!"]),
    ("mmap", &["ENOMEM"]),
    ("mremap", &["ENOMEM"]),
    ("madvise", &["ENOMEM!", "EIO"]),
    ("fstat", &["EIO"]),
    ("newfstatat", &["EIO"]),
    ("statx", &["EIO"]),
    ("fstatfs", &["EIO!"]),
    ("getdents64", &["EIO"]),
    ("flock", &["EIO", "EAGAIN"]),
    ("clone3", &["EAGAIN!"]),
];

/// A series ends after this many runs in a row in which no thread made the N-th call, because threads take
/// turns.
const UNREACHED_MAX: u32 = 3;
/// Allowed exit codes: all calls succeeded, a call failed, the start failed.
const ALLOWED: [i32; 3] = [0, 1, 2];
/// Maximum number of findings printed in full.
const SHOWN_MAX: usize = 20;

/// Options of a run.
#[derive(Debug, PartialEq)]
struct Plan {
    seed: u64,
    /// Maximum N.
    limit: u32,
    /// Step between values of N.
    stride: u32,
    /// Restricts the run to this kind of call.
    only: Option<String>,
    jobs: usize,
    /// Prefix of an installed library; if `None`, the library is built and installed.
    prefix: Option<PathBuf>,
}

/// Returns the reason why it cannot run here, if there is one.
pub(crate) fn hindrance() -> Option<String> {
    if !works("cc", &["--version"]) {
        return Some("no cc: apt-get install build-essential".to_owned());
    }
    if !works("strace", &["--version"]) {
        return Some("no strace: apt-get install strace".to_owned());
    }
    let traces = works("strace", &["-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync", "true"]);
    (!traces).then(|| "strace may not trace here, or is older than 5.3".to_owned())
}

/// Runs the plan given by `args`.
///
/// # Errors
/// If the arguments are invalid, the program cannot be built, or a run violates the requirements.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let plan = parse(args)?;
    if let Some(why) = hindrance() {
        println!("SKIPPED inject: {why}");
        return Ok(());
    }
    let house = House::build(root, plan)?;
    let made = house.calls_made()?;
    house.check_can_fail()?;
    let series: Vec<Series> = CALLS
        .iter()
        .filter(|(call, _)| made.contains_key(*call))
        .filter(|(call, _)| house.plan.only.as_ref().is_none_or(|only| only == call))
        .flat_map(|(call, errors)| errors.iter().flat_map(|error| Series::of(call, error)))
        .collect();
    let next = AtomicU64::new(0);
    let tallies = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..house.plan.jobs {
            let (house, series, next, tallies) = (&house, &series, &next, &tallies);
            scope.spawn(move || {
                while let Some(one) = series.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                    let tally = house.series(one, worker);
                    println!("{}", tally.line(one));
                    tallies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(tally);
                }
            });
        }
    });
    report(&tallies.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner), &house)
}

fn report(tallies: &[Tally], house: &House) -> Done {
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let findings: Vec<&String> = tallies.iter().flat_map(|tally| &tally.findings).collect();
    println!(
        "inject: seed {}, {} runs, {} with a failed call: {} reported it, {} went on, {} did not start; {} findings",
        house.plan.seed,
        sum(|t| t.runs),
        sum(|t| t.injected),
        sum(|t| t.told),
        sum(|t| t.well),
        sum(|t| t.not_begun),
        findings.len(),
    );
    if findings.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = findings.iter().take(SHOWN_MAX).map(|finding| finding.as_str()).collect();
    Err(format!("{}\nfiles in {}", shown.join("\n"), house.folder.join("findings").display()))
}

/// One kind of call that fails with one error, at each N.
#[derive(Debug)]
struct Series {
    call: &'static str,
    error: &'static str,
    /// True if all later calls fail too.
    lasting: bool,
}

impl Series {
    fn of(call: &'static str, error: &'static str) -> Vec<Series> {
        let lasts: &[bool] = if error.ends_with('!') { &[false, true] } else { &[false] };
        let error = error.trim_end_matches('!');
        lasts.iter().map(|&lasting| Series { call, error, lasting }).collect()
    }

    fn when(&self, n: u32) -> String {
        format!("{n}{}", if self.lasting { "+" } else { "" })
    }
}

/// Results of the runs of a series.
#[derive(Debug, Default)]
struct Tally {
    runs: u64,
    injected: u64,
    /// Runs in which a call of the library failed and reported it.
    told: u64,
    /// Runs in which no call of the library failed.
    well: u64,
    not_begun: u64,
    findings: Vec<String>,
}

impl Tally {
    fn line(&self, series: &Series) -> String {
        format!(
            "{:<16} {:<11} {:<8} runs {:4}, failed calls {:4}, reported {:4}, went on {:4}, not started {:3}, findings {}",
            series.call,
            series.error,
            if series.lasting { "lasting" } else { "once" },
            self.runs,
            self.injected,
            self.told,
            self.well,
            self.not_begun,
            self.findings.len(),
        )
    }
}

/// The folders of a run.
struct House {
    plan: Plan,
    folder: PathBuf,
    program: PathBuf,
    /// Parent folder of the workers' folders.
    work: PathBuf,
}

impl House {
    /// Installs the library and builds the program.
    fn build(root: &Path, plan: Plan) -> Result<House, String> {
        let folder = target(root).join("inject");
        install::remove(&folder)?;
        make(&folder.join("findings"))?;
        let prefix = plan.prefix.clone().unwrap_or_else(|| folder.join("prefix"));
        if plan.prefix.is_none() {
            install::install(root, &prefix, &install::Shape::default())?;
        }
        let (program, lib) = (folder.join("program"), prefix.join("lib"));
        let mut command = Command::new("cc");
        command.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c11", "-O1", "-g"]);
        command.arg("-I").arg(prefix.join("include")).arg(root.join(CRATE).join("c-tests/inject/inject.c"));
        command.arg("-L").arg(&lib).arg("-ltidesdb").arg(format!("-Wl,-rpath,{}", lib.display()));
        let built = output(command.arg("-o").arg(&program))?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory } else { folder.as_path() };
        let work = place.join(format!("tidesdb-inject-{}", std::process::id()));
        Ok(House { plan, folder, program, work })
    }

    /// Returns the calls that the program makes if none fails: the maximum number per thread.
    fn calls_made(&self) -> Result<BTreeMap<String, u32>, String> {
        let place = self.place(0)?;
        let log = place.join("log");
        let kinds: Vec<String> = CALLS.iter().map(|(call, _)| format!("?{call}")).collect();
        let mut command = self.traced(&log, &[format!("trace={}", kinds.join(","))]);
        let ran = output(self.program_args(&mut command, "work", &place))?;
        if ran.status.code() != Some(0) {
            return Err(format!("it fails without a failing call: {}", String::from_utf8_lossy(&ran.stderr)));
        }
        let log = fs::read_to_string(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let mut by_thread: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        for (thread, call) in log.lines().filter_map(called) {
            *by_thread.entry((call, thread)).or_default() += 1;
        }
        let mut most: BTreeMap<String, u32> = BTreeMap::new();
        for ((call, _), count) in by_thread {
            let entry = most.entry(call.to_owned()).or_default();
            *entry = count.max(*entry);
        }
        let shown: Vec<String> = most.iter().map(|(call, count)| format!("{call} {count}")).collect();
        println!("calls of the busiest thread: {}", shown.join(", "));
        Ok(most)
    }

    /// Checks that the second run detects lost data: here the whole directory that [`House::calls_made`] left
    /// is removed.
    fn check_can_fail(&self) -> Done {
        let place = self.work.join("0");
        install::remove(&place.join("db"))?;
        let mut command = Command::new(&self.program);
        let checked = output(self.program_args(&mut command, "check", &place))?;
        match checked.status.code() {
            Some(3) => Ok(()),
            other => {
                Err(format!("all commits are gone, but the second run ends with {other:?} instead of 3"))
            }
        }
    }

    fn series(&self, series: &Series, worker: usize) -> Tally {
        let mut tally = Tally::default();
        let mut unreached = 0;
        let stride = if series.lasting { self.plan.stride * 5 } else { self.plan.stride };
        for n in (1..=self.plan.limit).step_by(stride as usize) {
            match self.one(series, n, worker, &mut tally) {
                Ok(true) => unreached = 0,
                Ok(false) => unreached += 1,
                Err(message) => tally.findings.push(message),
            }
            if unreached >= UNREACHED_MAX {
                break;
            }
        }
        if tally.injected == 0 {
            tally
                .findings
                .push(format!("{} {}: no call failed, so nothing was tried", series.call, series.error));
        }
        let _ = install::remove(&self.work.join(worker.to_string())); // the last worker to end finds the folder empty
        let _ = fs::remove_dir(&self.work);
        tally
    }

    /// Runs the program with one failing call, and again without. Returns whether the call was made.
    fn one(&self, series: &Series, n: u32, worker: usize, tally: &mut Tally) -> Result<bool, String> {
        let place = self.place(worker)?;
        let log = place.join("log");
        let fault = format!("inject={}:error={}:when={}", series.call, series.error, series.when(n));
        let mut command = self.traced(&log, &[format!("trace={}", series.call), fault]);
        let ran = output(self.program_args(&mut command, "work", &place))?;
        tally.runs += 1;
        let injected = fs::read(&log).is_ok_and(|log| contains(&log, b"(INJECTED)"));
        tally.injected += u64::from(injected);
        // The program creates this file first. Before that, only the loader runs, which may end in any way,
        // even by a signal.
        if !place.join("acks").exists() {
            tally.not_begun += 1;
            return Ok(injected);
        }
        match ran.status.code() {
            Some(0) => tally.well += u64::from(injected),
            Some(1) => tally.told += u64::from(injected),
            _ => tally.not_begun += u64::from(injected),
        }
        let mut wrong = unlawful(&ran, &ALLOWED);
        if wrong.is_none() {
            let mut command = Command::new(&self.program);
            let checked = output(self.program_args(&mut command, "check", &place))?;
            wrong = unlawful(&checked, &[0]).map(|wrong| format!("the run after it {wrong}"));
        }
        if let Some(wrong) = wrong {
            let name = format!("{}-{}-{}", series.call, series.error, series.when(n));
            let _ = fs::copy(&log, self.folder.join("findings").join(&name)); // for the user; the finding counts even without it
            tally.findings.push(format!("{name}: {wrong}"));
        }
        Ok(injected)
    }

    /// Creates an empty folder.
    fn place(&self, worker: usize) -> Result<PathBuf, String> {
        let place = self.work.join(worker.to_string());
        install::remove(&place)?;
        make(&place)?;
        Ok(place)
    }

    /// Returns the program under strace, without the program's arguments.
    fn traced(&self, log: &Path, expressions: &[String]) -> Command {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "--seccomp-bpf", "-o"]).arg(log);
        command.args(expressions.iter().flat_map(|expression| ["-e", expression.as_str()]));
        command.arg(&self.program);
        command
    }

    fn program_args<'c>(&self, command: &'c mut Command, verb: &str, place: &Path) -> &'c mut Command {
        let seed = self.plan.seed.to_string();
        command.arg(verb).arg(place.join("db")).arg(place.join("acks")).arg(seed)
    }
}

#[cfg(unix)]
fn signal_of(ran: &Output) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&ran.status)
}

/// There are no signals here, and no strace.
#[cfg(not(unix))]
fn signal_of(_ran: &Output) -> Option<i32> {
    None
}

/// Returns what is wrong with the end of a run, if anything.
fn unlawful(ran: &Output, allowed: &[i32]) -> Option<String> {
    let said = String::from_utf8_lossy(&ran.stderr);
    let how = match (ran.status.code(), signal_of(ran)) {
        (_, Some(14)) => "did not end in time".to_owned(),
        (Some(code), _) if !allowed.contains(&code) => format!("ended with code {code}"),
        (None, signal) => format!("ended by signal {}", signal.unwrap_or(0)),
        _ if said.contains("panicked at") => "panicked".to_owned(),
        _ => return None,
    };
    let told: Vec<&str> = said.lines().collect();
    Some(format!("{how}: {}", told[told.len().saturating_sub(6)..].join(" | ")))
}

/// Returns the thread and the call in a line of strace. A call that continues in a later line counts once.
fn called(line: &str) -> Option<(&str, &str)> {
    let (thread, rest) = line.split_once(char::is_whitespace)?;
    let (call, _) = rest.trim_start().split_once('(')?;
    call.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then_some((thread, call))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|error| format!("cannot start ({error}): {command:?}"))
}

fn make(folder: &Path) -> Done {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let mut plan = Plan { seed: 1, limit: 1000, stride: 1, only: None, jobs: 1, prefix: None };
    for pair in args.chunks(2) {
        let [key, value] = pair else { return Err(format!("`{}` needs a value", pair[0])) };
        let number =
            || value.parse::<u32>().ok().filter(|n| *n > 0).ok_or(format!("`{value}` must be 1 or more"));
        match key.as_str() {
            "--seed" => plan.seed = value.parse().map_err(|_| format!("`{value}` is not a seed"))?,
            "--limit" => plan.limit = number()?,
            "--stride" => plan.stride = number()?,
            "--jobs" => plan.jobs = number()? as usize,
            "--prefix" => plan.prefix = Some(PathBuf::from(value)),
            "--only" if CALLS.iter().any(|(call, _)| call == value) => plan.only = Some(value.clone()),
            "--only" => return Err(format!("`{value}` is not one of the calls that are made to fail")),
            other => {
                return Err(format!(
                    "unknown option `{other}`; the options are --seed --limit --stride --only --jobs --prefix"
                ));
            }
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(line: &str) -> Result<Plan, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_make_a_plan() {
        let made = plan("--seed 7 --limit 20 --stride 3 --only fsync --jobs 2 --prefix /opt")
            .expect("all of it is right");
        let (only, prefix) = (Some("fsync".to_owned()), Some(PathBuf::from("/opt")));
        assert_eq!(made, Plan { seed: 7, limit: 20, stride: 3, only, jobs: 2, prefix });
        for line in ["--seed", "--seed x", "--limit 0", "--stride -1", "--only futex", "--fast 1"] {
            assert!(plan(line).is_err(), "{line}");
        }
    }

    #[test]
    fn lines_of_strace_are_read() {
        assert_eq!(called("123   openat(AT_FDCWD, \"x\") = 3"), Some(("123", "openat")));
        assert_eq!(called("123 fsync(3 <unfinished ...>"), Some(("123", "fsync")));
        assert_eq!(called("123 <... fsync resumed>) = 0"), None);
        assert_eq!(called("123 +++ exited with 0 +++"), None);
    }

    #[cfg(unix)]
    #[test]
    fn allowed_endings_are_distinguished_from_forbidden_ones() {
        use std::os::unix::process::ExitStatusExt;
        use std::process::ExitStatus;
        let ended = |raw: i32, said: &str| Output {
            status: ExitStatus::from_raw(raw),
            stdout: Vec::new(),
            stderr: said.as_bytes().to_vec(),
        };
        for code in ALLOWED {
            assert_eq!(unlawful(&ended(code << 8, "get: -4 a text"), &ALLOWED), None);
        }
        let wrong = |raw: i32, said: &str| unlawful(&ended(raw, said), &ALLOWED).expect("it is forbidden");
        assert!(wrong(3 << 8, "WRONG: half of a commit").contains("code 3: WRONG: half"));
        assert!(wrong(14, "").contains("in time"));
        assert!(wrong(6, "").contains("signal 6"));
        assert!(wrong(1 << 8, "thread 'x' panicked at src/lib.rs").starts_with("panicked"));
        assert!(unlawful(&ended(1 << 8, ""), &[0]).is_some(), "the second run must not fail");
    }

    #[test]
    fn lasting_errors_are_their_own_series() {
        let both = Series::of("pwrite64", "ENOSPC!");
        let whens: Vec<String> =
            both.iter().map(|series| format!("{} {}", series.error, series.when(3))).collect();
        assert_eq!(whens, ["ENOSPC 3", "ENOSPC 3+"]);
        assert_eq!(Series::of("close", "EIO").len(), 1);
    }
}
