//! Devices and applications that fail: openraft gets an error, and nothing panics.

use super::*;

#[tokio::test]
async fn a_failing_sync_is_an_error_of_openraft() {
    let node = Node::new();
    let (mut log, mut machine) = node.open();
    log.blocking_append([put(1, "a", "1")]).await.unwrap();
    node.disk.inject(Fault::errno(errno::EIO).on(sim::OpSet::SYNCS).forever());
    let error = log.blocking_append([put(2, "a", "2")]).await.unwrap_err();
    assert!(error.to_string().contains("Write Logs"), "{error}");
    // The database takes nothing more, and still reads.
    assert!(log.save_vote(&Vote::new(1, 1)).await.is_err());
    log.save_committed(Some(id(1, 1))).await.unwrap(); // the state machine waits for it
    assert!(log.purge(id(1, 1)).await.is_err() && log.truncate(id(1, 1)).await.is_err());
    assert!(machine.apply([put(1, "a", "1")]).await.is_err());
    assert_eq!(log.try_get_log_entries(1..2).await.unwrap().len(), 1);
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(indices(&mut after).await[..1], [1]);
}

#[tokio::test]
async fn a_full_disk_is_an_error_and_no_entry_is_lost() {
    let node = Node::new();
    let (mut log, _) = node.open();
    log.blocking_append([put(1, "a", "1")]).await.unwrap();
    node.disk.limit_space(Some(0));
    let long = "x".repeat(8 << 20);
    let error = log.blocking_append([put(2, "a", &long)]).await.unwrap_err();
    assert!(error.to_string().contains("Write Logs"), "{error}");
    assert_eq!(indices(&mut log).await, [1]);
}

/// A long append is several commits. If one of them is refused, none of those behind it may pass: openraft does not look for holes.
#[tokio::test]
async fn an_append_that_fails_in_the_middle_leaves_no_hole() {
    for first in [vec![], vec![put(2, "a", &"y".repeat(4 << 20))]] {
        let node = Node::new();
        let (mut log, _) = node.open();
        log.blocking_append([put(1, "a", "1")]).await.unwrap();
        let before = first.len() as u64;
        // Room for the part before, and none for the next one; a short commit passes.
        node.disk.limit_space(Some(before * (24 << 20)));
        let refused = put(2 + before, "a", &"x".repeat(64 << 20));
        let entries = first.into_iter().chain([refused, put(3 + before, "a", "z")]);
        assert!(log.blocking_append(entries).await.is_err());
        let kept = indices(&mut log).await;
        assert_eq!(kept, Vec::from_iter(1..=kept.len() as u64));
        assert!(kept.len() as u64 <= 1 + before, "{kept:?}");
        // The short one alone is not refused: there would have been a hole.
        log.blocking_append([put(2 + before, "a", "z")]).await.unwrap();
    }
}

/// The state machine has failed before a snapshot that openraft has handed over: the worker drops it.
#[tokio::test]
async fn nothing_is_purged_after_the_state_machine_has_failed() {
    let node = Node::new();
    let (mut log, mut machine) = node.open();
    log.blocking_append([put(1, "a", "1")]).await.unwrap();
    machine.apply([put(1, "a", "panic")]).await.unwrap_err();
    assert!(log.purge(id(1, 9)).await.is_err());
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, None);
}

#[tokio::test]
async fn a_key_of_the_maximum_length_is_taken() {
    let node = Node::new();
    let (_, mut machine) = node.open();
    let longest = "k".repeat(crate::KEY_BYTES_MAX);
    machine.apply([put(1, &longest, "1")]).await.unwrap();
    assert_eq!(value(&machine.reader(), &longest).as_deref(), Some("1"));
    let error = machine.apply([put(2, &(longest + "k"), "2")]).await.unwrap_err();
    assert!(error.to_string().contains("key"), "{error}");
}

#[tokio::test]
async fn a_panic_of_the_application_is_an_error_and_changes_nothing() {
    let node = Node::new();
    let (_, mut machine) = node.open();
    machine.apply([put(1, "a", "1")]).await.unwrap();
    let error = machine.apply([put(2, "a", "2"), put(3, "a", "panic")]).await.unwrap_err();
    assert!(error.to_string().contains("ended early"), "{error}");
    assert_eq!(machine.applied_state().await.unwrap().0, Some(id(1, 1)));
    assert_eq!(value(&machine.reader(), "a").as_deref(), Some("1"));
    machine.apply([put(2, "a", "2")]).await.unwrap();
}

/// The database is closed while the stores are in use.
#[tokio::test]
async fn calls_after_a_close_are_errors() {
    let node = Node::new();
    let (mut log, mut machine) = node.open();
    log.shared.db.clone().close().unwrap();
    assert!(log.blocking_append([put(1, "a", "1")]).await.is_err());
    assert!(log.get_log_state().await.is_err() && log.read_vote().await.is_err());
    assert!(machine.apply([put(1, "a", "1")]).await.is_err() && machine.applied_state().await.is_err());
}

/// A stored value of another program, or of a later version.
#[tokio::test]
async fn values_that_cannot_be_decoded_are_errors() {
    let node = Node::new();
    let (mut log, _) = node.open();
    let family = log.shared.db.family(crate::LOG_FAMILY).unwrap();
    for (bytes, says) in [(&b"\x01"[..], "cannot be decoded"), (b"\x02abc", "version"), (b"", "is empty")] {
        family.put(crate::keys::Group(1).entry(4), bytes).unwrap();
        let error = log.try_get_log_entries(..).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}
