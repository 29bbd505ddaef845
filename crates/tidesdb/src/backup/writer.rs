//! The writer of a store: takes it over, and changes its index until another writer does.
//!
//! ```text
//! take over   read the index -> try the conditional puts of the store -> put the index with the next number of a writer, if it is unchanged
//! change      put the index with the change, if it is what this writer has put last
//! ```
//!
//! A put may fail although the store has the object. So after a failure the index is read: it is what this writer tried to put, which
//! it knows by the salt, or what it was before, and then it is put again; or another writer has replaced it. An object counts as put only if
//! a put of it has succeeded, because a directory may show a name that is not durable.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use tidesdb_io::Env;

use super::contents::{Contents, StoredFile};
use super::fetch::{self, SMALL_BYTES_MAX, Wanted};
use super::index::{Entry, Index};
use super::names::{INDEX, ObjectId, ObjectKind, PROBE};
use crate::codec::Salt;
use crate::order::{self, Gather};
use crate::store::{Body, Condition, ObjectStore, Tag};
use crate::types::FILE_NUMBER_MAX;
use crate::{Error, Result};

/// Puts of the index that are tried until one succeeds.
const TRIES: u32 = 4;

/// The state of the writer, while it may change the index.
#[derive(Debug)]
pub(super) struct Writer {
    store: Arc<dyn ObjectStore>,
    env: Env,
    /// As the store has it.
    pub(super) index: Index,
    tag: Tag,
    /// The salts of the index that this writer has put last and of those that it has tried to put since.
    own: Vec<Salt>,
    next_object: u64,
    /// Set if a put of the index failed and the index could not be read either: it may have the change.
    is_unsure: bool,
    /// Set while a generation is made: the objects that it may name.
    pub(super) pinned: Option<BTreeSet<ObjectId>>,
    /// The files of generations, by the objects that describe these.
    known: BTreeMap<ObjectId, Arc<[StoredFile]>>,
}

/// Reads the index; `None` if the store has none.
///
/// # Errors
/// `Corrupt`, `FormatTooNew`, `Io`; `InvalidArgument` if the store has no tags.
pub(super) fn read_index(store: &dyn ObjectStore) -> Result<Option<(Index, Tag)>> {
    match read_raw(store)? {
        Some((bytes, tag)) => Ok(Some((Index::decode(&bytes)?, tag))),
        None => Ok(None),
    }
}

/// Reads the index, whatever is in it.
///
/// # Errors
/// `Io`; `InvalidArgument` for a store without tags.
pub(super) fn read_raw(store: &dyn ObjectStore) -> Result<Option<(Vec<u8>, Tag)>> {
    let mut bytes = Vec::new();
    let read = store.get_tagged(INDEX, &mut |piece| {
        bytes.extend_from_slice(piece);
        match bytes.len() as u64 <= SMALL_BYTES_MAX {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is longer than an index can be")),
        }
    });
    match read {
        Ok(tag) => Ok(Some((bytes, tag))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(of_store("read", INDEX, e)),
    }
}

/// The error of a call for an object.
pub(super) fn of_store(op: &'static str, object: &str, e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::Unsupported => Error::invalid(format!(
            "the object store cannot hold backups, because two writers could not be told apart: {e}"
        )),
        _ => Error::io(op, &format!("object {object}"), e),
    }
}

/// Lists the objects of the store that have a number, with their lengths.
///
/// # Errors
/// `Io`.
pub(super) fn list(store: &dyn ObjectStore) -> Result<BTreeMap<ObjectId, u64>> {
    let all = store.list().map_err(|e| Error::io("list", "the objects of the store", e))?;
    Ok(all.into_iter().filter_map(|object| Some((ObjectId::parse(&object.name)?, object.bytes))).gather())
}

/// Returns what a generation consists of.
///
/// # Errors
/// `Corrupt` if its object is missing or damaged; `FormatTooNew`, `Io`.
pub(super) fn contents(store: &dyn ObjectStore, env: &Env, entry: &Entry) -> Result<Contents> {
    let name = entry.object_id().to_string();
    let wanted = Wanted { name: name.clone(), bytes: entry.object_bytes, crc: entry.object_crc };
    let bytes = fetch::small(store, &*env.clock, &wanted)?;
    let contents = Contents::decode(&bytes, &format!("object {name}"))?;
    if contents.number != entry.number || contents.identity.uuid != entry.uuid {
        return Err(Error::corrupt(&format!("object {name}"), 0, "it describes another generation"));
    }
    Ok(contents)
}

