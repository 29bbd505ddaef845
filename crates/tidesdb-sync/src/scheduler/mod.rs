//! Runs threads under one seed: exactly one runs at a time, and the seed decides at each switch point which one goes on.
//!
//! Exists only under `--cfg simulated`. A simulated thread is a thread of the system that waits until it has the turn. So
//! thread-locals, panics and backtraces work as they do elsewhere. The locks, conditions and events of this crate, the threads, clocks
//! and simulated disks of `tidesdb-io`, and the spins of the leaf crates are switch points. A thread that is not part of a simulation
//! uses the real locks and the real time.
//!
//! Invariants: the thread with the number `World::turn` is the only one that runs. It alone changes the state, so the same seed makes
//! the same choices. A switch never happens while a lock is held that the scheduler does not know.
//!
//! Time is virtual. Each switch point takes a little of it; if all threads wait, it jumps to the next deadline. If no thread can run and none
//! has a deadline, the run ends with a report of the deadlock.
//!
//! A thread keeps the turn until its thread-locals are destroyed: what their destructors free is part of the run.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

mod state;
mod strategy;
pub mod lock;
#[cfg(test)]
mod tests;

use state::{Place, State, Status, Wait};
pub use strategy::{Settings, Strategy};

/// The turn of no thread.
const NOBODY: u32 = u32::MAX;
const DEADLOCK: &str = "deadlock: no thread can run, and none has a deadline";
/// Real time that a thread gets to report where it stands.
const REPORT: Duration = Duration::from_secs(5);

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of all steps. Equal for runs that made the same ones.
    pub hash: u64,
    /// Number of switch points.
    pub steps: u64,
    /// Number of times that another thread went on.
    pub switches: u64,
    /// Number of threads.
    pub threads: usize,
    /// Virtual time at the end.
    pub time: Duration,
    /// Longest virtual time that a thread waited at one place, and the place.
    pub longest_wait: (Duration, String),
    /// Panics of threads that nobody caught, each with the name of its thread.
    pub panics: Vec<String>,
    /// Why the run ended early: a deadlock, or too many steps. The threads are reported with where they stand.
    pub failure: Option<String>,
    /// One line for each step, if [`Settings::trace`] is set.
    pub trace: Vec<String>,
}

/// A simulated thread.
#[derive(Clone, Copy)]
struct Me {
    world: &'static World,
    no: u32,
}

thread_local! {
    static ME: Cell<Option<Me>> = const { Cell::new(None) };
    /// Destroyed last: a thread touches it before any other thread-local.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        if let Some(me) = me() {
            me.world.end(me.no);
        }
    }
}

/// A run. It is leaked, because its threads may outlive the call of [`run`].
struct World {
    /// The thread that runs.
    turn: AtomicU32,
    /// The thread that is to report where it stands.
    reporter: AtomicU32,
    state: Mutex<State>,
    done: Condvar,
}

fn me() -> Option<Me> {
    ME.get()
}

/// Returns true if the calling thread is part of a simulation.
#[must_use]
pub fn is_active() -> bool {
    me().is_some()
}

/// Runs `body`, and all threads that it starts, to their ends under the seed of `settings`.
///
/// # Panics
/// If the system cannot start a thread.
pub fn run(settings: Settings, body: impl FnOnce() + Send + 'static) -> Outcome {
    let world: &'static World = Box::leak(Box::new(World {
        turn: AtomicU32::new(NOBODY),
        reporter: AtomicU32::new(NOBODY),
        state: Mutex::new(State::new(settings)),
        done: Condvar::new(),
    }));
    let no = world.state().add("main");
    let started = thread::Builder::new().name("main".to_owned()).spawn(move || world.child(no, body));
    let first = started.expect("the system can start a thread").thread().clone();
    world.state().threads[0].handle = Some(first.clone());
    world.turn.store(no, Ordering::Release);
    first.unpark();
    let mut state = world.state();
    while !state.is_over {
        state = world.done.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    state.outcome()
}

/// A switch point: another thread may go on here. Does nothing outside of a simulation.
#[inline]
pub fn point(what: &'static str) {
    if let Some(me) = me() {
        me.point(&Place { what, number: 0, name: "" });
    }
}

/// A switch point before a call of a disk, which may take long. The trace names its kind as `Debug` does.
pub fn io(kind: impl fmt::Debug, path: &str, number: u64) {
    let Some(me) = me() else { return };
    me.point(&Place { what: &format!("{kind:?}"), number, name: path });
    let late = me.world.state().draw_late();
    if let Some(late) = late {
        me.block(Wait::Slow(late), path, Some(late));
    }
}

