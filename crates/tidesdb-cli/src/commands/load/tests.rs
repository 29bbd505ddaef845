use super::super::stage::Stage;
use super::*;

fn load(stage: &Stage, name: &str, content: &[u8], more: &[&str]) -> Result<String, Failure> {
    let path = stage.file(name, content);
    let words = [&["load", path.to_str().unwrap()][..], more].concat();
    stage.try_run(&words, false).map(|(_, out)| out)
}

#[test]
fn each_format_by_its_extension() {
    let stage = Stage::new();
    load(&stage, "a.tsv", b"t\\t\tv\tw\n", &[]).unwrap();
    load(&stage, "a.csv", b"key,value\nc,\"x\"\"y\"\n", &[]).unwrap();
    load(&stage, "a.jsonl", b"{\"key\":\"j\",\"value\":\"\\u0001\"}\n", &[]).unwrap();
    load(&stage, "cities.csv", b"name,n\nOslo,7\n", &["--key-column", "name", "--value-column", "n"])
        .unwrap();
    load(&stage, "people.ndjson", b"{\"id\":5}\n", &["--key", "id"]).unwrap();
    load(&stage, "raw", b"C:\\x\t\\\n", &["--format", "tsv", "--no-escapes"]).unwrap();
    load(&stage, "plain.csv", b"p,q\n", &["--no-header"]).unwrap();
    let expected = "5\t{\"id\":5}\nC:\\\\x\t\\\\\nOslo\t7\nc\tx\"y\nj\t\x01\np\tq\nt\\t\tv\tw\n";
    assert_eq!(stage.run(&["scan"]), expected);
}

/// A carriage return is a byte of the value, as the format says. A file in which all rows have one was written on Windows.
#[test]
fn lines_that_end_as_on_windows_are_noticed() {
    let stage = Stage::new();
    let remark = |content: &[u8], more: &[&str]| {
        load(&stage, "a.tsv", content, more).unwrap().contains("every value ends with a carriage return")
    };
    assert!(remark(b"a\t1\r\nb\t2\r\n", &[]));
    assert_eq!(stage.run(&["get", "a"]), "1\r");
    assert!(!remark(b"a\t1\r\nb\t2\n", &[]));
    assert!(!remark(b"", &[]));
    assert!(!remark(b"a\t1\r\nb\t2\r\n", &["--crlf"]));
    assert_eq!(stage.run(&["scan"]), "a\t1\nb\t2\n");
    let refused = load(&stage, "a.csv", b"key,value\r\n", &["--crlf"]).unwrap_err();
    assert!(refused.message().contains("--crlf is for TSV"), "{}", refused.message());
}

/// Numbers were converted to floating point: these two keys became one, and the second row replaced the first.
#[test]
fn rows_whose_keys_are_long_numbers_stay_apart() {
    let stage = Stage::new();
    let content = b"{\"id\":18446744073709551616,\"n\":1.0}\n{\"id\":18446744073709551617,\"n\":1e3}\n{\"id\":-0,\"n\":-0}\n";
    let told = load(&stage, "a.jsonl", content, &["--key", "id", "--value", "n"]).unwrap();
    assert!(!told.contains("replaced"), "{told}");
    assert_eq!(stage.run(&["scan"]), "-0\t-0\n18446744073709551616\t1.0\n18446744073709551617\t1e3\n");
}

#[test]
fn replaced_values_are_counted_and_the_last_wins() {
    let stage = Stage::with(&["m"]);
    let mut content: Vec<String> = (0..3000).map(|n| format!("k{:04}\t{n}\n", n % 2500)).collect();
    content.push("m\tnew\nz\t1\nz\t2\n".to_owned());
    let out = load(&stage, "a.tsv", content.concat().as_bytes(), &["--json"]).unwrap();
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&told["rows"], &told["replaced"]), (&3003.into(), &502.into()));
    assert_eq!(stage.run(&["get", "k0001"]), "2501");
    assert_eq!(stage.run(&["get", "z"]), "2");
    assert_eq!(stage.run(&["scan", "-c"]), "2502\n");
}

