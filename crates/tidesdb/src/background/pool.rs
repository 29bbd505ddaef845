//! The worker threads, and the timekeeper thread. None starts before it has something to do.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::{JoinHandle, Priority};
use tidesdb_sync::{Mutex, rank};

use super::shared::{Membership, SharedThreads};
use super::{Ticks, finished, run};
use crate::context::WriteCtx;
use crate::engine::{Engine, FIRST_FIGURES_AFTER};
use crate::jobs::{Job, Takes, ThreadKind};
use crate::{Error, Result};

/// The threads of one database.
#[derive(Default)]
pub struct Pool {
    own: Arc<Threads>,
    /// Its place among the databases that share threads, if it does.
    shared: Option<Arc<Membership>>,
}

/// The threads that run.
#[derive(Default)]
struct Threads {
    threads: Mutex<Vec<JoinHandle>, { rank::THREADS }>,
}

impl Pool {
    /// Threads that start when there is work for them: `workers` workers, one for merges of further families, the one that removes files,
    /// the one that prepares the log, the timekeeper and, with an object store, the uploader. 0 workers = no threads.
    ///
    /// While the system has no room for a thread, commits do its work, as without threads, and sync the log themselves. Each further job
    /// tries again.
    pub fn new(engine: &Arc<Engine>, workers: usize) -> Self {
        let pool = Self::default();
        if workers > 0 {
            prepare(engine, workers / 2);
            let (threads, weak) = (Arc::clone(&pool.own), Arc::downgrade(engine));
            engine.write.jobs.workers.start_with(move |kind| {
                if let Some(engine) = weak.upgrade() {
                    threads.start(&engine, workers, kind);
                }
            });
        }
        pool
    }

    /// As [`Pool::new`], but `threads` do the work, which also have that of other databases.
    pub fn among(engine: &Arc<Engine>, threads: &Arc<SharedThreads>) -> Self {
        prepare(engine, threads.merges_of_one());
        let membership = Arc::new(threads.join(engine));
        let (announced_to, weak) = (Arc::downgrade(&membership), Arc::downgrade(engine));
        engine.write.jobs.workers.share_with(move |kind| {
            if let (Some(membership), Some(engine)) = (announced_to.upgrade(), weak.upgrade()) {
                membership.announce(&engine, kind);
            }
        });
        Self { shared: Some(membership), ..Self::default() }
    }

    /// Starts a thread that ends by itself.
    ///
    /// # Errors
    /// `Io` if it cannot be started; the threads already started are stopped.
    pub fn spawn(
        &self,
        ctx: &WriteCtx,
        name: &str,
        priority: Priority,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let spawned = ctx.env.threads.spawn(name, priority, Box::new(body));
        let handle = spawned.map_err(|e| Error::io("start", name, e)).inspect_err(|_| self.stop(ctx))?;
        self.own.threads.lock().push(handle);
        Ok(())
    }

    /// Stops all threads after their current job; none starts from now on. Lifts the rate of merges, so that they end soon. Waits for calls
    /// that write files in the threads of their callers; none begins from now on.
    pub fn stop(&self, ctx: &WriteCtx) {
        ctx.jobs.close();
        if let Some(membership) = &self.shared {
            membership.stop();
        }
        ctx.merges.hurry();
        let threads = std::mem::take(&mut *self.own.threads.lock());
        for thread in threads {
            thread.join();
        }
        if let Some(membership) = &self.shared {
            membership.leave();
        }
        ctx.calls.close();
    }
}

/// Has commits leave the work to threads, of which at most `merges_max` merge one family.
fn prepare(engine: &Engine, merges_max: usize) {
    let write = &engine.write;
    write.jobs.limit_merges(merges_max);
    write.sync_due.set_ticking(false);
    write.log.announce_first();
    let jobs = Arc::clone(&write.jobs);
    write.log.prepared_by(move || jobs.push_to_thread(Job::PrepareLog));
}

impl Threads {
    /// Starts the threads of `kind`, and the timekeeper, unless they run.
    #[cold]
    fn start(&self, engine: &Arc<Engine>, workers: usize, kind: ThreadKind) {
        let figures = engine.publishes().then_some(ThreadKind::Figures);
        for kind in [kind, ThreadKind::Clock].into_iter().chain(figures) {
            let team = Team::of(kind, workers);
            if !engine.write.jobs.workers.has(kind) && !self.start_team(engine, kind, &team) {
                tracing::warn!(
                    name = team.name,
                    "a background thread could not be started; commits, or other threads, do its work"
                );
            }
        }
    }

    /// Starts the threads of `kind`; it is enough if one of them starts. Returns false if none can be started, and that is new.
    fn start_team(&self, engine: &Arc<Engine>, kind: ThreadKind, team: &Team) -> bool {
        let jobs = &engine.write.jobs;
        let mut threads = self.threads.lock();
        // A close that has begun would not wait for the thread.
        if jobs.is_closed() || jobs.workers.has(kind) {
            return true;
        }
        let before = threads.len();
        for _ in 0..team.threads {
            match team.spawn(engine) {
                Ok(thread) => threads.push(thread),
                Err(_) if kind == ThreadKind::Figures => return true, // nothing waits for it
                Err(e) if threads.len() == before => {
                    return !jobs.workers.failed(kind, format!("start {}: {e}", team.name));
                }
                Err(_) => break,
            }
        }
        team.kinds.iter().for_each(|kind| jobs.workers.started(*kind));
        true
    }
}

