//! Packs the keys of a block whose bytes have few different values: digits, hexadecimal numbers, UUIDs, Base64.
//!
//! ```text
//! u8 number of symbols | symbols, ascending | bytes that are not packed | codes
//! ```
//!
//! A code is the position of a byte among the symbols, in as few bits as the number of symbols needs. Eight codes form a
//! group: a little-endian number whose lowest bits are the first code. Heads and then tails are packed; all other columns
//! and the prefix are not. LZ4 finds repeated sequences, but not that a hexadecimal digit needs half a byte.

use std::ops::Range;

/// Maximum number of symbols: with more, a code would take at least seven bits.
pub(in crate::sst) const SYMBOLS_MAX: usize = 64;
/// Codes in a group.
const GROUP: usize = 8;
/// Longest group in bytes.
const GROUP_BYTES_MAX: usize = 6;

/// The packed parts of a raw key section.
#[derive(Clone, Debug)]
pub(super) struct PackedParts {
    /// Heads; a multiple of eight bytes.
    pub(super) heads: Range<usize>,
    /// Tails: the rest of the section.
    pub(super) tails: Range<usize>,
}

impl PackedParts {
    fn bytes(&self) -> usize {
        self.heads.len() + self.tails.len()
    }

    /// Returns how many bytes are not packed.
    fn plain(&self) -> usize {
        self.tails.end - self.bytes()
    }
}

/// Appends `section` to `out`, packed, and returns its length, if that saves at least `worth` bytes.
pub(super) fn pack(section: &[u8], parts: &PackedParts, worth: usize, out: &mut Vec<u8>) -> Option<usize> {
    let keys = || section[parts.heads.clone()].iter().chain(&section[parts.tails.clone()]);
    let mut codes = [u8::MAX; 256];
    for &byte in keys() {
        codes[usize::from(byte)] = 0;
    }
    let symbols: Vec<u8> = (0..=u8::MAX).filter(|&byte| codes[usize::from(byte)] == 0).collect();
    let width = width_of(symbols.len())?;
    let len = 1 + symbols.len() + parts.plain() + parts.bytes().div_ceil(GROUP) * width;
    if section.len() < len + worth {
        return None;
    }
    for (code, &byte) in symbols.iter().enumerate() {
        codes[usize::from(byte)] = code as u8;
    }
    out.push(symbols.len() as u8);
    out.extend_from_slice(&symbols);
    out.extend_from_slice(&section[..parts.heads.start]);
    out.extend_from_slice(&section[parts.heads.end..parts.tails.start]);
    for part in [&parts.heads, &parts.tails] {
        for group in section[part.clone()].chunks(GROUP) {
            let code = |(i, &byte): (usize, &u8)| u64::from(codes[usize::from(byte)]) << (width * i);
            let group = group.iter().enumerate().map(code).fold(0, |all, code| all | code);
            out.extend_from_slice(&group.to_le_bytes()[..width]);
        }
    }
    Some(len)
}

/// Unpacks `packed` into `section`, which has the length of the raw section.
///
/// # Errors
/// A description of what no writer produces.
pub(super) fn unpack(packed: &[u8], parts: &PackedParts, section: &mut [u8]) -> Result<(), &'static str> {
    const SHORT: &str = "packed keys shorter than their block";
    let (&count, rest) = packed.split_first().ok_or(SHORT)?;
    let width = width_of(usize::from(count)).ok_or("invalid number of symbols of packed keys")?;
    let (symbols, rest) = rest.split_at_checked(usize::from(count)).ok_or(SHORT)?;
    if !symbols.is_sorted_by(|a, b| a < b) {
        return Err("symbols of packed keys out of order");
    }
    let (plain, codes) = rest.split_at_checked(parts.plain()).ok_or(SHORT)?;
    if codes.len() != parts.bytes().div_ceil(GROUP) * width {
        return Err("wrong length of packed keys");
    }
    let (prefix, columns) = plain.split_at(parts.heads.start);
    section[..parts.heads.start].copy_from_slice(prefix);
    section[parts.heads.end..parts.tails.start].copy_from_slice(columns);
    let (heads, tails) = codes.split_at(parts.heads.len() / GROUP * width);
    let mut table = [0; SYMBOLS_MAX];
    table[..symbols.len()].copy_from_slice(symbols);
    let highest = unpack_groups(heads, width, &table, &mut section[parts.heads.clone()]).max(unpack_groups(
        tails,
        width,
        &table,
        &mut section[parts.tails.clone()],
    ));
    if highest >= symbols.len() as u64 { Err("invalid code of packed keys") } else { Ok(()) }
}

