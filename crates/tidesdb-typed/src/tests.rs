//! Tests of tables with keys, values and indexes, through the public interface.

mod expiry;
mod keys;
mod names;
mod schemas;
mod tables;
#[cfg(feature = "json")]
mod values;
