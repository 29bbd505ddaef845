//! Builds files of arbitrary contents with valid checksums from short inputs.
//!
//! The layout is read from the modified bytes, as a reader would do. Parts outside the file are left without a valid
//! checksum.

use tidesdb::internals::codec::{Decoder, Salt, bound_crc};
use tidesdb::internals::types::WalId;

use super::bytes::{put, u32_at, u64_at};

const FOOTER: usize = 64;
const BLOCK_HEADER: usize = 44;
const FRAME: usize = 10;

/// Splits a table file into its short form: four parts, each with its length; the fields of the footer other than the
/// offsets; and masks:
///
/// ```text
/// data | partitions | top level | properties (each: length u32, bytes) |
/// salt 16, number u64, blocks u32, version u16, kinds 2 | masks u64 x 3, XORed into the offsets of the footer
/// ```
pub fn table_parts(file: &[u8]) -> Option<Vec<u8>> {
    let footer = file.get(file.len().checked_sub(FOOTER)?..)?;
    let offset = |at| u64_at(footer, at).and_then(|n| usize::try_from(n).ok());
    let (filter, index, props) = (offset(24)?, offset(32)?, offset(40)?);
    let mut out = Vec::new();
    for part in [0..filter, filter..index, index..props, props..file.len() - FOOTER] {
        let bytes = file.get(part)?;
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    }
    out.extend_from_slice(&footer[..24]);
    out.extend_from_slice(&footer[48..56]);
    out.extend_from_slice(&[0; 24]);
    Some(out)
}

/// Builds a table file from its parts; returns it together with the body of its properties.
pub fn table(parts: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut rest = parts;
    let mut file = Vec::new();
    let mut ends = [0; 4];
    for end in &mut ends {
        let Some((length, tail)) = rest.split_first_chunk::<4>() else { break };
        let (bytes, tail) = tail.split_at(tail.len().min(u32::from_le_bytes(*length) as usize));
        file.extend_from_slice(bytes);
        rest = tail;
        *end = file.len();
    }
    let mut tail = rest.to_vec();
    tail.resize(56.max(rest.len()), 0);
    let mut salt: Salt = [0; 16];
    salt.copy_from_slice(&tail[..16]);
    seal_partitions(&mut file, &salt, ends);
    for part in [ends[1]..ends[2], ends[2]..ends[3]] {
        seal_section(&mut file, &salt, part);
    }
    let props = file.get(ends[2] + 4..ends[3]).unwrap_or_default().to_vec();
    let at = file.len() as u64;
    let mut footer = tail[..24].to_vec();
    for (end, mask) in ends.iter().zip([32, 40, 48]) {
        footer.extend_from_slice(&(*end as u64 ^ u64_at(&tail, mask).unwrap_or(0)).to_le_bytes());
    }
    footer.extend_from_slice(&tail[24..32]);
    let crc = bound_crc(&salt, at, &[&footer, b"TKLG"]);
    footer.extend_from_slice(&crc.to_le_bytes());
    footer.extend_from_slice(b"TKLG");
    file.extend_from_slice(&footer);
    (file, props)
}

fn seal_section(file: &mut [u8], salt: &Salt, part: std::ops::Range<usize>) {
    if part.len() >= 4 {
        let crc = bound_crc(salt, part.start as u64, &[&file[part.start + 4..part.end]]);
        put(file, part.start, &crc.to_le_bytes());
    }
}

/// Size of a partition of a filter in bytes, except the last one.
const FILTER_PARTITION: u64 = 2052;
/// Lines of 64 bytes per partition, each partition with one checksum. The last partition has the remaining lines.
const LINES: u64 = 32;

/// Seals the partitions named by the top level, and the blocks named by those partitions.
fn seal_partitions(file: &mut [u8], salt: &Salt, ends: [usize; 4]) {
    let top = file.get(ends[1] + 4..ends[2]).unwrap_or_default().to_vec();
    let mut d = Decoder::new(&top, "", 0);
    let (Ok(lines), Ok(_), Ok(count)) = (d.varint(), d.u8(), d.varint()) else { return };
    let filter_bytes = lines.saturating_mul(64).saturating_add(lines.div_ceil(LINES).saturating_mul(4));
    let filter_end = (ends[0] as u64).saturating_add(filter_bytes).min(ends[1] as u64);
    let mut at = ends[0] as u64;
    while at < filter_end {
        let end = filter_end.min(at + FILTER_PARTITION);
        seal_section(file, salt, at as usize..end as usize);
        at = end;
    }
    let mut data = 0u64;
    for _ in 0..count {
        let mut fields = || -> tidesdb::Result<(u64, u64)> {
            d.varint()?;
            d.bytes(usize::MAX)?;
            let (length, _, data) = (d.varint()?, d.varint()?, d.varint()?);
            if length & 1 == 1 {
                d.varint()?;
            }
            Ok((length >> 1, data))
        };
        let Ok((length, covered)) = fields() else { return };
        let end = at.saturating_add(length).min(ends[1] as u64);
        seal_blocks(file, salt, (at as usize..end as usize, data as usize));
        seal_section(file, salt, at as usize..end as usize);
        (at, data) = (end, data.saturating_add(covered));
    }
}

