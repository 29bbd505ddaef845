//! The threads that several databases share: [`SharedThreads`].
//!
//! Each database keeps its own queue of jobs, and announces each job here. A thread that is free takes *one* job of the database that has
//! waited longest for threads of its kind; then the others have their turns, however much the first has to do. A database never has the last
//! of several threads that flush, nor of those that merge: work of one whose disk is slow does not keep the others waiting. Merges never
//! delay a flush, because other threads flush.
//!
//! All others, which keep the time, prepare logs, remove files, upload and publish figures, work one at a time, and another one stands by:
//! it goes on when the first has worked for [`LATE`], because it waits for a device or a store.
//!
//! ```text
//! commit -> JobQueue of the database -> announce -> queue of databases, one for each kind of thread
//!                ^                                              |
//!                '-------------- pop one job <-- the next thread that is free
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidesdb_io::{Env, JoinHandle};
use tidesdb_sync::{Condvar, Mutex, rank, thread_index};

use super::pool::Team;
use super::{Ticks, finished, run};
use crate::Error;
use crate::callback::contained;
use crate::engine::{Engine, FIRST_FIGURES_AFTER};
use crate::jobs::ThreadKind;

/// A thread without work looks at least this often whether it shall end.
const PATIENCE: Duration = Duration::from_millis(500);
/// While a database recovers, its jobs wait, and a thread that finds no other looks again after this time.
const RECOVERY_LOOK: Duration = Duration::from_millis(10);
/// A thread that works for so long waits for a device, and another one goes on in its place.
const LATE: Duration = Duration::from_millis(50);
/// Most threads of a kind that wait for devices or stores.
const WAITING_MAX: usize = 32;
/// Threads that work alone and stand by: more of a kind come one at a time, after this pause,
const STANDBY: usize = 2;
const GROWTH_PAUSE: Duration = Duration::from_secs(1);
/// and end when they found nothing to do so often in turn.
const LOOKS_MAX: u32 = 10;
/// At least so many threads flush.
const FLUSHERS_MIN: usize = 2;

/// The threads of several databases. They end when this is dropped; each database keeps it.
#[derive(Debug)]
pub struct SharedThreads(Arc<Shared>);

/// What the threads have in common.
#[derive(Debug)]
struct Shared {
    workers: usize,
    env: Env,
    state: Mutex<State, { rank::THREADS }>,
    /// Of each kind: there may be work.
    work: [Condvar; ThreadKind::COUNT],
    /// A job or a round of a database has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    members: BTreeMap<u64, Member>,
    joined: u64,
    /// Numbers of the threads, by [`thread_index`].
    own: Vec<usize>,
    groups: [Group; ThreadKind::COUNT],
    /// The threads, by their tickets.
    handles: BTreeMap<u64, JoinHandle>,
    tickets: u64,
    /// Tickets of threads that have ended.
    gone: Vec<u64>,
}

/// The threads of one kind, and what waits for them.
#[derive(Debug, Default)]
struct Group {
    /// Databases that may have jobs, in the order of their turns.
    ready: VecDeque<u64>,
    /// When the next round of each database is due, for threads without jobs.
    due: BTreeSet<(Duration, u64)>,
    /// When the work of each busy thread began.
    begun: BTreeMap<usize, Duration>,
    threads: usize,
    idle: usize,
    /// When the last thread was started.
    grown: Duration,
}

/// One database.
#[derive(Debug)]
struct Member {
    engine: Weak<Engine>,
    /// Whether it waits in the queue for threads of each kind.
    queued: [bool; ThreadKind::COUNT],
    /// Threads of each kind that work for it.
    running: [usize; ThreadKind::COUNT],
    /// When its next round is due, for threads without jobs.
    due: [Option<Duration>; ThreadKind::COUNT],
    /// Set for kinds that shall do one more round than the one under way.
    again: [bool; ThreadKind::COUNT],
    /// What its last tick saw; taken during a tick.
    ticks: Option<Ticks>,
    leaves: bool,
}

/// The place of a database among those that share threads.
#[derive(Debug)]
pub struct Membership {
    /// Keeps them.
    _threads: Arc<SharedThreads>,
    shared: Arc<Shared>,
    id: u64,
}

impl SharedThreads {
    /// Threads for `workers` jobs at a time, which start when there is work.
    pub fn new(env: &Env, workers: usize) -> Self {
        Self(Arc::new(Shared {
            workers,
            env: env.clone(),
            state: Mutex::default(),
            work: Default::default(),
            ended: Condvar::default(),
        }))
    }

