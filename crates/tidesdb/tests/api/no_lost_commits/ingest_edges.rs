//! Edges of taking tables: files that nobody may write, sources and sets that are refused, and the space that tables take.

use std::io::{self, Read};
use std::path::PathBuf;

use tidesdb::{Compression, Error, FamilyOptions, Ingest, SyncMode};
use tidesdb_io::sim::{Fault, OpKind, errno};

use super::ingest::{build, builder};
use crate::common::{DB, Sim, contents, fill, noise, small};

/// The files of a caller may be read-only, and a sync needs no permission to write.
#[test]
fn a_value_log_that_nobody_may_write_does_not_keep_a_killed_database_from_opening() {
    for way in [Ingest::linking, Ingest::moving] {
        let sim = Sim::new();
        let db = sim.open();
        let tables = build(&sim, db.default_family(), "t", 0..20, &noise(1, 700));
        db.ingest(&way(Ingest::new().tables(db.default_family(), &tables))).unwrap();
        // The last open of the value log before its sync is the one that would want to write.
        let killed = sim.killed();
        killed.disk.log_ops(true);
        let _db = killed.open();
        let mut ops = killed.disk.ops();
        ops.retain(|op| op.path.ends_with(".vlog"));
        let sync = ops.iter().position(|op| op.kind == OpKind::SyncAll).expect("a sync of the values");
        let opens = ops[..sync].iter().filter(|op| op.kind == OpKind::Open).count() as u64;
        let killed = sim.killed();
        let refused = Fault::errno(errno::EACCES).on(OpKind::Open).path_ends(".vlog");
        let refused = killed.disk.inject(refused.skip(opens - 1).times(1));
        let db = killed.open();
        assert_eq!(killed.disk.struck(refused), 1);
        assert_eq!(contents(db.default_family()).len(), 20);
        assert!(db.verify().unwrap().is_ok());
    }
}

/// A source that fails after some bytes.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = self.0.min(buf.len());
        self.0 -= len;
        if len == 0 { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(len) }
    }
}

#[test]
fn an_empty_stream_is_refused_and_the_builder_is_as_before() {
    let sim = Sim::new();
    let db = sim.open();
    let mut rows = builder(&sim, db.default_family(), "t");
    let long = noise(1, 3_000_000);
    for empty_first in ["a", "b", "c"] {
        let e = rows.put_stream(empty_first, io::empty()).unwrap_err();
        assert!(matches!(&e, Error::InvalidArgument { .. }), "{e}");
        rows.put_stream_expiring(empty_first, io::empty(), None).unwrap_err();
        if empty_first == "a" {
            assert_eq!(sim.disk.file_names("/built").unwrap(), [""; 0], "no file for a refused row");
            rows.put("a", "short").unwrap();
        } else {
            rows.put_stream(empty_first, &long[..]).unwrap();
        }
    }
    rows.put_stream("b", Failing(0)).unwrap_err(); // its key is refused first
    let tables = rows.finish().unwrap();
    db.ingest(&Ingest::new().tables(db.default_family(), &tables)).unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"short");
    assert!(db.get("b").unwrap().unwrap() == long[..] && db.get("c").unwrap().unwrap() == long[..]);
    assert!(db.verify().unwrap().is_ok());
    for bytes in [0, 1, 2_000_000] {
        let mut rows = builder(&sim, db.default_family(), "fails");
        rows.put("a", "short").unwrap();
        assert!(matches!(rows.put_stream("b", Failing(bytes)), Err(Error::Io { .. })), "{bytes}");
        rows.put("c", "short").unwrap_err();
        rows.finish().unwrap_err();
        let left = sim.disk.file_names("/built").unwrap();
        assert!(!left.iter().any(|name| name.starts_with("fails")), "{left:?}");
    }
}

