//! What all runners share: the arguments that choose cases, results in lines that machines can read, and the command that shows a
//! failure again.
//!
//! A panic that nobody catches is a violation too. A thread announces each case with [`begin`]. A line that begins with `VIOLATION` then
//! has the command that runs this case alone: the arguments of this process, except that those which chose many cases are replaced by those
//! that choose this one.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::{Display, Write as _};
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tempfile::TempDir;

use crate::process;

/// Names a case that is reported as a violation without being one, so that a test can see a runner fail. With `panic ` before the number,
/// the case panics. A name instead of a number is that of a fault of [`crate::disks`].
pub const PLANT: &str = "TESTKIT_PLANT";

/// Violations that this process has printed.
static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// An argument of a runner without the dashes, and its value.
type Argument = (&'static str, String);

thread_local! {
    /// The arguments that choose the case that this thread runs.
    static CASE: RefCell<Vec<Argument>> = const { RefCell::new(Vec::new()) };
}

/// The arguments of a runner that runs many cases, each with a number of its own.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Cases {
    /// Chooses the number of the first case; the numbers of two seeds never overlap.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Runs this case alone.
    #[arg(long, conflicts_with = "seed")]
    pub case: Option<u64>,
}

impl Cases {
    /// Returns the number of the first case; a seed has `each` numbers.
    pub fn first(&self, each: u64) -> u64 {
        self.case.unwrap_or_else(|| self.seed.wrapping_mul(each))
    }

    /// Returns the numbers of `count` cases, or the one that was asked for.
    pub fn numbers(&self, each: u64, count: u64) -> Range<u64> {
        let first = self.first(each);
        first..first.saturating_add(if self.case.is_some() { 1 } else { count })
    }

