//! The benchmark program: [`tidesdb_bench::program`].

use std::process::ExitCode;

fn main() -> ExitCode {
    tidesdb_bench::program::main(std::env::args_os().skip(1), &[]).into()
}
