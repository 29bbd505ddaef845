//! Why does a write wait? A commit is delayed, or stopped, before it gets its place in the log, if background work falls behind or memory is
//! scarce. [`LIMITS`] has every reason, [`Load::add`] decides, and `docs/concepts/pacing.md` has the same table with advice.
//!
//! ```text
//! delay per byte
//!   |                                  ____ wait for progress
//!   |                             ..''
//!   |                       ..--''
//!   |______________..----''
//!   |              0                  1     fullness of the limit
//!   0            slow               full    the figure that it limits
//! ```
//!
//! Each limit has a *fullness*: 0 up to the figure at which writers slow down, 1 at which they stop. The fullest limit decides. The delay
//! grows with the square of its fullness, relative to the measured rate of the work that empties it ([`Pacing::rate`]), so writers approach
//! that rate smoothly. All writers share one schedule ([`Pace`]), so many small commits wait as long as few large ones. A stopped writer
//! waits for progress (`wait.rs`), and without any its commit fails with `Busy` and has no effect. Reads are never delayed.
//!
//! *Debt* is work that is due: bytes of memtables that are not in tables yet ([`Pacing::flush_debt`]), and merges, counted in tables of level 1
//! ([`MergeDebt`]). What running jobs have already moved is not part of it ([`RunningReduction`]). `write/admit.rs` collects the figures of a commit.

mod pace;
mod stalls;
mod state;
mod merge_debt;
mod wait;

pub use merge_debt::{MergeDebt, Reduction};
pub use pace::Pace;
pub use stalls::Stall;
pub use state::{MergeRate, Pacing, Rate, RunningReduction};
pub use wait::{GROWTH_PATIENCE, MEMORY_PATIENCE};

use crate::memory::Pressure;
use crate::waits::StallCause::{self, Memory, Memtables, Tables, Values};

/// A limit of a figure. Writers slow down from its first bound on; at the second one the limit is full.
#[derive(Debug)]
pub struct Limit {
    cause: StallCause,
    /// The bounds are so many times a setting,
    times: [f64; 2],
    /// but at least this,
    least: [f64; 2],
    /// and at most this.
    most: f64,
    /// The fullness up to which delays grow if a full limit does not stop writers.
    steepest: Option<f64>,
}

const fn limit(cause: StallCause, times: [f64; 2], least: [f64; 2]) -> Limit {
    Limit { cause, times, least, most: f64::INFINITY, steepest: None }
}

/// Bytes of memtables that wait for their flush, by `memtables_bytes_max`. Bytes that running flushes have written are left out, so the
/// figure falls steadily, and a short range is enough. The larger the part below it, the larger the bursts that are taken at full speed.
/// While memtables wait, the active one is included: otherwise the figure would rise by a whole memtable at once.
pub const MEMTABLE_BYTES: Limit = limit(Memtables, [0.625, 1.0], [0.0; 2]);
/// Memtables of a family that wait for their flush, however small they are: a get looks into each. Full memtables do not reach these
/// bounds, because the active one grows while few wait: so many wait only if they were rotated for other reasons.
pub const MEMTABLES: Limit = limit(Memtables, [0.0; 2], [32.0, 64.0]);
/// Tables in level 1 of a family that no merge has read, by `l1_tables_trigger`. A merge removes at least that many of them at its end, and
/// between the bounds there is room for that many.
pub const LEVEL_1: Limit = limit(Tables, [2.0, 3.0], [10.0, 24.0]);
/// Merge debt of a family ([`MergeDebt::in_tables`]), by the same. Merges may leave the lower levels as they are, so this limit does not
/// stop writers.
pub const MERGES: Limit = Limit { steepest: Some(NEVER_STOPS), ..LEVEL_1 };
/// Bytes of memory, by `memory_limit`. A commit whose memory is kept for it may use the rest up to the limit.
pub const MEMORY: Limit = limit(Memory, [Pressure::High.begin(), Pressure::Critical.begin()], [0.0; 2]);
/// Share of garbage in the value logs of a family that no memtable refers to, with what newer tables may hide, by `value_garbage_percent`. A
/// file may stay for reasons that no merge can change, so garbage does not stop writers. Garbage beyond a full limit delays them more. The
/// rate of collections rises with the share of garbage: without a longer delay, a rate that was measured too high would let writers make
/// ever more garbage. With a still longer one, a low rate that was measured before most values were deleted would nearly stop them.
pub const GARBAGE: Limit =
    Limit { most: GARBAGE_SHARE_MAX, steepest: Some(1.8), ..limit(Values, [1.5, 2.25], [0.0; 2]) };

/// All reasons for which writers are delayed.
pub const LIMITS: [Limit; 6] = [MEMTABLE_BYTES, MEMTABLES, LEVEL_1, MERGES, MEMORY, GARBAGE];

/// Garbage is never accepted beyond this share of the files.
pub const GARBAGE_SHARE_MAX: f64 = 0.9;
/// A limit that does not stop writers is treated as at most this full when it is compared with the others.
const NEVER_STOPS: f64 = 0.9;
/// Minimum distance between the bounds of a limit, whatever the setting is.
const RANGE_MIN: f64 = 0.01;

impl Limit {
    /// Returns the bounds.
    pub fn bounds(&self, setting: f64) -> [f64; 2] {
        [0, 1].map(|n| (self.times[n] * setting).clamp(self.least[n], self.most))
    }

    /// Returns how full the limit is with this figure: 0 where writers begin to slow down, 1 where it is full.
    pub fn fullness(&self, figure: f64, setting: f64) -> f64 {
        let [slow, full] = self.bounds(setting);
        if figure <= slow { 0.0 } else { (figure - slow) / (full - slow).max(RANGE_MIN) }
    }
}