    /// How many merges of one database may run at a time, beside one that begins.
    pub fn merges_of_one(&self) -> usize {
        (self.0.threads_of_one(ThreadKind::Long) - 1).max(1)
    }

    /// Number of threads that have started.
    pub fn threads(&self) -> usize {
        self.0.state.lock().groups.iter().map(|group| group.threads).sum()
    }

    /// Adds `engine`: from now on these threads do its work.
    pub fn join(self: &Arc<Self>, engine: &Arc<Engine>) -> Membership {
        let mut state = self.0.state.lock();
        state.joined += 1;
        let id = state.joined;
        let member = Member {
            engine: Arc::downgrade(engine),
            queued: [false; ThreadKind::COUNT],
            running: [0; ThreadKind::COUNT],
            due: [None; ThreadKind::COUNT],
            again: [false; ThreadKind::COUNT],
            ticks: Some(Ticks::default()),
            leaves: false,
        };
        state.members.insert(id, member);
        drop(state);
        Membership { _threads: Arc::clone(self), shared: Arc::clone(&self.0), id }
    }
}

impl Drop for SharedThreads {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let handles = std::mem::take(&mut state.handles);
        let is_own = state.own.contains(&thread_index()); // the last handle went with an object that the thread dropped
        drop(state);
        self.0.work.iter().for_each(|work| work.notify_all());
        if !is_own {
            handles.into_values().for_each(|handle| {
                handle.join();
            });
        }
    }
}

impl Membership {
    /// Announces that there may be work for `kind`: a job, or for threads without jobs a round, which is then due now.
    pub fn announce(&self, engine: &Engine, kind: ThreadKind) {
        let mut state = self.shared.state.lock();
        if state.members.get(&self.id).is_none_or(|member| member.leaves) {
            return;
        }
        self.shared.announce(&mut state, self.id, kind);
        let (workers, mut lacks) = (&engine.write.jobs.workers, false);
        for kind in [kind, ThreadKind::Clock, ThreadKind::Figures] {
            if kind == ThreadKind::Figures && !engine.publishes() {
                continue;
            }
            let has_round = state.members.get(&self.id).is_some_and(|m| m.due[kind as usize].is_some());
            if !kind.takes_jobs() && !has_round {
                self.shared.begin_rounds(&mut state, self.id, kind);
            }
            match self.shared.spawn_if_needed(&mut state, kind) {
                Ok(()) => workers.started(kind),
                Err(_) if kind == ThreadKind::Figures => {} // nothing waits for it
                Err(e) => {
                    let name = Team::of(kind, self.shared.workers).name;
                    lacks |= workers.failed(kind, format!("start {name}: {e}"));
                }
            }
        }
        drop(state);
        if lacks {
            tracing::warn!(
                "a background thread could not be started; commits, or other threads, do its work"
            );
        }
    }

    /// From now on no job of this database begins.
    pub fn stop(&self) {
        if let Some(member) = self.shared.state.lock().members.get_mut(&self.id) {
            member.leaves = true;
        }
    }

    /// Ends the work for this database, after [`Membership::stop`]. Returns once nothing of it runs.
    pub fn leave(&self) {
        let mut state = self.shared.state.lock();
        // The queues still name it; whoever comes to its number there passes it over.
        while state.members.get(&self.id).is_some_and(|member| member.running.iter().sum::<usize>() > 0) {
            self.shared.ended.wait(&mut state);
        }
        state.members.remove(&self.id);
    }
}

/// Work that a thread takes.
enum Work {
    /// One job of this database, if it has one.
    Job(u64, Arc<Engine>),
    /// A round of this database.
    Round(u64, Arc<Engine>, Ticks),
}

impl Shared {
    /// How many threads of `kind` there may be.
    fn threads_max(&self, kind: ThreadKind) -> usize {
        match kind {
            ThreadKind::Short => Team::of(kind, self.workers).threads.max(FLUSHERS_MIN),
            ThreadKind::Long => Team::of(kind, self.workers).threads,
            _ => WAITING_MAX,
        }
    }

    /// Returns when a thread of `kind` may begin, if not now: while another one works that does not wait for a device, none does.
    fn begins_at(&self, group: &Group, kind: ThreadKind, now: Duration) -> Option<Duration> {
        if !stands_by(kind) {
            return None;
        }
        group.begun.values().map(|begun| *begun + LATE).filter(|late| *late > now).max()
    }

    /// How many threads of `kind` may work for one database: all but the last.
    fn threads_of_one(&self, kind: ThreadKind) -> usize {
        (self.threads_max(kind) - 1).max(1)
    }

