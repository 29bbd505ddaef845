//! Point reads: searches the newest source first and stops at the first visible version.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;
use tidesdb_memtable::{Entry, Memtable};
use tidesdb_sync::{Guard, pin};

use crate::codec::key_hash;
use crate::context::ReadCtx;
use crate::family::{FamilyCore, GET_CHARGE, Metric, ReadView};
use crate::merge::Combine;
use crate::order::sort_places;
use crate::sources::TableVersion;
use crate::sst::{AllowAllReads, ReadGate, ReadStep, Table, TurnGate, WatchingGate};
use crate::stats::{counts, is_chosen};
use crate::types::{Kind, Operands, ReadPoint, SeqNo, Slice, VALUE_BYTES_MAX, VlogId, has_passed};
use crate::vlog::{ChunkedPlace, ValuePlace, VlogPointer};
use crate::{Error, Result};

/// Result of a lookup.
struct Hit<'g> {
    kind: Kind,
    expiry: u64,
    place: ValueLocation<'g>,
}

/// Location of the value.
enum ValueLocation<'g> {
    Memtable(Entry<'g>, &'g Arc<Memtable>),
    /// With the sequence number of the version.
    Table(Cow<'g, [u8]>, SeqNo),
}

/// Keys of a `multi_get` that are read together. Enough to fill the queue of a fast disk, and few enough that
/// prefetched blocks stay in the page cache until they are read.
const GROUP_KEYS: usize = 128;
/// Number of the last round for a group, in which lookups read whatever they miss.
const LAST_ROUND: u32 = 4;

/// From this size on, a value is returned in place, keeping its memtable alive. Smaller values are cheaper to copy.
const PINNED_BYTES_MIN: usize = 1024;

impl ValueLocation<'_> {
    /// Returns the value as an owned slice.
    fn into_slice(self) -> Slice {
        match self {
            Self::Table(value, _) => value.into_owned().into(),
            Self::Memtable(entry, map) if entry.value.len() >= PINNED_BYTES_MIN => {
                Slice::pinned(map.value_handle(&entry))
            }
            Self::Memtable(entry, _) => entry.value.into(),
        }
    }

    /// Sequence number of the version.
    fn seq(&self) -> SeqNo {
        match self {
            Self::Memtable(entry, _) => entry.seq,
            Self::Table(_, seq) => *seq,
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memtable(entry, _) => entry.value,
            Self::Table(value, _) => value,
        }
    }
}

impl Hit<'_> {
    /// Returns false if the version is a tombstone or has expired.
    fn is_live(&self, reads: &ReadCtx) -> bool {
        !self.kind.is_tombstone() && !reads.is_expired(self.expiry)
    }
}

/// Returns the value of `key` for a reader at `snapshot`, or at the newest visible commit.
///
/// # Errors
/// `Corrupt`, `Io`, `NotFound` for a dropped family.
pub fn get(
    reads: &ReadCtx,
    family: &FamilyCore,
    key: &[u8],
    snapshot: Option<SeqNo>,
) -> Result<Option<Slice>> {
    let is_chosen = is_chosen();
    if is_chosen || reads.reports_slow() {
        return get_sampled(reads, family, key, snapshot, is_chosen);
    }
    value_of(reads, family, key, snapshot, &mut AllowAllReads)
}

#[cold]
#[inline(never)]
fn get_sampled(
    reads: &ReadCtx,
    family: &FamilyCore,
    key: &[u8],
    snapshot: Option<SeqNo>,
    is_chosen: bool,
) -> Result<Option<Slice>> {
    let _timer = reads.measure(&reads.times.gets, is_chosen);
    match counts::is_running() {
        true => value_of(reads, family, key, snapshot, &mut WatchingGate::counting(None)),
        false => value_of(reads, family, key, snapshot, &mut AllowAllReads),
    }
}

#[expect(
    clippy::inline_always,
    reason = "a call with so many arguments costs more than the choice of a sample"
)]
#[inline(always)]
fn value_of(
    reads: &ReadCtx,
    family: &FamilyCore,
    key: &[u8],
    snapshot: Option<SeqNo>,
    gate: &mut impl ReadGate,
) -> Result<Option<Slice>> {
    let guard = pin();
    match find(reads, family, (key, snapshot), true, &guard, gate)? {
        None => Ok(None),
        Some((_, hit)) if hit.kind.holds_value() => Ok(Some(hit.place.into_slice())),
        Some((view, hit)) => {
            let search = Search { reads, family, view, now: None };
            search.other_value(key, &hit, &guard, gate).map(Some)
        }
    }
}

