//! The content of a simulated disk: directories and files, with all pending changes. Cloning is cheap.
//!
//! Invariants: directory `ROOT` exists and no entry points to it; every entry, durable, cached or pending,
//! points to a live node; `seq` numbers all changes of the whole disk in order. Errors are those of the real
//! system.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::sync::Arc;

use super::inode::Inode;
use crate::system::Errno;
use crate::system::reach::Reach;

pub(super) type Id = u64;

pub(super) const ROOT: Id = 0;

/// The file or directory that a name refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(Id),
    Dir(Id),
}

pub(super) type Names = BTreeMap<Arc<str>, Node>;

/// A name change that is not durable yet.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Set { name: Arc<str>, node: Node },
    Remove { name: Arc<str>, node: Node },
    Rename { from: Arc<str>, to: Arc<str>, node: Node },
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Set { name, node } => {
                names.insert(Arc::clone(name), *node);
            }
            Self::Remove { name, node } => remove_if(names, name, *node),
            Self::Rename { from, to, node } => {
                remove_if(names, from, *node);
                names.insert(Arc::clone(to), *node);
            }
        }
    }

    fn node(&self) -> Node {
        match self {
            Self::Set { node, .. } | Self::Remove { node, .. } | Self::Rename { node, .. } => *node,
        }
    }
}

/// Removes `name` if it refers to `node`. If an earlier change was lost, the name may refer to another node,
/// which stays.
fn remove_if(names: &mut Names, name: &str, node: Node) {
    if names.get(name) == Some(&node) {
        names.remove(name);
    }
}

/// A [`NameChange`], its number, and that of the sync that handed it to the device.
#[derive(Clone, Debug)]
pub(super) struct PendingName {
    pub(super) seq: u64,
    pub(super) handed: Option<u64>,
    pub(super) change: NameChange,
}

/// Returns whether a change with this `handed` was given to the device by sync `last` or an earlier one.
pub(super) fn is_handed(handed: Option<u64>, last: u64) -> bool {
    handed.is_some_and(|sync| sync <= last)
}

/// The names of a directory. All of `pending` applied to `durable` gives `cached`, but for names that a kill has removed: see
/// [`World::remove_after_kill`].
#[derive(Clone, Debug, Default)]
pub(super) struct DirNode {
    pub(super) durable: Names,
    pub(super) cached: Names,
    pub(super) pending: Vec<PendingName>,
}

impl DirNode {
    fn nodes(&self) -> impl Iterator<Item = Node> {
        let pending = self.pending.iter().map(|pending| pending.change.node());
        self.durable.values().chain(self.cached.values()).copied().chain(pending)
    }

    /// Returns whether a sync would change nothing.
    pub(super) fn is_durable(&self) -> bool {
        self.pending.is_empty() && self.cached == self.durable
    }

    /// Makes all names durable.
    fn sync(&mut self) {
        self.durable = self.cached.clone();
        self.pending.clear();
    }

    /// Makes durable what was handed to the device by sync `last` or earlier ones: a sync hands over all that is pending.
    fn settle(&mut self, last: u64) {
        let end = self.pending.iter().take_while(|pending| is_handed(pending.handed, last)).count();
        self.pending.drain(..end).for_each(|pending| pending.change.apply(&mut self.durable));
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) files: BTreeMap<Id, Arc<Inode>>,
    pub(super) dirs: BTreeMap<Id, Arc<DirNode>>,
    /// Number of boots of the machine.
    pub(super) boots: u64,
    /// Number of times that the file system was mounted again without a boot.
    pub(super) mounts: u64,
    /// Syncs since the last one that reached the device after which the device keeps the order: their numbers.
    pub(super) barriers: Vec<u64>,
    /// Whether the device may have changes in its cache.
    device_caches: bool,
    next_id: Id,
    seq: u64,
}

/// The result of resolving a path.
#[derive(Debug)]
pub(super) struct Resolved<'p> {
    /// The last directory found, and its parent (the root is its own parent).
    pub(super) dir: Id,
    pub(super) parent: Id,
    /// The names that were not found, if `end` is `NOENT`.
    pub(super) missing: Vec<&'p str>,
    pub(super) end: Result<()>,
}

type Result<T> = std::result::Result<T, Errno>;

impl World {
    pub(super) fn new() -> Self {
        Self::of(BTreeMap::new(), BTreeMap::from([(ROOT, Arc::default())]))
    }

    fn of(files: BTreeMap<Id, Arc<Inode>>, dirs: BTreeMap<Id, Arc<DirNode>>) -> Self {
        Self {
            files,
            dirs,
            boots: 1,
            mounts: 0,
            barriers: Vec::new(),
            device_caches: false,
            next_id: ROOT + 1,
            seq: 0,
        }
    }

