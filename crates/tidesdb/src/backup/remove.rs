//! Deletes generations, and objects that nothing names; makes the index again if it was lost.

use std::collections::{BTreeMap, BTreeSet};

use super::contents::Contents;
use super::fetch::SMALL_BYTES_MAX;
use super::index::{Entry, Index};
use super::names::{ObjectId, ObjectKind};
use super::writer::{self, Writer};
use super::{Generation, PrunePolicy, Pruned, Shared, Writing};
use crate::types::FILE_NUMBER_MAX;
use crate::{Error, Result};

pub(super) fn delete(shared: &Shared, number: u64) -> Result<()> {
    shared.with_writer(|writer| {
        writer.change(|index| {
            index.find(number)?;
            index.generations.retain(|entry| entry.number != number);
            Ok(())
        })?;
        writer.collect().map(drop)
    })
}

pub(super) fn prune(shared: &Shared, policy: &PrunePolicy) -> Result<Pruned> {
    if policy.keep_last == 0 && policy.keep_younger.is_zero() {
        return Err(Error::invalid(
            "a policy that keeps no generation; say how many, or how old ones, to keep",
        ));
    }
    let now = shared.now();
    shared.with_writer(|writer| {
        writer.check()?;
        let kept = kept(&writer.index.generations, policy, now);
        let goes = |entry: &Entry| !kept.contains(&entry.number);
        let generations: Vec<u64> =
            writer.index.generations.iter().filter(|entry| goes(entry)).map(|entry| entry.number).collect();
        if !generations.is_empty() {
            writer.change(|index| {
                index.generations.retain(|entry| !goes(entry));
                Ok(())
            })?;
        }
        Ok(Pruned { generations, objects: writer.collect()? })
    })
}

/// The numbers of the generations that stay.
fn kept(all: &[Entry], policy: &PrunePolicy, now: u64) -> BTreeSet<u64> {
    /// What newer generations of a database are kept.
    #[derive(Default)]
    struct Newer {
        whole: u64,
        has_proven: bool,
    }
    let mut kept = BTreeSet::new();
    let mut of_database: BTreeMap<[u8; 16], Newer> = BTreeMap::new();
    let is_proven = |entry: &Entry| entry.proven != 0 && entry.failed == 0;
    let proven: BTreeSet<[u8; 16]> = all.iter().filter(|e| is_proven(e)).map(|e| e.uuid).collect();
    let age_max = u64::try_from(policy.keep_younger.as_millis()).unwrap_or(u64::MAX);
    for entry in all.iter().rev() {
        let newer = of_database.entry(entry.uuid).or_default();
        let (is_young, has_failed) = (now.saturating_sub(entry.created) < age_max, entry.failed != 0);
        // One of each database stays in any case: the newest that is proven, or that no proof has refuted.
        let is_last = match proven.contains(&entry.uuid) {
            true => is_proven(entry) && !newer.has_proven,
            false => !has_failed && newer.whole == 0,
        };
        if is_young || is_last || !has_failed && newer.whole < policy.keep_last {
            kept.insert(entry.number);
        }
        newer.whole += u64::from(!has_failed);
        newer.has_proven |= is_proven(entry);
    }
    kept
}

pub(super) fn repair(shared: &Shared) -> Result<Vec<Generation>> {
    let store = &*shared.store;
    let mut writing = shared.writer.lock();
    if matches!(&*writing, Writing::Yes(writer) if writer.pinned.is_some()) {
        return Err(Error::Busy { cause: "a generation that is being made" });
    }
    let damaged = match writer::read_raw(store)? {
        Some((bytes, tag)) => match Index::decode(&bytes) {
            Ok(_) => return Err(Error::Exists { what: "an intact index of the backups".into() }),
            Err(Error::Corrupt { .. }) => Some(tag),
            Err(e) => return Err(e),
        },
        None => None,
    };
    let lengths = writer::list(store)?;
    let mut found: BTreeMap<u64, Entry> = BTreeMap::new();
    for id in lengths.keys().filter(|id| id.kind == ObjectKind::Generation) {
        // Of two with one number, the later one counts: the other one was not finished. None has the last number: there must be a next one.
        if let Some(entry) = whole(shared, *id, &lengths)?
            && entry.number < FILE_NUMBER_MAX
        {
            found.insert(entry.number, entry);
        }
    }
    let writer = lengths.keys().map(|id| id.writer).max().unwrap_or(0);
    let next = found.keys().last().map_or(1, |number| number + 1);
    let index = Index { writer, next, generations: found.into_values().collect(), ..Index::default() };
    let generations = index.generations.iter().map(Entry::generation).collect();
    let taken = Writer::take_over(&shared.store, &shared.env, Some((index, damaged)))?;
    *writing = Writing::Yes(Box::new(taken));
    Ok(generations)
}

/// Returns what the index must say of the generation that the object `id` describes; `None` if that is damaged, or an object is missing.
fn whole(shared: &Shared, id: ObjectId, lengths: &BTreeMap<ObjectId, u64>) -> Result<Option<Entry>> {
    if lengths.get(&id).is_none_or(|bytes| *bytes > SMALL_BYTES_MAX) {
        return Ok(None); // no generation has such a description
    }
    let (name, mut bytes) = (id.to_string(), Vec::new());
    let read = shared.store.get(&name, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|e| Error::io("read", &format!("object {name}"), e))?,
    }
    let contents = match Contents::decode(&bytes, &name) {
        Err(Error::Corrupt { .. }) => return Ok(None),
        decoded => decoded?,
    };
    let mut parts = contents.files.iter().flat_map(|file| &file.parts);
    let is_whole = parts.all(|part| lengths.get(&part.object) == Some(&part.bytes));
    Ok(is_whole.then(|| contents.entry(id, &bytes)))
}
