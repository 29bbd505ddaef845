//! Calls that wait, on blocking threads; errors of the engine as errors of openraft.

use openraft::{AnyError, ErrorSubject, ErrorVerb, NodeId, StorageError, StorageIOError};
use tidesdb::{Error, Result};

/// Runs `work` on a blocking thread. A panic of it is an error.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(e) => Err(Error::Internal { what: format!("a call of the Raft stores ended early: {e}").into() }),
    }
}

/// Returns the error that openraft gets for `error`.
pub(crate) fn storage<N: NodeId>(
    subject: ErrorSubject<N>,
    verb: ErrorVerb,
    error: &Error,
) -> StorageError<N> {
    StorageIOError::new(subject, verb, AnyError::new(error)).into()
}
