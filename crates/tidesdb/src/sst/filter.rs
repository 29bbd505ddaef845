//! A blocked Bloom filter: all bits of a key lie in one cache line, so a query touches memory once (Putze, Sanders and
//! Singler, "Cache-, Hash- and Space-Efficient Bloom Filters", 2007).
//!
//! The high half of a key's hash selects the line. A mix of the whole hash yields nine bits per probe. A filter is
//! immutable once built. An empty filter (no lines) accepts every key.

use tidesdb_sync::{Guard, prefetch_value};

use super::file::TableFile;
use super::gate::ReadGate;
use super::layout::{CRC_BYTES, begin_section, open_section, seal_section};
use super::parts::{CachedPart, PartitionPlace, Parts};
use super::steps::ReadStep;
use crate::codec::{Decoder, Salt, put_varint};
use crate::{Error, Result};

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
    shape: FilterShape,
    /// Offset of the first partition in the file.
    start: u64,
    /// All lines, or none if they are read when needed.
    lines: Box<[Line]>,
}

impl Filter {
    /// Builds a filter with `bits_per_key` bits for each of `hashes`.
    pub(super) fn build(hashes: &[u64], bits_per_key: u32) -> Self {
        if hashes.is_empty() || bits_per_key == 0 {
            return Self::partitioned(FilterShape::default(), 0);
        }
        let bits = hashes.len() as u64 * u64::from(bits_per_key);
        let lines = bits.div_ceil(LINE_BITS).min(LINES_MAX as u64) as usize;
        // The optimum for a plain Bloom filter is ln 2 probes per bit and key; blocked filters need fewer.
        let probes = (bits_per_key * 5 / 8).clamp(1, PROBES_MAX);
        let mut filter = vec![Line([0; 8]); lines].into_boxed_slice();
        for &hash in hashes {
            if let Some(line) = filter.get_mut(line_of(hash, lines)) {
                for (word, bit) in probes_of(hash, probes) {
                    line.0[word] |= bit;
                }
            }
        }
        Self { shape: FilterShape { lines, probes }, start: 0, lines: filter }
    }

    /// Creates a filter whose partitions, the first of which is at offset `start`, are read when they are needed.
    pub(super) fn partitioned(shape: FilterShape, start: u64) -> Self {
        Self { shape, start, lines: Box::default() }
    }

    /// Reads all partitions, which begin at offset `start`, with one read.
    pub(super) fn resident(shape: FilterShape, start: u64, file: &TableFile) -> Result<Self> {
        let bytes = file.read_range(start..start + shape.disk_bytes())?;
        let mut lines = Vec::new();
        lines.try_reserve_exact(shape.lines).map_err(|_| file.no_memory())?;
        for n in 0..shape.partitions() {
            let (at, len) = shape.place(n);
            let section = bytes.get(at as usize..at as usize + len).unwrap_or_default();
            let partition = FilterPartition::decode(section, &file.meta().salt, file.name(), start + at)?;
            lines.extend_from_slice(&partition.0);
        }
        Ok(Self { shape, start, lines: lines.into() })
    }

    /// Returns whether a key with this hash may be in the table. False means that it certainly is not. Only a resident filter rejects
    /// keys.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        match self.lines.get(line_of(hash, self.lines.len())) {
            Some(line) => probes_of(hash, self.shape.probes)
                .fold(true, |all, (word, bit)| all & (line.0[word] & bit != 0)),
            None => true,
        }
    }

    /// Returns whether the partitions of the file accept a hash. Returns false if `gate` refuses a read.
    #[inline(never)]
    pub(super) fn partition_may_contain(
        &self,
        hash: u64,
        parts: &Parts,
        guard: &Guard,
        gate: &mut impl ReadGate,
    ) -> Result<bool> {
        let Some(n) = self.shape.partition_of(hash) else { return Ok(true) };
        let (file, (offset, len)) = (parts.file(), self.shape.place(n));
        let place = PartitionPlace { key: parts.filter_key(n), at: self.start + offset, len };
        let decode = |section: &[u8]| {
            FilterPartition::decode(section, &file.meta().salt, file.name(), place.at).map(CachedPart::Filter)
        };
        let note = |from, bytes| ReadStep::FilterPart { from, bytes };
        let Some(found) = parts.partition(place, guard, gate, (decode, note))? else { return Ok(false) };
        match found.part() {
            CachedPart::Filter(partition) => Ok(self.shape.may_contain(partition, hash)),
            _ => Err(Error::internal(format!("no partition {n} of the filter of {}", file.name()))),
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
        self.shape
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

    /// Returns the size in memory of the complete filter, in bytes. It may exceed addresses of 32 bits.
    pub(super) fn bytes(self) -> u64 {
        self.lines as u64 * LINE_BYTES as u64
    }

    /// Returns the length on disk, in bytes.
    pub(super) fn disk_bytes(self) -> u64 {
        self.bytes() + self.partitions() as u64 * CRC_BYTES as u64
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
        (n as u64 * (CRC_BYTES + PARTITION_LINES * LINE_BYTES) as u64, CRC_BYTES + lines * LINE_BYTES)
    }

    /// Returns whether a key with this hash may be in the table, according to its `partition`.
    #[inline]
    pub(super) fn may_contain(self, partition: &FilterPartition, hash: u64) -> bool {
        match partition.0.get(line_of(hash, self.lines) % PARTITION_LINES) {
            Some(line) => probes_of(hash, self.probes).all(|(word, bit)| line.0[word] & bit != 0),
            None => true,
        }
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
