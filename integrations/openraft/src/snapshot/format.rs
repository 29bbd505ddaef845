//! The bytes of a snapshot. Numbers are little-endian.
//!
//! ```text
//! header: "TIDERAFT", version u32, length u32, that many bytes of metadata, sum u64
//! block:  length u32, rows u32, that many bytes of rows, sum u64        any number, none with a length of 0
//! end:    0 u32, 0 u32, all rows u64, bytes of all rows u64, sum u64
//! row:    length of the key u32, length of the value u32, key, value    in the order of the keys, without the number of the group
//! ```
//!
//! A sum covers its part, and starts from the sum before it. So no part can be changed, lost, repeated or moved, and none can come from
//! another snapshot.

use crate::codec::damaged;
use std::io::{ErrorKind, Read};
use tidesdb::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const MAGIC: &[u8; 8] = b"TIDERAFT";
const VERSION: u32 = 1;
const NUMBER: usize = 4;
/// Bytes before the rows of a block.
const HEAD: usize = 2 * NUMBER;
const SUM: usize = 8;

/// Longest metadata that is believed.
const META_BYTES_MAX: u32 = 64 << 20;

/// Bytes of rows after which a block ends.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

fn number(n: usize) -> Result<[u8; NUMBER]> {
    let n =
        u32::try_from(n).map_err(|_| Error::InvalidArgument { what: "a row is longer than 4 GiB".into() });
    Ok(n?.to_le_bytes())
}

/// Appends the sum of `part`, which follows one with the sum `before`. Returns it.
fn seal(part: &mut Vec<u8>, before: u64) -> u64 {
    let sum = xxh3_64_with_seed(part, before);
    part.extend_from_slice(&sum.to_le_bytes());
    sum
}

/// Returns the header for `meta`, and its sum.
pub(crate) fn header(meta: &[u8]) -> Result<(Vec<u8>, u64)> {
    let mut part = MAGIC.to_vec();
    part.extend_from_slice(&VERSION.to_le_bytes());
    part.extend_from_slice(&number(meta.len())?);
    part.extend_from_slice(meta);
    let sum = seal(&mut part, 0);
    Ok((part, sum))
}

/// A block that is being filled.
pub(crate) struct Block {
    part: Vec<u8>,
    rows: u32,
}

impl Block {
    pub(crate) fn new() -> Self {
        Self { part: vec![0; HEAD], rows: 0 }
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.part.extend_from_slice(&number(key.len())?);
        self.part.extend_from_slice(&number(value.len())?);
        self.part.extend_from_slice(key);
        self.part.extend_from_slice(value);
        self.rows += 1;
        Ok(())
    }

    /// Returns the bytes of its rows.
    pub(crate) fn bytes(&self) -> usize {
        self.part.len() - HEAD
    }

    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Completes the block, which follows a part with the sum `before`. Returns its bytes and its sum.
    pub(crate) fn finish(mut self, before: u64) -> Result<(Vec<u8>, u64)> {
        let length = number(self.bytes())?;
        self.part[..NUMBER].copy_from_slice(&length);
        self.part[NUMBER..HEAD].copy_from_slice(&self.rows.to_le_bytes());
        let sum = seal(&mut self.part, before);
        Ok((self.part, sum))
    }
}

/// Returns the end of a snapshot with so many rows.
pub(crate) fn end(rows: u64, bytes: u64, before: u64) -> Vec<u8> {
    let mut part = vec![0; HEAD];
    part.extend_from_slice(&rows.to_le_bytes());
    part.extend_from_slice(&bytes.to_le_bytes());
    seal(&mut part, before);
    part
}

/// Reads a snapshot and checks it. Takes the memory of a block.
pub(crate) struct Decoder<R> {
    source: R,
    offset: u64,
    sum: u64,
    rows: u64,
    bytes: u64,
}