/// Seals the blocks named by an index or by one of its partitions; the first block starts at `at`.
fn seal_blocks(file: &mut [u8], salt: &Salt, (index, mut at): (std::ops::Range<usize>, usize)) {
    let index = file.get(index.start + 4..index.end).unwrap_or_default().to_vec();
    let mut d = Decoder::new(&index, "", 0);
    while d.remaining() > 0 && at < file.len() {
        let mut fields = || -> tidesdb::Result<(u64, u64)> {
            d.varint()?;
            d.bytes(usize::MAX)?;
            let (length, key_part) = (d.varint()?, d.varint()?);
            if length & 1 == 1 {
                d.varint()?;
            }
            Ok((length >> 1, key_part))
        };
        let Ok((length, key_part)) = fields() else { return };
        seal_block(file, salt, at, key_part as usize);
        at = at.saturating_add(length as usize);
    }
}

fn seal_block(file: &mut [u8], salt: &Salt, at: usize, key_part: usize) {
    let Some(end) = at.checked_add(key_part).filter(|end| *end <= file.len() && key_part > BLOCK_HEADER)
    else {
        return;
    };
    let frames = usize::from(file[at + 38]) | usize::from(file[at + 39]) << 8;
    let mut frame_at = end;
    for frame in (0..frames).map(|f| at + BLOCK_HEADER + FRAME * f) {
        let disk = u32_at(file, frame + 2).unwrap_or(0) as usize;
        let Some(bytes) = frame_at.checked_add(disk).and_then(|end| file.get(frame_at..end)) else { break };
        let crc = bound_crc(salt, frame_at as u64, &[bytes]);
        if frame + FRAME <= end {
            put(file, frame + 6, &crc.to_le_bytes());
        }
        frame_at += disk;
    }
    let crc = bound_crc(salt, at as u64, &[&file[at + 4..end]]);
    put(file, at, &crc.to_le_bytes());
}

/// Seals the header and all records of a value log in place.
pub fn vlog(file: &mut [u8]) {
    if file.len() < 40 {
        return;
    }
    let crc = bound_crc(&[0; 16], 0, &[&file[..36]]);
    put(file, 36, &crc.to_le_bytes());
    let mut salt: Salt = [0; 16];
    salt.copy_from_slice(&file[20..36]);
    let mut at = 40usize;
    while let Some(disk) = u32_at(file, at + 12).filter(|_| at + 18 <= file.len()) {
        let end = (at + 18).saturating_add(disk as usize);
        let payload = file.get(at + 18..end.min(file.len())).unwrap_or_default();
        let crc = crc32c::crc32c(payload);
        put(file, at + 4, &crc.to_le_bytes());
        let crc = bound_crc(&salt, at as u64, &[&file[at + 4..at + 18]]);
        put(file, at, &crc.to_le_bytes());
        at = end;
    }
}

const SEGMENT_HEADER: usize = 4096;
const HEADER_USED: usize = 96;
/// Maximum length of a generated file, in segments.
const SPAN_MAX: u32 = 4;

/// Returns the short form of a segment: the used part of its header, and its records without trailing zeros.
pub fn segment_parts(file: &[u8]) -> Option<Vec<u8>> {
    let records = file.get(SEGMENT_HEADER..)?;
    let used = records.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
    Some([file.get(..HEADER_USED)?, &records[..used]].concat())
}

/// Builds a sealed segment file from its short form; returns it together with the number in its header.
pub fn segment(parts: &[u8]) -> (Vec<u8>, WalId) {
    let mut head = parts.to_vec();
    head.resize(HEADER_USED.max(parts.len()), 0);
    let (head, records) = head.split_at(HEADER_USED);
    let mut file = head.to_vec();
    file.resize(SEGMENT_HEADER, 0);
    file.extend_from_slice(records);
    let (id, bytes) = (u64_at(&file, 16).unwrap_or(0), u64_at(&file, 24).unwrap_or(0));
    let span = u32_at(&file, 12).unwrap_or(1).clamp(1, SPAN_MAX);
    if bytes <= 64 << 10 {
        file.resize(bytes as usize * span as usize, 0);
    }
    if file.len() < SEGMENT_HEADER {
        return (file, WalId(id));
    }
    let mut salt: Salt = [0; 16];
    salt.copy_from_slice(&file[32..48]);
    let crc = bound_crc(&salt, 0, &[&file[..92]]);
    put(&mut file, 92, &crc.to_le_bytes());
    seal_records(&mut file, &salt, id.wrapping_mul(bytes));
    (file, WalId(id))
}

fn seal_records(file: &mut [u8], salt: &Salt, base: u64) {
    let mut at = SEGMENT_HEADER;
    while let Some(body) = u32_at(file, at + 4).filter(|_| at + 32 <= file.len()) {
        if file[at + 24..at + 28] == [0; 4] {
            return; // no record kind: the end
        }
        let seq = base.wrapping_add(at as u64) / 8;
        put(file, at + 8, &seq.to_le_bytes());
        let end = (at + 32).saturating_add((body as usize).next_multiple_of(8));
        let covered = if file[at + 27] == 2 { 0..0 } else { at + 32..end.min(file.len()) };
        let crc = bound_crc(salt, seq.wrapping_mul(8), &[&file[at + 4..at + 32], &file[covered]]);
        put(file, at, &crc.to_le_bytes());
        at = end;
    }
}
