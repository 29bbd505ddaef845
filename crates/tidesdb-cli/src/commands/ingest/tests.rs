//! Tests of `export` and `ingest`.

use std::io::Write;
use std::time::Duration;

use clap::Parser;
use tidesdb::{Comparator, Compression, FamilyOptions, WriteBatch};

use super::super::stage::{Line, Stage};
use super::*;
use crate::format;

fn at(stage: &Stage, name: &str) -> String {
    stage.dir.path().join(name).to_str().unwrap().to_owned()
}

/// The names in a directory that begin with `begin`, sorted.
fn names(stage: &Stage, dir: &str, begin: &str) -> Vec<String> {
    let entries = std::fs::read_dir(stage.dir.path().join(dir)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
    names.sort_unstable();
    names
}

/// The files of a database with their lengths, but for its log and its manifest.
fn data(stage: &Stage) -> Vec<String> {
    let mut names = names(stage, "db", "");
    names.retain(|name| name.ends_with("klog") || name.ends_with("vlog") || name.starts_with("INGEST-"));
    names
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut n = seed | 1;
    let mut next = || {
        n ^= n << 13;
        n ^= n >> 7;
        n ^= n << 17;
        (n >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Puts rows with all bytes, values of all lengths and expiries; returns what `dump` shows.
fn fill(stage: &Stage, family: &str) -> String {
    let family_of = stage.db.family(family).unwrap();
    let mut batch = WriteBatch::new();
    for b in 0..=255u8 {
        let expiry = if b % 3 == 0 { 0 } else { 5_000_000_000_000 + u64::from(b) * 125 };
        let value = noise(b.into(), usize::from(b) * 17);
        batch.put_expiring(&family_of, [b, b'k', b], value, format::moment_of(expiry)).unwrap();
    }
    let far = format::moment_of(5_000_000_000_125);
    batch.put_expiring(&family_of, "long", noise(7, 3 << 20), None).unwrap();
    batch.put_expiring(&family_of, "long, expires", noise(8, 3 << 20), far).unwrap();
    batch.put_expiring(&family_of, "gone", "expired", format::moment_of(1)).unwrap();
    batch.put(&family_of, "deleted", "").unwrap();
    batch.delete(&family_of, "deleted").unwrap();
    stage.db.write(&mut batch).unwrap();
    let mut stream = family_of.value_writer("long, stream").unwrap().expires_at(far);
    stream.write_all(&noise(9, (3 << 20) + 5)).unwrap();
    stream.commit().unwrap();
    stage.run(&["dump", "--family", family, "--format", "jsonl"])
}

#[test]
fn exported_rows_come_back_in_another_family_and_database() {
    let stage = Stage::new();
    let hour = Duration::from_secs(3600);
    // Rows that never expire stay so in a family with a default.
    stage.db.create_family("from", FamilyOptions::default().default_ttl(hour)).unwrap();
    let dump = fill(&stage, "from");
    let differing = FamilyOptions::default()
        .compression(Compression::None)
        .value_threshold(100)
        .filter_bits_per_key(0)
        .default_ttl(hour);
    stage.db.create_family("to", differing).unwrap();
    let told = stage.run(&["export", &at(&stage, "rows"), "--family", "from"]);
    assert!(told.starts_with("259 rows, "), "{told}");
    assert!(told.contains("\n1 table, ") && told.ends_with("rows-000001.klog\n"), "{told}");
    assert_eq!(names(&stage, "", "rows"), ["rows-000001.klog", "rows-000001.klog.vlog"]);
    // As a shell expands `rows*`.
    let (table, values) = (at(&stage, "rows-000001.klog"), at(&stage, "rows-000001.klog.vlog"));
    let told = stage.run(&["ingest", &table, &values, "--family", "to"]);
    assert!(told.starts_with("1 table, 259 rows, "), "{told}");
    let dump_of = |stage: &Stage, family| stage.run(&["dump", "--family", family, "--format", "jsonl"]);
    assert!(dump_of(&stage, "to") == dump, "the dump differs");
    let other = Stage::new();
    other.run(&["put", "long", "older"]);
    other.run(&["ingest", "--move", &table]);
    assert!(dump_of(&other, "default") == dump, "the dump differs");
    assert_eq!(names(&stage, "", "rows"), [""; 0], "moved");
    // From there again, and back by links.
    other.run(&["export", &at(&stage, "again")]);
    stage.run(&["ingest", "--link", &at(&stage, "again-000001.klog")]);
    assert!(dump_of(&stage, "default") == dump, "the dump differs");
    assert_eq!(names(&stage, "", "again").len(), 2);
    for stage in [&stage, &other] {
        stage.run(&["compact"]);
        assert!(dump_of(stage, "default") == dump, "the dump differs after a merge");
        assert!(stage.db.verify().unwrap().is_ok());
    }
}

#[test]
fn an_export_has_the_rows_of_its_range() {
    let stage = Stage::with(&["a", "aa", "b", "c"]);
    for (n, (words, expected)) in [
        (&["--prefix", "a"][..], "a\naa\n"),
        (&["--from", "aa", "--to", "c"], "aa\nb\n"),
        (&["-e", "--from", "\\x62", "-n1"], "b\n"),
        (&["--limit", "0"], ""),
        (&["--prefix", "x"], ""),
    ]
    .iter()
    .enumerate()
    {
        let (stem, family) = (at(&stage, &format!("t{n}")), format!("f{n}"));
        let told = stage.run(&[&["export", &stem][..], words].concat());
        stage.db.create_family(&family, FamilyOptions::default()).unwrap();
        let made = names(&stage, "", &format!("t{n}"));
        assert_eq!(made.len(), usize::from(!expected.is_empty()), "{told}");
        if expected.is_empty() {
            assert!(
                told.starts_with("0 rows, ") && told.ends_with("\nno table: there is no row\n"),
                "{told}"
            );
            continue;
        }
        stage.run(&["ingest", &at(&stage, &made[0]), "--family", &family]);
        assert_eq!(stage.run(&["scan", "-k", "--family", &family]), *expected, "{words:?}");
    }
    // Tables are in key order.
    assert!(Line::try_parse_from(["export", "x", "--reverse"]).is_err());
}

#[test]
fn an_export_replaces_nothing() {
    let stage = Stage::with(&["a"]);
    let stem = at(&stage, "rows");
    for file in ["rows-000001.klog", "rows-000007.klog", "rows-000002.klog.vlog"] {
        let path = stage.file(file, b"mine");
        let failure = stage.fails(&["export", &stem]);
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message().contains(&format!("{file} exists already")), "{}", failure.message());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        std::fs::remove_file(path).unwrap();
    }
    stage.file("rows-of-others.klog", b"");
    stage.file("rows-.klog", b"");
    stage.run(&["export", &stem]);
    assert_eq!(names(&stage, "", "rows").len(), 3);
    for (stem, exit) in [("none/rows", Exit::Failed), ("..", Exit::Usage), ("/", Exit::Usage)] {
        assert_eq!(stage.fails(&["export", stem]).exit, exit, "{stem}");
    }
    assert_eq!(stage.fails(&["export", &at(&stage, "x"), "--family", "none"]).exit, Exit::Usage);
    assert_eq!(names(&stage, "", "x"), [""; 0]);
}

#[test]
fn a_failed_export_leaves_no_file() {
    let stage = Stage::new();
    let value = noise(3, 10_000);
    (0..500).for_each(|n| assert!(stage.db.put(format!("{n:03}"), &value).is_ok()));
    stage.db.flush().unwrap();
    let vlog = data(&stage).into_iter().find(|name| name.ends_with(".vlog")).unwrap();
    let path = stage.dir.path().join("db").join(vlog);
    let mut bytes = std::fs::read(&path).unwrap();
    let at_byte = bytes.len() - 15_000;
    bytes[at_byte] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let failure = stage.fails(&["export", &at(&stage, "rows")]);
    assert_eq!(failure.exit, Exit::Failed, "{}", failure.message());
    assert_eq!(names(&stage, "", "rows"), [""; 0]);
}

#[test]
fn a_directory_gives_its_tables_by_name() {
    let stage = Stage::with(&["a", "b"]);
    std::fs::create_dir(stage.dir.path().join("dir")).unwrap();
    stage.run(&["export", &at(&stage, "dir/2")]);
    stage.run(&["put", "a", "earlier by name"]);
    stage.run(&["export", &at(&stage, "dir/1")]);
    stage.file("dir/notes.txt", b"");
    stage.run(&["put", "a", "latest"]);
    let told = stage.run(&["ingest", &at(&stage, "dir"), "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["tables"], &told["rows"]), (&2.into(), &4.into()));
    assert_eq!(stage.run(&["get", "a"]), "a");
    // The order of the arguments counts otherwise.
    stage.run(&["ingest", &at(&stage, "dir/2-000001.klog"), &at(&stage, "dir/1-000001.klog")]);
    assert_eq!(stage.run(&["get", "a"]), "earlier by name");
}

#[test]
fn what_is_no_table_is_refused_by_name() {
    let stage = Stage::with(&["a"]);
    stage.run(&["export", &at(&stage, "rows")]);
    let table = at(&stage, "rows-000001.klog");
    std::fs::create_dir(stage.dir.path().join("empty")).unwrap();
    stage.file("text.klog", &b"no table at all, but long enough for a footer ".repeat(20));
    stage.file("nothing.klog", b"");
    stage.db.flush().unwrap();
    let own = data(&stage).into_iter().find(|name| name.ends_with(".klog")).unwrap();
    std::fs::copy(stage.dir.path().join("db").join(own), at(&stage, "of-a-database.klog")).unwrap();
    let order = Comparator::reverse_bytewise();
    stage.db.create_family("turned", FamilyOptions::default().comparator(order)).unwrap();
    let before = data(&stage);
    for (words, exit, part) in [
        (&[&*at(&stage, "db")][..], Exit::Usage, "is a database"),
        (&[&at(&stage, "empty")], Exit::Usage, "has no table"),
        (&[&table, &table], Exit::Usage, "is named twice"),
        (&[&at(&stage, "none.klog")], Exit::Failed, "none.klog"),
        (&[&table, &at(&stage, "text.klog")], Exit::Failed, "text.klog"),
        (&[&at(&stage, "nothing.klog")], Exit::Failed, "nothing.klog"),
        (&[&at(&stage, "of-a-database.klog")], Exit::Failed, "of-a-database.klog"),
        (&[&table, "--family", "turned"], Exit::Usage, "key order \"bytewise\""),
        (&[&table, "--family", "none"], Exit::Usage, "none"),
    ] {
        let failure = stage.fails(&[&["ingest", "--move"], words].concat());
        assert_eq!(failure.exit, exit, "{words:?}: {}", failure.message());
        assert!(failure.message().contains(part), "{words:?}: {}", failure.message());
        assert_eq!(data(&stage), before, "{words:?}");
    }
    assert!(Line::try_parse_from(["ingest"]).is_err());
    assert!(Line::try_parse_from(["ingest", "a", "--link", "--move"]).is_err());
    assert!(stage.dir.path().join("rows-000001.klog").exists());
}

#[test]
fn damaged_tables_are_refused_and_leave_nothing() {
    let stage = Stage::new();
    for n in 0..300u32 {
        stage.db.put(format!("{n:04}"), noise(n.into(), 50 + n as usize * 4)).unwrap();
    }
    stage.run(&["export", &at(&stage, "rows")]);
    stage.db.delete_range(..).unwrap();
    let before = data(&stage);
    for name in ["rows-000001.klog", "rows-000001.klog.vlog"] {
        let path = stage.dir.path().join(name);
        let whole = std::fs::read(&path).unwrap();
        for at_byte in (0..whole.len()).step_by(whole.len() / 40) {
            let mut bytes = whole.clone();
            bytes[at_byte] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
            refused(&stage, name, at_byte, &before);
        }
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        refused(&stage, name, whole.len(), &before);
        std::fs::remove_file(&path).unwrap();
        refused(&stage, name, 0, &before);
        std::fs::write(&path, whole).unwrap();
    }
    stage.run(&["ingest", &at(&stage, "rows-000001.klog")]);
    assert_eq!(stage.run(&["scan", "-c"]), "300\n");
}

/// The table is refused because of the file `name`.
fn refused(stage: &Stage, name: &str, at_byte: usize, before: &[String]) {
    for how in ["--link", "--move", "--sync=full"] {
        let failure = stage.fails(&["ingest", how, &at(stage, "rows-000001.klog")]);
        assert_eq!(failure.exit, Exit::Failed, "{name} at {at_byte}: {}", failure.message());
        assert!(failure.message().contains("rows-000001.klog"), "{name} at {at_byte}: {}", failure.message());
        assert_eq!(data(stage), before, "{name} at {at_byte}");
        assert_eq!(stage.run(&["scan", "-c"]), "0\n");
    }
}