#[test]
fn tables_of_another_builder_between_those_of_one_that_deletes_ranges_are_refused() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().table_bytes(64 << 10)).open().unwrap();
    let (family, other) = (db.default_family().clone(), db.create_family("b", small()).unwrap());
    fill(&family, 10, b"old");
    let several = |stem: &str, deletes: bool| -> Vec<PathBuf> {
        let mut rows = builder(&sim, &family, stem);
        if deletes {
            rows.delete_range("key000000".."key000002").unwrap();
        }
        for n in 2..3000u32 {
            rows.put(format!("key{n:06}"), noise(n.into(), 100)).unwrap();
        }
        rows.finish().unwrap()
    };
    let (deleting, plain) = (several("deleting", true), several("plain", false));
    assert!(deleting.len() > 1 && plain.len() > 1);
    let between = build(&sim, &family, "between", 2900..3001, b"between");
    let beside = build(&sim, &other, "beside", 0..3, b"beside");
    let before = contents(&family);
    let ingest = Ingest::new().tables(&family, &deleting[..1]).tables(&family, &between);
    let e = db.ingest(&ingest.tables(&family, &deleting[1..])).unwrap_err();
    assert!(matches!(&e, Error::InvalidArgument { .. }), "{e}");
    assert!(e.to_string().contains(deleting[1].file_name().unwrap().to_str().unwrap()), "{e}");
    assert!(contents(&family) == before, "nothing was taken");
    // Of another family, of builders that delete no ranges, and behind the last one.
    let ingest = Ingest::new().tables(&family, &deleting[..1]).tables(&other, &beside);
    db.ingest(&ingest.tables(&family, &deleting[1..]).tables(&family, &between)).unwrap();
    assert!(db.get("key000001").unwrap().is_none());
    assert_eq!(db.get("key002950").unwrap().unwrap(), b"between");
    let ingest = Ingest::new().tables(&family, &plain[..1]).tables(&family, &between);
    db.ingest(&ingest.tables(&family, &plain[1..])).unwrap();
    assert_eq!(db.get("key002950").unwrap().unwrap(), noise(2950, 100), "the later one counts");
}

#[test]
fn the_values_of_sorted_rows_leave_free_what_the_database_is_to_leave_free() {
    const MIB: u64 = 1 << 20;
    for streams in [false, true] {
        let sim = Sim::new();
        let family = FamilyOptions::default().compression(Compression::None).table_bytes(64 << 10);
        let options = sim.options().sync(SyncMode::None).default_family(family);
        let db = options.with(|o| o.disk_free_min = 20 * MIB).open().unwrap();
        sim.disk.limit_space(Some(50 * MIB));
        let mut writer = db.default_family().sorted_writer().unwrap();
        let value = vec![7; MIB as usize];
        let failed = match streams {
            true => writer.rows().put_stream("long", io::repeat(7).take(60 * MIB)).err(),
            false => (0..60u32).find_map(|n| writer.rows().put(n.to_be_bytes(), &value).err()),
        };
        let free = sim.env.disk.open_dir(DB.as_ref(), false).unwrap().space().unwrap().free;
        assert!(matches!(failed, Some(Error::NoSpace { .. })), "streams: {streams}: {failed:?}");
        assert!(free >= 20 * MIB, "streams: {streams}: {free} bytes are left");
        drop(writer);
        db.put("a", "small").unwrap();
    }
}

#[test]
fn the_reserve_grows_with_tables_that_are_taken() {
    let reserve = |takes: bool| {
        let sim = Sim::new();
        let db = sim.options().with(|o| o.wal_segment_bytes = 4 << 20).open().unwrap();
        db.put("a", "b").unwrap();
        if takes {
            let tables = build(&sim, db.default_family(), "t", 0..60, &noise(1, 50_000));
            db.ingest(&Ingest::new().tables(db.default_family(), &tables)).unwrap();
        }
        for n in 0..40u32 {
            db.put(n.to_be_bytes(), noise(n.into(), 500)).unwrap();
            db.put(n.to_be_bytes(), noise(n.into(), 40_000)).unwrap();
            db.put(n.to_be_bytes(), vec![b'x'; 500]).unwrap();
        }
        fill(db.default_family(), 2000, &[b'y'; 400]);
        sim.disk.read_file(format!("{DB}/RESERVE")).unwrap().len()
    };
    let (without, with) = (reserve(false), reserve(true));
    assert!(with >= without + 2_500_000, "{without} {with}");
}
