//! Damage to one file, and the list of places where damage may go unnoticed (declared padding).
//!
//! The list is part of the formats. Every byte that is not on it is covered by a checksum or must be zero, so a change
//! of it must cause an error.

use std::ops::Range;

use crate::rng::Rng;

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Replaces the byte at an offset.
    Byte(u64, u8),
    /// Truncates the file to a length.
    Cut(u64),
    /// Appends bytes.
    Append(Vec<u8>),
    /// Swaps two blocks.
    Swap {
        /// Offset of the first block.
        a: u64,
        /// Offset of the second block.
        b: u64,
        /// Length of each block.
        len: u64,
    },
    /// Overwrites a block with bytes of another file.
    Graft {
        /// Offset in this file.
        at: u64,
        /// Bytes to write.
        bytes: Vec<u8>,
        /// Origin of the bytes.
        from: String,
    },
    /// Removes the file.
    Missing,
    /// Replaces the content by that of another file.
    Replaced {
        /// New content.
        bytes: Vec<u8>,
        /// Origin of the content.
        by: String,
    },
}

impl Damage {
    /// Returns the file after the damage; `None` if it is removed.
    pub fn apply(&self, old: &[u8]) -> Option<Vec<u8>> {
        let mut new = old.to_vec();
        match self {
            Self::Byte(at, byte) => new[*at as usize] = *byte,
            Self::Cut(len) => new.truncate(*len as usize),
            Self::Append(bytes) => new.extend_from_slice(bytes),
            Self::Swap { a, b, len } => {
                for i in 0..*len {
                    new.swap((a + i) as usize, (b + i) as usize);
                }
            }
            Self::Graft { at, bytes, .. } => {
                new[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes)
            }
            Self::Missing => return None,
            Self::Replaced { bytes, .. } => new.clone_from(bytes),
        }
        Some(new)
    }

    /// Name of the kind of damage.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Byte(..) => "byte",
            Self::Cut(_) => "cut",
            Self::Append(_) => "append",
            Self::Swap { .. } => "swap",
            Self::Graft { .. } => "graft",
            Self::Missing => "missing",
            Self::Replaced { .. } => "replaced",
        }
    }
}

/// One file of a database that gets damaged.
#[derive(Clone, Debug)]
pub struct Victim {
    /// File name.
    pub name: String,
    /// Original content.
    pub bytes: Vec<u8>,
    /// Ranges in which a change may go unnoticed, and why.
    pub declared: Vec<(Range<u64>, &'static str)>,
    /// Why the absence of the file may go unnoticed; `None` if it must be noticed.
    pub may_go: Option<&'static str>,
}

const PAGE: u64 = 4096;
const PAD: u8 = 2;
const SEAL: u8 = 3;
const LAST_SEALS: &str = "the seals at the end of a log, which vouch for the records before them";

impl Victim {
    /// Describes the file `name`. `current` is the manifest in force; `closed` is true if the database was closed
    /// cleanly.
    pub fn new(name: &str, bytes: Vec<u8>, current: &str, closed: bool) -> Self {
        let len = bytes.len() as u64;
        let whole = |why| vec![(0..u64::MAX, why)];
        let declared = match name.rsplit_once('.').map_or(name, |(_, ext)| ext) {
            "LOCK" => whole("the lock file has no content"),
            "RESERVE" => whole("the reserve of disk space, whose bytes are not used"),
            "EVENTS" | "old" | "FIGURES" => whole("the event log, which the engine does not read"),
            "free" => whole("a log segment kept for reuse"),
            "orphan" | "lost" => whole("a file set aside"),
            "manifest" if name != current => whole("a manifest that is not in force"),
            "manifest" => manifest(&bytes, closed),
            "wal" => wal(&bytes),
            "vlog" => vec![(len..u64::MAX, "what follows the last value of a value log")],
            _ => Vec::new(),
        };
        let all = declared.iter().find(|(range, _)| *range == (0..u64::MAX)).map(|(_, why)| *why);
        let unused = name.ends_with(".wal") && declared.iter().any(|(range, _)| range.start == PAGE);
        let may_go = all.or(unused.then_some("a log segment that holds no record yet"));
        Self { name: name.to_owned(), bytes, declared, may_go }
    }

    /// Returns why a log with the content `new` may lose records without an error; `None` if it must not. It may if
    /// all records from the first damaged one on are damaged, including both seals that confirm them. The seals lie
    /// a page apart, so this takes damage at two places.
    pub fn nothing_tells(&self, new: Option<&[u8]>) -> Option<&'static str> {
        let new = new.filter(|_| self.name.ends_with(".wal"))?;
        let touched = |range: &Range<u64>| {
            let part = range.start as usize..(range.end as usize).min(self.bytes.len());
            new.get(part.clone()) != self.bytes.get(part)
        };
        let records = records(&self.bytes);
        let first = records.iter().position(|(range, _)| touched(range))?;
        let seals = records[first..].iter().filter(|(_, kind)| *kind == SEAL).count();
        let all = seals >= 2 && records[first..].iter().all(|(range, _)| touched(range));
        all.then_some("a record and both seals after it, at two places")
    }

    /// Returns why the change of the file to `new` may go unnoticed; `None` if it must be detected.
    pub fn excuse(&self, new: Option<&[u8]>) -> Option<&'static str> {
        let Some(new) = new else { return self.may_go };
        let changed = (0..self.bytes.len().max(new.len()) as u64)
            .filter(|at| self.bytes.get(*at as usize) != new.get(*at as usize));
        let mut why = None;
        for at in changed {
            let declared = self.declared.iter().find(|(range, _)| range.contains(&at));
            why = Some(declared?.1);
        }
        why
    }
}

