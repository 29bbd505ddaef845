//! [`CacheKey`]: identifies a cached block, and its hash.

/// The piece of a file that a cached value was made from. A database never reuses the number of a file.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct CacheKey {
    /// Number of the file.
    pub file: u64,
    /// Number of the database, among those that share the cache.
    pub database: u16,
    /// Index of the block in the file.
    pub block: u32,
    /// Part of the block (key section, value frame, ...).
    pub part: u8,
}

impl CacheKey {
    /// Returns 64 well mixed bits. Keys are not chosen by an adversary, so there is no seed. Distinct keys may
    /// have equal hashes, which costs a comparison.
    #[inline]
    pub(crate) fn hash(self) -> u64 {
        // Odd constants with balanced bits: the golden ratio and the square root of two, as fractions of 2^64.
        const FILE: u64 = 0x9E37_79B9_7F4A_7C15;
        const MIX: u64 = 0x6A09_E667_F3BC_C909;
        let within = u64::from(self.database) << 40 | u64::from(self.block) << 8 | u64::from(self.part);
        let joined = self.file.wrapping_mul(FILE) ^ within;
        let once = folded_product(joined ^ MIX, FILE);
        folded_product(once, MIX)
    }
}

/// Combines the halves of the 128-bit product: every bit of `a` affects the whole word.
#[inline]
fn folded_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}
