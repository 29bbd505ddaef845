//! Replacement policies as described in their papers, charged by bytes. Keys are small numbers, so the state of
//! all keys is in arrays.

use std::collections::{BTreeSet, VecDeque};

use crate::trace::mix;

/// A cache without values.
pub(crate) trait Policy {
    /// Looks `key` up and, if it is missing, caches it as the policy decides. Returns whether it was a hit.
    fn access(&mut self, key: u32, size: u32) -> bool;
}

/// Least recently used: stores the time of the last use of every key.
pub(crate) struct Lru {
    pub(crate) bytes: u64,
    capacity: u64,
    now: u64,
    last: Vec<u64>,
    order: BTreeSet<(u64, u32, u32)>,
}

impl Lru {
    pub(crate) fn new(keys: u32, capacity: u64) -> Self {
        Lru { bytes: 0, capacity, now: 0, last: vec![0; keys as usize], order: BTreeSet::new() }
    }

    fn remove(&mut self, key: u32, size: u32) -> bool {
        let present = self.order.remove(&(self.last[key as usize], key, size));
        self.bytes -= if present { u64::from(size) } else { 0 };
        present
    }

    fn push(&mut self, key: u32, size: u32) {
        self.now += 1;
        self.last[key as usize] = self.now;
        self.order.insert((self.now, key, size));
        self.bytes += u64::from(size);
    }

    fn touch(&mut self, key: u32, size: u32) -> bool {
        let present = self.remove(key, size);
        if present {
            self.push(key, size);
        }
        present
    }

    fn oldest(&self) -> Option<(u32, u32)> {
        self.order.first().map(|(_, key, size)| (*key, *size))
    }

    fn pop_over(&mut self, limit: u64) -> Option<(u32, u32)> {
        let (key, size) = self.oldest().filter(|_| self.bytes > limit)?;
        self.remove(key, size);
        Some((key, size))
    }
}

impl Policy for Lru {
    fn access(&mut self, key: u32, size: u32) -> bool {
        let hit = self.touch(key, size);
        if !hit {
            self.push(key, size);
            while self.pop_over(self.capacity).is_some() {}
        }
        hit
    }
}

/// CLOCK with heat up to 3; new keys are cold.
pub(crate) struct Clock {
    bytes: u64,
    capacity: u64,
    /// Heat per key; `None` = absent.
    heat: Vec<Option<u8>>,
    order: VecDeque<(u32, u32)>,
}

impl Clock {
    pub(crate) fn new(keys: u32, capacity: u64) -> Self {
        Clock { bytes: 0, capacity, heat: vec![None; keys as usize], order: VecDeque::new() }
    }

    fn touch(&mut self, key: u32) -> bool {
        let heat = &mut self.heat[key as usize];
        *heat = heat.map(|heat| (heat + 1).min(3));
        heat.is_some()
    }

    fn push(&mut self, key: u32, size: u32) {
        self.heat[key as usize] = Some(0);
        self.order.push_back((key, size));
        self.bytes += u64::from(size);
    }

    /// Returns the cold key that would be evicted next.
    fn victim(&mut self) -> Option<(u32, u32)> {
        loop {
            let (key, size) = self.order.front().copied()?;
            let heat = self.heat[key as usize].unwrap_or(0);
            if heat == 0 {
                return Some((key, size));
            }
            self.heat[key as usize] = Some(heat - 1);
            self.order.rotate_left(1);
        }
    }

    fn pop_over(&mut self, limit: u64) -> Option<u32> {
        if self.bytes <= limit {
            return None;
        }
        let (key, size) = self.victim()?;
        self.order.pop_front();
        self.heat[key as usize] = None;
        self.bytes -= u64::from(size);
        Some(key)
    }
}

impl Policy for Clock {
    fn access(&mut self, key: u32, size: u32) -> bool {
        let hit = self.touch(key);
        if !hit {
            self.push(key, size);
            while self.pop_over(self.capacity).is_some() {}
        }
        hit
    }
}

