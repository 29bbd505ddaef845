//! The arguments of the program, and what they run.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use clap::builder::PossibleValuesParser;
use tidesdb_console::failure::{Exit, Failure, Outcome as Ended};
use tidesdb_console::names::{Offer, nearest};
use tidesdb_console::output::{Out, Style};
use tidesdb_console::program::file;

use crate::keys::Pattern;
use crate::run::{Plan, child};
use crate::spec::{Blend, Contention, Durability, Isolation, Spec, Workload};
use crate::values::Filling;
use crate::{engines, report, rivals, suite};

use super::kept::{Compare, Redraw, positive};
use super::watch::watch;
use super::{against, kept};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    /// Suite to run: `bench list` shows the suites
    #[arg(default_value = "quick", hide_possible_values = true, value_parser = Offer::new(suites(), anything))]
    suite: String,
    #[command(flatten)]
    settings: Settings,
    /// Only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Multiply the numbers of operations
    #[arg(long, value_name = "F", default_value_t = 1.0, value_parser = positive)]
    scale: f64,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    Compare(Compare),
    Report(Redraw),
    /// Run a single row, all of whose settings are options
    Run(Box<Single>),
    /// Show suites, workloads, patterns and engines
    List,
    /// Run a task for another process
    #[command(hide = true)]
    Child {
        task: String,
    },
    /// Describe the arguments for `tidesdb`
    #[command(hide = true)]
    Describe,
}

/// How to run rows.
#[derive(Clone, Debug, clap::Args)]
struct Settings {
    /// Engines, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "tidesdb", hide_possible_values = true,
        value_parser = Offer::new(engines::ALL.iter().map(|engine| engine.name), anything))]
    engine: Vec<String>,
    /// Rivals to compare with, separated by commas; `all` means those that are built. Each is a separate program, looked up in
    /// the directories of TIDESDB_BENCH_PEERS, then next to this program; `bench list` shows them
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true,
        value_parser = Offer::new(rivals::ALL.iter().map(|rival| rival.name).chain(["all"]), anything))]
    vs: Vec<String>,
    /// Number of repetitions of each row [default: the suite's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..1000))]
    repeat: Option<u64>,
    /// Write results.json, results.csv, report.html and plots into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Check every answer in full instead of one of 64
    #[arg(long)]
    verify: bool,
    /// Where the databases are created and removed [default: the directory for temporary files]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Kill a process that takes longer than this many seconds; its row is shown as hung
    #[arg(long, value_name = "S", default_value_t = 3600.0, value_parser = positive)]
    patience: f64,
}

/// Settings of a single row.
#[derive(Clone, Debug, clap::Args)]
struct Single {
    #[command(flatten)]
    settings: Settings,
    /// Operations to run
    #[arg(long, value_parser = PossibleValuesParser::new(Workload::ALL.map(Workload::name)), default_value = "write")]
    workload: String,
    /// Pattern and order of the keys
    #[arg(long, value_parser = PossibleValuesParser::new(Pattern::ALL.map(Pattern::name)), default_value = "random")]
    pattern: String,
    /// Number of operations over all threads; of transactions for the workload `transaction`
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    ops: u64,
    /// Run for this many seconds instead
    #[arg(long, value_name = "S", value_parser = positive)]
    seconds: Option<f64>,
    /// Keys in the database before the operations [default: as many as operations]
    #[arg(long, value_name = "N", default_value_t = 0)]
    keys: u64,
    /// Threads that issue operations
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: usize,
    /// Operations per commit
    #[arg(long, value_name = "N", default_value_t = 1)]
    batch: u64,
    /// Bytes of a key
    #[arg(long, value_name = "B", default_value_t = 16)]
    key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "B", default_value_t = 100)]
    value_size: usize,
    /// Percent of a value that compression can remove, or `sawtooth` for the values of the reference tool
    #[arg(long, value_name = "PERCENT", default_value = "50", hide_possible_values = true,
        value_parser = Offer::new(["sawtooth"], filling))]
    compressible: Filling,
    /// Rows per range
    #[arg(long, value_name = "N", default_value_t = 100)]
    range: u64,
    /// Exponent of Zipf's law
    #[arg(long, value_name = "F", default_value_t = 0.99)]
    theta: f64,
    /// What a commit survives: nothing, the death of the process, or the loss of power
    #[arg(long, value_parser = PossibleValuesParser::new(Durability::ALL.map(Durability::name)), default_value = "os")]
    durability: String,
    /// Block cache in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    cache: u64,
    /// Memtable in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    memtable: u64,
    /// Start this many operations per second (an open loop); latencies count from the scheduled start
    #[arg(long, value_name = "N", value_parser = positive)]
    rate: Option<f64>,
    /// Percentages of a blend: get,update,insert,scan,modify
    #[arg(long, value_name = "LIST", default_value = "50,50,0,0,0", value_parser = blend)]
    shares: Blend,
    /// Level of transactions: read-uncommitted, read-committed, repeatable-read, snapshot, serializable, or ru, rc, rr, si, ser
    /// [default: read-committed]. With the workload `write`, batches are committed as such transactions
    #[arg(long, value_name = "LEVEL", hide_possible_values = true,
        value_parser = Offer::new(Isolation::ALL.map(Isolation::name), isolation))]
    isolation: Option<Isolation>,
    /// Operations per transaction, each a get and a put of the same key
    #[arg(long, value_name = "N", default_value_t = 10)]
    tx_ops: u64,
    /// Contention of transactions: each thread has its own keys (low), or all threads share a hundred keys (high)
    #[arg(long, value_parser = PossibleValuesParser::new(Contention::ALL.map(Contention::name)), default_value = "low")]
    conflict: String,
    /// Do not wait for background work before the operations begin
    #[arg(long)]
    unsettled: bool,
}

