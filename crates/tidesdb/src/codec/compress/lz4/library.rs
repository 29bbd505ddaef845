//! LZ4 through the C library.

/// Compresses `raw` into `room` and returns the length.
pub(in super::super) fn compress(raw: &[u8], room: &mut [u8], acceleration: i32) -> Option<usize> {
    lzzzz::lz4::compress(raw, room, acceleration).ok()
}

/// Decompresses `bytes` into `out` and returns the length.
pub(in super::super) fn decompress(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    lzzzz::lz4::decompress(bytes, out).ok()
}

/// Decompresses at least the first `want` bytes of `bytes` into `out`, which has room for all, and returns how many.
pub(in super::super) fn decompress_prefix(bytes: &[u8], out: &mut [u8], want: usize) -> Option<usize> {
    let raw = out.len();
    lzzzz::lz4::decompress_partial(bytes, &mut out[..want], raw).ok()
}
