//! Runs many rows: each in a child process on a fresh directory, repeated, in a shuffled order, with the engines of a
//! row next to each other.
//!
//! The parent runs one child at a time and waits for it. If a child crashes, hangs or writes invalid output, its row
//! has failed.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::Group;
use crate::children::Running;
use crate::engine::Open;
use crate::engines;
use crate::process::{Machine, forget_files, unix_seconds};
use crate::rivals;
use crate::rng::Rng;
use crate::spec::{Spec, Workload};
use crate::stage::{Outcome, Stage, Task, perform, restarted, write_until_killed};

/// Rows to run, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the suite.
    pub suite: String,
    /// Rows of the suite.
    pub rows: Vec<Spec>,
    /// Engine names.
    pub engines: Vec<String>,
    /// Number of repetitions of each row on each engine.
    pub repeat: usize,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Directory below which databases are created and removed.
    pub dir: PathBuf,
    /// The program that calls [`child`], and its first arguments; the task is passed as one more argument.
    pub program: Vec<OsString>,
    /// Directories with the programs of rivals.
    pub peers: Vec<PathBuf>,
    /// A child process that takes longer than this is killed, and its row fails.
    pub patience: Duration,
}

/// All measurements of a run; the input of reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// Version of this structure.
    pub format: u32,
    /// Version of the benchmark.
    pub version: String,
    /// Name of the suite.
    pub suite: String,
    /// Start of the run, in seconds since 1970.
    pub begun: u64,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Machine of the run.
    pub machine: Machine,
    /// Names of the rows, in the order of the suite.
    pub rows: Vec<String>,
    /// Measurements, in the order in which the rows ran.
    pub outcomes: Vec<Outcome>,
}

/// Current version of [`Results`].
pub const FORMAT: u32 = 1;

/// Progress of a run.
pub enum Event<'a> {
    /// A row begins: row, engine, number of rows done, total number of rows.
    Begin(&'a Spec, &'a str, usize, usize),
    /// A row has ended.
    End(&'a Outcome),
}

impl Plan {
    /// Returns the number of rows to run, over all engines and repetitions.
    pub fn len(&self) -> usize {
        self.rows.len() * self.engines.len() * self.repeat
    }

    /// Returns true if there is nothing to run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns row, engine and repetition in the order in which they run. The engines of a row follow each other, and
    /// so do the stages over one database.
    pub fn order(&self) -> Vec<(&Spec, &str, usize)> {
        let mut rng = Rng::new(self.seed, 0);
        let mut order = Vec::with_capacity(self.len());
        let together = |a: &Spec, b: &Spec| a.is_stage() && a.database == b.database;
        for repetition in 0..self.repeat {
            let mut units: Vec<&[Spec]> = self.rows.chunk_by(together).collect();
            rng.shuffle(&mut units);
            for unit in units {
                let mut engines: Vec<&str> = self.engines.iter().map(String::as_str).collect();
                rng.shuffle(&mut engines);
                for engine in engines {
                    order.extend(unit.iter().map(|row| (row, engine, repetition)));
                }
            }
        }
        order
    }

