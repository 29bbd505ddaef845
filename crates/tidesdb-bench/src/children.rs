//! Child processes with a time limit: one that sends no result in time is killed and reported as an error.
//!
//! A child writes lines; the last line that is JSON of an [`Outcome`] is its result. Threads of the parent read both
//! streams, so that the child never blocks on a full pipe.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::measure::now;
use crate::stage::Outcome;

/// Interval at which the parent checks whether a child has ended.
const POLL: Duration = Duration::from_millis(2);
/// Time limit for a child to end after its result.
const FAREWELL: Duration = Duration::from_secs(30);

/// A running child.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    complaints: Option<JoinHandle<String>>,
    deadline: Instant,
    patience: Duration,
    /// A child that waits to be killed ends by itself when this is closed.
    _hold: Option<ChildStdin>,
}

impl Running {
    /// Starts `program`, whose first word is the file; it must end within `patience`.
    pub(crate) fn start(program: &[OsString], task: &str, patience: Duration) -> Result<Self, String> {
        let (file, first) = program.split_first().ok_or("no program to run")?;
        let mut child = Command::new(file)
            .args(first)
            .arg(task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", Path::new(file).display()))?;
        let (send, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            reader(move || {
                for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                    if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                        break;
                    }
                }
                String::new()
            })?;
        }
        let complaints = match child.stderr.take() {
            Some(mut stderr) => Some(reader(move || {
                let mut said = Vec::new();
                // Unreadable output is only missing from a message.
                let _ = stderr.read_to_end(&mut said);
                String::from_utf8_lossy(&said).into_owned()
            })?),
            None => None,
        };
        let hold = child.stdin.take();
        Ok(Self { child, lines, complaints, deadline: now() + patience, patience, _hold: hold })
    }

    /// Returns the result, once the child has ended successfully.
    pub(crate) fn finish(mut self) -> Result<Outcome, String> {
        let outcome = self.outcome()?;
        let status = match outcome {
            Some(_) => self.end(now() + FAREWELL)?,
            None => self.end(self.deadline)?,
        };
        match outcome {
            Some(outcome) if status.success() || outcome.failure.is_some() => Ok(outcome),
            Some(_) => Err(format!("the process ended badly after its result ({status}) {}", self.said())),
            None => Err(format!("the process ended without a result ({status}) {}", self.said())),
        }
    }

    /// Returns the result of a child and kills it at once.
    pub(crate) fn kill_after_result(mut self) -> Result<Outcome, String> {
        let outcome = self.outcome()?;
        // If it has ended already, the kill fails, and the wait reports the status.
        let _ = self.child.kill();
        let status = self.end(now() + FAREWELL)?;
        outcome.ok_or_else(|| format!("the process ended without a result ({status}) {}", self.said()))
    }

    /// Returns the first line that is a result, or `None` if the output ends without one.
    fn outcome(&mut self) -> Result<Option<Outcome>, String> {
        loop {
            match self.lines.recv_timeout(self.deadline.saturating_duration_since(now())) {
                Ok(line) => {
                    if let Ok(outcome) = serde_json::from_str(&line) {
                        return Ok(Some(outcome));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => return Err(self.hung()),
            }
        }
    }

    /// Waits until the process has ended.
    fn end(&mut self, deadline: Instant) -> Result<ExitStatus, String> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) if now() >= deadline => return Err(self.hung()),
                Ok(None) => std::thread::sleep(POLL),
                Err(e) => return Err(format!("cannot wait for the process: {e}")),
            }
        }
    }

    fn hung(&mut self) -> String {
        // It may have ended meanwhile.
        let _ = self.child.kill();
        let _ = self.child.wait();
        format!("hung: the process was killed when it had not ended after {:?}", self.patience)
    }

    /// Returns the end of its output on the error stream.
    fn said(&mut self) -> String {
        let said = self.complaints.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        last.join(" / ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn reader(body: impl FnOnce() -> String + Send + 'static) -> Result<JoinHandle<String>, String> {
    std::thread::Builder::new().spawn(body).map_err(|e| format!("cannot start a thread: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Spec;

    fn shell(script: &str, patience: Duration) -> Running {
        let program = ["sh", "-c", script].map(OsString::from);
        Running::start(&program, "task", patience).unwrap()
    }

    fn line() -> String {
        serde_json::to_string(&Outcome::new("x", &Spec::default())).unwrap().replace('"', "\\\"")
    }

    #[test]
    fn a_child_that_hangs_is_killed() {
        let begin = now();
        let failure = shell("exec sleep 100", Duration::from_millis(100)).finish().unwrap_err();
        assert!(failure.starts_with("hung: ") && failure.contains("100ms"), "{failure}");
        assert!(begin.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_result_counts_if_the_child_ends_well() {
        let patience = Duration::from_secs(60);
        let good = format!("echo noise; echo \"{}\"; echo more", line());
        assert_eq!(shell(&good, patience).finish().unwrap().engine, "x");
        let bad = shell(&format!("{good}; echo why >&2; exit 3"), patience).finish().unwrap_err();
        assert!(bad.contains("badly") && bad.contains("why"), "{bad}");
        let none = shell("echo 1; echo bang >&2; kill -9 $$", patience).finish().unwrap_err();
        assert!(none.contains("without a result") && none.contains("bang"), "{none}");
    }

    #[test]
    fn a_child_is_killed_once_it_has_a_result() {
        let patience = Duration::from_secs(60);
        let begin = now();
        let script = format!("echo \"{}\"; exec sleep 100", line());
        assert_eq!(shell(&script, patience).kill_after_result().unwrap().engine, "x");
        assert!(begin.elapsed() < Duration::from_secs(20));
        assert!(shell("exit 1", patience).kill_after_result().unwrap_err().contains("without a result"));
    }
}
