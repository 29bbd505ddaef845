//! Groups that are removed, or started again in the same process.

use super::*;
use std::time::Duration;

/// `Raft::shutdown` does not wait for the state machine: it may still apply, and appends may wait in the committer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_group_stays_empty() {
    let node = Node::new();
    let stores = node.stores();
    let (mut log, mut machine) = (stores.log_store::<Types>(1), stores.state_machine(1, Kv));
    log.blocking_append([put(1, "a", "b")]).await.unwrap();
    let reader = machine.reader();
    let mut running = machine.clone();
    let applied = tokio::spawn(async move { running.apply([put(1, "a", "slow")]).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    stores.remove_group(1).await.unwrap();
    applied.await.unwrap().unwrap();
    assert_eq!(value(&reader, "a"), None, "the removal waits for what is applied");
    // Nothing of the old stores is written any more.
    let error = machine.apply([put(2, "a", "c")]).await.unwrap_err().to_string();
    assert!(error.contains("removed"), "{error}");
    assert!(log.blocking_append([put(2, "a", "c")]).await.is_err());
    assert!(log.save_vote(&Vote::new(1, 1)).await.is_err());
    // The number can be used again.
    let (mut log, mut machine) = (stores.log_store::<Types>(1), stores.state_machine(1, Kv));
    assert_eq!(log.read_vote().await.unwrap(), None);
    assert!(indices(&mut log).await.is_empty());
    assert_eq!(machine.applied_state().await.unwrap().0, None);
    log.blocking_append([put(1, "a", "new")]).await.unwrap();
    machine.apply([put(1, "a", "new")]).await.unwrap();
    assert_eq!(value(&reader, "a").as_deref(), Some("new"));
}

/// An append whose caller is gone is still in the queue of the committer.
#[tokio::test]
async fn appends_that_wait_are_removed_too() {
    let node = Node::new();
    let stores = node.stores();
    for _ in 0..50 {
        let mut log = stores.log_store::<Types>(1);
        let mut appended = Box::pin(log.blocking_append([put(1, "a", "b")]));
        std::future::poll_fn(|cx| {
            let _ = appended.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        drop(appended);
        stores.remove_group(1).await.unwrap();
        assert!(indices(&mut stores.log_store(1)).await.is_empty());
    }
}

/// `Raft::shutdown` does not wait for the state machine: what it still applies must not be applied again, nor come back later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_started_again_is_not_disturbed_by_its_past() {
    let node = Node::new();
    let stores = node.stores();
    let (mut old_log, mut old) = (stores.log_store::<Types>(1), stores.state_machine(1, Kv));
    old_log.blocking_append([put(1, "a", "slow"), put(2, "a", "old")]).await.unwrap();
    let mut running = old.clone();
    let applied = tokio::spawn(async move { running.apply([put(1, "a", "slow")]).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let received = old.begin_receiving_snapshot().await.unwrap();

    let (mut log, mut machine) = (stores.log_store::<Types>(1), stores.state_machine(1, Kv));
    assert_eq!(machine.applied_state().await.unwrap().0, Some(id(1, 1)), "what runs is waited for");
    applied.await.unwrap().unwrap();
    machine.apply([put(2, "a", "new"), put(3, "b", "new")]).await.unwrap();
    let error = old.apply([put(2, "a", "old")]).await.unwrap_err().to_string();
    assert!(error.contains("made again"), "{error}");
    assert!(old_log.blocking_append([put(2, "a", "old")]).await.is_err());
    assert!(old_log.save_vote(&Vote::new(1, 1)).await.is_err());
    assert_eq!(machine.applied_state().await.unwrap().0, Some(id(1, 3)));
    assert_eq!(value(&machine.reader(), "a").as_deref(), Some("new"));
    // Neither the failure nor the snapshot of the past concern what is purged now.
    log.purge(id(1, 2)).await.unwrap();
    drop(received);
    log.purge(id(1, 3)).await.unwrap();
}
