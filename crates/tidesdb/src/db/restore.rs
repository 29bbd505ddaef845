//! An open with an object store: the store is compared with the folder, and fills a folder that is lost.
//!
//! A folder is filled in this order: a note that it is being filled, the manifest, the log, value logs that only the log
//! knows, `CURRENT`; then the note goes. Tables and other value logs come when they are opened. A crash in between leaves
//! the note, and the next open begins anew. What came from the store is checked as what comes from a disk is.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use tidesdb_io::{Dir, FileExt};

use crate::files::{self, CURRENT, CURRENT_NEW, FileKind, RESTORING};
use crate::options::RemoteOptions;
use crate::remote::{ObjectDir, Objects, Remote, RemoteDir, object_name};
use crate::store::Object;
use crate::version::{Presence, State, VersionSet, in_force, inspect, presence};
use crate::wal::layout::SegmentHeader;
use crate::{Error, Result, upload};

/// The database in the store, as its manifest tells.
#[derive(Debug)]
pub(super) struct Stored {
    uuid: [u8; 16],
    state: State,
}

/// The store of a database that is being opened.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) remote: Arc<Remote>,
    pub(super) dir: Arc<dyn Dir>,
    stored: Option<Stored>,
}

/// Reads what the store of `options` holds, and fills `dir` with it if there is no database there. `dir` is locked.
///
/// # Errors
/// `Corrupt` if the store or the folder is damaged, `Io`. What was in the folder is still there.
pub(super) fn attach(options: &RemoteOptions, dir: Arc<dyn Dir>) -> Result<Attached> {
    let (mut objects, listed) =
        Objects::list(&*options.store).map_err(|e| Error::io("list", "object store", e))?;
    let view = ObjectDir::new(&options.store);
    let found = if objects.has_database() { in_force(&view)? } else { None };
    let stored = match found {
        Some((number, uuid)) => {
            let (state, _) = inspect(&view, &mut |_, _| {})?;
            let named: BTreeSet<String> = upload::names(&state).collect();
            objects.trust(&listed, |file| named.contains(file));
            objects.set_generation(number);
            Some(Stored { uuid, state })
        }
        None => None,
    };
    begin_anew(&*dir)?;
    if let (Some(stored), Presence::Absent) = (&stored, presence(&*dir)?) {
        let log = trust_log(&mut objects, &listed, &stored.state);
        fill(&*dir, &view, &objects, &log).map_err(|e| Error::io("restore", "from the object store", e))?;
    }
    let remote = Remote::new(options.clone(), objects, &dir);
    let remote = Arc::new(remote.map_err(|e| Error::io("list", "database directory", e))?);
    for name in stored.iter().flat_map(|stored| upload::names(&stored.state)) {
        remote.cache.set_live(name);
    }
    let dir = RemoteDir::wrap(dir, &remote.cache);
    Ok(Attached { remote, dir, stored })
}

impl Attached {
    /// Refuses a folder that is not what was uploaded, or is older than that: its uploads would destroy what the store has.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub(super) fn check(&self, versions: &VersionSet) -> Result<()> {
        let state = versions.state();
        for name in upload::names(&state) {
            self.remote.cache.set_live(name);
        }
        let Some(stored) = &self.stored else { return Ok(()) };
        if stored.uuid != versions.identity().uuid {
            return Err(Error::invalid("the object store holds another database than the folder"));
        }
        let of = |state: &State| (state.next_table, state.next_vlog, state.last_seq);
        let (local, remote) = (of(&state), of(&stored.state));
        if remote.0 > local.0 || remote.1 > local.1 || remote.2 > local.2 {
            return Err(Error::invalid(
                "the folder is older than what the object store holds: remove it, and it is fetched",
            ));
        }
        Ok(())
    }
}

/// Empties a folder that was being filled when the process or the machine stopped.
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

/// Whether [`fill`] may have made the file `name`.
fn is_filled(name: &str) -> bool {
    let kind = files::parse(name);
    matches!(kind, Some(FileKind::Manifest(_) | FileKind::Wal(_) | FileKind::Vlog(_) | FileKind::Current))
}

/// Trusts the log of the store, and the value logs that only the log knows; returns the names of all these.
fn trust_log(objects: &mut Objects, listed: &[Object], state: &State) -> Vec<String> {
    let before: BTreeSet<String> = objects.files().map(str::to_owned).collect();
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
        _ => {} // what a creation that did not finish left behind
    }
    let file = dir.create_new(name, 0)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

/// Puts the parts of a file together. A log segment gets the length that its header says.
fn fill_file(dir: &dyn Dir, view: &ObjectDir, objects: &Objects, name: &str) -> io::Result<()> {
    let mut len = 0;
    let file = dir.create_new(name, 0)?;
    for (offset, _) in objects.parts(name) {
        let bytes = view.bytes(&object_name(name, *offset))?;
        if *offset == 0
            && matches!(files::parse(name), Some(FileKind::Wal(_)))
            && let Ok(header) = SegmentHeader::decode(&bytes, name)
        {
            len = header.segment_bytes.saturating_mul(header.span.into());
            file.allocate(0, len)?;
        }
        if len > 0 && offset + bytes.len() as u64 > len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{name} is longer than its header says"),
            ));
        }
        file.write_all_at(&bytes, *offset)?;
    }
    file.sync_all()
}
