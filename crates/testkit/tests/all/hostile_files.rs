//! Files with valid checksums and hostile contents must cause an error or the right answer, in bounded time and memory.

#![expect(clippy::disallowed_methods, reason = "another thread watches for an open that hangs")]

use std::sync::mpsc;
use std::time::Duration;

use testkit::fuzz::base::{Base, options};
use testkit::fuzz::manifest::Manifest;
use tidesdb::internals::version::Change;

/// Opens a database with this manifest. Panics if the open panics or takes longer than 20 seconds.
fn open(manifest: Manifest) -> Result<(), tidesdb::Error> {
    let (tell, told) = mpsc::channel();
    let opening = std::thread::spawn(move || {
        let base = Base::build().unwrap();
        let (env, _disk) = base.with_manifest(&manifest).unwrap();
        tell.send(options(&env).open().map(|db| db.abandon())).unwrap();
    });
    match told.recv_timeout(Duration::from_secs(20)) {
        Ok(result) => {
            opening.join().unwrap();
            result
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the open panicked"),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the open did not return within 20 s"),
    }
}

fn refused(manifest: Manifest, case: &str) {
    let e = open(manifest).err().unwrap_or_else(|| panic!("{case}: opened"));
    assert!(e.is_corruption(), "{case}: {e}");
    assert!(e.to_string().contains(".manifest"), "{case}: {e}");
}

#[test]
fn the_unmodified_manifest_of_the_base_opens() {
    open(Base::build().unwrap().manifest).unwrap();
}

/// A segment length of zero in the manifest once caused a division by zero in the open. Every length outside the domain
/// of the option is damage.
#[test]
fn a_segment_length_outside_of_its_domain_is_damage() {
    let base = Base::build().unwrap().manifest;
    for segment_bytes in [0, 1, 8, 4096, (16 << 10) - 1, (16 << 10) + 8, (1 << 30) + 4096, 1 << 63, u64::MAX]
    {
        refused(Manifest { segment_bytes, ..base.clone() }, &format!("segments of {segment_bytes} bytes"));
    }
}

/// A last sequence number above the maximum in the manifest once made the sequencer wait forever. A number above the
/// maximum is damage in every edit.
#[test]
fn a_sequence_number_above_the_maximum_is_damage() {
    let base = Base::build().unwrap().manifest;
    let family = tidesdb::internals::types::FamilyId(1);
    for seq in [tidesdb::SEQ_MAX + 1, 1 << 61, 1 << 62, u64::MAX] {
        for change in [
            Change::LastSeq { seq },
            Change::DurableMark { seq },
            Change::FlushedTo { family, seq },
            Change::RemoveRange { family, seq },
        ] {
            let case = format!("{change:?}");
            let mut manifest = base.clone();
            manifest.push([change]);
            refused(manifest, &case);
        }
    }
}

/// Sequence numbers near the maximum, as after centuries: commits succeed while numbers are left, then they are
/// refused. The rows can still be read and moved to another database.
#[test]
fn the_last_sequence_numbers_are_used_and_then_refused() {
    const MARGIN: u64 = 1 << 32;
    let base = Base::build().unwrap();
    for (left, opens, puts) in
        [(1u64 << 48, true, true), (MARGIN + (1 << 18), true, true), (MARGIN, true, false), (0, false, false)]
    {
        let mut manifest = base.manifest.clone();
        manifest.push([Change::LastSeq { seq: tidesdb::SEQ_MAX - left }]);
        let (env, _disk) = base.with_manifest(&manifest).unwrap();
        let exhausted = |e: &tidesdb::Error| matches!(e, tidesdb::Error::Exhausted { .. });
        for _ in 0..3 {
            let db = match options(&env).open() {
                Err(e) => {
                    assert!(!opens && exhausted(&e), "{left}: {e}");
                    continue;
                }
                Ok(db) => db,
            };
            assert!(opens, "{left}: opened");
            let put = db.put(b"key at the end", b"value");
            assert!(if puts { put.is_ok() } else { put.as_ref().is_err_and(exhausted) }, "{left}: {put:?}");
            assert_eq!(db.get(b"key at the end").unwrap().is_some(), puts);
            if puts {
                let snapshot = db.snapshot();
                db.delete(b"key at the end").unwrap();
                assert!(snapshot.get(db.default_family(), b"key at the end").unwrap().is_some());
                assert!(!db.contains(b"key at the end").unwrap());
                db.flush().unwrap();
            }
            db.compact().unwrap();
            assert!(db.verify().unwrap().is_ok());
            db.close().unwrap();
        }
        // Even if writes are refused, the rows can be read.
        let db = options(&env).read_only(true).open().unwrap();
        assert!(db.iter().unwrap().all(|row| row.is_ok()));
    }
}

/// A manifest with tables newer than the flushed position of the family once made a flush write the log's range
/// tombstones twice, which was reported as an error of the engine. A manifest that contradicts itself is damage.
#[test]
fn a_manifest_that_contradicts_itself_is_damage() {
    let base = Base::build().unwrap().manifest;
    let family = tidesdb::internals::types::FamilyId(1);
    let range = tidesdb::internals::ranges::RangeTombstone::new(tidesdb::SEQ_MAX, None, None);
    let mut manifest = base.clone();
    manifest.push([Change::AddRange { family, range: std::sync::Arc::new(range) }]);
    refused(manifest, "a range tombstone with a future sequence number");
    let meta = tidesdb::internals::sst::TableMeta {
        id: tidesdb::internals::types::TableId(900),
        max_seq: tidesdb::SEQ_MAX,
        ..tidesdb::internals::sst::TableMeta::default()
    };
    let mut manifest = base.clone();
    manifest.push([Change::AddTable { family, level: 65, generation: 0, meta: std::sync::Arc::new(meta) }]);
    refused(manifest, "a table with a future sequence number in an invalid level");
}

/// A stray file with the largest possible number once used up the numbers of all later files. No large value could be
/// written any more, and the error blamed the engine.
#[test]
fn a_stray_file_uses_up_no_numbers() {
    let names = testkit::fuzz::targets::TARGETS.into_iter().find(|t| t.name == "names").unwrap();
    for name in ["4294967294.vlog", "72057594037927935.klog", "72057594037927935.manifest"] {
        (names.run)(name.as_bytes());
        let base = Base::build().unwrap();
        let disk = base.disk();
        disk.write_file(format!("{}/{name}", testkit::world::PATH), b"stray").unwrap();
        let (env, _disk, _clock) = tidesdb_io::sim::env_on(disk, 5);
        let db = options(&env).open().unwrap();
        db.put(b"large", &[7; 4000]).unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = options(&env).open().unwrap();
        assert_eq!(db.get(b"large").unwrap().as_deref(), Some(&[7; 4000][..]), "{name}");
    }
}
