//! The objects that describe others: the index, and one for each generation.
//!
//! ```text
//! magic 8 | format u32 | fields | crc32c u32
//! ```
//!
//! The checksum covers all bytes before it. `docs/formats/backups.md` has the fields.

use crate::codec::Decoder;
use crate::{Error, Result};

/// The format of both objects.
const FORMAT: u32 = 1;

/// Encodes an object with `fields`.
pub(super) fn seal(magic: &[u8; 8], fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(fields.len() + 16);
    out.extend_from_slice(magic);
    out.extend_from_slice(&FORMAT.to_le_bytes());
    out.extend_from_slice(fields);
    let crc = tidesdb_io::crc32c(0, &out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Returns a decoder of the fields of the object `name`.
///
/// # Errors
/// `Corrupt`, `FormatTooNew`.
pub(super) fn unseal<'a>(magic: &[u8; 8], bytes: &'a [u8], name: &'a str) -> Result<Decoder<'a>> {
    let (covered, crc) =
        bytes.split_last_chunk::<4>().ok_or_else(|| Error::corrupt(name, 0, "the object was cut"))?;
    let mut d = Decoder::new(covered, name, 0);
    if d.array::<8>()? != *magic {
        return Err(Error::corrupt(name, 0, "the object is not of this kind"));
    }
    let format = d.u32()?;
    if tidesdb_io::crc32c(0, covered) != u32::from_le_bytes(*crc) {
        return Err(Error::corrupt(name, 0, "checksum mismatch"));
    }
    if format > FORMAT {
        return Err(Error::FormatTooNew { file: name.into(), found: format, supported: FORMAT });
    }
    if format != FORMAT {
        return Err(Error::corrupt(name, 8, "unknown format number"));
    }
    Ok(d)
}
