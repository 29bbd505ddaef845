//! Crash images: what may be on the disk after a power failure.
//!
//! Rule: a sector that was durable and not written since is unchanged, except under [`DataFate::PowersafeOff`].
//! A sector that was written since holds one of its versions in time: the durable one, the current one, or one
//! in between. The page cache holds only such versions, so no later write to a sector survives without the
//! earlier ones. Between sectors, every order is possible, except across a sync that asks the device for one ([`Reach::Barrier`]).
//!
//! [`Reach::Barrier`]: super::Reach::Barrier

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bytes::Bytes;
use super::inode::{Inode, Write};
use super::rng::Rng;
use super::world::{DirNode, Node, ROOT, World};

/// What happens to bytes that were written and not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DataFate {
    /// All are lost.
    Synced,
    /// All survive, as if only the process had died.
    All,
    /// Each aligned sector of `size` bytes (512 or 4096) is current with probability `keep`; otherwise it holds
    /// any earlier version since the last sync. A sector written through a map may also hold a partial copy.
    /// The length is the current one with probability one half, otherwise any length since the last sync.
    Sectors {
        /// Size of a sector in bytes.
        size: u64,
        /// Probability that a sector is current, 0 to 1.
        keep: f64,
    },
    /// All survive, but the last write of the whole disk is cut at a random byte.
    TornLast,
    /// Lengths are current, but data is lost: the part that grew reads as zeros.
    SizeNoData,
    /// Like `Sectors` of this size, but a sector with a pending write may hold garbage throughout.
    PowersafeOff {
        /// Size of a sector in bytes.
        size: u64,
    },
}

/// What happens to name changes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFate {
    /// All changes are lost.
    Synced,
    /// All survive.
    All,
    /// Each change survives or is lost independently; surviving changes apply in order. A rename is atomic.
    Subset,
    /// Like `Subset`, but bit `i` decides whether the `i`-th pending change of the disk survives. Used to visit
    /// all subsets.
    Mask(u64),
}

/// A state of the disk after a crash.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Image {
    /// Fate of bytes.
    pub data: DataFate,
    /// Fate of names.
    pub names: NameFate,
}

impl Image {
    /// Only what was synced.
    pub const SYNCED: Self = Self { data: DataFate::Synced, names: NameFate::Synced };
    /// Everything: the process died, but not the machine.
    pub const EVERYTHING: Self = Self { data: DataFate::All, names: NameFate::All };
    /// A selection of images for each crash point. A correct engine survives all of them.
    pub const STANDARD: [Self; 10] = [
        Self::SYNCED,
        Self::EVERYTHING,
        Self { data: DataFate::Sectors { size: 512, keep: 0.5 }, names: NameFate::Subset },
        Self { data: DataFate::Sectors { size: 512, keep: 0.9 }, names: NameFate::All },
        Self { data: DataFate::Sectors { size: 4096, keep: 0.5 }, names: NameFate::Subset },
        Self { data: DataFate::TornLast, names: NameFate::All },
        Self { data: DataFate::SizeNoData, names: NameFate::All },
        Self { data: DataFate::Synced, names: NameFate::All },
        Self { data: DataFate::All, names: NameFate::Subset },
        Self { data: DataFate::All, names: NameFate::Synced },
    ];
}

/// Builds the disk as it is found after a crash of `world`.
pub(super) fn build(world: &World, image: &Image, seed: u64) -> World {
    let mut rng = Rng::new(seed);
    let ordered = in_order(world, image, &mut rng);
    let world: &World = &ordered;
    let mut dirs = names_after(world, image.names, &mut rng);
    let mut files = BTreeSet::new();
    let mut live = BTreeSet::from([ROOT]);
    let mut todo = vec![ROOT];
    while let Some(dir) = todo.pop() {
        for node in dirs.get(&dir).into_iter().flat_map(|dir| dir.cached.values()) {
            match *node {
                Node::File(id) => drop(files.insert(id)),
                Node::Dir(id) if live.insert(id) => todo.push(id),
                Node::Dir(_) => {}
            }
        }
    }
    dirs.retain(|id, _| live.contains(id));
    let last = world.files.values().flat_map(|file| &file.writes).map(|w| w.seq).max();
    let files = world.files.iter().filter(|(id, _)| files.contains(id));
    let files = files.map(|(id, file)| (*id, file_after(file, image.data, last, &mut rng)));
    world.rebuilt(files.collect(), dirs)
}

/// Returns the disk as if the device had written up to one of the barriers: what was handed to it before is durable, and nothing has come to
/// it after the next one.
fn in_order<'w>(world: &'w World, image: &Image, rng: &mut Rng) -> Cow<'w, World> {
    if world.barriers.is_empty() || [Image::SYNCED, Image::EVERYTHING].contains(image) {
        return Cow::Borrowed(world);
    }
    let mut world = world.clone();
    let barriers = std::mem::take(&mut world.barriers);
    let passed = rng.below(barriers.len() as u64 + 1) as usize;
    if let Some(next) = barriers.get(passed) {
        world.forget_after(*next);
    }
    if let Some(barrier) = barriers[..passed].last() {
        world.settle(*barrier);
    }
    Cow::Owned(world)
}

