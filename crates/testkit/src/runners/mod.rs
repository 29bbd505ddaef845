//! The runners. Each finds cases that nobody thought of, reports what breaks a promise, and prints the command that shows it again.

mod beside;
mod crash;
mod descriptors;
mod families;
mod faults;
mod fuzz;
mod isolation;
mod kill;
mod latency;
mod memory;
mod metamorphic;
mod model;
mod mounts;
mod reopen;
mod sectors;
mod sim;
mod sweep;
mod tmpfs;

use std::process::ExitCode;

/// A runner: whether it found nothing.
pub(crate) type Runner = fn() -> ExitCode;

/// The runners by name.
pub(crate) const ALL: &[(&str, Runner)] = &[
    ("beside", beside::runner),
    ("crash", crash::runner),
    ("descriptors", descriptors::runner),
    ("families", families::runner),
    ("faults", faults::runner),
    ("fuzz", fuzz::runner),
    ("isolation", isolation::runner),
    ("kill", kill::runner),
    ("latency", latency::runner),
    ("memory", memory::runner),
    ("metamorphic", metamorphic::runner),
    ("model", model::runner),
    ("mounts", mounts::runner),
    ("reopen", reopen::runner),
    ("sectors", sectors::runner),
    ("sim", sim::runner),
    ("sweep", sweep::runner),
    ("tmpfs", tmpfs::runner),
];
