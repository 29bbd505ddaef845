//! LZ4, through the C library that defines it: on text its decoder is about twice as fast as those in Rust (docs/weight.md).

/// This build can encode and decode LZ4.
pub(super) const BUILT_IN: bool = true;

/// Returns how long the compressed form of `len` bytes can be; 0 if LZ4 does not accept so many.
pub(super) fn bound(len: usize) -> usize {
    lzzzz::lz4::max_compressed_size(len)
}

/// Compresses `raw` into `room` and returns the length.
pub(super) fn compress(raw: &[u8], room: &mut [u8], acceleration: i32) -> Option<usize> {
    lzzzz::lz4::compress(raw, room, acceleration).ok()
}

/// Decompresses `bytes` into `out` and returns the length.
pub(super) fn decompress(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    lzzzz::lz4::decompress(bytes, out).ok()
}

/// Decompresses a prefix of `bytes`, which hold `raw` bytes, into `out` and returns the length.
pub(super) fn decompress_prefix(bytes: &[u8], out: &mut [u8], raw: usize) -> Option<usize> {
    lzzzz::lz4::decompress_partial(bytes, out, raw).ok()
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
        len = len.checked_add(count(token & 15, &mut rest)?)?.checked_add(4)?;
    }
}

/// Reads a four-bit count, including its extension bytes if all four bits are set.
fn count(nibble: usize, rest: &mut &[u8]) -> Option<usize> {
    let mut n = nibble;
    if nibble == 15 {
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
