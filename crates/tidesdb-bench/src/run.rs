//! Many rows: each in a child process on a fresh directory, repeated, engines side by side, in a shuffled order.
//!
//! The parent runs one child at a time and waits for it. What a child cannot report - it crashed, it wrote nonsense - is
//! a failed row.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::engines;
use crate::process::{Machine, unix_seconds};
use crate::rng::Rng;
use crate::spec::Spec;
use crate::stage::{Outcome, Task, perform};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the suite.
    pub suite: String,
    /// The rows.
    pub rows: Vec<Spec>,
    /// The engines.
    pub engines: Vec<String>,
    /// How often each row runs on each engine.
    pub repeat: usize,
    /// Where chance begins.
    pub seed: u64,
    /// Databases are made below it, and removed.
    pub dir: PathBuf,
    /// The program that calls [`child`], and its first arguments; the task is one more.
    pub program: Vec<OsString>,
}

/// Everything that was measured: what reports are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this structure.
    pub format: u32,
    /// Version of the benchmark.
    pub version: String,
    /// Name of the suite.
    pub suite: String,
    /// When it began, in seconds since 1970.
    pub begun: u64,
    /// Where chance began.
    pub seed: u64,
    /// The machine.
    pub machine: Machine,
    /// Names of the rows in the order of the suite.
    pub rows: Vec<String>,
    /// What they measured, in the order in which they ran.
    pub outcomes: Vec<Outcome>,
}

/// Version of [`Results`].
pub const FORMAT: u32 = 1;

/// What happens during a run.
pub enum Event<'a> {
    /// A row begins: how many are done, how many there are.
    Begin(&'a Spec, &'a str, usize, usize),
    /// It ended.
    End(&'a Outcome),
}

impl Plan {
    /// Rows to run, over all engines and repetitions.
    pub fn len(&self) -> usize {
        self.rows.len() * self.engines.len() * self.repeat
    }

    /// Whether there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row, engine and repetition, in the order in which they run: engines side by side.
    pub fn order(&self) -> Vec<(&Spec, &str, usize)> {
        let mut rng = Rng::new(self.seed, 0);
        let mut order = Vec::with_capacity(self.len());
        for repetition in 0..self.repeat {
            let mut rows: Vec<&Spec> = self.rows.iter().collect();
            rng.shuffle(&mut rows);
            for row in rows {
                let mut engines: Vec<&str> = self.engines.iter().map(String::as_str).collect();
                rng.shuffle(&mut engines);
                order.extend(engines.into_iter().map(|engine| (row, engine, repetition)));
            }
        }
        order
    }

