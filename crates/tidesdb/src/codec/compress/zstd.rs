//! Zstandard.

use std::io::Read;

use tidesdb_sync::Kept;
use zstd::bulk::Decompressor;

/// This build can encode and decode Zstandard.
pub(super) const BUILT_IN: bool = true;

/// Returns how long the compressed form of `len` bytes can be; 0 if Zstandard does not accept so many.
pub(super) fn bound(len: usize) -> usize {
    zstd::zstd_safe::compress_bound(len)
}

/// Compresses `raw` into `room` and returns the length.
pub(super) fn compress(raw: &[u8], room: &mut [u8], level: i32) -> Option<usize> {
    zstd::bulk::compress_to_buffer(raw, room, level).ok()
}

thread_local! {
    /// One decompression context per thread, because creating one costs more than decoding a block.
    static CONTEXT: Kept<Decompressor<'static>> = Kept::new();
}

/// Decompresses `bytes` into `out` and returns the length.
pub(super) fn decompress(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut context = match Kept::take(&CONTEXT) {
        Some(context) => context,
        None => Box::new(Decompressor::new().ok()?),
    };
    let decompressed = context.decompress_to_buffer(bytes, out).ok();
    Kept::put(&CONTEXT, context);
    decompressed
}

/// Opens a stream over `bytes` that accepts exactly one frame, as [`decompress`] does. It ends before bytes that follow the frame.
pub(super) fn stream(bytes: &[u8]) -> Option<Stream<'_>> {
    zstd::stream::read::Decoder::with_buffer(bytes).ok().map(|stream| Stream(stream.single_frame()))
}

/// A stream of decompressed bytes.
pub(super) struct Stream<'a>(zstd::stream::read::Decoder<'static, &'a [u8]>);

impl Stream<'_> {
    /// Decompresses the next bytes into `out` and returns how many; 0 at the end of the frame. `None` if the frame is damaged.
    pub(super) fn read(&mut self, out: &mut [u8]) -> Option<usize> {
        self.0.read(out).ok()
    }

    /// Returns whether no byte follows the frame.
    pub(super) fn ends(self) -> bool {
        self.0.finish().is_empty()
    }
}
