//! Streamed values under crashes, damage and long histories.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidesdb::{Db, Error, Isolation, Snapshot, SyncMode};
use tidesdb_io::sim::{Image, OpSet, SimDisk};

use crate::common::{DB, Sim, contents, inner, noise, pairs};
use crate::large_values::streams::{CHUNK, check, content, open, shrinks_to, vlog_bytes, vlogs};

#[test]
fn a_crash_at_any_point_of_a_stream_leaves_all_or_nothing() {
    let sim = Sim::new();
    let db = open(&sim);
    let old = content(1, 2 * CHUNK);
    db.put_stream("film", &old[..]).unwrap();
    db.put("small", noise(1, 900)).unwrap();
    db.flush().unwrap();
    db.sync().unwrap();
    let committed = Arc::new(Mutex::new(0u32));
    let forks: Arc<Mutex<Vec<(String, SimDisk, u32)>>> = Arc::default();
    let (taken, told) = (Arc::clone(&forks), Arc::clone(&committed));
    sim.disk.observe(OpSet::CHANGES, move |op, fork| {
        let what = format!("before {:?} {} #{}", op.kind, op.path, op.index);
        taken.lock().unwrap().push((what, fork, *told.lock().unwrap()));
    });
    let new = content(2, 4 * CHUNK + 5);
    let mut writer = db.value_writer("film").unwrap().sync(SyncMode::Full);
    writer.write_all(&new).unwrap();
    writer.commit().unwrap();
    *committed.lock().unwrap() = 1;
    let mut dropped = db.value_writer("other").unwrap();
    dropped.write_all(&content(3, 3 * CHUNK)).unwrap();
    drop(dropped);
    db.flush().unwrap();
    sim.disk.stop_observing();
    let forks = std::mem::take(&mut *forks.lock().unwrap());
    assert!(forks.len() > 25, "{} crash points", forks.len());
    let (mut seen_old, mut seen_new) = (0, 0);
    for (n, (what, fork, committed)) in forks.iter().enumerate() {
        for image in [Image::EVERYTHING, Image::SYNCED, Image::STANDARD[n % 10]] {
            let left = Sim::on(fork.crash_image(&image, n as u64));
            let db = left.options().open().unwrap_or_else(|e| panic!("{what}, {image:?}: {e}"));
            let f = db.default_family();
            let found = f.value_reader("film").unwrap().unwrap().len();
            let is_new = found == new.len() as u64;
            assert!(is_new || *committed == 0, "{what}, {image:?}: a durable commit is lost");
            check(f, "film", if is_new { &new } else { &old });
            assert!(!f.contains("other").unwrap());
            check(f, "small", &noise(1, 900));
            assert!(db.verify().unwrap().is_ok(), "{what}");
            // At most a window of chunks lies in files that no manifest named, which are set aside until a clean session.
            shrinks_to(&left, &db, found + (4 << 20));
            db.close().unwrap();
            let db = open(&left);
            shrinks_to(&left, &db, found + (1 << 20));
            if is_new { seen_new += 1 } else { seen_old += 1 }
        }
    }
    assert!(seen_old > 10 && seen_new > 5, "{seen_old} {seen_new}");
}

#[test]
fn a_killed_stream_gives_its_space_back_at_the_next_open() {
    let sim = Sim::new();
    let db = open(&sim);
    let mut writer = db.value_writer("film").unwrap();
    writer.write_all(&noise(1, 20 * CHUNK)).unwrap();
    assert!(vlog_bytes(&sim) > 18 << 20);
    let killed = sim.killed();
    let db = open(&killed);
    assert!(contents(db.default_family()).is_empty());
    shrinks_to(&killed, &db, 4 << 20);
}

/// Offset and length of each record of a value log.
fn records(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut at = 40;
    let mut found = Vec::new();
    while at + 18 <= bytes.len() {
        let disk_len = u32::from_le_bytes(bytes[at + 12..at + 16].try_into().unwrap()) as usize;
        found.push((at, 18 + disk_len));
        at += 18 + disk_len;
    }
    found
}

#[test]
fn every_damaged_byte_is_detected_and_named() {
    let sim = Sim::new();
    let db = sim.options().open().unwrap();
    let bytes = content(1, 2 * CHUNK + 500);
    db.put_stream("film", &bytes[..]).unwrap();
    db.flush().unwrap();
    let log = vlogs(&sim)[0].0.clone();
    let path = format!("{DB}/{log}");
    let found = records(&sim.disk.read_file(&path).unwrap());
    assert_eq!(found.len(), 4, "three chunks and the index");
    let mut places: Vec<usize> = Vec::new();
    for &(at, len) in &found {
        places.extend(at..at + 18);
        places.extend((0..20).map(|n| at + 18 + n * (len - 19) / 19));
    }
    let (index_at, index_len) = found[3];
    places.extend(index_at..index_at + index_len);
    for (n, place) in places.into_iter().enumerate() {
        for change in [1u8 << (n % 8), 0xFF] {
            sim.disk.corrupt(&path, place as u64, |byte| byte ^ change).unwrap();
            let read = || -> tidesdb::Result<Vec<u8>> {
                let mut reader = db.value_reader("film")?.unwrap();
                let mut out = Vec::new();
                reader.read_to_end(&mut out).map_err(inner)?;
                Ok(out)
            };
            for error in [read().unwrap_err(), db.get("film").unwrap_err()] {
                let Error::Corrupt { file, offset, .. } = &error else { panic!("{place}: {error}") };
                let record = found.iter().rfind(|(at, _)| *at <= place).unwrap();
                assert_eq!(&**file, log.as_str());
                assert!((record.0 as u64..(record.0 + record.1) as u64).contains(offset), "{place}: {error}");
            }
            assert!(!db.verify().unwrap().is_ok());
            // Chunks that are not damaged can be read.
            if place >= found[1].0 && place < index_at {
                assert!(*db.get_part("film", ..1000).unwrap().unwrap() == bytes[..1000]);
            }
            sim.disk.corrupt(&path, place as u64, |byte| byte ^ change).unwrap();
        }
    }
    check(db.default_family(), "film", &bytes);
}