/// What happens to a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Admission {
    /// It goes on.
    #[default]
    Go,
    /// It is delayed, by a limit that is so full.
    Slow(StallCause, f64),
    /// It waits for progress.
    Stop(StallCause),
}

/// The fullest one of the limits that a commit meets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    fullness: f64,
    /// What it does to the commit.
    pub admission: Admission,
}

impl Load {
    /// Adds `limit`, of which the figure is `figure`.
    pub fn add(&mut self, limit: &Limit, figure: f64, setting: f64) {
        self.add_full(limit, limit.fullness(figure, setting));
    }

    /// Adds a limit that is so full.
    pub fn add_full(&mut self, limit: &Limit, fullness: f64) {
        let counted = if limit.steepest.is_some() { fullness.min(NEVER_STOPS) } else { fullness };
        if counted > self.fullness {
            self.fullness = counted;
            self.admission = match limit.steepest {
                None if fullness >= 1.0 => Admission::Stop(limit.cause),
                steepest => Admission::Slow(limit.cause, fullness.min(steepest.unwrap_or(1.0))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(full: &[(&Limit, f64)]) -> Admission {
        let mut load = Load::default();
        full.iter().for_each(|(limit, fullness)| load.add_full(limit, *fullness));
        load.admission
    }

    /// A merge of level 1 removes at least `trigger` tables at its end. Between slow and stop there is room for that many.
    #[test]
    fn a_merge_of_level_1_fits_between_the_first_delay_and_the_stop() {
        for trigger in (1..1000).chain([1 << 30]).map(f64::from) {
            let [slow, stop] = LEVEL_1.bounds(trigger);
            assert!(slow > trigger && stop - slow >= trigger, "{trigger}: from {slow} to {stop} tables");
        }
        assert_eq!(LEVEL_1.bounds(4.0), [10.0, 24.0], "with the default trigger");
    }

    #[test]
    fn garbage_delays_writers_more_the_more_there_is_but_never_stops_them() {
        let full = |share, percent| GARBAGE.fullness(share, f64::from(percent) / 100.0);
        assert_eq!(admission(&[(&GARBAGE, full(0.375, 25))]), Admission::Go, "not too much");
        assert!((full(0.468_75, 25) - 0.5).abs() < 1e-9, "half way");
        for (share, percent) in [(0.75, 25), (f64::MAX, 1), (2.0, 100)] {
            assert_eq!(admission(&[(&GARBAGE, full(share, percent))]), Admission::Slow(Values, 1.8));
        }
        for percent in 1..=100 {
            let full: Vec<f64> = (0..=1000).map(|n| full(f64::from(n) / 1000.0, percent)).collect();
            assert!(full.is_sorted() && full[0] == 0.0 && full[1000] > 0.0, "{percent} %");
        }
    }

    /// The page is what users read, and has the units in words.
    #[test]
    fn the_page_about_pacing_has_the_table_of_limits() {
        let page = include_str!("../../../../docs/concepts/pacing.md");
        let is_row =
            |line: &&str| StallCause::ALL.iter().any(|c| line.starts_with(&format!("| `{}` |", c.name())));
        let rows: Vec<Vec<&str>> =
            page.lines().filter(is_row).map(|line| line.split('|').collect()).collect();
        assert_eq!(rows.len(), LIMITS.len());
        let pacing = Pacing::default();
        let second = std::time::Duration::from_secs(1);
        pacing.flush_rate.note(1, second);
        pacing.merge_rate.note(2, second);
        pacing.garbage_rate.note(3, second);
        for (cells, limit) in rows.iter().zip(&LIMITS) {
            let [_, cause, _, slow, full, rate, _] = cells[..] else { panic!("{cells:?}") };
            assert_eq!(cause.trim().trim_matches('`'), limit.cause.name());
            for (n, cell) in [slow, full].into_iter().enumerate() {
                let words = cell.split_whitespace().map(|word| word.trim_end_matches([',', ';']));
                let numbers: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
                let all = [limit.times[n], limit.least[n], limit.most];
                let told: Vec<f64> = all.into_iter().filter(|n| *n > 0.0 && n.is_finite()).collect();
                assert_eq!(numbers, told, "{cell}");
            }
            assert_eq!(full.contains("never"), limit.steepest.is_some(), "{full}");
            let rates = ["", "flushes", "merges", "collections"];
            assert!(rate.trim().starts_with(rates[pacing.rate(limit.cause) as usize]), "{rate}");
        }
        assert!(page.contains(&format!("up to a fullness of {}", GARBAGE.steepest.unwrap_or_default())));
    }

    #[test]
    fn the_fullest_limit_counts_and_one_that_never_stops_is_never_full() {
        assert_eq!(admission(&[]), Admission::Go);
        assert_eq!(admission(&[(&MEMORY, 0.0)]), Admission::Go);
        assert_eq!(admission(&[(&MEMTABLES, 0.4), (&MEMORY, 0.5)]), Admission::Slow(Memory, 0.5));
        assert_eq!(admission(&[(&LEVEL_1, 1.0), (&MEMORY, 0.5)]), Admission::Stop(Tables));
        assert_eq!(admission(&[(&LEVEL_1, 0.5), (&MERGES, 5.0)]), Admission::Slow(Tables, 0.9));
        assert_eq!(admission(&[(&LEVEL_1, 0.95), (&MERGES, 5.0)]), Admission::Slow(Tables, 0.95));
        assert_eq!(admission(&[(&LEVEL_1, 0.95), (&GARBAGE, 1.5)]), Admission::Slow(Tables, 0.95));
        assert_eq!(admission(&[(&LEVEL_1, 0.5), (&GARBAGE, 1.5)]), Admission::Slow(Values, 1.5));
    }
}
