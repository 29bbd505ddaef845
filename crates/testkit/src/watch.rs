//! A watchdog against hangs. Each worker announces the case it begins; a case that takes too long ends the process with
//! its name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use tidesdb_io::{Clock, Priority, RealClock, RealThreads, Threads};

use crate::report;

/// Watches the cases of all threads of a runner.
#[derive(Debug)]
pub struct Watch {
    clock: RealClock,
    limit: Duration,
    /// By thread: the begin of its case, the name of the case, and the command that shows it again.
    cases: Mutex<BTreeMap<String, (Duration, String, String)>>,
}

impl Watch {
    /// Starts watching; a case longer than `limit` ends the process with code 3.
    pub fn start(limit: Duration) -> Arc<Self> {
        let this = Arc::new(Self { clock: RealClock::new(), limit, cases: Mutex::default() });
        let watched = Arc::clone(&this);
        let watching = RealThreads::new().spawn(
            "watchdog",
            Priority::Normal,
            Box::new(move || {
                loop {
                    watched.clock.sleep(Duration::from_millis(500));
                    watched.look();
                }
            }),
        );
        if let Err(e) = watching {
            eprintln!("cannot start the watchdog: {e}");
        }
        this
    }

    /// Announces that the calling thread begins a case.
    pub fn begin(&self, what: &str) {
        let now = self.clock.mono();
        let mut cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        cases.insert(name(std::thread::current().id()), (now, what.to_owned(), report::again()));
    }

    /// Announces that the calling thread has no case to watch.
    pub fn end(&self) {
        let mut cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        cases.remove(&name(std::thread::current().id()));
    }

    /// Returns the time since the watch started.
    pub fn elapsed(&self) -> Duration {
        self.clock.mono()
    }

    fn look(&self) {
        let now = self.clock.mono();
        let cases = self.cases.lock().unwrap_or_else(PoisonError::into_inner);
        for (since, what, again) in cases.values() {
            if now.saturating_sub(*since) > self.limit {
                let long = now.saturating_sub(*since);
                eprintln!("VIOLATION `{again}`: hang: {what} has been running for {long:?}");
                std::process::exit(3);
            }
        }
    }
}

fn name(id: ThreadId) -> String {
    format!("{id:?}")
}
