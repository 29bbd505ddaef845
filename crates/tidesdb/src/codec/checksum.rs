//! Checksums bound to a position: CRC32C over the bytes, seeded with the file's salt and the offset. A block copied to
//! another offset or another file does not verify. CRC32C detects every error of up to three bits and every burst of up
//! to 32 bits in blocks of our size (Castagnoli et al., 1993).

use xxhash_rust::xxh3::xxh3_64;

/// Random bytes drawn once per file and stored in its header or footer.
pub type Salt = [u8; 16];

/// Returns the CRC32C of `parts`, bound to the file's `salt` and the `offset` of the block.
#[inline]
pub fn bound_crc(salt: &Salt, offset: u64, parts: &[&[u8]]) -> u32 {
    let mut seed = [0u8; 24];
    seed[..16].copy_from_slice(salt);
    seed[16..].copy_from_slice(&offset.to_le_bytes());
    parts.iter().fold(tidesdb_io::crc32c(0, &seed), |crc, part| tidesdb_io::crc32c(crc, part))
}

/// Returns the hash of a key for filters: XXH3 with seed 0. Filters on disk depend on it.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}
