//! Values of 4 KiB with keys of 256 bytes, half of them compressible and incompressible: written in batches of 1000 by
//! eight threads, overwritten, read in order from the device, got at random and read in order from the page cache.
//!
//! The scale multiplies keys, memtable and cache, so the tree keeps its shape.

use crate::keys::Pattern::Random;
use crate::spec::Spec;
use crate::spec::Workload::{self, Iterate, Overwrite, Read, Write};
use crate::values::Filling;

/// Name of the suite.
pub const NAME: &str = "values";

/// Rows with values of which half compresses away.
pub const HALF: &str = "half";
/// Rows with values that do not compress.
pub const NONE: &str = "none";

const KEYS: u64 = 500_000;
const THREADS: usize = 8;

pub(super) fn rows() -> Vec<Spec> {
    let all = [(HALF, Filling::Percent(50)), (NONE, Filling::Percent(0))];
    all.into_iter().flat_map(|(name, filling)| stages(name, filling)).collect()
}

/// The stages over one database.
fn stages(name: &str, filling: Filling) -> [Spec; 4] {
    let row = |stage: &str, workload: Workload, version| Spec {
        name: format!("values_{name}_{stage}"),
        workload,
        database: format!("values_{name}"),
        watched: true,
        ops: KEYS,
        keys: KEYS,
        threads: THREADS,
        batch: 1000,
        key_bytes: 256,
        value_bytes: 4096,
        filling,
        pattern: Random,
        version,
        ..Spec::default()
    };
    [
        row("write", Write, 0),
        row("overwrite", Overwrite, 0),
        row("scan", Iterate, 1),
        // Not watched: it reads what the scan left in the page cache, and ends with a scan of all rows from there.
        Spec { watched: false, batch: 1, ..row("get", Read, 1) },
    ]
}
