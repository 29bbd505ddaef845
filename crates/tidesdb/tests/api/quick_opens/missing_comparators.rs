//! Databases whose comparators are not registered when they are opened.

use std::time::Duration;

use tidesdb::{Comparator, Db, Error, Family, WriteBatch};

use crate::common::{DB, Sim, contents, fill, noise, small, value};

const NAME: &str = "ordered";

fn mine() -> Comparator {
    Comparator::custom("mine", |a, b| b.cmp(a))
}

fn other() -> Comparator {
    Comparator::custom("other", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)))
}

fn key(i: u32) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// Creates a database whose family with a user comparator has data in tables and in the log: small and large values, deletes,
/// range deletes, expiry, and commits that touch both families.
fn sample(sim: &Sim) -> (Db, Family) {
    let db = sim.options().comparator(mine()).open().unwrap();
    let f = db.create_family(NAME, small().comparator(mine())).unwrap();
    fill(&f, 200, b"in a table");
    for i in 0..20 {
        f.put(&key(i * 10), &noise(u64::from(i), 2000)).unwrap();
    }
    db.flush().unwrap();
    fill(db.default_family(), 100, b"v");
    for i in 0..20 {
        f.put(&key(i * 10 + 5), &noise(1000 + u64::from(i), 1500)).unwrap();
        f.delete(&key(i * 10 + 6)).unwrap();
    }
    f.delete_range(key(150)..key(120)).unwrap();
    f.put(&key(130), b"after the range").unwrap();
    f.put_with_ttl(&key(131), b"for an hour", Duration::from_secs(3600)).unwrap();
    f.put(&key(300), b"gone with a single delete").unwrap();
    both(&db, &f);
    let mut batch = WriteBatch::new();
    batch.single_delete(&f, &key(300)).unwrap();
    db.write(&mut batch).unwrap();
    (db, f)
}

/// Commits one batch to both families, in which the position of range deletes among the other operations matters.
fn both(db: &Db, f: &Family) {
    let mut batch = WriteBatch::new();
    batch.put(f, &key(80), b"before both ranges").unwrap();
    batch.delete_range(db.default_family(), key(10)..key(20)).unwrap();
    batch.put(f, &key(79), b"before both ranges").unwrap();
    batch.delete_range(f, key(85)..key(75)).unwrap();
    batch.put(f, &key(78), b"between the ranges").unwrap();
    batch.put(f, &key(72), b"between the ranges").unwrap();
    batch.delete_range(db.default_family(), key(30)..key(40)).unwrap();
    batch.delete_range(f, key(74)..key(70)).unwrap();
    batch.put(f, &key(71), &noise(71, 900)).unwrap();
    batch.put(db.default_family(), &key(35), b"after the range").unwrap();
    db.write(&mut batch).unwrap();
}

/// Returns the names and the contents of all files of the database.
fn files(sim: &Sim) -> Vec<(String, Vec<u8>)> {
    let names = sim.disk.file_names(DB).unwrap();
    let read = |name: &String| sim.disk.read_file(format!("{DB}/{name}")).unwrap();
    names.iter().map(|name| (name.clone(), read(name))).collect()
}

#[test]
fn the_open_names_every_missing_comparator_and_its_family() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    let words = db.create_family("words", small().comparator(other())).unwrap();
    fill(&words, 10, b"v");
    db.abandon();
    let before = files(&sim);
    for options in [sim.options(), sim.options().allow_unknown(true), sim.options().read_only(true)] {
        let e = options.open().unwrap_err();
        let text = e.to_string();
        assert!(matches!(e, Error::InvalidArgument { .. }), "{text}");
        for name in ["\"mine\"", NAME, "\"other\"", "\"words\"", "OpenOptions::comparator"] {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
    let e = sim.options().comparator(mine()).open().unwrap_err().to_string();
    assert!(e.contains("\"other\"") && !e.contains("\"mine\""), "{e}");
    assert!(files(&sim) == before, "a refused open changed files");
    let db = sim.options().comparator(mine()).comparator(other()).open().unwrap();
    assert!(contents(&db.family(NAME).unwrap()) == expected);
    assert_eq!(contents(&db.family("words").unwrap()).len(), 10);
    assert!(db.verify().unwrap().is_ok());
}

#[test]
fn a_locked_database_opens_once_its_comparators_are_known() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(&f);
    db.create_family("again", small().comparator(mine())).unwrap();
    db.create_family("words", small().comparator(other())).unwrap();
    db.abandon();
    let before = files(&sim);
    let locked = sim.options().comparator(other()).lock().unwrap();
    let pair = |family: &str| (family.to_owned(), "mine".to_owned());
    assert_eq!(locked.missing_comparators().unwrap(), [pair(NAME), pair("again")]);
    assert!(matches!(sim.options().open(), Err(Error::Locked { .. })));
    assert!(files(&sim) == before, "a look changed files");
    let db = locked.open([mine()]).unwrap();
    assert!(matches!(sim.options().open(), Err(Error::Locked { .. })));
    assert!(contents(&db.family(NAME).unwrap()) == expected);
    db.close().unwrap();
    let locked = sim.options().lock().unwrap();
    assert_eq!(locked.missing_comparators().unwrap().len(), 3);
    drop(locked);
    let locked = sim.options().lock().unwrap();
    assert!(matches!(locked.open([mine()]), Err(Error::InvalidArgument { .. })));
    let db = sim.options().comparator(mine()).comparator(other()).open().unwrap();
    assert!(contents(&db.family(NAME).unwrap()) == expected);
}

#[test]
fn a_lock_finds_nothing_missing_where_no_database_is_and_reports_damage() {
    let sim = Sim::new();
    let locked = sim.options().lock().unwrap();
    assert!(locked.missing_comparators().unwrap().is_empty());
    locked.open([]).unwrap().close().unwrap();
    let names = sim.disk.file_names(DB).unwrap();
    let manifest = names.iter().find(|name| name.ends_with(".manifest")).unwrap();
    sim.disk.corrupt(format!("{DB}/{manifest}"), 20, |b| b ^ 0x40).unwrap();
    let e = sim.options().lock().unwrap().missing_comparators().unwrap_err();
    assert!(e.is_corruption(), "{e}");
}

#[test]
fn a_tool_reads_the_families_whose_comparators_it_knows() {
    let sim = Sim::new();
    let (db, f) = sample(&sim);
    let expected = contents(db.default_family());
    let beside = sim.options().allow_unknown(true).open_reader().unwrap();
    assert_eq!(beside.view().families(), ["default"]);
    assert!(contents(beside.view().default_family()) == expected);
    f.put(&key(1), b"more").unwrap();
    db.put(b"new", b"row").unwrap();
    db.flush().unwrap();
    f.put(&key(2), b"more").unwrap();
    let expected = contents(db.default_family());
    let view = beside.refresh().unwrap();
    assert!(view.families() == ["default"] && contents(view.default_family()) == expected);
    drop((view, beside));
    db.abandon();
    let before = files(&sim);
    let db = sim.options().allow_unknown(true).read_only(true).open().unwrap();
    assert_eq!(db.families(), ["default"]);
    assert!(matches!(db.family(NAME), Err(Error::NotFound { .. })));
    assert!(contents(db.default_family()) == expected);
    assert!(db.verify().unwrap().is_ok());
    drop(db);
    assert!(files(&sim) == before, "a read-only open changed files");
    let db = sim.options().comparator(mine()).open().unwrap();
    assert_eq!(value(&db.family(NAME).unwrap(), &key(2)).unwrap(), b"more");
}