fn names_after(world: &World, fate: NameFate, rng: &mut Rng) -> BTreeMap<u64, Arc<DirNode>> {
    let kept = kept_changes(world, fate, rng);
    let after = world.dirs.iter().map(|(id, dir)| {
        if dir.is_durable() {
            return (*id, Arc::clone(dir));
        }
        let mut names = dir.durable.clone();
        for name in dir.pending.iter().filter(|name| kept.contains(&name.seq)) {
            name.change.apply(&mut names);
        }
        (*id, Arc::new(DirNode { durable: names.clone(), cached: names, pending: Vec::new() }))
    });
    after.collect()
}

/// Returns the `seq` of every pending name change that survives.
fn kept_changes(world: &World, fate: NameFate, rng: &mut Rng) -> BTreeSet<u64> {
    let all: BTreeSet<u64> = world.dirs.values().flat_map(|dir| &dir.pending).map(|name| name.seq).collect();
    match fate {
        NameFate::Synced => BTreeSet::new(),
        NameFate::All => all,
        NameFate::Subset => all.into_iter().filter(|_| rng.chance(0.5)).collect(),
        NameFate::Mask(mask) => {
            let bit = |i: usize| i < 64 && mask >> i & 1 == 1;
            all.into_iter().enumerate().filter(|(i, _)| bit(*i)).map(|(_, seq)| seq).collect()
        }
    }
}

fn file_after(file: &Arc<Inode>, fate: DataFate, last: Option<u64>, rng: &mut Rng) -> Arc<Inode> {
    if !file.dirty() && !file.diverged {
        return Arc::clone(file);
    }
    let bytes = match fate {
        DataFate::Synced => file.durable.clone(),
        DataFate::All => file.settled(),
        DataFate::Sectors { size, keep } => sectors(file, size, keep, 0.0, rng),
        DataFate::PowersafeOff { size } => sectors(file, size, 0.5, 0.25, rng),
        DataFate::TornLast => torn_last(file, last, rng),
        DataFate::SizeNoData => {
            let mut bytes = file.durable.clone();
            file.lens.iter().for_each(|change| bytes.set_len(change.len));
            bytes
        }
    };
    Arc::new(file.replaced(bytes))
}

/// Returns all bytes of the file; if the last write of the disk went to this file, it is cut short.
fn torn_last(file: &Inode, last: Option<u64>, rng: &mut Rng) -> Bytes {
    let torn = file.writes.last().filter(|write| Some(write.seq) == last && !file.diverged);
    let Some(torn) = torn else {
        return file.settled();
    };
    let cut = rng.below(torn.data.len() as u64 + 1) as usize;
    let mut bytes = file.durable.clone();
    let mut lens = file.lens.iter().filter(|change| change.seq != torn.seq).peekable();
    for write in &file.writes {
        while let Some(change) = lens.next_if(|change| change.seq < write.seq) {
            bytes.set_len(change.len);
        }
        let len = if write.seq == torn.seq { cut } else { write.data.len() };
        bytes.write(write.offset, &write.data[..len]);
    }
    lens.for_each(|change| bytes.set_len(change.len));
    bytes
}

/// Returns the file with each sector at a version of its own.
fn sectors(file: &Inode, size: u64, keep: f64, garbage: f64, rng: &mut Rng) -> Bytes {
    let size = size.max(1);
    let kept_lens =
        if rng.chance(0.5) { file.lens.len() as u64 } else { rng.below(file.lens.len() as u64 + 1) };
    let kept_lens = &file.lens[..kept_lens as usize];
    let mut bytes = file.durable.clone();
    kept_lens.iter().for_each(|change| bytes.set_len(change.len));
    let mut by_sector: BTreeMap<u64, Vec<&Write>> = BTreeMap::new();
    for write in &file.writes {
        for sector in write.offset / size..write.end().div_ceil(size) {
            by_sector.entry(sector).or_default().push(write);
        }
    }
    for (sector, writes) in by_sector {
        let start = sector * size;
        if rng.chance(keep) {
            bytes.overwrite(start, &file.cached.range(start, size));
        } else {
            let cuts = |write: &Write| {
                let later = kept_lens.iter().filter(|change| change.seq > write.seq);
                later.map(|change| change.len).min().unwrap_or(u64::MAX)
            };
            earlier_version(&mut bytes, start..start + size, &writes, cuts, rng);
        }
        if garbage > 0.0 && rng.chance(garbage) {
            let noise: Vec<u8> = (0..size).map(|_| rng.next() as u8).collect();
            bytes.overwrite(start, &noise);
        }
    }
    bytes
}

/// Applies a random, incomplete prefix of the writes to a sector. `cuts` returns the offset at which a
/// surviving later truncation cuts off the bytes of a write.
fn earlier_version(
    bytes: &mut Bytes,
    sector: std::ops::Range<u64>,
    writes: &[&Write],
    cuts: impl Fn(&Write) -> u64,
    rng: &mut Rng,
) {
    let whole = rng.below(writes.len() as u64) as usize;
    for (i, write) in writes[..=whole].iter().enumerate() {
        let start = write.offset.max(sector.start);
        let mut end = write.end().min(sector.end).min(cuts(write)).max(start);
        if i == whole {
            // This is the first lost write. A write through a map may be lost in part.
            if !write.mapped || rng.chance(0.5) {
                break;
            }
            end = start + rng.below(end - start + 1);
        }
        let piece = (start - write.offset) as usize..(end - write.offset) as usize;
        bytes.overwrite(start, &write.data[piece]);
    }
}
