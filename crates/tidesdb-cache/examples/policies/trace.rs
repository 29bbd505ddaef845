//! Traces of keys, and the size of each key's value. Everything is drawn from fixed seeds.

use std::collections::VecDeque;

/// Number of keys: blocks and partitions.
pub(crate) const KEYS: u32 = 100_000;

/// Number of lookups in a trace.
pub(crate) const LOOKUPS: usize = 1_500_000;

/// A sequence of lookups.
pub(crate) struct Trace {
    pub(crate) name: &'static str,
    pub(crate) keys: Vec<u32>,
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    pub(crate) fn below(&mut self, n: u32) -> u32 {
        (((self.next() >> 32) * u64::from(n)) >> 32) as u32
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the size of each key's value in bytes: three of four are blocks of 4 to 8 KiB, the fourth is a
/// partition of 256 to 2304 bytes.
pub(crate) fn sizes() -> Vec<u32> {
    let size = |key: u32| {
        let bits = mix(u64::from(key) + 1) as u32;
        if bits.is_multiple_of(4) { 256 + (bits >> 8) % 2048 } else { 4096 + (bits >> 8) % 4096 }
    };
    (0..KEYS).map(size).collect()
}

/// Returns the traces for a cache of `capacity` bytes.
pub(crate) fn all(sizes: &[u32], capacity: u64) -> Vec<Trace> {
    let trace = |name, keys| Trace { name, keys };
    vec![
        trace("Zipf 0.99", zipf(0.99)),
        trace("Zipf 0.8", zipf(0.8)),
        trace("Zipf 0.99 + scans", with_scans()),
        trace("loop of 1.25 x the cache", looped(sizes, capacity)),
        trace("shifting hot set", shifting()),
        trace("bursts", bursts()),
    ]
}

/// Draws ranks by the inverse of the distribution.
struct Zipf {
    steps: Vec<f64>,
    /// The key of each rank.
    keys: Vec<u32>,
    random: Random,
}

impl Zipf {
    fn new(skew: f64, keys: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut sum = 0.0;
        let weights = (1..=keys).map(|rank| f64::from(rank).powf(-skew));
        let steps = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        let mut zipf = Zipf { steps, keys: (0..keys).collect(), random: Random::new(seed ^ 1) };
        zipf.shuffle(&mut random);
        zipf
    }

    /// Assigns every rank to another key.
    fn shuffle(&mut self, random: &mut Random) {
        for at in (1..self.keys.len()).rev() {
            self.keys.swap(at, random.below(at as u32 + 1) as usize);
        }
    }

    fn draw(&mut self) -> u32 {
        let total = self.steps.last().copied().unwrap_or(1.0);
        let point = self.random.unit() * total;
        self.keys[self.steps.partition_point(|step| *step < point).min(self.keys.len() - 1)]
    }
}

fn zipf(skew: f64) -> Vec<u32> {
    let mut zipf = Zipf::new(skew, KEYS, 11);
    (0..LOOKUPS).map(|_| zipf.draw()).collect()
}

/// Every fourth lookup belongs to a scan that repeatedly goes through all keys.
fn with_scans() -> Vec<u32> {
    let mut zipf = Zipf::new(0.99, KEYS, 12);
    let step = |at: usize| if at % 4 == 3 { (at / 4) as u32 % KEYS } else { zipf.draw() };
    (0..LOOKUPS).map(step).collect()
}

/// Cycles through keys of 1.25 times the capacity.
fn looped(sizes: &[u32], capacity: u64) -> Vec<u32> {
    let mut bytes = 0;
    let fits = |size: &&u32| {
        bytes += u64::from(**size);
        bytes <= capacity + capacity / 4
    };
    let circle = sizes.iter().take_while(fits).count() as u32;
    (0..LOOKUPS as u32).map(|at| at % circle).collect()
}

/// Zipf 0.99 whose ranks are assigned to other keys after every 150,000 lookups.
fn shifting() -> Vec<u32> {
    let (mut zipf, mut random) = (Zipf::new(0.99, KEYS, 13), Random::new(14));
    let mut keys = Vec::with_capacity(LOOKUPS);
    for at in 0..LOOKUPS {
        if at % 150_000 == 149_999 {
            zipf.shuffle(&mut random);
        }
        keys.push(zipf.draw());
    }
    keys
}

/// Zipf 0.8 in which each key is looked up three times within some 250 lookups, unless another key has taken its
/// place.
fn bursts() -> Vec<u32> {
    const AHEAD: u32 = 256;
    let (mut zipf, mut random) = (Zipf::new(0.8, KEYS, 15), Random::new(16));
    let mut ahead = VecDeque::from(vec![None; AHEAD as usize]);
    let mut step = || {
        ahead.push_back(None);
        ahead.pop_front().flatten().unwrap_or_else(|| {
            let key = zipf.draw();
            (0..2).for_each(|_| ahead[random.below(AHEAD) as usize] = Some(key));
            key
        })
    };
    (0..LOOKUPS).map(|_| step()).collect()
}
