//! Fuzzing of all code that reads bytes from disk or from C.
//!
//! A target is a function that takes bytes and returns nothing: it panics if the engine violates a promise. Inputs are
//! short forms of files. A target builds the file, computes correct checksums and passes it to the engine, so that the
//! decoder after the checksum check is reached. The program `fuzz` of this crate runs the targets.

pub mod bytes;
pub mod manifest;
pub mod mutate;
pub mod seal;
pub mod base;
pub mod targets;
pub mod corpus;
