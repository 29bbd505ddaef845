//! Values of entries: from the cached block, or from a frame that is read, verified and decoded, and cached if that
//! pays off.
//!
//! Frames are read separately if a block is long or its keys are mapped. A fraction of these frames is cached. A value
//! is returned in place if it is in a cached frame, or in a mapped frame that is stored raw. Long values never enter
//! the cache.

use std::ops::Range;
use std::sync::atomic::Ordering;

use tidesdb_sync::{Guard, Kept, prefetch};

use super::Table;
use super::block::{Block, Frame, LIMITS};
use super::gate::ReadGate;
use super::index::Fence;
use super::load::Keys;
use super::partitions::CurrentPartition;
use super::reader::{CachedPart, FRAME_BITS};
use super::source::slice;
use super::value::TableValue;
use crate::Result;
use crate::codec::{bound_crc, decompress_into, decompress_prefix};
use crate::types::Slice;

/// A frame of a block of a table.
pub(super) struct FramePlace {
    pub(super) fence: Fence,
    pub(super) frame: Frame,
}

impl FramePlace {
    /// Returns the offset of the frame in the file.
    pub(super) fn at(&self) -> u64 {
        self.fence.at + self.fence.key_part as u64 + self.frame.at
    }
}

/// Per-thread buffers for lookups.
#[derive(Default)]
struct Scratch {
    /// Bytes read.
    disk: Vec<u8>,
    /// Bytes decoded.
    raw: Vec<u8>,
}

thread_local! {
    static SCRATCH: Kept<Scratch> = Kept::new();
}

/// Calls `body` with the buffers of this thread.
fn with_scratch<R>(body: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = Kept::take(&SCRATCH).unwrap_or_default();
    let result = body(&mut scratch);
    Kept::put(&SCRATCH, scratch);
    result
}

/// Result of reading a value if the gate refuses a read.
const REFUSED: TableValue<'static> = TableValue::InPlace(&[]);