#[test]
fn a_bad_row_is_reported_or_skipped() {
    let stage = Stage::new();
    let content = b"a\t1\n\tempty key\nb\t2\nno tab\nc\t3\n";
    let failure = load(&stage, "a.tsv", content, &[]).unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    assert!(failure.message().contains("a.tsv, line 2: "), "{}", failure.message());
    let out = load(&stage, "a.tsv", content, &["--skip-bad"]).unwrap();
    assert!(out.contains("2 malformed rows skipped, the first in line 2: "), "{out}");
    assert_eq!(stage.run(&["scan", "-k"]), "a\nb\nc\n");
}

#[test]
fn the_number_of_rows_loaded_before_a_bad_one_is_reported() {
    let stage = Stage::new();
    let mut content: String = (0..2500).map(|n| format!("{n:05}\tv\n")).collect();
    content.push_str("bad\n");
    let failure = load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap_err();
    assert!(failure.message().contains("line 2501"), "{}", failure.message());
    let kept = stage.run(&["scan", "-c"]);
    let told = format!("loaded before it: {} rows", grouped(kept.trim().parse().unwrap()));
    assert!(failure.message().contains(&told), "{} / {kept}", failure.message());
}

#[test]
fn large_values_fill_a_batch_by_bytes() {
    let stage = Stage::new();
    let value = "x".repeat(1 << 20);
    let content: String = (0..9).map(|n| format!("{n}\t{value}\n")).collect();
    load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap();
    assert_eq!(stage.run(&["scan", "-c"]), "9\n");
}

#[test]
fn wrong_options_are_reported_before_anything_is_read() {
    let stage = Stage::new();
    for (name, more) in [
        ("a.txt", &[][..]),
        ("a.tsv", &["--key", "x"]),
        ("a.tsv", &["--no-header"]),
        ("a.csv", &["--no-escapes"]),
        ("a.csv", &[]),
        ("a.csv", &["--key", "nothing"]),
    ] {
        assert_eq!(load(&stage, name, b"a,b\nc,d\n", more).unwrap_err().exit, Exit::Usage, "{name} {more:?}");
    }
    assert_eq!(stage.fails(&["load", "--format", "tsv", "/nonexistent"]).exit, Exit::Failed);
    assert_eq!(
        stage.fails(&["load", "--format", "tsv", stage.dir.path().to_str().unwrap()]).exit,
        Exit::Usage
    );
}

/// Rows in key order, enough for tables.
fn sorted_rows(rows: std::ops::Range<u32>) -> String {
    rows.map(|n| format!("{n:06}\t{n:01000}\n")).collect()
}

fn told(stage: &Stage, content: &str, more: &[&str]) -> serde_json::Value {
    let out = load(stage, "a.tsv", content.as_bytes(), &[&["--json"], more].concat()).unwrap();
    serde_json::from_str(&out).unwrap()
}

#[test]
fn sorted_rows_go_to_tables() {
    let stage = Stage::new();
    let content = sorted_rows(0..9000) + "expires\tsoon\\@99999999999.250\nover\tand\\@1\n";
    let json = told(&stage, &content, &[]);
    assert_eq!((&json["rows"], &json["unsorted_line"]), (&9002.into(), &serde_json::Value::Null));
    // The first 4 MiB are batches.
    let sorted = json["sorted"].as_u64().unwrap();
    assert!((4000..6000).contains(&sorted), "{json}");
    let shown = content.replace("over\tand\\@1\n", "");
    assert!(stage.run(&["dump"]) == shown, "the dump differs");
    stage.run(&["compact"]);
    assert!(stage.run(&["dump"]) == shown, "the dump differs after a merge");
    assert!(stage.db.verify().unwrap().is_ok());
    let text = load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap();
    assert!(text.contains("9,001 rows replaced a value"), "{text}");
    assert!(text.ends_with(" rows were written as sorted tables\n"), "{text}");
}