/// A switch point of a thread that spins: another thread goes on if one can.
pub fn yield_now(what: &'static str) {
    let Some(me) = me() else { return thread::yield_now() };
    let mut state = me.step(&Place { what, number: 0, name: "" });
    let next = state.choose(me.no, true).unwrap_or(me.no);
    me.hand_over(state, next);
}

/// Waits for `time`. Virtual in a simulation.
pub fn sleep(time: Duration) {
    match me() {
        None => thread::sleep(time),
        Some(me) => {
            // A loop that looks now and then waits for other threads. It would keep them from running for ever if their priorities were lower.
            me.world.state().yields(me.no);
            let time = nanos(time);
            me.block(Wait::Sleep(time), "", Some(time));
        }
    }
}

/// Returns the virtual time since the begin of the simulation; zero outside of one.
#[must_use]
pub fn now() -> Duration {
    me().map_or(Duration::ZERO, |me| Duration::from_nanos(me.world.state().now))
}

/// Adds a line to the trace, and to its hash. Not a switch point.
pub fn note(what: &'static str, number: u64, name: &str) {
    if let Some(me) = me() {
        me.world.state().record(me.no, &Place { what, number, name });
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// A handle to wait for a thread.
#[derive(Debug)]
pub struct JoinHandle(Joined);

enum Joined {
    Real(thread::JoinHandle<()>),
    Simulated(Me),
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Real(_) => "Real",
            Self::Simulated(_) => "Simulated",
        })
    }
}

impl JoinHandle {
    /// Waits for the thread to end. Returns false if it panicked.
    pub fn join(self) -> bool {
        match self.0 {
            Joined::Real(thread) => thread.join().is_ok(),
            Joined::Simulated(thread) => thread.join(),
        }
    }
}

