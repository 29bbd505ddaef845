//! The figures of now: two slots that are written in turn, each with one write, so the other one is whole whatever happens to a write.

use std::io;
use std::sync::Arc;

use tidesdb_io::{Access, Dir, File, FileExt};

use super::history::{HistoryWriter, Pace};
use super::read;
use crate::codec::{Decoder, Salt, bound_crc};
use crate::files::FIGURES;
use crate::{Error, Result};

/// Begins the file.
const MAGIC: &[u8; 8] = b"TDBFIGUR";
/// Number of the format.
pub const FIGURES_FORMAT: u32 = 1;
/// Bytes of the header.
const HEADER_BYTES: usize = 56;
/// Numbers of slots and chunks above this one are none that a writer reaches.
pub(super) const NUMBER_MAX: u64 = 1 << 62;
/// Where the first slot is.
const SLOTS_AT: u64 = 4096;
/// Where the history begins.
pub(super) const HISTORY_AT: u64 = SLOTS_AT + 2 * SLOT_BYTES;
/// Bytes of a slot.
const SLOT_BYTES: u64 = 128 << 10;
/// Bytes before the content of a slot: its number, its length, its checksum.
const SLOT_HEADER_BYTES: usize = 16;
/// Maximum number of bytes of the content of a slot.
pub const CONTENT_BYTES_MAX: usize = SLOT_BYTES as usize - SLOT_HEADER_BYTES;
/// How often a reader looks again when the writer replaces what it reads.
const TRIES: usize = 3;

fn slot_at(number: u64) -> u64 {
    SLOTS_AT + (number & 1) * SLOT_BYTES
}

/// The file as its writer sees it.
#[derive(Debug)]
pub struct FiguresFile {
    file: Arc<dyn File>,
    salt: Salt,
    /// Number of the last slot that was written.
    number: u64,
    /// By [`Pace`]; made for the first sample, because that reads where each chunk ends.
    history: [Option<HistoryWriter>; 2],
}

impl FiguresFile {
    /// Opens the file in `dir`, to go on after what it holds. `None` if there is none, or none of the database `uuid`.
    ///
    /// # Errors
    /// Of the disk.
    pub fn open(dir: &dyn Dir, uuid: [u8; 16]) -> Result<Option<Self>> {
        let file = match dir.open(FIGURES, Access::ReadWrite) {
            Err(e) if is_replaceable(&e) => return Ok(None),
            Err(_) if is_irregular(dir) => return Ok(None),
            opened => opened.map_err(|e| Error::io("open", FIGURES, e))?,
        };
        let Ok(Some(salt)) = salt_of(&*file, uuid) else { return Ok(None) };
        let slots = [slot(&*file, &salt, 1)?, slot(&*file, &salt, 2)?];
        let number = slots.into_iter().flatten().map(|(number, _)| number).max().unwrap_or(0);
        Ok(Some(Self { file, salt, number, history: [None, None] }))
    }

    /// Makes a new file in `dir`, in place of one that exists.
    ///
    /// # Errors
    /// Of the disk.
    pub fn create(dir: &dyn Dir, salt: Salt, uuid: [u8; 16]) -> Result<Self> {
        match dir.unlink(FIGURES) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", FIGURES, e)),
            _ => {}
        }
        let made = dir.create_new(FIGURES, 0).and_then(|file| {
            file.write_all_at(&header(&salt, uuid, file.identity()), 0)?;
            Ok(file)
        });
        let file = made.map_err(|e| Error::io("create", FIGURES, e))?;
        Ok(Self { file, salt, number: 0, history: [None, None] })
    }

    /// Returns false if the file was removed or replaced: its figures reach nobody. An open that fails for another reason, such as too many
    /// open files, says nothing.
    pub fn is_there(&self, dir: &dyn Dir) -> bool {
        match dir.open(FIGURES, Access::Read) {
            Ok(file) => file.identity() == self.file.identity(),
            Err(e) => !is_replaceable(&e) && !is_irregular(dir),
        }
    }

    /// Appends figures of the moment `millis` to the history.
    ///
    /// # Errors
    /// Of the disk: the sample is lost.
    pub fn record(&mut self, pace: Pace, millis: u64, figures: &[(String, i64)]) -> Result<()> {
        let history = match &mut self.history[pace as usize] {
            Some(history) => history,
            none => none.insert(HistoryWriter::after(pace, &*self.file, &self.salt)?),
        };
        history.append(&*self.file, &self.salt, millis, figures)
    }

    /// Writes `content` into the slot that was not written last. If that fails, the other slot stays in force.
    ///
    /// # Errors
    /// Of the disk.
    pub fn write(&mut self, content: &[u8]) -> Result<()> {
        if content.len() > CONTENT_BYTES_MAX {
            return Err(Error::internal("the figures do not fit into their slot"));
        }
        let number = self.number + 1;
        let at = slot_at(number);
        let mut slot = Vec::with_capacity(SLOT_HEADER_BYTES + content.len());
        slot.extend_from_slice(&number.to_le_bytes());
        slot.extend_from_slice(&(content.len() as u32).to_le_bytes());
        let crc = bound_crc(&self.salt, at, &[&slot, content]);
        slot.extend_from_slice(&crc.to_le_bytes());
        slot.extend_from_slice(content);
        self.file.write_all_at(&slot, at).map_err(|e| Error::io("write", FIGURES, e))?;
        self.number = number;
        Ok(())
    }
}