/// Like [`get`], but calls `read` with the value in place.
///
/// # Errors
/// As [`get`].
pub fn get_map<R>(
    reads: &ReadCtx,
    family: &FamilyCore,
    key: &[u8],
    snapshot: Option<SeqNo>,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>> {
    let timer = reads.sample(&reads.times.gets);
    let guard = pin();
    let found = match timer {
        None => find(reads, family, (key, snapshot), true, &guard, &mut AllowAllReads)?,
        Some(_) => find_sampled(reads, family, (key, snapshot), true, &guard)?,
    };
    match found {
        None => Ok(None),
        Some((_, hit)) if hit.kind.holds_value() => {
            drop(timer); // the time of `read` is the caller's
            Ok(Some(read(hit.place.bytes())))
        }
        Some((view, hit)) => {
            let search = Search { reads, family, view, now: None };
            let value = search.other_value(key, &hit, &guard, &mut AllowAllReads)?;
            drop(timer);
            Ok(Some(read(&value)))
        }
    }
}

/// Returns whether `key` exists, without reading a value.
///
/// # Errors
/// As [`get`].
pub fn contains(reads: &ReadCtx, family: &FamilyCore, key: &[u8], snapshot: Option<SeqNo>) -> Result<bool> {
    let timer = reads.sample(&reads.times.gets);
    let found = match timer {
        None => find(reads, family, (key, snapshot), false, &pin(), &mut AllowAllReads)?.is_some(),
        Some(_) => find_sampled(reads, family, (key, snapshot), false, &pin())?.is_some(),
    };
    Ok(found)
}

/// Returns the values of many keys, all at one read timestamp, in the order of `keys`.
///
/// # Errors
/// As [`get`].
pub fn multi_get<K: AsRef<[u8]>>(
    reads: &ReadCtx,
    family: &FamilyCore,
    keys: &[K],
    snapshot: Option<SeqNo>,
) -> Result<Vec<Option<Slice>>> {
    look_up_all(reads, family, keys, snapshot, true)
}

/// Returns whether each of `keys` exists, all at one read timestamp, in the order of `keys`, without reading a value.
///
/// # Errors
/// As [`get`].
pub fn multi_contains<K: AsRef<[u8]>>(
    reads: &ReadCtx,
    family: &FamilyCore,
    keys: &[K],
    snapshot: Option<SeqNo>,
) -> Result<Vec<bool>> {
    let found = look_up_all(reads, family, keys, snapshot, false)?;
    Ok(found.iter().map(Option::is_some).collect())
}

/// Looks up `keys`. Without `want_values`, a key that exists has an empty value.
fn look_up_all<K: AsRef<[u8]>>(
    reads: &ReadCtx,
    family: &FamilyCore,
    keys: &[K],
    snapshot: Option<SeqNo>,
    want_values: bool,
) -> Result<Vec<Option<Slice>>> {
    let _timer = reads.sample(&reads.times.multi_gets);
    reads.check_open()?;
    let view = family.owned_view();
    let seq = snapshot.unwrap_or_else(|| reads.visible());
    // In key order, neighbouring keys share blocks.
    let mut order: Vec<usize> = (0..keys.len()).collect();
    let comparator = &family.options.comparator;
    sort_places(&mut order, &mut |a, b| comparator.compare(keys[a].as_ref(), keys[b].as_ref()));
    let search = Search { reads, family, view: &view, now: None };
    let out = vec![None; keys.len()];
    let (records, of_records, chunked) = (Vec::new(), Vec::new(), Vec::new());
    let mut group = Group { search, seq, keys, want_values, out, records, of_records, chunked };
    let is_counted = counts::is_running();
    for pending in order.chunks_mut(GROUP_KEYS) {
        group.look_up(pending, is_counted)?;
        group.read_values()?;
    }
    Ok(group.out)
}

/// Keys that are looked up together.
struct Group<'a, K> {
    search: Search<'a>,
    seq: SeqNo,
    keys: &'a [K],
    want_values: bool,
    /// The value of each key.
    out: Vec<Option<Slice>>,
    /// Values in value logs that are to be read, and the index of the key of each.
    records: Vec<VlogPointer>,
    of_records: Vec<usize>,
    chunked: Vec<(usize, ChunkedPlace)>,
}

