//! Tests of the whole engine that take files and processes. One program, because each one costs a build and a link of the engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod fuzz;
#[cfg(unix)]
mod hostile;
mod hostile_files;
mod runners;
