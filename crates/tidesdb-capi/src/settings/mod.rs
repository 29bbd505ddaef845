//! The settings of a family: C's structure, its conversion for the engine, and its form as text.
//!
//! Some fields have no effect in this engine (skip lists, B+trees, block indexes, object stores). They are accepted, stored and
//! returned; `docs/reference/c-api.md` lists them.

mod fields;
mod ini;
mod options;

pub(crate) use ini::{from_text, load, save, to_text};
pub(crate) use options::{
    c_name, correct_order, engine_name, engine_order, of_engine, options, sync_mode, unified_bytes,
    unified_sync_mode,
};
