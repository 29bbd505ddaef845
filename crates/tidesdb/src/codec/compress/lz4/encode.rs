//! Encodes LZ4 blocks: a table has the last position of each hash of a few bytes, and the first match that it finds is taken.

use super::{COUNT_GOES_ON, MATCH_MIN, bound};

/// A match begins at least this many bytes before the end of the input, as the format demands.
const LAST_MATCH: usize = 12;
/// No match contains the last bytes of the input, as the format demands.
const LAST_LITERALS: usize = 5;
/// The longest distance of a match.
const OFFSET_MAX: usize = u16::MAX as usize;
/// After each `1 << PATIENCE` positions without a match, the next ones are one byte further apart.
const PATIENCE: u32 = 6;
/// More acceleration changes nothing.
const ACCELERATION_MAX: i32 = 1 << 16;
/// Literals up to this length are copied as a piece of this length.
const PIECE: usize = 16;

/// Compresses `raw` into `room` and returns the length. With an `acceleration` above 1, more positions are left out while no match is
/// found. Returns `None` if `raw` is too long, or `room` shorter than the result.
pub(in super::super) fn compress(raw: &[u8], room: &mut [u8], acceleration: i32) -> Option<usize> {
    let (out, acceleration) = (Sequences { room, len: 0 }, acceleration.clamp(1, ACCELERATION_MAX) as usize);
    match raw.len() {
        ..=OFFSET_MAX => encode_with::<u16, { 1 << 13 }>(raw, out, acceleration),
        len if bound(len) > 0 => encode_with::<u32, { 1 << 12 }>(raw, out, acceleration),
        _ => None,
    }
}

/// Not inlined, so that the stack holds one table and not those of both arms.
#[inline(never)]
fn encode_with<P: Position, const N: usize>(
    raw: &[u8],
    out: Sequences<'_>,
    acceleration: usize,
) -> Option<usize> {
    encode(raw, &mut Table([P::new(0); N]), out, acceleration)
}

/// A position in the input.
trait Position: Copy {
    fn new(at: usize) -> Self;
    fn get(self) -> usize;
    /// Returns a hash of the first bytes of `word`, in its upper bits. The factors are primes, so these depend on all of the bytes.
    fn hash(word: u64) -> u64;
}

/// In an input of less than 64 KiB.
impl Position for u16 {
    fn new(at: usize) -> Self {
        at as Self
    }
    fn get(self) -> usize {
        self.into()
    }
    fn hash(word: u64) -> u64 {
        (word << 32).wrapping_mul(2_654_435_761)
    }
}

impl Position for u32 {
    fn new(at: usize) -> Self {
        at as Self
    }
    fn get(self) -> usize {
        self as usize
    }
    /// Of five bytes: in a long input most matches of four bytes are not worth taking.
    fn hash(word: u64) -> u64 {
        (word << 24).wrapping_mul(889_523_592_379)
    }
}

/// The last position of each hash; 0 if there is none.
struct Table<P, const N: usize>([P; N]);

impl<P: Position, const N: usize> Table<P, N> {
    /// Replaces the last position of these bytes by `at`.
    fn replace(&mut self, word: u64, at: usize) -> usize {
        let hash = P::hash(word) >> (64 - N.trailing_zeros());
        std::mem::replace(&mut self.0[hash as usize], P::new(at)).get()
    }

    /// Records the position `at` and returns an earlier one with the same four bytes.
    fn earlier(&mut self, raw: &[u8], at: usize) -> Option<usize> {
        let bytes = word(raw, at)?;
        let earlier = self.replace(bytes, at);
        let same = raw.get(earlier..)?.first_chunk() == Some(&(bytes as u32).to_le_bytes());
        (same && at - earlier <= OFFSET_MAX).then_some(earlier)
    }
}

fn word(raw: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*raw.get(at..)?.first_chunk()?))
}

