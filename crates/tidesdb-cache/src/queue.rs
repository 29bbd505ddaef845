//! [`Queue`]: the order in which entries on probation arrived, as a ring of hashes.
//!
//! The queue may lose hashes: when it overflows, and when a push races with a pop at the same position or with
//! a replacement of the queue. The hand of the table evicts entries whose hash was lost.

use crate::slot::zeroed_words;
use crate::sync::{HintU64, HintUsize, Ordering};

pub(crate) struct Queue {
    /// Hashes; 0 means empty.
    words: Box<[HintU64]>,
    head: HintUsize,
    tail: HintUsize,
}

impl Queue {
    /// Creates a queue of `len` hashes; `len` must be a power of two.
    pub(crate) fn new(len: usize) -> Self {
        Queue { words: zeroed_words(len), head: HintUsize::new(0), tail: HintUsize::new(0) }
    }

    pub(crate) fn len(&self) -> usize {
        self.words.len()
    }

    /// Appends `hash`; overwrites the oldest one if the queue is full.
    pub(crate) fn push(&self, hash: u64) {
        let at = self.tail.fetch_add(1, Ordering::Relaxed);
        self.words[at & (self.len() - 1)].store(hash, Ordering::Relaxed);
    }

    /// Removes and returns the oldest hash.
    pub(crate) fn pop(&self) -> Option<u64> {
        loop {
            let (head, tail) = (self.head.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed));
            if head >= tail {
                return None;
            }
            let oldest = head.max(tail.saturating_sub(self.len()));
            if self.head.compare_exchange(head, oldest + 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
                continue;
            }
            let hash = self.words[oldest & (self.len() - 1)].swap(0, Ordering::Relaxed);
            if hash != 0 {
                return Some(hash);
            }
        }
    }
}