    /// Runs all rows.
    ///
    /// # Errors
    /// Returns an error if an engine is unknown, a row is invalid, or the directory cannot be used. Failed rows are
    /// part of the results.
    pub fn run(&self, mut watch: impl FnMut(Event<'_>)) -> Result<Results, String> {
        self.engines.iter().try_for_each(|engine| self.program(engine).map(drop))?;
        for row in &self.rows {
            row.check().map_err(|what| format!("{}: {what}", row.name))?;
        }
        let group = self.group()?;
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
        if group.is_some() && results.machine.file_system == "tmpfs" {
            return Err(format!(
                "{} is in memory (tmpfs); rows with a memory limit need a disk: choose a directory with --dir",
                self.dir.display()
            ));
        }
        let mut place =
            Place { dir: self.dir.join(format!("tidesdb-bench-{}", std::process::id())), of: None };
        for (row, engine, repetition) in self.order() {
            watch(Event::Begin(row, engine, results.outcomes.len(), self.len()));
            let kills = group.as_ref().map_or(0, Group::kills);
            let mut outcome = self.row(row, engine, repetition, (&mut place, group.as_ref()));
            if group.as_ref().is_some_and(|group| group.kills() > kills) {
                let failure = outcome.failure.get_or_insert_default();
                *failure = format!("the memory limit killed a process: {failure}");
            }
            outcome.repetition = repetition;
            watch(Event::End(&outcome));
            results.outcomes.push(outcome);
        }
        place.clear()?;
        Ok(results)
    }

    /// Creates one cgroup for all rows with a memory limit, which is the same for all of them.
    fn group(&self) -> Result<Option<Group>, String> {
        self.rows.iter().map(|row| row.memory).max().filter(|limit| *limit > 0).map(Group::make).transpose()
    }

    fn row(
        &self,
        spec: &Spec,
        engine: &str,
        repetition: usize,
        (place, group): (&mut Place, Option<&Group>),
    ) -> Outcome {
        if let Some(reason) = rivals::absent(engine, spec) {
            return Outcome::absent(engine, spec, reason);
        }
        let owner = (spec.database.clone(), engine.to_owned(), repetition);
        let stays = spec.is_stage() && place.of.as_ref().is_some_and(|of| of.owner == owner);
        if !stays {
            if let Err(failure) = place.clear() {
                return Outcome::failed(engine, spec, failure);
            }
            place.of = Some(Tenant { owner, broken: None });
        }
        if let Some(broken) = place.of.as_ref().and_then(|of| of.broken.as_ref()) {
            return Outcome::failed(engine, spec, format!("not run: the stage {broken} failed before"));
        }
        let mut outcome = self.stages(spec, engine, &place.dir, group.filter(|_| spec.memory > 0));
        let is_unknown = outcome.failure.as_ref().is_some_and(|failure| failure.contains(UNKNOWN));
        if let Some(rival) = rivals::named(engine).filter(|_| is_unknown) {
            let (program, command) = (rival.program(), rival.command());
            let reason = format!("{program} is older than this row; build it again: {command}");
            return Outcome::absent(engine, spec, reason);
        }
        if let (Some(of), Some(_)) = (&mut place.of, &outcome.failure) {
            of.broken = Some(spec.name.clone());
        }
        let gone = if spec.is_stage() { Ok(()) } else { place.clear() };
        if let (Err(failure), None) = (gone, &outcome.failure) {
            outcome.failure = Some(failure);
        }
        outcome
    }

    fn stages(&self, spec: &Spec, engine: &str, dir: &Path, group: Option<&Group>) -> Outcome {
        let task = |stage| Task {
            engine: engine.to_owned(),
            dir: dir.to_owned(),
            spec: spec.clone(),
            stage,
            group: group.map(|group| group.dir().to_owned()),
        };
        if spec.workload.needs_data() && !dir.exists() {
            if let Err(failure) = self.finished(&task(Stage::Fill)) {
                return Outcome::failed(engine, spec, format!("while filling the database: {failure}"));
            }
            // Write out what the fill left in the page cache, so that this does not happen during the measurement.
            rustix::fs::sync();
        }
        let cold = if spec.watched && !spec.warm && dir.exists() { forget_files(dir) } else { Ok(()) };
        if let Err(failure) = cold {
            return Outcome::failed(engine, spec, failure);
        }
        let done = match spec.workload {
            Workload::Kill => self.killed(&task),
            _ => self.start(&task(Stage::Measure)).and_then(Running::finish),
        };
        done.unwrap_or_else(|failure| Outcome::failed(engine, spec, failure))
    }

    /// Runs a row with a kill: puts until the kill, then two more processes that open the database.
    fn killed(&self, task: &impl Fn(Stage) -> Task) -> Result<Outcome, String> {
        let written = self.start(&task(Stage::Write))?.kill_after_result()?;
        if written.failure.is_some() {
            return Ok(written);
        }
        let counted = self.finished(&task(Stage::Count))?;
        let reopened =
            self.finished(&task(Stage::Reopen)).map_err(|what| format!("after a clean close: {what}"))?;
        Ok(restarted(written, counted, reopened.open))
    }

    /// Runs a task and returns its outcome; a failed outcome is an error.
    fn finished(&self, task: &Task) -> Result<Outcome, String> {
        let outcome = self.start(task)?.finish()?;
        match outcome.failure {
            Some(failure) => Err(failure),
            None => Ok(outcome),
        }
    }

    fn start(&self, task: &Task) -> Result<Running, String> {
        let line = serde_json::to_string(task).map_err(|e| e.to_string())?;
        Running::start(&self.program(&task.engine)?, &line, self.patience)
    }

    /// Returns the program of an engine and its first arguments.
    fn program(&self, engine: &str) -> Result<Vec<OsString>, String> {
        let Some(rival) = rivals::named(engine) else {
            let own = engines::named(engine).map(|_| self.program.clone());
            return own.ok_or_else(|| format!("no engine {engine:?} in this build"));
        };
        rival.check(rivals::split(engine).1)?;
        let found = rival.find(&self.peers).map(|path| vec![path.into_os_string()]);
        found.ok_or_else(|| {
            format!(
                "the program {} of {engine} was not found; build it with:\n{}",
                rival.program(),
                rival.recipe()
            )
        })
    }
}

/// Directory of the databases.
struct Place {
    dir: PathBuf,
    of: Option<Tenant>,
}

/// Owner of the database that is in the directory.
struct Tenant {
    /// Shared database name, engine, repetition.
    owner: (String, String, usize),
    /// The stage that failed, if one did; the contents of the database are unknown since then.
    broken: Option<String>,
}

impl Place {
    /// Removes the database. A directory that existed before the first row is an error and is kept.
    fn clear(&mut self) -> Result<(), String> {
        match (self.of.take(), self.dir.exists()) {
            (None, true) => Err(format!("{} already exists: remove it", self.dir.display())),
            (Some(_), true) => fs::remove_dir_all(&self.dir)
                .map_err(|e| format!("cannot remove {}: {e}", self.dir.display())),
            (_, false) => Ok(()),
        }
    }
}

/// Begin of the error of a child process for a task that it does not know.
const UNKNOWN: &str = "the task cannot be parsed";

/// Entry point of a child process: takes a task and returns the line for the standard output. Errors of the engine are
/// in the outcome. `say` prints a line at once, for a process that will be killed.
///
/// # Errors
/// Returns an error if the task cannot be parsed.
pub fn child(task: &str, open: Open, say: impl FnOnce(&str)) -> Result<String, String> {
    let task: Task = serde_json::from_str(task).map_err(|e| format!("{UNKNOWN}: {e}"))?;
    let outcome = match task.stage {
        Stage::Write => write_until_killed(&task, open, |outcome| {
            say(&serde_json::to_string(outcome).unwrap_or_default());
            wait_for_the_end();
        }),
        _ => perform(&task, open),
    };
    serde_json::to_string(&outcome).map_err(|e| e.to_string())
}

/// Waits to be killed. If the parent dies first, exits without cleaning up.
fn wait_for_the_end() {
    let mut rest = Vec::new();
    let _ = std::io::stdin().read_to_end(&mut rest);
    std::process::exit(1);
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
            peers: Vec::new(),
            patience: Duration::from_secs(60),
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
            assert_eq!(
                (&pair[0].0.name, pair[0].2),
                (&pair[1].0.name, pair[1].2),
                "the engines of a row must follow each other"
            );
            assert_ne!(pair[0].1, pair[1].1);
        }
        let listed: Vec<_> = plan.rows.iter().map(|r| r.name.clone()).collect();
        assert_ne!(
            order.chunks(2).take(listed.len()).map(|p| p[0].0.name.clone()).collect::<Vec<_>>(),
            listed
        );
        let first: std::collections::HashSet<_> = order.chunks(2).map(|pair| pair[0].1).collect();
        assert_eq!(first.len(), 2, "each engine must be first sometimes");
    }

    #[test]
    fn stages_over_one_database_stay_together_and_in_order() {
        let mut plan = plan(&[], Path::new(""));
        for row in &mut plan.rows[3..7] {
            row.database = "shared".to_owned();
        }
        let names: Vec<&str> = plan.rows[3..7].iter().map(|row| row.name.as_str()).collect();
        let order = plan.order();
        assert_eq!(order.len(), plan.len());
        let mut found = 0;
        for (at, entry) in order.iter().enumerate().filter(|(_, entry)| entry.0.name == names[0]) {
            let stages = &order[at..at + 4];
            assert!(
                stages.iter().map(|s| s.0.name.as_str()).eq(names.iter().copied()),
                "the stages must be in order"
            );
            assert!(
                stages.iter().all(|s| (s.1, s.2) == (entry.1, entry.2)),
                "the stages must be of one engine"
            );
            found += 1;
        }
        assert_eq!(found, 4);
    }

    #[test]
    fn the_stages_after_one_that_failed_do_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(&["sh", "-c", "exit 1"], dir.path());
        (plan.engines, plan.repeat) = (vec!["tidesdb".to_owned()], 1);
        plan.rows.truncate(3);
        for row in &mut plan.rows[..2] {
            row.database = "shared".to_owned();
        }
        let results = plan.run(|_| ()).unwrap();
        let failure = |name: &str| {
            let outcome = results.outcomes.iter().find(|o| o.spec.name == name).unwrap();
            outcome.failure.clone().unwrap_or_default()
        };
        assert!(failure(&plan.rows[0].name).contains("without a result"));
        let second = failure(&plan.rows[1].name);
        assert!(second.contains("not run") && second.contains(&plan.rows[0].name), "{second}");
        assert!(failure(&plan.rows[2].name).contains("without a result"), "a row with its own database runs");
    }

    #[test]
    fn a_rival_that_hangs_or_does_not_offer_a_class_has_no_figures() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(&[], &dir.path().join("databases"));
        (plan.engines, plan.repeat) = (vec!["redb".to_owned()], 1);
        plan.rows.retain(|row| ["put_seq_b1000", "put_durable_t16"].contains(&row.name.as_str()));
        (plan.peers, plan.patience) = (vec![dir.path().to_owned()], Duration::from_millis(200));
        let missing = plan.run(|_| ()).unwrap_err();
        assert!(missing.contains("tidesdb-bench-redb") && missing.contains("--features redb"), "{missing}");
        let program = dir.path().join("tidesdb-bench-redb");
        fs::write(&program, "#!/bin/sh\nexec sleep 100\n").unwrap();
        let status = std::process::Command::new("chmod").arg("+x").arg(&program).status().unwrap();
        assert!(status.success());
        let results = plan.run(|_| ()).unwrap();
        let of = |name: &str| results.outcomes.iter().find(|o| o.spec.name == name).unwrap();
        let absent = of("put_seq_b1000");
        assert_eq!(absent.failure, None);
        assert!(absent.absent.as_deref().unwrap_or_default().contains("no durability os"), "{absent:?}");
        let hung = of("put_durable_t16").failure.as_deref().unwrap_or_default();
        assert!(hung.starts_with("hung: "), "{hung}");
    }

    #[test]
    fn a_rival_that_does_not_know_a_workload_does_not_offer_the_row() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(&[], &dir.path().join("databases"));
        (plan.engines, plan.repeat) = (vec!["fjall".to_owned()], 1);
        plan.rows.truncate(1);
        plan.peers = vec![dir.path().to_owned()];
        let program = dir.path().join("tidesdb-bench-fjall");
        fs::write(&program, format!("#!/bin/sh\necho '{UNKNOWN}: unknown variant' >&2\nexit 2\n")).unwrap();
        let status = std::process::Command::new("chmod").arg("+x").arg(&program).status().unwrap();
        assert!(status.success());
        let outcome = &plan.run(|_| ()).unwrap().outcomes[0];
        assert_eq!(outcome.failure, None);
        assert!(outcome.absent.as_deref().unwrap_or_default().contains("--features fjall"), "{outcome:?}");
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
