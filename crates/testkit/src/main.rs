//! All runners, in one program: `testkit NAME ARGUMENTS`, which is what `cargo xtask NAME ARGUMENTS` starts. One program is linked once, and
//! the generic code of the engine is compiled for it once.

mod runners;

use std::process::ExitCode;

use testkit::{process, report};

fn main() -> ExitCode {
    let name = process::runner();
    let Some((_, runner)) = runners::ALL.iter().find(|(known, _)| *known == name) else {
        let known: Vec<_> = runners::ALL.iter().map(|(known, _)| *known).collect();
        eprintln!("error: no runner is named `{name}`: {}", known.join(", "));
        return ExitCode::from(2);
    };
    report::run(*runner)
}
