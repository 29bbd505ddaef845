//! Snappy.

/// This build can encode and decode Snappy.
pub(super) const BUILT_IN: bool = true;

/// Returns how long the compressed form of `len` bytes can be; 0 if Snappy does not accept so many.
pub(super) fn bound(len: usize) -> usize {
    snap::raw::max_compress_len(len)
}

/// Compresses `raw` into `room` and returns the length.
pub(super) fn compress(raw: &[u8], room: &mut [u8], _level: i32) -> Option<usize> {
    snap::raw::Encoder::new().compress(raw, room).ok()
}

/// Decompresses `bytes`, if they state the length of `out`, and returns the length.
pub(super) fn decompress(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    match snap::raw::decompress_len(bytes) {
        Ok(n) if n == out.len() => snap::raw::Decoder::new().decompress(bytes, out).ok(),
        _ => None,
    }
}

/// Returns the raw length of a Snappy stream if its tags are well-formed, without decoding it.
pub(super) fn len(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    while rest.split_off_first()? & 0x80 != 0 {}
    let mut len = 0usize;
    while let Some(tag) = rest.split_off_first() {
        let (n, skip) = match tag & 3 {
            0 if *tag < 240 => (usize::from(tag >> 2) + 1, None),
            0 => {
                let more = usize::from(tag >> 2) - 59;
                let field = rest.split_off(..more)?;
                let n = field.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b));
                (n.checked_add(1)?, None)
            }
            1 => (usize::from(tag >> 2 & 7) + 4, Some(1)),
            2 => (usize::from(tag >> 2) + 1, Some(2)),
            _ => (usize::from(tag >> 2) + 1, Some(4)),
        };
        rest.split_off(..skip.unwrap_or(n))?;
        len = len.checked_add(n)?;
    }
    Some(len)
}
