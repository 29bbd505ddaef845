//! The rows that instructions are counted over.

/// How many there are; their keys are of the even numbers.
pub(crate) const KEYS: u64 = 50_000;

/// A number without a pattern.
pub(crate) fn scattered(i: u64) -> u64 {
    i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20
}

/// 16 bytes.
pub(crate) fn key(i: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    let mut rest = i;
    for digit in key[4..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// 100 bytes of which half compress.
pub(crate) fn value(i: u64) -> [u8; 100] {
    let mut value = [b'v'; 100];
    let mut x = i | 1;
    for byte in &mut value[..50] {
        x = x.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        *byte = (x >> 56) as u8;
    }
    value
}
