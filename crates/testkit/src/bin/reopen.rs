//! T41: kills a loading process and measures how long a new process needs to the first read. Usage: `reopen [--mib N,N]
//! [--trials N] [--case values,rows,tables,tail] [--limit-ms N] [--seed S] [--dir PATH] [--out DIR]`. `reopen.csv` in the
//! folder gets the figures of all runs that name the folder; `reopen.md` and `reopen.svg` show them as a table and a plot.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use testkit::reopen::{Case, Opened, THREADS, empty, load, open, plot, table, trial};
use testkit::report::{argument, exit, finish, temp_dir, text_argument};
use testkit::rng::Rng;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(result) = child(&args) {
        if let Err(e) = &result {
            eprintln!("child: {e}");
        }
        return exit(result.is_ok());
    }
    let list = |name| text_argument(name).map(|text| text.split(',').map(str::to_owned).collect::<Vec<_>>());
    let sizes = list("mib").map_or(vec![64], |list| list.iter().filter_map(|n| n.parse().ok()).collect());
    let trials = argument("trials").unwrap_or(1);
    let seed = argument("seed").unwrap_or(1);
    let limit = argument("limit-ms").map_or(u64::MAX, |ms| ms.saturating_mul(1000));
    let (Ok(temp), Ok(program)) = (temp_dir(), std::env::current_exe()) else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    let only = list("case");
    let cases = Case::ALL.map(|(name, _)| name);
    let cases =
        cases.into_iter().filter(|name| only.as_ref().is_none_or(|only| only.iter().any(|o| o == name)));
    let runs: Vec<(u64, &str)> =
        cases.flat_map(|name| sizes.iter().map(move |mib| (*mib, name)).collect::<Vec<_>>()).collect();
    let mut rng = Rng::new(seed);
    let mut csv = String::new();
    let (mut opened, mut checked, mut slowest, mut violations) = (0, 0, 0, 0);
    for (mib, name) in runs {
        for n in 0..trials {
            let result =
                empty(&temp.path().join("db")).and_then(|path| trial(&program, &path, name, mib, &mut rng));
            match result {
                Ok(figures) => {
                    let pairs = Opened::NAMES.iter().zip(figures.0).map(|(name, n)| format!("{name}={n}"));
                    println!("{name} mib={mib} {}", pairs.collect::<Vec<_>>().join(" "));
                    let _ = writeln!(csv, "{name},{mib},{n},{}", figures.0.map(|n| n.to_string()).join(","));
                    opened += 1;
                    slowest = slowest.max(figures.0[1]);
                    checked += figures.0[10];
                    violations += u64::from(figures.0[1] > limit);
                }
                Err(e) => {
                    eprintln!("VIOLATION seed {seed} case {name} trial {n}: {e}");
                    violations += 1;
                }
            }
        }
    }
    drop(temp);
    if let Some(dir) = text_argument("out")
        && let Err(e) = keep(Path::new(&dir), &csv)
    {
        eprintln!("{dir}: {e}");
        violations += 1;
    }
    let figures = [
        ("opened", opened),
        ("checked", checked),
        ("slowest_us", slowest),
        ("violations", violations),
        ("seed", seed),
    ];
    exit(finish("T41", &figures, &[("opened", trials), ("checked", trials)]))
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
fn child(args: &[String]) -> Option<Result<(), String>> {
    let parse = |n: &String| n.parse::<u64>().unwrap_or(0);
    match args {
        [flag, case, path, mib] if flag == "--load" => {
            Some(load(Case::by_name(case)?, &PathBuf::from(path), parse(mib)))
        }
        [flag, case, path, acked @ ..] if flag == "--open" && acked.len() == THREADS => {
            let acked = std::array::from_fn(|n| parse(&acked[n]));
            Some(open(Case::by_name(case)?, &PathBuf::from(path), acked))
        }
        _ => None,
    }
}
