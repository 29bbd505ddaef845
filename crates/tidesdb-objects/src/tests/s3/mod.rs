//! Against a server on this machine, which `cargo xtask s3` starts: all that a directory does, and what only a network can do wrong.

mod calls;
mod engine;
mod faults;
mod kills;
mod proxy;
mod secrets;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb::ObjectStore;

use crate::{S3Options, S3Store, s3};

/// The bucket that the command makes.
const BUCKET: &str = "tests";

/// Returns a variable that the command sets.
fn given(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: `cargo xtask s3` runs these tests"))
}

/// A prefix that no other test uses.
fn new_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("at/{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The options for a server at `endpoint`.
fn options(endpoint: &str, prefix: &str) -> S3Options {
    options_in(BUCKET, endpoint, prefix)
}

fn options_in(bucket: &str, endpoint: &str, prefix: &str) -> S3Options {
    let (id, secret) = (given("TIDESDB_S3_KEY"), given("TIDESDB_S3_SECRET"));
    S3Options::new(bucket)
        .prefix(prefix)
        .endpoint(endpoint)
        .allow_http(true)
        .keys(id, secret, None)
        .timeout(Duration::from_secs(10))
}

/// A store with no objects, without anything between.
pub(super) fn new_store() -> S3Store {
    s3(options(&given("TIDESDB_S3_ENDPOINT"), &new_prefix())).unwrap()
}

fn bytes_of(store: &dyn ObjectStore, name: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    store.get(name, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}

/// Bytes that no two places have in common.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
