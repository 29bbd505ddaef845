//! Hit ratio compared with an exact LRU of the same number of equal entries.

use std::collections::{BTreeMap, HashMap};

use super::*;

/// An exact LRU of `room` keys.
struct Lru {
    room: usize,
    clock: u64,
    when: HashMap<u64, u64>,
    order: BTreeMap<u64, u64>,
}

impl Lru {
    fn new(room: usize) -> Self {
        Lru { room, clock: 0, when: HashMap::new(), order: BTreeMap::new() }
    }

    /// Looks `key` up and inserts it if it was missing. Returns whether it was a hit.
    fn access(&mut self, key: u64) -> bool {
        self.clock += 1;
        let before = self.when.insert(key, self.clock);
        if let Some(before) = before {
            self.order.remove(&before);
        } else if self.when.len() > self.room {
            let oldest = self.order.pop_first();
            self.when.remove(&oldest.expect("a full list has an oldest").1);
        }
        self.order.insert(self.clock, key);
        before.is_some()
    }
}

/// Ranks drawn from a Zipf distribution by its inverse.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| (rank as f64).powf(-skew));
        let mut steps: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        steps.iter_mut().for_each(|step| *step /= sum);
        Zipf(steps)
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let point = random.unit();
        self.0.partition_point(|step| *step < point) as u64
    }
}

/// Returns the hit ratios of the cache and of an LRU in percent, over the second half of `keys`.
fn compare(room: usize, keys: &[u64]) -> (f64, f64) {
    const CHARGE: u64 = 4000;
    let bytes = room as u64 * (CHARGE + Entry::<()>::OVERHEAD);
    let cache = Cache::new(bytes + (bytes / 1024).next_power_of_two() * size_of::<usize>() as u64);
    let mut lru = Lru::new(room);
    let (mut ours, mut exact) = (0, 0);
    for (at, &name) in keys.iter().enumerate() {
        let hit = cache.get(key(name, 0)).is_some();
        if !hit {
            cache.insert(key(name, 0), (), CHARGE);
        }
        let lru_hit = lru.access(name);
        if at >= keys.len() / 2 {
            ours += u64::from(hit);
            exact += u64::from(lru_hit);
        }
    }
    let percent = |hits| hits as f64 * 200.0 / keys.len() as f64;
    (percent(ours), percent(exact))
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic over many keys; nothing for Miri to check")]
fn hit_ratio_is_close_to_lru_or_better() {
    const KEYS: usize = 50_000;
    let seed = 0x21FF_0001;
    println!("seed {seed:#x}");
    for skew in [0.0, 0.7, 0.99, 1.3] {
        let zipf = Zipf::new(KEYS, skew);
        for room in [500, 5000, 20_000] {
            let mut random = Random(seed);
            let trace: Vec<u64> = (0..400_000).map(|_| zipf.draw(&mut random)).collect();
            let (ours, lru) = compare(room, &trace);
            println!("zipf {skew:4} room {room:6}: cache {ours:5.2} % lru {lru:5.2} %");
            assert!(ours > lru - 1.0, "zipf {skew}, room {room}: {ours} against {lru}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic over many keys; nothing for Miri to check")]
fn scans_reduce_hits_less_than_in_an_lru() {
    let seed = 0x21FF_0002;
    println!("seed {seed:#x}");
    let zipf = Zipf::new(20_000, 0.99);
    let mut random = Random(seed);
    let mut trace = Vec::new();
    for scan in 0..40u64 {
        trace.extend((0..5000).map(|_| zipf.draw(&mut random)));
        trace.extend((0..5000).map(|block| 1_000_000 + scan * 5000 + block));
    }
    let (ours, lru) = compare(4000, &trace);
    println!("zipf 0.99 with scans: cache {ours:.2} % lru {lru:.2} %");
    assert!(ours > lru + 2.0, "{ours} against {lru}");
}