impl<K: AsRef<[u8]>> Group<'_, K> {
    /// Looks up the keys with the indexes in `pending`. Fills in the values that are not in a value log, and notes where the others lie.
    ///
    /// In round 0 a lookup reads nothing: it prefetches the first block that it misses. In each later round it reads one
    /// block more than in the round before, and prefetches the next one that it misses. In the last round it reads all
    /// blocks it needs.
    fn look_up(&mut self, mut pending: &mut [usize], is_counted: bool) -> Result<()> {
        for round in 0..=LAST_ROUND {
            let alone = pending.len() == 1; // there is no other lookup to overlap with
            let mut gate = TurnGate::new(if alone || round == LAST_ROUND { u32::MAX } else { round });
            let mut watching = is_counted.then(|| WatchingGate::counting(Some(gate.clone())));
            let mut unanswered = 0;
            for at in 0..pending.len() {
                let i = pending[at];
                let is_shut = match &mut watching {
                    Some(gate) => {
                        gate.begin();
                        self.look_up_one(i, gate)?;
                        gate.is_shut()
                    }
                    None => {
                        gate.begin();
                        self.look_up_one(i, &mut gate)?;
                        gate.is_shut()
                    }
                };
                if is_shut {
                    pending[unanswered] = i;
                    unanswered += 1;
                }
            }
            pending = &mut pending[..unanswered];
            if pending.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn look_up_one(&mut self, i: usize, gate: &mut impl ReadGate) -> Result<()> {
        let guard = pin(); // one pin per key: a pin held over many reads would delay all reclamation
        let Search { reads, family, view, .. } = self.search;
        family.check_usable()?;
        let key = self.keys[i].as_ref();
        let hit = lookup(view, key, self.seq, self.want_values, &guard, gate)?;
        let Some(hit) = hit.filter(|hit| !gate.is_shut() && hit.is_live(reads)) else { return Ok(()) };
        if !self.want_values {
            self.out[i] = Some(Slice::from(&[][..]));
            return Ok(());
        }
        match self.search.located(key, hit, &guard, &mut AllowAllReads)? {
            Located::Inline(value) => self.out[i] = Some(value),
            Located::Stored(ValuePlace::Record(pointer)) => {
                self.records.push(pointer);
                self.of_records.push(i);
            }
            Located::Stored(ValuePlace::Chunks(place)) => self.chunked.push((i, place)),
        }
        Ok(())
    }

    /// Reads the values that the lookups have left in value logs. Fails with the error of the first that cannot be read.
    fn read_values(&mut self) -> Result<()> {
        let (family, records) = (self.search.family, &self.records);
        if records.len() + self.chunked.len() > 1 {
            family.vlog.load_many(records);
        }
        let mut failed = None;
        family.vlog.read_many(records, |n, value| match value {
            Ok(value) => self.out[self.of_records[n]] = Some(value.into()),
            Err(e) if failed.as_ref().is_none_or(|(first, _)| n < *first) => failed = Some((n, e)),
            Err(_) => {}
        });
        if let Some((_, e)) = failed {
            return Err(e);
        }
        for (i, place) in self.chunked.drain(..) {
            self.out[i] = Some(whole(family, &place, Vec::new())?);
        }
        self.records.clear();
        self.of_records.clear();
        Ok(())
    }
}

/// The version that answers a lookup which explains itself.
pub(super) struct Traced {
    pub(super) seq: SeqNo,
    pub(super) kind: Kind,
    pub(super) expiry: u64,
    /// The value, or why it cannot be read; `None` if the key is deleted or has expired.
    pub(super) value: Option<Result<Slice>>,
}

/// Looks `key` up as [`get`] does, and tells `gate` each step. `None` if the reader sees no version, or if a range tombstone hides it.
pub(super) fn look_up_traced(
    reads: &ReadCtx,
    (family, view): (&FamilyCore, &Arc<ReadView>),
    key: &[u8],
    at: ReadPoint,
    gate: &mut WatchingGate,
) -> Result<Option<Traced>> {
    let guard = pin();
    let search = Search { reads, family, view, now: Some(at.now) };
    let Some(hit) = lookup(view, key, at.seq, true, &guard, gate)? else { return Ok(None) };
    let (seq, kind, expiry) = (hit.place.seq(), hit.kind, hit.expiry);
    let value = search.is_live(&hit).then(|| match kind.holds_value() {
        true => Ok(hit.place.into_slice()),
        false => search.other_value(key, &hit, &guard, gate),
    });
    Ok(Some(Traced { seq, kind, expiry, value }))
}

/// Returns whether a reader at `at` sees a value for `key` in `view`.
///
/// # Errors
/// `Corrupt`, `Io`.
pub fn sees(view: &Arc<ReadView>, key: &[u8], at: ReadPoint, guard: &Guard) -> Result<bool> {
    let hit = lookup(view, key, at.seq, false, guard, &mut AllowAllReads)?;
    Ok(hit.is_some_and(|hit| !hit.kind.is_tombstone() && !has_passed(hit.expiry, at.now)))
}

#[expect(clippy::inline_always, reason = "a call would copy the result, which is large, more than once")]
#[inline(always)]
fn find<'g>(
    reads: &ReadCtx,
    family: &'g FamilyCore,
    (key, snapshot): (&[u8], Option<SeqNo>),
    want_value: bool,
    guard: &'g Guard,
    gate: &mut impl ReadGate,
) -> Result<Option<(&'g Arc<ReadView>, Hit<'g>)>> {
    reads.check_open()?;
    // Take the view before the sequence number: see `mvcc`. Also take it before checking for a drop: a drop sets the
    // flag first and empties the view afterwards.
    let view = family.view(guard);
    family.check_usable()?;
    let seq = match snapshot {
        Some(seq) => seq,
        None => reads.visible(),
    };
    match lookup(view, key, seq, want_value, guard, gate)? {
        Some(hit) if hit.is_live(reads) => Ok(Some((view, hit))),
        _ => Ok(None),
    }
}

