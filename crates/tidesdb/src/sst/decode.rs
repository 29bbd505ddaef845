//! Verifies and decodes the bytes of a block: its key part, and the frames of its values.

use super::block::{Block, Frame, LIMITS, Shape};
use super::blocks::Blocks;
use super::file::{TableFile, slice};
use super::index::{CurrentPartition, Fence, VersionKey, encloses};
use crate::Result;
use crate::codec::{decompress_into, decompress_prefix};

/// A frame of a block.
#[derive(Clone, Copy)]
pub(super) struct FramePlace {
    pub(super) fence: Fence,
    pub(super) frame: Frame,
}

impl FramePlace {
    /// Returns the offset of the frame in the file.
    pub(super) fn at(&self) -> u64 {
        self.fence.at + self.fence.key_part as u64 + self.frame.at
    }

    /// Verifies the bytes of the frame.
    pub(super) fn check(&self, file: &TableFile, bytes: &[u8]) -> Result<()> {
        match file.is_intact(self.at(), bytes, self.frame.crc) {
            true => Ok(()),
            false => Err(file.corrupt(self.at(), "checksum mismatch in values")),
        }
    }

    /// Decodes the verified bytes of the frame. Returns `bytes` if they are stored raw, otherwise the bytes in `raw`, of which only the
    /// first `want` are guaranteed to be decoded.
    pub(super) fn decode<'a>(
        &self,
        file: &TableFile,
        bytes: &'a [u8],
        want: usize,
        raw: &'a mut Vec<u8>,
    ) -> Result<&'a [u8]> {
        let frame = &self.frame;
        if frame.disk == frame.raw {
            return Ok(bytes);
        }
        let (compression, corrupt) = (file.meta().compression, |what: &str| file.corrupt(self.at(), what));
        if want < frame.raw && frame.raw <= LIMITS.frame {
            raw.resize(frame.raw, 0);
            decompress_prefix(compression, bytes, raw, want, corrupt)?;
        } else {
            decompress_into(compression, bytes, frame.raw, raw, corrupt)?;
        }
        Ok(raw)
    }
}

impl Blocks {
    /// Returns the shape of a block. Checks the checksum of its key part and that its length matches the index.
    pub(super) fn shape(&self, fence: Fence, key_part: &[u8]) -> Result<Shape> {
        let file = self.file();
        file.body(fence.at, key_part, "block")?;
        let shape = Shape::parse(key_part).map_err(|what| file.corrupt(fence.at, what))?;
        if shape.disk_bytes() != fence.key_part {
            return Err(file.corrupt(fence.at, "length of the key section differs from the index"));
        }
        if shape.has_heads() != self.order().is_bytewise() {
            return Err(file.corrupt(fence.at, "block written for another key order"));
        }
        if file.meta().taken.is_none() {
            return Ok(shape);
        }
        match shape.number_all(file.meta().max_seq) {
            Some(numbered) => Ok(numbered),
            None => {
                Err(file.corrupt(fence.at, "a row of a table built outside of the database has a number"))
            }
        }
    }

    /// Checks the fields of all entries, their order, and that they lie between the fences. Scans and searches of unordered entries could
    /// return to the same position forever.
    pub(super) fn validate(&self, fence: Fence, near: &mut CurrentPartition, block: Block<'_>) -> Result<()> {
        let (order, meta) = (self.order(), self.file().meta());
        let values_disk = fence.disk - fence.key_part as u64;
        block
            .validate(values_disk, meta.compression, meta.min_seq..=meta.max_seq)
            .map_err(|what| self.file().corrupt(fence.at, what))?;
        if !block.is_sorted(order) {
            return Err(self.file().corrupt(fence.at, "entries out of order"));
        }
        let last_at = block.len() - 1;
        let (first, last) = (block.key_at(0), block.key_at(last_at));
        let first = VersionKey { key: &first, seq: block.seq(0) };
        let last = VersionKey { key: &last, seq: block.seq(last_at) };
        let mut border = |b| self.index().border(near, b);
        if encloses(order, border(fence.block)?, border(fence.block + 1)?, first, last) {
            Ok(())
        } else {
            Err(self.file().corrupt(fence.at, "index does not match the block"))
        }
    }

    /// Verifies the key part of a block, which is a prefix of `read`, and stores header, frame table and raw key section in `bytes`.
    pub(super) fn decode_keys(
        &self,
        fence: Fence,
        near: &mut CurrentPartition,
        read: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Result<Shape> {
        let file = self.file();
        let read = read.get(..fence.key_part).unwrap_or(read);
        let shape = self.shape(fence, read)?;
        let (front, keys) = read.split_at(shape.prefix_at as usize);
        bytes.clear();
        bytes.extend_from_slice(front);
        if shape.is_compressed() {
            bytes.resize(shape.end as usize, 0);
            let raw = &mut bytes[shape.prefix_at as usize..];
            shape.decode_keys(file.meta().compression, keys, raw, |what| file.corrupt(fence.at, what))?;
        } else {
            bytes.extend_from_slice(keys);
        }
        self.validate(fence, near, Block { shape: &shape, bytes })?;
        Ok(shape)
    }

    /// Verifies all frames of a block, with which `disk` begins, and stores their values in `values`. Returns where the last frame ends.
    pub(super) fn decode_values(
        &self,
        fence: Fence,
        block: Block<'_>,
        disk: &[u8],
        values: &mut Vec<u8>,
    ) -> Result<usize> {
        let (file, mut rest) = (self.file(), Vec::new());
        // The old content of `values` is not cleared first, because that would be an extra pass per block.
        let (mut len, mut end) = (0, 0);
        for frame in block.frames() {
            let place = FramePlace { fence, frame };
            let bytes = slice(disk, frame.at, frame.disk)
                .ok_or_else(|| file.corrupt(place.at(), "frame extends beyond its block"))?;
            place.check(file, bytes)?;
            if len == 0 && frame.disk != frame.raw {
                place.decode(file, bytes, usize::MAX, values)?;
            } else {
                let raw = place.decode(file, bytes, usize::MAX, &mut rest)?;
                values.truncate(len);
                values.try_reserve(raw.len()).map_err(|_| file.no_memory())?;
                values.extend_from_slice(raw);
            }
            len = values.len();
            end = frame.at as usize + frame.disk;
        }
        values.truncate(len);
        Ok(end)
    }

    /// Verifies and decodes the bytes of a whole block. Its padding must be zeros; lookups and scans do not need it and do not check it.
    pub(super) fn decode_all(
        &self,
        fence: Fence,
        near: &mut CurrentPartition,
        read: &[u8],
        keys: &mut Vec<u8>,
        values: &mut Vec<u8>,
    ) -> Result<Shape> {
        let shape = self.decode_keys(fence, near, read, keys)?;
        let disk = &read[fence.key_part..];
        let end = self.decode_values(fence, Block { shape: &shape, bytes: keys }, disk, values)?;
        match disk.get(end..) {
            Some(padding) if padding.iter().all(|&byte| byte == 0) => Ok(shape),
            _ => Err(self.file().corrupt(fence.at + (fence.key_part + end) as u64, "padding of a block")),
        }
    }
}
