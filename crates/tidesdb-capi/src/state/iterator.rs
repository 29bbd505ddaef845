//! An iterator: a cursor of the engine over what its transaction sees.

use tidesdb::Cursor;

use super::transaction::Shown;
use super::{ITERATORS, TRANSACTIONS};
use crate::abi::ERR_NOT_FOUND;
use crate::failure::{Answer, Failure, invalid, told};
use crate::handle::{Handle, Window};

const NOT_VALID: Failure = invalid!("the iterator stands on no key");
const AT_END: Failure = told!(ERR_NOT_FOUND, "the iterator has come to an end");

/// An iterator.
pub(crate) struct Iterator {
    cursor: Cursor,
    /// Until it is positioned for the first time: its transaction, its family, and what its cursor shows of the transaction.
    fresh: Option<(Handle, Handle, Shown)>,
}

/// An iterator over a family as a transaction sees it, not positioned.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's.
pub(crate) fn iterate(transaction: Handle, family: Handle) -> Answer<Handle> {
    let mut lent = TRANSACTIONS.lend(transaction)?;
    let cursor = lent.cursor(family)?;
    let iterator = Iterator { cursor, fresh: Some((transaction, family, lent.shown())) };
    let handle = ITERATORS.insert(iterator, lent.database().handle())?;
    // Whoever closes the database may have looked before it was there.
    lent.database().check_open().inspect_err(|_| drop(ITERATORS.remove(handle)))?;
    Ok(handle)
}

/// Runs `body` on an iterator, which has gone where it was seen to go meanwhile.
///
/// # Errors
/// Those of [`crate::handle::Table::with`] and of `body`.
#[inline(always)]
pub(crate) fn on<R>(iter: Handle, body: impl FnOnce(&mut Iterator, &Window) -> Answer<R>) -> Answer<R> {
    let mut iter = ITERATORS.lend(iter)?;
    let window = iter.front();
    if let Some(left) = window.close() {
        let passed = iter.cursor.at_hand().1.len().saturating_sub(left);
        iter.cursor.advance(passed);
    }
    let answer = body(&mut iter, window);
    iter.give_back();
    answer
}

/// Has an iterator move by `step`; afterwards it shows the rows that it has at hand, or the one it has come to if values are asked for.
///
/// # Errors
/// As [`on`].
#[inline(always)]
pub(crate) fn moved(iter: Handle, step: impl FnOnce(&mut Iterator) -> Answer) -> Answer {
    on(iter, |iter, window| {
        let asked = window.was_asked();
        step(iter)?;
        let (bytes, rows) = iter.cursor.at_hand();
        if !rows.is_empty() {
            window.open(bytes, rows);
        } else if asked && let Ok((key, value)) = iter.cursor.entry() {
            // A value that cannot be read is met by who asks for it.
            window.open_one(key, value);
        }
        Ok(())
    })
}

/// Where to go.
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
    /// Moves to a place.
    ///
    /// # Errors
    /// `ERR_NOT_FOUND` if there is no key; the engine's.
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

    /// What it shows is what there is when it is positioned first, so writes since it was made belong to it.
    #[cold]
    fn begin(&mut self) -> Answer {
        let Some((transaction, family, shown)) = self.fresh.take() else { return Ok(()) };
        // A transaction that has ended meanwhile left the cursor as it was, and so did one that began anew.
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

    /// One key on.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands on none, `ERR_NOT_FOUND` if there is none; the engine's.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Answer {
        self.check()?;
        self.cursor.next()?;
        self.found()
    }

    /// One key back.
    ///
    /// # Errors
    /// As [`Iterator::next`].
    pub(crate) fn prev(&mut self) -> Answer {
        self.check()?;
        self.cursor.prev()?;
        self.found()
    }

    /// Whether it stands on a key.
    #[inline(always)]
    pub(crate) fn valid(&self) -> bool {
        self.cursor.valid()
    }

    /// The key it stands on.
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if it stands on none.
    #[inline(always)]
    pub(crate) fn key(&self) -> Answer<&[u8]> {
        self.check()?;
        Ok(self.cursor.key())
    }

    /// The value there; it stays until the iterator moves.
    ///
    /// # Errors
    /// As [`Iterator::key`]; the engine's.
    #[inline(always)]
    pub(crate) fn value(&mut self) -> Answer<&[u8]> {
        Ok(self.entry()?.1)
    }

    /// Key and value there.
    ///
    /// # Errors
    /// As [`Iterator::value`].
    #[inline(always)]
    pub(crate) fn entry(&mut self) -> Answer<(&[u8], &[u8])> {
        self.check()?;
        Ok(self.cursor.entry()?)
    }
}