fn encode<P: Position, const N: usize>(
    raw: &[u8],
    table: &mut Table<P, N>,
    mut out: Sequences<'_>,
    acceleration: usize,
) -> Option<usize> {
    let mut written = 0; // bytes of `raw` that are in `out`
    if let Some(last) = raw.len().checked_sub(LAST_MATCH) {
        let matchable = &raw[..raw.len() - LAST_LITERALS];
        table.replace(word(raw, 0)?, 0);
        let mut from = 1;
        while let Some((mut at, mut earlier)) = search(raw, table, from..=last, acceleration) {
            while at > written && earlier > 0 && raw[at - 1] == raw[earlier - 1] {
                (at, earlier) = (at - 1, earlier - 1);
            }
            loop {
                let len = MATCH_MIN + common(&raw[earlier + MATCH_MIN..], &matchable[at + MATCH_MIN..]);
                out.push(&raw[written..], at - written, at - earlier, len)?;
                written = at + len;
                if written > last {
                    break;
                }
                table.replace(word(raw, written - 2)?, written - 2);
                let Some(next) = table.earlier(raw, written) else { break };
                (at, earlier) = (written, next);
            }
            from = written + 1;
        }
    }
    out.end(&raw[written..])
}

/// Returns the first of these positions with a match, and the position of that.
fn search<P: Position, const N: usize>(
    raw: &[u8],
    table: &mut Table<P, N>,
    positions: std::ops::RangeInclusive<usize>,
    acceleration: usize,
) -> Option<(usize, usize)> {
    let (mut at, last) = positions.into_inner();
    let mut step = 1;
    let mut tried = acceleration << PATIENCE;
    while at <= last {
        if let Some(earlier) = table.earlier(raw, at) {
            return Some((at, earlier));
        }
        at += step;
        step = tried >> PATIENCE;
        tried += 1;
    }
    None
}

/// Returns the length of the longest common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let mut n = 0;
    for (x, y) in words_a.iter().zip(words_b) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return n + (differ.trailing_zeros() / 8) as usize;
        }
        n += 8;
    }
    n + a[n..].iter().zip(&b[n..]).take_while(|(x, y)| x == y).count()
}

/// The output.
struct Sequences<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl Sequences<'_> {
    /// Appends a sequence: the first `literals` bytes of `raw`, then `len` bytes from `offset` bytes before them.
    fn push(&mut self, raw: &[u8], literals: usize, offset: usize, len: usize) -> Option<()> {
        self.literals(raw, literals, len - MATCH_MIN)?;
        *self.room.get_mut(self.len..)?.first_chunk_mut()? = (offset as u16).to_le_bytes();
        self.len += 2;
        self.count(len - MATCH_MIN)
    }

    /// Appends the last sequence, which has no match, and returns the length of all.
    fn end(mut self, literals: &[u8]) -> Option<usize> {
        self.literals(literals, literals.len(), 0)?;
        Some(self.len)
    }

    /// Appends a token, and the first `n` bytes of `raw`.
    fn literals(&mut self, raw: &[u8], n: usize, match_count: usize) -> Option<()> {
        let token = n.min(COUNT_GOES_ON) << 4 | match_count.min(COUNT_GOES_ON);
        *self.room.get_mut(self.len)? = token as u8;
        self.len += 1;
        self.count(n)?;
        let room = self.room.get_mut(self.len..)?;
        match (raw.first_chunk::<PIECE>(), room.first_chunk_mut::<PIECE>()) {
            (Some(from), Some(to)) if n <= PIECE => *to = *from,
            _ => room.get_mut(..n)?.copy_from_slice(&raw[..n]),
        }
        self.len += n;
        Some(())
    }

    /// Appends what a count exceeds its half of the token by.
    fn count(&mut self, n: usize) -> Option<()> {
        if let Some(more) = n.checked_sub(COUNT_GOES_ON) {
            let (full, last) = (more / 255, more % 255);
            let room = self.room.get_mut(self.len..)?.get_mut(..=full)?;
            room[..full].fill(255);
            room[full] = last as u8;
            self.len += full + 1;
        }
        Some(())
    }
}
