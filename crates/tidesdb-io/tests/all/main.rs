//! Tests of the disks through their public interface. One program, because each one costs a build and a link.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod advice;
mod conformance;
#[cfg(target_os = "linux")]
mod interrupted;
mod real_disk;
#[cfg(unix)]
mod real_disk_unix;
mod sim_faults;
mod sim_habits;
mod sim_images;
mod sim_model;
mod sim_toy;

use std::io;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Dir, Disk, RealDisk};

/// Opens a folder of the real disk.
fn open(path: &Path) -> Arc<dyn Dir> {
    RealDisk::new().open_dir(path, true).unwrap()
}

/// Returns the number of the error.
fn raw<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}
