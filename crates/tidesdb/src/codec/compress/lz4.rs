//! LZ4 blocks, as the format's own description defines them. Written here in safe Rust; with the feature `lz4-c` the C library encodes
//! and decodes. Both read what the other writes. docs/reference/weight.md compares their speed.

#[cfg(any(not(feature = "lz4-c"), test))]
mod decode;
#[cfg(any(not(feature = "lz4-c"), test))]
mod encode;
#[cfg(feature = "lz4-c")]
mod library;
#[cfg(test)]
mod tests;

#[cfg(feature = "lz4-c")]
pub(super) use library::{compress, decompress, decompress_prefix};
#[cfg(not(feature = "lz4-c"))]
pub(super) use {
    decode::{decompress, decompress_prefix},
    encode::compress,
};

/// This build can encode and decode LZ4.
pub(super) const BUILT_IN: bool = true;

/// The shortest match.
const MATCH_MIN: usize = 4;
/// A half of a token with this value is followed by more bytes of the count.
const COUNT_GOES_ON: usize = 15;
/// The longest input that the format's own implementation accepts.
const RAW_MAX: usize = 0x7E00_0000;

/// Returns how long the compressed form of `len` bytes can be; 0 if LZ4 does not accept so many.
pub(super) fn bound(len: usize) -> usize {
    if len > RAW_MAX { 0 } else { len + len / 255 + 16 }
}

/// Returns the raw length of an LZ4 stream if its sequences are well-formed, without decoding it.
pub(super) fn len(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let mut len = 0usize;
    loop {
        let token = usize::from(*rest.split_off_first()?);
        let literals = count(token >> 4, &mut rest)?;
        rest.split_off(..literals)?;
        len = len.checked_add(literals)?;
        if rest.is_empty() {
            return Some(len);
        }
        rest.split_off(..2)?;
        len = len.checked_add(count(token & 15, &mut rest)?)?.checked_add(MATCH_MIN)?;
    }
}

/// Reads a four-bit count, including its extension bytes if all four bits are set.
#[inline]
fn count(nibble: usize, rest: &mut &[u8]) -> Option<usize> {
    let mut n = nibble;
    if nibble == COUNT_GOES_ON {
        loop {
            let more = *rest.split_off_first()?;
            n = n.checked_add(usize::from(more))?;
            if more < 255 {
                break;
            }
        }
    }
    Some(n)
}
