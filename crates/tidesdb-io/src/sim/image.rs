//! Crash images: what may lie on the disk after the power failed.
//!
//! Rule: a sector that was durable and not written since comes back unchanged, except under
//! [`DataFate::PowersafeOff`]. A sector that was written since holds one of its versions in time: the durable one,
//! the current one, or one between. (The page cache holds only such versions, so no later write to a sector
//! survives without the earlier ones; between sectors every order is possible.)

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::bytes::Bytes;
use super::inode::{Inode, Write};
use super::rng::Rng;
use super::world::{DirNode, Node, ROOT, World};

/// What becomes of bytes that were written and not synced.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DataFate {
    /// None is left.
    Synced,
    /// All are there, as after the death of the process alone.
    All,
    /// Each aligned sector of `size` bytes (512 or 4096) is current with probability `keep`, else it is of any
    /// earlier version since the last sync. A sector written through a map may also stop in the middle of a copy.
    /// With even odds the length is the current one, else any since the last sync.
    Sectors {
        /// Bytes of a sector.
        size: u64,
        /// Probability that a sector is current, 0 to 1.
        keep: f64,
    },
    /// All are there, but the last write of the whole disk is cut at a random byte.
    TornLast,
    /// Lengths are current, no data are: what grew reads as zeros.
    SizeNoData,
    /// As `Sectors` of this size, and a sector that had a write pending may hold garbage throughout.
    PowersafeOff {
        /// Bytes of a sector.
        size: u64,
    },
}

/// What becomes of names that were changed and not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFate {
    /// All changes are lost.
    Synced,
    /// All are there.
    All,
    /// Each change, alone, is there or lost; those that are there happened in order. A rename happened or did not.
    Subset,
    /// As `Subset`, where bit `i` keeps the `i`-th pending change of the disk, to go through all subsets.
    Mask(u64),
}

/// What may be found after a crash.
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
    /// Everything: the process died, the machine lived on.
    pub const EVERYTHING: Self = Self { data: DataFate::All, names: NameFate::All };
    /// A good choice of images for each crash point, of which a correct engine survives every one.
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

/// Builds the disk that is found after a crash of `world`.
pub(super) fn build(world: &World, image: &Image, seed: u64) -> World {
    let mut rng = Rng::new(seed);
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

fn names_after(world: &World, fate: NameFate, rng: &mut Rng) -> BTreeMap<u64, Arc<DirNode>> {
    let kept = kept_changes(world, fate, rng);
    let after = world.dirs.iter().map(|(id, dir)| {
        if dir.pending.is_empty() {
            return (*id, Arc::clone(dir));
        }
        let mut names = dir.durable.clone();
        for (seq, change) in &dir.pending {
            if kept.contains(seq) {
                change.apply(&mut names);
            }
        }
        (*id, Arc::new(DirNode { durable: names.clone(), cached: names, pending: Vec::new() }))
    });
    after.collect()
}

/// The `seq` of every pending change of names that survives.
fn kept_changes(world: &World, fate: NameFate, rng: &mut Rng) -> BTreeSet<u64> {
    let all: BTreeSet<u64> = world.dirs.values().flat_map(|dir| &dir.pending).map(|(seq, _)| *seq).collect();
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
    Arc::new(Inode::clean(bytes))
}

/// All of the file, the last write of the disk cut short if it went here.
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

/// Each sector at a version of its own.
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

/// Makes some of the first writes to a sector, not all. `cuts` tells where a surviving truncation later cut the
/// bytes of a write off.
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
            // The first write that is lost; one through a map may be lost in part.
            if !write.mapped || rng.chance(0.5) {
                break;
            }
            end = start + rng.below(end - start + 1);
        }
        let piece = (start - write.offset) as usize..(end - write.offset) as usize;
        bytes.overwrite(start, &write.data[piece]);
    }
}
