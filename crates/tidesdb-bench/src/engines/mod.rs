//! The engines, one file each, and their names.

mod null;
mod tidesdb;

use crate::engine::{Config, Engine, Open, Result};

/// An engine that can be benchmarked.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Description.
    pub about: &'static str,
    /// Opens it.
    pub open: Open,
}

/// All engines of this build.
pub const ALL: [Entry; 2] = [
    Entry { name: "tidesdb", about: "this engine", open: tidesdb::open },
    Entry {
        name: "null",
        about: "stores nothing and answers from the generator: the cost of the benchmark itself",
        open: null::open,
    },
];

/// Returns the engine with that name; the part after a colon is its argument.
pub fn named(name: &str) -> Option<&'static Entry> {
    let name = name.split(':').next().unwrap_or_default();
    ALL.iter().find(|entry| entry.name == name)
}

/// Opens the engine that the configuration names.
///
/// # Errors
/// If there is no engine with that name, or those of the engine.
pub fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let entry =
        named(&config.engine).ok_or_else(|| format!("no engine {:?} in this build", config.engine))?;
    (entry.open)(config)
}
