//! Tests of the built program. One program, because each one costs a build and a link of the engine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod beside;
#[cfg(unix)]
mod book;
#[cfg(all(target_os = "linux", feature = "report"))]
mod browser;
#[cfg(all(target_os = "linux", feature = "report"))]
#[path = "../../../tidesdb-bench/src/report/chromium.rs"]
mod chromium;
mod cli;
#[cfg(target_os = "linux")]
mod explain;
mod figures;
mod generations;
mod hostile;
#[cfg(feature = "pages")]
mod pages;
#[cfg(unix)]
mod programs;
mod sick;
mod tables;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod top;
#[cfg(target_os = "linux")]
mod why;