/// Like [`find`], for an operation that was chosen to be measured or counted.
#[cold]
#[inline(never)]
fn find_sampled<'g>(
    reads: &ReadCtx,
    family: &'g FamilyCore,
    sought: (&[u8], Option<SeqNo>),
    want_value: bool,
    guard: &'g Guard,
) -> Result<Option<(&'g Arc<ReadView>, Hit<'g>)>> {
    match counts::is_running() {
        true => find(reads, family, sought, want_value, guard, &mut WatchingGate::counting(None)),
        false => find(reads, family, sought, want_value, guard, &mut AllowAllReads),
    }
}

/// A search in one view of a family.
#[derive(Clone, Copy)]
struct Search<'g> {
    reads: &'g ReadCtx,
    family: &'g FamilyCore,
    view: &'g Arc<ReadView>,
    /// Time at which expiry is judged; `None`: that of each look at it.
    now: Option<u64>,
}

impl Search<'_> {
    fn is_live(self, hit: &Hit<'_>) -> bool {
        match self.now {
            None => hit.is_live(self.reads),
            Some(now) => !hit.kind.is_tombstone() && !has_passed(hit.expiry, now),
        }
    }

    /// Returns what a live version of `key` says about its value.
    fn located(self, key: &[u8], hit: Hit<'_>, guard: &Guard, gate: &mut impl ReadGate) -> Result<Located> {
        match hit.kind {
            Kind::PutPointer => Located::stored(hit.place.bytes()),
            Kind::Merge => self.combined(key, &hit, guard, gate).map(Located::Inline),
            Kind::Put => Ok(Located::Inline(hit.place.into_slice())),
            Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => Err(no_value()),
        }
    }

    /// Returns the value of a live version of `key`, which does not have the value in its entry.
    #[inline(never)]
    fn other_value(
        self,
        key: &[u8],
        hit: &Hit<'_>,
        guard: &Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Slice> {
        match hit.kind {
            Kind::Merge => self.combined(key, hit, guard, gate),
            Kind::PutPointer => {
                gate.note(|| step_of(hit.place.bytes()));
                resolve(self.family, hit.place.bytes())
            }
            Kind::Put | Kind::Delete | Kind::SingleDelete | Kind::RangeDelete => Err(no_value()),
        }
    }

    /// Returns the combination of the operand `newest` of `key` and the older versions.
    #[cold]
    fn combined(
        self,
        key: &[u8],
        newest: &Hit<'_>,
        guard: &Guard,
        gate: &mut impl ReadGate,
    ) -> Result<Slice> {
        let mut operands = Operands::default();
        operands.push(newest.place.bytes());
        let mut seq = newest.place.seq();
        let base = loop {
            // An operand keeps its number until it becomes a put, so there are smaller ones.
            let Some(older) = seq.checked_sub(1) else { break None };
            match lookup(self.view, key, older, true, guard, gate)? {
                Some(hit) if hit.kind.is_operand() => {
                    operands.push(hit.place.bytes());
                    seq = hit.place.seq();
                }
                hit => break hit.filter(|hit| self.is_live(hit)),
            }
        };
        if let Some(hit) = base.as_ref().filter(|hit| hit.kind.holds_pointer()) {
            gate.note(|| step_of(hit.place.bytes()));
        }
        let base = base.as_ref().map(|hit| (hit.kind, hit.place.bytes()));
        self.family.count(Metric::Combined, 1);
        self.family.count(Metric::OperandsCombined, operands.count() as u64);
        self.family.combine(&operands, base).map(Slice::from)
    }
}