/// A random history of plain and chunked values, and what a model says about it.
struct History {
    sim: Sim,
    /// Open except during a reopen.
    db: Option<Db>,
    model: Model,
    snapshots: Vec<(Snapshot, Model)>,
    /// What the clock was advanced by.
    waited: Duration,
}

type Model = BTreeMap<String, Vec<u8>>;

impl History {
    fn new() -> Self {
        let sim = Sim::new();
        let db = open(&sim);
        Self { sim, db: Some(db), model: Model::new(), snapshots: Vec::new(), waited: Duration::ZERO }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn step(&mut self, draw: &[u8], seed: u64) {
        let key = format!("key{:02}", draw[1] % 12);
        let f = &self.db().default_family().clone();
        match draw[0] % 16 {
            0..=3 => {
                let bytes = content(seed, CHUNK + 1 + usize::from(draw[2]) * 6007);
                f.put_stream(&key, &bytes[..]).unwrap();
                self.model.insert(key, bytes);
            }
            4..=6 => {
                let bytes = content(seed, usize::from(draw[2]) * 40);
                f.put(&key, &bytes).unwrap();
                self.model.insert(key, bytes);
            }
            7 => self.transaction(
                &key,
                content(seed, 2 * CHUNK + usize::from(draw[2])),
                !draw[3].is_multiple_of(3),
            ),
            8 => {
                f.delete(&key).unwrap();
                self.model.remove(&key);
            }
            9 => {
                let end = format!("key{:02}", draw[2] % 12);
                f.delete_range(key.as_str()..end.as_str()).unwrap();
                self.model.retain(|k, _| !(key <= *k && *k < end));
            }
            10 => f.flush().unwrap(),
            11 => f.compact().unwrap(),
            12 => self.snapshots.push((self.db().snapshot(), self.model.clone())),
            13 => self.reopen(draw[2].is_multiple_of(2)),
            14 => f.value_writer(&key).unwrap().write_all(&noise(seed, 3 * CHUNK)).unwrap(),
            _ => self.expire(key, &content(seed, CHUNK + 77)),
        }
    }

    fn transaction(&mut self, key: &str, bytes: Vec<u8>, commits: bool) {
        let mut tx = self.db().begin(Isolation::Snapshot);
        tx.put_stream(self.db().default_family(), key, &bytes[..]).unwrap();
        tx.delete(self.db().default_family(), "key00").unwrap();
        if commits {
            tx.commit().unwrap();
            self.model.insert(key.to_owned(), bytes);
            self.model.remove("key00");
        }
    }

    fn reopen(&mut self, cleanly: bool) {
        self.snapshots.clear();
        let db = self.db.take().unwrap();
        if cleanly {
            db.close().unwrap();
        } else {
            db.abandon();
            self.sim = self.sim.killed();
            self.sim.clock.advance(self.waited); // a new machine has a new clock
        }
        self.db = Some(open(&self.sim));
    }

    fn expire(&mut self, key: String, bytes: &[u8]) {
        let mut writer = self.db().value_writer(&key).unwrap().ttl(Duration::from_secs(1));
        writer.write_all(bytes).unwrap();
        writer.commit().unwrap();
        self.sim.clock.advance(Duration::from_secs(2));
        self.waited += Duration::from_secs(2);
        self.model.remove(&key);
    }

    fn compare(&mut self) {
        compare(self.db(), &self.model);
        if let Some((snapshot, then)) = self.snapshots.pop() {
            let found = pairs(snapshot.iter(self.db().default_family()).unwrap());
            assert!(found.into_iter().eq(then.into_iter().map(|(k, v)| (k.into_bytes(), v))));
        }
    }
}

fn history(seed: u64, steps: usize) {
    let mut history = History::new();
    for (n, draw) in noise(seed, steps * 4).chunks(4).enumerate() {
        history.step(draw, seed * 1000 + n as u64);
        if n % 8 == 7 {
            history.compare();
        }
    }
    history.reopen(true); // files that a killed session set aside go after a clean one
    history.reopen(true);
    let (sim, db, model) = (&history.sim, history.db(), &history.model);
    compare(db, model);
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{report}");
    let live: u64 = model.values().map(|v| v.len() as u64).sum();
    shrinks_to(sim, db, live * 135 / 100 + (8 << 20));
    compare(db, model);
}

fn compare(db: &Db, model: &Model) {
    let found = contents(db.default_family());
    assert!(found.iter().map(|(k, _)| k.clone()).eq(model.keys().map(|k| k.clone().into_bytes())));
    for (key, value) in model {
        check(db.default_family(), key, value);
    }
}

#[test]
fn histories_of_plain_and_chunked_values_agree_with_a_model() {
    (1..=4).for_each(|seed| history(seed, 160));
}
