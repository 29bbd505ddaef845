//! Variable-length integers: seven bits a byte, low bits first, high bit set on all but the last (LEB128).

/// Length in bytes of the longest encoding of a `u64`.
pub const VARINT_BYTES_MAX: usize = 10;

/// Bytes that can be appended to.
pub trait Sink {
    /// Makes room for `more` bytes.
    fn reserve(&mut self, more: usize);
    /// Appends a byte.
    fn push(&mut self, byte: u8);
    /// Appends `bytes`.
    fn extend_from_slice(&mut self, bytes: &[u8]);
}

macro_rules! sink {
    ($($kind:ty),*) => {
        $(impl Sink for $kind {
            #[inline]
            fn reserve(&mut self, more: usize) {
                <$kind>::reserve(self, more);
            }

            #[inline]
            fn push(&mut self, byte: u8) {
                <$kind>::push(self, byte);
            }

            #[inline]
            fn extend_from_slice(&mut self, bytes: &[u8]) {
                <$kind>::extend_from_slice(self, bytes);
            }
        })*
    };
}

sink!(Vec<u8>, tidesdb_io::Buffer);

/// Appends `n`.
#[inline]
pub fn put_varint(out: &mut impl Sink, mut n: u64) {
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
