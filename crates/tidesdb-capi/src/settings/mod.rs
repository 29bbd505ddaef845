//! The settings of a family: what C says, what the engine makes of it, and its form as text.
//!
//! Some fields have no meaning for this engine (skip lists, B+trees, object stores, the shape of levels). They are accepted, kept and
//! given back.

mod fields;
mod ini;
mod options;

pub(crate) use ini::{from_text, load, save, to_text};
pub(crate) use options::{
    correct_order, engine_name, engine_order, of_engine, options, sync_mode, unified_sync_mode,
};
