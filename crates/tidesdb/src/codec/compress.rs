//! Compression of blocks and values. The algorithm is stored as one byte. The raw size is always stored with the
//! compressed bytes, so a decoder allocates what the writer had; a hostile length cannot make it allocate more.
//!
//! Each algorithm is a feature of the crate. Data of an algorithm that is not built in cannot be read; the error for this is never that
//! of damage.

#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(feature = "zstd")]
mod zstd;
#[cfg(not(all(feature = "lz4", feature = "snappy", feature = "zstd")))]
mod absent;

#[cfg(not(feature = "lz4"))]
use absent as lz4;
#[cfg(not(feature = "snappy"))]
use absent as snappy;
#[cfg(not(feature = "zstd"))]
use absent as zstd;

use tidesdb_io::zeroed;

use crate::{Error, Result};

/// A compression algorithm. `lz4` (the default), `snappy` and `zstd` are features of the crate; [`Compression::is_built_in`] says what this
/// build has. The discriminants are stored on disk: never change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[cfg_attr(not(feature = "lz4"), default)]
    None = 0,
    /// Google Snappy, written in Rust.
    Snappy = 1,
    /// LZ4: fast to compress and decompress. The default, if it is built in.
    #[cfg_attr(feature = "lz4", default)]
    Lz4 = 2,
    /// Zstandard, level 3: smaller output, slower.
    Zstd = 3,
    /// LZ4 with acceleration 8: faster to compress, slightly larger output. Decoded as LZ4.
    Lz4Fast = 4,
}

/// Shorter data are not compressed.
const COMPRESSED_MIN: usize = 16;
const ZSTD_LEVEL: i32 = 3;
const LZ4_ACCELERATION: i32 = 1;
const LZ4_FAST_ACCELERATION: i32 = 8;

impl Compression {
    /// Returns the algorithm with the on-disk number `n`.
    pub fn from_u8(n: u8) -> Option<Self> {
        [Self::None, Self::Snappy, Self::Lz4, Self::Zstd, Self::Lz4Fast].into_iter().find(|c| *c as u8 == n)
    }

    /// Returns the name used in options and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Lz4Fast => "lz4-fast",
        }
    }

    /// Returns the algorithm with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::None, Self::Snappy, Self::Lz4, Self::Zstd, Self::Lz4Fast]
            .into_iter()
            .find(|c| c.name() == name)
    }

    /// Returns whether this build can write and read data of this algorithm.
    ///
    /// ```
    /// use tidesdb::Compression;
    /// assert!(Compression::None.is_built_in());
    /// assert_eq!(Compression::Zstd.is_built_in(), cfg!(feature = "zstd"));
    /// ```
    pub const fn is_built_in(self) -> bool {
        match self {
            Self::None => true,
            Self::Snappy => snappy::BUILT_IN,
            Self::Lz4 | Self::Lz4Fast => lz4::BUILT_IN,
            Self::Zstd => zstd::BUILT_IN,
        }
    }

    /// Fails if this build lacks the algorithm.
    ///
    /// # Errors
    /// `NotBuiltIn`.
    pub fn require(self) -> Result<()> {
        if self.is_built_in() { Ok(()) } else { Err(Error::NotBuiltIn { feature: self.feature() }) }
    }

    /// The feature of the crate that adds this algorithm.
    fn feature(self) -> &'static str {
        match self {
            Self::Lz4Fast => Self::Lz4.name(),
            other => other.name(),
        }
    }
}

/// Returns how many bytes of room [`compress_to`] needs for `len` bytes; 0 if it would not compress them.
pub fn compress_bound(algorithm: Compression, len: usize) -> usize {
    if len < COMPRESSED_MIN {
        return 0;
    }
    match algorithm {
        Compression::None => 0,
        Compression::Snappy => snappy::bound(len),
        Compression::Zstd => zstd::bound(len),
        Compression::Lz4 | Compression::Lz4Fast => lz4::bound(len), // 0: longer than the algorithm accepts
    }
}