fn taken_over(by: u64) -> Error {
    Error::Locked {
        dir: "the store of the backups".into(),
        what: format!("writer {by} has taken it over since; open it again to take it back").into(),
    }
}

/// Finds out whether the store keeps its promise about conditional puts.
///
/// # Errors
/// `InvalidArgument` if it does not; `Io`.
fn try_conditions(store: &dyn ObjectStore, env: &Env) -> Result<()> {
    let ignored = |what: &str| {
        Error::invalid(format!(
            "the object store ignores the condition of a put ({what}), so that two writers could destroy each other's backups"
        ))
    };
    let is_final = |kind: io::ErrorKind| {
        use io::ErrorKind::{InvalidInput, PermissionDenied, TimedOut, Unsupported};
        matches!(kind, InvalidInput | PermissionDenied | TimedOut | Unsupported)
    };
    // An answer that was lost is no reason to give up: whether the object was put makes no difference here.
    let put = |condition: Condition<'_>| {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match store.put_if(PROBE, &Body::bytes(&env.entropy.salt()), condition) {
                Err(e) if tries == 0 || is_final(e.kind()) => return Err(of_store("put", PROBE, e)),
                Err(_) => {}
                Ok(put) => return Ok(put),
            }
        }
    };
    put(Condition::Absent)?; // whether this makes the object or finds it: from now on there is one, which nobody removes
    if put(Condition::Absent)?.is_some() {
        return Err(ignored("that there is no object of the name"));
    }
    // Another writer may try at the same time.
    for _ in 0..TRIES {
        let old = store.get_tagged(PROBE, &mut |_| Ok(())).map_err(|e| of_store("read", PROBE, e))?;
        if put(Condition::Tagged(&old))?.is_some() {
            return match put(Condition::Tagged(&old))? {
                Some(_) => Err(ignored("that the object is unchanged")),
                None => Ok(()),
            };
        }
    }
    Err(Error::Busy { cause: "other writers that take over the store of the backups" })
}

impl Writer {
    /// Takes the store over. With `repaired`, its index becomes this one, in the place of the damaged one with this tag.
    ///
    /// # Errors
    /// `Corrupt` if the index is damaged or missing; `InvalidArgument` for a store without conditional puts; `Locked` if another writer takes
    /// it over at the same time; `Io`.
    pub(super) fn take_over(
        store: &Arc<dyn ObjectStore>,
        env: &Env,
        repaired: Option<(Index, Option<Tag>)>,
    ) -> Result<Self> {
        try_conditions(&**store, env)?;
        let (index, tag) = match repaired {
            Some(repaired) => repaired,
            None => match read_index(&**store)? {
                Some((index, tag)) => (index, Some(tag)),
                None if list(&**store)?.is_empty() => (Index { next: 1, ..Index::default() }, None),
                None => {
                    let what = "missing, although there are objects of generations; repair the store";
                    return Err(Error::corrupt(INDEX, 0, what));
                }
            },
        };
        // Also above what is left of writers whose index was lost.
        let used = list(&**store)?.into_keys().map(|id| id.writer).max().unwrap_or(0).max(index.writer);
        if used >= FILE_NUMBER_MAX {
            return Err(Error::Exhausted { what: "numbers of writers".into() });
        }
        let mut this = Self {
            store: Arc::clone(store),
            env: env.clone(),
            index: Index { writer: used + 1, ..index },
            tag: Tag(String::new()),
            own: Vec::new(),
            next_object: 0,
            is_unsure: false,
            pinned: None,
            known: BTreeMap::new(),
        };
        let index = this.index.clone();
        (this.index, this.tag) = this.put_index(index, tag)?;
        if let Err(error) = store.remove_unfinished() {
            tracing::warn!(%error, "puts that never ended have left something in the store of the backups");
        }
        Ok(this)
    }

    /// Puts `index` in the place of the one with this tag.
    fn put_index(&mut self, mut index: Index, mut tag: Option<Tag>) -> Result<(Index, Tag)> {
        let (mut tried, mut last) = (Vec::<Salt>::new(), None);
        for _ in 0..TRIES {
            index.salt = self.env.entropy.salt();
            tried.push(index.salt);
            self.own.push(index.salt);
            let bytes = index.encode();
            let condition = tag.as_ref().map_or(Condition::Absent, Condition::Tagged);
            match self.store.put_if(INDEX, &Body::bytes(&bytes), condition) {
                Ok(Some(tag)) => {
                    self.own = vec![index.salt];
                    return Ok((index, tag));
                }
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::Unsupported => return Err(of_store("put", INDEX, e)),
                Err(e) => last = Some(of_store("put", INDEX, e)),
            }
            match read_index(&*self.store)? {
                Some((found, now)) if tried.contains(&found.salt) => tag = Some(now),
                Some((_, now)) if tag.as_ref() == Some(&now) => {}
                None if tag.is_none() => {}
                Some((found, _)) => return Err(taken_over(found.writer)),
                None => return Err(Error::corrupt(INDEX, 0, "it has been removed meanwhile")),
            }
        }
        Err(last.unwrap_or(Error::Busy { cause: "the index of the backups" }))
    }

