//! What a directory is tested with, and a database that is written through faults.

#![expect(clippy::disallowed_methods, reason = "the time of a load is a figure")]

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tidesdb::{Db, RemoteOptions, SyncMode};

use super::faults::often;
use super::proxy::Proxy;
use super::{given, new_prefix, new_store, noise, options};
use crate::s3;
use crate::tests::{calls, conditions};

#[test]
#[ignore = "needs a server"]
fn objects_are_stored_replaced_listed_and_deleted() {
    calls::each_call(&new_store());
}

#[test]
#[ignore = "needs a server"]
fn a_body_that_cannot_be_read_leaves_the_object_as_it_was() {
    calls::an_unreadable_body(&new_store());
}

#[test]
#[ignore = "needs a server"]
fn a_database_with_threads_comes_back_after_its_folder_is_removed() {
    let (endpoint, prefix) = (given("TIDESDB_S3_ENDPOINT"), new_prefix());
    calls::comes_back(&|| Arc::new(s3(options(&endpoint, &prefix)).unwrap()));
}

#[test]
#[ignore = "needs a server"]
fn a_put_with_a_condition_changes_nothing_unless_it_holds() {
    conditions::conditional_puts(&new_store());
}

#[test]
#[ignore = "needs a server"]
fn a_range_is_exact() {
    conditions::ranges(&new_store());
}

#[test]
#[ignore = "needs a server"]
fn backups_are_kept() {
    conditions::backups(Arc::new(new_store()));
}

/// Loads `TIDESDB_S3_MIB` in the object store mode, one request in fifty with a fault, and restores it from the store alone.
#[test]
#[ignore = "needs a server, and minutes"]
fn a_load_through_faults_comes_back() {
    const VALUE: usize = 4096;
    let mib: u64 = given("TIDESDB_S3_MIB").parse().unwrap();
    let proxy = Proxy::new(|request| often(request, 3, 50));
    let prefix = new_prefix();
    let temp = tempfile::tempdir().unwrap();
    let open = |folder: &str| {
        let store = s3(options(&proxy.endpoint(), &prefix)).unwrap();
        let remote = RemoteOptions::new(Arc::new(store));
        Db::options(temp.path().join(folder)).sync(SyncMode::None).remote(remote).open().unwrap()
    };
    let count = mib * (1 << 20) / VALUE as u64;
    let begin = Instant::now();
    let db = open("here");
    for n in 0..count {
        db.put(n.to_le_bytes(), noise(n, VALUE)).unwrap();
    }
    db.close().unwrap();
    let loaded = begin.elapsed();
    let seen = proxy.seen();
    let figure = |what: &str, time: std::time::Duration| {
        let [puts, gets, others, faults, up, down] =
            [&seen.puts, &seen.gets, &seen.others, &seen.faults, &seen.bytes_up, &seen.bytes_down]
                .map(|counter| counter.swap(0, Ordering::Relaxed));
        println!(
            "{what} {mib} MiB: {:.0} s; {puts} PUT and POST, {gets} GET, {others} others, {faults} with faults; \
             {} MiB up, {} MiB down",
            time.as_secs_f64(),
            up >> 20,
            down >> 20
        );
    };
    figure("loaded", loaded);
    std::fs::remove_dir_all(temp.path().join("here")).unwrap();
    let begin = Instant::now();
    let db = open("there");
    for n in 0..count {
        assert!(db.get(n.to_le_bytes()).unwrap().is_some_and(|value| *value == noise(n, VALUE)[..]), "{n}");
    }
    db.close().unwrap();
    figure("restored and read", begin.elapsed());
}