    /// Builds a disk of the given content after another boot of the machine. Continues the numbering of `self`.
    pub(super) fn rebuilt(&self, files: BTreeMap<Id, Arc<Inode>>, dirs: BTreeMap<Id, Arc<DirNode>>) -> Self {
        Self {
            boots: self.boots + 1,
            mounts: self.mounts,
            next_id: self.next_id,
            seq: self.seq,
            ..Self::of(files, dirs)
        }
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn next_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(super) fn file(&self, id: Id) -> Result<&Inode> {
        self.files.get(&id).map(|file| &**file).ok_or(Errno::BADF)
    }

    pub(super) fn file_mut(&mut self, id: Id) -> Result<&mut Inode> {
        self.files.get_mut(&id).map(Arc::make_mut).ok_or(Errno::BADF)
    }

    pub(super) fn dir(&self, id: Id) -> Result<&DirNode> {
        self.dirs.get(&id).map(|dir| &**dir).ok_or(Errno::BADF)
    }

    fn dir_mut(&mut self, id: Id) -> Result<&mut DirNode> {
        self.dirs.get_mut(&id).map(Arc::make_mut).ok_or(Errno::BADF)
    }

    fn change(&mut self, dir: Id, change: NameChange) -> Result<()> {
        let seq = self.next_seq();
        let dir = self.dir_mut(dir)?;
        change.apply(&mut dir.cached);
        dir.pending.push(PendingName { seq, handed: None, change });
        Ok(())
    }

    /// Returns the node that `name` refers to in directory `dir`.
    pub(super) fn lookup(&self, dir: Id, name: &str) -> Result<Node> {
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG);
        }
        self.dir(dir)?.cached.get(name).copied().ok_or(Errno::NOENT)
    }

    /// Returns the file called `name`.
    pub(super) fn lookup_file(&self, dir: Id, name: &str) -> Result<Id> {
        match self.lookup(dir, name)? {
            Node::File(id) => Ok(id),
            Node::Dir(_) => Err(Errno::ISDIR),
        }
    }

    fn absent(&self, dir: Id, name: &str) -> Result<()> {
        match self.lookup(dir, name) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    pub(super) fn create(&mut self, dir: Id, name: &str, len: u64) -> Result<Id> {
        self.absent(dir, name)?;
        let (id, seq) = (self.next_id(), self.next_seq());
        let mut file = Inode::default();
        file.allocate(seq, 0..len);
        self.files.insert(id, Arc::new(file));
        self.change(dir, NameChange::Set { name: name.into(), node: Node::File(id) })?;
        Ok(id)
    }

    pub(super) fn make_dir(&mut self, dir: Id, name: &str) -> Result<Id> {
        self.absent(dir, name)?;
        let id = self.next_id();
        self.dirs.insert(id, Arc::default());
        self.change(dir, NameChange::Set { name: name.into(), node: Node::Dir(id) })?;
        Ok(id)
    }

    pub(super) fn unlink(&mut self, dir: Id, name: &str) -> Result<()> {
        let node = Node::File(self.lookup_file(dir, name)?);
        self.change(dir, NameChange::Remove { name: name.into(), node })
    }

    /// Removes a name that stayed because its file was open, when the process that had it open is killed. If the power fails instead, the
    /// name stays, so this is no pending change.
    pub(super) fn remove_after_kill(&mut self, dir: Id, name: &str) {
        if let Ok(dir) = self.dir_mut(dir) {
            dir.cached.remove(name);
        }
    }

    /// Renames a file, and makes the new name durable as far as `reach` says.
    pub(super) fn rename(&mut self, dir: Id, from: &str, to: &str, reach: Reach) -> Result<()> {
        let node = Node::File(self.lookup_file(dir, from)?);
        match self.lookup(dir, to) {
            // Both names refer to one file: the call does nothing.
            Ok(target) if target == node => return Ok(()),
            Ok(Node::Dir(_)) => return Err(Errno::ISDIR),
            Ok(Node::File(_)) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        self.change(dir, NameChange::Rename { from: from.into(), to: to.into(), node })?;
        self.sync_dir(dir, reach)
    }

    pub(super) fn link(&mut self, dir: Id, name: &str, to: Id, to_name: &str) -> Result<()> {
        let node = Node::File(self.lookup_file(dir, name)?);
        self.absent(to, to_name)?;
        self.change(to, NameChange::Set { name: to_name.into(), node })
    }

    /// Syncs the names of a directory.
    pub(super) fn sync_dir(&mut self, dir: Id, reach: Reach) -> Result<()> {
        let sync = self.next_seq();
        match reach {
            Reach::Memory => return Ok(()),
            Reach::Cache | Reach::Barrier => {
                for name in &mut self.dir_mut(dir)?.pending {
                    name.handed = name.handed.or(Some(sync));
                }
            }
            Reach::Device | Reach::DeviceAndNames => self.dir_mut(dir)?.sync(),
        }
        self.reached(reach, sync);
        Ok(())
    }

    /// Syncs the bytes of a file, or a range of them: offset and length. No system hands a range to the cache of the device.
    pub(super) fn sync_file(&mut self, id: Id, reach: Reach, range: Option<(u64, u64)>) -> Result<()> {
        let sync = self.next_seq();
        match (reach, range) {
            (Reach::Memory, _) => return Ok(()),
            (Reach::Cache | Reach::Barrier, _) => self.file_mut(id)?.hand_over(sync),
            (_, Some((offset, len))) => self.file_mut(id)?.sync_range(offset, len),
            (_, None) => self.file_mut(id)?.sync(),
        }
        self.reached(reach, sync);
        Ok(())
    }

    /// Does what sync number `sync` does to the rest of the disk.
    fn reached(&mut self, reach: Reach, sync: u64) {
        match reach {
            Reach::Memory => {}
            Reach::Cache => self.device_caches = true,
            Reach::Barrier => {
                self.device_caches = true;
                self.barriers.push(sync);
            }
            Reach::Device | Reach::DeviceAndNames => {
                if std::mem::take(&mut self.device_caches) {
                    self.settle(sync);
                    self.barriers.clear();
                }
            }
        }
        if reach == Reach::DeviceAndNames {
            let changed = self.dirs.values_mut().filter(|dir| !dir.is_durable());
            changed.for_each(|dir| Arc::make_mut(dir).sync());
        }
    }

    /// Makes durable what was handed to the device by sync `last` or earlier ones.
    pub(super) fn settle(&mut self, last: u64) {
        self.files.values_mut().filter(|file| file.dirty()).for_each(|file| Arc::make_mut(file).settle(last));
        let changed = self.dirs.values_mut().filter(|dir| !dir.pending.is_empty());
        changed.for_each(|dir| Arc::make_mut(dir).settle(last));
    }

    /// Forgets the changes after number `last`: none of them came to the device.
    pub(super) fn forget_after(&mut self, last: u64) {
        let dirty = self.files.values_mut().filter(|file| file.dirty());
        dirty.for_each(|file| Arc::make_mut(file).forget_after(last));
        for dir in self.dirs.values_mut().filter(|dir| !dir.pending.is_empty()) {
            Arc::make_mut(dir).pending.retain(|name| name.seq <= last);
        }
    }

    /// Resolves a path from the root; `..` is resolved lexically.
    pub(super) fn walk<'p>(&self, path: &'p Path) -> Resolved<'p> {
        let mut walk = Resolved { dir: ROOT, parent: ROOT, missing: Vec::new(), end: Ok(()) };
        if path.as_os_str().is_empty() {
            return Resolved { end: Err(Errno::NOENT), ..walk };
        }
        let mut names: Vec<&str> = Vec::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => match name.to_str() {
                    Some(name) => names.push(name),
                    None => return Resolved { end: Err(Errno::ILSEQ), ..walk },
                },
                Component::ParentDir => drop(names.pop()),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            }
        }
        for depth in 0..names.len() {
            match self.lookup(walk.dir, names[depth]) {
                Ok(Node::Dir(id)) => walk = Resolved { dir: id, parent: walk.dir, ..walk },
                Ok(Node::File(_)) => return Resolved { end: Err(Errno::NOTDIR), ..walk },
                Err(e) => return Resolved { missing: names.split_off(depth), end: Err(e), ..walk },
            }
        }
        walk
    }

    /// Drops every file that is not open and has no name, whether durable, cached or pending.
    pub(super) fn collect(&mut self, is_open: impl Fn(Id) -> bool) {
        let mut named = BTreeSet::new();
        for node in self.dirs.values().flat_map(|dir| dir.nodes()) {
            if let Node::File(id) = node {
                named.insert(id);
            }
        }
        self.files.retain(|id, _| named.contains(id) || is_open(*id));
    }

    /// Sums what all files that have a name or are open take of the disk.
    pub(super) fn used(&self, is_open: impl Fn(Id) -> bool) -> u64 {
        let mut live = BTreeSet::new();
        for node in self.dirs.values().flat_map(|dir| dir.cached.values()) {
            if let Node::File(id) = node {
                live.insert(*id);
            }
        }
        let counted = self.files.iter().filter(|(id, _)| live.contains(id) || is_open(**id));
        counted.map(|(_, file)| file.blocks.bytes()).sum()
    }
}
