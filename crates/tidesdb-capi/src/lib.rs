//! TidesDB as a C library: the symbols, structures and behaviour of libtidesdb 9.3, over the Rust engine.
//!
//! Programs and bindings built against that library load this one instead. The headers in `include/tidesdb/`
//! and `docs/reference/c-api.md` document it; this crate has no Rust API.
//!
//! ```text
//!   C caller -> api: one function per symbol, a few lines each
//!                 `answer` stops panics and keeps the message of an error   failure.rs
//!                 `In`, `Out`: the only places that follow a C pointer     pointer.rs
//!                 `Table`: finds what a handle means, or refuses it        handle/
//!               state: a database, family, transaction, iterator           state/
//!               the engine
//! ```
//!
//! A handle is not an address: it holds a kind, the index of a slot and the slot's generation. So a handle that
//! is stale, foreign or of another kind is an error, not a wild pointer. `unsafe` is only in `pointer.rs`,
//! `memory.rs`, `callback.rs`, `library.rs`, `connector.rs`, `stream.rs`, `log.rs` and `handle/slot.rs`.
//!
//! Four symbols are data: `tidesdb_allocator` and `tidesdb_initialized` in `memory.rs`, `_tidesdb_log_level`
//! and `_tidesdb_log_file` in `stream.rs`. A program's linker may move them into the program's own data (copy
//! relocation). So each is a static under its own name, and every access goes through the symbol.
#![allow(unsafe_code, reason = "the C interface takes and gives raw pointers")]

// Structure layouts and constants of the C interface.
pub mod abi;
// Errors; calls that others wait for; memory for callers; pointers and functions from callers; handles; the operating system.
mod failure;
mod gate;
mod memory;
mod pointer;
mod callback;
mod library;
mod connector;
mod system;
mod handle;
mod stream;
mod log;
// Settings; the objects behind handles.
mod settings;
mod state;
// The exported symbols.
pub mod api;
// Fuzz targets with hostile arguments.
#[cfg(feature = "fuzzing")]
pub mod fuzz;
