//! Opening with an object store: compares the store with the folder, and restores a lost folder from the store.
//!
//! A restore writes, in this order: the note `RESTORING`, the manifest, the log, value logs that only the log refers
//! to, and `CURRENT`. Then it removes the note. Tables and other value logs are fetched when they are opened. A crash
//! in between leaves the note, and the next open starts the restore again. Data from the store gets the same checks as
//! data from a disk.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use tidesdb_io::{Dir, FileExt};

use super::dir::RemoteDir;
use super::view::ObjectDir;
use super::{FilePart, Objects, Remote, object_name};
use crate::files::{self, CURRENT, CURRENT_NEW, FileKind, RESTORING};
use crate::options::RemoteOptions;
use crate::order::Gather;
use crate::store::{self, Object};
use crate::version::{Presence, State, VersionSet, in_force, inspect, presence};
use crate::wal::layout::SegmentHeader;
use crate::{Error, Result};

/// The database in the store, as its manifest describes it.
#[derive(Debug)]
struct StoredDatabase {
    uuid: [u8; 16],
    state: State,
}

/// The object store attached to a database that is being opened.
#[derive(Debug)]
pub struct Attached {
    /// Keeps the store up to date from now on.
    pub remote: Arc<Remote>,
    /// The directory of the database; opening a file that is missing there fetches it.
    pub dir: Arc<dyn Dir>,
    stored: Option<StoredDatabase>,
}

/// Reads what the store of `options` holds. If `dir` has no database, restores it from the store. `dir` must be locked.
///
/// # Errors
/// `Corrupt` if the store or the folder is damaged; `Io`. Existing data in the folder is kept.
pub fn attach(options: &RemoteOptions, dir: Arc<dyn Dir>, error_if_exists: bool) -> Result<Attached> {
    let options = &RemoteOptions { store: store::contain(&options.store), ..options.clone() };
    let (mut objects, listed) =
        Objects::list(&*options.store).map_err(|e| Error::io("list", "object store", e))?;
    let view = ObjectDir::new(&options.store);
    let found = if objects.has_database() { in_force(&view)? } else { None };
    let stored = match found {
        Some((number, uuid)) => {
            let (state, _) = inspect(&view, &mut |_, _| {})?;
            let named: BTreeSet<String> = state.file_names().gather();
            objects.trust(&listed, |file| named.contains(file));
            objects.set_generation(number);
            Some(StoredDatabase { uuid, state })
        }
        None => None,
    };
    if error_if_exists && stored.is_some() {
        return Err(Error::Exists { what: "a database in the object store".into() });
    }
    begin_anew(&*dir)?;
    if let (Some(stored), Presence::Absent) = (&stored, presence(&*dir)?) {
        let log = trust_log(&mut objects, &listed, &stored.state);
        fill(&*dir, &view, &objects, &log).map_err(|e| Error::io("restore", "from the object store", e))?;
    }
    let remote = Remote::new(options.clone(), objects, &dir);
    let remote = Arc::new(remote.map_err(|e| Error::io("list", "database directory", e))?);
    for name in stored.iter().flat_map(|stored| stored.state.file_names()) {
        remote.cache.set_live(name);
    }
    let dir = RemoteDir::wrap(dir, &remote.cache);
    Ok(Attached { remote, dir, stored })
}

impl Attached {
    /// Refuses a folder that is another database than the stored one, or an older state of it. Uploads from such a
    /// folder would overwrite what the store holds.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check(&self, versions: &VersionSet) -> Result<()> {
        let state = versions.state();
        for name in state.file_names() {
            self.remote.cache.set_live(name);
        }
        let Some(stored) = &self.stored else { return Ok(()) };
        if stored.uuid != versions.identity().uuid {
            return Err(Error::invalid(
                "the object store holds another database than the folder; use another store or folder",
            ));
        }
        let of = |state: &State| (state.next_table, state.next_vlog, state.last_seq);
        let (local, remote) = (of(&state), of(&stored.state));
        if remote.0 > local.0 || remote.1 > local.1 || remote.2 > local.2 {
            return Err(Error::invalid(
                "the folder is older than what the object store holds; remove the folder and open again to fetch it",
            ));
        }
        Ok(())
    }
}

/// Removes the files of a restore that did not finish, unless `CURRENT` exists already.
fn begin_anew(dir: &dyn Dir) -> Result<()> {
    let names = dir.list().map_err(|e| Error::io("list", "database directory", e))?;
    if !names.iter().any(|name| name == RESTORING) {
        return Ok(());
    }
    if !names.iter().any(|name| name == CURRENT) {
        for name in names.iter().filter(|name| is_filled(name)) {
            dir.unlink(name).map_err(|e| Error::io("unlink", name, e))?;
        }
    }
    dir.unlink(RESTORING).map_err(|e| Error::io("unlink", RESTORING, e))
}

/// Returns whether [`fill`] may have created the file `name`.
fn is_filled(name: &str) -> bool {
    let kind = files::parse(name);
    matches!(kind, Some(FileKind::Manifest(_) | FileKind::Wal(_) | FileKind::Vlog(_) | FileKind::Current))
}

/// Adds the log of the store, and the value logs that only the log refers to, to the trusted objects. Returns the names
/// of all files added.
fn trust_log(objects: &mut Objects, listed: &[Object], state: &State) -> Vec<String> {
    let before: BTreeSet<String> = objects.files().map(str::to_owned).gather();
    let start = state.log_start;
    objects.trust(listed, |file| match files::parse(file) {
        Some(FileKind::Wal(id)) => id >= start,
        Some(FileKind::Vlog(_)) => !before.contains(file),
        _ => false,
    });
    objects.files().filter(|file| !before.contains(*file)).map(str::to_owned).collect()
}

fn fill(dir: &dyn Dir, view: &ObjectDir, objects: &Objects, log: &[String]) -> io::Result<()> {
    dir.create_new(RESTORING, 0)?.sync_all()?;
    dir.sync()?;
    let manifest = files::manifest(objects.generation());
    write(dir, &manifest, &view.bytes(&manifest)?)?;
    for name in log {
        fill_file(dir, view, objects, name)?;
    }
    dir.sync()?;
    write(dir, CURRENT_NEW, &view.bytes(CURRENT)?)?;
    dir.rename(CURRENT_NEW, CURRENT)?;
    dir.sync()?;
    dir.unlink(RESTORING)
}

fn write(dir: &dyn Dir, name: &str, bytes: &[u8]) -> io::Result<()> {
    match dir.unlink(name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {} // removes a leftover of an unfinished creation
    }
    let file = dir.create_new(name, 0)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

/// Assembles a file from its parts. A log segment gets the length stated in its header.
fn fill_file(dir: &dyn Dir, view: &ObjectDir, objects: &Objects, name: &str) -> io::Result<()> {
    let mut len = 0;
    let file = dir.create_new(name, 0)?;
    for &FilePart { offset, .. } in objects.parts(name) {
        let bytes = view.bytes(&object_name(name, offset))?;
        if offset == 0
            && matches!(files::parse(name), Some(FileKind::Wal(_)))
            && let Ok(header) = SegmentHeader::decode(&bytes, name)
        {
            len = header.segment_bytes.saturating_mul(header.span.into());
            file.allocate(0, len)?;
        }
        if len > 0 && offset + bytes.len() as u64 > len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{name} in the object store is longer than its header says"),
            ));
        }
        file.write_all_at(&bytes, offset)?;
    }
    file.sync_all()
}
