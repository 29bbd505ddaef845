//! What the programs of TidesDB share: colours, names, texts, exit codes and failures, output, progress bars, and the arguments of one
//! program for another.
//!
//! The modules below are listed from the lowest layer up: a module uses only modules above its own line.
#![forbid(unsafe_code)]
// They panic if the stream is full or closed: `output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod terminal;
pub mod names;
pub mod text;
pub mod failure;
pub mod output;
pub mod progress;
pub mod described;
pub mod program;