    /// Puts the database at the end of the queue for `kind`, unless it waits there. A thread without jobs does a round now.
    fn announce(&self, state: &mut State, id: u64, kind: ThreadKind) {
        let Some(member) = state.members.get_mut(&id).filter(|member| !member.leaves) else { return };
        let group = &mut state.groups[kind as usize];
        if kind.takes_jobs() {
            if !std::mem::replace(&mut member.queued[kind as usize], true) {
                group.ready.push_back(id);
            }
        } else if let Some(due) = member.due[kind as usize] {
            if member.running[kind as usize] > 0 {
                member.again[kind as usize] = true;
            } else if group.due.remove(&(due, id)) {
                group.due.insert((Duration::ZERO, id));
                member.due[kind as usize] = Some(Duration::ZERO);
            }
        }
        self.work[kind as usize].notify_one();
    }

    /// Has the threads of `kind` do rounds for the database from now on.
    fn begin_rounds(&self, state: &mut State, id: u64, kind: ThreadKind) {
        let first = if kind == ThreadKind::Figures { FIRST_FIGURES_AFTER } else { Duration::ZERO };
        let due = self.env.clock.mono() + first;
        if let Some(member) = state.members.get_mut(&id).filter(|member| !member.leaves) {
            member.due[kind as usize] = Some(due);
            state.groups[kind as usize].due.insert((due, id));
            self.work[kind as usize].notify_one();
        }
    }

    /// Starts a thread of `kind` if none is idle and there may be more: those that work alone have another one stand by.
    ///
    /// # Errors
    /// If the system has no room for the first one.
    fn spawn_if_needed(self: &Arc<Self>, state: &mut State, kind: ThreadKind) -> std::io::Result<()> {
        let (group, now) = (&state.groups[kind as usize], self.env.clock.mono());
        let is_first = group.threads == 0;
        let pauses = stands_by(kind) && group.threads >= STANDBY && now < group.grown + GROWTH_PAUSE;
        let is_wanted = group.idle == 0 && group.threads < self.threads_max(kind) && !pauses;
        if state.closed || !(is_first || is_wanted) {
            return Ok(());
        }
        for gone in std::mem::take(&mut state.gone) {
            state.handles.remove(&gone).map(JoinHandle::join);
        }
        state.tickets += 1;
        let ticket = state.tickets;
        let (this, team) = (Arc::clone(self), Team::of(kind, self.workers));
        match self.env.threads.spawn(team.name, team.priority, Box::new(move || this.work(kind, ticket))) {
            Ok(handle) => {
                let group = &mut state.groups[kind as usize];
                (group.threads, group.grown) = (group.threads + 1, now);
                state.handles.insert(ticket, handle);
                Ok(())
            }
            Err(e) if is_first => Err(e),
            Err(_) => Ok(()),
        }
    }

    /// What a thread of `kind` does.
    fn work(self: &Arc<Self>, kind: ThreadKind, ticket: u64) {
        self.state.lock().own.push(thread_index());
        while let Some(work) = self.next(kind, ticket) {
            let (id, engine, ticks) = match work {
                Work::Job(id, engine) => (id, engine, None),
                Work::Round(id, engine, ticks) => (id, engine, Some(ticks)),
            };
            let done = contained(|| match ticks {
                None => {
                    self.run_job(id, &engine, kind);
                    None
                }
                Some(mut ticks) => Some((round(&engine, kind, &mut ticks), ticks)),
            });
            if done.is_none() {
                engine.write.poison(Error::internal("a background thread panicked"));
            }
            drop(engine);
            self.end(id, kind, done.unwrap_or_default());
        }
    }

    /// Waits for work. `None` once the threads shall end.
    fn next(self: &Arc<Self>, kind: ThreadKind, ticket: u64) -> Option<Work> {
        let (mut state, mut looks) = (self.state.lock(), 0);
        loop {
            if state.closed {
                return None;
            }
            if stands_by(kind) && looks > LOOKS_MAX && state.groups[kind as usize].threads > STANDBY {
                state.groups[kind as usize].threads -= 1;
                state.own.retain(|own| *own != thread_index());
                state.gone.push(ticket);
                return None;
            }
            let now = self.env.clock.mono();
            let (work, patience) = match self.begins_at(&state.groups[kind as usize], kind, now) {
                Some(at) => (None, at - now),
                None if kind.takes_jobs() => self.next_job(&mut state, kind),
                None => self.next_round(&mut state, kind, now),
            };
            if work.is_some() {
                state.groups[kind as usize].begun.insert(thread_index(), now);
                let _ = self.spawn_if_needed(&mut state, kind);
                return work;
            }
            state.groups[kind as usize].idle += 1;
            looks += u32::from(self.work[kind as usize].wait_for(&mut state, patience).timed_out());
            state.groups[kind as usize].idle -= 1;
        }
    }

