//! Helpers for these tests: a `VlogSet` on a simulated disk, and reading and writing files as bytes.

mod append;
mod chunks;
mod crash;
mod hostile;
mod loads;
mod parallel;
mod work;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidesdb_io::sim::{self, SimDisk};
use tidesdb_io::{Access, Dir, Env, FileExt};

use super::{VlogPointer, VlogSet};
use crate::codec::Compression;
use crate::types::{FamilyId, VlogId};

const FAMILY: FamilyId = FamilyId(3);
const COMPRESSIONS: [Compression; 5] =
    [Compression::None, Compression::Snappy, Compression::Lz4, Compression::Zstd, Compression::Lz4Fast];

fn directory(env: &Env) -> Arc<dyn Dir> {
    env.disk.open_dir(Path::new("/db"), true).unwrap()
}

/// Creates a set whose file numbers start at `first_id`.
fn set(env: &Env, first_id: u32, file_bytes_max: u64) -> VlogSet {
    let next = AtomicU32::new(first_id);
    VlogSet::new(directory(env), Arc::clone(&env.entropy), FAMILY, file_bytes_max, move || {
        Ok(VlogId(next.fetch_add(1, Ordering::SeqCst)))
    })
}

fn world() -> (Env, Arc<SimDisk>) {
    let (env, disk, _clock) = sim::env(1);
    (env, disk)
}

fn read_file(env: &Env, name: &str) -> Vec<u8> {
    let file = directory(env).open(name, Access::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn write_file(env: &Env, name: &str, bytes: &[u8]) {
    let dir = directory(env);
    let _ = dir.unlink(name);
    dir.create_new(name, 0).unwrap().write_all_at(bytes, 0).unwrap();
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut step = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 32) as u8
    };
    (0..len).map(|_| step()).collect()
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    format!("value {seed} of some kind; ").bytes().cycle().take(len).collect()
}