fn word(bytes: &[u8], at: u64) -> u32 {
    let at = at as usize;
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Returns the declared ranges of a manifest. The four mark pages repeat each other. After the records of a manifest
/// that was not closed, an append may have been torn.
fn manifest(bytes: &[u8], closed: bool) -> Vec<(Range<u64>, &'static str)> {
    let mut out = vec![(PAGE..5 * PAGE, "one of the four marks of a manifest, which repeat each other")];
    if !closed {
        let (mut end, mut number) = (5 * PAGE, 1);
        while word(bytes, end + 8) == number {
            end += (20 + u64::from(word(bytes, end + 4))).next_multiple_of(PAGE);
            number += 1;
        }
        out.push((end..u64::MAX, "the reserve of a manifest, where an append may have been torn"));
    }
    out
}

/// Returns the records of a log segment with their kinds, up to a pad or the end.
fn records(bytes: &[u8]) -> Vec<(Range<u64>, u8)> {
    let (mut out, mut pos) = (Vec::new(), PAGE);
    while pos + 32 <= bytes.len() as u64 && word(bytes, pos + 8) != 0 {
        let end = pos + (32 + u64::from(word(bytes, pos + 4))).next_multiple_of(8);
        let kind = bytes[pos as usize + 27];
        out.push((pos..end, kind));
        if kind == PAD {
            break;
        }
        pos = end;
    }
    out
}

/// Returns the declared ranges of a log segment: the body of a pad, the bytes after the last record, and the seals at
/// the end. Those seals confirm the records before them; nothing confirms the seals.
fn wal(bytes: &[u8]) -> Vec<(Range<u64>, &'static str)> {
    let (mut pos, mut seals) = (PAGE, PAGE);
    let len = bytes.len() as u64;
    for (range, kind) in records(bytes) {
        if kind == PAD {
            return vec![(range.start + 32..len, "the body of a pad")];
        }
        pos = range.end;
        if kind != SEAL {
            seals = pos;
        }
    }
    vec![(seals..pos, LAST_SEALS), (pos..len, "what follows the last record of a log segment")]
}

/// Returns all damage to `victim` that a sweep tries: changes of every `stride`-th byte, truncation at every
/// `stride`-th length, and `blocks` swaps and grafts of 64 to 512 bytes.
pub fn all(victim: &Victim, others: &[Victim], stride: u64, blocks: u64, rng: &mut Rng) -> Vec<Damage> {
    let len = victim.bytes.len() as u64;
    let mut out = Vec::new();
    for at in (rng.below(stride)..len).step_by(stride as usize) {
        let old = victim.bytes[at as usize];
        let flipped = old ^ 1 << rng.below(8);
        out.extend([flipped, 0, 0xFF].into_iter().filter(|b| *b != old).map(|b| Damage::Byte(at, b)));
    }
    // Use a longer stride within runs of zeros, where neighbouring truncations are equivalent.
    for at in (rng.below(stride)..len).step_by(stride as usize) {
        let plain = at + 64 < len && victim.bytes[at as usize..at as usize + 64].iter().all(|b| *b == 0);
        if !plain || at.is_multiple_of(512) {
            out.push(Damage::Cut(at));
        }
    }
    for garbage in [vec![0; 1], vec![0; 512], rng.bytes(1), rng.bytes(64), rng.bytes(5000)] {
        out.push(Damage::Append(garbage));
    }
    out.push(Damage::Missing);
    if len > 0 {
        out.push(Damage::Replaced { bytes: Vec::new(), by: "nothing".into() });
    }
    for other in others.iter().filter(|o| o.name != victim.name) {
        let ext = |name: &str| name.rsplit_once('.').map(|(_, ext)| ext.to_owned());
        if ext(&other.name) == ext(&victim.name) && other.bytes != victim.bytes {
            out.push(Damage::Replaced { bytes: other.bytes.clone(), by: other.name.clone() });
        }
    }
    for _ in 0..blocks {
        out.extend(block(victim, others, rng));
    }
    out.retain(|damage| damage.apply(&victim.bytes).as_deref() != Some(&victim.bytes[..]));
    out
}

/// Returns a random swap and a random graft.
fn block(victim: &Victim, others: &[Victim], rng: &mut Rng) -> Vec<Damage> {
    let mut out = Vec::new();
    let len = victim.bytes.len() as u64;
    let size = [64, 128, 512][rng.below(3) as usize];
    // Choose a place near the data half of the time.
    let used = victim.bytes.iter().rposition(|b| *b != 0).map_or(0, |at| at as u64 + 1);
    let reach = if rng.one_in(2) { used.clamp(size + 1, len.max(size + 1)) } else { len };
    if len >= 2 * size {
        let (a, b) = (rng.below(reach - size + 1).min(len - size), rng.below(len - size + 1));
        if a.abs_diff(b) >= size {
            out.push(Damage::Swap { a, b, len: size });
        }
    }
    let other = rng.pick(others);
    let size = size.min(len).min(other.bytes.len() as u64);
    if size > 0 {
        let from = rng.below(other.bytes.len() as u64 - size + 1);
        let at = if rng.one_in(2) && from + size <= len { from } else { rng.below(len - size + 1) };
        let bytes = other.bytes[from as usize..(from + size) as usize].to_vec();
        out.push(Damage::Graft { at, bytes, from: format!("{} at {from}", other.name) });
    }
    out
}
