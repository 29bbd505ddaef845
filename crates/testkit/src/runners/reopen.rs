//! T41: kills a loading process and measures how long a new process needs to the first read. A case is a trial. `reopen.csv` in the
//! folder `--out` gets the figures of all runs that name the folder; `reopen.md` and `reopen.svg` show them as a table and a plot.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use testkit::process;
use testkit::reopen::{Case, Opened, THREADS, empty, load, open, plot, table, trial};
use testkit::report::{self, Cases, exit, finish, temp_dir, violation};
use testkit::rng::Rng;

/// Numbers of a seed.
const NUMBERS: u64 = 1000;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    cases: Cases,
    /// Sizes of the databases.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    mib: Vec<u64>,
    /// Trials of each kind and size.
    #[arg(long, default_value_t = 1)]
    trials: u64,
    /// What the databases hold.
    #[arg(long, value_delimiter = ',', default_values = KINDS, value_parser = KINDS)]
    kind: Vec<String>,
    /// Longest time to the first read.
    #[arg(long)]
    limit_ms: Option<u64>,
    /// Where the temporary folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// A folder that collects the figures of all runs.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Runs as a process that loads. Arguments: the kind, the folder of the database, the size.
    #[arg(long, hide = true, num_args = 3)]
    load: Option<Vec<String>>,
    /// Runs as a process that opens. Arguments: the kind, the folder of the database, acknowledged commits of each thread.
    #[arg(long, hide = true, num_args = 2 + THREADS)]
    open: Option<Vec<String>>,
}

/// What the databases of a run may hold.
const KINDS: [&str; Case::ALL.len()] = {
    let mut names = [""; Case::ALL.len()];
    let mut n = 0;
    while n < names.len() {
        names[n] = Case::ALL[n].0;
        n += 1;
    }
    names
};

pub(crate) fn runner() -> ExitCode {
    let args: Args = process::arguments();
    if let Some(result) = child(&args) {
        if let Err(e) = &result {
            eprintln!("child: {e}");
        }
        return exit(result.is_ok());
    }
    let Args { cases, mib: sizes, trials, kind, .. } = &args;
    let limit = args.limit_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1000));
    let Ok(temp) = temp_dir(args.dir.as_deref()) else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    let runs = kind.iter().flat_map(|name| sizes.iter().map(move |mib| (*mib, name.as_str())));
    let mut csv = String::new();
    let (mut opened, mut checked, mut slowest, mut violations) = (0, 0, 0, 0);
    for (mib, name) in runs {
        for n in cases.numbers(NUMBERS, *trials) {
            report::begin(&[("kind", name.to_owned()), ("mib", mib.to_string())], n);
            let mut rng = Rng::new(n);
            let result = empty(&temp.path().join("db")).and_then(|path| trial(&path, name, mib, &mut rng));
            match result {
                Ok(figures) => {
                    let pairs = Opened::NAMES.iter().zip(figures.0).map(|(name, n)| format!("{name}={n}"));
                    println!("{name} mib={mib} {}", pairs.collect::<Vec<_>>().join(" "));
                    let _ = writeln!(csv, "{name},{mib},{n},{}", figures.0.map(|n| n.to_string()).join(","));
                    opened += 1;
                    slowest = slowest.max(figures.0[1]);
                    checked += figures.0[10];
                    if figures.0[1] > limit {
                        violation(format_args!("the first read came after {} us", figures.0[1]));
                        violations += 1;
                    }
                }
                Err(e) => {
                    violation(e);
                    violations += 1;
                }
            }
        }
    }
    drop(temp);
    if let Some(dir) = &args.out
        && let Err(e) = keep(dir, &csv)
    {
        eprintln!("{}: {e}", dir.display());
        violations += 1;
    }
    let figures = [
        ("opened", opened),
        ("checked", checked),
        ("slowest_us", slowest),
        ("violations", violations),
        ("seed", cases.seed),
    ];
    exit(finish("T41", &figures, cases.floors(&[("opened", *trials), ("checked", *trials)])))
}

/// Appends `lines` to the figures in a folder, and writes the table and the plot of all of them.
fn keep(dir: &Path, lines: &str) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let file = dir.join("reopen.csv");
    let known = match std::fs::read_to_string(&file) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            format!("case,mib,trial,{}\n", Opened::NAMES.join(","))
        }
        other => other?,
    };
    let all = known + lines;
    std::fs::write(file, &all)?;
    std::fs::write(dir.join("reopen.md"), table(&all))?;
    std::fs::write(dir.join("reopen.svg"), plot(&all))
}

/// Runs a child if the arguments ask for one.
fn child(args: &Args) -> Option<Result<(), String>> {
    let [kind, path, numbers @ ..] = args.load.as_deref().or(args.open.as_deref())? else { return None };
    let (kind, path) = (Case::by_name(kind)?, Path::new(path));
    let numbers: Result<Vec<u64>, _> = numbers.iter().map(|n| n.parse()).collect();
    Some(match numbers.as_deref() {
        Ok([mib]) if args.load.is_some() => load(kind, path, *mib),
        Ok(acked) if acked.len() == THREADS => open(kind, path, std::array::from_fn(|n| acked[n])),
        _ => Err("these are not the numbers of a child".to_owned()),
    })
}