/// SIEVE (Zhang et al., NSDI 2024): a queue in order of arrival, and a hand that moves from the oldest to the
/// newest key.
pub(crate) struct Sieve {
    bytes: u64,
    capacity: u64,
    /// Whether the key was looked up again; `None` = absent.
    visited: Vec<Option<bool>>,
    arrivals: u64,
    order: BTreeSet<(u64, u32, u32)>,
    hand: u64,
}

impl Sieve {
    pub(crate) fn new(keys: u32, capacity: u64) -> Self {
        let visited = vec![None; keys as usize];
        Sieve { bytes: 0, capacity, visited, arrivals: 0, order: BTreeSet::new(), hand: 0 }
    }

    fn evict(&mut self) {
        loop {
            let at = self.order.range((self.hand, 0, 0)..).next().or_else(|| self.order.first()).copied();
            let Some((arrival, key, size)) = at else { return };
            self.hand = arrival + 1;
            if self.visited[key as usize] == Some(true) {
                self.visited[key as usize] = Some(false);
                continue;
            }
            self.visited[key as usize] = None;
            self.order.remove(&(arrival, key, size));
            self.bytes -= u64::from(size);
            return;
        }
    }
}

impl Policy for Sieve {
    fn access(&mut self, key: u32, size: u32) -> bool {
        if let Some(visited) = &mut self.visited[key as usize] {
            *visited = true;
            return true;
        }
        while self.bytes + u64::from(size) > self.capacity {
            self.evict();
        }
        self.arrivals += 1;
        self.visited[key as usize] = Some(false);
        self.order.insert((self.arrivals, key, size));
        self.bytes += u64::from(size);
        false
    }
}

/// S3-FIFO (Yang et al., SOSP 2023): a small queue for a tenth of the bytes, a main queue, and the names of
/// keys that left the small queue, as many as there are cached keys.
pub(crate) struct S3Fifo {
    small: VecDeque<(u32, u32)>,
    small_bytes: u64,
    /// Hits in the small queue; `None` = absent.
    small_hits: Vec<Option<u8>>,
    main: Clock,
    /// Time at which the key left the small queue, counted in departures.
    left: Vec<u64>,
    departures: u64,
}

impl S3Fifo {
    pub(crate) fn new(keys: u32, capacity: u64) -> Self {
        S3Fifo {
            small: VecDeque::new(),
            small_bytes: 0,
            small_hits: vec![None; keys as usize],
            main: Clock::new(keys, capacity),
            left: vec![0; keys as usize],
            departures: 0,
        }
    }

    fn remembers(&self, key: u32) -> bool {
        let left = self.left[key as usize];
        let cached = self.main.order.len() + self.small.len();
        left != 0 && self.departures - left <= cached as u64
    }

    fn make_room(&mut self) {
        while self.small_bytes + self.main.bytes > self.main.capacity {
            if self.small_bytes > self.main.capacity / 10 || self.main.pop_over(0).is_none() {
                self.shrink_small();
            }
        }
    }

    fn shrink_small(&mut self) {
        let Some((key, size)) = self.small.pop_front() else { return };
        self.small_bytes -= u64::from(size);
        let hits = self.small_hits[key as usize].take().unwrap_or(0);
        if hits >= 2 {
            self.main.push(key, size);
        } else {
            self.departures += 1;
            self.left[key as usize] = self.departures;
        }
    }
}

impl Policy for S3Fifo {
    fn access(&mut self, key: u32, size: u32) -> bool {
        if let Some(hits) = &mut self.small_hits[key as usize] {
            *hits = (*hits + 1).min(3);
            return true;
        }
        if self.main.touch(key) {
            return true;
        }
        if self.remembers(key) {
            self.left[key as usize] = 0;
            self.main.push(key, size);
        } else {
            self.small_hits[key as usize] = Some(0);
            self.small.push_back((key, size));
            self.small_bytes += u64::from(size);
        }
        self.make_room();
        false
    }
}