    /// Runs everything.
    ///
    /// # Errors
    /// If an engine is unknown, a row makes no sense, or the directory cannot be used. Rows that fail are results.
    pub fn run(&self, mut watch: impl FnMut(Event<'_>)) -> Result<Results, String> {
        for engine in &self.engines {
            engines::named(engine).ok_or_else(|| format!("no engine {engine:?} in this build"))?;
        }
        for row in &self.rows {
            row.check().map_err(|what| format!("{}: {what}", row.name))?;
        }
        let at = |e| format!("{}: {e}", self.dir.display());
        fs::create_dir_all(&self.dir).map_err(at)?;
        let mut results = Results {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            suite: self.suite.clone(),
            begun: unix_seconds(),
            seed: self.seed,
            machine: Machine::here(&self.dir),
            rows: self.rows.iter().map(|row| row.name.clone()).collect(),
            outcomes: Vec::with_capacity(self.len()),
        };
        for (row, engine, repetition) in self.order() {
            watch(Event::Begin(row, engine, results.outcomes.len(), self.len()));
            let mut outcome = self.row(row, engine);
            outcome.repetition = repetition;
            watch(Event::End(&outcome));
            results.outcomes.push(outcome);
        }
        Ok(results)
    }

    fn row(&self, spec: &Spec, engine: &str) -> Outcome {
        let dir = self.dir.join(format!("tidesdb-bench-{}", std::process::id()));
        let mut outcome = self.stages(spec, engine, &dir);
        let gone = if dir.exists() { fs::remove_dir_all(&dir) } else { Ok(()) };
        if let (Err(e), None) = (gone, &outcome.failure) {
            outcome.failure = Some(format!("cannot remove {}: {e}", dir.display()));
        }
        outcome
    }

    fn stages(&self, spec: &Spec, engine: &str, dir: &Path) -> Outcome {
        if dir.exists() {
            return Outcome::failed(engine, spec, format!("{} is in the way", dir.display()));
        }
        let mut task =
            Task { engine: engine.to_owned(), dir: dir.to_owned(), spec: spec.clone(), fill: true };
        if spec.workload.needs_data() {
            let filled = self.start(&task);
            if let Some(failure) = filled.failure {
                return Outcome::failed(engine, spec, format!("while filling the database: {failure}"));
            }
            // What the filling left to the system to write shall not be written while the row is measured.
            rustix::fs::sync();
        }
        task.fill = false;
        self.start(&task)
    }

    /// Runs a task in a child process.
    fn start(&self, task: &Task) -> Outcome {
        self.child(task).unwrap_or_else(|failure| Outcome::failed(&task.engine, &task.spec, failure))
    }

    fn child(&self, task: &Task) -> Result<Outcome, String> {
        let (program, first) = self.program.split_first().ok_or("no program to run")?;
        let line = serde_json::to_string(task).map_err(|e| e.to_string())?;
        let out = Command::new(program)
            .args(first)
            .arg(line)
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("cannot start {}: {e}", Path::new(program).display()))?;
        let text = String::from_utf8_lossy(&out.stdout);
        let outcome = text.lines().rev().find_map(|line| serde_json::from_str::<Outcome>(line).ok());
        outcome.ok_or_else(|| {
            let said = String::from_utf8_lossy(&out.stderr);
            let last: Vec<&str> = said.lines().rev().take(3).collect();
            format!("the process ended without a result ({}) {}", out.status, last.join(" / "))
        })
    }
}

/// What the child process does: the task in, the line to print out. An engine that is not there fails the row.
///
/// # Errors
/// If the task cannot be read.
pub fn child(task: &str) -> Result<String, String> {
    let task: Task = serde_json::from_str(task).map_err(|e| e.to_string())?;
    let outcome = perform(&task, engines::open);
    serde_json::to_string(&outcome).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite;

    fn plan(program: &[&str], dir: &Path) -> Plan {
        Plan {
            suite: "quick".to_owned(),
            rows: suite::named("quick").unwrap().rows(0.001),
            engines: vec!["tidesdb".to_owned(), "null".to_owned()],
            repeat: 2,
            seed: 5,
            dir: dir.to_owned(),
            program: program.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn the_order_is_shuffled_interleaved_and_repeatable() {
        let plan = plan(&[], Path::new(""));
        let order = plan.order();
        assert_eq!(order.len(), plan.len());
        let names =
            |order: &[(&Spec, &str, usize)]| order.iter().map(|o| o.0.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&order), names(&plan.order()));
        for pair in order.chunks(2) {
            assert_eq!((&pair[0].0.name, pair[0].2), (&pair[1].0.name, pair[1].2), "engines side by side");
            assert_ne!(pair[0].1, pair[1].1);
        }
        let listed: Vec<_> = plan.rows.iter().map(|r| r.name.clone()).collect();
        assert_ne!(
            order.chunks(2).take(listed.len()).map(|p| p[0].0.name.clone()).collect::<Vec<_>>(),
            listed
        );
        let first: std::collections::HashSet<_> = order.chunks(2).map(|pair| pair[0].1).collect();
        assert_eq!(first.len(), 2, "each engine goes first sometimes");
    }

    #[test]
    fn a_child_that_dies_fails_its_row_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(&["sh", "-c", "echo bang >&2; kill -9 $$"], dir.path());
        plan.rows.truncate(2);
        let results = plan.run(|_| ()).unwrap();
        assert_eq!(results.outcomes.len(), 8);
        for outcome in &results.outcomes {
            let failure = outcome.failure.as_deref().unwrap_or_default();
            assert!(failure.contains("without a result") && failure.contains("bang"), "{failure}");
        }
        plan.engines.push("nonesuch".to_owned());
        assert!(plan.run(|_| ()).unwrap_err().contains("nonesuch"));
    }
}