/// Writes the compressed form of `raw` to the beginning of `room`, which has at least [`compress_bound`] bytes, and returns its length.
/// Returns `None` if compression is off or does not save at least one byte in eight; `room` then has any content.
pub fn compress_to(algorithm: Compression, raw: &[u8], room: &mut [u8]) -> Option<usize> {
    if compress_bound(algorithm, raw.len()) == 0 {
        return None;
    }
    let done = match algorithm {
        Compression::None => None,
        Compression::Snappy => snappy::compress(raw, room, 0),
        Compression::Lz4 => lz4::compress(raw, room, LZ4_ACCELERATION),
        Compression::Lz4Fast => lz4::compress(raw, room, LZ4_FAST_ACCELERATION),
        Compression::Zstd => zstd::compress(raw, room, ZSTD_LEVEL),
    };
    done.filter(|n| *n <= raw.len() - raw.len() / 8)
}

/// Appends the compressed form of `raw` to `out` and returns its length. If [`compress_to`] returns `None`, so does this, and `out` is
/// unchanged.
pub fn compress(algorithm: Compression, raw: &[u8], out: &mut Vec<u8>) -> Option<usize> {
    let start = out.len();
    out.resize(start + compress_bound(algorithm, raw.len()), 0);
    let done = compress_to(algorithm, raw, &mut out[start..]);
    out.truncate(start + done.unwrap_or(0));
    done
}

/// Returns the maximum raw length that `disk` compressed bytes can decode to. Longer stated lengths are refused
/// before memory is allocated.
pub fn longest_raw(algorithm: Compression, disk: usize) -> usize {
    match algorithm {
        Compression::None => disk,
        Compression::Snappy => disk.saturating_mul(64),
        Compression::Lz4 | Compression::Lz4Fast => disk.saturating_mul(256),
        // A block of 128 KiB that repeats one byte takes four bytes.
        Compression::Zstd => disk.saturating_mul(32 << 10).saturating_add(128 << 10),
    }
}

/// Longest stated raw length that is allocated at once; for longer ones the buffer grows with the decoded data.
const AT_ONCE_BYTES: usize = 1 << 20;

/// Decompresses at least the first `want` bytes of `bytes` into `out`, whose length must be the raw length. Stops early
/// if the algorithm can. Only the decoded part is validated, so the caller must have verified a checksum of `bytes`.
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
    match algorithm {
        Compression::Lz4 | Compression::Lz4Fast if want < out.len() => {
            algorithm.require()?;
            match lz4::decompress_prefix(bytes, out, want) {
                Some(n) if n >= want => Ok(()),
                _ => Err(corrupt("bad lz4 stream")),
            }
        }
        _ => decompress(algorithm, bytes, out, corrupt),
    }
}

/// Decompresses `bytes` into `out`, whose length must be the raw length. `corrupt` builds the error and adds the
/// location.
///
/// # Errors
/// `Corrupt` (built by `corrupt`) when the bytes are not a valid stream of exactly that raw length; `NotBuiltIn` if this build lacks the
/// algorithm.
pub fn decompress(
    algorithm: Compression,
    bytes: &[u8],
    out: &mut [u8],
    corrupt: impl Fn(&str) -> Error,
) -> Result<()> {
    algorithm.require()?;
    let n = match algorithm {
        Compression::None => {
            if bytes.len() != out.len() {
                return Err(corrupt("stored length differs from the raw length"));
            }
            out.copy_from_slice(bytes);
            out.len()
        }
        Compression::Snappy => snappy::decompress(bytes, out).ok_or_else(|| corrupt("bad snappy stream"))?,
        Compression::Lz4 | Compression::Lz4Fast => {
            lz4::decompress(bytes, out).ok_or_else(|| corrupt("bad lz4 stream"))?
        }
        Compression::Zstd => zstd::decompress(bytes, out).ok_or_else(|| corrupt("bad zstd stream"))?,
    };
    if n == out.len() { Ok(()) } else { Err(corrupt("raw length differs from the stored one")) }
}

