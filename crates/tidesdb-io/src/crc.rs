//! CRC32C (Castagnoli) of bytes on disk.
//!
//! Processors with an instruction for it take eight bytes per step, and three steps at the same time, since each takes three cycles. Others
//! take eight bytes per step from tables.

use std::cell::Cell;

/// The polynomial, with the lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// Length of each of three parts of a piece that are computed at the same time.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const PART: usize = 256;

/// The checksum of each byte that `n` zero bytes follow, for eight `n`.
static BYTES: [[u32; 256]; 8] = bytes();
/// What each byte of a checksum becomes when [`PART`] zero bytes follow, from the lowest byte on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static SHIFTED: [[u32; 256]; 4] = shifted_by(zeros()[1][PART / 256]);

/// The power of the polynomial's variable that stands for so many zero bytes: the digits of their number in base 256, from the lowest on.
static ZEROS: [[u32; 256]; 8] = zeros();

thread_local! {
    static CHECKSUMMED: Cell<u64> = const { Cell::new(0) };
}

/// Returns how many bytes this thread has passed to [`crc32c`]; 0 in a build without debug assertions. Tests compare the number with the
/// length of a file, to see that no byte is checksummed again and again.
pub fn checksummed_bytes() -> u64 {
    CHECKSUMMED.get()
}

/// Returns the CRC32C of some bytes followed by `len` others, where `crc` is that of the former and `next` that of the latter. Takes the
/// same time for any length.
///
/// ```
/// use tidesdb_io::{crc32c, crc32c_joined};
///
/// let (first, second) = (b"the tide ", b"rises");
/// let joined = crc32c_joined(crc32c(0, first), crc32c(0, second), second.len() as u64);
/// assert_eq!(joined, crc32c(0, b"the tide rises"));
/// ```
pub fn crc32c_joined(crc: u32, next: u32, len: u64) -> u32 {
    let digits = len.to_le_bytes();
    let powers = ZEROS.iter().zip(digits).filter(|(_, digit)| *digit > 0);
    powers.fold(crc, |crc, (powers, digit)| product(crc, powers[usize::from(digit)])) ^ next
}

/// Returns the CRC32C of some bytes followed by `bytes`, where `crc` is that of the former; 0 if there are none.
#[inline]
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    if cfg!(debug_assertions) {
        CHECKSUMMED.set(CHECKSUMMED.get() + bytes.len() as u64);
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { by_instruction(crc, bytes) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("crc") {
        // SAFETY: the processor has the instructions.
        return unsafe { by_instruction(crc, bytes) };
    }
    by_tables(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    by_steps(
        crc,
        bytes,
        |crc, word| _mm_crc32_u64(crc.into(), word) as u32,
        |crc, byte| _mm_crc32_u8(crc, byte),
    )
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "crc")]
#[allow(
    unused_unsafe,
    reason = "newer compilers need none: the functions are safe where the processor has the instructions"
)]
fn by_instruction(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::aarch64::{__crc32cb, __crc32cd};
    // SAFETY: the processor has the instructions.
    let word = |crc, word| unsafe { __crc32cd(crc, word) };
    // SAFETY: as above.
    let byte = |crc, byte| unsafe { __crc32cb(crc, byte) };
    by_steps(crc, bytes, word, byte)
}

fn by_tables(crc: u32, bytes: &[u8]) -> u32 {
    let byte = |crc: u32, byte: u8| crc >> 8 ^ BYTES[0][usize::from(crc as u8 ^ byte)];
    let word = |crc: u32, word: u64| {
        let word = (word ^ u64::from(crc)).to_le_bytes();
        word.iter().zip(BYTES.iter().rev()).fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let crc = words.iter().fold(!crc, |crc, bytes| word(crc, u64::from_le_bytes(*bytes)));
    !rest.iter().fold(crc, |crc, next| byte(crc, *next))
}

/// Computes the checksum with functions that add eight bytes or one to it.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn by_steps(crc: u32, bytes: &[u8], word: impl Fn(u32, u64) -> u32, byte: impl Fn(u32, u8) -> u32) -> u32 {
    let step = |crc: u32, bytes: &[u8; 8]| word(crc, u64::from_le_bytes(*bytes));
    let mut crc = !crc;
    let (threes, rest) = bytes.as_chunks::<{ 3 * PART }>();
    for three in threes {
        let (first, others) = three.split_at(PART);
        let (second, third) = others.split_at(PART);
        let words = first.as_chunks().0.iter().zip(second.as_chunks().0).zip(third.as_chunks().0);
        let sums = words.fold((crc, 0, 0), |(a, b, c), ((x, y), z)| (step(a, x), step(b, y), step(c, z)));
        crc = shifted(shifted(sums.0) ^ sums.1) ^ sums.2;
    }
    let (words, rest) = rest.as_chunks();
    crc = words.iter().fold(crc, step);
    !rest.iter().fold(crc, |crc, next| byte(crc, *next))
}

