//! Threads that work on the pieces of one long value beside the thread that reads or writes it.
//!
//! The caller gives pieces to helpers while they have room, does the other pieces itself, and takes results as they come. A piece
//! carries its number, so results may come in any order. Each helper has at most [`PIECES_MAX`] pieces, which bounds the memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tidesdb_io::{JoinHandle, Priority, Threads};

use crate::{Error, Result};

/// Most helpers of one caller.
const HELPERS_MAX: usize = 3;
/// Most pieces that a helper has: one in work, and one so that it need not wait.
const PIECES_MAX: usize = 2;

/// Helpers in the process: at most one for each processor. A caller that gets none does all pieces itself.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The helpers of one caller. `G` is a piece, `D` what becomes of it. Dropping them waits until they have ended.
pub(crate) struct Helpers<G, D> {
    helpers: Vec<Helper<G, D>>,
    /// The counter that the helpers are counted in: [`RUNNING`], except in tests.
    running: &'static AtomicUsize,
}

/// One thread.
struct Helper<G, D> {
    given: Option<SyncSender<G>>,
    done: Receiver<D>,
    thread: Option<JoinHandle>,
    /// Pieces given whose results were not taken.
    open: usize,
}

impl<G: Send + 'static, D: Send + 'static> Helpers<G, D> {
    /// Starts threads that apply `work`: as many as can run beside the caller. There are none if the process has many already.
    pub(crate) fn start(threads: &dyn Threads, work: impl Fn(G) -> D + Clone + Send + 'static) -> Self {
        Self::start_counted(&RUNNING, threads, work)
    }

    /// Like [`Helpers::start`], with the number of helpers that run in `running`.
    fn start_counted(
        running: &'static AtomicUsize,
        threads: &dyn Threads,
        work: impl Fn(G) -> D + Clone + Send + 'static,
    ) -> Self {
        let processors = threads.parallelism();
        let wanted = processors.saturating_sub(1).min(HELPERS_MAX);
        let mut this = Self { helpers: Vec::new(), running };
        let count = |now: usize| (now + wanted <= processors).then_some(now + wanted);
        if running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok() {
            this.helpers.extend((0..wanted).map_while(|_| Helper::start(threads, work.clone())));
            running.fetch_sub(wanted - this.helpers.len(), Ordering::Relaxed); // the system may refuse threads
        }
        this
    }

    /// Returns whether a helper can take a piece.
    pub(crate) fn have_room(&self) -> bool {
        self.helpers.iter().any(|helper| helper.open < PIECES_MAX)
    }

    /// Gives `piece` to the helper with the fewest pieces; [`Helpers::have_room`] must be true.
    ///
    /// # Errors
    /// `Internal` if that helper has panicked.
    pub(crate) fn give(&mut self, piece: G) -> Result<()> {
        let helper = self.helpers.iter_mut().min_by_key(|helper| helper.open).ok_or_else(lost)?;
        let given = helper.given.as_ref().is_some_and(|given| given.send(piece).is_ok());
        helper.open += usize::from(given);
        if given { Ok(()) } else { Err(lost()) }
    }

    /// Returns a result that is ready.
    pub(crate) fn take(&mut self) -> Option<D> {
        self.helpers.iter_mut().filter(|helper| helper.open > 0).find_map(|helper| {
            let done = helper.done.try_recv().ok()?;
            helper.open -= 1;
            Some(done)
        })
    }

    /// Waits for a result; `None` once all were taken.
    ///
    /// # Errors
    /// `Internal` if a helper has panicked.
    pub(crate) fn wait(&mut self) -> Result<Option<D>> {
        let Some(helper) = self.helpers.iter_mut().find(|helper| helper.open > 0) else { return Ok(None) };
        helper.open -= 1;
        helper.done.recv().map(Some).map_err(|_| lost())
    }
}

fn lost() -> Error {
    Error::internal("a thread that helps with a long value ended")
}

