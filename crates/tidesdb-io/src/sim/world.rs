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

#[derive(Clone, Debug, Default)]
pub(super) struct DirNode {
    pub(super) durable: Names,
    pub(super) cached: Names,
    pub(super) pending: Vec<(u64, NameChange)>,
}

impl DirNode {
    fn nodes(&self) -> impl Iterator<Item = Node> {
        let pending = self.pending.iter().map(|(_, change)| change.node());
        self.durable.values().chain(self.cached.values()).copied().chain(pending)
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) files: BTreeMap<Id, Arc<Inode>>,
    pub(super) dirs: BTreeMap<Id, Arc<DirNode>>,
    /// Number of boots of the machine.
    pub(super) boots: u64,
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
        let dirs = BTreeMap::from([(ROOT, Arc::default())]);
        Self { files: BTreeMap::new(), dirs, boots: 1, next_id: ROOT + 1, seq: 0 }
    }

    /// Builds a disk of the given content after another boot of the machine. Continues the numbering of `self`.
    pub(super) fn rebuilt(&self, files: BTreeMap<Id, Arc<Inode>>, dirs: BTreeMap<Id, Arc<DirNode>>) -> Self {
        Self { files, dirs, boots: self.boots + 1, next_id: self.next_id, seq: self.seq }
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
        dir.pending.push((seq, change));
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

    pub(super) fn rename(&mut self, dir: Id, from: &str, to: &str) -> Result<()> {
        let node = Node::File(self.lookup_file(dir, from)?);
        match self.lookup(dir, to) {
            // Both names refer to one file: the call does nothing.
            Ok(target) if target == node => return Ok(()),
            Ok(Node::Dir(_)) => return Err(Errno::ISDIR),
            Ok(Node::File(_)) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        self.change(dir, NameChange::Rename { from: from.into(), to: to.into(), node })
    }

    pub(super) fn link(&mut self, dir: Id, name: &str, to: Id, to_name: &str) -> Result<()> {
        let node = Node::File(self.lookup_file(dir, name)?);
        self.absent(to, to_name)?;
        self.change(to, NameChange::Set { name: to_name.into(), node })
    }

    pub(super) fn sync_dir(&mut self, dir: Id) -> Result<()> {
        let dir = self.dir_mut(dir)?;
        dir.durable = dir.cached.clone();
        dir.pending.clear();
        Ok(())
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