/// Admission on the second miss, then CLOCK: a key that missed for the first time is not cached.
pub(crate) struct SecondMiss(S3Fifo);

impl SecondMiss {
    pub(crate) fn new(keys: u32, capacity: u64) -> Self {
        SecondMiss(S3Fifo::new(keys, capacity))
    }
}

impl Policy for SecondMiss {
    fn access(&mut self, key: u32, size: u32) -> bool {
        let known = self.0.remembers(key);
        let main = &mut self.0.main;
        if main.touch(key) {
            return true;
        }
        if main.bytes + u64::from(size) <= main.capacity || known {
            main.push(key, size);
            while main.pop_over(main.capacity).is_some() {}
        } else {
            self.0.departures += 1;
            self.0.left[key as usize] = self.0.departures;
        }
        false
    }
}

/// Recent lookup frequency of keys: four rows of counters up to 15, halved now and then.
struct Sketch {
    rows: [Vec<u8>; 4],
    added: usize,
    sample: usize,
}

impl Sketch {
    fn new(entries: usize) -> Self {
        let width = entries.next_power_of_two() * 2;
        Sketch { rows: std::array::from_fn(|_| vec![0; width]), added: 0, sample: entries * 10 }
    }

    fn add(&mut self, key: u32) {
        for (row, counters) in self.rows.iter_mut().enumerate() {
            let at = Self::at(key, row, counters.len());
            counters[at] = (counters[at] + 1).min(15);
        }
        self.added += 1;
        if self.added >= self.sample {
            self.rows.iter_mut().flatten().for_each(|counter| *counter /= 2);
            self.added /= 2;
        }
    }

    fn count(&self, key: u32) -> u8 {
        let counters = self.rows.iter().enumerate();
        counters.map(|(row, counters)| counters[Self::at(key, row, counters.len())]).min().unwrap_or(0)
    }

    fn at(key: u32, row: usize, width: usize) -> usize {
        (mix(u64::from(key) << 3 | row as u64) as usize) & (width - 1)
    }
}

/// W-TinyLFU (Einziger et al., TOS 2017): an LRU window, a segmented LRU, and a sketch that compares the key
/// leaving the window with the one that would leave the segmented LRU.
pub(crate) struct WTinyLfu {
    sketch: Sketch,
    window: Lru,
    probation: Lru,
    protected: Lru,
    capacity: u64,
}

impl WTinyLfu {
    pub(crate) fn new(keys: u32, capacity: u64, mean_size: u64, window_share: f64) -> Self {
        let window = ((capacity as f64 * window_share) as u64).max(1);
        let main = capacity - window;
        WTinyLfu {
            sketch: Sketch::new((capacity / mean_size) as usize),
            window: Lru::new(keys, window),
            probation: Lru::new(keys, main),
            protected: Lru::new(keys, main / 5 * 4),
            capacity: main,
        }
    }

    /// Admits the candidate if it is looked up more often than every key it would replace.
    fn admit(&mut self, key: u32, size: u32) {
        let count = self.sketch.count(key);
        while self.probation.bytes + self.protected.bytes + u64::from(size) > self.capacity {
            let list =
                if self.probation.order.is_empty() { &mut self.protected } else { &mut self.probation };
            let Some((victim, victim_size)) = list.oldest() else { return };
            if self.sketch.count(victim) >= count {
                return;
            }
            list.remove(victim, victim_size);
        }
        self.probation.push(key, size);
    }
}

impl Policy for WTinyLfu {
    fn access(&mut self, key: u32, size: u32) -> bool {
        self.sketch.add(key);
        if self.window.touch(key, size) || self.protected.touch(key, size) {
            return true;
        }
        if self.probation.remove(key, size) {
            self.protected.push(key, size);
            while let Some((key, size)) = self.protected.pop_over(self.protected.capacity) {
                self.probation.push(key, size);
            }
            return true;
        }
        self.window.push(key, size);
        while let Some((key, size)) = self.window.pop_over(self.window.capacity) {
            self.admit(key, size);
        }
        false
    }
}