    /// Returns `floors`, or none if one case was asked for.
    pub fn floors<'a>(&self, floors: &'a [(&'a str, u64)]) -> &'a [(&'a str, u64)] {
        if self.case.is_some() { &[] } else { floors }
    }

    /// Calls `run` with one number after another in each of `threads` threads, until there are enough cases or the one that was asked for
    /// has run. A seed has a million numbers. `only` are the other arguments that choose a case.
    pub fn run(
        &self,
        threads: u64,
        only: &[Argument],
        enough: impl Fn() -> bool + Sync,
        run: impl Fn(u64) + Sync,
    ) {
        let next = AtomicU64::new(self.first(1_000_000));
        let work = || {
            while !enough() {
                let number = next.fetch_add(1, Relaxed);
                case(only, number, || run(number));
                if self.case.is_some() {
                    break;
                }
            }
        };
        let threads = if self.case.is_some() { 1 } else { threads };
        std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    }
}

/// The argument of a runner whose run is one case.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct OneCase {
    /// Chooses the case.
    #[arg(long, visible_alias = "seed", default_value_t = 1)]
    pub case: u64,
}

/// Announces that this thread begins case `number`; `only` are the other arguments that choose it.
pub fn begin(only: &[Argument], number: u64) {
    let case = [only, &[("case", number.to_string())]].concat();
    CASE.set(case);
    let Ok(planted) = std::env::var(PLANT) else { return };
    assert!(planted != format!("panic {number}"), "planted by a test");
    if planted == number.to_string() {
        violation("planted by a test");
    }
}

/// Announces case `number` like [`begin`] and runs it. A panic is a violation, and the thread goes on.
pub fn case(only: &[Argument], number: u64, run: impl FnOnce()) {
    let work = || {
        begin(only, number);
        run();
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| panicked(&*payload));
}

/// Runs a runner. A panic that no case has caught is a violation of the case that the main thread has announced.
pub fn run(runner: fn() -> ExitCode) -> ExitCode {
    catch_unwind(runner).unwrap_or_else(|payload| {
        panicked(&*payload);
        ExitCode::FAILURE
    })
}

fn panicked(payload: &(dyn Any + Send)) {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    violation(format_args!("panic: {}", text.unwrap_or("no message")));
}

/// Announces that this thread does something that has no number; `only` are the arguments that choose it.
pub fn begin_only(only: &[Argument]) {
    CASE.set(only.to_vec());
}

/// Prints a violation in the case that this thread runs, with the command that shows it again. The runner will fail.
pub fn violation(what: impl Display) {
    VIOLATIONS.fetch_add(1, Relaxed);
    eprintln!("VIOLATION `{}`: {what}", again());
}

/// Returns true if this process has printed no violation.
pub fn has_none() -> bool {
    VIOLATIONS.load(Relaxed) == 0
}

/// Returns the command that runs the case of this thread alone.
pub fn again() -> String {
    CASE.with_borrow(|case| command(&process::runner(), process::own_args(), case))
}

/// Returns the command that runs `case` alone, for a process of `program` with `args`. All arguments of a runner have values.
fn command(program: &str, args: impl Iterator<Item = String>, case: &[Argument]) -> String {
    let mut out = format!("cargo xtask {program}");
    let is_chosen = |flag: &str| {
        let Some(name) = flag.strip_prefix("--") else { return false };
        let chooses = ["seed", "case", "threads"].contains(&name) || case.iter().any(|(n, _)| *n == name);
        !case.is_empty() && chooses
    };
    let mut args = args.peekable();
    while let Some(arg) = args.next() {
        let (flag, value) =
            arg.split_once('=').map_or((arg.as_str(), None), |(f, v)| (f, Some(v.to_owned())));
        let value = value.or_else(|| args.next_if(|next| !next.starts_with("--")));
        if !is_chosen(flag) {
            let _ = write!(out, " {flag}");
            value.into_iter().for_each(|value| out += &format!(" {}", quoted(&value)));
        }
    }
    for (name, value) in case {
        let _ = write!(out, " --{name} {}", quoted(value));
    }
    out
}

/// Returns `value` as a shell reads it.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:+@%".contains(c);
    match !value.is_empty() && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

/// Makes a temporary directory, in `dir` if there is one.
///
/// # Errors
/// Errors of the system.
pub fn temp_dir(dir: Option<&Path>) -> io::Result<TempDir> {
    dir.map_or_else(tempfile::tempdir, tempfile::tempdir_in)
}

/// Formats a line: the test, then its figures.
pub fn line(test: &str, figures: &[(&str, u64)]) -> String {
    let mut out = test.to_owned();
    for (name, n) in figures {
        let _ = write!(out, " {name}={n}");
    }
    out
}

/// Prints the line of a test and returns true if it passed: no violation, and no figure below its floor. The floors
/// detect tests that silently became smaller.
pub fn finish(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    println!("{}", line(test, figures));
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    enough(test, figures, floors) && figure("violations") == 0 && has_none()
}

/// Returns true if no figure is below its floor; prints those that are.
pub fn enough(test: &str, figures: &[(&str, u64)], floors: &[(&str, u64)]) -> bool {
    let figure = |name: &str| figures.iter().find(|(n, _)| *n == name).map_or(0, |(_, n)| *n);
    let low: Vec<_> = floors.iter().filter(|(name, floor)| figure(name) < *floor).collect();
    for (name, floor) in &low {
        eprintln!("{test}: {name} is {}, below its floor of {floor}", figure(name));
    }
    low.is_empty()
}

/// Returns the exit code of a runner.
pub fn exit(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &str, case: &[Argument]) -> String {
        command("crash", args.split_whitespace().map(str::to_owned), case)
    }

    #[test]
    fn a_command_keeps_what_matters_and_replaces_what_chose_the_case() {
        let case = [("case", "7000001".to_owned())];
        assert_eq!(of("", &case), "cargo xtask crash --case 7000001");
        assert_eq!(
            of("--seed 7 --points 9 --threads=2", &case),
            "cargo xtask crash --points 9 --case 7000001"
        );
        assert_eq!(of("--points=9 --case 3", &case), "cargo xtask crash --points 9 --case 7000001");
        assert_eq!(of("--seed 7 --disk=macos", &case), "cargo xtask crash --disk macos --case 7000001");
        assert_eq!(of("--seed 7 --points 9", &[]), "cargo xtask crash --seed 7 --points 9", "no case began");
        let both = [("seed", "3".to_owned()), ("only", "a b'c".to_owned())];
        assert_eq!(
            of("--only x --flag --dir /t", &both),
            r"cargo xtask crash --flag --dir /t --seed 3 --only 'a b'\''c'"
        );
    }

    #[test]
    fn one_case_is_asked_for_or_many() {
        let many = Cases { seed: 3, case: None };
        assert_eq!((many.numbers(10, 4), many.floors(&[("a", 1)]).len()), (30..34, 1));
        let one = Cases { seed: 1, case: Some(31) };
        assert_eq!((one.numbers(10, 4), one.floors(&[("a", 1)]).len()), (31..32, 0));
        let seen = std::sync::Mutex::new(Vec::new());
        one.run(4, &[], || false, |n| seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(n));
        assert_eq!(seen.into_inner().unwrap_or_default(), [31]);
    }
}
