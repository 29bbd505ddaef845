//! Runs the async calls of the client for threads that block.
//!
//! Connections live in a runtime of their own. A call is polled in the thread that makes it, which may be a thread of another runtime: so
//! no function of a runtime is used that panics there.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::{Builder, Runtime};

/// Threads that carry the bytes of all connections.
const THREADS: usize = 2;

/// The runtime. It may be dropped in any thread.
#[derive(Debug)]
pub(super) struct Blocking(Option<Runtime>);

impl Blocking {
    /// Starts the threads.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        Ok(Self(Some(builder.worker_threads(THREADS).thread_name("tidesdb-s3").enable_all().build()?)))
    }

    /// Waits for a future.
    pub(super) fn wait<F: Future>(&self, future: F) -> F::Output {
        let _inside = self.0.as_ref().map(Runtime::enter);
        // Not limited by the budget of a task that the thread may be running.
        let mut future = pin!(tokio::task::unconstrained(future));
        let signal = Arc::new(Signal::default());
        let waker = Waker::from(Arc::clone(&signal));
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => signal.wait(),
            }
        }
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background(); // waits for nothing
        }
    }
}

/// Set when a future may go on.
#[derive(Debug, Default)]
struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn wait(&self) {
        let mut is_set = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap_or_else(PoisonError::into_inner);
        }
        *is_set = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
