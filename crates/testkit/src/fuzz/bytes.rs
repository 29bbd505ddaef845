//! Little-endian numbers in byte slices.

/// Returns the number at `at`.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Returns the number at `at`.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Writes `part` at `at`; ignores a part that does not fit.
pub fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(part) {
        *to = *from;
    }
}
