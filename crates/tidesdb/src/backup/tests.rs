//! Descriptions of generations: damage, and numbers and rows that no correct writer stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidesdb_io::{Env, sim};

use super::contents::Contents;
use super::index::Index;
use super::names::INDEX;
use super::*;
use crate::store::{Body, MemoryStore};
use crate::types::FILE_NUMBER_MAX;

/// A store with one generation, which counted its rows.
fn sample() -> (Env, MemoryStore, Backups) {
    let (env, ..) = sim::env(7);
    let db = Db::options("/db").env(env.clone()).background_threads(0).open().unwrap();
    let values = db.create_family("values", crate::FamilyOptions::default()).unwrap();
    for n in 0..20u8 {
        db.put([n], [n; 30]).unwrap();
        values.put([n], [n; 3000]).unwrap();
    }
    let store = MemoryStore::default();
    let backups = Backups::with_env(Arc::new(store.clone()), env.clone());
    backups.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    (env, store, backups)
}

fn bytes_of(store: &MemoryStore, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    store
        .get(name, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
    bytes
}

/// Puts a description that says something else into the place of the first generation, with valid checksums.
fn replace(store: &MemoryStore, change: impl FnOnce(&mut Contents)) {
    let mut index = Index::decode(&bytes_of(store, INDEX)).unwrap();
    let entry = &mut index.generations[0];
    let id = entry.object_id();
    let mut contents = Contents::decode(&bytes_of(store, &id.to_string()), "it").unwrap();
    change(&mut contents);
    let bytes = contents.encode();
    *entry = contents.entry(id, &bytes);
    store.put(&id.to_string(), &Body::bytes(&bytes)).unwrap();
    store.put(INDEX, &Body::bytes(&index.encode())).unwrap();
}

/// All bytes are right, and rows are missing or wrong: only a count finds that.
#[test]
fn a_proof_compares_rows() {
    type Change = fn(&mut Contents);
    let changes: [(Change, &str); 5] = [
        (|contents| contents.counted.as_mut().unwrap().families[0].rows += 1, "has 20 rows"),
        (|contents| contents.counted.as_mut().unwrap().families[1].crc ^= 1, "with the checksum"),
        (|contents| contents.counted.as_mut().unwrap().families[0].name = "other".into(), "is missing"),
        (|contents| drop(contents.counted.as_mut().unwrap().families.pop()), "a family too many"),
        (|_| {}, ""),
    ];
    for (change, wanted) in changes {
        let (env, store, _) = sample();
        replace(&store, change);
        let backups = Backups::with_env(Arc::new(store.clone()), env.clone());
        let scratch = || Db::options("/scratch").env(env.clone()).background_threads(0);
        match backups.prove(1, scratch()) {
            Ok(made) => assert!(wanted.is_empty() && made.proof.unwrap().passed),
            Err(e) => {
                assert!(e.is_corruption() && !wanted.is_empty() && e.to_string().contains(wanted), "{e}");
                assert!(!backups.list().unwrap()[0].proof.unwrap().passed);
            }
        }
        let left = env.disk.open_dir(Path::new("/scratch"), false).unwrap();
        assert!(left.is_empty().unwrap());
    }
}

/// Valid checksums around a description that fits nothing.
#[test]
fn a_description_that_no_writer_stores_is_damage() {
    type Change = fn(&mut Contents);
    let changes: [Change; 8] = [
        |contents| drop(contents.files.pop()),
        |contents| contents.files.push(contents.files[0].clone()),
        |contents| contents.files[0].parts.clear(),
        |contents| contents.files[0].parts[0].bytes += 1,
        |contents| contents.files[0].parts[0].bytes = u64::MAX,
        |contents| contents.files[0].id.salt[0] ^= 1,
        |contents| contents.identity.wal_segment_bytes = 12345,
        |contents| contents.state.next_table = crate::types::TableId(0),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let (env, store, backups) = sample();
        let before = bytes_of(&store, INDEX);
        replace(&store, change);
        let report = backups.verify(1).unwrap();
        assert!(!report.is_ok(), "{n}");
        let refused = backups.restore(1, "/restored").unwrap_err();
        assert!(refused.is_corruption(), "{n}: {refused}");
        assert!(env.disk.open_dir(Path::new("/restored"), false).is_err(), "{n}");
        assert_ne!(bytes_of(&store, INDEX), before);
    }
}

#[test]
fn each_flip_and_each_cut_of_a_description_is_damage() {
    let (_env, store, _) = sample();
    let name = Index::decode(&bytes_of(&store, INDEX)).unwrap().generations[0].object_id().to_string();
    let bytes = bytes_of(&store, &name);
    assert!(Contents::decode(&bytes, &name).is_ok());
    for at in 0..bytes.len() {
        assert!(Contents::decode(&bytes[..at], &name).unwrap_err().is_corruption(), "cut at {at}");
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(Contents::decode(&flipped, &name).is_err(), "flip of byte {at}");
    }
}

/// A function of the progress can end a call that waits for its rate: it is called several times a second.
#[test]
fn a_call_that_waits_for_its_rate_shows_its_progress() {
    let (.., backups) = sample();
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    let options = RestoreOptions::default().bytes_per_second(50).progress(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    assert!(backups.verify_with(1, &options).unwrap().is_ok());
    let (calls, seconds) = (calls.load(Ordering::Relaxed), backups.list().unwrap()[0].bytes / 50);
    assert!(seconds > 20 && (5 * seconds..20 * seconds).contains(&calls), "{calls} calls in {seconds} s");
}

/// Regression test: the index that a repair had made could not be read, because it had no next number.
#[test]
fn a_repair_leaves_out_a_generation_after_which_there_is_no_number() {
    let (env, store, _) = sample();
    replace(&store, |contents| contents.number = FILE_NUMBER_MAX);
    store.delete(INDEX).unwrap();
    let backups = Backups::with_env(Arc::new(store), env.clone());
    assert!(backups.repair().unwrap().is_empty());
    let db = Db::options("/db").env(env).background_threads(0).open().unwrap();
    assert_eq!(backups.create(&db).unwrap().number, 1);
    assert_eq!(backups.list().unwrap().len(), 1);
}
