//! The handles of a simulated disk: directories, files, maps and locks.
//!
//! Invariant: a [`SimFile`] or [`SimMap`] is counted in `State::handles` from its creation to its drop, so a
//! file without a name lives as long as it is open.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::bytes::MAX_LEN;
use super::disk::{Locked, SimDisk, State, Verdict, crash_error, os};
use super::fault::Effect;
use super::habits::OpenFiles;
use super::op::OpKind;
use super::world::{Id, Node, World};
use crate::name::check_name;
use crate::system::Errno;
use crate::{Access, Advice, Boot, Dir, DirLock, Disk, File, SharedMap, Space};

/// The range of a call without offset and length.
const NO_RANGE: (u64, u64) = (0, 0);

impl Disk for SimDisk {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        let label: Arc<str> = path.to_string_lossy().into();
        let walk = self.call(OpKind::OpenDir, &label, NO_RANGE, |state, _| {
            let walk = state.world.walk(path);
            match walk.end {
                Err(Errno::NOENT) if create && !walk.missing.is_empty() => {}
                end => end?,
            }
            Ok(walk)
        })?;
        let sync =
            |id| self.call(OpKind::SyncDir, &label, NO_RANGE, |state, verdict| sync_dir(state, id, &verdict));
        if create {
            // Like the real disk: an earlier process may have created the directory and not synced its name.
            sync(walk.parent)?;
        }
        let mut id = walk.dir;
        for name in walk.missing {
            let made = self.call(OpKind::MakeDir, &label, NO_RANGE, |state, _| {
                match (state.world.make_dir(id, name), state.world.lookup(id, name)) {
                    (Err(Errno::EXIST), Ok(Node::Dir(made))) => Ok(made),
                    (made, _) => Ok(made?),
                }
            })?;
            sync(id)?;
            id = made;
        }
        Ok(Arc::new(SimDir { disk: self.clone(), id, path: path.to_owned(), label }))
    }
}

fn sync_dir(state: &mut State, dir: Id, verdict: &Verdict) -> io::Result<()> {
    if !matches!(verdict, Verdict::Hit(Effect::LieSync)) {
        state.world.sync_dir(dir, state.habits.dir_sync)?;
        state.collect();
    }
    Ok(())
}

#[derive(Debug)]
struct SimDir {
    disk: SimDisk,
    id: Id,
    path: PathBuf,
    label: Arc<str>,
}

impl SimDir {
    fn label(&self, name: &str) -> Arc<str> {
        format!("{}/{name}", self.label.trim_end_matches('/')).into()
    }

    /// Creates a handle to file `id`. Its count was raised under the lock that found the file.
    fn handle(&self, id: Id, name: &str, access: Access) -> Arc<dyn File> {
        let label = self.label(name);
        Arc::new(SimFile {
            disk: self.disk.clone(),
            id,
            label,
            writable: access == Access::ReadWrite,
            is_map: false,
        })
    }

    /// Runs a call that concerns `name`.
    fn call<T>(
        &self,
        kind: OpKind,
        name: &str,
        act: impl FnOnce(&mut State) -> Result<T, io::Error>,
    ) -> io::Result<T> {
        check_name(name)?;
        self.disk.call(kind, &self.label(name), NO_RANGE, |state, _| act(state))
    }
}

