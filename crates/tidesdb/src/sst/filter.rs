//! A blocked Bloom filter: all bits of a key lie in one cache line, so a query touches memory once (Putze, Sanders and
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007).
//!
//! The high half of a key's hash selects the line. A mix of the whole hash yields nine bits per probe. A filter is
//! immutable once built. An empty filter (no lines) accepts every key.

use tidesdb_sync::prefetch_value;

use crate::codec::{Decoder, Salt, put_varint};
use crate::{Error, Result};

use super::layout::{CRC_BYTES, begin_section, open_section, seal_section};

/// Length of a line in bytes.
pub(super) const LINE_BYTES: usize = 64;
const LINE_BITS: u64 = 512;
/// Number of lines of every partition but the last.
pub(super) const PARTITION_LINES: usize = 32;
/// Maximum number of lines: the line of a key is computed in 64 bits.
const LINES_MAX: usize = u32::MAX as usize;
/// Maximum number of probes; more would cost more than they save.
pub(super) const PROBES_MAX: u32 = 8;
/// Multiplier for the hash. Any odd number with balanced bits would do; it is part of the format.
const MIX: u64 = 0x9E6C_63D0_876A_68EB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Reports which keys are certainly not in a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filter {
    lines: Box<[Line]>,
    probes: u32,
}

impl Filter {
    /// Builds a filter with `bits_per_key` bits for each of `hashes`.
    pub(super) fn build(hashes: &[u64], bits_per_key: u32) -> Self {
        if hashes.is_empty() || bits_per_key == 0 {
            return Self::empty();
        }
        let bits = hashes.len() as u64 * u64::from(bits_per_key);
        let lines = bits.div_ceil(LINE_BITS).min(LINES_MAX as u64);
        // The optimum for a plain Bloom filter is ln 2 probes per bit and key; blocked filters need fewer.
        let probes = (bits_per_key * 5 / 8).clamp(1, PROBES_MAX);
        let mut lines = vec![Line([0; 8]); lines as usize].into_boxed_slice();
        for &hash in hashes {
            let at = line_of(hash, lines.len());
            if let Some(line) = lines.get_mut(at) {
                for (word, bit) in probes_of(hash, probes) {
                    line.0[word] |= bit;
                }
            }
        }
        Self { lines, probes }
    }

    /// Returns whether a key with this hash may be in the table. False means that it certainly is not.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        match self.lines.get(line_of(hash, self.lines.len())) {
            Some(line) => {
                probes_of(hash, self.probes).fold(true, |all, (word, bit)| all & (line.0[word] & bit != 0))
            }
            None => true,
        }
    }

    /// Starts loading the line that [`Filter::may_contain`] will read.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(line_of(hash, self.lines.len())) {
            prefetch_value(line);
        }
    }

    /// Returns the shape of the filter, as stored in the top level.
    pub(super) fn shape(&self) -> FilterShape {
        FilterShape { lines: self.lines.len(), probes: self.probes }
    }

    /// Appends the partitions of the filter, to be written at offset `at`. Appends nothing for an empty filter.
    pub(super) fn encode(&self, salt: &Salt, mut at: u64, out: &mut Vec<u8>) {
        for lines in self.lines.chunks(PARTITION_LINES) {
            let mut section = begin_section();
            for word in lines.iter().flat_map(|l| l.0) {
                section.extend_from_slice(&word.to_le_bytes());
            }
            seal_section(salt, at, &mut section);
            out.extend_from_slice(&section);
            at += section.len() as u64;
        }
    }

    /// Returns a filter that accepts every key.
    pub(super) fn empty() -> Self {
        Self { lines: Box::default(), probes: 0 }
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }
}

/// Number of lines and probes of a filter. They determine where its partitions lie and which partition a key belongs
/// to.
///
/// A partition has consecutive lines, so it covers a range of hashes, not a range of keys. The location of a key
/// follows from its hash, and a filter that is completely in memory is one array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterShape {
    lines: usize,
    probes: u32,
}

