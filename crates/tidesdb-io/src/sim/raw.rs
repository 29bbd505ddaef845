//! Raw access for tests: reads and changes the content of a disk without passing the gate or counting a call.

use std::io;
use std::path::Path;

use super::bytes::{Bytes, MAX_LEN};
use super::disk::{SimDisk, State};
use super::inode::Inode;
use super::world::{Id, Node};
use crate::system::Errno;
use crate::system::reach::Reach;

impl State {
    /// Finds the file at `path`.
    pub(super) fn find(&self, path: &Path) -> io::Result<Id> {
        let (dir, name) = self.parent(path)?;
        Ok(self.world.lookup_file(dir, name)?)
    }

    fn parent<'p>(&self, path: &'p Path) -> io::Result<(Id, &'p str)> {
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL)?;
        let walk = self.world.walk(path.parent().unwrap_or(Path::new("/")));
        walk.end?;
        Ok((walk.dir, name))
    }

    fn inode(&mut self, path: &Path) -> io::Result<&mut Inode> {
        let id = self.find(path)?;
        Ok(self.world.file_mut(id)?)
    }
}

impl SimDisk {
    /// Returns all bytes of a file, as reads see them.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        Ok(self.state.lock().inode(path.as_ref())?.cached.to_vec())
    }

    /// Replaces the content of a file with `bytes`, durably. Its directory must exist. If the file is new, its
    /// name and every other pending change of that directory become durable too.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let path = path.as_ref();
        let mut state = self.state.lock();
        let (dir, name) = state.parent(path)?;
        let id = match state.world.lookup_file(dir, name) {
            Err(Errno::NOENT) => {
                let id = state.world.create(dir, name, 0)?;
                state.world.sync_dir(dir, Reach::Device)?;
                id
            }
            found => found?,
        };
        let mut content = Bytes::default();
        content.write(0, bytes);
        *state.world.file_mut(id)? = Inode::clean(content);
        Ok(())
    }

    /// Removes the name of a file durably, together with every other pending change of its directory.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut state = self.state.lock();
        let (dir, name) = state.parent(path.as_ref())?;
        state.world.unlink(dir, name)?;
        state.world.sync_dir(dir, Reach::Device)?;
        state.collect();
        Ok(())
    }

    /// Returns the names of the regular files of a directory, in order.
    ///
    /// # Errors
    /// `NotFound` if there is no such directory.
    pub fn file_names(&self, dir: impl AsRef<Path>) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        let walk = state.world.walk(dir.as_ref());
        walk.end?;
        let names = state.world.dir(walk.dir)?.cached.iter();
        Ok(names
            .filter(|(_, node)| matches!(node, Node::File(_)))
            .map(|(name, _)| name.to_string())
            .collect())
    }

    /// Corrupts a byte: `change` gets the byte at `offset`, durable and cached, and returns its new value.
    /// Offsets past the end are ignored.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, change: impl Fn(u8) -> u8) -> io::Result<()> {
        self.state.lock().inode(path.as_ref())?.damage(|bytes| {
            let old = bytes.range(offset, 1);
            bytes.overwrite(offset, &old.iter().map(|&b| change(b)).collect::<Vec<_>>());
        });
        Ok(())
    }

    /// Flips bit `bit` of a file, counted from the lowest bit of its first byte.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn flip_bit(&self, path: impl AsRef<Path>, bit: u64) -> io::Result<()> {
        self.corrupt(path, bit / 8, |byte| byte ^ (1 << (bit % 8)))
    }

    /// Truncates a file, or extends it with zeros, durably and without its user's knowledge.
    ///
    /// # Errors
    /// `NotFound` if there is no such file, `FileTooLarge` for a length above the longest file.
    pub fn truncate_file(&self, path: impl AsRef<Path>, len: u64) -> io::Result<()> {
        if len > MAX_LEN {
            return Err(Errno::FBIG.into());
        }
        self.state.lock().inode(path.as_ref())?.damage(|bytes| bytes.set_len(len));
        Ok(())
    }

    /// Swaps `len` bytes at `a` with those at `b`, as if the disk had mixed up two blocks. Ranges that overlap
    /// or pass the end are ignored.
    ///
    /// # Errors
    /// `NotFound` if there is no such file.
    pub fn swap_ranges(&self, path: impl AsRef<Path>, a: u64, b: u64, len: u64) -> io::Result<()> {
        self.state.lock().inode(path.as_ref())?.damage(|bytes| {
            let fits = |start: u64| start.checked_add(len).is_some_and(|end| end <= bytes.len());
            if a.abs_diff(b) < len || !fits(a) || !fits(b) {
                return;
            }
            let (at_a, at_b) = (bytes.range(a, len), bytes.range(b, len));
            bytes.overwrite(a, &at_b);
            bytes.overwrite(b, &at_a);
        });
        Ok(())
    }
}
