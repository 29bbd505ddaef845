//! Randomness: file salts and hash seeds.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::system;

/// A source of random bytes.
pub trait Entropy: Send + Sync + Debug {
    /// Returns a random 64-bit number.
    fn next_u64(&self) -> u64;

    /// Returns random bytes for a file's salt.
    fn salt(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.next_u64().to_le_bytes());
        out[8..].copy_from_slice(&self.next_u64().to_le_bytes());
        out
    }
}

/// The random generator of the operating system.
#[derive(Debug, Default)]
pub struct OsEntropy(());

impl OsEntropy {
    /// Creates a handle to the system's generator.
    pub fn new() -> Self {
        Self(())
    }
}

impl Entropy for OsEntropy {
    fn next_u64(&self) -> u64 {
        let mut out = [0u8; 8];
        // All supported systems have random bytes. If the call fails, the fallback uses no clock and keeps salts
        // distinct within the process, which is all that correctness needs.
        if !system::random(&mut out) {
            static FALLBACK: AtomicU64 = AtomicU64::new(0x9E37_79B9_7F4A_7C15);
            return mix(
                FALLBACK.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed) ^ u64::from(std::process::id())
            );
        }
        u64::from_le_bytes(out)
    }
}

/// A reproducible generator (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug)]
pub struct SeededEntropy(AtomicU64);

impl SeededEntropy {
    /// Creates a generator that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        mix(self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst))
    }
}

pub(crate) fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
