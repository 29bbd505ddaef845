//! Decodes LZ4 blocks.
//!
//! Most sequences have few literals and a short match that lies at least as far back as it is long. They are copied in pieces of fixed
//! length, which the compiler turns into a load and a store; what a piece writes too much is overwritten by the next sequence. Every
//! index is checked, so a damaged stream is an error, whatever it contains.

use super::{COUNT_GOES_ON, MATCH_MIN, count};

/// The length of a piece.
const PIECE: usize = 16;
/// Literals up to this length are copied as one long piece.
const LONG: usize = 4 * PIECE;
/// The longest match whose length fits into the token.
const SHORT: usize = COUNT_GOES_ON - 1 + MATCH_MIN;

/// Decompresses `bytes` into `out` and returns the length. `None` if they are no LZ4 block, or one of more bytes than `out` has.
pub(in super::super) fn decompress(bytes: &[u8], out: &mut [u8]) -> Option<usize> {
    decode(bytes, out, usize::MAX)
}

/// Decompresses at least the first `want` bytes of `bytes` into `out`, which has room for all, and returns how many.
pub(in super::super) fn decompress_prefix(bytes: &[u8], out: &mut [u8], want: usize) -> Option<usize> {
    decode(bytes, out, want)
}

/// Decodes sequences until there are no more, or `out` has `want` bytes.
fn decode(bytes: &[u8], out: &mut [u8], want: usize) -> Option<usize> {
    let mut rest = bytes;
    let mut at = 0;
    loop {
        let token = usize::from(*rest.split_off_first()?);
        let literals = token >> 4;
        match (rest.first_chunk::<PIECE>(), out.get_mut(at..)?.first_chunk_mut::<PIECE>()) {
            (Some(from), Some(to)) if literals < COUNT_GOES_ON => {
                *to = *from;
                rest = &rest[literals..];
                at += literals;
            }
            _ => {
                let literals = count(literals, &mut rest)?;
                let room = out.get_mut(at..)?;
                match (rest.first_chunk::<LONG>(), room.first_chunk_mut::<LONG>()) {
                    (Some(from), Some(to)) if literals <= LONG => *to = *from,
                    _ => room.get_mut(..literals)?.copy_from_slice(rest.get(..literals)?),
                }
                rest = &rest[literals..];
                at += literals;
                if rest.is_empty() {
                    return Some(at);
                }
            }
        }
        let offset = usize::from(u16::from_le_bytes(*rest.first_chunk()?));
        rest = &rest[2..];
        let (done, room) = out.split_at_mut_checked(at)?;
        let from = &done[at.checked_sub(offset)?..];
        let short = token & 15;
        match (from.first_chunk::<SHORT>(), room.first_chunk_mut::<SHORT>()) {
            (Some(from), Some(to)) if short < COUNT_GOES_ON => {
                *to = *from;
                at += short + MATCH_MIN;
            }
            _ => {
                let len = count(short, &mut rest)?.checked_add(MATCH_MIN)?;
                repeat(&mut out[at - offset..], offset, len)?;
                at += len;
            }
        }
        if at >= want {
            return Some(at);
        }
    }
}

/// Writes `len` bytes behind the first `offset` bytes of `window`, each equal to the one `offset` before it.
fn repeat(window: &mut [u8], offset: usize, len: usize) -> Option<()> {
    let end = offset.checked_add(len).filter(|end| offset > 0 && *end <= window.len())?;
    if end + PIECE <= window.len() {
        return match offset {
            ..8 => repeat_word(window, offset, end),
            8..PIECE => repeat_pieces::<8>(window, offset, end),
            _ => repeat_pieces::<PIECE>(window, offset, end),
        };
    }
    // At the end of the output nothing may be written too much. What is written doubles with each step.
    let mut done = offset;
    while done < end {
        let n = done.min(end - done);
        window.copy_within(..n, done);
        done += n;
    }
    Some(())
}

/// Copies pieces of at most `offset` bytes up to `end`, and perhaps beyond it.
fn repeat_pieces<const N: usize>(window: &mut [u8], offset: usize, end: usize) -> Option<()> {
    let mut to = offset;
    while to < end {
        let piece: [u8; N] = *window.get(to - offset..)?.first_chunk()?;
        *window.get_mut(to..)?.first_chunk_mut()? = piece;
        to += N;
    }
    Some(())
}

/// Repeats the first `offset` bytes, less than eight, up to `end`, and perhaps beyond it.
fn repeat_word(window: &mut [u8], offset: usize, end: usize) -> Option<()> {
    let mut word = u64::from_le_bytes(*window.first_chunk()?) & (u64::MAX >> (64 - 8 * offset));
    let mut filled = offset;
    while filled < 8 {
        word |= word << (8 * filled);
        filled *= 2;
    }
    let mut to = offset;
    if 8 % offset == 0 {
        let piece = (u128::from(word) << 64 | u128::from(word)).to_le_bytes();
        while to < end {
            *window.get_mut(to..)?.first_chunk_mut()? = piece;
            to += PIECE;
        }
        return Some(());
    }
    while to < end {
        *window.get_mut(to..)?.first_chunk_mut()? = word.to_le_bytes();
        to += 8 - 8 % offset;
    }
    Some(())
}
