//! Commits through a committer: durable, in order, and each with its own result.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use tempfile::TempDir;
use tidesdb::{Db, Error, FamilyOptions, SyncMode, WriteBatch};

use crate::Committer;

fn open() -> (TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).sync(SyncMode::None).open().unwrap();
    (dir, db)
}

fn put(db: &Db, key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(db.default_family(), key, value).unwrap();
    batch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_commit_is_durable_when_it_returns_and_few_syncs_serve_many() {
    let (_dir, db) = open();
    let committer = Committer::new(&db).unwrap();
    let before = db.stats().syncs.count;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..500 {
        let (db, committer) = (db.clone(), committer.clone());
        tasks.spawn(async move {
            let seq = committer.commit(put(&db, &format!("{task:04}"), "v")).await.unwrap();
            assert!(seq < db.stats().durable_end, "{seq}");
            assert!(db.contains(format!("{task:04}")).unwrap());
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let syncs = db.stats().syncs.count - before;
    assert!((1..250).contains(&syncs), "{syncs} syncs for 500 commits");
}

#[tokio::test]
async fn commits_keep_the_order_of_the_calls() {
    let (_dir, db) = open();
    let committer = Committer::new(&db).unwrap();
    let commits: Vec<_> = (0..100).map(|n| committer.commit(put(&db, "k", &n.to_string()))).collect();
    let mut last = 0;
    for commit in commits {
        let seq = commit.await.unwrap();
        assert!(seq > last);
        last = seq;
    }
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"99"[..]));
}

/// A batch for a dropped family is refused, wherever it is in its group; the others of the group are durable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_fails_alone() {
    let (_dir, db) = open();
    let gone = db.create_family("gone", FamilyOptions::default()).unwrap();
    let committer = Arc::new(Committer::new(&db).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    let batches: Vec<WriteBatch> = (0..200)
        .map(|n| {
            let mut batch = put(&db, &n.to_string(), "v");
            if n % 5 == 4 {
                batch.put(&gone, "k", "v").unwrap();
            }
            batch
        })
        .collect();
    db.drop_family("gone").unwrap();
    for (n, batch) in batches.into_iter().enumerate() {
        let (db, committer) = (db.clone(), Arc::clone(&committer));
        tasks.spawn(async move {
            match committer.commit(batch).await {
                Ok(seq) => assert!(n % 5 != 4 && seq < db.stats().durable_end),
                Err(e) => assert!(n % 5 == 4 && matches!(e, Error::NotFound { .. }), "{n}: {e}"),
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(db.iter().unwrap().count(), 160);
}

/// The batches of tasks that wait count from their first operation on: more of them than the limit allows cannot be filled. What
/// `commit_with` fills needs its own memory only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_wait_need_no_memory_of_the_database() {
    const VALUE: &[u8] = &[7; 20_000];
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).sync(SyncMode::None).memory_limit(32 << 20).open().unwrap();
    let (committer, (reached, is_reached), (open, opened)) =
        (Committer::new(&db).unwrap(), sync_channel(1), sync_channel::<()>(1));
    // Holds the thread until all have handed over.
    let first = committer.commit_with(move |_| {
        reached.send(()).unwrap();
        opened.recv().unwrap();
        Ok(())
    });
    is_reached.recv().unwrap();
    let mut batches = Vec::new();
    let refused = (0..2000).find_map(|n| {
        let mut batch = WriteBatch::new();
        let put = batch.put(db.default_family(), format!("{n}"), VALUE);
        batches.push(batch);
        put.err()
    });
    assert!(matches!(refused, Some(Error::MemoryLimit { .. })), "{refused:?}");
    drop(batches);
    let commit = |n: u32| {
        let family = db.default_family().clone();
        committer.commit_with(move |batch| batch.put(&family, format!("{n:04}"), VALUE))
    };
    let commits: Vec<_> = (0..2000).map(commit).collect();
    let family = db.default_family().clone();
    let too_long = committer
        .commit_with(move |batch| (0..2000).try_for_each(|n| batch.put(&family, format!("long {n}"), VALUE)));
    let panics = committer.commit_with(|_| panic!("planted"));
    let last = commit(2000);
    open.send(()).unwrap();
    first.await.unwrap();
    for commit in commits {
        commit.await.unwrap();
    }
    let too_long = too_long.await;
    assert!(matches!(too_long, Err(Error::MemoryLimit { .. })), "{too_long:?}");
    let panics = panics.await;
    assert!(matches!(panics, Err(Error::Internal { .. })), "{panics:?}");
    assert!(last.await.unwrap() < db.stats().durable_end);
    assert_eq!(db.iter().unwrap().count(), 2001);
}

#[tokio::test]
async fn commits_after_a_close_fail_and_have_no_effect() {
    let (dir, db) = open();
    let committer = Committer::new(&db).unwrap();
    let batch = put(&db, "late", "v");
    committer.commit(put(&db, "early", "v")).await.unwrap();
    db.close().unwrap();
    assert!(matches!(committer.commit(batch).await, Err(Error::Closed)));
    let db = Db::open(dir.path()).unwrap();
    assert!(db.contains("early").unwrap() && !db.contains("late").unwrap());
}
