//! The state of a run: its threads and what each waits for, the virtual time, the trace.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use super::Outcome;
use super::strategy::{Chooser, Rng, Settings};

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// A lock, to read.
    Read(u64),
    /// A lock, to write.
    Write(u64),
    /// A condition.
    Condition(u64),
    /// The end of a thread.
    Thread(u32),
    /// The end of a sleep of so many nanoseconds.
    Sleep(u64),
    /// The end of a call of a disk that takes so many nanoseconds.
    Slow(u64),
    /// The end of a time of so many nanoseconds in which the thread does nothing.
    Stall(u64),
}

impl Wait {
    /// Returns the step that begins the wait: what the thread does, and the number of that.
    pub(super) fn step(self) -> (&'static str, u64) {
        match self {
            Self::Read(number) | Self::Write(number) => ("wait for lock", number),
            Self::Condition(number) => ("wait", number),
            Self::Thread(no) => ("join", no.into()),
            Self::Sleep(time) => ("sleep", time),
            Self::Slow(time) => ("slow", time),
            Self::Stall(time) => ("stall", time),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Read(number) => write!(f, "lock {} to read", short(number)),
            Self::Write(number) => write!(f, "lock {}", short(number)),
            Self::Condition(number) => write!(f, "condition {}", short(number)),
            Self::Thread(no) => write!(f, "the end of thread {no}"),
            Self::Sleep(_) | Self::Slow(_) | Self::Stall(_) => f.write_str("time to pass"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    Blocked { wait: Wait, deadline: Option<u64>, since: u64 },
    Ended,
}

/// What a thread does at a step.
pub(super) struct Place<'a> {
    pub(super) what: &'a str,
    pub(super) number: u64,
    pub(super) name: &'a str,
}

pub(super) struct ThreadState {
    no: u32,
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) handle: Option<Thread>,
    pub(super) panicked: bool,
    /// Whether the last wait ended by a wake-up.
    woken: bool,
    /// Where it stands, once it was asked.
    pub(super) stack: String,
}

impl ThreadState {
    fn waits_for(&self, what: Wait) -> bool {
        matches!(self.status, Status::Blocked { wait, .. } if wait == what)
    }
}

impl fmt::Display for ThreadState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {} {}: ", self.no, self.name)?;
        match self.status {
            Status::Ready => f.write_str("can run")?,
            Status::Ended => f.write_str("has ended")?,
            Status::Blocked { wait, deadline, since } => {
                let (what, _) = wait.step();
                write!(f, "waits in {what} for {wait} since {since} ns")?;
                if let Some(deadline) = deadline {
                    write!(f, ", at most until {deadline} ns")?;
                }
            }
        }
        // Omits the frames of the scheduler and of the thread start: they are the same in each stack.
        let lines = self.stack.lines().filter(|line| {
            !line.contains("scheduler::") && !line.contains("/rustc/") && !line.contains("std::backtrace")
        });
        lines.take(60).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// The number of a lock without that of the run.
fn short(number: u64) -> u64 {
    number & ((1 << 40) - 1)
}

pub(super) struct State {
    /// Number of this run in the process, so that locks that live longer than a run get new numbers.
    pub(super) run: u64,
    /// Locks and conditions with a number.
    pub(super) numbers: u64,
    pub(super) threads: Vec<ThreadState>,
    pub(super) now: u64,
    pub(super) steps: u64,
    switches: u64,
    rng: Rng,
    chooser: Chooser,
    settings: Settings,
    hash: u64,
    trace: Vec<String>,
    pub(super) panics: Vec<String>,
    pub(super) failure: Option<String>,
    pub(super) is_over: bool,
    /// No deadline is before this.
    next_deadline: u64,
    longest_wait: (u64, String),
    /// Threads that can run; kept to save the allocation.
    ready: Vec<u32>,
}

impl State {
    pub(super) fn new(settings: Settings) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        let mut rng = Rng::new(settings.seed);
        Self {
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            numbers: 0,
            threads: Vec::new(),
            now: 0,
            steps: 0,
            switches: 0,
            chooser: Chooser::new(&settings, &mut rng),
            rng,
            settings,
            hash: 0xCBF2_9CE4_8422_2325,
            trace: Vec::new(),
            panics: Vec::new(),
            failure: None,
            is_over: false,
            next_deadline: u64::MAX,
            longest_wait: (0, String::new()),
            ready: Vec::new(),
        }
    }