/// Returns what `crc`, before its last inversion, becomes when [`PART`] zero bytes follow.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn shifted(crc: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    SHIFTED[0][a] ^ SHIFTED[1][b] ^ SHIFTED[2][c] ^ SHIFTED[3][d]
}

/// Returns the product of two polynomials, modulo [`POLYNOMIAL`]. The lowest power is in the highest bit.
const fn product(mut a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    while a != 0 {
        // The highest bit of `a` is the lowest power that is left.
        sum ^= b & 0u32.wrapping_sub(a >> 31);
        b = b >> 1 ^ POLYNOMIAL & 0u32.wrapping_sub(b & 1);
        a <<= 1;
    }
    sum
}

const fn zeros() -> [[u32; 256]; 8] {
    const ONE: u32 = 1 << 31;
    let mut tables = [[ONE; 256]; 8];
    let (mut step, mut digit) = (ONE >> 8, 0); // one zero byte
    while digit < tables.len() {
        let mut n = 1;
        while n < 256 {
            tables[digit][n] = product(tables[digit][n - 1], step);
            n += 1;
        }
        step = product(tables[digit][255], step);
        digit += 1;
    }
    tables
}

const fn bytes() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut at = 0;
    while at < 8 * 256 {
        let (zeros, value) = (at / 256, at % 256);
        let mut crc = if zeros == 0 { value as u32 } else { tables[zeros - 1][value] };
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 0 { 0 } else { POLYNOMIAL };
            bit += 1;
        }
        tables[zeros][value] = crc;
        at += 1;
    }
    tables
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn shifted_by(power: u32) -> [[u32; 256]; 4] {
    let (mut tables, mut at) = ([[0; 256]; 4], 0);
    while at < 4 * 256 {
        let (byte, value) = (at / 256, at % 256);
        tables[byte][value] = product((value as u32) << (8 * byte), power);
        at += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::{by_tables, crc32c, crc32c_joined};

    /// One bit at a time, by the definition.
    fn slow(crc: u32, bytes: &[u8]) -> u32 {
        let bit = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x82F6_3B78 };
        !bytes.iter().fold(!crc, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
    }

    #[test]
    fn pieces_of_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|i| ((i * 167) >> 3) as u8).collect();
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283, "the check value of the definition");
        for from in 0..9 {
            for len in (0..300).chain([511, 767, 768, 769, 1024, 1536, 2400, 6600, 9990]) {
                let piece = &bytes[from..from + len];
                assert_eq!(crc32c(0, piece), slow(0, piece), "{len} bytes from {from}");
                assert_eq!(by_tables(7, piece), slow(7, piece), "{len} bytes from {from}, by tables");
                let (front, back) = piece.split_at(len / 3);
                assert_eq!(
                    crc32c(crc32c(0, front), back),
                    slow(0, piece),
                    "{len} bytes from {from}, in two parts"
                );
            }
        }
    }

    #[test]
    fn checksums_of_parts_of_every_length_are_joined() {
        let bytes: Vec<u8> = (0..70_000_u32).map(|i| ((i * 167) >> 3) as u8).collect();
        for len in (0..600).chain([4096, 65_535, 65_536, 65_537, 69_990]) {
            let (first, second) = bytes[..len + 9].split_at(9);
            let joined = crc32c_joined(crc32c(0, first), crc32c(0, second), len as u64);
            assert_eq!(joined, crc32c(0, &bytes[..len + 9]), "{len}");
            assert_eq!(crc32c_joined(7, crc32c(0, second), len as u64), crc32c(7, second), "{len}");
        }
        for half in [1 << 20, 1 << 31, 1 << 40] {
            let twice = crc32c_joined(crc32c_joined(1, 0, half), 0, half);
            assert_eq!(twice, crc32c_joined(1, 0, 2 * half), "{half}");
        }
    }
}
