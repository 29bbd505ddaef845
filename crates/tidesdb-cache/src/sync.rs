//! The atomics and reference counts of the slot protocol: the standard ones, or loom's in a model.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
};

pub(crate) use std::sync::Arc as PlainArc;

/// Atomics of hints: any value is correct, a wrong one only costs hits. Models do not explore them.
pub(crate) use std::sync::atomic::{AtomicU64 as HintU64, AtomicUsize as HintUsize};
