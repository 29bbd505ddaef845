//! Zipfian ranks with the exact distribution, in a few nanoseconds.
//!
//! The ranks 1..=n are divided into cells: the first ones hold one rank each, the others grow geometrically. An alias table
//! picks a cell by the weight `ranks in it x weight of its first rank`. A rank in the cell is drawn uniformly and accepted
//! with the probability `its weight / weight of the first`; otherwise the draw is repeated. Cells are so narrow that nearly
//! every draw is accepted without computing the power.

use crate::rng::Rng;

/// Cells of one rank.
const SINGLE: u64 = 512;
/// Further cells grow by the first rank divided by this number.
const GROWTH: u64 = 32;

/// Draws ranks 1..=n with probability proportional to `(rank + offset) ^ -theta`.
#[derive(Clone, Debug)]
pub struct Zipf {
    cells: Vec<Cell>,
    theta: f64,
    offset: f64,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    first: u64,
    ranks: u64,
    /// Threshold (of 2^64) below which a draw is accepted without a check.
    sure: u64,
    /// Threshold (of 2^64) below which this cell is taken, otherwise `alias`.
    keep: u64,
    alias: u32,
}

impl Zipf {
    /// Creates the distribution of ranks up to `n`, at least 1.
    pub fn new(n: u64, theta: f64, offset: f64) -> Self {
        let mut zipf = Self { cells: Vec::new(), theta, offset };
        let mut first = 1;
        while first <= n.max(1) {
            let ranks = if first <= SINGLE { 1 } else { first / GROWTH }.min(n.max(1) + 1 - first);
            let least = zipf.weight(first + ranks - 1) / zipf.weight(first);
            zipf.cells.push(Cell { first, ranks, sure: fraction(least), keep: u64::MAX, alias: 0 });
            first += ranks;
        }
        zipf.alias();
        zipf
    }

    fn weight(&self, rank: u64) -> f64 {
        (rank as f64 + self.offset).powf(-self.theta)
    }

    /// Vose's construction: each slot holds its own cell and the excess of one other.
    fn alias(&mut self) {
        let mass: Vec<f64> = self.cells.iter().map(|c| c.ranks as f64 * self.weight(c.first)).collect();
        let mean = mass.iter().sum::<f64>() / mass.len() as f64;
        let mut share: Vec<f64> = mass.iter().map(|m| m / mean).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..share.len()).partition(|&i| share[i] < 1.0);
        while let (Some(&big), Some(little)) = (large.last(), small.pop()) {
            self.cells[little].keep = fraction(share[little]);
            self.cells[little].alias = big as u32;
            share[big] -= 1.0 - share[little];
            if share[big] < 1.0 {
                large.pop();
                small.push(big);
            }
        }
    }

    /// Returns a rank.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let slot = u128::from(rng.bits()) * self.cells.len() as u128;
            let own = (slot >> 64) as usize;
            let other = self.cells[own].alias as usize;
            let cell = &self.cells[if slot as u64 <= self.cells[own].keep { own } else { other }];
            // The integer part of the product is the rank, the rest decides: no unpredictable branch.
            let place = u128::from(rng.bits()) * u128::from(cell.ranks);
            let (rank, luck) = (cell.first + (place >> 64) as u64, place as u64);
            if luck <= cell.sure || luck < fraction(self.weight(rank) / self.weight(cell.first)) {
                return rank;
            }
        }
    }
}

/// Returns a number from 0 to 1 as a fraction of 2^64.
fn fraction(part: f64) -> u64 {
    (part * 2f64.powi(64)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counts of `draws` ranks, and the expected counts.
    fn compare(n: u64, theta: f64, offset: f64) -> (Vec<u64>, Vec<f64>) {
        let (zipf, mut rng) = (Zipf::new(n, theta, offset), Rng::new(11, 0));
        let draws = 2_000_000;
        let mut counts = vec![0; n as usize + 1];
        (0..draws).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
        let weights: Vec<f64> = (0..=n).map(|r| if r == 0 { 0.0 } else { zipf.weight(r) }).collect();
        let total: f64 = weights.iter().sum();
        (counts, weights.iter().map(|w| w / total * f64::from(draws)).collect())
    }

    #[test]
    fn the_distribution_is_correct_at_the_head_and_in_the_tail() {
        for (n, theta, offset) in [(100_000, 0.99, 0.0), (20_000, 0.5, 0.0), (100_000, 1.3, 0.99)] {
            let (counts, expected) = compare(n, theta, offset);
            assert_eq!(counts[0], 0);
            let mut first = 1;
            while first <= n as usize {
                let end = (first * 2).min(n as usize + 1);
                let (got, want) =
                    (counts[first..end].iter().sum::<u64>() as f64, expected[first..end].iter().sum::<f64>());
                assert!(
                    (got - want).abs() < 5.0 * want.sqrt() + 1.0,
                    "{theta}: ranks {first}..{end}: {got}, not {want}"
                );
                first = end;
            }
        }
    }

    #[test]
    fn small_ranges_and_flat_shapes_work() {
        assert!((0..100).all(|_| Zipf::new(1, 0.99, 0.0).draw(&mut Rng::new(1, 1)) == 1));
        let (counts, expected) = compare(7, 0.0, 0.0);
        for (got, want) in counts.iter().zip(expected) {
            assert!((*got as f64 - want).abs() < 3_000.0, "{counts:?}");
        }
    }
}
