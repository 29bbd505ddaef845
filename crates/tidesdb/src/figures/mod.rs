//! The file `FIGURES`: what the process that writes says of itself, for other processes.
//!
//! ```text
//! slots       the figures of now, whole, in two places that are written in turn
//! history     figures of each second of the last hour, and of each minute of the last day
//! ```
//!
//! Nothing is synced: after a crash of the machine there may be nothing that is whole. The engine reads the file only to go on after what
//! the last writer left. `docs/formats/figures.md` has the layout.

mod slots;
mod history;
#[cfg(test)]
mod tests;

use std::io;

use tidesdb_io::File;

use crate::files::FIGURES;
use crate::{Error, Result};

pub use history::{History, Pace, Sample, read_history};
pub use slots::{CONTENT_BYTES_MAX, FIGURES_FORMAT, FiguresFile, newest};

/// The last millisecond of the year 9999, since the UNIX epoch: times behind it are taken for it.
pub const MILLIS_MAX: u64 = 253_402_300_799_999;

/// Reads `len` bytes at `at`, or those that there are.
fn read(file: &dyn File, at: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0;
    while filled < len {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("read", FIGURES, e)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
