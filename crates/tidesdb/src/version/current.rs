//! `CURRENT` names the manifest in force: 64 bytes, replaced by rename, never written in place.
//!
//! ```text
//! magic 8 | format u32 | zero 4 | number u64 | manifest salt 16 | database uuid 16 | zero 4 | crc32c u32
//! ```
//!
//! The salt ties `CURRENT` to the content of the manifest. A manifest of another database, or an older one with the
//! same number, is not accepted in its place.

use std::io::ErrorKind;

use tidesdb_io::{Access, Dir, FileExt};

use super::edit::MANIFEST_FORMAT;
use super::format::{first_nonzero, seal};
use super::manifest::Failure;
use crate::codec::{Decoder, Salt, bound_crc};
use crate::files::{self, CURRENT, CURRENT_NEW, FileKind};
use crate::order;
use crate::types::FILE_NUMBER_MAX;
use crate::{Error, Result};

const CURRENT_BYTES: usize = 64;
const CURRENT_MAGIC: [u8; 8] = *b"TDBCURR\n";
const NO_SALT: Salt = [0; 16];

/// Content of `CURRENT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Current {
    pub(super) number: u64,
    pub(super) salt: Salt,
    pub(super) uuid: [u8; 16],
}

impl Current {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(CURRENT_BYTES);
        out.extend_from_slice(&CURRENT_MAGIC);
        out.extend_from_slice(&MANIFEST_FORMAT.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.salt);
        out.extend_from_slice(&self.uuid);
        seal(&mut out, CURRENT_BYTES, &NO_SALT, 0);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        let bad = |what: &str| Error::corrupt(CURRENT, 0, what);
        let mut d = Decoder::new(bytes, CURRENT, 0);
        let covered = bytes.get(..CURRENT_BYTES - 4).ok_or_else(|| bad("file was cut"))?;
        let magic: [u8; 8] = d.array()?;
        let format = d.u32()?;
        let zeros: [u8; 4] = d.array()?;
        let this = Self { number: d.u64()?, salt: d.array()?, uuid: d.array()? };
        let more_zeros: [u8; 4] = d.array()?;
        if magic != CURRENT_MAGIC || d.u32()? != bound_crc(&NO_SALT, 0, &[covered]) {
            return Err(bad("checksum mismatch"));
        }
        if format > MANIFEST_FORMAT {
            return Err(Error::FormatTooNew {
                file: CURRENT.into(),
                found: format,
                supported: MANIFEST_FORMAT,
            });
        }
        d.finish()?;
        if format == 0 || first_nonzero(&zeros).or(first_nonzero(&more_zeros)).is_some() {
            return Err(bad("fields hold values that no version writes"));
        }
        if this.number > FILE_NUMBER_MAX {
            return Err(bad("number of the manifest is out of range"));
        }
        Ok(this)
    }
}

/// Reads `CURRENT`; `None` if there is no such file.
pub(super) fn read(dir: &dyn Dir) -> Result<Option<Current>> {
    let file = match dir.open(CURRENT, Access::Read) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("open", CURRENT, e)),
    };
    let io = |e| Error::io("read", CURRENT, e);
    let length = file.len().map_err(io)?;
    if length != CURRENT_BYTES as u64 {
        return Err(Error::corrupt(CURRENT, length, format!("file has {length} bytes, not {CURRENT_BYTES}")));
    }
    let mut bytes = [0; CURRENT_BYTES];
    file.read_exact_at(&mut bytes, 0).map_err(io)?;
    Current::decode(&bytes).map(Some)
}

/// Returns whether there is a `CURRENT`.
///
/// # Errors
/// `Corrupt`, `FormatTooNew` if it is not one that this version reads; `Io`.
pub fn has_current(dir: &dyn Dir) -> Result<bool> {
    Ok(read(dir)?.is_some())
}

/// Reads `CURRENT` of a database that must exist.
pub(super) fn in_force(dir: &dyn Dir) -> Result<Current> {
    read(dir)?.ok_or_else(|| Error::NotFound { what: format!("database in {:?}", dir.path()).into() })
}

/// Makes `CURRENT` name another manifest, whose file and name must be durable. On success the change is durable.
pub(super) fn switch(dir: &dyn Dir, to: &Current) -> Result<(), Failure> {
    prepare(dir, to)?;
    let unknown = |op, e| Failure::unknown(Error::io(op, CURRENT, e));
    dir.rename(CURRENT_NEW, CURRENT).map_err(|e| unknown("rename", e))?;
    dir.sync().map_err(|e| unknown("directory sync", e))
}

fn prepare(dir: &dyn Dir, to: &Current) -> Result<()> {
    let io = |op| move |e| Error::io(op, CURRENT_NEW, e);
    match dir.unlink(CURRENT_NEW) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(io("unlink")(e)),
        _ => {}
    }
    let file = dir.create_new(CURRENT_NEW, 0).map_err(io("create"))?;
    file.write_all_at(&to.encode(), 0).map_err(io("write"))?;
    file.sync_all().map_err(io("sync"))
}

/// Returns the names of the manifests among `names`, for messages.
pub(super) fn manifests_of(names: &[String]) -> String {
    let is_manifest = |name: &&str| matches!(files::parse(name), Some(FileKind::Manifest(_)));
    let mut found: Vec<&str> = names.iter().map(String::as_str).filter(is_manifest).collect();
    order::sort_by(&mut found, Ord::cmp);
    if found.is_empty() { "none".into() } else { found.join(", ") }
}
