//! Calls that write files in the threads of their callers, or read all of them. A close waits for them.

use std::marker::PhantomData;
use std::thread::ThreadId;

use tidesdb_sync::{Condvar, Mutex};

use crate::{Error, Result};

/// The calls that run. After the close, another process may open the directory, remove files and use the same file numbers. So none may write
/// or remove a file then, nor take a file that is gone for damage.
#[derive(Debug, Default)]
pub struct Calls {
    inner: Mutex<Inner>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// The thread of each.
    running: Vec<ThreadId>,
    closed: bool,
}

impl Calls {
    /// Begins a call. A call may begin another one.
    ///
    /// # Errors
    /// `Closed` if a close has begun.
    pub fn begin(&self) -> Result<Call<'_>> {
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Error::Closed);
        }
        inner.running.push(std::thread::current().id());
        Ok(Call { of: self, here: PhantomData })
    }

    /// Refuses further calls, and waits for those of other threads: a callback of a call may drop the last handle of the database.
    pub fn close(&self) {
        let me = std::thread::current().id();
        let mut inner = self.inner.lock();
        inner.closed = true;
        while inner.running.iter().any(|thread| *thread != me) {
            self.ended.wait(&mut inner);
        }
    }
}

/// A call that runs, until this is dropped.
#[derive(Debug)]
pub struct Call<'a> {
    of: &'a Calls,
    /// Stays in the thread that began it.
    here: PhantomData<*const ()>,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let me = std::thread::current().id();
        let mut inner = self.of.inner.lock();
        if let Some(place) = inner.running.iter().position(|thread| *thread == me) {
            inner.running.swap_remove(place);
        }
        self.of.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_waits_for_calls_of_other_threads_and_refuses_new_ones() {
        let calls = Calls::default();
        let outer = calls.begin().unwrap();
        let inner = calls.begin().unwrap();
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| calls.close());
            while calls.begin().is_ok() {
                std::thread::yield_now();
            }
            drop(inner);
            assert!(!closer.is_finished());
            calls.close(); // by the thread of the call: does not wait for itself
            drop(outer);
            closer.join().unwrap();
        });
    }
}
