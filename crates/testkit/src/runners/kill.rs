//! T04: kills a committing process at random times and checks that every acknowledged commit survives. A case is
//! a database with all its kills.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use testkit::kill::{Killer, child};
use testkit::process;
use testkit::report::{self, OneCase, exit, finish, temp_dir, violation};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    one: OneCase,
    #[arg(long, default_value_t = 300)]
    kills: u64,
    /// Where the temporary folder is made.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The folder of the database and the number of a process that commits until it is killed.
    #[arg(long, hide = true, num_args = 2)]
    child: Option<Vec<String>>,
}

pub(crate) fn runner() -> ExitCode {
    let Args { one: OneCase { case: seed }, kills, dir, child: committing } = process::arguments();
    if let Some([path, n]) = committing.as_deref() {
        let number = n.parse().map_err(|e| format!("{n}: {e}"));
        let result = number.and_then(|n| child(&PathBuf::from(path), n));
        if let Err(e) = &result {
            eprintln!("child: {e}");
        }
        return exit(result.is_ok());
    }
    report::begin(&[], seed);
    let Ok(temp) = temp_dir(dir.as_deref()) else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    let mut killer = Killer::new(&temp.path().join("db"), seed);
    for n in 0..kills {
        if let Err(e) = killer.once(n) {
            violation(format_args!("kill {n}: {e}; the files are in {}", temp.path().display()));
            killer.totals.violations += 1;
            let _kept = temp.keep();
            break;
        }
    }
    let t = killer.totals;
    let figures = [
        ("kills", t.kills),
        ("in_open", t.early),
        ("acked", t.acked),
        ("keys", t.keys),
        ("verified", t.verified),
        ("violations", t.violations),
        ("seed", seed),
    ];
    exit(finish("T04", &figures, &[("kills", kills), ("acked", kills * 10), ("keys", kills * 100)]))
}