    /// Adds a thread that can run.
    pub(super) fn add(&mut self, name: &str) -> u32 {
        let no = self.threads.len() as u32;
        self.chooser.added(&mut self.rng);
        self.threads.push(ThreadState {
            no,
            name: name.to_owned(),
            status: Status::Ready,
            handle: None,
            panicked: false,
            woken: false,
            stack: String::new(),
        });
        no
    }

    pub(super) fn has_ended(&self, no: u32) -> bool {
        self.threads[no as usize].status == Status::Ended
    }

    /// Counts a step. Returns false if there were too many.
    pub(super) fn step(&mut self, no: u32, place: &Place<'_>) -> bool {
        self.steps += 1;
        self.now += self.settings.step_nanos;
        self.record(no, place);
        self.steps < self.settings.steps_max
    }

    fn mix(&mut self, n: u64) {
        self.hash = (self.hash.rotate_left(23) ^ n).wrapping_mul(0x9FB2_1C65_1E98_DF25);
    }

    /// Adds to the hash and to the trace.
    pub(super) fn record(&mut self, no: u32, place: &Place<'_>) {
        self.mix(self.now);
        self.mix(u64::from(no) << 32 ^ place.what.len() as u64 ^ short(place.number).rotate_left(8));
        for part in [place.what, place.name] {
            for bytes in part.as_bytes().chunks(8) {
                self.mix(bytes.iter().fold(1, |n, byte| n << 8 | u64::from(*byte)));
            }
        }
        if self.settings.trace && place.what != "atomic" {
            let Place { what, number, name } = place;
            let line = format!(
                "{} {}us {no}.{} {what} {} {name}",
                self.steps,
                self.now / 1000,
                self.threads[no as usize].name,
                short(*number)
            );
            self.trace.push(line);
        }
    }

    /// Counts that thread `next` goes on.
    pub(super) fn switched(&mut self, next: u32) {
        self.switches += 1;
        self.mix(next.into());
        if self.settings.trace {
            let line = format!("{} -> {next}.{}", self.steps, self.threads[next as usize].name);
            self.trace.push(line);
        }
    }

    /// Returns the time that a call of a disk takes, if it takes long.
    pub(super) fn draw_late(&mut self) -> Option<u64> {
        let is_late = self.rng.one_in(self.settings.late_one_in);
        is_late.then(|| 1 + self.rng.below(self.settings.late_max.as_nanos() as u64))
    }

    /// Returns the time for which the running thread stands still, if it does.
    pub(super) fn draw_stall(&mut self) -> Option<u64> {
        let does_stall = self.rng.one_in(self.settings.stall_one_in);
        does_stall.then(|| self.settings.step_nanos * (1 + self.rng.below(self.settings.stall_steps_max)))
    }

    pub(super) fn block(&mut self, no: u32, wait: Wait, deadline: Option<u64>) {
        let since = self.now;
        self.threads[no as usize].status = Status::Blocked { wait, deadline, since };
        self.next_deadline = self.next_deadline.min(deadline.unwrap_or(u64::MAX));
    }

    /// Returns whether the last wait of a thread ended by a wake-up, not by its deadline.
    pub(super) fn was_woken(&self, no: u32) -> bool {
        self.threads[no as usize].woken
    }

