//! Damage is found, reported with its file, and never answered with "not found".

use tidesdb::{Db, Error};
use tidesdb_io::sim::{Fault, OpKind, errno};

use crate::common::{Sim, contents, fill, noise};

/// Creates a closed database with one table and one value log.
fn closed() -> Sim {
    let sim = Sim::new();
    let db = sim.open();
    fill(db.default_family(), 200, b"a small value");
    for i in 0..20u8 {
        db.put(&[i], &noise(u64::from(i), 1000)).unwrap();
    }
    db.close().unwrap(); // flushes: one table, and no obsolete table
    sim
}

fn file(sim: &Sim, extension: &str) -> (String, u64) {
    let name = sim.disk.file_names("/db").unwrap().into_iter().find(|n| n.ends_with(extension)).unwrap();
    let len = sim.disk.read_file(format!("/db/{name}")).unwrap().len() as u64;
    (name, len)
}

/// Opens and verifies a database with a damaged file: returns the error of the open, or the reported damage.
fn damage_found(sim: &Sim) -> Vec<Error> {
    match sim.options().open() {
        Err(e) => vec![e],
        Ok(db) => {
            let report = db.verify().unwrap();
            assert_eq!(report.is_ok(), report.damage.is_empty());
            db.abandon();
            report.damage
        }
    }
}

#[test]
fn an_undamaged_database_verifies() {
    let db = closed().open();
    let report = db.verify().unwrap();
    assert!(report.is_ok(), "{report}");
    assert_eq!((report.tables, report.vlogs, report.entries, report.pointers), (1, 1, 220, 20));
    assert!(report.to_string().contains("all good"));
}

/// A database of few commits was "all good" with 0 tables, as if it were empty.
#[test]
fn a_verify_tells_of_entries_that_it_did_not_check() {
    let db = Sim::new().open();
    (0..3u8).for_each(|i| assert!(db.put([i], b"v").is_ok()));
    let report = db.verify().unwrap();
    assert_eq!((report.entries, report.unflushed), (0, 3));
    assert!(report.to_string().contains("all good\n  3 entries are in no table yet"), "{report}");
    db.flush().unwrap();
    let report = db.verify().unwrap();
    assert_eq!((report.entries, report.unflushed), (3, 0));
    assert!(report.to_string().ends_with("all good"), "{report}");
}

#[test]
fn an_empty_database_verifies() {
    let report = Sim::new().open().verify().unwrap();
    assert!(report.is_ok() && report.tables == 0 && report.entries == 0);
}

#[test]
fn each_flipped_bit_of_a_table_is_found() {
    let whole = closed();
    let (name, len) = file(&whole, ".klog");
    for at in 0..len {
        let sim = whole.killed();
        sim.disk.flip_bit(format!("/db/{name}"), at * 8 + at % 8).unwrap();
        let found = damage_found(&sim);
        let named =
            |e: &Error| matches!(e, Error::Corrupt { file, offset, .. } if **file == *name && *offset <= len);
        assert!(found.iter().any(named), "byte {at} of {len}: {found:?}");
    }
}

#[test]
fn each_damaged_byte_of_a_value_is_found() {
    let whole = closed();
    let (name, len) = file(&whole, ".vlog");
    for at in (0..len).step_by(37) {
        let sim = whole.killed();
        sim.disk.flip_bit(format!("/db/{name}"), at * 8 + at % 8).unwrap();
        let found = damage_found(&sim);
        let named = |e: &Error| matches!(e, Error::Corrupt { file, .. } if **file == *name);
        assert!(found.iter().any(named), "byte {at} of {len}: {found:?}");
    }
}

#[test]
fn files_that_are_missing_short_or_empty_are_found() {
    for extension in [".klog", ".vlog", ".manifest", "CURRENT"] {
        for cut in ["gone", "empty", "half", "minus one"] {
            let sim = closed();
            let (name, len) = file(&sim, extension);
            let path = format!("/db/{name}");
            match cut {
                "gone" => sim.disk.remove_file(&path).unwrap(),
                "empty" => sim.disk.truncate_file(&path, 0).unwrap(),
                "half" => sim.disk.truncate_file(&path, len / 2).unwrap(),
                _ => sim.disk.truncate_file(&path, len - 1).unwrap(),
            }
            assert!(!damage_found(&sim).is_empty(), "{extension} {cut}");
        }
    }
}

