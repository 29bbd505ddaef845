//! The symbols, by subject; `include/tidesdb/db.h` says what each does.
//!
//! Every function checks all its pointers before it does anything, does its work through `state`, and leaves what it should write
//! untouched if it fails.
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
