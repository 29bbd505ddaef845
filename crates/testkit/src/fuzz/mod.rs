//! Fuzzing of all code that reads bytes from disk or from C.
//!
//! A target is a function that takes bytes and panics if the engine breaks a promise; the engine may panic, too. Inputs
//! are short forms of files. A target builds the file, makes all checksums valid and passes it to the engine, so that
//! the decoder after the checksum is reached. The program `fuzz` of this crate runs the targets.

pub mod bytes;
pub mod manifest;
pub mod mutate;
pub mod seal;
pub mod base;
pub mod calls;
mod search;
pub mod foreign;
pub mod targets;
pub mod corpus;
