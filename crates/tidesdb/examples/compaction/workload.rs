//! What is written.

use crate::content::{Classes, Density, ENTRY_BYTES, KEYS, Piece};

/// A hot stretch: share of the keys, and share of the writes to it.
const HOT: (f64, f64) = (0.1, 0.9);

/// A workload. All but the ordered load begin with all data in the largest level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Overwrites of keys at random.
    Uniform,
    /// Overwrites by Zipf's law with exponent 0.99, hot keys spread over all keys.
    Zipf,
    /// Overwrites at random, most of them of a tenth of the keys, which are neighbours.
    HotStretch,
    /// New keys in order, from nothing.
    Sequential,
    /// New keys in order, from nothing; in addition, every memtable holds one key before all
    /// others.
    SequentialHotKey,
    /// New rows at the end, the oldest deleted.
    Queue,
}

impl Workload {
    /// All.
    pub(crate) const ALL: [Self; 6] =
        [Self::Uniform, Self::Zipf, Self::HotStretch, Self::Queue, Self::Sequential, Self::SequentialHotKey];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "overwrites, uniform",
            Self::Zipf => "overwrites, Zipf 0.99",
            Self::HotStretch => "overwrites, hot stretch",
            Self::Sequential => "ordered load",
            Self::SequentialHotKey => "ordered load and a hot key",
            Self::Queue => "queue",
        }
    }

    /// The keys, if all data is `bytes` bytes.
    pub(crate) fn classes(self, bytes: u64) -> Classes {
        let keys = bytes as f64 / ENTRY_BYTES;
        match self {
            Self::Zipf => Classes::zipf(keys, 0.99),
            Self::Queue => Classes::uniform(keys * 4.0),
            _ => Classes::uniform(keys),
        }
    }

    /// What is there at first.
    pub(crate) fn initial(self, classes: &Classes) -> Option<Piece> {
        let to = match self {
            Self::Uniform | Self::Zipf | Self::HotStretch => KEYS,
            Self::Queue => KEYS / 4,
            _ => return None,
        };
        Some(Piece { from: 0, to, densities: classes.full() })
    }

    /// Bytes written before anything is measured, and bytes written after, as shares of all data.
    pub(crate) fn writes(self) -> (f64, f64) {
        match self {
            Self::Uniform | Self::Zipf | Self::HotStretch | Self::Queue => (0.25, 0.25),
            Self::Sequential | Self::SequentialHotKey => (0.0, 1.0),
        }
    }

    /// The memtable that begins at `written` entries and ends at `written + entries`.
    pub(crate) fn memtable(self, classes: &Classes, written: f64, entries: f64) -> Vec<Piece> {
        let all: f64 = classes.keys.iter().sum();
        let place = |entry: f64| (entry / all * KEYS as f64) as u64;
        let stretch =
            |from: f64| Piece { from: place(from), to: place(from + entries), densities: classes.full() };
        match self {
            Self::Uniform | Self::Zipf => {
                vec![Piece { from: 0, to: KEYS, densities: classes.memtable(entries) }]
            }
            Self::HotStretch => {
                let (from, to) = (KEYS / 3, KEYS / 3 + (HOT.0 * KEYS as f64) as u64);
                let part = |from: u64, to: u64, share: f64, writes: f64| {
                    let rows = 1.0 - (-entries * writes / (all * share)).exp();
                    Piece { from, to, densities: vec![Density { rows, tombstones: 0.0 }] }
                };
                let cold = |from, to| part(from, to, 1.0 - HOT.0, 1.0 - HOT.1);
                vec![cold(0, from), part(from, to, HOT.0, HOT.1), cold(to, KEYS)]
            }
            Self::Sequential => vec![stretch(written)],
            Self::SequentialHotKey => {
                let hot = Piece { from: 0, to: KEYS / all as u64 + 1, densities: classes.full() };
                let rest = stretch(written);
                if rest.from < hot.to { vec![rest] } else { vec![hot, rest] }
            }
            Self::Queue => {
                let mut gone = stretch(written);
                for density in &mut gone.densities {
                    (density.rows, density.tombstones) = (0.0, density.rows);
                }
                vec![gone, stretch(written + all / 4.0)]
            }
        }
    }
}