/// A caller took a version for one whose value must be found.
#[cold]
fn no_value() -> Error {
    Error::internal("a version without a value to find")
}

impl Combine for FamilyCore {
    fn combine(&self, operands: &Operands, base: Option<(Kind, &[u8])>) -> Result<Vec<u8>> {
        let Some(operator) = self.options.merge_operator() else {
            return Err(Error::internal("an operand in a family without a merge operator"));
        };
        let stored = match base {
            Some((kind, place)) if kind.holds_pointer() => Some(resolve(self, place)?),
            _ => None,
        };
        let base = stored.as_deref().or(base.map(|(_, value)| value));
        operands.fold(operator, base).map_err(|what| self.merge_failed(what))
    }
}

/// Returns the newest version of `key` at or below `seq`. The result is meaningless if `gate` is shut afterwards.
fn lookup<'g>(
    view: &'g Arc<ReadView>,
    key: &[u8],
    seq: SeqNo,
    want_value: bool,
    guard: &'g Guard,
    gate: &mut impl ReadGate,
) -> Result<Option<Hit<'g>>> {
    let order = view.version.order();
    for (number, slot) in (0..).zip(view.memtables()) {
        let found = slot.map.get(key, seq);
        let deleted = slot.ranges.newest(order, key, seq, guard);
        gate.note(|| ReadStep::Memtable { number, has_version: found.is_some() });
        if let Some(taken) = &slot.taken {
            match look_in(taken, key, seq, want_value, guard, gate)?.0 {
                Some(hit) if hit.place.seq() >= deleted => return Ok(Some(hit)),
                None if deleted == 0 && !gate.is_shut() => continue,
                _ => return Ok(None),
            }
        }
        if deleted > found.as_ref().map_or(0, |e| e.seq) {
            return Ok(None); // all older versions are deleted too
        }
        if let Some(e) = found {
            let kind = Kind::of_checked(e.kind);
            let expiry = e.expiry;
            return Ok(Some(Hit { kind, expiry, place: ValueLocation::Memtable(e, &slot.map) }));
        }
    }
    if view.version.is_empty() {
        return Ok(None);
    }
    let deleted = match view.version.ranges() {
        ranges if ranges.is_empty() => 0,
        ranges => ranges.newest(order, key, seq),
    };
    let (hit, wasted) = look_in(&view.version, key, seq, want_value, guard, gate)?;
    if gate.is_shut() {
        return Ok(None);
    }
    // One run is always searched.
    let wasted = if hit.is_none() { wasted.saturating_sub(GET_CHARGE) } else { wasted };
    if wasted > 0 && !gate.explains() {
        view.probes.charge(wasted);
    }
    Ok(hit.filter(|hit| hit.place.seq() >= deleted))
}

/// Returns the newest version of `key` at or below `seq` in the tables of `version`, and the charge for those that held none. The result is
/// meaningless if `gate` is shut afterwards.
#[expect(clippy::inline_always, reason = "a call would copy the result, which is large, more than once")]
#[inline(always)]
fn look_in<'g>(
    version: &'g TableVersion,
    key: &[u8],
    seq: SeqNo,
    want_value: bool,
    guard: &'g Guard,
    gate: &mut impl ReadGate,
) -> Result<(Option<Hit<'g>>, u32)> {
    let hash = key_hash(key);
    let mut candidates = Candidates::default();
    version.tables_for(key, |slot| {
        slot.table().prefetch(hash);
        candidates.push(slot.table());
    });
    let mut wasted = 0;
    for table in candidates.iter() {
        let found = table.get_through((key, hash), seq, want_value, guard, gate)?;
        if gate.is_shut() {
            return Ok((None, 0));
        }
        if let Some(found) = found {
            let (kind, expiry) = (found.kind, found.expiry);
            let hit = Hit { kind, expiry, place: ValueLocation::Table(found.value, found.seq) };
            return Ok((Some(hit), wasted));
        }
        wasted += GET_CHARGE;
    }
    Ok((None, wasted))
}

