//! Threads whose starts a test sees, changes and refuses.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::{Env, JoinHandle, Priority, Threads};

/// What a thread runs.
pub type Body = Box<dyn FnOnce() + Send>;

type OnStart = Box<dyn Fn(&str, Body) -> io::Result<Body> + Send + Sync>;
type Helpers = Box<dyn Fn(usize) -> usize + Send + Sync>;

/// Threads of an environment, with a function of a test before each start.
///
/// ```
/// use std::io;
/// use tidesdb_io::sim::{self, Starts};
/// use tidesdb_io::{Priority, Threads};
///
/// let (env, _, _) = sim::env(1);
/// // A system that has no thread for merges.
/// let env = Starts::of(&env)
///     .on_start(|name, body| if name == "merge" { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(body) })
///     .processors(2)
///     .env();
/// let start = |name| env.threads.spawn(name, Priority::Normal, Box::new(|| {}));
/// assert!(start("merge").is_err() && start("flush")?.join());
/// assert_eq!(env.threads.parallelism(), 2);
/// # Ok::<(), io::Error>(())
/// ```
pub struct Starts {
    env: Env,
    on_start: OnStart,
    helpers: Helpers,
    processors: Option<usize>,
}

impl Starts {
    /// Starts the threads of `env` without a change.
    pub fn of(env: &Env) -> Self {
        Self {
            env: env.clone(),
            on_start: Box::new(|_, body| Ok(body)),
            helpers: Box::new(|n| n),
            processors: None,
        }
    }

    /// Calls `hook` with the name and the body of each thread before it starts. The thread runs the body that it returns; an error is that
    /// of the start. Threads of [`Threads::run_together`] are not asked for.
    pub fn on_start(mut self, hook: impl Fn(&str, Body) -> io::Result<Body> + Send + Sync + 'static) -> Self {
        self.on_start = Box::new(hook);
        self
    }

    /// Of the further threads that a call of [`Threads::run_together`] asks for, so many start as `started` says.
    pub fn helpers(mut self, started: impl Fn(usize) -> usize + Send + Sync + 'static) -> Self {
        self.helpers = Box::new(started);
        self
    }

    /// Sets how many threads can run at once.
    pub fn processors(mut self, n: usize) -> Self {
        self.processors = Some(n);
        self
    }

    /// Returns the environment with these threads.
    pub fn env(self) -> Env {
        let env = self.env.clone();
        Env { threads: Arc::new(self), ..env }
    }
}

impl fmt::Debug for Starts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Starts").field("threads", &self.env.threads).finish_non_exhaustive()
    }
}

impl Threads for Starts {
    fn spawn(&self, name: &str, priority: Priority, body: Body) -> io::Result<JoinHandle> {
        self.env.threads.spawn(name, priority, (self.on_start)(name, body)?)
    }

    fn parallelism(&self) -> usize {
        self.processors.unwrap_or_else(|| self.env.threads.parallelism())
    }

    fn run_together(&self, name: &str, others: usize, body: &(dyn Fn(usize) + Sync)) {
        self.env.threads.run_together(name, (self.helpers)(others), body);
    }
}