    /// Changes the index.
    ///
    /// # Errors
    /// `Locked` if another writer has taken the store over; those of `change`; `Io`, after which the index is unchanged, or has the change.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Index) -> Result<R>) -> Result<R> {
        self.settle()?;
        let mut index = self.index.clone();
        let result = change(&mut index)?;
        match self.put_index(index, Some(self.tag.clone())) {
            Ok(put) => (self.index, self.tag) = put,
            Err(e) => {
                self.is_unsure = true;
                let _ = self.settle(); // it is tried again before the index is used
                return Err(e);
            }
        }
        Ok(result)
    }

    /// If the index may have a change that this writer does not know of, reads it, and puts it again as it is: then a put that is still on its way
    /// comes too late. Otherwise objects that it names could be removed.
    ///
    /// # Errors
    /// As [`Writer::check`]; those of the put.
    fn settle(&mut self) -> Result<()> {
        if self.is_unsure {
            self.check()?;
            (self.index, self.tag) = self.put_index(self.index.clone(), Some(self.tag.clone()))?;
            self.is_unsure = false;
        }
        Ok(())
    }

    /// Reads the index, and checks that no other writer has taken the store over.
    ///
    /// # Errors
    /// `Locked`, `Corrupt`, `Io`.
    pub(super) fn check(&mut self) -> Result<()> {
        match read_index(&*self.store)? {
            // Of two writers with one number, after an index was lost or put back, only one has put this one.
            Some((found, tag)) if found.writer == self.index.writer && self.own.contains(&found.salt) => {
                (self.index, self.tag) = (found, tag);
                Ok(())
            }
            Some((found, _)) => Err(taken_over(found.writer)),
            None => Err(Error::corrupt(INDEX, 0, "it has been removed meanwhile")),
        }
    }

    /// Returns a name for a new object, which is not removed as long as a generation is being made.
    pub(super) fn name_object(&mut self, kind: ObjectKind) -> ObjectId {
        let id = ObjectId { writer: self.index.writer, number: self.next_object, kind };
        self.next_object += 1;
        if let Some(pinned) = &mut self.pinned {
            pinned.insert(id);
        }
        id
    }

    /// Returns the files of a generation of the index.
    ///
    /// # Errors
    /// As [`contents`].
    pub(super) fn files(&mut self, entry: &Entry) -> Result<Arc<[StoredFile]>> {
        let id = entry.object_id();
        if let Some(known) = self.known.get(&id) {
            return Ok(Arc::clone(known));
        }
        let found: Arc<[StoredFile]> = contents(&*self.store, &self.env, entry)?.files.into();
        self.known.insert(id, Arc::clone(&found));
        Ok(found)
    }

    /// Removes the objects that neither a generation of the index names nor one that is being made. Returns how many.
    ///
    /// # Errors
    /// `Corrupt` if the object of a generation cannot be read: what it names is not known, so nothing is removed. `Io`.
    pub(super) fn collect(&mut self) -> Result<u64> {
        self.settle()?;
        let entries = self.index.generations.clone();
        let mut named: BTreeSet<ObjectId> = self.pinned.iter().flatten().copied().gather();
        for entry in &entries {
            named.insert(entry.object_id());
            named.extend(self.files(entry)?.iter().flat_map(StoredFile::objects));
        }
        self.known.retain(|id, _| named.contains(id));
        let is_garbage = |id: &ObjectId| !named.contains(id) && id.writer <= self.index.writer;
        let mut garbage: Vec<ObjectId> = list(&*self.store)?.into_keys().filter(is_garbage).collect();
        // A repair finds generations by these objects, so they go first.
        order::sort_by_key(&mut garbage, |id| id.kind != ObjectKind::Generation);
        for id in &garbage {
            // A store that is away would make each of them wait. The next change removes what is left.
            let name = id.to_string();
            self.store.delete(&name).map_err(|e| Error::io("delete", &format!("object {name}"), e))?;
        }
        Ok(garbage.len() as u64)
    }
}
