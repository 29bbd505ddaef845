//! Compression of blocks and values. The algorithm is a byte on disk; the raw size is always stored beside the
//! bytes, so that a decoder allocates what the writer had and no hostile length decides.

use std::cell::RefCell;

use crate::{Error, Result};

/// A compression algorithm. The numbers are on disk: never change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Compression {
    /// Bytes as they are.
    None = 0,
    /// Google Snappy.
    Snappy = 1,
    /// LZ4, the default: fast both ways.
    #[default]
    Lz4 = 2,
    /// Zstandard, level 3: smaller, slower.
    Zstd = 3,
    /// LZ4 with acceleration: faster to write, a little larger. Decodes as LZ4.
    Lz4Fast = 4,
}

const ZSTD_LEVEL: i32 = 3;
const LZ4_ACCELERATION: i32 = 8;

impl Compression {
    /// The algorithm with this number.
    pub fn from_u8(n: u8) -> Option<Self> {
        [Self::None, Self::Snappy, Self::Lz4, Self::Zstd, Self::Lz4Fast].into_iter().find(|c| *c as u8 == n)
    }

    /// Its name in options and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Lz4Fast => "lz4-fast",
        }
    }

    /// The algorithm of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::None, Self::Snappy, Self::Lz4, Self::Zstd, Self::Lz4Fast]
            .into_iter()
            .find(|c| c.name() == name)
    }
}

/// Appends the compressed form of `raw` to `out` and returns its length, or leaves `out` as it was and returns
/// `None` when compression is off or does not save at least one byte in eight.
pub fn compress(algorithm: Compression, raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    if algorithm == Compression::None || raw.len() < 16 {
        return None;
    }
    let start = out.len();
    let bound = match algorithm {
        Compression::Snappy => snap::raw::max_compress_len(raw.len()),
        Compression::Zstd => zstd::zstd_safe::compress_bound(raw.len()),
        _ => lzzzz::lz4::max_compressed_size(raw.len()),
    };
    if bound == 0 {
        return None; // longer than the algorithm accepts
    }
    out.resize(start + bound, 0);
    let room = &mut out[start..];
    let done = match algorithm {
        Compression::None => None,
        Compression::Snappy => snap::raw::Encoder::new().compress(raw, room).ok(),
        Compression::Lz4 => lzzzz::lz4::compress(raw, room, lzzzz::lz4::ACC_LEVEL_DEFAULT).ok(),
        Compression::Lz4Fast => lzzzz::lz4::compress(raw, room, LZ4_ACCELERATION).ok(),
        Compression::Zstd => zstd::bulk::compress_to_buffer(raw, room, ZSTD_LEVEL).ok(),
    };
    match done {
        Some(n) if n <= raw.len() - raw.len() / 8 => {
            out.truncate(start + n);
            Some(n)
        }
        _ => {
            out.truncate(start);
            None
        }
    }
}

thread_local! {
    /// Making a context costs more than decoding a block.
    static ZSTD: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
}

fn zstd_into(bytes: &[u8], out: &mut [u8]) -> std::io::Result<usize> {
    ZSTD.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(zstd::bulk::Decompressor::new()?),
        };
        context.decompress_to_buffer(bytes, out)
    })
}

/// Decompresses at least the first `want` bytes of `bytes` into `out`, whose length must be the raw length. Stops early
/// where the algorithm can, which checks only the part that is decoded: the caller has verified a checksum of `bytes`.
///
/// # Errors
/// As [`decompress`].
pub fn decompress_prefix(
    algorithm: Compression,
    bytes: &[u8],
    out: &mut [u8],
    want: usize,
    corrupt: impl Fn(&str) -> Error,
) -> Result<()> {
    let raw = out.len();
    match algorithm {
        Compression::Lz4 | Compression::Lz4Fast if want < raw => {
            match lzzzz::lz4::decompress_partial(bytes, &mut out[..want], raw) {
                Ok(n) if n >= want => Ok(()),
                _ => Err(corrupt("bad lz4 stream")),
            }
        }
        _ => decompress(algorithm, bytes, out, corrupt),
    }
}

/// Decompresses `bytes` into `out`, whose length must be the raw length. `what` is called for the error's place.
///
/// # Errors
/// `Corrupt` (built by `corrupt`) when the bytes are not a valid stream of exactly that raw length.
pub fn decompress(
    algorithm: Compression,
    bytes: &[u8],
    out: &mut [u8],
    corrupt: impl Fn(&str) -> Error,
) -> Result<()> {
    let n = match algorithm {
        Compression::None => {
            if bytes.len() != out.len() {
                return Err(corrupt("stored length differs from raw length"));
            }
            out.copy_from_slice(bytes);
            out.len()
        }
        Compression::Snappy => match snap::raw::decompress_len(bytes) {
            Ok(n) if n == out.len() => {
                snap::raw::Decoder::new().decompress(bytes, out).map_err(|_| corrupt("bad snappy stream"))?
            }
            _ => return Err(corrupt("bad snappy stream")),
        },
        Compression::Lz4 | Compression::Lz4Fast => {
            lzzzz::lz4::decompress(bytes, out).map_err(|_| corrupt("bad lz4 stream"))?
        }
        Compression::Zstd => zstd_into(bytes, out).map_err(|_| corrupt("bad zstd stream"))?,
    };
    if n == out.len() { Ok(()) } else { Err(corrupt("raw length differs from the stored one")) }
}
