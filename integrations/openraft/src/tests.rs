//! Tests of the promises: what a power failure leaves, what a failing device does, snapshots, and groups beside each other.

use crate::{Application, LogStore, Reader, SnapshotData, State, StateMachine, Stores};
use openraft::storage::{RaftLogStorage, RaftLogStorageExt, RaftStateMachine};
use openraft::{
    CommittedLeaderId, Entry, EntryPayload, LogId, Membership, RaftLogReader, RaftSnapshotBuilder, Vote,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use tempfile::TempDir;
use tidesdb::{Db, OpenOptions};
use tidesdb_io::sim::{self, Fault, Image, SimDisk, errno};
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

mod committed;
mod failures;
mod removal;
mod snapshots;

openraft::declare_raft_types!(Types: D = (String, String), R = Option<String>, SnapshotData = SnapshotData);

/// Sets values. Answers what was there before.
struct Kv;

impl Application<Types> for Kv {
    fn apply(
        &self,
        state: &mut State<'_>,
        (key, value): (String, String),
    ) -> tidesdb::Result<Option<String>> {
        assert!(value != "panic", "as the test asked for");
        if value == "slow" {
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        let before = state.get(&key)?.map(|value| String::from_utf8_lossy(&value).into_owned());
        if value.is_empty() {
            state.delete(key)?
        } else {
            state.put(key, value)?
        }
        Ok(before)
    }

    fn blank(&self) -> Option<String> {
        None
    }
}

type Machine = StateMachine<Types, Kv>;

fn id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 0), index)
}

fn put(index: u64, key: &str, value: &str) -> Entry<Types> {
    let payload = EntryPayload::Normal((key.to_owned(), value.to_owned()));
    Entry { log_id: id(1, index), payload }
}

/// A node on a simulated disk.
struct Node {
    disk: Arc<SimDisk>,
    options: OpenOptions,
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        Self::on(SimDisk::new(7))
    }

    fn on(disk: SimDisk) -> Self {
        let (env, disk, _) = sim::env_on(disk, 7);
        let options = Db::options("/db").env(env).background_threads(0);
        let folder = tempfile::tempdir().unwrap();
        Self { disk, options, folder }
    }

    fn stores(&self) -> Stores {
        let db = self.options.clone().open().unwrap();
        Stores::open(&db, self.folder.path()).unwrap()
    }

    fn open(&self) -> (LogStore<Types>, Machine) {
        let stores = self.stores();
        (stores.log_store(1), stores.state_machine(1, Kv))
    }

    /// Returns the node that a power failure leaves of the synced bytes only.
    fn after_power_failure(&self) -> Self {
        Self::on(self.disk.crash_image(&Image::SYNCED, 1))
    }
}

/// A process that was killed before its sync leaves rows that the next one reads: openraft takes them for durable.
#[tokio::test]
async fn what_a_start_finds_is_durable() {
    let node = Node::new();
    let stores = node.stores();
    let mut log = stores.log_store::<Types>(1);
    log.blocking_append([put(1, "a", "1")]).await.unwrap();
    let unsynced = |key: Vec<u8>, value: Vec<u8>| {
        let options = tidesdb::WriteOptions::default().sync(tidesdb::SyncMode::None);
        log.shared.log.put_with(key, value, &options).unwrap()
    };
    let group = crate::keys::Group(1);
    unsynced(
        group.note(crate::keys::VOTE).to_vec(),
        crate::codec::encode("a vote", &Vote::<u64>::new(2, 3)).unwrap(),
    );
    let mut started = stores.log_store::<Types>(1);
    assert_eq!(started.read_vote().await.unwrap(), Some(Vote::new(2, 3)));
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(after.read_vote().await.unwrap(), Some(Vote::new(2, 3)));

    let entry = crate::codec::encode("an entry", &put(2, "a", "2")).unwrap();
    unsynced(group.entry(2).to_vec(), entry);
    assert_eq!(started.get_log_state().await.unwrap().last_log_id, Some(id(1, 2)));
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(indices(&mut after).await, [1, 2]);
}

async fn indices(log: &mut LogStore<Types>) -> Vec<u64> {
    log.try_get_log_entries(..).await.unwrap().iter().map(|entry| entry.log_id.index).collect()
}

fn value(reader: &Reader, key: &str) -> Option<String> {
    reader.get(key).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
}

#[tokio::test]
async fn what_a_call_has_returned_survives_a_power_failure() {
    let node = Node::new();
    let (mut log, _) = node.open();
    log.save_vote(&Vote::new(3, 9)).await.unwrap();
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(after.read_vote().await.unwrap(), Some(Vote::new(3, 9)));

    log.blocking_append((1..=9).map(|index| put(index, "a", "b"))).await.unwrap();
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(indices(&mut after).await, Vec::from_iter(1..=9));

    log.save_committed(Some(id(1, 5))).await.unwrap();
    log.truncate(id(1, 8)).await.unwrap();
    log.purge(id(1, 2)).await.unwrap();
    let (mut after, _) = node.after_power_failure().open();
    assert_eq!(after.read_committed().await.unwrap(), Some(id(1, 5)));
    assert_eq!(indices(&mut after).await, Vec::from_iter(3..=7));
    let state = after.get_log_state().await.unwrap();
    assert_eq!((state.last_purged_log_id, state.last_log_id), (Some(id(1, 2)), Some(id(1, 7))));
}