/// Replaces the content of `out` with the decompressed `bytes`, whose stated raw length is `raw`. If that is above 1
/// MiB, allocates at most twice what the stream really decodes to.
///
/// # Errors
/// As [`decompress`]; also `Corrupt` for a stated length beyond [`longest_raw`], and `MemoryLimit`.
pub fn decompress_into(
    algorithm: Compression,
    bytes: &[u8],
    raw: usize,
    out: &mut Vec<u8>,
    corrupt: impl Fn(&str) -> Error,
) -> Result<()> {
    algorithm.require()?;
    if raw > longest_raw(algorithm, bytes.len()) {
        return Err(corrupt("raw length is impossible for this many compressed bytes"));
    }
    if raw > AT_ONCE_BYTES {
        match algorithm {
            Compression::Zstd => return grow_zstd(bytes, raw, out, corrupt),
            Compression::Lz4 | Compression::Lz4Fast if lz4::len(bytes) != Some(raw) => {
                return Err(corrupt("bad lz4 stream"));
            }
            Compression::Snappy if snappy::len(bytes) != Some(raw) => {
                return Err(corrupt("bad snappy stream"));
            }
            _ => {}
        }
    }
    make_room(out, raw)?;
    decompress(algorithm, bytes, out, corrupt)
}

/// Resizes `out` to `len` bytes.
fn make_room(out: &mut Vec<u8>, len: usize) -> Result<()> {
    let no_memory = |_| Error::MemoryLimit { what: "decompressing a value".into() };
    if out.capacity() == 0 && len > AT_ONCE_BYTES {
        *out = zeroed(len).map_err(no_memory)?;
        return Ok(());
    }
    out.try_reserve_exact(len.saturating_sub(out.len())).map_err(no_memory)?;
    out.resize(len, 0);
    Ok(())
}

/// Decompresses a Zstandard stream; the buffer grows with the decoded data.
fn grow_zstd(bytes: &[u8], raw: usize, out: &mut Vec<u8>, corrupt: impl Fn(&str) -> Error) -> Result<()> {
    let bad = || corrupt("bad zstd stream");
    let mut stream = zstd::stream(bytes).ok_or_else(bad)?;
    out.clear();
    let mut done = 0;
    while done < raw {
        make_room(out, raw.min((2 * done).max(AT_ONCE_BYTES)))?;
        match stream.read(&mut out[done..]).ok_or_else(bad)? {
            0 => break,
            n => done += n,
        }
    }
    let whole = done == raw && stream.read(&mut [0]).ok_or_else(bad)? == 0 && stream.ends();
    if whole { Ok(()) } else { Err(corrupt("raw length differs from the stored one")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Compression; 4] =
        [Compression::Snappy, Compression::Lz4, Compression::Lz4Fast, Compression::Zstd];

    fn corrupt(what: &str) -> Error {
        Error::corrupt("test", 0, what)
    }

    /// Lengths around the limit above which the buffer grows with the decoded data: compressible, mixed and long
    /// values.
    #[test]
    fn long_values_round_trip() {
        for len in [100, AT_ONCE_BYTES - 1, AT_ONCE_BYTES, AT_ONCE_BYTES + 1, 5 * AT_ONCE_BYTES + 17] {
            let repeated = vec![7; len];
            let mut n = 1u32;
            let mixed: Vec<u8> = (0..len)
                .map(|i| {
                    n = n.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if i % 96 < 32 { (n >> 24) as u8 } else { 3 }
                })
                .collect();
            for value in [repeated, mixed] {
                for algorithm in ALL {
                    let (mut packed, mut back) = (Vec::new(), vec![1; 3]);
                    compress(algorithm, &value, &mut packed).unwrap();
                    decompress_into(algorithm, &packed, len, &mut back, corrupt).unwrap();
                    assert!(back == value, "{algorithm:?}, {len} bytes");
                }
            }
        }
    }

    /// Regression: a stream of a few bytes that stated a length of gigabytes made the reader allocate all of them
    /// before decoding. The length must be refused, or the buffer stay within twice what the stream decodes to.
    #[test]
    fn a_false_raw_length_allocates_little_memory() {
        for algorithm in ALL {
            let value = vec![7; 40 * AT_ONCE_BYTES];
            let mut packed = Vec::new();
            compress(algorithm, &value, &mut packed).unwrap();
            for claim in
                [value.len() * 3 / 2, value.len() + 1, value.len() - 1, u32::MAX as usize, usize::MAX]
            {
                let mut out = Vec::new();
                let result = decompress_into(algorithm, &packed, claim, &mut out, corrupt);
                assert!(result.is_err_and(|e| e.is_corruption()), "{algorithm:?}: {claim}");
                let bound = 2 * value.len() + AT_ONCE_BYTES;
                assert!(out.capacity() <= bound, "{algorithm:?}: {claim} took {}", out.capacity());
            }
        }
    }
}
