//! Fuzzing of everything that reads bytes from disk or from C.

pub mod bytes;
pub mod manifest;
pub mod base;
