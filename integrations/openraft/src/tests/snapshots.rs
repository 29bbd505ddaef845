//! Snapshots from one node to another one.

use super::*;
use openraft::{AnyError, SnapshotMeta, StorageError};
use std::io::SeekFrom;

/// Returns a machine with so many rows.
async fn filled(node: &Node, rows: u64) -> Machine {
    let (_, mut machine) = node.open();
    let entries = (1..=rows).map(|index| put(index, &format!("key {index:06}"), &format!("{index:0300}")));
    machine.apply(entries).await.unwrap();
    machine
}

/// Returns the bytes of the current snapshot, and its description.
async fn sent(machine: &mut Machine) -> (Vec<u8>, SnapshotMeta<u64, openraft::BasicNode>) {
    let mut snapshot = machine.get_current_snapshot().await.unwrap().unwrap();
    let length = snapshot.snapshot.seek(SeekFrom::End(0)).await.unwrap();
    snapshot.snapshot.rewind().await.unwrap();
    let mut bytes = Vec::new();
    snapshot.snapshot.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes.len() as u64, length);
    (bytes, snapshot.meta)
}

async fn install(
    machine: &mut Machine,
    bytes: &[u8],
    meta: &SnapshotMeta<u64, openraft::BasicNode>,
) -> Result<(), StorageError<u64>> {
    let mut data = machine.begin_receiving_snapshot().await?;
    data.write_all(bytes)
        .await
        .map_err(|e| openraft::StorageIOError::write_snapshot(Some(meta.signature()), AnyError::new(&e)))?;
    machine.install_snapshot(meta, data).await
}

fn rows(machine: &Machine) -> Vec<(String, usize)> {
    let mut rows = machine.reader().rows("").unwrap();
    let mut out = Vec::new();
    while let Some((key, value)) = rows.next_row().unwrap() {
        out.push((String::from_utf8_lossy(key).into_owned(), value.len()));
    }
    out
}

/// Several blocks; the receiver had other rows, which are gone, and other groups, which stay.
#[tokio::test]
async fn a_snapshot_replaces_the_state_of_another_node() {
    let (source, target) = (Node::new(), Node::new());
    let mut from = filled(&source, 10_000).await;
    assert!(from.get_current_snapshot().await.unwrap().is_none());
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    // Changes after it are not in it.
    from.apply([put(10_001, "later", "x"), put(10_002, "key 000001", "")]).await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    assert!(bytes.len() > 3 << 20);

    let stores = target.stores();
    let (mut to, mut other) = (stores.state_machine(1, Kv), stores.state_machine(2, Kv));
    to.apply([put(1, "old", "x"), put(2, "key 000003", "x")]).await.unwrap();
    other.apply([put(1, "old", "x")]).await.unwrap();
    let open = to.reader().rows("").unwrap();
    install(&mut to, &bytes, &meta).await.unwrap();
    let expected: Vec<_> = (1..=10_000).map(|index| (format!("key {index:06}"), 300)).collect();
    assert_eq!(rows(&to), expected);
    assert_eq!(to.applied_state().await.unwrap(), (meta.last_log_id, meta.last_membership.clone()));
    assert_eq!(rows(&other), [("old".to_owned(), 1)]);
    drop(open);
    // The receiver can send it on, byte for byte.
    assert_eq!(sent(&mut to).await, (bytes, meta));
    assert_eq!(std::fs::read_dir(target.folder.path()).unwrap().count(), 0, "received files are removed");
    drop((to, other, stores));
    let (_, mut after) = target.after_power_failure().open();
    assert_eq!((rows(&after), after.applied_state().await.unwrap().0), (expected, Some(id(1, 10_000))));
}

