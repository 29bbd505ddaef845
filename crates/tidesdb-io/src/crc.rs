//! CRC32C (Castagnoli) of bytes on disk.
//!
//! Most checksums of the engine cover short pieces: a record of the log, a pointer, a header. For these the crate `crc32c` spends
//! more on splitting the piece into aligned parts than on its bytes, so they are computed here, eight bytes per instruction.

/// Longer pieces are left to the crate `crc32c`, which computes three parts of a piece in parallel.
#[cfg(target_arch = "x86_64")]
const SHORT_MAX: usize = 256;

/// Returns the CRC32C of some bytes followed by `bytes`, where `crc` is that of the former; 0 if there are none.
#[inline]
pub fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        return unsafe { short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(crc: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let crc = words.iter().fold(u64::from(!crc), |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    !rest.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    /// One bit at a time, by the definition.
    fn slow(crc: u32, bytes: &[u8]) -> u32 {
        let bit = |crc: u32, _| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x82F6_3B78 };
        !bytes.iter().fold(!crc, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
    }

    #[test]
    fn pieces_of_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..1200_u32).map(|i| ((i * 167) >> 3) as u8).collect();
        assert_eq!(crc32c(0, b"123456789"), 0xE306_9283, "the check value of the definition");
        for from in 0..9 {
            for len in (0..300).chain([511, 768, 1024, 1100]) {
                let piece = &bytes[from..from + len];
                assert_eq!(crc32c(0, piece), slow(0, piece), "{len} bytes from {from}");
                let (front, back) = piece.split_at(len / 3);
                assert_eq!(
                    crc32c(crc32c(0, front), back),
                    slow(0, piece),
                    "{len} bytes from {from}, in two parts"
                );
            }
        }
    }
}
