//! TidesDB as a C library: the symbols, structures and behaviour of libtidesdb 9.3, over the Rust engine.
//!
//! Programs and bindings that were built against that library load this one instead. What they may do is said in the headers,
//! `include/tidesdb/`, and in `docs/c-api.md`; this crate has nothing to offer to Rust.
//!
//! ```text
//!   C caller -> api: one function per symbol, a few lines each
//!                 `answer` lets no panic out, keeps the text of an error   failure.rs
//!                 `In`, `Out`: the only places that follow a C pointer     pointer.rs
//!                 `Table`: finds what a handle means, or refuses it        handle/
//!               state: a database, family, transaction, iterator           state/
//!               the engine
//! ```
//!
//! A handle is no address: it holds a kind, the index of a slot and the slot's generation. What is stale, foreign or of another
//! kind is an error, not a wild pointer. `unsafe` is in `pointer.rs`, `memory.rs`, `callback.rs`, `connector.rs`, `system.rs`,
//! `stream.rs`, `log.rs` and `handle/slot.rs` only.
//!
//! Four symbols are data: `tidesdb_allocator` and `tidesdb_initialized` in `memory.rs`, `_tidesdb_log_level` and `_tidesdb_log_file` in
//! `stream.rs`. A program's linker may move them into the program, so each is a static under its own name that is
//! read through the symbol at each use.

// Layouts and numbers of the interface.
pub mod abi;
// What went wrong; memory for callers; pointers and functions from callers; handles; the system.
mod failure;
mod memory;
mod pointer;
mod callback;
mod connector;
mod system;
mod handle;
mod stream;
mod log;
// What is kept of settings; what handles stand for.
mod settings;
mod state;
// The symbols.
pub mod api;
// Calls with hostile arguments.
#[cfg(feature = "fuzzing")]
pub mod fuzz;
