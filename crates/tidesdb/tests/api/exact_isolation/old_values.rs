//! Writes that return the old value: `replace` and `take`.

use std::sync::Mutex;
use std::time::Duration;

use tidesdb::{Comparator, Db, Error, Isolation, Slice};

use crate::common::{Sim, joined, small, value};

fn text(value: Option<Slice>) -> Option<String> {
    value.map(|value| String::from_utf8(value.into_vec()).unwrap())
}

fn some(value: &str) -> Option<String> {
    Some(value.to_owned())
}

#[test]
fn the_value_before_is_returned_wherever_it_is() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.create_family("f", joined()).unwrap();
    assert_eq!(text(f.replace("k", "1").unwrap()), None);
    assert_eq!(text(f.replace("k", "2").unwrap()), some("1"));
    f.flush().unwrap();
    assert_eq!(text(f.replace("k", "3".repeat(2000)).unwrap()), some("2"));
    f.flush().unwrap();
    assert_eq!(f.take("k").unwrap().unwrap().len(), 2000, "in a value log");
    assert_eq!(text(f.take("k").unwrap()), None);
    f.put("k", "4").unwrap();
    f.delete_range("a"..).unwrap();
    assert_eq!(text(f.replace("k", "5").unwrap()), None, "deleted by a range");
    f.merge("k", "6").unwrap();
    assert_eq!(text(f.take("k").unwrap()), some("5.6"));
    f.put_with_ttl("k", "7", Duration::from_secs(1)).unwrap();
    sim.clock.advance(Duration::from_secs(2));
    assert_eq!(text(f.take("k").unwrap()), None, "expired");
    assert_eq!((text(db.replace("k", "d").unwrap()), text(db.take("k").unwrap())), (None, some("d")));
    assert!(!f.contains("k").unwrap() && !db.contains("k").unwrap());
}

#[test]
fn a_transaction_gets_its_own_writes_back() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    f.put("old", "1").unwrap();
    let mut tx = db.begin(Isolation::Serializable);
    assert_eq!(text(tx.take(f, "absent").unwrap()), None);
    assert!(tx.is_empty(), "there was nothing to delete");
    assert_eq!(text(tx.replace(f, "old", "2").unwrap()), some("1"));
    assert_eq!(text(tx.replace(f, "old", "3").unwrap()), some("2"));
    assert_eq!(text(tx.take(f, "old").unwrap()), some("3"));
    assert_eq!(text(tx.take(f, "old").unwrap()), None);
    assert_eq!(tx.len(), 3);
    assert_eq!(text(tx.replace(f, "new", "4").unwrap()), None);
    tx.commit().unwrap();
    assert_eq!((value(f, b"old"), value(f, b"new")), (None, Some(b"4".to_vec())));
}

/// What is returned is what the commit replaces: a write of another commit between is a conflict, also if there was no value.
#[test]
fn no_write_comes_between() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        for (was, key) in [(true, "there"), (false, "absent")] {
            f.delete(key).unwrap();
            if was {
                f.put(key, "1").unwrap();
            }
            for takes in [true, false] {
                let mut tx = db.begin(level);
                let old = if takes { tx.take(f, key) } else { tx.replace(f, key, "mine") };
                assert_eq!(old.unwrap().is_some(), was);
                tx.put(f, "other", "v").unwrap();
                f.put(key, "1").unwrap();
                assert!(matches!(tx.commit(), Err(Error::Conflict { .. })), "{level:?} {key} {takes}");
                if !was {
                    f.delete(key).unwrap();
                }
            }
        }
    }
}

#[test]
fn each_value_is_returned_once_to_many_threads() {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 300;
    // The pauses between attempts need a clock that goes on: the simulated one returns at once.
    let dir = tempfile::tempdir().unwrap();
    let db = Db::options(dir.path()).background_threads(1).open().unwrap();
    // Other threads run between the read and the commit.
    let order = Comparator::custom("yielding", |a, b| {
        std::thread::yield_now();
        a.cmp(b)
    });
    let f = db.create_family("f", small().comparator(order)).unwrap();
    for n in 0..ROUNDS {
        f.put(format!("job{n}"), n.to_string()).unwrap();
    }
    let (taken, replaced) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|s| {
        for thread in 0..THREADS {
            let (f, taken, replaced) = (&f, &taken, &replaced);
            s.spawn(move || {
                for n in 0..ROUNDS {
                    let job = text(f.take(format!("job{n}")).unwrap());
                    let before = text(f.replace("last", (thread * ROUNDS + n).to_string()).unwrap());
                    taken.lock().unwrap().extend(job);
                    replaced.lock().unwrap().extend(before);
                }
            });
        }
    });
    let mut replaced = replaced.into_inner().unwrap();
    replaced.extend(text(f.take("last").unwrap()));
    for (mut values, n) in [(taken.into_inner().unwrap(), ROUNDS), (replaced, THREADS * ROUNDS)] {
        values.sort_by_key(|value| value.parse::<u32>().unwrap());
        assert!(values.into_iter().eq((0..n).map(|n| n.to_string())), "each value once");
    }
    assert_eq!(f.iter().unwrap().count(), 0);
}
