//! Stored values as bytes: a version, then the value as postcard writes it.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidesdb::{Error, Result};

/// The first byte of each stored value.
const VERSION: u8 = 1;

/// Encodes `value`, which is `what`.
pub(crate) fn encode<T: Serialize>(what: &str, value: &T) -> Result<Vec<u8>> {
    postcard::to_extend(value, vec![VERSION])
        .map_err(|e| Error::InvalidArgument { what: format!("{what} cannot be encoded: {e}").into() })
}

/// Decodes what [`encode`] has written for `what`.
pub(crate) fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => postcard::from_bytes(rest)
            .map_err(|e| damaged(&format!("{what} cannot be decoded, its type may have changed: {e}"))),
        Some((&found, _)) => {
            Err(Error::FormatTooNew { file: what.into(), found: found.into(), supported: VERSION.into() })
        }
        None => Err(damaged(&format!("{what} is empty"))),
    }
}

/// Returns the error for a stored value that is not what this crate writes.
pub(crate) fn damaged(what: &str) -> Error {
    Error::Corrupt { file: "raft".into(), offset: 0, what: what.into() }
}
