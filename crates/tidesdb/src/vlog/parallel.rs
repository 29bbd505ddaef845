//! Several threads work on the chunks of one long value.

use std::sync::atomic::{AtomicBool, Ordering};

use tidesdb_sync::Mutex;

use super::{Lane, VlogSet};
use crate::Result;
use crate::order;

/// With fewer chunks the caller works alone: starting threads would take longer than they save.
const PARTS_MIN: usize = 6;
/// Maximum number of threads beside the caller.
const HELPERS_MAX: usize = 3;

impl VlogSet {
    /// Calls `work` with each of `parts` and returns the results in the order of `parts`. If the parts are many, threads help the
    /// caller: as many as there are other processors, at most three, unless they help another caller of this set. Each thread takes
    /// the next part when it is done with one. `work` gets the lane for its appends.
    ///
    /// # Errors
    /// Errors of `work`: no further part is begun.
    pub fn in_parallel<P: Send, R: Send>(
        &self,
        parts: impl ExactSizeIterator<Item = P> + Send,
        work: impl Fn(Lane, P) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let threads = self.threads.as_ref().filter(|_| parts.len() >= PARTS_MIN);
        let (parts, results) = (Mutex::<_>::new(parts.enumerate()), Mutex::<_>::new(Vec::new()));
        let take_parts = |thread: usize| {
            let lane = if thread == 0 { Lane::Main } else { Lane::Helpers };
            while let Some((number, part)) = next(&parts) {
                let result = work(lane, part);
                if result.is_err() {
                    parts.lock().by_ref().for_each(drop);
                }
                results.lock().push((number, result));
            }
        };
        match threads.filter(|_| !self.is_helped.swap(true, Ordering::Relaxed)) {
            Some(threads) => {
                let helpers = threads.parallelism().saturating_sub(1).min(HELPERS_MAX);
                let _helped = Helped(&self.is_helped);
                threads.run_together("tidesdb-value", helpers, &take_parts);
            }
            None => take_parts(0),
        }
        let mut results = std::mem::take(&mut *results.lock());
        order::sort_by_key(&mut results, |(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Held by the call that uses the helper threads of a set: one at a time. When it is dropped, also by a panic, the next call may use them.
struct Helped<'a>(&'a AtomicBool);

impl Drop for Helped<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Takes the next part. The lock is free again when this returns.
fn next<T>(parts: &Mutex<impl Iterator<Item = T>>) -> Option<T> {
    parts.lock().next()
}
