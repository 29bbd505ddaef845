//! Tests of the memtable through its public interface. `loom.rs` has the models.
#![cfg(not(loom))]

mod maps;

mod concurrent;
mod model;
