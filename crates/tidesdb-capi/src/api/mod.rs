//! The exported symbols, by subject; `include/tidesdb/db.h` documents each of them.
//!
//! Every function checks all its pointers before it does anything, does its work through `state`, and leaves
//! its out parameters unchanged if it fails.
#![expect(missing_docs, reason = "the header documents the symbols")]

pub mod lifecycle;
pub mod config;
pub mod comparators;
pub mod families;
pub mod transactions;
pub mod iterators;
pub mod maintenance;
pub mod statistics;
pub mod objstore;
pub mod extended;