/// As `Chunked` of openraft does it: seeks, reads pieces, and reads one again after a failure.
#[tokio::test]
async fn chunks_are_read_in_any_order() {
    let node = Node::new();
    let mut machine = filled(&node, 9_000).await;
    machine.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, _) = sent(&mut machine).await;
    let mut data = machine.get_current_snapshot().await.unwrap().unwrap().snapshot;
    for offset in [0, 5, 1 << 20, 1, (1 << 20) - 3, bytes.len() - 2, 2 << 20, bytes.len(), 700_000] {
        data.seek(SeekFrom::Start(offset as u64)).await.unwrap();
        let mut chunk = Vec::new();
        (&mut data).take(100_000).read_to_end(&mut chunk).await.unwrap();
        assert_eq!(chunk, bytes[offset..bytes.len().min(offset + 100_000)], "from {offset}");
    }
    assert!(data.seek(SeekFrom::End(-(bytes.len() as i64) - 1)).await.is_err());
    assert!(data.write_all(b"x").await.is_err());
}

#[tokio::test]
async fn a_damaged_snapshot_changes_nothing() {
    let (source, target) = (Node::new(), Node::new());
    let mut from = filled(&source, 5_000).await;
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    let (_, mut to) = target.open();
    to.apply([put(1, "old", "x")]).await.unwrap();
    let mut flipped = bytes.clone();
    flipped[1_500_000] ^= 1;
    let other = SnapshotMeta { last_log_id: Some(id(1, 4)), ..meta.clone() };
    for (bytes, meta, says) in [
        (&flipped[..], &meta, "wrong checksum"),
        (&bytes[..bytes.len() - 1], &meta, "ends too early"),
        (&[], &meta, "ends too early"),
        (b"no snapshot, but long enough", &meta, "not a snapshot"),
        (&bytes, &other, "another one"),
    ] {
        let error = install(&mut to, bytes, meta).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(rows(&to), [("old".to_owned(), 1)]);
        assert!(to.get_current_snapshot().await.unwrap().is_none());
    }
    install(&mut to, &bytes, &meta).await.unwrap();
    assert_eq!(rows(&to).len(), 5_000);
}

#[tokio::test]
async fn an_empty_state_is_a_snapshot_too() {
    let (source, target) = (Node::new(), Node::new());
    let (_, mut from) = source.open();
    from.apply([Entry { log_id: id(2, 3), payload: EntryPayload::Blank }]).await.unwrap();
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    let mut to = filled(&target, 10).await;
    install(&mut to, &bytes, &meta).await.unwrap();
    assert!(rows(&to).is_empty());
    assert_eq!(to.applied_state().await.unwrap().0, Some(id(2, 3)));
}

/// A kill or a power failure at any step of an install leaves the old state or the new one.
#[tokio::test]
async fn an_install_is_whole_or_not_at_all() {
    let source = Node::new();
    let mut from = filled(&source, 2_000).await;
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    let target = Node::new();
    let mut to = filled(&target, 20).await;
    to.reader().shared.db.sync().unwrap();
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let taken = Arc::clone(&images);
    target.disk.observe(sim::OpSet::ALL, move |_, disk| taken.lock().unwrap().push(disk));
    install(&mut to, &bytes, &meta).await.unwrap();
    target.disk.stop_observing();
    let images = std::mem::take(&mut *images.lock().unwrap());
    let (mut old, mut new) = (0, 0);
    for image in images {
        for kept in [Image::SYNCED, Image::EVERYTHING] {
            let (_, mut after) = Node::on(image.crash_image(&kept, 1)).open();
            match after.applied_state().await.unwrap().0.map(|applied| applied.index) {
                Some(20) if rows(&after).len() == 20 => old += 1,
                Some(2_000) if rows(&after).len() == 2_000 => new += 1,
                other => panic!("applied {other:?} with {} rows", rows(&after).len()),
            }
        }
    }
    assert!(old > 10 && new > 0, "{old} old and {new} new");
}

/// A received file that a killed process has left.
#[tokio::test]
async fn what_a_killed_process_has_received_is_removed() {
    let node = Node::new();
    let (left, other) = (node.folder.path().join("raft-1-0.received"), node.folder.path().join("notes"));
    std::fs::write(&left, "x").unwrap();
    std::fs::write(&other, "x").unwrap();
    drop(node.open());
    assert!(!left.exists() && other.exists());
}

