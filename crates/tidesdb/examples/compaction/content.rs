//! The contents of a stretch of keys, as densities.

/// Bytes of an entry and of a tombstone.
pub(crate) const ENTRY_BYTES: f64 = 128.0;
const TOMBSTONE_BYTES: f64 = 32.0;

/// Classes of keys that are written equally often: how many keys there are in each, and the share of writes to it.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    pub(crate) keys: Vec<f64>,
    pub(crate) writes: Vec<f64>,
}

impl Classes {
    /// `keys` keys, all alike.
    pub(crate) fn uniform(keys: f64) -> Self {
        Self { keys: vec![keys], writes: vec![1.0] }
    }

    /// `keys` keys, the n-th written in proportion to `1 / n^s`, in classes of which each is twice the one before.
    pub(crate) fn zipf(keys: f64, s: f64) -> Self {
        let (mut sizes, mut weights, mut rank) = (Vec::new(), Vec::new(), 1.0);
        while rank < keys {
            let size = (rank / 2.0_f64).max(1.0).min(keys - rank);
            let middle = rank + size / 2.0;
            sizes.push(size);
            weights.push(size * middle.powf(-s));
            rank += size;
        }
        let sum: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
        Self { keys: sizes, writes: weights }
    }

    /// Returns the densities of a memtable of `entries` writes to random keys.
    pub(crate) fn memtable(&self, entries: f64) -> Vec<Density> {
        let writes_per_key = self.writes.iter().zip(&self.keys).map(|(share, keys)| entries * share / keys);
        writes_per_key.map(|writes| Density { rows: 1.0 - (-writes).exp(), tombstones: 0.0 }).collect()
    }

    /// Every key.
    pub(crate) fn full(&self) -> Vec<Density> {
        vec![Density { rows: 1.0, tombstones: 0.0 }; self.keys.len()]
    }

    /// Returns the bytes, the entries, and the tombstones among these, of `densities` in a share of all keys.
    pub(crate) fn measure(&self, densities: &[Density], share: f64) -> (f64, f64, f64) {
        let (mut rows, mut tombstones) = (0.0, 0.0);
        for (density, keys) in densities.iter().zip(&self.keys) {
            rows += density.rows * keys * share;
            tombstones += density.tombstones * keys * share;
        }
        (rows * ENTRY_BYTES + tombstones * TOMBSTONE_BYTES, rows + tombstones, tombstones)
    }
}

/// The share of the keys of a class that have a row here, or a tombstone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Density {
    pub(crate) rows: f64,
    pub(crate) tombstones: f64,
}

impl Density {
    /// Returns what remains of this and `older` when both are merged.
    pub(crate) fn over(self, older: Self) -> Self {
        let shown = (1.0 - self.rows - self.tombstones).max(0.0);
        Self { rows: self.rows + shown * older.rows, tombstones: self.tombstones + shown * older.tombstones }
    }
}

/// A stretch of keys, with the density of each class in it.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) from: u64,
    /// The first key after it.
    pub(crate) to: u64,
    pub(crate) densities: Vec<Density>,
}

impl Piece {
    /// Its share of all keys.
    pub(crate) fn share(&self) -> f64 {
        (self.to - self.from) as f64 / KEYS as f64
    }
}

/// Keys are numbers below this one.
pub(crate) const KEYS: u64 = 1 << 56;

/// Merges sorted runs of pieces, newest first. With `bottom`, tombstones go.
pub(crate) fn merge(runs: &[Vec<&Piece>], bottom: bool) -> Vec<Piece> {
    let mut borders: Vec<u64> = runs.iter().flatten().flat_map(|p| [p.from, p.to]).collect();
    borders.sort_unstable();
    borders.dedup();
    let mut at = vec![0; runs.len()];
    let mut merged: Vec<Piece> = Vec::new();
    for pair in borders.windows(2) {
        let mut sum: Option<Vec<Density>> = None;
        for (run, at) in runs.iter().zip(&mut at) {
            while run.get(*at).is_some_and(|p| p.to <= pair[0]) {
                *at += 1;
            }
            let Some(piece) = run.get(*at).filter(|p| p.from <= pair[0]) else { continue };
            match &mut sum {
                None => sum = Some(piece.densities.clone()),
                Some(sum) => {
                    sum.iter_mut().zip(&piece.densities).for_each(|(new, old)| *new = new.over(*old))
                }
            }
        }
        let Some(mut densities) = sum else { continue };
        if bottom {
            densities.iter_mut().for_each(|d| d.tombstones = 0.0);
        }
        if densities.iter().any(|d| d.rows + d.tombstones > 0.0) {
            join(&mut merged, Piece { from: pair[0], to: pair[1], densities });
        }
    }
    merged
}

/// Adds `piece`, as a part of the last one if the two are nearly equal.
fn join(pieces: &mut Vec<Piece>, piece: Piece) {
    let close = |a: f64, b: f64| (a - b).abs() <= 0.02 * a.max(b);
    if let Some(last) = pieces.last_mut()
        && last.to == piece.from
        && last
            .densities
            .iter()
            .zip(&piece.densities)
            .all(|(a, b)| close(a.rows, b.rows) && close(a.tombstones, b.tombstones))
    {
        let (old, new) = ((last.to - last.from) as f64, (piece.to - piece.from) as f64);
        let mean = |a: f64, b: f64| (a * old + b * new) / (old + new);
        for (a, b) in last.densities.iter_mut().zip(&piece.densities) {
            *a = Density { rows: mean(a.rows, b.rows), tombstones: mean(a.tombstones, b.tombstones) };
        }
        last.to = piece.to;
        return;
    }
    pieces.push(piece);
}
