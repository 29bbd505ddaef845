//! Restores a generation as a folder.
//!
//! ```text
//! note that the folder is unfinished -> files, each synced -> manifest -> CURRENT -> remove the note
//! ```
//!
//! Without `CURRENT` an open refuses the folder, because there are files of a database in it.

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Dir, FileExt};

use super::contents::{Contents, Part, StoredFile};
use super::fetch::{self, Wanted};
use super::pace::{PIECE_BYTES, Pace};
use super::writer;
use super::{Shared, VerifiedGeneration};
use crate::files::{self, CURRENT, CURRENT_NEW, FileKind, UNFINISHED};
use crate::order;
use crate::version::{Identity, Image};
use crate::{Error, Result};

/// The number of the manifest in a restored folder.
const MANIFEST: u64 = 1;

impl Part {
    fn wanted(&self) -> Wanted {
        Wanted { name: self.object.to_string(), bytes: self.bytes, crc: self.crc }
    }
}

/// Returns what a generation consists of.
pub(super) fn contents(shared: &Shared, number: u64) -> Result<Contents> {
    let index = writer::read_index(&*shared.store)?;
    let (index, _) = index.ok_or_else(|| Error::NotFound { what: format!("generation {number}").into() })?;
    let found = writer::contents(&*shared.store, &shared.env, index.find(number)?);
    found.map_err(|e| unless_removed(shared, number, e))
}

/// Returns `NotFound` if what looks like damage is that the generation was removed after it was found in the index.
fn unless_removed(shared: &Shared, number: u64, error: Error) -> Error {
    let removed = || writer::read_index(&*shared.store).ok().flatten()?.0.find(number).err();
    if error.is_corruption() { removed().unwrap_or(error) } else { error }
}

pub(super) fn verify(shared: &Shared, number: u64, pace: &Pace<'_>) -> Result<VerifiedGeneration> {
    let mut report = VerifiedGeneration::default();
    let contents = match contents(shared, number) {
        Err(e @ Error::Corrupt { .. }) if writer::read_index(&*shared.store).is_ok() => {
            report.damage.push(e);
            return Ok(report);
        }
        found => found?,
    };
    pace.expect(contents.bytes());
    for part in contents.files.iter().flat_map(|file| &file.parts) {
        pace.look()?;
        report.objects += 1;
        let bytes = &mut report.bytes;
        let read = fetch::fetch(&*shared.store, &*shared.env.clock, &part.wanted(), &mut |piece| {
            *bytes += piece.len() as u64;
            piece.chunks(PIECE_BYTES).try_for_each(|piece| pace.note(piece.len() as u64))
        });
        match read {
            Err(e) if e.is_corruption() => match unless_removed(shared, number, e) {
                e @ Error::NotFound { .. } => return Err(e),
                damage => report.damage.push(damage),
            },
            read => read?,
        }
    }
    Ok(report)
}

pub(super) fn run(shared: &Shared, number: u64, path: &Path, pace: &Pace<'_>) -> Result<()> {
    files::check_path(path)?;
    let contents = contents(shared, number)?;
    pace.expect(contents.bytes());
    pace.look()?;
    let name = path.display().to_string();
    let dir = shared.env.disk.open_dir(path, true).map_err(|e| Error::io("create", &name, e))?;
    begin_anew(&*dir)?;
    let exists = || Error::Exists {
        what: format!("a file or folder in the directory {name}, which must be empty,").into(),
    };
    if !dir.is_empty().map_err(|e| Error::io("list", &name, e))? {
        return Err(exists());
    }
    let lock = dir.lock(files::LOCK, true).map_err(|e| Error::io("lock", &name, e))?;
    // Meanwhile another one may have restored or made a database here.
    if dir.list().map_err(|e| Error::io("list", &name, e))?.iter().any(|name| name != files::LOCK) {
        return Err(exists());
    }
    let result = fill(shared, &contents, &dir, pace);
    if result.is_err() {
        clear(&*dir);
    }
    drop(lock);
    result.map_err(|e| unless_removed(shared, number, e))
}

