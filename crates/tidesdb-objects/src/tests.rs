//! Tests of the bridge, alone and with a database.

mod conditions;
mod directory;
mod features;
#[cfg(feature = "s3")]
mod s3;