impl FilterShape {
    /// Appends the encoded shape.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.lines as u64);
        out.push(self.probes as u8);
    }

    /// Decodes what [`encode`](Self::encode) wrote, for a filter of at most `room` bytes.
    pub(super) fn read(d: &mut Decoder<'_>, room: u64) -> Result<Self> {
        let lines = d.number(0..=LINES_MAX as u64, "lines of the filter")? as usize;
        let probes = u32::from(d.u8()?);
        let shape = Self { lines, probes };
        let probes_max = if lines == 0 { 0 } else { PROBES_MAX };
        if (lines == 0) == (probes == 0) && probes <= probes_max && shape.disk_bytes() <= room {
            Ok(shape)
        } else {
            Err(d.corrupt("invalid size of the filter"))
        }
    }

    /// Returns the size in memory of the complete filter, in bytes.
    pub(super) fn bytes(self) -> usize {
        self.lines * LINE_BYTES
    }

    /// Returns the length on disk, in bytes.
    pub(super) fn disk_bytes(self) -> u64 {
        (self.bytes() + self.partitions() * CRC_BYTES) as u64
    }

    /// Returns the number of partitions.
    pub(super) fn partitions(self) -> usize {
        self.lines.div_ceil(PARTITION_LINES)
    }

    /// Returns the partition of a key with this hash; `None` if there is no filter.
    #[inline]
    pub(super) fn partition_of(self, hash: u64) -> Option<usize> {
        (self.lines > 0).then(|| line_of(hash, self.lines) / PARTITION_LINES)
    }

    /// Returns the offset of partition `n` from the start of the filter, and its length.
    #[inline]
    pub(super) fn place(self, n: usize) -> (u64, usize) {
        let lines = PARTITION_LINES.min(self.lines.saturating_sub(n * PARTITION_LINES));
        ((n * (CRC_BYTES + PARTITION_LINES * LINE_BYTES)) as u64, CRC_BYTES + lines * LINE_BYTES)
    }

    /// Returns whether a key with this hash may be in the table, according to its `partition`.
    #[inline]
    pub(super) fn may_contain(self, partition: &FilterPartition, hash: u64) -> bool {
        match partition.0.get(line_of(hash, self.lines) % PARTITION_LINES) {
            Some(line) => probes_of(hash, self.probes).all(|(word, bit)| line.0[word] & bit != 0),
            None => true,
        }
    }

    /// Joins all partitions, in order, into the complete filter.
    pub(super) fn join(self, partitions: &[FilterPartition]) -> Filter {
        let lines = partitions.iter().flat_map(|partition| partition.0.iter().copied()).collect();
        Filter { lines, probes: self.probes }
    }
}

/// A partition of a filter in memory.
#[derive(Debug, PartialEq, Eq)]
pub struct FilterPartition(Box<[Line]>);

impl FilterPartition {
    /// Decodes a section that lies at offset `at`.
    pub(super) fn decode(section: &[u8], salt: &Salt, file: &str, at: u64) -> Result<Self> {
        let (lines, rest) = open_section(salt, at, section, file, "filter")?.as_chunks::<LINE_BYTES>();
        if !rest.is_empty() {
            return Err(Error::corrupt(file, at, "invalid size of the filter"));
        }
        Ok(Self(lines.iter().map(decode_line).collect()))
    }

    /// Returns the size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * LINE_BYTES
    }
}

fn decode_line(bytes: &[u8; LINE_BYTES]) -> Line {
    let mut line = Line([0; 8]);
    for (word, bytes) in line.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    line
}

/// Returns the line of a key: the high half of its hash, scaled to the number of lines.
#[inline]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// Returns the probes of a key: for each, a word of the line and the bit in it.
#[inline]
fn probes_of(hash: u64, probes: u32) -> impl Iterator<Item = (usize, u64)> {
    let product = u128::from(hash) * u128::from(MIX);
    // 128 bits provide fourteen probes of nine bits: the low half provides seven, and the eighth uses the high half.
    let low = (product as u64) ^ ((product >> 64) as u64);
    let high = (product >> 64) as u64;
    (0..probes).map(move |i| {
        let bits = if i < 7 { low >> (9 * i) } else { high >> 20 };
        ((bits as usize >> 6) & 7, 1 << (bits & 63))
    })
}
