//! A directory as an object store: an object is a file of its name.
//!
//! ```text
//! put      write a file of another name, sync it, rename it, sync the directory
//! put_if   the same under a lock that all processes take; a new name is made by a link, which fails if there is one
//! ```
//!
//! A name of an object has no `+`, and each file that is being written has one. After a crash such a file stays until
//! [`ObjectStore::remove_unfinished`]. The lock is in a folder of its own, because a lock of a directory keeps out everybody
//! who locks the same directory.

use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::{Access, Dir, DirLock, Env, File, FileExt, crc32c};

use super::{Body, Condition, Object, ObjectStore, Tag};

/// Bytes read or written with one call.
const PIECE_BYTES: usize = 1 << 20;
/// The folder of the lock, and the file in it.
const LOCKS: &str = "lock+";
const LOCK: &str = "LOCK";
/// How long a conditional put waits for those of others, each of which takes a few syncs.
const LOCK_TIME: Duration = Duration::from_secs(30);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Keeps objects as files in a directory. Each file is synced before it gets its name, and its name is durable when `put` returns.
/// Processes of one machine may share it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use tidesdb::store::{Body, Condition, DirectoryStore, ObjectStore};
/// let store = DirectoryStore::open(dir.path().join("objects"))?;
/// store.put("whale", &Body::bytes(b"blue"))?;
/// assert!(store.put_if("whale", &Body::bytes(b"grey"), Condition::Absent)?.is_none());
/// let tag = store.get_tagged("whale", &mut |_| Ok(()))?;
/// assert!(store.put_if("whale", &Body::bytes(b"grey"), Condition::Tagged(&tag))?.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DirectoryStore {
    env: Env,
    dir: Arc<dyn Dir>,
    path: PathBuf,
}

impl DirectoryStore {
    /// Opens the directory `path`, which is created if it is missing.
    ///
    /// # Errors
    /// As the system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::open_in(&Env::real(), path)
    }

    /// Like [`DirectoryStore::open`], for a path that must exist: a mistyped path is not a new store.
    ///
    /// # Errors
    /// As the system; `NotFound` if there is no such directory.
    pub fn open_existing(path: impl AsRef<Path>) -> io::Result<Self> {
        let env = Env::real();
        env.disk.open_dir(path.as_ref(), false)?;
        Self::open_in(&env, path)
    }

    /// Like [`DirectoryStore::open`], on the disk of `env`; for tests on a simulated disk.
    ///
    /// # Errors
    /// As the disk.
    pub fn open_in(env: &Env, path: impl AsRef<Path>) -> io::Result<Self> {
        let dir = env.disk.open_dir(path.as_ref(), true)?;
        Ok(Self { env: env.clone(), dir, path: path.as_ref().to_owned() })
    }

    /// Writes `body` to a new file, durable but for its name, which is returned.
    fn write(&self, name: &str, body: &Body<'_>) -> io::Result<Unnamed<'_>> {
        check_name(name)?;
        let unnamed =
            Unnamed { dir: &*self.dir, name: format!("{name}+{:016x}", self.env.entropy.next_u64()) };
        let file = self.dir.create_new(&unnamed.name, 0)?;
        let mut at = 0;
        body.for_each(PIECE_BYTES, &mut |piece| {
            file.write_all_at(piece, at)?;
            at += piece.len() as u64;
            Ok(())
        })?;
        file.sync_all()?;
        Ok(unnamed)
    }

    /// Takes the lock of conditional puts.
    fn lock(&self) -> io::Result<Box<dyn DirLock>> {
        let locks = self.env.disk.open_dir(&self.path.join(LOCKS), true)?;
        let began = self.env.clock.mono();
        loop {
            match locks.lock(LOCK, true) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.env.clock.mono().saturating_sub(began) > LOCK_TIME {
                let what = "another process has held the lock of the store for 30 seconds";
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            self.env.clock.sleep(LOCK_PAUSE);
        }
    }

    fn file(&self, name: &str) -> io::Result<Arc<dyn File>> {
        check_name(name)?;
        self.dir.open(name, Access::Read)
    }

    /// Gives `unnamed` a name that no file has. Returns false if one has it.
    fn name_new(&self, unnamed: &Unnamed<'_>, name: &str) -> io::Result<bool> {
        match self.dir.link(&unnamed.name, &*self.dir, name) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            // The file system may have no links. Whoever makes names conditionally has the lock.
            Err(_) => match self.dir.open(name, Access::Read) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    self.dir.rename(&unnamed.name, name).map(|()| true)
                }
                found => found.map(|_| false),
            },
        }
    }
}

