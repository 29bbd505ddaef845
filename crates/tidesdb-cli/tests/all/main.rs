//! Tests of the built program. One program, because each one costs a build and a link of the engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod beside;
#[cfg(unix)]
mod book;
mod cli;
#[cfg(target_os = "linux")]
mod explain;
mod figures;
mod hostile;
#[cfg(feature = "pages")]
mod pages;
#[cfg(unix)]
mod programs;
#[cfg(target_os = "linux")]
mod terminal;
