//! Checksums of any part of a file in a bounded number of steps, for a search among bytes that a user may have chosen.
//!
//! A search for the next record looks at each place where one may begin. If the bytes there state a length and a checksum, then
//! checking them takes as long as the length, and users can store bytes of which each place states a long one. [`PartSums`] reads the file
//! once and keeps the checksum of the bytes before each [`STRIDE`]. That of any part follows from those at both of its ends: the checksum
//! of a sequence is a remainder, so it is the sum of that of its front, shifted, and that of its rest.

use std::ops::Range;

use tidesdb_io::{crc32c, crc32c_joined};

use crate::{Error, Result};

/// Bytes between two checksums that are kept: they take 1/64 of the length of the range.
const STRIDE: u64 = 256;
/// Bytes that are read at once for the checksums that are kept.
const READ_BYTES: u64 = 64 << 10;

/// The bytes between two checksums that are kept.
#[derive(Debug)]
struct Block {
    /// Where they begin; `None` if none were read.
    at: Option<u64>,
    bytes: [u8; STRIDE as usize],
}

/// The checksums of the parts of a range of a file. The range must not change meanwhile, or the checksums are wrong.
#[derive(Debug)]
pub struct PartSums {
    range: Range<u64>,
    /// The checksum of the bytes of the range before each stride of it.
    sums: Vec<u32>,
    /// The blocks that held the begin and the end of the last part that was asked for: the next part often has the same.
    blocks: [Block; 2],
}

impl PartSums {
    /// Reads `range` by `read`, which fills a buffer with the bytes at an offset.
    ///
    /// # Errors
    /// Errors of `read`; `MemoryLimit`.
    pub fn of(range: Range<u64>, mut read: impl FnMut(&mut [u8], u64) -> Result<()>) -> Result<Self> {
        let mut sums = Vec::new();
        let count = usize::try_from((range.end - range.start).div_ceil(STRIDE) + 1);
        let room = count.is_ok_and(|count| sums.try_reserve_exact(count).is_ok());
        if !room {
            return Err(Error::MemoryLimit { what: "the search for records".into() });
        }
        let mut buffer = vec![0; READ_BYTES.min(range.end - range.start) as usize];
        let (mut at, mut crc) = (range.start, 0);
        while at < range.end {
            let bytes = &mut buffer[..READ_BYTES.min(range.end - at) as usize];
            read(bytes, at)?;
            for block in bytes.chunks(STRIDE as usize) {
                sums.push(crc);
                crc = crc32c(crc, block);
            }
            at += bytes.len() as u64;
        }
        sums.push(crc);
        let none = || Block { at: None, bytes: [0; STRIDE as usize] };
        Ok(Self { range, sums, blocks: [none(), none()] })
    }

    /// Returns the CRC32C of some bytes followed by `part` of the range, where `crc` is that of the former. Reads two blocks at most.
    ///
    /// # Errors
    /// Errors of `read`.
    pub fn crc(
        &mut self,
        crc: u32,
        part: Range<u64>,
        mut read: impl FnMut(&mut [u8], u64) -> Result<()>,
    ) -> Result<u32> {
        debug_assert!(self.range.start <= part.start && part.end <= self.range.end, "a part of the range");
        let before = self.before(0, part.start, &mut read)?;
        let all = self.before(1, part.end, &mut read)?;
        // What precedes the part takes no part in the checksum if it is added twice.
        Ok(crc32c_joined(crc ^ before, all, part.end - part.start))
    }

    /// Returns the checksum of the bytes of the range before `at`.
    fn before(
        &mut self,
        block: usize,
        at: u64,
        read: &mut impl FnMut(&mut [u8], u64) -> Result<()>,
    ) -> Result<u32> {
        let skipped = (at - self.range.start) / STRIDE;
        let begin = self.range.start + skipped * STRIDE;
        let sum = self.sums[skipped as usize];
        if begin == at {
            return Ok(sum);
        }
        let block = &mut self.blocks[block];
        if block.at != Some(begin) {
            let len = STRIDE.min(self.range.end - begin) as usize;
            block.at = None;
            read(&mut block.bytes[..len], begin)?;
            block.at = Some(begin);
        }
        Ok(crc32c(sum, &block.bytes[..(at - begin) as usize]))
    }
}

#[cfg(test)]
mod tests {
    use tidesdb_io::checksummed_bytes;

    use super::*;

    #[test]
    fn the_checksum_of_each_part_is_that_of_its_bytes() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|i| ((i * 167) >> 3) as u8).collect();
        for range in [0..0, 0..1, 40..3000, 7..1031, 4096..200_000] {
            let mut reads = 0;
            let mut read = |out: &mut [u8], at: u64| {
                reads += 1;
                out.copy_from_slice(&bytes[at as usize..][..out.len()]);
                Ok(())
            };
            let mut sums = PartSums::of(range.clone(), &mut read).unwrap();
            let len = range.end - range.start;
            let (mut parts, mut work) = (0, 0);
            for from in (0..=len).step_by(len.div_ceil(37).max(1) as usize) {
                for to in [from, from + 1, from + STRIDE - 1, from + STRIDE, from + STRIDE + 1, len / 2, len]
                {
                    if from > to || to > len {
                        continue;
                    }
                    let part = range.start + from..range.start + to;
                    let before = checksummed_bytes();
                    let found = sums.crc(5, part.clone(), &mut read).unwrap();
                    work += checksummed_bytes() - before;
                    parts += 1;
                    assert_eq!(found, crc32c(5, &bytes[part.start as usize..part.end as usize]), "{part:?}");
                }
            }
            assert!(work <= parts * 2 * STRIDE, "{work} bytes for {parts} parts");
            assert!(reads <= len / READ_BYTES + 1 + 2 * parts, "{reads} reads for {parts} parts");
        }
    }
}
