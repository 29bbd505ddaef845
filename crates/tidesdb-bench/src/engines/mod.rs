//! The engines of this build, one file each, and the list of their names.

mod null;
mod tidesdb;

use crate::engine::{Config, Engine, Open, Result};

/// An engine that can be benchmarked.
pub struct Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Opens it.
    pub open: Open,
}

/// All engines of this build.
pub const ALL: [Entry; 2] = [
    Entry { name: "tidesdb", about: "this engine", open: tidesdb::open },
    Entry {
        name: "null",
        about: "stores nothing and answers from the generator: measures the cost of the benchmark itself",
        open: null::open,
    },
];

/// Returns the engine of that name; text after a colon is its argument and is ignored here.
pub fn named(name: &str) -> Option<&'static Entry> {
    let name = name.split(':').next().unwrap_or_default();
    ALL.iter().find(|entry| entry.name == name)
}

/// Opens the engine that the configuration names.
///
/// # Errors
/// Returns an error if no engine has that name, or the engine's own error.
pub fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let entry =
        named(&config.engine).ok_or_else(|| format!("no engine {:?} in this build", config.engine))?;
    (entry.open)(config)
}
