//! Values of entries: from the cached block, or from a frame that is read, verified and decoded, and cached if that
//! pays off.
//!
//! Frames are read separately if a block is long or its keys are mapped. A fraction of these frames is cached. A value
//! is returned in place if it is in a cached frame, or in a mapped frame that is stored raw. Long values never enter
//! the cache.

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use tidesdb_sync::{Guard, prefetch};

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
use crate::codec::{Compression, bound_crc, decompress_into, decompress_prefix};
use crate::types::Slice;

/// Per-thread buffers for lookups.
struct Scratch {
    /// Bytes read.
    disk: Vec<u8>,
    /// Bytes decoded.
    raw: Vec<u8>,
}

thread_local! {
    /// Never borrowed during a call that could reach this module again.
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch { disk: Vec::new(), raw: Vec::new() }) };
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
        let (start, end) = block.value_span(i);
        if start == end {
            return Ok(TableValue::InPlace(&[]));
        }
        match keys {
            Keys::Pinned(cached) => {
                if let Some(value) = cached.values().get(start..end) {
                    return Ok(TableValue::InPlace(value));
                }
            }
            Keys::Held(part) => {
                if let Some(value) = part.block().and_then(|cached| cached.values().get(start..end)) {
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
        let (start, end) = block.value_span(i);
        let fence = self.fence(&mut CurrentPartition::default(), b)?;
        let (f, frame) = block.frame_of(i).ok_or_else(|| self.corrupt(fence.at, "value without a frame"))?;
        let span = (start.wrapping_sub(frame.base), end.wrapping_sub(frame.base));
        let at = fence.at + fence.key_part as u64 + frame.at;
        if frame.disk == frame.raw
            && let Some(map) = self.source.map()
        {
            let values =
                slice(map, at, frame.disk).ok_or_else(|| self.corrupt(at, "unexpected end of file"))?;
            self.check_values((b, f), at, frame, values)?;
            return self.part_of(fence, values, span).map(TableValue::InPlace);
        }
        if frame.raw <= LIMITS.frame && f < usize::from(u8::MAX) {
            return self.cached_value((b, f), fence, frame, span, (guard, gate));
        }
        if !self.admits(gate, at, frame.disk) {
            return Ok(REFUSED);
        }
        if frame.raw > LIMITS.frame {
            return self.long_value((b, f), fence, frame, span).map(TableValue::Owned);
        }
        SCRATCH.with_borrow_mut(|s| {
            let values = self.frame_values((b, f), fence, frame, span.1, (&mut s.disk, &mut s.raw))?;
            self.part_of(fence, values, span).map(|value| TableValue::Owned(value.into()))
        })
    }

    /// Returns the value of a frame with a single value: decoded into the returned memory, with no other copy kept.
    fn long_value(
        &self,
        (b, f): (usize, usize),
        fence: Fence,
        frame: Frame,
        span: (usize, usize),
    ) -> Result<Slice> {
        let (mut disk, mut raw) = (Vec::new(), Vec::new());
        let values = self.frame_values((b, f), fence, frame, usize::MAX, (&mut disk, &mut raw))?;
        if span != (0, values.len()) {
            return self.part_of(fence, values, span).map(Slice::from);
        }
        Ok(Slice::from(if frame.disk == frame.raw { disk } else { raw }))
    }

    /// Returns a value from the cached frame, reading the frame first if necessary.
    fn cached_value<'g>(
        &'g self,
        (b, f): (usize, usize),
        fence: Fence,
        frame: Frame,
        span: (usize, usize),
        (guard, gate): (&'g Guard, &mut impl ReadGate),
    ) -> Result<TableValue<'g>> {
        let key = self.cache_key(b, f as u8 + 1);
        if let Some(map) = self.source.map() {
            // Most lookups use these bytes. They load while the cache is searched.
            prefetch(map, (fence.at + fence.key_part as u64 + frame.at) as usize);
        }
        if let Some(CachedPart::Values(values)) = self.cache.get_pinned(key, guard) {
            return self.part_of(fence, values, span).map(TableValue::InPlace);
        }
        if !self.admits(gate, fence.at + fence.key_part as u64 + frame.at, frame.disk) {
            return Ok(REFUSED);
        }
        SCRATCH.with_borrow_mut(|s| {
            let admit = self.meta.compression == Compression::Zstd || self.cache.admits(key);
            let want = if admit { usize::MAX } else { span.1 };
            let values = self.frame_values((b, f), fence, frame, want, (&mut s.disk, &mut s.raw))?;
            if admit {
                let charge = (values.len() + size_of::<CachedPart>()) as u64;
                self.cache.insert(key, CachedPart::Values(values.into()), charge);
            }
            self.part_of(fence, values, span).map(|value| TableValue::Owned(value.into()))
        })
    }

    fn part_of<'v>(&self, fence: Fence, values: &'v [u8], (start, end): (usize, usize)) -> Result<&'v [u8]> {
        values.get(start..end).ok_or_else(|| self.corrupt(fence.at, "value extends beyond its frame"))
    }

    /// Returns the verified values of frame `f` of block `b`: in place, or in one of the buffers (bytes read, bytes
    /// decoded). Only the first `want` bytes are guaranteed to be decoded.
    pub(super) fn frame_values<'a>(
        &'a self,
        (b, f): (usize, usize),
        fence: Fence,
        frame: Frame,
        want: usize,
        (disk, raw): (&'a mut Vec<u8>, &'a mut Vec<u8>),
    ) -> Result<&'a [u8]> {
        let at = fence.at + fence.key_part as u64 + frame.at;
        let bytes = self.source.read(at, frame.disk, disk, &self.name)?;
        self.count_read(bytes.len());
        self.decode_frame((b, f), at, frame, want, (bytes, raw))
    }

    /// Like `frame_values`, for a frame at offset `at` that was already read. Returns `bytes` if they are stored raw.
    pub(super) fn decode_frame<'a>(
        &self,
        (b, f): (usize, usize),
        at: u64,
        frame: Frame,
        want: usize,
        (bytes, raw): (&'a [u8], &'a mut Vec<u8>),
    ) -> Result<&'a [u8]> {
        self.check_values((b, f), at, frame, bytes)?;
        if frame.disk == frame.raw {
            return Ok(bytes);
        }
        let (compression, corrupt) = (self.meta.compression, |what: &str| self.corrupt(at, what));
        if want < frame.raw && frame.raw <= LIMITS.frame {
            raw.resize(frame.raw, 0);
            decompress_prefix(compression, bytes, raw, want, corrupt)?;
        } else {
            decompress_into(compression, bytes, frame.raw, raw, corrupt)?;
        }
        Ok(raw)
    }

    /// Verifies the bytes of frame `f` of block `b`, which start at offset `at`. A frame of a mapped file is verified
    /// once.
    #[inline]
    fn check_values(&self, (b, f): (usize, usize), at: u64, frame: Frame, bytes: &[u8]) -> Result<()> {
        let bit = f + 1;
        let known = bit <= FRAME_BITS
            && self.verified.get(b).is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << bit != 0);
        if !known {
            if bound_crc(&self.meta.salt, at, &[bytes]) != frame.crc {
                return Err(self.corrupt(at, "checksum mismatch in values"));
            }
            self.mark_verified(b, bit);
        }
        Ok(())
    }
}
