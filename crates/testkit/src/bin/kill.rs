//! T04: kills a committing process at random times and checks that every acknowledged commit survives. Usage: `kill
//! [--kills N] [--seed S] [--dir PATH]`.

use std::path::PathBuf;
use std::process::ExitCode;

use testkit::kill::{Killer, child};
use testkit::report::{argument, exit, finish, temp_dir};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, path, n] = args.as_slice()
        && flag == "--child"
    {
        let result = child(&PathBuf::from(path), n.parse().unwrap_or(0));
        if let Err(e) = &result {
            eprintln!("child: {e}");
        }
        return exit(result.is_ok());
    }
    let kills = argument("kills").unwrap_or(300);
    let seed = argument("seed").unwrap_or(1);
    let (Ok(temp), Ok(program)) = (temp_dir(), std::env::current_exe()) else {
        eprintln!("cannot create a temporary directory");
        return ExitCode::FAILURE;
    };
    let mut killer = Killer::new(&program, &temp.path().join("db"), seed);
    for n in 0..kills {
        if let Err(e) = killer.once(n) {
            eprintln!("VIOLATION seed {seed} kill {n}: {e}; the files are in {}", temp.path().display());
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
