//! Variable-length integers: seven bits a byte, low bits first, high bit set on all but the last (LEB128).

/// Length in bytes of the longest encoding of a `u64`.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `n`.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a length and the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
