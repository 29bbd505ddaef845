//! A cursor that moves at random: positioned by a seek in either direction or at an end, then moved forwards and
//! backwards, then positioned again. It records what it has shown: the keys it visited, and that there are no others
//! between them.

use std::collections::BTreeMap;
use std::ops::Range;

use tidesdb::{Cursor, Error};

use super::{Key, bytes};
use crate::rng::Rng;

/// Interval and rows that a cursor has visited without turning, or since it was positioned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen<V> {
    pub(super) low: Key,
    /// Upper bound, exclusive.
    pub(super) high: Key,
    /// Rows by key.
    pub(super) rows: BTreeMap<Key, V>,
}

/// Moves in one direction.
#[derive(Debug)]
struct Leg<V> {
    seen: Seen<V>,
    forward: bool,
    /// Whether the leg starts where the cursor was positioned.
    placed: bool,
}

/// A cursor and its recorded legs.
pub(super) struct Roam<V> {
    cursor: Cursor,
    /// Keys outside are not recorded.
    keys: Range<Key>,
    decode: fn(&[u8]) -> V,
    at: Option<Key>,
    forward: bool,
    legs: Vec<Leg<V>>,
}

impl<V: Clone + PartialEq> Roam<V> {
    pub(super) fn new(cursor: Cursor, keys: Range<Key>, decode: fn(&[u8]) -> V) -> Self {
        Self { cursor, keys, decode, at: None, forward: true, legs: Vec::new() }
    }

    /// Makes one random move. With a probability of one in six, or if the cursor has no position, positions it at
    /// `target` or at an end.
    pub(super) fn step(&mut self, random: &mut Rng, target: Key) -> tidesdb::Result<()> {
        match self.at {
            Some(at) if !random.one_in(6) => {
                let turned = random.one_in(3);
                self.forward ^= turned;
                if self.forward {
                    self.cursor.next()?;
                    self.moved((at + 1, self.keys.end), turned, false)
                } else {
                    self.cursor.prev()?;
                    self.moved((self.keys.start, at), turned, false)
                }
            }
            _ => self.place(random, target),
        }
    }

    fn place(&mut self, random: &mut Rng, target: Key) -> tidesdb::Result<()> {
        let Range { start, end } = self.keys;
        let (forward, ahead) = match random.below(10) {
            0 => (self.cursor.seek_to_first().map(|()| true)?, (start, end)),
            1 => (self.cursor.seek_to_last().map(|()| false)?, (start, end)),
            2..6 => (self.cursor.seek(&bytes(target)).map(|()| true)?, (target, end)),
            _ => (self.cursor.seek_for_prev(&bytes(target)).map(|()| false)?, (start, target + 1)),
        };
        self.forward = forward;
        self.moved(ahead, true, true)
    }

    /// Records a move into `low..high`, which ended at the cursor's current position.
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
        high = high.min(self.keys.end);
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
                return Err(wrong(format!("a cursor moved to {key} in the wrong direction")));
            }
            leg.seen.rows.insert(key, value);
        }
        Ok(())
    }

    /// Returns the cursor and what it visited: one entry per positioning if the cursor has a fixed read timestamp
    /// (`one_moment`), otherwise one per leg.
    ///
    /// # Errors
    /// Returns `Internal` if a cursor with a fixed read timestamp showed different rows at a later visit.
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
                    return Err(wrong(format!("a cursor showed different rows in {both:?}")));
                }
            }
        }
        Ok((all, self.cursor))
    }
}

fn wrong(what: String) -> Error {
    Error::Internal { what: what.into() }
}