#[test]
fn rows_out_of_order_go_on_in_batches() {
    let stage = Stage::new();
    let content = sorted_rows(0..6000) + "005999\tsame\n000007\tearlier\nz\t1\nz\t2\n";
    let json = told(&stage, &content, &[]);
    assert_eq!((&json["rows"], &json["replaced"]), (&6004.into(), &3.into()));
    assert_eq!(json["unsorted_line"], 6001);
    assert!(json["sorted"].as_u64().unwrap() >= 1000, "{json}");
    for (key, value) in [("005999", "same"), ("000007", "earlier"), ("z", "2")] {
        assert_eq!(stage.run(&["get", key]), value);
    }
    assert_eq!(stage.run(&["scan", "-c"]), "6001\n");
    let text = load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap();
    let end = " rows were written as sorted tables; from line 6,001 on in batches: its key does not come after the one before it\n";
    assert!(text.ends_with(end), "{text}");
    let text = load(&stage, "a.tsv", format!("b\t\na\t\n{content}").as_bytes(), &[]).unwrap();
    let end = "\nall rows were written in batches: the key in line 2 does not come after the one before it\n";
    assert!(text.ends_with(end), "{text}");
}

#[test]
fn the_order_is_that_of_the_family() {
    let stage = Stage::new();
    let order = tidesdb::Comparator::reverse_bytewise();
    stage.db.create_family("turned", tidesdb::FamilyOptions::default().comparator(order)).unwrap();
    let turned: String = sorted_rows(0..6000).lines().rev().flat_map(|line| [line, "\n"]).collect();
    let json = told(&stage, &turned, &["--family", "turned"]);
    assert!(json["sorted"].as_u64().unwrap() >= 1000, "{json}");
    assert!(stage.run(&["dump", "--family", "turned"]) == turned, "the dump differs");
    let json = told(&stage, &turned, &[]);
    assert_eq!((&json["sorted"], &json["unsorted_line"]), (&0.into(), &2.into()));
}

#[test]
fn rows_of_tables_before_a_bad_one_are_loaded() {
    let stage = Stage::new();
    let content = sorted_rows(0..6000) + "\tno key\nz\t1\n";
    let failure = load(&stage, "a.tsv", content.as_bytes(), &[]).unwrap_err();
    assert!(failure.message().contains("a.tsv, line 6001: "), "{}", failure.message());
    assert!(failure.message().contains("loaded before it: 6,000 rows"), "{}", failure.message());
    assert_eq!(stage.run(&["scan", "-c"]), "6000\n");
    let json = told(&stage, &content, &["--skip-bad"]);
    assert_eq!((&json["bad"], &json["unsorted_line"]), (&1.into(), &serde_json::Value::Null));
    assert_eq!(stage.run(&["get", "z"]), "1");
}

/// Each batch is to be durable.
#[test]
fn rows_that_are_to_be_durable_at_once_go_in_batches() {
    let stage = Stage::new();
    for (mode, is_sorted) in [("full", false), ("interval:1s", false), ("none", true)] {
        let json = told(&stage, &sorted_rows(0..6000), &["--sync", mode]);
        assert_eq!(json["sorted"].as_u64().unwrap() > 0, is_sorted, "{mode}: {json}");
    }
}

/// Adds rows `rows`, with a step after each.
fn step(loader: &mut Loader<'_>, rows: std::ops::Range<u64>) {
    for n in rows {
        let key = format!("{n:06}");
        let row = format::Row { line: n + 1, key: key.as_bytes(), value: &[b'x'; 994], expiry: 0 };
        loader.turn(&row, || 0).unwrap();
        loader.add(&row).unwrap();
        loader.step().unwrap();
    }
}

fn session(stage: &Stage) -> Session {
    let path = stage.dir.path().join("db");
    let (db, common) = (stage.db.clone(), crate::session::Common::default());
    Session { db, path, common, access: crate::session::Access::Write, beside: None, is_script: false }
}