/// A file that is being written; it is removed when this is dropped, unless it got a name.
struct Unnamed<'a> {
    dir: &'a dyn Dir,
    name: String,
}

impl Drop for Unnamed<'_> {
    fn drop(&mut self) {
        let _ = self.dir.unlink(&self.name); // if it stays, `remove_unfinished` removes it
    }
}

/// Refuses a name that is none of an object.
fn check_name(name: &str) -> io::Result<()> {
    let is_valid = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    if is_valid && !name.bytes().all(|b| b == b'.') {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name of an object"))
}

/// Returns whether a file has a name as those that are being written have.
fn is_unfinished(name: &str) -> bool {
    let is_random = |end: &str| end.len() == 16 && end.bytes().all(|b| b.is_ascii_hexdigit());
    name.split_once('+').is_some_and(|(object, end)| check_name(object).is_ok() && is_random(end))
}

/// Passes the bytes of `file` in `range` to `sink`.
fn read(file: &dyn File, range: Range<u64>, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    Body::file(file, range.start, range.end.saturating_sub(range.start)).for_each(PIECE_BYTES, sink)
}

/// Computes tags. Two contents of the same length with one tag are as likely as two equal random numbers of 64 bits.
#[derive(Default)]
struct Tagging {
    crc: u32,
    hash: DefaultHasher,
    bytes: u64,
}

impl Tagging {
    fn add(&mut self, piece: &[u8]) {
        self.crc = crc32c(self.crc, piece);
        self.hash.write(piece);
        self.bytes += piece.len() as u64;
    }

    fn tag(self) -> Tag {
        Tag(format!("{}.{:08x}.{:016x}", self.bytes, self.crc, self.hash.finish()))
    }
}

fn tag_of(body: &Body<'_>) -> io::Result<Tag> {
    let mut tagging = Tagging::default();
    body.for_each(PIECE_BYTES, &mut |piece| {
        tagging.add(piece);
        Ok(())
    })?;
    Ok(tagging.tag())
}

impl ObjectStore for DirectoryStore {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let unnamed = self.write(name, body)?;
        self.dir.rename(&unnamed.name, name)?;
        self.dir.sync()
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let file = self.file(name)?;
        read(&*file, 0..file.len()?, sink)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let mut all = Vec::new();
        for name in self.dir.list()?.into_iter().filter(|name| check_name(name).is_ok()) {
            match self.dir.open(&name, Access::Read) {
                Ok(file) => all.push(Object { bytes: file.len()?, name }),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {} // removed meanwhile
                Err(e) => return Err(e),
            }
        }
        Ok(all)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        match self.dir.unlink(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        read(&*self.file(name)?, range, sink)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        let mut tagging = Tagging::default();
        self.get(name, &mut |piece| {
            tagging.add(piece);
            sink(piece)
        })?;
        Ok(tagging.tag())
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        let lock = self.lock()?;
        let tag = tag_of(body)?;
        if let Condition::Tagged(wanted) = condition {
            match self.get_tagged(name, &mut |_| Ok(())) {
                Ok(found) if found == *wanted => {}
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => return Ok(None),
            }
        }
        let unnamed = self.write(name, body)?;
        let is_named = match condition {
            Condition::Absent => self.name_new(&unnamed, name)?,
            Condition::Tagged(_) => self.dir.rename(&unnamed.name, name).map(|()| true)?,
        };
        if is_named {
            self.dir.sync()?;
        }
        drop(lock);
        Ok(is_named.then_some(tag))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        let lock = self.lock()?; // no conditional put is being written
        let names = self.dir.list()?;
        let removed = names.iter().filter(|name| is_unfinished(name)).try_for_each(|name| {
            match self.dir.unlink(name) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            }
        });
        drop(lock);
        removed
    }
}

#[cfg(test)]
mod tests;