/// How the program was started.
pub(super) struct Started {
    /// The results are printed as JSON.
    pub(super) json: bool,
    /// The first arguments with which the file of this process is this program.
    pub(super) first: &'static [&'static str],
}

impl Bench {
    /// Runs the command.
    pub(super) fn run(&self, started: &Started, out: &mut Out<'_>) -> Ended {
        match &self.what {
            None => self.suite(started, out),
            Some(What::Run(single)) => single.settings.run("single", vec![single.spec()?], 1, started, out),
            Some(What::Compare(compare)) => compare.run(out),
            Some(What::Report(redraw)) => redraw.run(out),
            Some(What::List) => list(out),
            Some(What::Describe) => out.line(super::described()).map(|()| Exit::Done),
            Some(What::Child { task }) => {
                let last = child(task, engines::open, |line| println!("{line}")).map_err(Failure::usage)?;
                out.line(last)?;
                Ok(Exit::Done)
            }
        }
    }

    fn suite(&self, started: &Started, out: &mut Out<'_>) -> Ended {
        let suite = suite::named(&self.suite).ok_or_else(|| {
            let commands = ["compare", "report", "run", "list"];
            Failure::usage(format!("no suite {:?}", self.suite))
                .next("`tidesdb bench list` shows them")
                .meant(nearest(&self.suite, suites().chain(commands)))
        })?;
        let mut rows = suite.rows(self.scale);
        rows.retain(|row| self.only.as_ref().is_none_or(|only| row.name.contains(only.as_str())));
        if rows.is_empty() {
            return Err(Failure::usage("no row matches the name").next("`tidesdb bench list` shows them"));
        }
        self.settings.run(suite.name, rows, suite.repeat, started, out)
    }
}

impl Settings {
    fn run(
        &self,
        suite: &str,
        mut rows: Vec<Spec>,
        repeat: usize,
        started: &Started,
        out: &mut Out<'_>,
    ) -> Ended {
        for row in &mut rows {
            row.verify |= self.verify;
            row.seed = self.seed;
        }
        let peers = rivals::places();
        let engines = against::engines_of(&self.engine, &self.vs, &peers)?;
        let file = file().map_err(|e| Failure::failed(format!("cannot find this program: {e}")))?;
        let mut program = vec![file.into_os_string()];
        program.extend(started.first.iter().copied().chain(["child"]).map(OsString::from));
        let plan = Plan {
            suite: suite.to_owned(),
            rows,
            engines,
            repeat: self.repeat.map_or(repeat, |n| n as usize),
            seed: self.seed,
            dir: self.dir.clone().unwrap_or_else(std::env::temp_dir),
            program,
            peers,
            patience: Duration::from_secs_f64(self.patience),
        };
        if let Some(dir) = &self.out {
            fs::create_dir_all(dir).map_err(|e| Failure::file("create", dir, &e))?;
        }
        let results = watch(&plan)?;
        if let Some(dir) = &self.out {
            kept::keep(&results, dir)?;
        }
        if started.json {
            out.line(report::json(&results).map_err(Failure::failed)?)?;
        } else {
            out.line(report::table(&results).trim_end())?;
        }
        match results.outcomes.iter().filter(|o| o.failure.is_some()).count() {
            0 => Ok(Exit::Done),
            n => Err(Failure::no(format!("{n} of {} rows failed", results.outcomes.len()))),
        }
    }
}