/// As a long file whose rows come in any order: the result is that of batches.
#[test]
fn rows_in_any_order_are_sorted_before_they_are_written() {
    let stage = Stage::with(&["k0007", "k9000"]);
    let session = session(&stage);
    let family = session.family().unwrap();
    let limits =
        Limits { sort_from: 1, sort_bytes: 20_000, sort_chunk: 3000, run_bytes: 5000, ..Limits::default() };
    let mut loader = Loader::new(&session, &family, limits).unwrap();
    let mut wanted = std::collections::BTreeMap::from([("k9000".to_owned(), "k9000".to_owned())]);
    let scratch = session.path.join("SORTING");
    for n in 0..1500_u64 {
        let (key, value) = (format!("k{:04}", n * 7919 % 1009), format!("value {n}"));
        // One that has expired hides the row before it.
        let expiry = if n % 100 == 99 { 1 } else { 0 };
        let row = format::Row { line: n + 1, key: key.as_bytes(), value: value.as_bytes(), expiry };
        loader.turn(&row, || 1 << 20).unwrap();
        loader.add(&row).unwrap();
        loader.step().unwrap();
        assert_eq!(scratch.exists(), loader.sorts());
        match expiry {
            0 => wanted.insert(key, value),
            _ => wanted.remove(&key),
        };
    }
    assert!(loader.tally.sorted > 0, "the first portion is written");
    let empty = format::Row { line: 1501, key: b"", value: b"", expiry: 0 };
    assert!(matches!(loader.add(&empty), Err(tidesdb::Error::InvalidArgument { .. })));
    loader.commit().unwrap();
    // Each key but k0007 was there once at most before its first row.
    let (rows, replaced) = (loader.tally.rows, loader.tally.replaced);
    assert_eq!((rows, replaced), (1500, 1500 - 1009 + 1), "{:?}", loader.tally);
    let told = way(&loader.tally).unwrap();
    assert!(
        told.ends_with("written as sorted tables; 1,498 rows from line 3 on were sorted first"),
        "{told}"
    );
    drop(loader);
    assert!(!scratch.exists());
    let found: Vec<(String, String)> = family
        .iter()
        .unwrap()
        .map(|row| row.unwrap())
        .map(|row| {
            (String::from_utf8_lossy(&row.0).into_owned(), String::from_utf8_lossy(&row.1).into_owned())
        })
        .collect();
    assert_eq!(found, wanted.into_iter().collect::<Vec<_>>());
}

#[test]
fn tables_are_taken_now_and_then() {
    let stage = Stage::new();
    let session = session(&stage);
    let family = session.family().unwrap();
    let minute = std::time::Duration::from_secs(60);
    let limits = Limits {
        sorted_from: 10_000,
        run_bytes: 5000,
        run_time: minute,
        slow_bytes: 1000,
        ..Limits::default()
    };
    let mut loader = Loader::new(&session, &family, limits).unwrap();
    step(&mut loader, 0..10);
    assert_eq!((loader.tally.rows, loader.tally.sorted), (10, 0), "batches");
    step(&mut loader, 10..14);
    assert_eq!((loader.tally.rows, loader.added()), (10, 14), "tables that are not taken");
    assert_eq!(stage.run(&["scan", "-c"]), "10\n");
    step(&mut loader, 14..15);
    assert_eq!((loader.tally.rows, loader.tally.sorted), (15, 5), "taken after so many bytes");
    assert_eq!(stage.run(&["scan", "-c"]), "15\n");
    step(&mut loader, 15..17);
    drop(loader);
    assert_eq!(stage.run(&["scan", "-c"]), "15\n", "an interrupted load leaves what was taken");
    let limits = Limits { run_time: std::time::Duration::ZERO, ..limits };
    let mut loader = Loader::new(&session, &family, limits).unwrap();
    step(&mut loader, 20..32);
    assert_eq!((loader.tally.rows, loader.tally.sorted), (12, 2), "taken after so much time");
    assert_eq!(loader.tally.batches, None, "these have enough bytes to go on");
    loader.commit().unwrap();
    let limits = Limits { slow_bytes: 1001, ..limits };
    let mut loader = Loader::new(&session, &family, limits).unwrap();
    step(&mut loader, 40..60);
    assert_eq!((loader.tally.rows, loader.tally.sorted), (20, 1));
    assert_eq!(loader.tally.batches, Some(Because::Slow(51)));
    assert!(way(&loader.tally).unwrap().ends_with("after line 51 in batches: the rows came slowly"));
    assert_eq!(stage.run(&["scan", "-c"]), "47\n");
}