/// The order of all calls is that of the log of the database.
#[tokio::test]
async fn a_durable_purge_has_the_applied_entries_before_it() {
    let node = Node::new();
    let (mut log, mut machine) = node.open();
    log.blocking_append([put(1, "a", "1"), put(2, "a", "2")]).await.unwrap();
    assert_eq!(machine.apply([put(1, "a", "1"), put(2, "a", "2")]).await.unwrap(), [None, Some("1".into())]);
    let (_, mut behind) = node.after_power_failure().open();
    assert_eq!(behind.applied_state().await.unwrap().0, None, "applied entries need no sync of their own");
    log.purge(id(1, 2)).await.unwrap();
    let (mut log, mut machine) = node.after_power_failure().open();
    assert!(indices(&mut log).await.is_empty());
    assert_eq!(machine.applied_state().await.unwrap().0, Some(id(1, 2)));
    assert_eq!(value(&machine.reader(), "a").as_deref(), Some("2"));
}

#[tokio::test]
async fn groups_of_a_database_do_not_meet() {
    let node = Node::new();
    let stores = node.stores();
    for group in [0, 1, 255, 256, u64::MAX] {
        let (mut log, mut machine) = (stores.log_store::<Types>(group), stores.state_machine(group, Kv));
        log.blocking_append([put(group % 7, "a", "x")]).await.unwrap();
        log.save_vote(&Vote::new(group % 11, 1)).await.unwrap();
        assert_eq!(machine.apply([put(1, "a", &group.to_string())]).await.unwrap(), [None]);
    }
    stores.log_store::<Types>(255).truncate(id(1, 0)).await.unwrap();
    stores.remove_group(1).await.unwrap();
    for (group, entries) in [(0, vec![0]), (1, vec![]), (255, vec![]), (256, vec![4]), (u64::MAX, vec![1])] {
        assert_eq!(indices(&mut stores.log_store(group)).await, entries, "group {group}");
        let there = value(&stores.state_machine::<Types, _>(group, Kv).reader(), "a");
        assert_eq!(there, (group != 1).then(|| group.to_string()));
        let vote = stores.log_store::<Types>(group).read_vote().await.unwrap();
        assert_eq!(vote, (group != 1).then(|| Vote::new(group % 11, 1)));
    }
}

/// Appends of many groups that wait at the same time share syncs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_of_many_groups_share_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db")).unwrap();
    let stores = Stores::open(&db, dir.path().join("receiving")).unwrap();
    let before = db.stats().syncs.count;
    let append = |group| {
        let mut log = stores.log_store::<Types>(group);
        tokio::spawn(async move {
            for index in 0..10 {
                log.blocking_append([put(index, "a", "b")]).await.unwrap();
            }
        })
    };
    for task in Vec::from_iter((0..200).map(append)) {
        task.await.unwrap();
    }
    let syncs = db.stats().syncs.count - before;
    assert!(syncs < 1000, "{syncs} syncs for 2000 appends");
}

#[tokio::test]
async fn a_long_append_is_several_commits_and_a_read_for_a_follower_ends() {
    let node = Node::new();
    let (mut log, mut machine) = node.open();
    let long = "x".repeat(1 << 20);
    log.blocking_append((1..=20).map(|index| put(index, "a", &long))).await.unwrap();
    let read = log.limited_get_log_entries(1, 21).await.unwrap();
    assert!((1..20).contains(&read.len()), "{} entries", read.len());
    assert_eq!(log.try_get_log_entries(1..=20).await.unwrap().len(), 20);
    assert_eq!(log.limited_get_log_entries(7, 8).await.unwrap().len(), 1);
    assert!(log.try_get_log_entries(9..9).await.unwrap().is_empty());
    let entries = (1..=20).map(|index| put(index, &format!("key {index}"), &long));
    assert_eq!(machine.apply(entries).await.unwrap().len(), 20);
    let mut rows = machine.reader().rows("key ").unwrap();
    let mut count = 0;
    while rows.next_row().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 20);
}

#[tokio::test]
async fn a_membership_is_kept_with_its_entry() {
    let node = Node::new();
    let (_, mut machine) = node.open();
    let membership = Membership::new(vec![BTreeSet::from([1, 2, 3])], None);
    let payload = EntryPayload::Membership(membership.clone());
    machine.apply([Entry { log_id: id(1, 1), payload }, put(2, "a", "b")]).await.unwrap();
    let (applied, stored) = machine.applied_state().await.unwrap();
    assert_eq!((applied, stored.log_id()), (Some(id(1, 2)), &Some(id(1, 1))));
    assert_eq!(stored.membership(), &membership);
}
