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

/// Returns `bytes`, such as a salt, as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hash of a key for filters: XXH3 with seed 0. Filters on disk depend on it.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library hashes longer keys with the vector instructions of the processor. The hashes are those of the C library xxHash 0.8.4.
    #[test]
    fn keys_of_each_length_have_the_hash_of_xxh3() {
        let bytes: Vec<u8> = (0..4000_u32).map(|i| ((i * 167) >> 3) as u8).collect();
        for (len, hash) in [
            (0, 0x2D06_8005_38D3_94C2),
            (1, 0xC44B_DFF4_074E_ECDB),
            (3, 0x8A38_B996_A84F_DBD7),
            (8, 0x833F_4DF0_4C30_85A1),
            (16, 0x2C78_0C57_221C_6BEE),
            (128, 0x0446_E0CB_7668_F019),
            (240, 0x7A23_3226_6671_48FD),
            (241, 0xD5EE_E25D_E80C_78BD),
            (1024, 0x7CBA_FBC4_C05A_4114),
            (1025, 0x9924_2C11_4682_412E),
            (4000, 0x51B2_33FB_065F_545B),
        ] {
            assert_eq!(key_hash(&bytes[..len]), hash, "{len} bytes");
        }
    }
}