/// The threads of a kind.
pub(super) struct Team {
    pub(super) name: &'static str,
    pub(super) threads: usize,
    pub(super) priority: Priority,
    /// The kinds whose jobs they take.
    kinds: &'static [ThreadKind],
    task: Task,
}

/// What a thread does.
#[derive(Clone, Copy)]
enum Task {
    Jobs(Takes),
    Time,
    Figures,
}

impl Team {
    pub(super) fn of(kind: ThreadKind, workers: usize) -> Self {
        let short = workers.div_ceil(2);
        let (name, threads, priority, kinds, task): (_, _, _, &[ThreadKind], _) = match kind {
            ThreadKind::Clock => ("tidesdb-clock", 1, Priority::Normal, &[ThreadKind::Clock], Task::Time),
            ThreadKind::Figures => {
                ("tidesdb-figures", 1, Priority::Normal, &[ThreadKind::Figures], Task::Figures)
            }
            ThreadKind::Log => {
                ("tidesdb-log", 1, Priority::Normal, &[ThreadKind::Log], Task::Jobs(Takes::Log))
            }
            ThreadKind::Uploads => {
                ("tidesdb-upload", 1, Priority::Normal, &[ThreadKind::Uploads], Task::Jobs(Takes::Uploads))
            }
            _ if workers == 1 => {
                let all = &[ThreadKind::Short, ThreadKind::Long, ThreadKind::Removals];
                ("tidesdb-worker", 1, Priority::Normal, all, Task::Jobs(Takes::Work))
            }
            ThreadKind::Removals => {
                ("tidesdb-remove", 1, Priority::Low, &[ThreadKind::Removals], Task::Jobs(Takes::Removals))
            }
            // One half of several workers takes only short jobs, merges of small families among them, so these never wait for a long
            // one. The other half takes the long jobs at low priority: it yields to the threads of the user. If merges fall behind, their
            // debt delays the writers.
            ThreadKind::Short => {
                ("tidesdb-flush", short, Priority::Normal, &[ThreadKind::Short], Task::Jobs(Takes::Short))
            }
            // One more than asked for, so that the merges of one family never use all threads for long jobs.
            ThreadKind::Long => (
                "tidesdb-compact",
                workers + 1 - short,
                Priority::Low,
                &[ThreadKind::Long],
                Task::Jobs(Takes::Long),
            ),
        };
        Self { name, threads, priority, kinds, task }
    }

    /// The jobs that they take.
    pub(super) fn takes(&self) -> Option<Takes> {
        match self.task {
            Task::Jobs(takes) => Some(takes),
            Task::Time | Task::Figures => None,
        }
    }

    /// Starts one of the threads.
    fn spawn(&self, engine: &Arc<Engine>) -> io::Result<JoinHandle> {
        let engine_of_thread = Arc::clone(engine);
        let body: Box<dyn FnOnce() + Send> = match self.task {
            Task::Jobs(takes) => Box::new(move || work(&engine_of_thread, takes)),
            Task::Time => Box::new(move || keep_time(&engine_of_thread)),
            Task::Figures => Box::new(move || publish_figures(&engine_of_thread)),
        };
        engine.write.env.threads.spawn(self.name, self.priority, body)
    }
}

fn keep_time(engine: &Arc<Engine>) {
    let (write, mut ticks) = (&engine.write, Ticks::default());
    engine.reads.begin_ticking();
    write.sync_due.set_ticking(true);
    loop {
        write.env.clock.wait(ticks.pause(engine), &|time| write.jobs.wait_for_close(time));
        if write.jobs.is_closed() {
            return;
        }
        ticks.tick(engine);
    }
}

fn publish_figures(engine: &Engine) {
    let jobs = &engine.write.jobs;
    let (mut seen, mut pause) = (jobs.wakes(), FIRST_FIGURES_AFTER);
    while !jobs.is_closed() {
        jobs.wait_for_wake(seen, pause); // not by the clock of a test: one that waits moves it
        if !jobs.is_closed() {
            seen = jobs.wakes();
            pause = engine.publish();
            tidesdb_sync::reclaim(); // the views that it looked at
        }
    }
}

fn work(engine: &Arc<Engine>, takes: Takes) {
    const PATIENCE: Duration = Duration::from_millis(500);
    let jobs = &engine.write.jobs;
    while !engine.write.jobs.is_closed() {
        engine.reads.refresh_clock(); // in case the timekeeper waits for a slow disk
        if engine.write.is_recovering() {
            let seen = engine.write.pacing.progress.current();
            engine.write.pacing.progress.wait_while(seen, Some(Ticks::PERIOD));
            continue;
        }
        if let Some(job) = jobs.pop(PATIENCE, takes) {
            let _ = run(engine, job); // failures are handled inside
            // An idle thread would keep the views that it replaced, and with them files that are no longer needed.
            tidesdb_sync::reclaim();
            finished(engine, job);
        }
    }
}