    /// Returns a database that may have a job and whose turn it is, or how long to wait.
    fn next_job(&self, state: &mut State, kind: ThreadKind) -> (Option<Work>, Duration) {
        let mut patience = PATIENCE;
        let State { groups, members, .. } = state;
        let ready = &mut groups[kind as usize].ready;
        for _ in 0..ready.len() {
            let Some(id) = ready.pop_front() else { break };
            let Some(member) = members.get_mut(&id).filter(|member| !member.leaves) else { continue };
            let Some(engine) = member.engine.upgrade() else { continue };
            let recovers = engine.write.is_recovering();
            if recovers || member.running[kind as usize] >= self.threads_of_one(kind) {
                patience = if recovers { RECOVERY_LOOK } else { patience };
                ready.push_back(id);
                continue;
            }
            member.queued[kind as usize] = false;
            member.running[kind as usize] += 1;
            return (Some(Work::Job(id, engine)), patience);
        }
        (None, patience)
    }

    /// Returns a database for which a round is due, or how long to wait.
    fn next_round(&self, state: &mut State, kind: ThreadKind, now: Duration) -> (Option<Work>, Duration) {
        let State { groups, members, .. } = state;
        while let Some(&(due, id)) = groups[kind as usize].due.first() {
            if due > now {
                return (None, (due - now).min(PATIENCE));
            }
            groups[kind as usize].due.remove(&(due, id));
            let Some(member) = members.get_mut(&id).filter(|member| !member.leaves) else { continue };
            let Some(engine) = member.engine.upgrade() else { continue };
            let ticks = if kind == ThreadKind::Clock { member.ticks.take() } else { None };
            member.running[kind as usize] += 1;
            return (Some(Work::Round(id, engine, ticks.unwrap_or_default())), Duration::ZERO);
        }
        (None, PATIENCE)
    }

    /// Takes and runs one job of the database.
    fn run_job(self: &Arc<Self>, id: u64, engine: &Arc<Engine>, kind: ThreadKind) {
        engine.reads.refresh_clock(); // in case the timekeeper waits for a slow disk
        let (jobs, Some(takes)) = (&engine.write.jobs, Team::of(kind, self.workers).takes()) else { return };
        let Some(job) = jobs.pop(Duration::ZERO, takes) else { return };
        if jobs.has_one_of(takes) {
            let mut state = self.state.lock();
            self.announce(&mut state, id, kind);
            let _ = self.spawn_if_needed(&mut state, kind);
        }
        let _ = run(engine, job); // failures are handled inside
        // An idle thread would keep the views that it replaced, and with them files that are no longer needed.
        tidesdb_sync::reclaim();
        finished(engine, job);
    }

    /// Ends the work of a thread for a database. After a round: when the next is due, and what the ticks have seen.
    fn end(&self, id: u64, kind: ThreadKind, round: Option<(Duration, Ticks)>) {
        let mut state = self.state.lock();
        let State { groups, members, .. } = &mut *state;
        groups[kind as usize].begun.remove(&thread_index());
        if let Some(member) = members.get_mut(&id) {
            member.running[kind as usize] -= 1;
            if let Some((pause, ticks)) = round {
                let again = std::mem::take(&mut member.again[kind as usize]);
                let due = if again { Duration::ZERO } else { self.env.clock.mono() + pause };
                if kind == ThreadKind::Clock {
                    member.ticks = Some(ticks);
                }
                if !member.leaves {
                    member.due[kind as usize] = Some(due);
                    groups[kind as usize].due.insert((due, id));
                }
            }
        }
        self.ended.notify_all();
        self.work[kind as usize].notify_one(); // a database that had its share of the threads, or the next round
    }
}

/// Returns true for threads of which one works at a time, and another one stands by.
fn stands_by(kind: ThreadKind) -> bool {
    !matches!(kind, ThreadKind::Short | ThreadKind::Long)
}

/// Does a round of `kind` for `engine`. Returns when the next is due.
fn round(engine: &Arc<Engine>, kind: ThreadKind, ticks: &mut Ticks) -> Duration {
    match kind {
        ThreadKind::Figures => {
            let pause = engine.publish();
            tidesdb_sync::reclaim(); // the views that it looked at
            pause
        }
        _ => {
            engine.reads.begin_ticking();
            engine.write.sync_due.set_ticking(true);
            ticks.tick(engine);
            ticks.pause(engine)
        }
    }
}