/// Tables to search, newest first. There is room without an allocation for a full level 1, the runs of the tiered level, and the largest
/// level.
pub(super) type Candidates<'a> = SmallVec<[&'a Table; 64]>;

/// What an entry says about its value.
#[derive(Debug)]
pub enum Located {
    /// The value.
    Inline(Slice),
    /// Where it lies in the value log.
    Stored(ValuePlace),
}

impl Located {
    /// The value at an encoded place.
    ///
    /// # Errors
    /// `Internal`: the bytes are not a place.
    pub fn stored(bytes: &[u8]) -> Result<Self> {
        place(bytes).map(Self::Stored)
    }
}

/// Returns what the entry of `key` in `view` says about its value.
///
/// # Errors
/// As [`get`].
pub fn locate(
    reads: &ReadCtx,
    family: &FamilyCore,
    view: &Arc<ReadView>,
    key: &[u8],
    snapshot: Option<SeqNo>,
) -> Result<Option<Located>> {
    reads.check_open()?;
    let guard = pin();
    family.check_usable()?;
    let seq = snapshot.unwrap_or_else(|| reads.visible());
    let hit = lookup(view, key, seq, true, &guard, &mut AllowAllReads)?.filter(|hit| hit.is_live(reads));
    let search = Search { reads, family, view, now: None };
    hit.map(|hit| search.located(key, hit, &guard, &mut AllowAllReads)).transpose()
}

/// Returns the value at an encoded place.
///
/// # Errors
/// `Corrupt`, `Io`; `MemoryLimit` if the value is too long to be returned whole.
pub fn resolve(family: &FamilyCore, bytes: &[u8]) -> Result<Slice> {
    match VlogPointer::decode(bytes) {
        Some(pointer) => family.vlog.read(&pointer).map(Slice::from),
        None => resolve_chunks(family, bytes, Vec::new()),
    }
}

/// Like [`resolve`], for a chunked value. Uses the memory of `spare`.
#[cold]
pub(super) fn resolve_chunks(family: &FamilyCore, bytes: &[u8], spare: Vec<u8>) -> Result<Slice> {
    read_at(family, &place(bytes)?, spare)
}

/// Returns the value at `place`. Uses the memory of `spare` for a chunked one if it is enough.
fn read_at(family: &FamilyCore, place: &ValuePlace, spare: Vec<u8>) -> Result<Slice> {
    match place {
        ValuePlace::Record(pointer) => family.vlog.read(pointer).map(Slice::from),
        ValuePlace::Chunks(place) => whole(family, place, spare),
    }
}

/// Reads a chunked value into memory, that of `spare` if it is enough.
fn whole(family: &FamilyCore, place: &ChunkedPlace, spare: Vec<u8>) -> Result<Slice> {
    let too_long = || Error::MemoryLimit {
        what: format!(
            "a value of {} bytes is too long to be read whole; read it with `value_reader`",
            place.len
        )
        .into(),
    };
    let len = usize::try_from(place.len).ok().filter(|len| *len <= VALUE_BYTES_MAX).ok_or_else(too_long)?;
    family.vlog.read_whole(place, len, spare).map(Slice::from)
}

/// The step of reading the value at an encoded place.
fn step_of(bytes: &[u8]) -> ReadStep {
    let (vlog, bytes) = match ValuePlace::decode(bytes) {
        Some(ValuePlace::Record(pointer)) => (pointer.vlog, pointer.record_bytes()),
        Some(ValuePlace::Chunks(place)) => {
            (place.index.vlog, place.parts.iter().map(|part| part.bytes).sum())
        }
        None => (VlogId(0), 0),
    };
    ReadStep::Stored { vlog, bytes }
}

fn place(bytes: &[u8]) -> Result<ValuePlace> {
    ValuePlace::decode(bytes).ok_or_else(|| Error::internal("an entry holds a malformed pointer"))
}