/// Removes the files of a restore that a crash has ended, and a lock file alone, which an open of an empty folder leaves.
fn begin_anew(dir: &dyn Dir) -> Result<()> {
    let name = dir.path().display().to_string();
    let look = || {
        let names = dir.list().map_err(|e| Error::io("list", &name, e))?;
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        let is_unfinished = has(UNFINISHED) && !has(CURRENT);
        Ok::<_, Error>((is_unfinished || names == [files::LOCK]).then_some((names, is_unfinished)))
    };
    if look()?.is_none() {
        return Ok(());
    }
    let lock = dir.lock(files::LOCK, true).map_err(|e| Error::io("lock", &name, e))?;
    // Before the lock, another restore into this folder may have ended.
    let Some((names, is_unfinished)) = look()? else { return Ok(()) };
    for name in names.iter().filter(|name| files::parse(name).is_some()) {
        dir.unlink(name).map_err(|e| Error::io("unlink", name, e))?;
    }
    dir.sync().map_err(|e| Error::io("sync", &name, e))?;
    if is_unfinished {
        dir.unlink(UNFINISHED).map_err(|e| Error::io("unlink", UNFINISHED, e))?;
    }
    drop(lock);
    // The lock may have made its file again.
    match dir.unlink(files::LOCK) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("unlink", files::LOCK, e)),
        _ => Ok(()),
    }
}

/// Removes all files of a restored folder: the one without which it is none first, the note last.
pub(super) fn clear(dir: &dyn Dir) {
    let mut names = dir.list().unwrap_or_default();
    order::sort_by_key(&mut names, |name| (name != CURRENT, name == UNFINISHED));
    for name in names.iter().filter(|name| files::parse(name).is_some() || *name == UNFINISHED) {
        let _ = dir.unlink(name); // the next restore into the folder says what is in the way
    }
}

fn fill(shared: &Shared, contents: &Contents, dir: &Arc<dyn Dir>, pace: &Pace<'_>) -> Result<()> {
    let full = |e: Error, needed: u64| match e.is_full() {
        true => Error::NoSpace {
            dir: dir.path().display().to_string().into(),
            free: dir.space().map_or(0, |space| space.free),
            needed,
        },
        false => e,
    };
    let path = dir.path().display().to_string();
    let sync = || dir.sync().map_err(|e| Error::io("sync", &path, e));
    dir.create_new(UNFINISHED, 0).map_err(|e| full(Error::io("create", UNFINISHED, e), 0))?;
    sync()?;
    for file in &contents.files {
        fill_file(shared, file, &**dir, pace).map_err(|e| full(e, file.bytes()))?;
    }
    // A new identity: later backups of the folder are of another database.
    let identity = Identity { uuid: shared.env.entropy.salt(), ..contents.identity };
    let salt = shared.env.entropy.salt();
    let image = Image::encode(contents.state.clone(), contents.state.log_start, identity, (MANIFEST, salt))?;
    write(&**dir, &files::manifest(MANIFEST), &image.manifest)
        .map_err(|e| full(e, image.manifest.len() as u64))?;
    sync()?;
    write(&**dir, CURRENT_NEW, &image.current).map_err(|e| full(e, 0))?;
    dir.rename(CURRENT_NEW, CURRENT).map_err(|e| Error::io("rename", CURRENT, e))?;
    sync()?;
    dir.unlink(UNFINISHED).map_err(|e| Error::io("unlink", UNFINISHED, e))?;
    sync()
}

fn write(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Result<()> {
    let written = dir.create_new(name, 0).and_then(|file| {
        file.write_all_at(bytes, 0)?;
        file.sync_all()
    });
    written.map_err(|e| Error::io("write", name, e))
}

fn fill_file(shared: &Shared, stored: &StoredFile, dir: &dyn Dir, pace: &Pace<'_>) -> Result<()> {
    pace.look()?;
    let name = stored.id.name();
    debug_assert!(matches!(files::parse(&name), Some(FileKind::Table(_) | FileKind::Vlog(_))));
    let file = dir.create_new(&name, stored.bytes()).map_err(|e| Error::io("create", &name, e))?;
    let mut at = 0;
    for part in &stored.parts {
        fetch::fetch(&*shared.store, &*shared.env.clock, &part.wanted(), &mut |piece| {
            piece.chunks(PIECE_BYTES).try_for_each(|piece| {
                file.write_all_at(piece, at).map_err(|e| Error::io_at("write", &name, at, e))?;
                at += piece.len() as u64;
                pace.note(piece.len() as u64)
            })
        })?;
    }
    file.sync_all().map_err(|e| Error::io("sync", &name, e))
}