#[test]
fn a_report_names_file_and_offset() {
    let sim = closed();
    let (name, len) = file(&sim, ".vlog");
    sim.disk.flip_bit(format!("/db/{name}"), (len - 100) * 8).unwrap();
    let db = sim.open();
    let text = db.verify().unwrap().to_string();
    assert!(text.contains(&name) && text.contains("at byte"), "{text}");
}

/// Reads all keys of a database whose values and table blocks in the middle are damaged.
fn read_everything(db: &Db) -> (usize, Vec<Error>) {
    let (mut found, mut errors) = (0, Vec::new());
    let keys = (0..20u8).map(|i| vec![i]).chain((0..200).map(|i| format!("key{i:06}").into_bytes()));
    for key in keys {
        match db.get(&key) {
            Ok(Some(_)) => found += 1,
            Ok(None) => panic!("a damaged key was answered with \"not found\""),
            Err(e) => errors.push(e),
        }
    }
    (found, errors)
}

#[test]
fn only_reads_of_damaged_data_fail() {
    for extension in [".klog", ".vlog"] {
        let sim = closed();
        let (name, len) = file(&sim, extension);
        // In a data block, and in a value.
        let at = if extension == ".klog" { 20 } else { len - 100 };
        let db = sim.options().cache_bytes(0).open().unwrap();
        sim.disk.flip_bit(format!("/db/{name}"), at * 8).unwrap();
        let (found, errors) = read_everything(&db);
        assert!(!errors.is_empty() && found + errors.len() == 220, "{extension}: {found}");
        for e in &errors {
            assert!(e.is_corruption() && e.to_string().contains(&name), "{e}");
        }
        let scanned: Result<Vec<_>, _> = db.iter().unwrap().collect();
        assert!(scanned.unwrap_err().is_corruption());
        db.put(b"new", b"v").unwrap();
        assert!(db.contains(b"new").unwrap(), "writes continue");
    }
}

#[test]
fn compaction_fails_on_damage_and_keeps_its_inputs() {
    let sim = closed();
    let (name, _) = file(&sim, ".klog");
    let db = sim.options().cache_bytes(0).open().unwrap();
    sim.disk.flip_bit(format!("/db/{name}"), 20 * 8).unwrap();
    db.put(b"key000000", b"new").unwrap();
    let e = db.compact().unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains(&name), "{e}");
    assert!(sim.disk.file_names("/db").unwrap().contains(&name), "the input is kept");
    assert!(!db.verify().unwrap().is_ok());
    assert_eq!(db.get(b"key000000").unwrap().unwrap(), b"new");
}

#[test]
fn failed_reads_are_errors_and_can_be_repeated() {
    let sim = closed();
    let db = sim.options().cache_bytes(0).open().unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).forever());
    let (found, errors) = read_everything(&db);
    assert_eq!((found, errors.len()), (0, 220));
    for e in errors {
        assert!(matches!(&e, Error::Io { op: "read", file, .. } if file.ends_with("log")), "{e}");
    }
    assert!(!db.verify().unwrap().is_ok());
    sim.disk.clear_faults();
    assert_eq!(read_everything(&db).0, 220, "a failed read was cached");
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn an_iterator_ends_at_a_failed_read_and_skips_nothing() {
    let sim = closed();
    let db = sim.options().cache_bytes(0).open().unwrap();
    let all = contents(db.default_family());
    let mut failures = 0;
    for skip in 0..30 {
        let fault = sim.disk.inject(Fault::errno(errno::EIO).on(OpKind::Read).skip(skip));
        let mut seen = 0;
        let mut failed = false;
        for kv in db.iter().unwrap() {
            match kv {
                Ok((k, v)) => {
                    assert!(!failed && (&*k, &*v) == (&all[seen].0[..], &all[seen].1[..]));
                    seen += 1;
                }
                Err(_) => failed = true,
            }
        }
        // A failed read ahead of the scan is repeated by the scan itself.
        assert!(!failed || sim.disk.struck(fault) == 1);
        assert!(failed || seen == all.len());
        failures += u32::from(failed);
        sim.disk.clear_faults();
    }
    assert!(failures > 5, "{failures} of 30 scans failed");
}