/// Unpacks groups of codes of `width` bits into `to`. Returns the highest code; above all symbols if the bits behind the
/// last code are not zero.
fn unpack_groups(groups: &[u8], width: usize, table: &[u8; SYMBOLS_MAX], to: &mut [u8]) -> u64 {
    let mask = (1 << width) - 1;
    let mut highest = 0;
    for (group, to) in groups.chunks_exact(width).zip(to.chunks_mut(GROUP)) {
        let mut codes = number(group);
        for byte in to {
            let code = codes & mask;
            highest = highest.max(code);
            *byte = table[code as usize % SYMBOLS_MAX];
            codes >>= width;
        }
        if codes != 0 {
            return u64::MAX;
        }
    }
    highest
}

#[inline]
fn number(group: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..group.len().min(GROUP_BYTES_MAX)].copy_from_slice(group);
    u64::from_le_bytes(bytes)
}

/// Returns the bits of a code, which are the bytes of a group. `None` if keys with so many symbols are not packed.
fn width_of(symbols: usize) -> Option<usize> {
    match symbols {
        1 => Some(1),
        2..=SYMBOLS_MAX => Some((symbols - 1).ilog2() as usize + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(heads: Range<usize>, tails: Range<usize>) -> PackedParts {
        PackedParts { heads, tails }
    }

    #[test]
    fn every_number_of_symbols_survives_the_round_trip() {
        for symbols in 1..=SYMBOLS_MAX + 1 {
            for (columns, tails) in [(0, 400), (3, 401), (11, 407)] {
                let head_end = 5 + 16;
                let tail_at = head_end + columns;
                let section: Vec<u8> = (0..tail_at + tails)
                    .map(|i| {
                        if (5..head_end).contains(&i) || i >= tail_at {
                            (i * 7 % symbols * 3) as u8
                        } else {
                            255 - i as u8
                        }
                    })
                    .collect();
                let parts = parts(5..head_end, tail_at..section.len());
                let mut packed = b"before".to_vec();
                let Some(len) = pack(&section, &parts, 1, &mut packed) else {
                    assert!(symbols > SYMBOLS_MAX, "{symbols} symbols are not packed");
                    assert_eq!(packed, b"before");
                    continue;
                };
                assert!(symbols <= SYMBOLS_MAX);
                let packed = &packed[6..];
                assert!(packed.len() == len && len < section.len());
                let mut raw = vec![0xEE; section.len()];
                unpack(packed, &parts, &mut raw).unwrap();
                assert_eq!(raw, section);
                for cut in 0..packed.len() {
                    assert!(unpack(&packed[..cut], &parts, &mut raw).is_err());
                }
                assert!(unpack(&[packed, &[0]].concat(), &parts, &mut raw).is_err());
            }
        }
    }

    #[test]
    fn packing_that_saves_too_little_is_rejected() {
        let section: Vec<u8> = (0..64).map(|i| b'0' + i % 10).collect();
        let parts = parts(0..8, 8..64);
        let mut packed = Vec::new();
        let len = pack(&section, &parts, 1, &mut packed).unwrap();
        assert_eq!((len, packed.len()), (1 + 10 + 32, 43));
        assert!(pack(&section, &parts, 64 - 43, &mut packed).is_some());
        assert_eq!(pack(&section, &parts, 64 - 42, &mut packed), None);
    }

    #[test]
    fn invalid_numbers_are_errors() {
        let section: Vec<u8> = (0..60).map(|i| b'0' + i % 10).collect();
        let parts = parts(0..8, 8..60);
        let mut packed = Vec::new();
        pack(&section, &parts, 1, &mut packed).unwrap();
        let check = |at: usize, byte: u8, error: &str| {
            let mut bad = packed.clone();
            bad[at] = byte;
            assert_eq!(unpack(&bad, &parts, &mut [0; 60]), Err(error));
        };
        check(0, 0, "invalid number of symbols of packed keys");
        check(0, 65, "invalid number of symbols of packed keys");
        check(0, 9, "wrong length of packed keys");
        check(1, b'1', "symbols of packed keys out of order");
        check(11, 0x0A, "invalid code of packed keys");
        // The last group has four codes; the bits behind them are zero.
        check(packed.len() - 1, 0x10, "invalid code of packed keys");
        assert!(unpack(&[], &parts, &mut [0; 60]).is_err());
    }
}
