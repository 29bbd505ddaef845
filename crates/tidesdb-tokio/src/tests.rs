//! Tests of the committer.

mod commits;
mod failures;

use super::*;

/// A thread that ended with a request in its hands used to be reported as `Closed`, which means that nothing was done.
#[tokio::test]
async fn a_request_without_an_answer_is_unknown_and_one_that_was_not_handed_over_is_not() {
    let (requests, queue) = channel();
    let committer = Committer { worker: Arc::new(Worker { requests: Some(requests), thread: None }) };
    let taken = committer.commit(WriteBatch::new());
    drop(queue);
    assert!(matches!(taken.await, Err(Error::CommitUnknown { seq: 0, .. })));
    assert!(matches!(committer.commit(WriteBatch::new()).await, Err(Error::Closed)));
}