impl Dir for SimDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        let range = (0, prealloc);
        let id = self.disk.call(OpKind::Create, &self.label(name), range, |state, _| {
            if prealloc > MAX_LEN {
                return Err(os(Errno::FBIG));
            }
            match state.world.lookup(self.id, name) {
                Err(Errno::NOENT) if prealloc > state.room() => return Err(state.full()),
                Ok(Node::File(_)) => state.not_removed(self.id, name)?,
                _ => {}
            }
            state.check_descriptors()?;
            let id = state.world.create(self.id, name, prealloc)?;
            state.open_file(id);
            Ok(id)
        })?;
        Ok(self.handle(id, name, Access::ReadWrite))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        let id = self.call(OpKind::Open, name, |state| {
            let id = state.world.lookup_file(self.id, name)?;
            state.not_removed(self.id, name)?;
            state.check_descriptors()?;
            state.open_file(id);
            Ok(id)
        })?;
        Ok(self.handle(id, name, access))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(to)?;
        self.call(OpKind::Rename, from, |state| {
            state.not_removed(self.id, from)?;
            match state.world.lookup_file(self.id, to) {
                Ok(id) if state.keeps_name(id) => Err(os(Errno::ACCESS)),
                _ => Ok(state.world.rename(self.id, from, to, state.habits.rename)?),
            }
        })
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        self.call(OpKind::Unlink, name, |state| match state.world.lookup_file(self.id, name) {
            Ok(id) if state.keeps_name(id) => {
                state.not_removed(self.id, name)?;
                state.removed.insert((self.id, name.to_owned()), id);
                Ok(())
            }
            _ => Ok(state.world.unlink(self.id, name)?),
        })
    }

    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        check_name(to_name)?;
        let to = to.as_any().downcast_ref::<Self>();
        let to = to
            .filter(|to| Arc::ptr_eq(&to.disk.state, &self.disk.state))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "cannot link across disks"))?;
        self.call(OpKind::Link, name, |state| {
            state.not_removed(self.id, name)?;
            Ok(state.world.link(self.id, name, to.id, to_name)?)
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.call(OpKind::List, &self.label, NO_RANGE, |state, _| {
            let names = state.world.dir(self.id)?.cached.iter();
            Ok(names
                .filter(|(_, node)| matches!(node, Node::File(_)))
                .map(|(name, _)| name.to_string())
                .collect())
        })
    }

    fn is_empty(&self) -> io::Result<bool> {
        self.disk.call(OpKind::List, &self.label, NO_RANGE, |state, _| {
            Ok(state.world.dir(self.id)?.cached.is_empty())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.disk
            .call(OpKind::SyncDir, &self.label, NO_RANGE, |state, verdict| sync_dir(state, self.id, &verdict))
    }

    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.call(OpKind::Lock, name, |state| {
            match state.world.lookup_file(self.id, name) {
                Err(Errno::NOENT) if state.is_read_only && !exclusive => {}
                Err(Errno::NOENT) if state.is_read_only => return Err(os(Errno::ROFS)),
                Err(Errno::NOENT) => drop(state.world.create(self.id, name, 0)?),
                other => drop(other?),
            }
            let next = match (state.locks.get(&self.id), exclusive) {
                (None, true) => Locked::Exclusive,
                (None, false) => Locked::Shared(1),
                (Some(Locked::Shared(n)), false) => Locked::Shared(n + 1),
                _ => return Err(os(Errno::WOULDBLOCK)),
            };
            state.locks.insert(self.id, next);
            Ok(())
        })?;
        Ok(Box::new(SimLock { disk: self.disk.clone(), dir: self.id }))
    }

    fn boot(&self) -> Boot {
        let state = self.disk.state.lock();
        if !state.habits.boots {
            return Boot::default();
        }
        let World { boots, mounts, .. } = state.world;
        Boot { id: (u128::from(mounts) << 64 | u128::from(boots)).to_le_bytes(), is_exact: true }
    }

    fn space(&self) -> io::Result<Space> {
        self.disk.call(OpKind::Space, &self.label, NO_RANGE, |state, _| Ok(state.space()))
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[derive(Debug)]
struct SimLock {
    disk: SimDisk,
    dir: Id,
}

impl DirLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        match state.locks.get_mut(&self.dir) {
            Some(Locked::Shared(n)) if *n > 1 => *n -= 1,
            _ => drop(state.locks.remove(&self.dir)),
        }
    }
}

impl State {
    fn open(&mut self, id: Id) {
        *self.handles.entry(id).or_default() += 1;
    }

    /// Counts an open file, which takes a descriptor.
    fn open_file(&mut self, id: Id) {
        self.open(id);
        self.open_files += 1;
    }

    fn close(&mut self, id: Id) {
        match self.handles.get_mut(&id) {
            Some(n) if *n > 1 => *n -= 1,
            _ => {
                self.handles.remove(&id);
                self.remove_names_of(id);
            }
        }
    }

    /// Fails if no further file may be open.
    fn check_descriptors(&self) -> io::Result<()> {
        if self.open_files < self.open_files_max { Ok(()) } else { Err(os(Errno::MFILE)) }
    }

    /// Returns whether the names of a file cannot be removed or replaced now.
    fn keeps_name(&self, id: Id) -> bool {
        self.habits.open_files == OpenFiles::KeepName && self.handles.contains_key(&id)
    }

    /// Removes the names that waited for the file to be closed.
    fn remove_names_of(&mut self, id: Id) {
        let names: Vec<_> =
            self.removed.iter().filter(|(_, file)| **file == id).map(|(name, _)| name.clone()).collect();
        for (dir, name) in names {
            self.removed.remove(&(dir, name.clone()));
            if !self.crashed() {
                let _ = self.world.unlink(dir, &name);
            }
        }
    }

    /// Fails if the name is removed and its file still open.
    fn not_removed(&self, dir: Id, name: &str) -> io::Result<()> {
        // The names of a disk that is not of this kind are never looked for.
        if self.removed.is_empty() || !self.removed.contains_key(&(dir, name.to_owned())) {
            return Ok(());
        }
        Err(os(Errno::ACCESS))
    }

    /// Writes what the verdict allows. Returns the number of bytes to report to the caller.
    fn write(&mut self, id: Id, offset: u64, data: &[u8], how: (Verdict, bool)) -> io::Result<usize> {
        let (verdict, mapped) = how;
        let (mut target, mut at, mut part) = (Some(id), Some(offset), data.len());
        match verdict {
            Verdict::Torn => part = self.rng.below(data.len() as u64 + 1) as usize,
            Verdict::Hit(Effect::Short) if part > 1 => part = 1 + self.rng.below(part as u64 - 1) as usize,
            Verdict::Hit(Effect::LoseWrite) => target = None,
            Verdict::Hit(Effect::Misdirect(by)) => at = offset.checked_add_signed(by),
            Verdict::Hit(Effect::MisdirectTo(ref path)) => target = self.find(Path::new(path)).ok(),
            _ => {}
        }
        if let (Some(id), Some(at)) = (target, at)
            && part > 0
        {
            part = part.min(self.fitting(id, at, part)?);
            let seq = self.world.next_seq();
            self.world.file_mut(id)?.write(seq, at, &data[..part], mapped);
        }
        if matches!(verdict, Verdict::Torn) { Err(crash_error()) } else { Ok(part) }
    }

    /// Returns how much of a write fits on the disk; fails if nothing fits.
    fn fitting(&self, id: Id, offset: u64, len: usize) -> io::Result<usize> {
        let end = offset.checked_add(len as u64).filter(|&end| end <= MAX_LEN).ok_or(Errno::FBIG)?;
        match self.world.file(id)?.blocks.reach(&(offset..end), self.room()) - offset {
            0 => Err(self.full()),
            fits => Ok(fits as usize),
        }
    }

    /// Takes space for a part of a file, and extends the file to its end.
    fn allocate(&mut self, id: Id, range: std::ops::Range<u64>) -> io::Result<()> {
        if range.end > MAX_LEN {
            return Err(os(Errno::FBIG));
        }
        let missing = self.world.file(id)?.blocks.missing(&range);
        if missing > 0 && missing > self.room() {
            return Err(self.full());
        }
        let seq = self.world.next_seq();
        self.world.file_mut(id)?.allocate(seq, range);
        Ok(())
    }

    /// Truncates a file, or extends it by a hole.
    fn set_len(&mut self, id: Id, len: u64) -> io::Result<()> {
        if len > MAX_LEN {
            return Err(os(Errno::FBIG));
        }
        let seq = self.world.next_seq();
        self.world.file_mut(id)?.set_len(seq, len);
        Ok(())
    }

    /// Syncs a file, or a range of it: offset and length.
    fn sync(&mut self, id: Id, verdict: &Verdict, range: Option<(u64, u64)>) -> io::Result<()> {
        match verdict {
            Verdict::Hit(Effect::Errno(n)) => {
                self.world.file_mut(id)?.fail_sync(self.sync_model);
                Err(io::Error::from_raw_os_error(*n))
            }
            Verdict::Hit(Effect::LieSync) => Ok(()),
            _ => Ok(self.world.sync_file(id, self.habits.file_sync, range)?),
        }
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: Id,
    label: Arc<str>,
    writable: bool,
    /// It stands for a map of the whole file, which takes no descriptor.
    is_map: bool,
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.lock();
        state.open_files -= usize::from(!self.is_map);
        state.close(self.id);
    }
}

impl SimFile {
    fn call<T>(
        &self,
        kind: OpKind,
        range: (u64, u64),
        act: impl FnOnce(&mut State, Verdict) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.call(kind, &self.label, range, act)
    }

    /// Fails with `errno` if the file was opened for reading.
    fn need_write(&self, errno: Errno) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(os(errno)) }
    }

    fn sync(&self, kind: OpKind) -> io::Result<()> {
        self.call(kind, NO_RANGE, |state, verdict| {
            if state.habits.open_files == OpenFiles::KeepName {
                self.need_write(Errno::ACCESS)?;
            }
            state.sync(self.id, &verdict, None)
        })
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.call(OpKind::Read, (offset, buf.len() as u64), |state, verdict| {
            signed_range(offset, buf.len())?;
            let mut len = buf.len();
            if matches!(verdict, Verdict::Hit(Effect::Short)) && len > 1 {
                len = 1 + state.rng.below(len as u64 - 1) as usize;
            }
            let file = state.world.file(self.id)?;
            let n = file.cached.read(&mut buf[..len], offset);
            if matches!(verdict, Verdict::Hit(Effect::StaleRead)) {
                buf[..n].fill(0);
                file.previous.read(&mut buf[..n], offset);
            }
            Ok(n)
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        self.call(OpKind::Write, (offset, buf.len() as u64), |state, verdict| {
            signed_range(offset, 0)?;
            self.need_write(Errno::BADF)?;
            signed_range(offset, buf.len())?;
            if buf.is_empty() {
                return Ok(0);
            }
            state.write(self.id, offset, buf, (verdict, false))
        })
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.call(OpKind::Allocate, (offset, len), |state, _| {
            if len == 0 {
                return Ok(());
            }
            self.need_write(Errno::BADF)?;
            let end = offset.checked_add(len).ok_or(Errno::FBIG)?;
            state.allocate(self.id, offset..end)
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(OpKind::SetLen, (0, len), |state, _| {
            self.need_write(Errno::INVAL)?;
            state.set_len(self.id, len)
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(OpKind::SyncData)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(OpKind::SyncAll)
    }

    /// Two calls, a write and a sync, so that faults and crashes strike each of them.
    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let written = self.write_at(buf, offset)?;
        let range = (offset, written as u64);
        self.call(OpKind::SyncAll, range, |state, verdict| state.sync(self.id, &verdict, Some(range)))?;
        Ok(written)
    }

    fn len(&self) -> io::Result<u64> {
        self.call(OpKind::Len, NO_RANGE, |state, _| Ok(state.world.file(self.id)?.cached.len()))
    }

    fn map_shared(&self, len: u64) -> io::Result<Option<Box<dyn SharedMap>>> {
        self.call(OpKind::MapShared, (0, len), |state, _| {
            if len == 0 || len > state.world.file(self.id)?.cached.len() {
                return Err(outside());
            }
            if !state.habits.maps {
                return Ok(None);
            }
            self.need_write(Errno::ACCESS)?;
            state.open(self.id);
            let map = SimMap { disk: self.disk.clone(), id: self.id, label: Arc::clone(&self.label), len };
            Ok(Some(Box::new(map) as Box<dyn SharedMap>))
        })
    }

    fn without_descriptor(&self) -> io::Result<Option<Arc<dyn File>>> {
        self.call(OpKind::MapRead, NO_RANGE, |state, _| {
            if state.habits.open_files == OpenFiles::KeepName {
                return Ok(None);
            }
            state.open(self.id);
            let (disk, label) = (self.disk.clone(), Arc::clone(&self.label));
            let map = Self { disk, id: self.id, label, writable: false, is_map: true };
            Ok(Some(Arc::new(map) as Arc<dyn File>))
        })
    }

    fn advise(&self, _advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        self.call(OpKind::Advise, (offset, len), |_, _| Ok(()))
    }

    fn is_cached(&self, _offset: u64) -> io::Result<bool> {
        Ok(true) // there is no page cache; this is not counted as a call
    }

    fn read_cached_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<Option<usize>> {
        Ok(None) // there is no page cache; this is not counted as a call
    }
}

/// Refuses ranges that do not fit the signed offsets of the system.
fn signed_range(offset: u64, len: usize) -> io::Result<()> {
    let end = offset.checked_add(len as u64).filter(|&end| i64::try_from(end).is_ok());
    end.map(drop).ok_or_else(|| os(Errno::INVAL))
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "range outside the file")
}

#[derive(Debug)]
struct SimMap {
    disk: SimDisk,
    id: Id,
    label: Arc<str>,
    len: u64,
}

impl SimMap {
    /// Checks that the range lies in the map and in the file. Past the end of the file, the real system would
    /// raise a signal.
    fn check(&self, state: &State, offset: u64, len: u64) -> io::Result<()> {
        let limit = self.len.min(state.world.file(self.id)?.cached.len());
        offset.checked_add(len).filter(|&end| end <= limit).map(drop).ok_or_else(outside)
    }
}

impl Drop for SimMap {
    fn drop(&mut self) {
        self.disk.state.lock().close(self.id);
    }
}

impl SharedMap for SimMap {
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let len = bytes.len() as u64;
        self.disk.call(OpKind::MapWrite, &self.label, (offset, len), |state, verdict| {
            self.check(state, offset, len)?;
            if !bytes.is_empty() {
                state.write(self.id, offset, bytes, (verdict, true))?;
            }
            Ok(())
        })
    }

    fn expect_order(&self) {} // the disk has no pages

    fn release(&self) -> io::Result<()> {
        Ok(()) // the map holds no memory of its own
    }
}
