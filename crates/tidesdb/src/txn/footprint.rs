//! What a transaction has read, as far as its isolation level needs it.

use std::sync::Arc;

use crate::Result;
use crate::family::FamilyCore;
use crate::memory::{Charge, Use};
use crate::read::Spans;

/// Keys and intervals that were read.
#[derive(Debug)]
pub(super) struct Footprint {
    families: Vec<Arc<FamilyCore>>,
    points: Vec<Point>,
    keys: Vec<u8>,
    /// Number of points at which they are sorted and duplicates removed.
    tidy_at: usize,
    /// Bytes of their keys at which this happens too.
    tidy_bytes: usize,
    /// Intervals scanned by cursors.
    pub(super) spans: Spans,
    charge: Charge,
}

#[derive(Clone, Copy, Debug)]
struct Point {
    family: u32,
    len: u32,
    start: usize,
}

const TIDY_MIN: usize = 4096;
const TIDY_BYTES_MIN: usize = 256 << 10;
/// Memory that is kept for the next transaction.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// Room for keys and for points at the first read.
const KEYS_MIN: usize = 64;
const POINTS_MIN: usize = 8;
/// Up to this length the memory doubles when it grows; from then on it grows by a quarter.
const DOUBLING_MAX: usize = 64 << 10;

impl Default for Footprint {
    fn default() -> Self {
        Self {
            families: Vec::new(),
            points: Vec::new(),
            keys: Vec::new(),
            tidy_at: 0,
            tidy_bytes: 0,
            spans: Spans::default(),
            charge: Charge::new(Use::Transactions),
        }
    }
}

impl Footprint {
    /// Records that `key` was read, whether it was found or not.
    ///
    /// # Errors
    /// `MemoryLimit`: nothing was recorded.
    pub(super) fn read(&mut self, family: &Arc<FamilyCore>, key: &[u8]) -> Result<()> {
        if self.points.len() >= self.tidy_at.max(TIDY_MIN)
            || self.keys.len() >= self.tidy_bytes.max(TIDY_BYTES_MIN)
        {
            self.tidy();
        }
        if self.keys.len() + key.len() > self.keys.capacity() || self.points.len() == self.points.capacity() {
            self.make_room(family, key.len())?;
        }
        let known = self.families.iter().position(|f| Arc::ptr_eq(f, family));
        let index = known.unwrap_or_else(|| {
            self.families.push(Arc::clone(family));
            self.families.len() - 1
        });
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.points.push(Point { family: index as u32, len: key.len() as u32, start });
        Ok(())
    }

    /// Makes room for one more key, of `len` bytes.
    #[cold]
    fn make_room(&mut self, family: &Arc<FamilyCore>, len: usize) -> Result<()> {
        if self.grow(family, len).is_ok() {
            return Ok(());
        }
        self.tidy(); // few keys may be left
        self.grow(family, len)
    }

    fn grow(&mut self, family: &Arc<FamilyCore>, len: usize) -> Result<()> {
        let more =
            |has: usize, room: usize, wanted: usize, least: usize, unit: usize| match has + wanted <= room {
                true => room,
                false => has + wanted.max(if has * unit <= DOUBLING_MAX { has } else { has / 4 }).max(least),
            };
        let keys = more(self.keys.len(), self.keys.capacity(), len, KEYS_MIN, 1);
        let points = more(self.points.len(), self.points.capacity(), 1, POINTS_MIN, size_of::<Point>());
        self.charge.grow(&family.memory, (keys + points * size_of::<Point>()) as u64)?;
        self.keys.reserve_exact(keys - self.keys.len());
        self.points.reserve_exact(points - self.points.len());
        Ok(())
    }

    /// All keys that were read.
    pub(super) fn points(&self) -> impl Iterator<Item = (&Arc<FamilyCore>, &[u8])> {
        self.points.iter().map(|p| (&self.families[p.family as usize], self.key(p)))
    }

    /// Forgets everything. Cursors made earlier keep the old list of intervals, which is no longer read.
    pub(super) fn clear(&mut self) {
        self.families.clear();
        self.points.clear();
        self.keys.clear();
        (self.tidy_at, self.tidy_bytes) = (0, 0);
        match Arc::get_mut(&mut self.spans) {
            Some(spans) => *spans.get_mut() = Default::default(),
            None => self.spans = Spans::default(),
        }
        if self.charge.bytes() > KEPT_BYTES_MAX as u64 {
            (self.keys, self.points) = (Vec::new(), Vec::new());
            self.charge.release();
        }
    }

    /// Number of keys and intervals; some may be equal or overlap.
    pub(super) fn len(&self) -> usize {
        self.points.len() + self.spans.lock().len()
    }

    fn key(&self, point: &Point) -> &[u8] {
        &self.keys[point.start..point.start + point.len as usize]
    }

    fn tidy(&mut self) {
        let mut points = std::mem::take(&mut self.points);
        let place = |p: &Point| (p.family, self.key(p));
        points.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        points.dedup_by(|a, b| place(a) == place(b));
        let mut keys = Vec::with_capacity(self.keys.len());
        for point in &mut points {
            let start = keys.len();
            keys.extend_from_slice(self.key(point));
            point.start = start;
        }
        (self.points, self.keys) = (points, keys);
        (self.tidy_at, self.tidy_bytes) = (self.points.len() * 2, self.keys.len() * 2);
    }
}
