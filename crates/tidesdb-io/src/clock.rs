//! Time: wall clock for expiry, monotonic clock for intervals and statistics.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Tells the time. Wall time decides expiry only; everything else uses monotonic time.
pub trait Clock: Send + Sync + Debug {
    /// Seconds since the UNIX epoch.
    fn wall_secs(&self) -> u64;
    /// Time since some fixed moment; never goes back.
    fn mono(&self) -> Duration;
    /// Lets `d` pass.
    fn sleep(&self, d: Duration);
}

/// The clocks of the system.
#[derive(Debug)]
pub struct RealClock {
    start: std::time::Instant,
}

impl RealClock {
    /// A clock whose monotonic time starts at zero now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clocks")]
    #[expect(clippy::new_without_default, reason = "reading a clock is an act, not a default")]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clocks")]
    fn wall_secs(&self) -> u64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }

    fn mono(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, d: Duration) {
        std::thread::sleep(d);
    }
}

/// A clock that moves only when told to; `sleep` moves it by the time asked for.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_secs: AtomicU64,
    mono_nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `wall_secs` seconds since the UNIX epoch.
    pub fn new(wall_secs: u64) -> Self {
        Self { wall_secs: AtomicU64::new(wall_secs), mono_nanos: AtomicU64::new(0) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, d: Duration) {
        self.mono_nanos.fetch_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.wall_secs.fetch_add(d.as_secs(), Ordering::SeqCst);
    }

    /// Sets the wall clock, forward or back; monotonic time stays.
    pub fn set_wall_secs(&self, secs: u64) {
        self.wall_secs.store(secs, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall_secs(&self) -> u64 {
        self.wall_secs.load(Ordering::SeqCst)
    }

    fn mono(&self) -> Duration {
        Duration::from_nanos(self.mono_nanos.load(Ordering::SeqCst))
    }

    /// Advances by `d` at once, and rests for a moment of real time: a thread that does nothing but sleep must not
    /// keep a core from those that work.
    fn sleep(&self, d: Duration) {
        self.advance(d);
        std::thread::sleep(Duration::from_micros(20));
    }
}
