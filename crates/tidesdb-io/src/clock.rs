//! Time: wall clock for expiry, monotonic clock for intervals and statistics.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::system::since_boot;

/// A source of time. Wall time decides expiry only; everything else uses monotonic time.
pub trait Clock: Send + Sync + Debug {
    /// Time since the UNIX epoch.
    fn wall(&self) -> Duration;
    /// Seconds since the UNIX epoch.
    fn wall_secs(&self) -> u64 {
        self.wall().as_secs()
    }
    /// Time since a fixed point; never goes back.
    fn mono(&self) -> Duration;
    /// Blocks the calling thread for `d`.
    fn sleep(&self, d: Duration);
    /// Blocks the calling thread for `d`, or less: by `wait`, which gets the longest time and may return earlier. A clock that callers move
    /// sleeps instead.
    fn wait(&self, d: Duration, _wait: &dyn Fn(Duration)) {
        self.sleep(d);
    }
}

/// The clocks of the system.
#[derive(Debug)]
pub struct RealClock {
    start: Duration,
}

impl RealClock {
    /// Creates a clock whose monotonic time starts at zero now.
    #[expect(clippy::new_without_default, reason = "reading a clock is a side effect")]
    pub fn new() -> Self {
        Self { start: since_boot() }
    }
}

impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the system's clocks")]
    fn wall(&self) -> Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
    }

    fn mono(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }

    fn sleep(&self, d: Duration) {
        std::thread::sleep(d);
    }

    fn wait(&self, d: Duration, wait: &dyn Fn(Duration)) {
        wait(d);
    }
}

/// The virtual time of a simulation. Its wall clock can be set.
#[cfg(simulated)]
#[derive(Debug)]
pub struct SimClock {
    /// Milliseconds since the UNIX epoch at the begin of the simulation.
    begin: AtomicU64,
}

#[cfg(simulated)]
impl SimClock {
    /// Creates a clock that showed `wall_secs` seconds since the UNIX epoch when the simulation began.
    pub fn new(wall_secs: u64) -> Self {
        Self { begin: AtomicU64::new(wall_secs * 1000) }
    }

    /// Sets the wall clock, forward or back, by so many milliseconds.
    pub fn step(&self, millis: i64) {
        let moved = self.begin.load(Ordering::SeqCst).saturating_add_signed(millis);
        self.begin.store(moved, Ordering::SeqCst);
    }
}

#[cfg(simulated)]
impl Clock for SimClock {
    fn wall(&self) -> Duration {
        Duration::from_millis(self.begin.load(Ordering::SeqCst)) + self.mono()
    }

    fn mono(&self) -> Duration {
        tidesdb_sync::scheduler::now()
    }

    fn sleep(&self, d: Duration) {
        tidesdb_sync::scheduler::sleep(d);
    }

    fn wait(&self, d: Duration, wait: &dyn Fn(Duration)) {
        wait(d);
    }
}

/// A clock that moves only when a caller moves it. `sleep` advances it by the time asked for.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_secs: AtomicU64,
    /// Fraction of the second.
    wall_nanos: AtomicU32,
    mono_nanos: AtomicU64,
}

impl ManualClock {
    /// Creates a clock set to `wall_secs` seconds since the UNIX epoch.
    pub fn new(wall_secs: u64) -> Self {
        let clock = Self::default();
        clock.set_wall_secs(wall_secs);
        clock
    }

    /// Moves both clocks forward, the wall clock by whole seconds.
    pub fn advance(&self, d: Duration) {
        self.mono_nanos.fetch_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.wall_secs.fetch_add(d.as_secs(), Ordering::SeqCst);
    }

    /// Sets the wall clock, forward or back. Monotonic time does not change.
    pub fn set_wall_secs(&self, secs: u64) {
        self.set_wall(Duration::from_secs(secs));
    }

    /// Like [`ManualClock::set_wall_secs`], with a fraction of a second.
    pub fn set_wall(&self, time: Duration) {
        self.wall_secs.store(time.as_secs(), Ordering::SeqCst);
        self.wall_nanos.store(time.subsec_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> Duration {
        Duration::new(self.wall_secs.load(Ordering::SeqCst), self.wall_nanos.load(Ordering::SeqCst))
    }

    fn mono(&self) -> Duration {
        Duration::from_nanos(self.mono_nanos.load(Ordering::SeqCst))
    }

    /// Advances the clock by `d` at once, and sleeps for 20 us of real time, so that a thread that only sleeps
    /// does not take a core from threads that work.
    fn sleep(&self, d: Duration) {
        self.advance(d);
        std::thread::sleep(Duration::from_micros(20));
    }
}
