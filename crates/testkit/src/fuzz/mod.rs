//! Fuzzing of everything that reads bytes from disk or from C.
//!
//! A target is a function from bytes to nothing: it panics if the engine breaks a promise, and so does the engine. Inputs are
//! short forms of files; a target builds the file, makes all checksums right and hands it to the engine, so that the
//! decoder behind the checksum is reached. The program `fuzz` of this crate drives the targets.

pub mod bytes;
pub mod manifest;
pub mod mutate;
pub mod seal;
pub mod base;
pub mod targets;
pub mod corpus;