/// Returns true if the error of an open says that there is no file, or one of another user.
fn is_replaceable(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

/// Returns true if `FIGURES` is no regular file of `dir`.
fn is_irregular(dir: &dyn Dir) -> bool {
    dir.list().is_ok_and(|names| !names.iter().any(|name| name == FIGURES))
}

/// The file states its own identity, so a copy of it does not pass for it.
fn header(salt: &Salt, uuid: [u8; 16], identity: u64) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&FIGURES_FORMAT.to_le_bytes());
    out[12..28].copy_from_slice(salt);
    out[28..44].copy_from_slice(&uuid);
    out[44..52].copy_from_slice(&identity.to_le_bytes());
    let crc = bound_crc(salt, 0, &[&out[..52]]);
    out[52..].copy_from_slice(&crc.to_le_bytes());
    out
}

/// What is in force in `FIGURES`.
#[derive(Debug)]
pub struct Newest {
    /// The content of the newest slot.
    pub content: Vec<u8>,
    /// Its place in the file.
    pub at: u64,
}

/// Opens the file in `dir` for reading. `None` if there is none, or none of the database `uuid`.
///
/// # Errors
/// `FormatTooNew`, `Io`.
pub(super) fn open_for_reading(dir: &dyn Dir, uuid: [u8; 16]) -> Result<Option<(Arc<dyn File>, Salt)>> {
    let file = match dir.open(FIGURES, Access::Read) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| Error::io("open", FIGURES, e))?,
    };
    let salt = salt_of(&*file, uuid)?;
    Ok(salt.map(|salt| (file, salt)))
}

/// Returns the newest slot of `FIGURES` in `dir`. `None` if there is no file, if no slot of it is whole, or if it is of another database
/// than `uuid`.
///
/// # Errors
/// `FormatTooNew`, `Io`.
pub fn newest(dir: &dyn Dir, uuid: [u8; 16]) -> Result<Option<Newest>> {
    for _ in 0..TRIES {
        let Some((file, salt)) = open_for_reading(dir, uuid)? else { return Ok(None) };
        let slots = [slot(&*file, &salt, 1)?, slot(&*file, &salt, 2)?];
        if let Some((_, newest)) = slots.into_iter().flatten().max_by_key(|(number, _)| *number) {
            return Ok(Some(newest));
        }
    }
    Ok(None)
}

/// Returns the salt that the header of `file` states; `None` if it is no whole header of the database `uuid` and of this file.
fn salt_of(file: &dyn File, uuid: [u8; 16]) -> Result<Option<Salt>> {
    let header = read(file, 0, HEADER_BYTES)?;
    let mut d = Decoder::new(&header, FIGURES, 0);
    if header.len() < HEADER_BYTES || d.take(8)? != MAGIC {
        return Ok(None);
    }
    let (format, salt, of, identity, crc) = (d.u32()?, d.array()?, d.array::<16>()?, d.u64()?, d.u32()?);
    let is_whole = bound_crc(&salt, 0, &[&header[..HEADER_BYTES - 4]]) == crc;
    if !is_whole || of != uuid || identity != file.identity() {
        return Ok(None);
    }
    match format {
        FIGURES_FORMAT => Ok(Some(salt)),
        found => Err(Error::FormatTooNew { file: FIGURES.into(), found, supported: FIGURES_FORMAT }),
    }
}

/// Reads the slot of `number`, with the number that is in it; `None` if it is not whole.
fn slot(file: &dyn File, salt: &Salt, number: u64) -> Result<Option<(u64, Newest)>> {
    let at = slot_at(number);
    let header = read(file, at, SLOT_HEADER_BYTES)?;
    if header.len() < SLOT_HEADER_BYTES {
        return Ok(None);
    }
    let mut d = Decoder::new(&header, FIGURES, at);
    let (number, len, crc) = (d.u64()?, d.u32()? as usize, d.u32()?);
    if len > CONTENT_BYTES_MAX || slot_at(number) != at || number > NUMBER_MAX {
        return Ok(None);
    }
    let content = read(file, at + SLOT_HEADER_BYTES as u64, len)?;
    let whole = content.len() == len && bound_crc(salt, at, &[&header[..12], &content]) == crc;
    Ok(whole.then(|| (number, Newest { content, at: at + SLOT_HEADER_BYTES as u64 })))
}
