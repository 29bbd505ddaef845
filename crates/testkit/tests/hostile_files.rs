//! Files with correct checksums and malicious contents: an error or the correct answer, in bounded time and memory.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![expect(clippy::disallowed_methods, reason = "another thread detects an open that hangs")]

use std::sync::mpsc;
use std::time::Duration;

use testkit::fuzz::base::{Base, options};
use testkit::fuzz::manifest::Manifest;
use tidesdb::version::Change;

/// Returns the result of opening a database with this manifest. Panics if the open panics or takes longer than allowed.
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
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the open hangs"),
    }
}

fn refused(manifest: Manifest, case: &str) {
    let e = open(manifest).err().unwrap_or_else(|| panic!("{case}: opened"));
    assert!(e.is_corruption(), "{case}: {e}");
    assert!(e.to_string().contains(".manifest"), "{case}: {e}");
}

#[test]
fn the_forged_manifest_of_the_base_opens() {
    open(Base::build().unwrap().manifest).unwrap();
}

/// A segment length of zero in the manifest caused a division by zero in the open. Every length outside of the domain of the option is
/// damage.
#[test]
fn a_segment_length_outside_of_its_domain_is_damage() {
    let base = Base::build().unwrap().manifest;
    for segment_bytes in [0, 1, 8, 4096, (16 << 10) - 1, (16 << 10) + 8, (1 << 30) + 4096, 1 << 63, u64::MAX]
    {
        refused(Manifest { segment_bytes, ..base.clone() }, &format!("segments of {segment_bytes} bytes"));
    }
}

/// A last sequence number above the maximum in the manifest made the sequencer wait forever. A number above the maximum
/// is damage, in every edit that holds one.
#[test]
fn a_sequence_number_above_the_maximum_is_damage() {
    let base = Base::build().unwrap().manifest;
    let family = tidesdb::types::FamilyId(1);
    for seq in [tidesdb::types::SEQ_MAX + 1, 1 << 61, 1 << 62, u64::MAX] {
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

/// Sequence numbers near their end, as after centuries: commits succeed while there are numbers, then they fail, and the
/// rows can be read and copied to another database.
#[test]
fn commits_fail_once_sequence_numbers_are_used_up() {
    const MARGIN: u64 = 1 << 32;
    let base = Base::build().unwrap();
    for (left, opens, puts) in
        [(1u64 << 48, true, true), (MARGIN + (1 << 18), true, true), (MARGIN, true, false), (0, false, false)]
    {
        let mut manifest = base.manifest.clone();
        manifest.push([Change::LastSeq { seq: tidesdb::types::SEQ_MAX - left }]);
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
        // Writes fail, but the rows can be read.
        let db = options(&env).read_only(true).open().unwrap();
        assert!(db.iter().unwrap().all(|row| row.is_ok()));
    }
}

/// A manifest whose tables were newer than the flushed sequence number of the family made a flush write the log's range tombstones
/// twice, which was reported as an error of the engine. A manifest that contradicts itself is damage.
#[test]
fn a_manifest_that_contradicts_itself_is_damage() {
    let base = Base::build().unwrap().manifest;
    let family = tidesdb::types::FamilyId(1);
    let range = tidesdb::ranges::RangeTombstone { seq: tidesdb::types::SEQ_MAX, start: None, end: None };
    let mut manifest = base.clone();
    manifest.push([Change::AddRange { family, range: std::sync::Arc::new(range) }]);
    refused(manifest, "a range tombstone of the future");
    let meta = tidesdb::sst::TableMeta {
        id: tidesdb::types::TableId(900),
        max_seq: tidesdb::types::SEQ_MAX,
        ..tidesdb::sst::TableMeta::default()
    };
    let mut manifest = base.clone();
    manifest.push([Change::AddTable { family, level: 65, meta: std::sync::Arc::new(meta) }]);
    refused(manifest, "a table of the future in no level");
}

/// A stray file with the largest possible number used up all file numbers: nothing large could be written any
/// more, and the error blamed the engine.
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