impl Single {
    fn spec(&self) -> Ended<Spec> {
        let bad = || Failure::usage("unknown name");
        let spec = Spec {
            name: format!("{}_{}", self.workload, self.pattern),
            workload: Workload::named(&self.workload).ok_or_else(bad)?,
            pattern: Pattern::named(&self.pattern).ok_or_else(bad)?,
            blend: self.shares,
            ops: self.ops,
            seconds: self.seconds.unwrap_or(0.0),
            keys: self.keys,
            threads: self.threads,
            batch: self.batch,
            key_bytes: self.key_size,
            value_bytes: self.value_size,
            filling: self.compressible,
            range: self.range,
            theta: self.theta,
            durability: Durability::named(&self.durability).ok_or_else(bad)?,
            cache: self.cache << 20,
            memtable: self.memtable << 20,
            rate: self.rate.unwrap_or(0.0),
            settle: !self.unsettled,
            isolation: self.isolation,
            tx_ops: self.tx_ops,
            contention: Contention::named(&self.conflict).ok_or_else(bad)?,
            ..Spec::default()
        };
        spec.check().map_err(Failure::usage)?;
        Ok(spec)
    }
}

fn list(out: &mut Out<'_>) -> Ended {
    out.line(out.paint(Style::Title, "suites"))?;
    for suite in &suite::ALL {
        out.line(format!("  {:<10} {}", suite.name, suite.about))?;
        let rows: Vec<String> = suite.rows(1.0).into_iter().map(|row| row.name).collect();
        for names in rows.chunks(4) {
            out.line(format!("             {}", names.join(" ")))?;
        }
    }
    out.line(out.paint(Style::Title, "engines"))?;
    for engine in &engines::ALL {
        out.line(format!("  {:<10} {}", engine.name, engine.about))?;
    }
    against::list(out)?;
    out.line(out.paint(Style::Title, "workloads"))?;
    out.line(format!("  {}", Workload::ALL.map(Workload::name).join(" ")))?;
    out.line(out.paint(Style::Title, "patterns"))?;
    out.line(format!("  {}", Pattern::ALL.map(Pattern::name).join(" ")))?;
    Ok(Exit::Done)
}

/// Returns the names of the suites.
fn suites() -> impl Iterator<Item = &'static str> {
    suite::ALL.iter().map(|suite| suite.name)
}

/// Parses any text: what is wrong with it is found later.
fn anything(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn filling(text: &str) -> Result<Filling, String> {
    match text {
        "sawtooth" => Ok(Filling::Sawtooth),
        percent => match percent.parse() {
            Ok(percent @ 0..=100) => Ok(Filling::Percent(percent)),
            _ => Err("expected a percentage, or sawtooth".to_owned()),
        },
    }
}

fn isolation(text: &str) -> Result<Isolation, String> {
    let names = || Isolation::ALL.map(|level| format!("{} ({})", level.name(), level.short())).join(", ");
    Isolation::named(text).ok_or_else(|| format!("expected one of {}", names()))
}

fn blend(text: &str) -> Result<Blend, String> {
    let shares: Vec<u8> = text.split(',').filter_map(|s| s.trim().parse().ok()).collect();
    match shares[..] {
        [read, update, insert, scan, modify]
            if shares.iter().map(|s| u32::from(*s)).sum::<u32>() == 100 && text.split(',').count() == 5 =>
        {
            Ok(Blend { read, update, insert, scan, modify, latest: false })
        }
        _ => Err("expected five percentages, together 100: get,update,insert,scan,modify".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_understood() {
        assert_eq!(filling("30"), Ok(Filling::Percent(30)));
        assert_eq!(filling("sawtooth"), Ok(Filling::Sawtooth));
        assert!(filling("101").is_err());
        assert_eq!(blend("95,0,5,0,0").map(|b| (b.read, b.insert)), Ok((95, 5)));
        assert!(blend("95,0,5,0").is_err() && blend("95,0,5,0,1").is_err() && blend("95,x,5,0,0,0").is_err());
        assert_eq!(isolation("si"), isolation("snapshot"));
        assert!(isolation("none").unwrap_err().contains("serializable (ser)"));
        assert!(positive("0").is_err() && positive("nan").is_err() && positive("0.5") == Ok(0.5));
    }
}