impl Table {
    /// Returns value `i` of block `b`. The result is meaningless if `gate` is shut afterwards.
    #[inline]
    pub(super) fn value<'g>(
        &'g self,
        b: usize,
        keys: &Keys<'g>,
        i: usize,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<TableValue<'g>> {
        let block = keys.block().ok_or_else(|| self.wrong_part(b))?;
        let span = block.value_span(i);
        if span.is_empty() {
            return Ok(TableValue::InPlace(&[]));
        }
        match keys {
            Keys::Pinned(cached) => {
                if let Some(value) = cached.values().get(span) {
                    return Ok(TableValue::InPlace(value));
                }
            }
            Keys::Held(part) => {
                if let Some(value) = part.block().and_then(|cached| cached.values().get(span)) {
                    return Ok(TableValue::Owned(value.into()));
                }
            }
            Keys::Passing(block) => {
                if let Some(value) = block.values().get(span) {
                    return Ok(TableValue::Owned(value.into()));
                }
            }
            Keys::Mapped(..) => {}
        }
        self.value_of_frame(b, block, i, guard, gate)
    }

    /// Returns value `i` of block `b`, from its frame.
    fn value_of_frame<'g>(
        &'g self,
        b: usize,
        block: Block<'_>,
        i: usize,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<TableValue<'g>> {
        let fence = self.fence(&mut CurrentPartition::default(), b)?;
        let frame = block.frame_of(i).ok_or_else(|| self.corrupt(fence.at, "value without a frame"))?;
        let place = FramePlace { fence, frame };
        let span = frame.place_of(block.value_span(i));
        let at = place.at();
        if frame.disk == frame.raw
            && let Some(map) = self.source.map()
        {
            let values =
                slice(map, at, frame.disk).ok_or_else(|| self.corrupt(at, "unexpected end of file"))?;
            self.check_values(&place, values)?;
            return self.part_of(&place, values, span).map(TableValue::InPlace);
        }
        if frame.raw <= LIMITS.frame && frame.number < usize::from(u8::MAX) {
            return self.cached_value(&place, span, guard, gate);
        }
        if !self.admits(gate, at, frame.disk) {
            return Ok(REFUSED);
        }
        if frame.raw > LIMITS.frame {
            return self.long_value(&place, span).map(TableValue::Owned);
        }
        with_scratch(|scratch| {
            let values = self.frame_values(&place, span.end, scratch)?;
            self.part_of(&place, values, span).map(|value| TableValue::Owned(value.into()))
        })
    }

    /// Returns the value of a frame with a single value: decoded into the returned memory, with no other copy kept.
    fn long_value(&self, place: &FramePlace, span: Range<usize>) -> Result<Slice> {
        let mut buffers = Scratch::default();
        let values = self.frame_values(place, usize::MAX, &mut buffers)?;
        if span != (0..values.len()) {
            return self.part_of(place, values, span).map(Slice::from);
        }
        Ok(Slice::from(if place.frame.disk == place.frame.raw { buffers.disk } else { buffers.raw }))
    }

    /// Returns a value from the cached frame, reading the frame first if necessary.
    fn cached_value<'g>(
        &'g self,
        place: &FramePlace,
        span: Range<usize>,
        guard: &'g Guard,
        gate: &mut impl ReadGate,
    ) -> Result<TableValue<'g>> {
        let key = self.cache_key(place.fence.block, place.frame.number as u8 + 1);
        if let Some(map) = self.source.map() {
            // Most lookups use these bytes. They load while the cache is searched.
            prefetch(map, place.at() as usize);
        }
        if let Some(CachedPart::Values(values)) = self.cache.get_pinned(key, guard) {
            return self.part_of(place, values, span).map(TableValue::InPlace);
        }
        if !self.admits(gate, place.at(), place.frame.disk) {
            return Ok(REFUSED);
        }
        with_scratch(|scratch| {
            let admit = self.is_worth_caching(key);
            let want = if admit { usize::MAX } else { span.end };
            let values = self.frame_values(place, want, scratch)?;
            if admit {
                let charge = (values.len() + size_of::<CachedPart>()) as u64;
                self.cache.insert(key, CachedPart::Values(values.into()), charge);
            }
            self.part_of(place, values, span).map(|value| TableValue::Owned(value.into()))
        })
    }

    fn part_of<'v>(&self, place: &FramePlace, values: &'v [u8], span: Range<usize>) -> Result<&'v [u8]> {
        values.get(span).ok_or_else(|| self.corrupt(place.fence.at, "value extends beyond its frame"))
    }

    /// Returns the verified values of a frame: in place, or in one of the buffers. Only the first `want` bytes are
    /// guaranteed to be decoded.
    fn frame_values<'a>(
        &'a self,
        place: &FramePlace,
        want: usize,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8]> {
        let bytes = self.source.read(place.at(), place.frame.disk, &mut scratch.disk, &self.name)?;
        self.count_read(bytes.len());
        self.decode_frame(place, bytes, want, &mut scratch.raw)
    }

    /// Verifies and decodes the bytes read of a frame. Returns `bytes` if they are stored raw, otherwise the bytes in
    /// `raw`, of which only the first `want` are guaranteed to be decoded.
    pub(super) fn decode_frame<'a>(
        &self,
        place: &FramePlace,
        bytes: &'a [u8],
        want: usize,
        raw: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        self.check_values(place, bytes)?;
        let frame = &place.frame;
        if frame.disk == frame.raw {
            return Ok(bytes);
        }
        let (compression, corrupt) = (self.meta.compression, |what: &str| self.corrupt(place.at(), what));
        if want < frame.raw && frame.raw <= LIMITS.frame {
            raw.resize(frame.raw, 0);
            decompress_prefix(compression, bytes, raw, want, corrupt)?;
        } else {
            decompress_into(compression, bytes, frame.raw, raw, corrupt)?;
        }
        Ok(raw)
    }

    /// Verifies the bytes of a frame. A frame of a mapped file is verified once.
    #[inline]
    fn check_values(&self, place: &FramePlace, bytes: &[u8]) -> Result<()> {
        let (b, bit) = (place.fence.block, place.frame.number + 1);
        let known = bit <= FRAME_BITS
            && self.verified.get(b).is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << bit != 0);
        if !known {
            if bound_crc(&self.meta.salt, place.at(), &[bytes]) != place.frame.crc {
                return Err(self.corrupt(place.at(), "checksum mismatch in values"));
            }
            self.mark_verified(b, bit);
        }
        Ok(())
    }
}