impl<R: Read> Decoder<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, offset: 0, sum: 0, rows: 0, bytes: 0 }
    }

    fn damaged<T>(&self, what: &str) -> Result<T> {
        Err(damaged(&format!("the snapshot at offset {}: {what}", self.offset)))
    }

    /// Appends the next `length` bytes to `part`. Memory grows only with what is there.
    fn take(&mut self, part: &mut Vec<u8>, length: usize) -> Result<()> {
        let before = part.len();
        match self.source.by_ref().take(length as u64).read_to_end(part) {
            Ok(_) if part.len() - before == length => {
                self.offset += length as u64;
                Ok(())
            }
            Ok(_) => self.damaged("it ends too early"),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => self.damaged("it ends too early"),
            Err(e) => Err(crate::stores::failed("read", "snapshot".as_ref(), e)),
        }
    }

    /// Reads and compares the sum that follows `part`.
    fn check(&mut self, part: &[u8]) -> Result<()> {
        let mut sum = Vec::with_capacity(SUM);
        self.take(&mut sum, SUM)?;
        self.sum = xxh3_64_with_seed(part, self.sum);
        if sum == self.sum.to_le_bytes() { Ok(()) } else { self.damaged("wrong checksum") }
    }

    /// Reads the header. Returns the metadata.
    pub(crate) fn header(&mut self) -> Result<Vec<u8>> {
        let mut part = Vec::new();
        let fixed = MAGIC.len() + 2 * NUMBER;
        self.take(&mut part, fixed)?;
        if part[..MAGIC.len()] != *MAGIC {
            return self.damaged("not a snapshot of these stores");
        }
        let version = read_number(&part, MAGIC.len());
        if version != VERSION {
            return Err(Error::FormatTooNew { file: "snapshot".into(), found: version, supported: VERSION });
        }
        let length = read_number(&part, MAGIC.len() + NUMBER);
        if length > META_BYTES_MAX {
            return self.damaged("the metadata is too long");
        }
        self.take(&mut part, length as usize)?;
        self.check(&part)?;
        Ok(part.split_off(fixed))
    }

    /// Reads the next block and gives its rows to `row`. Returns false at the end, after which nothing may follow.
    pub(crate) fn block(&mut self, mut row: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<bool> {
        let mut part = Vec::new();
        self.take(&mut part, HEAD)?;
        let (length, count) = (read_number(&part, 0) as usize, read_number(&part, NUMBER));
        if length == 0 {
            return self.end(part).map(|()| false);
        }
        self.take(&mut part, length)?;
        self.check(&part)?;
        let (mut rest, mut found) = (&part[HEAD..], 0u32);
        while !rest.is_empty() {
            let Some((key, value, after)) = split_row(rest) else {
                return self.damaged("a row is longer than its block");
            };
            row(key, value)?;
            rest = after;
            found += 1;
        }
        if found != count {
            return self.damaged("wrong number of rows in a block");
        }
        self.rows += u64::from(count);
        self.bytes += length as u64;
        Ok(true)
    }

    fn end(&mut self, mut part: Vec<u8>) -> Result<()> {
        self.take(&mut part, 2 * SUM)?;
        self.check(&part)?;
        if part[HEAD..] != [self.rows.to_le_bytes(), self.bytes.to_le_bytes()].concat() {
            return self.damaged("wrong number of rows");
        }
        let mut after = Vec::new();
        match self.source.by_ref().take(1).read_to_end(&mut after) {
            Ok(0) => Ok(()),
            Ok(_) => self.damaged("bytes after the end"),
            Err(e) => Err(crate::stores::failed("read", "snapshot".as_ref(), e)),
        }
    }
}

/// Returns the number at `at`, which the caller has read.
fn read_number(part: &[u8], at: usize) -> u32 {
    part[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Splits the first row off.
fn split_row(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (key, rest) = rest.split_first_chunk::<NUMBER>()?;
    let (value, rest) = rest.split_first_chunk::<NUMBER>()?;
    let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key) as usize)?;
    let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value) as usize)?;
    Some((key, value, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot of two blocks.
    fn snapshot() -> Vec<u8> {
        let (mut all, mut sum) = header(b"meta").unwrap();
        for (key, value) in [(b"a", &b"1"[..]), (b"b", b"")] {
            let mut block = Block::new();
            block.put(key, value).unwrap();
            let (part, next) = block.finish(sum).unwrap();
            all.extend(part);
            sum = next;
        }
        all.extend(end(2, 19, sum));
        all
    }

    fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut decoder = Decoder::new(bytes);
        assert_eq!(decoder.header()?, b"meta");
        let mut rows = Vec::new();
        let mut keep = |key: &[u8], value: &[u8]| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        };
        while decoder.block(&mut keep)? {}
        Ok(rows)
    }

    #[test]
    fn a_snapshot_is_read_back() {
        assert_eq!(read(&snapshot()).unwrap(), [(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), vec![])]);
    }

    #[test]
    fn each_changed_bit_and_each_lost_byte_is_found() {
        let good = snapshot();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "bit {bit} of byte {at}");
            }
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
        assert!(read(&[&good[..], b"x"].concat()).is_err());
    }

    /// The sum of a part starts from that of the part before it.
    #[test]
    fn blocks_cannot_be_moved_or_left_out() {
        let good = snapshot();
        let head = header(b"meta").unwrap().0.len();
        let first = HEAD + 10 + SUM;
        let second = HEAD + 9 + SUM;
        let (a, b) = (head..head + first, head + first..head + first + second);
        let rest = &good[b.end..];
        let moved = [&good[..head], &good[b.clone()], &good[a.clone()], rest].concat();
        let without = [&good[..head], &good[b.clone()], rest].concat();
        let twice = [&good[..a.end], &good[a.clone()], &good[b], rest].concat();
        assert!([moved, without, twice].iter().all(|bad| read(bad).is_err()));
    }
}
