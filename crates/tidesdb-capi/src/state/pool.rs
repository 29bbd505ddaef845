//! A pool of freed transactions. They are parked in the thread that freed them, to be restarted without a lock,
//! an allocation or a shared counter.

use std::cell::RefCell;

use tidesdb::Isolation;

use super::{TRANSACTIONS, Transaction};
use crate::failure::Answer;
use crate::handle::{Handle, Parked, Table};

/// Maximum number of parked transactions per thread. More than a program has open at a time in one thread are
/// of no use.
const WAITING_MAX: usize = 8;

/// The parked transactions of one thread, each with the handle of its database.
#[derive(Default)]
struct Waiting(Vec<(Handle, Parked)>);

thread_local! {
    static WAITING: RefCell<Waiting> = RefCell::default();
}

impl Drop for Waiting {
    /// Removes the transactions at the end of the thread, because no other thread can find them.
    fn drop(&mut self) {
        for (_, parked) in self.0.drain(..) {
            give_up(parked);
        }
    }
}

fn give_up(parked: Parked) {
    if let Some((_, lent)) = TRANSACTIONS.wake(parked) {
        drop(TRANSACTIONS.end(lent));
    }
}

/// Begins a transaction of a database.
///
/// # Errors
/// `ERR_MEMORY`; those of [`super::database`] and of `Database::engine`.
pub(crate) fn begin(database: Handle, isolation: Isolation) -> Answer<Handle> {
    while let Some(parked) = take(database) {
        let Some((handle, mut transaction)) = TRANSACTIONS.wake(parked) else { continue };
        if transaction.is_usable() {
            transaction.restart(isolation);
            return Ok(handle);
        }
        drop(TRANSACTIONS.end(transaction));
    }
    let database = super::database(database)?;
    TRANSACTIONS.insert(Transaction::new(&database, isolation)?, database.handle())
}

fn take(database: Handle) -> Option<Parked> {
    let taken = WAITING.try_with(|waiting| {
        let mut waiting = waiting.try_borrow_mut().ok()?;
        let at = waiting.0.iter().rposition(|(of, _)| *of == database)?;
        Some(waiting.0.swap_remove(at).1)
    });
    taken.ok().flatten()
}

/// Ends a transaction; uncommitted writes are discarded. If a call uses it now, it ends with that call.
///
/// # Errors
/// `ERR_INVALID_ARGS`.
pub(crate) fn end(handle: Handle) -> Answer {
    let Some(mut transaction) = TRANSACTIONS.lend_to_end(handle)? else { return Ok(()) };
    if !transaction.is_usable() {
        drop(TRANSACTIONS.end(transaction));
        return Ok(());
    }
    transaction.rest();
    let database = transaction.database().handle();
    // Stays here if this thread is ending and has no list any more.
    let mut left = Some(Table::park(transaction));
    let _ = WAITING.try_with(|waiting| {
        if let Ok(mut waiting) = waiting.try_borrow_mut()
            && let Some(parked) = left.take()
        {
            left = (waiting.0.len() == WAITING_MAX).then(|| waiting.0.remove(0).1);
            waiting.0.push((database, parked));
        }
    });
    left.into_iter().for_each(give_up);
    Ok(())
}
