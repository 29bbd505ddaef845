//! The domains of numbers on disk. Decoders check numbers against them; writers keep within them.
//! `docs/formats/numbers.md` lists every number with its domain.

use super::SEQ_MAX;

/// Shortest segment of the log in bytes.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Longest segment of the log in bytes.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
/// Segment lengths are multiples of this.
const SEGMENT_BYTES_STEP: u64 = 4096;
/// Bytes of log per sequence number.
const SEQ_BYTES: u64 = 8;

/// Largest table or value log in bytes; no count within a file can be larger.
pub const FILE_BYTES_MAX: u64 = 1 << 50;
/// Largest number of a table or manifest. A counter may be one larger.
pub const FILE_NUMBER_MAX: u64 = (1 << 56) - 1;
/// Largest number of a family or value log. A counter may be one larger.
pub const ID_MAX: u32 = u32::MAX - 1;
/// Largest number of a log segment for any segment length; see [`wal_id_max`].
pub const WAL_ID_MAX: u64 = SEQ_MAX / (SEGMENT_BYTES_MIN / SEQ_BYTES);

/// Returns true if log segments may have `n` bytes: the domain of the option `wal_segment_bytes` and of the manifest's
/// field.
pub fn is_segment_bytes(n: u64) -> bool {
    n.is_multiple_of(SEGMENT_BYTES_STEP) && (SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&n)
}

/// Largest number of a log segment of `segment_bytes` bytes: sequence numbers in it stay within [`SEQ_MAX`].
pub fn wal_id_max(segment_bytes: u64) -> u64 {
    SEQ_MAX / (segment_bytes / SEQ_BYTES).max(1)
}