/// A row now and then, as from a program: a thousand of them may take hours.
#[test]
fn the_time_of_tables_ends_with_any_row() {
    let stage = Stage::new();
    let session = session(&stage);
    let family = session.family().unwrap();
    for (run_time, is_due) in [(std::time::Duration::ZERO, true), (std::time::Duration::MAX, false)] {
        let limits = Limits { sorted_from: 1000, run_time, ..Limits::default() };
        let mut loader = Loader::new(&session, &family, limits).unwrap();
        step(&mut loader, 0..1); // the tables begin
        let row = format::Row { line: 2, key: b"1", value: b"slow", expiry: 0 };
        loader.turn(&row, || 0).unwrap();
        assert_eq!((loader.add(&row).unwrap(), loader.tally.rows), (is_due, 1));
        loader.step().unwrap();
        assert_eq!((loader.tally.rows, loader.tally.batches.is_some()), (1 + u64::from(is_due), is_due));
    }
}

/// A kill while the scratch database is made or removed leaves a part of it.
#[test]
fn a_part_of_a_scratch_database_is_removed_and_another_folder_stays() {
    let stage = Stage::new();
    let session = session(&stage);
    let family = session.family().unwrap();
    let scratch = session.path.join("SORTING");
    let limits = Limits { sort_from: 1, sort_chunk: 1, ..Limits::default() };
    let sorts = |names: &[&str]| -> tidesdb::Result<()> {
        std::fs::create_dir(&scratch).unwrap();
        names.iter().for_each(|name| std::fs::write(scratch.join(name), "x").unwrap());
        let mut loader = Loader::new(&session, &family, limits).unwrap();
        for (line, key) in [(1, b"b"), (2, b"a"), (3, b"c")] {
            let row = format::Row { line, key, value: b"value", expiry: 0 };
            loader.turn(&row, || 1 << 20)?;
            loader.add(&row)?;
        }
        loader.step()?;
        let made = std::fs::read_dir(&scratch).unwrap().map(|file| file.unwrap().file_name());
        for name in made.filter(|name| name != "CURRENT") {
            assert!(sorter::is_of_database(&name), "{}: a file of a scratch database", name.display());
        }
        loader.commit()
    };
    let parts: [&[&str]; 6] = [
        &[],
        &["LOCK"],
        &["LOCK", "EVENTS", "EVENTS.old", "FIGURES", "RESERVE", "SYNC-FAILED"],
        &["LOCK", "CURRENT.new", "000001.manifest"],
        &["000012.wal", "000012.wal.free", "000001.klog.orphan", "INGEST-0a-000001.klog"],
        &["LOCK", "CURRENT", "000001.klog", "000002.vlog"],
    ];
    for part in parts {
        sorts(part).unwrap_or_else(|e| panic!("{part:?}: {e}"));
        assert!(!scratch.exists(), "{part:?}");
    }
    assert_eq!(stage.run(&["scan", "-k"]), "a\nb\nc\n");
    let others: [&[&str]; 4] =
        [&["notes.txt"], &["LOCK", "000001.wal", "notes.klog"], &["rows-000001.klog"], &["1.txt.free"]];
    for other in others {
        let e = sorts(other).unwrap_err().to_string();
        assert!(e.contains("SORTING is needed to sort rows: remove it"), "{other:?}: {e}");
        let left = other.iter().filter(|name| scratch.join(name).exists()).count();
        assert_eq!(left, other.len(), "{other:?}");
        std::fs::remove_dir_all(&scratch).unwrap();
    }
    // A folder in it is no file of a database.
    std::fs::create_dir_all(scratch.join("000001.wal")).unwrap();
    let mut loader = Loader::new(&session, &family, limits).unwrap();
    step(&mut loader, 5..6);
    let row = format::Row { line: 2, key: b"0", value: b"", expiry: 0 };
    loader.turn(&row, || 1 << 20).unwrap_err();
    assert!(scratch.join("000001.wal").is_dir());
}