    /// Lets a blocked thread run.
    fn release(&mut self, at: usize, woken: bool) {
        let now = self.now;
        let thread = &mut self.threads[at];
        if let Status::Blocked { wait, since, .. } = thread.status {
            let waited = now.saturating_sub(since);
            let is_time = matches!(wait, Wait::Sleep(_) | Wait::Slow(_) | Wait::Stall(_));
            if !is_time && waited > self.longest_wait.0 {
                self.longest_wait = (waited, format!("{} in {}", thread.name, wait.step().0));
            }
            thread.status = Status::Ready;
            thread.woken = woken;
        }
    }

    /// Wakes the threads that wait for `wait`, or one of them, which the seed chooses.
    pub(super) fn wake(&mut self, wait: Wait, all: bool) {
        let waiting: Vec<usize> =
            (0..self.threads.len()).filter(|at| self.threads[*at].waits_for(wait)).collect();
        if all {
            waiting.iter().for_each(|at| self.release(*at, true));
        } else if !waiting.is_empty() {
            let one = waiting[self.rng.below(waiting.len() as u64) as usize];
            self.release(one, true);
        }
    }

    /// Returns true if a thread waits for `wait`.
    pub(super) fn is_waited_for(&self, wait: Wait) -> bool {
        self.threads.iter().any(|thread| thread.waits_for(wait))
    }

    /// Lets the threads run whose deadlines have passed.
    fn wake_due(&mut self) {
        if self.now < self.next_deadline {
            return;
        }
        self.next_deadline = u64::MAX;
        for at in 0..self.threads.len() {
            let Status::Blocked { deadline: Some(deadline), .. } = self.threads[at].status else { continue };
            if deadline <= self.now {
                self.release(at, false);
            } else {
                self.next_deadline = self.next_deadline.min(deadline);
            }
        }
    }

    /// Lets time jump to the next deadline. Returns false if there is none.
    fn jump(&mut self) -> bool {
        let deadlines = self.threads.iter().filter_map(|thread| match thread.status {
            Status::Blocked { deadline, .. } => deadline,
            _ => None,
        });
        let Some(next) = deadlines.min() else { return false };
        self.now = self.now.max(next);
        self.next_deadline = 0;
        self.wake_due();
        true
    }

    /// Thread `no` lets others go first.
    pub(super) fn yields(&mut self, no: u32) {
        self.chooser.demote(no);
    }

    /// Chooses at a switch point of thread `running`, which may go on.
    pub(super) fn choose_at_point(&mut self, running: u32) -> u32 {
        if self.rng.one_in(self.settings.jump_one_in) {
            self.jump();
        }
        if self.chooser.goes_on(running, self.steps, &mut self.rng) {
            return running;
        }
        self.choose(running, false).unwrap_or(running)
    }

    /// Chooses a thread that can run; time jumps if none can. `None` if none ever will. If `yields`, not `running`, unless it is the only one.
    pub(super) fn choose(&mut self, running: u32, yields: bool) -> Option<u32> {
        self.wake_due();
        let mut ready = std::mem::take(&mut self.ready);
        let list = |state: &Self, ready: &mut Vec<u32>| {
            ready.clear();
            ready.extend(state.threads.iter().filter(|t| t.status == Status::Ready).map(|t| t.no));
        };
        list(self, &mut ready);
        if ready.is_empty() && self.jump() {
            list(self, &mut ready);
        }
        if yields && ready.len() > 1 {
            ready.retain(|no| *no != running);
        }
        let chosen = (!ready.is_empty()).then(|| self.chooser.choose(&ready, running, yields, &mut self.rng));
        self.ready = ready;
        chosen
    }

    pub(super) fn outcome(&mut self) -> Outcome {
        Outcome {
            hash: self.hash,
            steps: self.steps,
            switches: self.switches,
            threads: self.threads.len(),
            time: Duration::from_nanos(self.now),
            longest_wait: (Duration::from_nanos(self.longest_wait.0), self.longest_wait.1.clone()),
            panics: self.panics.clone(),
            failure: self.failure.clone(),
            trace: std::mem::take(&mut self.trace),
        }
    }
}
