//! Reading objects: each byte is counted and checked, and a connection that breaks is taken up again where it broke.

use std::io;
use std::time::Duration;

use tidesdb_io::{Clock, crc32c};

use crate::store::ObjectStore;
use crate::{Error, Result};

/// Calls that may fail one after the other without a byte between them.
pub(super) const FAILURES_MAX: u32 = 3;
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// No index and no description of a generation is longer.
pub(super) const SMALL_BYTES_MAX: u64 = 1 << 30;

/// An object, its length and its checksum.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

/// Passes the bytes of an object to `sink`, in order. Bytes that are passed may turn out to be wrong in the end.
///
/// # Errors
/// `Corrupt` if the object is missing or is not what is wanted; `Io`; those of `sink`.
pub(super) fn fetch(
    store: &dyn ObjectStore,
    clock: &dyn Clock,
    wanted: &Wanted,
    sink: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let damage = |at: u64, what: &str| Error::corrupt(&format!("object {}", wanted.name), at, what);
    let (mut at, mut crc, mut failures) = (0, 0, 0);
    loop {
        let (begin, mut ended) = (at, None);
        let mut take = |piece: &[u8]| {
            at += piece.len() as u64;
            crc = crc32c(crc, piece);
            let taken = match at > wanted.bytes {
                true => Err(damage(wanted.bytes, "the object is longer than it was")),
                false => sink(piece),
            };
            taken.map_err(|e| {
                ended = Some(e);
                io::Error::other("the rest is not needed")
            })
        };
        let got = match begin {
            0 => store.get(&wanted.name, &mut take),
            _ => store.get_range(&wanted.name, begin..wanted.bytes, &mut take),
        };
        if let Some(e) = ended {
            return Err(e);
        }
        match got {
            Ok(()) if at == wanted.bytes => break,
            Ok(()) => return Err(damage(at, "the object is shorter than it was")),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damage(0, "the object is missing")),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(damage(at, "the object is shorter than it was"));
            }
            Err(e) => {
                failures = if at > begin { 1 } else { failures + 1 };
                if failures == FAILURES_MAX {
                    return Err(Error::io_at("read", &format!("object {}", wanted.name), at, e));
                }
                clock.sleep(PAUSE * failures);
            }
        }
    }
    if crc == wanted.crc { Ok(()) } else { Err(damage(0, "checksum mismatch")) }
}

/// Returns the bytes of a short object, all of them or an error.
///
/// # Errors
/// As [`fetch`].
pub(super) fn small(store: &dyn ObjectStore, clock: &dyn Clock, wanted: &Wanted) -> Result<Vec<u8>> {
    if wanted.bytes > SMALL_BYTES_MAX {
        return Err(Error::corrupt(&wanted.name, 0, "the object is said to be longer than any"));
    }
    let mut bytes = Vec::new();
    fetch(store, clock, wanted, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    Ok(bytes)
}
