//! Writes the databases of `testkit::golden` into a folder. Run once for each new format, before its release.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Args {
    /// An empty folder.
    dir: PathBuf,
}

fn main() -> ExitCode {
    let Args { dir } = Args::parse();
    match testkit::golden::write(&dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("golden: {error}");
            ExitCode::FAILURE
        }
    }
}
