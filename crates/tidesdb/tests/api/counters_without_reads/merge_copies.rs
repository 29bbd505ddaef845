//! Operands in readers beside the writer, in an object store, and in families whose settings change.

use std::sync::Arc;
use std::time::Duration;

use tidesdb::{Error, MergeOperator, Slice, Snapshot, WriteBatch};

use crate::common::{Random, Sim, contents, joined, joins, noise, small};

#[test]
fn a_reader_beside_the_writer_combines_what_it_follows() {
    let mine = || MergeOperator::custom("mine", joins);
    let sim = Sim::new();
    let db = sim.open();
    let reader = sim.options().merge_operator(mine()).open_reader().unwrap();
    let blind = sim.options().allow_unknown(true).open_reader().unwrap();
    let mut options = small().merge_operator(mine());
    options.min_levels = 2;
    let f = db.create_family("counts", options).unwrap();
    let mut random = Random::new(99);
    let mut views = Vec::new();
    let mut failed = 0;
    for n in 0..400u32 {
        let key = format!("k{}", random.below(9));
        match random.below(10) {
            0 => drop(f.put(&key, noise(n.into(), 700)).unwrap()),
            1 => drop(f.put(&key, "short").unwrap()),
            2 => drop(f.delete(&key).unwrap()),
            3 if n % 4 == 0 => drop(f.delete_range(&key[..].."k5").unwrap()),
            4 if n % 3 == 0 => f.flush().unwrap(),
            5 if n % 7 == 0 => f.compact().unwrap(),
            6 => {
                let mut batch = WriteBatch::new();
                batch.put(&f, &key, "batch").unwrap();
                batch.merge(&f, &key, "1").unwrap();
                batch.merge(&f, &key, "2").unwrap();
                db.write(&mut batch).unwrap();
            }
            _ => drop(f.merge(&key, format!(",{n}")).unwrap()),
        }
        if random.one_in(3) {
            let view = reader.refresh().unwrap();
            let rows = contents(&view.family("counts").unwrap());
            assert_eq!(rows, contents(&f), "step {n}");
            views.push((view, rows));
            let blind = blind.refresh().unwrap();
            let view = blind.family("counts").unwrap();
            for (key, value) in contents(&f) {
                match view.get(&key) {
                    Ok(found) => assert_eq!(found.unwrap().into_vec(), value, "step {n}"),
                    Err(e) => failed += u32::from(matches!(e, Error::Merge { .. })),
                }
            }
        }
        if let Some((view, rows)) = views.get(random.index(40)) {
            assert_eq!(contents(&view.family("counts").unwrap()), *rows, "step {n}");
        }
    }
    assert!(failed > 0);
}

#[test]
fn a_batch_with_memtables_of_its_own_lies_between_operands() {
    let sim = Sim::new();
    let db = sim.options().default_family(joined().write_buffer_bytes(256 << 10)).open().unwrap();
    let f = db.default_family();
    f.merge("k", "a").unwrap();
    f.merge("l", "a").unwrap();
    let before = db.snapshot();
    let mut batch = WriteBatch::new();
    for n in 0..6000u32 {
        batch.put(f, n.to_be_bytes(), noise(n.into(), 400)).unwrap();
    }
    batch.put(f, "k", "B").unwrap();
    batch.delete(f, "l").unwrap();
    db.write(&mut batch).unwrap();
    let between = db.snapshot();
    f.merge("k", "c").unwrap();
    f.merge("l", "c").unwrap();
    let text = |value: Option<Slice>| value.map(|v| String::from_utf8(v.into_vec()).unwrap());
    for _ in 0..3 {
        let read = |s: &Snapshot, key: &str| text(s.get(f, key).unwrap());
        assert_eq!((read(&before, "k"), read(&before, "l")), (Some("a".into()), Some("a".into())));
        assert_eq!((read(&between, "k"), read(&between, "l")), (Some("B".into()), None));
        assert_eq!(text(f.get("k").unwrap()).unwrap(), "B.c");
        assert_eq!(text(f.get("l").unwrap()).unwrap(), "c");
        let last = contents(f).into_iter().rev().take(2).map(|row| row.1).collect::<Vec<_>>();
        assert_eq!(last, [&b"c"[..], b"B.c"]);
        db.compact().unwrap();
    }
}

#[test]
fn settings_of_a_family_with_an_operator_change_and_survive() {
    let sim = Sim::new();
    let db = sim.options().default_family(joined().default_ttl(Duration::from_secs(60))).open().unwrap();
    let f = db.default_family();
    f.put("k", "1").unwrap();
    f.merge("k", "2").unwrap();
    let other = db.create_family("other", joined().value_threshold(7)).unwrap();
    other.merge("k", "1").unwrap();
    for n in 1..4 {
        let options = other.current_options().value_threshold(n * 10);
        other.change_options(options).unwrap();
        let mut without = other.current_options();
        without.merge_operator = None;
        assert!(other.change_options(without).is_err());
    }
    db.compact().unwrap();
    let mut sim = sim.killed();
    for _ in 0..2 {
        let db = sim.open_as_stored();
        assert_eq!(db.default_family().current_options().default_ttl, Duration::from_secs(60));
        assert_eq!(db.family("other").unwrap().current_options().value_threshold, 30);
        assert_eq!(&*db.get("k").unwrap().unwrap(), b"1.2");
        db.merge("l", "1").unwrap();
        db.close().unwrap();
        sim = sim.killed();
    }
}

#[test]
fn an_object_store_restores_operands() {
    let store = Arc::new(tidesdb::MemoryStore::default());
    let remote = || tidesdb::RemoteOptions::new(Arc::clone(&store) as Arc<dyn tidesdb::ObjectStore>);
    let sim = Sim::new();
    let db = sim.options().default_family(joined()).remote(remote()).open().unwrap();
    for n in 0..50u32 {
        db.merge((n % 5).to_be_bytes(), format!("{n}")).unwrap();
        if n % 20 == 15 {
            db.flush().unwrap();
        }
    }
    let rows = contents(db.default_family());
    db.close().unwrap();
    let db = Sim::new().options().default_family(joined()).remote(remote()).open().unwrap();
    assert_eq!(contents(db.default_family()), rows);
}

#[test]
fn recovered_operations_meet_the_tables_that_were_there_before() {
    let order = || tidesdb::Comparator::custom("by-length", |a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
    let sim = Sim::new();
    let db = sim.open();
    let words = db.create_family("words", joined().comparator(order())).unwrap();
    for key in ["deleted", "merged", "ranged", "expires"] {
        words.put(key, "old").unwrap();
    }
    words.flush().unwrap();
    words.delete("deleted").unwrap();
    words.merge("merged", "1").unwrap();
    words.merge("merged", "2").unwrap();
    words.merge("alone", "1").unwrap();
    words.put_with_ttl("expires", "new", Duration::from_secs(1)).unwrap();
    words.delete_range("ranged".."ranger").unwrap();
    words.merge("ranged", "3").unwrap();
    let sim = sim.killed();
    sim.clock.advance(Duration::from_secs(10));
    let db = sim.options().comparator(order()).open().unwrap();
    let words = db.family("words").unwrap();
    let want = [("alone", "1"), ("merged", "old.1.2"), ("ranged", "3")];
    for _ in 0..2 {
        let rows = contents(&words).into_iter().map(|(k, v)| (String::from_utf8(k).unwrap(), v));
        assert!(rows.eq(want.map(|(k, v)| (k.to_owned(), v.as_bytes().to_vec()))), "{:?}", contents(&words));
        words.compact().unwrap();
    }
}
