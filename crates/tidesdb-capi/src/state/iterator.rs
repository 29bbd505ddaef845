//! An iterator: a cursor of the engine over the data visible to its transaction.

use std::sync::Arc;

use tidesdb::Cursor;

use super::transaction::Shown;
use super::{CLOSED, ITERATORS, TRANSACTIONS};
use crate::abi::ERR_NOT_FOUND;
use crate::failure::{Answer, Failure, invalid, told};
use crate::gate::Gate;
use crate::handle::{Handle, Window};

const NOT_VALID: Failure = invalid!("the iterator is not on a key");
const AT_END: Failure = told!(ERR_NOT_FOUND, "the iterator has reached the end");

/// An iterator.
pub(crate) struct Iterator {
    cursor: Cursor,
    /// Shut when its database is closed: from then on it does not move, because the cursor would call comparators.
    calls: Arc<Gate>,
    /// Set until the first positioning: the transaction, the family, and the state of the transaction that the
    /// cursor shows.
    fresh: Option<(Handle, Handle, Shown)>,
}

/// Creates an iterator over a family as its transaction sees it, not positioned.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors.
pub(crate) fn iterate(transaction: Handle, family: Handle) -> Answer<Handle> {
    let mut lent = TRANSACTIONS.lend(transaction)?;
    let cursor = lent.cursor(family)?;
    let calls = Arc::clone(lent.database().calls());
    let iterator = Iterator { cursor, calls, fresh: Some((transaction, family, lent.shown())) };
    // A close shuts the iterators after it has waited for this transaction.
    ITERATORS.insert(iterator, lent.database().handle())
}

/// Runs `body` on an iterator, after moving its cursor by the steps that were taken in the window.
///
/// # Errors
/// Errors of [`crate::handle::Table::with`] and of `body`.
#[inline(always)]
pub(crate) fn on<R>(iter: Handle, body: impl FnOnce(&mut Iterator, &Window) -> Answer<R>) -> Answer<R> {
    let mut iter = ITERATORS.lend(iter)?;
    let window = iter.front();
    if let Some(left) = window.close() {
        let passed = iter.cursor.buffered().1.len().saturating_sub(left);
        iter.cursor.advance(passed);
    }
    let answer = body(&mut iter, window);
    iter.give_back();
    answer
}

/// Moves an iterator by `step`. Afterwards its window shows the buffered rows, or only the current row if
/// values are requested.
///
/// # Errors
/// Errors of [`on`].
#[inline(always)]
pub(crate) fn moved(iter: Handle, step: impl FnOnce(&mut Iterator) -> Answer) -> Answer {
    on(iter, |iter, window| {
        let asked = window.was_asked();
        if iter.calls.is_shut() {
            return Err(CLOSED);
        }
        step(iter)?;
        let (bytes, rows) = iter.cursor.buffered();
        if !rows.is_empty() {
            window.open(bytes, rows);
        } else if asked && let Ok((key, value)) = iter.cursor.entry() {
            // If the value cannot be read, the call that requests it reports the error.
            window.open_one(key, value);
        }
        Ok(())
    })
}

/// A target of a positioning call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    First,
    Last,
    /// The first key at or after this one.
    AtOrAfter(&'a [u8]),
    /// The last key at or before this one.
    AtOrBefore(&'a [u8]),
}

impl Iterator {
    /// Moves to a target.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND` if there is no such key; the engine's errors.
    #[inline(always)]
    pub(crate) fn go(&mut self, to: To<'_>) -> Answer {
        if self.fresh.is_some() {
            self.begin()?;
        }
        match to {
            To::First => self.cursor.seek_to_first(),
            To::Last => self.cursor.seek_to_last(),
            To::AtOrAfter(key) => self.cursor.seek(key),
            To::AtOrBefore(key) => self.cursor.seek_for_prev(key),
        }?;
        self.found()
    }

    /// Creates the cursor again if the transaction has changed: the iterator shows the writes made before its
    /// first positioning.
    #[cold]
    fn begin(&mut self) -> Answer {
        let Some((transaction, family, shown)) = self.fresh.take() else { return Ok(()) };
        // If the transaction has ended or restarted meanwhile, the cursor stays as it was.
        if let Ok(mut lent) = TRANSACTIONS.lend(transaction)
            && lent.has_changed_since(shown)
        {
            self.cursor = lent.cursor(family)?;
        }
        Ok(())
    }

    #[inline(always)]
    fn found(&self) -> Answer {
        if self.cursor.valid() { Ok(()) } else { Err(AT_END) }
    }

    #[inline(always)]
    fn check(&self) -> Answer {
        if self.valid() { Ok(()) } else { Err(NOT_VALID) }
    }

    /// Moves to the next key.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it is not on a key, `ERR_NOT_FOUND` at the end; the engine's errors.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Answer {
        self.check()?;
        self.cursor.next()?;
        self.found()
    }

    /// Moves to the previous key.
    ///
    /// # Errors
    /// Errors of [`Iterator::next`].
    pub(crate) fn prev(&mut self) -> Answer {
        self.check()?;
        self.cursor.prev()?;
        self.found()
    }

    /// Returns whether it is on a key.
    #[inline(always)]
    pub(crate) fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// Returns the current key.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it is not on a key.
    #[inline(always)]
    pub(crate) fn key(&self) -> Answer<&[u8]> {
        self.check()?;
        Ok(self.cursor.key())
    }

    /// Returns the current value, which stays valid until the iterator moves.
    ///
    /// # Errors
    /// Errors of [`Iterator::key`]; the engine's errors.
    #[inline(always)]
    pub(crate) fn value(&mut self) -> Answer<&[u8]> {
        Ok(self.entry()?.1)
    }

    /// Returns the current key and value.
    ///
    /// # Errors
    /// Errors of [`Iterator::value`].
    #[inline(always)]
    pub(crate) fn entry(&mut self) -> Answer<(&[u8], &[u8])> {
        self.check()?;
        Ok(self.cursor.entry()?)
    }
}
