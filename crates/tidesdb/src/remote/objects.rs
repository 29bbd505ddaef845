//! What is known about the content of a store: listed once at open, updated by each upload.
//!
//! Only objects that the manifest in the store names are trusted to hold the bytes that their names promise. Others are
//! leftovers of unfinished uploads, and a later database may use their names for other bytes. They are overwritten or
//! deleted, never read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::names::{self, Stored};
use crate::order;

use crate::files::{self, CURRENT, FileKind};
use crate::store::{Object, ObjectStore};

/// A part of a file, stored as one object.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePart {
    /// Offset in the file.
    pub(super) offset: u64,
    /// Length.
    pub(super) bytes: u64,
}

/// Content of a store.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Names of all objects of the database, including those being written.
    present: BTreeSet<String>,
    /// Trusted parts of each file, without a gap from offset 0 on.
    trusted: BTreeMap<String, Vec<FilePart>>,
    /// The part of each file that was begun behind these: the store may have it, or get it late.
    tried: BTreeMap<String, FilePart>,
    generation: u64,
}

impl Objects {
    /// Lists `store`. At first only `CURRENT` and manifests are trusted, because they carry checksums and salts.
    ///
    /// # Errors
    /// Errors of the store.
    pub(super) fn list(store: &dyn ObjectStore) -> io::Result<(Self, Vec<Object>)> {
        let all = store.list()?;
        let ours: Vec<Object> = all.into_iter().filter(|o| names::parse(&o.name).is_some()).collect();
        let mut this = Self { present: ours.iter().map(|o| o.name.clone()).collect(), ..Self::default() };
        let small = |kind| matches!(kind, Some(FileKind::Current | FileKind::Manifest(_)));
        this.trust(&ours, |file| small(files::parse(file)));
        Ok((this, ours))
    }

    /// Trusts the parts in `listed` of the files selected by `named`, up to the first gap of each file.
    pub(super) fn trust(&mut self, listed: &[Object], named: impl Fn(&str) -> bool) {
        let mut parts: Vec<(Stored, u64)> =
            listed.iter().filter_map(|o| Some((names::parse(&o.name)?, o.bytes))).collect();
        order::sort_by(&mut parts, |(a, _), (b, _)| (&a.file, a.offset).cmp(&(&b.file, b.offset)));
        for (part, bytes) in parts.into_iter().filter(|(part, _)| named(&part.file)) {
            if part.offset == self.stored(&part.file) {
                self.add(&part.file, part.offset, bytes);
            }
        }
    }

    /// Records that an object is about to be written: even if the call fails, the object may exist.
    pub(super) fn begin(&mut self, object: &str) {
        self.present.insert(object.to_owned());
    }

    /// Returns the next part of `file` to store, of the bytes below `len`, or `None` if the store has all of them. A part that was tried is
    /// tried again with the same bytes: a server that carries out the first request late would else put fewer bytes in the place of more.
    pub(super) fn next_part(&mut self, file: &str, len: u64) -> Option<FilePart> {
        let offset = self.stored(file);
        if self.tried.get(file).is_none_or(|tried| tried.offset != offset) {
            let bytes = len.checked_sub(offset).filter(|bytes| *bytes > 0)?;
            self.tried.insert(file.to_owned(), FilePart { offset, bytes });
        }
        self.tried.get(file).copied()
    }

    /// Records that `bytes` bytes of `file` from `offset` on were stored.
    pub(super) fn add(&mut self, file: &str, offset: u64, bytes: u64) {
        self.tried.remove(file);
        let parts = self.trusted.entry(file.to_owned()).or_default();
        parts.retain(|part| part.offset < offset);
        parts.push(FilePart { offset, bytes });
    }

    /// Records that `CURRENT` names this manifest now.
    pub(super) fn set_generation(&mut self, number: u64) {
        self.generation = number;
    }

    /// Returns the number of the manifest that `CURRENT` names; 0 = none.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether the store holds a database.
    pub(super) fn has_database(&self) -> bool {
        self.present.contains(CURRENT)
    }

    /// Returns how many bytes of `file` are stored.
    pub(super) fn stored(&self, file: &str) -> u64 {
        self.parts(file).last().map_or(0, |part| part.offset + part.bytes)
    }

    /// Returns whether `file` is stored, possibly with zero bytes.
    pub(super) fn has(&self, file: &str) -> bool {
        self.trusted.contains_key(file)
    }

    /// Returns the parts of `file`.
    pub(super) fn parts(&self, file: &str) -> &[FilePart] {
        self.trusted.get(file).map_or(&[], Vec::as_slice)
    }

    fn trusts(&self, part: &Stored) -> bool {
        self.parts(&part.file).iter().any(|trusted| trusted.offset == part.offset)
    }

    /// Returns the trusted files.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.trusted.keys().map(String::as_str)
    }

    /// Returns the objects that hold no needed data: those of files that `needed` rejects, and untrusted parts of
    /// trusted files.
    pub(super) fn garbage(&self, needed: impl Fn(&str) -> bool) -> Vec<String> {
        let is_garbage = |name: &&String| match names::parse(name) {
            Some(part) if needed(&part.file) => self.has(&part.file) && !self.trusts(&part),
            Some(_) => true,
            None => false,
        };
        self.present.iter().filter(is_garbage).cloned().collect()
    }

    /// Records that an object was deleted.
    pub(super) fn remove(&mut self, object: &str) {
        self.present.remove(object);
        if let Some(part) = names::parse(object)
            && self.trusts(&part)
        {
            self.trusted.remove(&part.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, bytes: u64) -> Object {
        Object { name: name.into(), bytes }
    }

    #[test]
    fn parts_are_trusted_up_to_the_first_gap() {
        let mut objects = Objects::default();
        let listed = [
            object("000001.vlog.000000000010", 5),
            object("000001.vlog.000000000000", 10),
            object("000001.vlog.000000000016", 5),
            object("000002.vlog.000000000000", 7),
        ];
        listed.iter().for_each(|o| objects.begin(&o.name));
        objects.trust(&listed, |file| file == "000001.vlog");
        assert_eq!((objects.stored("000001.vlog"), objects.stored("000002.vlog")), (15, 0));
        let garbage = objects.garbage(|file| file == "000001.vlog");
        assert_eq!(garbage, ["000001.vlog.000000000016", "000002.vlog.000000000000"]);
    }
}
