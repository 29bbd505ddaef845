//! A cursor that moves randomly: positioned by a seek in either direction or at an end, then moved forwards and backwards, and
//! positioned again. It records what it has proved: which keys it met, and that there are no other keys between them.

use std::collections::BTreeMap;

use tidesdb::{Cursor, Error};

use super::{Key, bytes};
use crate::rng::Rng;

/// Interval and rows that a cursor has seen without changing direction, or since it was positioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen<V> {
    pub(super) low: Key,
    /// End of the interval, excluded.
    pub(super) high: Key,
    /// Rows by key.
    pub(super) rows: BTreeMap<Key, V>,
}

/// Moves in one direction.
#[derive(Debug)]
struct Leg<V> {
    seen: Seen<V>,
    forward: bool,
    /// True if it starts where the cursor was positioned.
    placed: bool,
}

/// A randomly moving cursor.
pub(super) struct Roam<V> {
    cursor: Cursor,
    /// Keys from here on are not recorded.
    end: Key,
    decode: fn(&[u8]) -> V,
    at: Option<Key>,
    forward: bool,
    legs: Vec<Leg<V>>,
}

impl<V: Clone + PartialEq> Roam<V> {
    pub(super) fn new(cursor: Cursor, end: Key, decode: fn(&[u8]) -> V) -> Self {
        Self { cursor, end, decode, at: None, forward: true, legs: Vec::new() }
    }

    /// Makes one random move. If the cursor has no position, and one time in six, it is positioned: at `target` or at an end.
    pub(super) fn step(&mut self, random: &mut Rng, target: Key) -> tidesdb::Result<()> {
        match self.at {
            Some(at) if !random.one_in(6) => {
                let turned = random.one_in(3);
                self.forward ^= turned;
                if self.forward {
                    self.cursor.next()?;
                    self.moved((at + 1, self.end), turned, false)
                } else {
                    self.cursor.prev()?;
                    self.moved((0, at), turned, false)
                }
            }
            _ => self.place(random, target),
        }
    }

    fn place(&mut self, random: &mut Rng, target: Key) -> tidesdb::Result<()> {
        let (forward, ahead) = match random.below(10) {
            0 => (self.cursor.seek_to_first().map(|()| true)?, (0, self.end)),
            1 => (self.cursor.seek_to_last().map(|()| false)?, (0, self.end)),
            2..6 => (self.cursor.seek(&bytes(target)).map(|()| true)?, (target, self.end)),
            _ => (self.cursor.seek_for_prev(&bytes(target)).map(|()| false)?, (0, target + 1)),
        };
        self.forward = forward;
        self.moved(ahead, true, true)
    }

    /// Records a move into `low..high` that ended at the current position.
    fn moved(&mut self, (mut low, mut high): (Key, Key), begins: bool, placed: bool) -> tidesdb::Result<()> {
        let row = match self.cursor.valid() {
            false => None,
            true => {
                let (key, value) = self.cursor.entry()?;
                Some((Key::from(key[0]) << 8 | Key::from(key[1]), (self.decode)(value)))
            }
        };
        self.at = row.as_ref().map(|(key, _)| *key);
        if let Some(at) = self.at {
            if self.forward { high = high.min(at.saturating_add(1)) } else { low = low.max(at) }
        }
        high = high.min(self.end);
        low = low.min(high);
        if begins || self.legs.is_empty() {
            let seen = Seen { low, high, rows: BTreeMap::new() };
            self.legs.push(Leg { seen, forward: self.forward, placed });
        }
        let Some(leg) = self.legs.last_mut() else { return Ok(()) };
        leg.seen.low = leg.seen.low.min(low);
        leg.seen.high = leg.seen.high.max(high);
        if let Some((key, value)) = row.filter(|(key, _)| (low..high).contains(key)) {
            let ordered = match leg.forward {
                true => leg.seen.rows.last_key_value().is_none_or(|(last, _)| *last < key),
                false => leg.seen.rows.first_key_value().is_none_or(|(first, _)| *first > key),
            };
            if !ordered {
                return Err(wrong(format!("a cursor moved to {key} from the wrong side")));
            }
            leg.seen.rows.insert(key, value);
        }
        Ok(())
    }

    /// Returns the cursor and what it saw: one interval per positioning if the cursor has a single read timestamp (`one_moment`),
    /// otherwise one per direction.
    ///
    /// # Errors
    /// `Internal`: a cursor with a single read timestamp showed different rows for the same keys.
    pub(super) fn finish(self, one_moment: bool) -> tidesdb::Result<(Vec<Seen<V>>, Cursor)> {
        if !one_moment {
            return Ok((self.legs.into_iter().map(|leg| leg.seen).collect(), self.cursor));
        }
        let mut all: Vec<Seen<V>> = Vec::new();
        let mut legs = &self.legs[..];
        while !legs.is_empty() {
            let count = 1 + legs[1..].iter().take_while(|leg| !leg.placed).count();
            let (together, rest) = legs.split_at(count);
            legs = rest;
            let low = together.iter().map(|leg| leg.seen.low).min().unwrap_or(0);
            let high = together.iter().map(|leg| leg.seen.high).max().unwrap_or(0);
            let rows = together.iter().flat_map(|leg| leg.seen.rows.clone()).collect();
            all.push(Seen { low, high, rows });
        }
        for seen in &all {
            for leg in &self.legs {
                let both = leg.seen.low.max(seen.low)..leg.seen.high.min(seen.high);
                if !both.is_empty() && !leg.seen.rows.range(both.clone()).eq(seen.rows.range(both.clone())) {
                    return Err(wrong(format!("a cursor has shown different rows in {both:?}")));
                }
            }
        }
        Ok((all, self.cursor))
    }
}

fn wrong(what: String) -> Error {
    Error::Internal { what: what.into() }
}
