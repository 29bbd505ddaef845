//! The rows used by the counted operations.

/// Number of rows; their keys are even numbers.
pub(crate) const KEYS: u64 = 50_000;

/// Returns a pseudo-random number.
pub(crate) fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

/// Returns a key of 16 bytes.
pub(crate) fn key(i: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    let mut rest = i;
    for digit in key[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// Returns a value of 100 bytes that is half compressible.
pub(crate) fn value(i: u64) -> [u8; 100] {
    let mut value = [b'v'; 100];
    let mut x = i | 1;
    for byte in &mut value[..50] {
        x = x.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        *byte = (x >> 56) as u8;
    }
    value
}