impl<G, D> Drop for Helpers<G, D> {
    fn drop(&mut self) {
        let started = self.helpers.len();
        self.helpers.iter_mut().for_each(|helper| helper.given = None); // ends the threads
        self.helpers.clear();
        self.running.fetch_sub(started, Ordering::Relaxed);
    }
}

impl<G: Send + 'static, D: Send + 'static> Helper<G, D> {
    fn start(threads: &dyn Threads, work: impl Fn(G) -> D + Send + 'static) -> Option<Self> {
        let (given, pieces) = sync_channel::<G>(PIECES_MAX);
        let (tell, done) = sync_channel::<D>(PIECES_MAX);
        let body = move || {
            while let Ok(piece) = pieces.recv() {
                if tell.send(work(piece)).is_err() {
                    break;
                }
            }
        };
        let thread = threads.spawn("tidesdb-value", Priority::Normal, Box::new(body)).ok()?;
        Some(Self { given: Some(given), done, thread: Some(thread), open: 0 })
    }
}

impl<G, D> Drop for Helper<G, D> {
    fn drop(&mut self) {
        self.given = None;
        while self.done.recv().is_ok() {}
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use tidesdb_io::Env;

    use super::*;

    /// A system with four processors that starts at most `most` threads.
    #[derive(Debug)]
    struct Four {
        threads: Arc<dyn Threads>,
        most: usize,
        started: AtomicUsize,
    }

    impl Four {
        fn new(most: usize) -> Self {
            Self { threads: Env::real().threads, most, started: AtomicUsize::new(0) }
        }
    }

    impl Threads for Four {
        fn spawn(
            &self,
            name: &str,
            priority: Priority,
            body: Box<dyn FnOnce() + Send>,
        ) -> io::Result<JoinHandle> {
            match self.started.fetch_add(1, Ordering::Relaxed) < self.most {
                true => self.threads.spawn(name, priority, body),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        }

        fn parallelism(&self) -> usize {
            4
        }
    }

    #[test]
    fn callers_without_helpers_do_not_count() {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let start = |most| Helpers::start_counted(&COUNT, &Four::new(most), |n: u64| n);
        let first = start(10);
        assert_eq!((first.helpers.len(), COUNT.load(Ordering::Relaxed)), (3, 3));
        let others = [start(10), start(10)];
        assert!(others.iter().all(|other| !other.have_room()), "one helper per processor");
        assert_eq!(COUNT.load(Ordering::Relaxed), 3);
        drop(first);
        let next = start(10);
        assert_eq!((next.helpers.len(), COUNT.load(Ordering::Relaxed)), (3, 3));
        drop((others, next));
        let refused = start(1);
        assert_eq!((refused.helpers.len(), COUNT.load(Ordering::Relaxed)), (1, 1), "no more threads");
        drop(refused);
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_piece_comes_back_once() {
        let threads = Env::real().threads;
        let mut helpers = Helpers::start(&*threads, |n: u64| n * n);
        let (mut sum, mut own) = (0, 0);
        for n in 0..1000 {
            if helpers.have_room() {
                helpers.give(n).unwrap();
            } else {
                own += n * n;
            }
            sum += helpers.take().unwrap_or(0);
        }
        while let Some(done) = helpers.wait().unwrap() {
            sum += done;
        }
        assert_eq!(sum + own, (0..1000).map(|n| n * n).sum());
        assert!(helpers.take().is_none());
    }

    #[test]
    fn a_panic_of_a_helper_is_an_error() {
        let threads = Env::real().threads;
        let mut helpers = Helpers::start(&*threads, |n: u64| assert!(n < 3));
        let mut given = 0;
        let failed = (0..100).any(|n| {
            if !helpers.have_room() {
                return helpers.wait().is_err();
            }
            given += 1;
            helpers.give(n).is_err()
        });
        assert!(failed || given == 0, "given {given}");
    }
}