/// Starts a thread; it is part of the simulation if the calling thread is.
///
/// # Errors
/// The error of the system if it cannot start another thread.
pub fn spawn(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle> {
    let builder = thread::Builder::new().name(name.to_owned());
    let Some(me) = me() else { return builder.spawn(body).map(|thread| JoinHandle(Joined::Real(thread))) };
    let started = me.start(name, |no| Ok(builder.spawn(move || me.world.child(no, body))?.thread().clone()));
    started.map(|thread| JoinHandle(Joined::Simulated(thread)))
}

/// Calls `body` with 0 on the calling thread of a simulation, and with 1 to `others` on further threads of it.
///
/// # Panics
/// If a call panicked.
pub fn run_together(name: &str, others: usize, body: &(dyn Fn(usize) + Sync)) {
    let me = me().expect("the caller is a simulated thread");
    let all_ended = thread::scope(|scope| {
        let start = |n| {
            let builder = thread::Builder::new().name(name.to_owned());
            me.start(name, |no| {
                let run = move || me.world.child(no, move || body(n));
                Ok(builder.spawn_scoped(scope, run)?.thread().clone())
            })
        };
        let started: Vec<Me> = (1..=others).map_while(|n| start(n).ok()).collect();
        let own = catch_unwind(AssertUnwindSafe(|| body(0)));
        // The scope waits without the scheduler, so all have to end before it does.
        let ended = started.into_iter().filter(|thread| !thread.join()).count() == 0;
        own.unwrap_or_else(|panic| resume_unwind(panic));
        ended
    });
    assert!(all_ended, "a thread that ran together with others panicked");
}

impl Me {
    /// Counts a step. The run ends if there were too many.
    fn step(self, place: &Place<'_>) -> MutexGuard<'static, State> {
        let mut state = self.world.state();
        if state.step(self.no, place) {
            return state;
        }
        let why = format!("the run does not end: {} steps", state.steps);
        self.fail(state, &why)
    }

    fn point(self, place: &Place<'_>) {
        let mut state = self.step(place);
        if let Some(time) = state.draw_stall() {
            drop(state);
            self.block(Wait::Stall(time), "", Some(time));
            return;
        }
        let next = state.choose_at_point(self.no);
        self.hand_over(state, next);
    }

    /// Waits for `wait`, at most for `limit` nanoseconds. Returns false if the time was over first. `name` is for the trace.
    fn block(self, wait: Wait, name: &str, limit: Option<u64>) -> bool {
        let (what, number) = wait.step();
        let mut state = self.step(&Place { what, number, name });
        let deadline = limit.map(|limit| state.now.saturating_add(limit));
        state.block(self.no, wait, deadline);
        match state.choose(self.no, false) {
            Some(next) => self.hand_over(state, next),
            None => self.fail(state, DEADLOCK),
        }
        self.world.state().was_woken(self.no)
    }

    /// Wakes the threads that wait for `wait`, all or one.
    fn wake(self, wait: Wait, all: bool) {
        self.world.state().wake(wait, all);
    }

    fn start(self, name: &str, start: impl FnOnce(u32) -> io::Result<Thread>) -> io::Result<Self> {
        let no = self.world.state().add(name);
        match start(no) {
            Ok(thread) => self.world.state().threads[no as usize].handle = Some(thread),
            Err(e) => {
                self.world.state().threads[no as usize].status = Status::Ended;
                return Err(e);
            }
        }
        self.point(&Place { what: "spawn", number: no.into(), name });
        Ok(Self { no, ..self })
    }

    /// Waits until this thread has ended; the caller is another one. Returns false if it panicked.
    fn join(self) -> bool {
        let caller = me().expect("the caller is a simulated thread");
        while !self.world.state().has_ended(self.no) {
            caller.block(Wait::Thread(self.no), "", None);
        }
        !self.world.state().threads[self.no as usize].panicked
    }

    /// Gives the turn to thread `next`, and waits until it comes back.
    fn hand_over(self, mut state: MutexGuard<'_, State>, next: u32) {
        if next != self.no {
            state.switched(next);
            self.world.pass(state, next);
            self.wait_for_turn();
        }
    }

    fn wait_for_turn(self) {
        let world = self.world;
        while world.turn.load(Ordering::Acquire) != self.no {
            thread::park();
            if world.reporter.load(Ordering::Acquire) == self.no {
                let stack = Backtrace::force_capture().to_string();
                world.state().threads[self.no as usize].stack = stack;
                world.reporter.store(NOBODY, Ordering::Release);
            }
        }
    }

    /// Ends the run. The threads stay where they are.
    fn fail(self, mut state: MutexGuard<'_, State>, why: &str) -> ! {
        let others: Vec<(u32, Thread)> = (0..)
            .zip(&state.threads)
            .filter(|(no, thread)| *no != self.no && thread.status != Status::Ended)
            .filter_map(|(no, thread)| Some((no, thread.handle.clone()?)))
            .collect();
        if state.threads[self.no as usize].status != Status::Ended {
            state.threads[self.no as usize].stack = Backtrace::force_capture().to_string();
        }
        drop(state);
        for (no, thread) in others {
            self.world.reporter.store(no, Ordering::Release);
            thread.unpark();
            let mut waited = Duration::ZERO;
            while self.world.reporter.load(Ordering::Acquire) == no && waited < REPORT {
                thread::sleep(Duration::from_millis(1));
                waited += Duration::from_millis(1);
            }
        }
        let mut state = self.world.state();
        let mut text = why.to_owned();
        for line in
            state.threads.iter().filter(|thread| thread.status != Status::Ended).map(|t| t.to_string())
        {
            let _ = write!(text, "\n{line}");
        }
        state.failure = Some(text);
        self.world.over(state);
        loop {
            thread::sleep(REPORT); // not parked: the thread-locals may be gone
        }
    }
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of thread `no`, on that thread.
    fn child(&'static self, no: u32, body: impl FnOnce()) {
        let me = Me { world: self, no };
        ME.set(Some(me));
        END.with(|_| ());
        me.wait_for_turn();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            let mut state = self.state();
            let thread = &mut state.threads[no as usize];
            thread.panicked = true;
            let text = format!("{}: {}", thread.name, message(&*payload));
            state.panics.push(text);
        }
    }

    /// Ends thread `no`, which gives the turn away for good.
    fn end(&'static self, no: u32) {
        let mut state = self.state();
        state.step(no, &Place { what: "end", number: no.into(), name: "" });
        state.threads[no as usize].status = Status::Ended;
        state.wake(Wait::Thread(no), true);
        match state.choose(no, false) {
            Some(next) => {
                state.switched(next);
                self.pass(state, next);
            }
            None if state.threads.iter().all(|thread| thread.status == Status::Ended) => self.over(state),
            None => Me { world: self, no }.fail(state, DEADLOCK),
        }
    }

    fn pass(&self, state: MutexGuard<'_, State>, next: u32) {
        let thread = state.threads[next as usize].handle.clone();
        drop(state);
        self.turn.store(next, Ordering::Release);
        thread.expect("a thread that can run was started").unpark();
    }

    fn over(&self, mut state: MutexGuard<'_, State>) {
        state.is_over = true;
        drop(state);
        self.done.notify_all();
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The number of a lock or condition in the run that uses it, given at the first use. Addresses would differ between runs.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    fn get(&self, me: Me) -> u64 {
        let mut state = me.world.state();
        let known = self.0.load(Ordering::Relaxed);
        if known >> 40 == state.run {
            return known;
        }
        state.numbers += 1;
        let number = state.run << 40 | state.numbers;
        self.0.store(number, Ordering::Relaxed);
        number
    }
}
