//! Whether merges run, and how fast they write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidesdb_io::Clock;

use crate::pacing::Pace;
use crate::{Error, Result};

/// Controls merges. Running merges check it now and then.
#[derive(Debug, Default)]
pub struct Merges {
    off: AtomicBool,
    /// The last merge failed because the disk had no space for its output.
    starved: AtomicBool,
    stops: AtomicU64,
    rate: RateLimit,
    /// The limit of all databases that have one together.
    shared: OnceLock<Arc<RateLimit>>,
    /// No limit slows merges down any more.
    hurries: AtomicBool,
}

/// A limit on what merges write.
#[derive(Debug, Default)]
pub struct RateLimit {
    /// Maximum bytes that all merges write per second; 0 = no limit.
    rate: AtomicU64,
    /// Schedule of their writes.
    pace: Pace,
}

/// The writes of limited merges are scheduled at most this far ahead.
const MERGE_LEAD_MAX: Duration = Duration::from_secs(600);
/// A limited merge looks after this time whether it shall stop.
const MERGE_SLICE: Duration = Duration::from_millis(50);

impl Merges {
    /// Stops running merges; from now on none starts automatically.
    pub fn stop(&self) {
        self.off.store(true, Ordering::SeqCst);
        self.stops.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns true if merges do not start automatically.
    pub fn are_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Records whether the disk lacked space for the last merge.
    pub fn set_starved(&self, yes: bool) {
        self.starved.store(yes, Ordering::Relaxed);
    }

    /// Returns true if the disk lacked space for the last merge.
    pub fn are_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    /// Returns true if writers would wait for merges that do not run.
    pub fn are_stuck(&self) -> bool {
        self.are_off() || self.are_starved()
    }

    /// What all merges may write, in bytes per second; 0 = no limit.
    pub fn rate(&self) -> u64 {
        self.rate.get()
    }

    /// Limits what all merges write, in bytes per second; 0 = no limit.
    pub fn set_rate(&self, bytes: u64) {
        self.rate.set(bytes);
    }

    /// Has merges heed `rate`, too, which other databases share.
    pub fn share_rate(&self, rate: &Arc<RateLimit>) {
        let _ = self.shared.set(Arc::clone(rate));
    }

    /// From now on no limit slows merges down, so that they end soon.
    pub fn hurry(&self) {
        self.hurries.store(true, Ordering::Relaxed);
    }

    /// Waits as long as the rates of merges demand after `bytes` were written, and while `goes_on` returns true.
    pub fn throttle(&self, clock: &dyn Clock, bytes: u64, goes_on: impl Fn() -> bool) {
        let goes_on = || !self.hurries.load(Ordering::Relaxed) && goes_on();
        for rate in std::iter::once(&self.rate).chain(self.shared.get().map(|rate| &**rate)) {
            rate.throttle(clock, bytes, &goes_on);
        }
    }

    /// Number of stops so far.
    pub fn stops(&self) -> u64 {
        self.stops.load(Ordering::SeqCst)
    }

    /// Fails if merges were stopped since `seen` stops were counted.
    ///
    /// # Errors
    /// `Busy`.
    pub fn check(&self, seen: Option<u64>) -> Result<()> {
        match seen {
            Some(seen) if seen != self.stops() => {
                Err(Error::Busy { cause: "the merge was stopped; what it had installed stays" })
            }
            _ => Ok(()),
        }
    }
}

impl RateLimit {
    /// A limit of `bytes` per second; 0 = none.
    pub fn new(bytes: u64) -> Arc<Self> {
        let rate = Self::default();
        rate.set(bytes);
        Arc::new(rate)
    }

    /// What merges may write, in bytes per second; 0 = no limit.
    pub fn get(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Changes the limit.
    pub fn set(&self, bytes: u64) {
        self.rate.store(bytes, Ordering::Relaxed);
        self.pace.forget();
    }

    /// Waits as long as the rate demands after `bytes` were written, and while `goes_on` returns true.
    fn throttle(&self, clock: &dyn Clock, bytes: u64, goes_on: impl Fn() -> bool) {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let now = clock.mono();
        let end = now + self.pace.reserve(now, bytes as f64 / rate as f64, MERGE_LEAD_MAX);
        // A limit that was changed applies at once.
        while goes_on() && self.rate.load(Ordering::Relaxed) == rate {
            let left = end.saturating_sub(clock.mono());
            if left.is_zero() {
                return;
            }
            clock.sleep(left.min(MERGE_SLICE));
        }
    }
}