/// openraft purges what a received snapshot covers at once, while the state machine still installs it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_waits_for_the_install_of_what_it_purges() {
    let (source, target) = (Node::new(), Node::new());
    let mut from = filled(&source, 2_000).await;
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    let (mut log, mut to) = target.open();
    log.blocking_append([put(1, "a", "b")]).await.unwrap();
    to.apply([put(1, "a", "b")]).await.unwrap();
    let mut data = to.begin_receiving_snapshot().await.unwrap();
    data.write_all(&bytes).await.unwrap();
    let mut other = log.clone();
    let purge = tokio::spawn(async move { other.purge(id(1, 2_000)).await });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!purge.is_finished());
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, None);
    // One that covers only what is applied does not wait.
    log.purge(id(1, 1)).await.unwrap();
    to.install_snapshot(&meta, data).await.unwrap();
    purge.await.unwrap().unwrap();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(id(1, 2_000)));
    // Nothing is received, and nothing will be applied.
    assert!(log.purge(id(1, 3_000)).await.is_err());
    // A snapshot that never arrives ends the wait.
    let data = to.begin_receiving_snapshot().await.unwrap();
    let mut other = log.clone();
    let purge = tokio::spawn(async move { other.purge(id(1, 4_000)).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    drop(data);
    assert!(purge.await.unwrap().is_err());
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, Some(id(1, 2_000)));
}

/// A purge after a failed install would be the end of the node: it could not start with the rest of the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_install_lets_no_purge_through() {
    let source = Node::new();
    let mut from = filled(&source, 2_000).await;
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    let mut flipped = bytes.clone();
    flipped[300_000] ^= 1;
    for applied in [0, 1] {
        let target = Node::new();
        let (mut log, mut to) = target.open();
        log.blocking_append([put(1, "a", "b")]).await.unwrap();
        to.apply((1..=applied).map(|index| put(index, "a", "b"))).await.unwrap();
        // The purge waits when the install fails.
        let mut data = to.begin_receiving_snapshot().await.unwrap();
        data.write_all(&flipped).await.unwrap();
        // Another received snapshot does not keep it waiting.
        let held = to.begin_receiving_snapshot().await.unwrap();
        let mut other = log.clone();
        let purge = tokio::spawn(async move { other.purge(id(1, 2_000)).await });
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        to.install_snapshot(&meta, data).await.unwrap_err();
        let error = purge.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("was not installed"), "{error}");
        drop(held);
        // It comes when the install has failed.
        assert!(install(&mut to, &flipped, &meta).await.is_err());
        assert!(log.purge(id(1, 2_000)).await.is_err());
        assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, None);
        assert_eq!(indices(&mut log).await, [1]);
        // The next one, of the same process, succeeds.
        install(&mut to, &bytes, &meta).await.unwrap();
        log.purge(id(1, 2_000)).await.unwrap();
    }
}

/// A full disk while a snapshot is installed.
#[tokio::test]
async fn an_install_on_a_full_disk_lets_no_purge_through() {
    let (source, target) = (Node::new(), Node::new());
    let mut from = filled(&source, 5_000).await;
    from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let (bytes, meta) = sent(&mut from).await;
    let (mut log, mut to) = target.open();
    log.blocking_append([put(1, "a", "b")]).await.unwrap();
    to.apply([put(1, "a", "b")]).await.unwrap();
    target.disk.limit_space(Some(300 << 10));
    install(&mut to, &bytes, &meta).await.unwrap_err();
    assert!(log.purge(id(1, 5_000)).await.is_err());
    let (mut log, mut machine) = target.after_power_failure().open();
    assert_eq!(log.get_log_state().await.unwrap().last_purged_log_id, None);
    assert!(machine.applied_state().await.unwrap().0.is_none_or(|applied| applied.index == 1));
}
