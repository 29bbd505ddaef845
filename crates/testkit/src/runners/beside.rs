//! T46: reads a database beside the process that writes it, kills both at random times, and checks every view. A case
//! is a database.
//!
//! `beside --cost ROUNDS` measures instead what a reader costs the writer: see `reader_cost.rs`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use testkit::beside::{Parent, THREADS, read, write};
use testkit::process;
use testkit::reader_cost::{self, Load};
use testkit::report::{self, OneCase, exit, finish, temp_dir, violation};
use tidesdb::SyncMode;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    one: OneCase,
    /// Refreshes that show something new.
    #[arg(long, default_value_t = 1000)]
    refreshes: u64,
    /// Where the temporary folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Rounds in which the cost of a reader is measured.
    #[arg(long)]
    cost: Option<u64>,
    #[command(flatten)]
    load: LoadArgs,
    /// A process: the folder of its database, then numbers for `write` (first commit) and `read` (seed, then commits of each thread).
    #[arg(long, hide = true, num_args = 2)]
    write: Option<Vec<String>>,
    #[arg(long, hide = true, num_args = 2 + THREADS)]
    read: Option<Vec<String>>,
    #[arg(long, hide = true)]
    put: Option<PathBuf>,
    #[arg(long, hide = true)]
    poll: Option<PathBuf>,
}

/// The load of `--cost`.
#[derive(clap::Args)]
struct LoadArgs {
    #[arg(long, default_value_t = 2_000_000)]
    puts: u64,
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Makes each put durable if it is 1.
    #[arg(long, default_value_t = 0)]
    full: u8,
    /// Refreshes per second.
    #[arg(long, default_value_t = 10)]
    hz: u64,
    /// Gets after each refresh.
    #[arg(long, default_value_t = 100)]
    gets: u64,
    /// Rows that are scanned after each refresh.
    #[arg(long, default_value_t = 1000)]
    rows: u64,
}

impl Args {
    fn load(&self) -> Load {
        let LoadArgs { puts, keys, full, hz, gets, rows } = self.load;
        let sync = if full == 0 { SyncMode::None } else { SyncMode::Full };
        Load { puts, keys, sync, refreshes: hz, gets, rows }
    }

    /// Runs a child if the arguments ask for one.
    fn child(&self) -> Option<Result<(), String>> {
        if let Some(path) = &self.put {
            return Some(reader_cost::put(path, &self.load()));
        }
        if let Some(path) = &self.poll {
            return Some(reader_cost::poll(path, &self.load()));
        }
        let (path, numbers) = self.write.as_ref().or(self.read.as_ref())?.split_first()?;
        let numbers: Result<Vec<u64>, _> = numbers.iter().map(|n| n.parse()).collect();
        Some(match (numbers.as_deref(), Path::new(path)) {
            (Ok([first]), path) => write(path, *first),
            (Ok([seed, least @ ..]), path) if least.len() == THREADS => {
                read(path, *seed, std::array::from_fn(|n| least[n]))
            }
            _ => Err("these are not the numbers of a child".to_owned()),
        })
    }
}

pub(crate) fn runner() -> ExitCode {
    let args: Args = process::arguments();
    if let Some(result) = args.child() {
        if let Err(e) = &result {
            eprintln!("child: {e}");
        }
        return exit(result.is_ok());
    }
    let (refreshes, seed) = (args.refreshes, args.one.case);
    report::begin(&[], seed);
    let Ok(temp) = temp_dir(args.dir.as_deref()) else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    if let Some(rounds) = args.cost {
        let parent = reader_cost::Parent { dir: temp.path(), load: args.load() };
        let result = parent.run(rounds).inspect_err(|e| eprintln!("{e}"));
        return exit(result.is_ok());
    }
    let mut parent = Parent::new(&temp.path().join("db"), seed);
    if let Err(e) = parent.run(refreshes) {
        violation(format_args!("{e}; the files are in {}", temp.path().display()));
        parent.totals.violations += 1;
        let _kept = temp.keep();
    }
    let t = parent.totals;
    let figures = [
        ("refreshes", t.refreshes),
        ("changed", t.changed),
        ("rows", t.rows),
        ("writers_killed", t.writers_killed),
        ("writers_closed", t.writers_closed),
        ("readers_killed", t.readers_killed),
        ("violations", t.violations),
        ("seed", seed),
    ];
    let floors =
        [("changed", refreshes), ("writers_killed", refreshes / 100), ("readers_killed", refreshes / 200)];
    exit(finish("T46", &figures, &floors))
}
