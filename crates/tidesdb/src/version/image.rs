//! Encodes a state as the bytes of a manifest and its `CURRENT`, for a copy of the database elsewhere.

use tidesdb_io::Dir;

use super::current::{self, Current};
use super::edit::{Change, VersionEdit};
use super::format::{Header, Identity, RECORDS_AT};
use super::manifest::Beginning;
use super::state::State;
use crate::Result;
use crate::codec::Salt;
use crate::types::WalId;

/// Contents of the two files.
#[derive(Debug)]
pub struct Image {
    /// A manifest with the state and nothing after it.
    pub manifest: Vec<u8>,
    /// `CURRENT`, which names the manifest.
    pub current: Vec<u8>,
}

impl Image {
    /// Encodes `state` as manifest `number`, with a log that begins at `log_start`.
    ///
    /// # Errors
    /// `Internal` for a state that no manifest can hold.
    pub fn encode(
        mut state: State,
        log_start: WalId,
        identity: Identity,
        (number, salt): (u64, Salt),
    ) -> Result<Self> {
        state.apply(&VersionEdit::from_iter([Change::LogStart { wal: log_start }]))?;
        let (header, snapshot) = (Header { salt, identity, number }, state.snapshot());
        let mut beginning = Beginning::new(&header, &snapshot);
        let mut manifest = vec![0; RECORDS_AT as usize];
        while let Some((_, record)) = beginning.record()? {
            manifest.extend_from_slice(&record);
        }
        let front = beginning.front(manifest.len() as u64);
        manifest[..front.len()].copy_from_slice(&front);
        let current = Current { number, salt, uuid: identity.uuid }.encode();
        Ok(Self { manifest, current })
    }
}

/// Returns the number of the manifest that `CURRENT` in `dir` names, and the UUID of the database; `None` without
/// `CURRENT`.
///
/// # Errors
/// `Corrupt`, `FormatTooNew`, `Io`.
pub fn in_force(dir: &dyn Dir) -> Result<Option<(u64, [u8; 16])>> {
    Ok(current::read(dir)?.map(|current| (current.number, current.uuid)))
}
