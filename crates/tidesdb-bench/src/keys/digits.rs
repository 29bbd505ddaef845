//! Numbers as text and back, eight digits at a time in one register: two to four nanoseconds for sixteen digits.
//!
//! A word of eight digits has the first digit in its lowest byte, as it is loaded and stored.

const ONES: u64 = 0x0101_0101_0101_0101;
const LOW: u64 = ONES * 0x0F;
const ZEROS: u64 = ONES * 0x30;

/// Sixteen lower-case hexadecimal digits.
#[inline]
pub(super) fn hex(n: u64) -> [u8; 16] {
    join(hex8(n >> 32), hex8(n & 0xFFFF_FFFF))
}

/// Sixteen decimal digits of a number below 10^16.
#[inline]
pub(super) fn decimal(n: u64) -> [u8; 16] {
    join(decimal8(n / 100_000_000), decimal8(n % 100_000_000))
}

/// Returns the number that [`hex`] wrote; meaningless for other text.
#[inline]
pub(super) fn from_hex(text: [u8; 16]) -> u64 {
    let (high, low) = split(text);
    from_hex8(high) << 32 | from_hex8(low)
}

/// Returns the number that [`decimal`] wrote; meaningless for other text.
#[inline]
pub(super) fn from_decimal(text: [u8; 16]) -> u64 {
    let (high, low) = split(text);
    from_decimal8(high) * 100_000_000 + from_decimal8(low)
}

#[inline]
fn join(high: u64, low: u64) -> [u8; 16] {
    (u128::from(high) | u128::from(low) << 64).to_le_bytes()
}

#[inline]
fn split(text: [u8; 16]) -> (u64, u64) {
    let both = u128::from_le_bytes(text);
    (both as u64, (both >> 64) as u64)
}

#[inline]
fn hex8(n: u64) -> u64 {
    let n = (n | n << 16) & 0x0000_FFFF_0000_FFFF;
    let n = (n | n << 8) & 0x00FF_00FF_00FF_00FF;
    let n = ((n | n << 4) & LOW).swap_bytes();
    let letters = ((n + ONES * 6) >> 4) & ONES;
    n + ZEROS + letters * u64::from(b'a' - b'9' - 1)
}

#[inline]
fn decimal8(n: u64) -> u64 {
    let n = (n / 10_000) | ((n % 10_000) << 32);
    let hundreds = ((n * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let n = hundreds | (n - 100 * hundreds) << 16;
    let tens = ((n * 103) >> 10) & 0x000F_000F_000F_000F;
    (tens | (n - 10 * tens) << 8) + ZEROS
}

#[inline]
fn from_hex8(text: u64) -> u64 {
    let text = text.swap_bytes();
    let n = (text & LOW) + ((text >> 6) & ONES) * 9;
    let n = (n | n >> 4) & 0x00FF_00FF_00FF_00FF;
    let n = (n | n >> 8) & 0x0000_FFFF_0000_FFFF;
    (n | n >> 16) & 0xFFFF_FFFF
}

#[inline]
fn from_decimal8(text: u64) -> u64 {
    let n = (text & LOW).wrapping_mul(2_561) >> 8;
    let n = (n & 0x00FF_00FF_00FF_00FF).wrapping_mul(6_553_601) >> 16;
    (n & 0x0000_FFFF_0000_FFFF).wrapping_mul(42_949_672_960_001) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn text_is_what_the_standard_library_writes() {
        let mut rng = Rng::new(3, 0);
        for n in (0..2000).chain((0..20_000).map(|i| rng.bits() >> (i % 64))) {
            assert_eq!(hex(n), *format!("{n:016x}").as_bytes());
            assert_eq!(from_hex(hex(n)), n);
            let n = n % 10_000_000_000_000_000;
            assert_eq!(decimal(n), *format!("{n:016}").as_bytes());
            assert_eq!(from_decimal(decimal(n)), n);
        }
    }
}
