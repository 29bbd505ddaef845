//! Point reads: get, contains, multi_get, get_map.

use tidesdb::{Error, Isolation, KEY_BYTES_MAX};

use crate::common::{Sim, fill, noise, small, value};

/// Where the data of a read may be stored.
const PLACES: [&str; 4] = ["memtable", "level 1", "bottom", "reopened"];

/// Calls `write`, and runs `check` with its data in each place.
fn everywhere(write: impl Fn(&tidesdb::Family), check: impl Fn(&tidesdb::Family, &str)) {
    for place in PLACES {
        let sim = Sim::new();
        let mut db = sim.open();
        write(db.default_family());
        match place {
            "level 1" => db.flush().unwrap(),
            "bottom" => db.compact().unwrap(),
            "reopened" => {
                db.close().unwrap();
                db = sim.open();
            }
            _ => {}
        }
        check(db.default_family(), place);
    }
}

#[test]
fn the_newest_value_is_read() {
    everywhere(
        |f| {
            for i in 0..300u32 {
                f.put(&(i % 100).to_be_bytes(), format!("value {i}").as_bytes()).unwrap();
            }
        },
        |f, place| {
            for i in 0..100u32 {
                assert_eq!(
                    value(f, &i.to_be_bytes()).unwrap(),
                    format!("value {}", i + 200).as_bytes(),
                    "{place}"
                );
            }
            assert!(value(f, &100u32.to_be_bytes()).is_none());
        },
    );
}

#[test]
fn newer_tables_hide_older_ones() {
    let sim = Sim::new();
    let db = sim.open();
    for round in 0..3u8 {
        for key in 0..=round {
            db.put(&[b'a' + key], &[round; 3]).unwrap();
        }
        db.flush().unwrap();
    }
    db.put(b"a", b"memtable").unwrap();
    let f = db.default_family();
    assert_eq!(value(f, b"a").unwrap(), b"memtable");
    assert_eq!((value(f, b"b").unwrap(), value(f, b"c").unwrap()), (vec![2; 3], vec![2; 3]));
}

#[test]
fn empty_values_exist() {
    everywhere(
        |f| {
            f.put(b"k", b"").unwrap();
        },
        |f, place| {
            assert_eq!(value(f, b"k"), Some(Vec::new()), "{place}");
            assert!(f.contains(b"k").unwrap(), "{place}");
            assert_eq!(f.get_map(b"k", <[u8]>::len).unwrap(), Some(0));
        },
    );
}

#[test]
fn similar_keys_are_different_keys() {
    let keys: [&[u8]; 12] = [
        b"\0",
        b"\0\0",
        b"\0\x01",
        b"\x01",
        b"a",
        b"a\0",
        b"a\0b",
        b"a\xff",
        b"b",
        b"\xff",
        b"\xff\0",
        b"\xff\xff",
    ];
    everywhere(
        |f| {
            for k in keys.iter().rev() {
                f.put(k, &[k, &b"!"[..]].concat()).unwrap();
            }
        },
        |f, place| {
            for key in keys {
                assert_eq!(value(f, key).unwrap(), [key, b"!"].concat(), "{place}");
                assert!(!f.contains(&[key, b"\0\0\0"].concat()).unwrap());
            }
            let found: Vec<_> = f.iter().unwrap().map(|kv| kv.unwrap().0.into_vec()).collect();
            assert_eq!(found, keys, "{place}");
        },
    );
}

#[test]
fn an_empty_key_is_never_found() {
    everywhere(
        |f| fill(f, 10, b"v"),
        |f, _| {
            assert!(f.get(b"").unwrap().is_none() && !f.contains(b"").unwrap());
            assert_eq!(f.multi_get(&[b""]).unwrap(), [None]);
        },
    );
}

#[test]
fn values_of_all_sizes() {
    let sizes: [u32; 12] = [0, 1, 511, 512, 513, 1023, 1024, 4095, 4096, 65_535, 65_536, 300_000];
    everywhere(
        |f| {
            for n in sizes.iter() {
                f.put(&n.to_be_bytes(), &noise(u64::from(*n), *n as usize)).unwrap();
            }
        },
        |f, place| {
            for n in sizes {
                assert!(
                    value(f, &n.to_be_bytes()).unwrap() == noise(u64::from(n), n as usize),
                    "{n} bytes, {place}"
                );
                assert_eq!(f.get_map(&n.to_be_bytes(), <[u8]>::len).unwrap(), Some(n as usize));
            }
        },
    );
}

#[test]
fn a_slice_outlives_the_table_it_came_from() {
    let sim = Sim::new();
    let db = sim.open();
    let mut slices = Vec::new();
    for round in 0..4u8 {
        db.put(b"inline", &[round; 100]).unwrap();
        db.put(b"pinned", &[round; 400]).unwrap();
        db.put(b"separate", &[round; 4000]).unwrap();
        for key in [&b"inline"[..], b"pinned", b"separate"] {
            slices.push((round, db.get(key).unwrap().unwrap()));
        }
        db.flush().unwrap();
        for key in [&b"inline"[..], b"pinned", b"separate"] {
            slices.push((round, db.get(key).unwrap().unwrap()));
        }
    }
    db.compact().unwrap();
    db.close().unwrap();
    for (round, slice) in slices {
        assert!(slice.iter().all(|b| *b == round));
    }
}

#[test]
fn a_pinned_value_outlives_its_memtable() {
    let sim = Sim::new();
    let db = sim.options().default_family(small().value_threshold(1 << 20)).open().unwrap();
    db.put(b"k", &noise(1, 50_000)).unwrap();
    let slice = db.get(b"k").unwrap().unwrap();
    db.delete(b"k").unwrap();
    db.compact().unwrap();
    fill(db.default_family(), 1000, &[9; 500]);
    assert!(*slice == *noise(1, 50_000));
}

#[test]
fn multi_get_returns_values_in_the_order_of_the_keys() {
    everywhere(
        |f| {
            fill(f, 100, b"v");
            f.put(b"big", &[5; 3000]).unwrap();
            f.delete(b"key000007").unwrap();
        },
        |f, place| {
            let keys: [&[u8]; 6] =
                [b"key000050", b"missing", b"big", b"key000050", b"key000007", b"key000000"];
            let got = f.multi_get(&keys).unwrap();
            let got: Vec<_> = got.iter().map(|v| v.as_ref().map(|v| v.len())).collect();
            assert_eq!(got, [Some(1), None, Some(3000), Some(1), None, Some(1)], "{place}");
            assert!(f.multi_get::<&[u8]>(&[]).unwrap().is_empty());
        },
    );
}

#[test]
fn contains_never_reads_a_value() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"big", &[1; 5000]).unwrap();
    db.flush().unwrap();
    let vlog = sim.disk.file_names("/db").unwrap().into_iter().find(|n| n.ends_with(".vlog")).unwrap();
    let len = sim.disk.read_file(format!("/db/{vlog}")).unwrap().len() as u64;
    for at in 0..len {
        sim.disk.corrupt(format!("/db/{vlog}"), at, |b| !b).unwrap();
    }
    assert!(db.contains(b"big").unwrap());
    assert!(db.get(b"big").is_err());
}

#[test]
fn without_filters_and_cache() {
    let sim = Sim::new();
    let family = small().filter_bits_per_key(0).write_buffer_bytes(64 << 10);
    let db = sim.options().cache_bytes(0).default_family(family).open().unwrap();
    fill(db.default_family(), 3000, b"some value");
    db.flush().unwrap();
    for i in (0..3000).step_by(17) {
        assert!(db.contains(format!("key{i:06}").as_bytes()).unwrap());
        assert!(!db.contains(format!("key{i:06}x").as_bytes()).unwrap());
    }
}

#[test]
fn the_callback_of_get_with_can_return_an_error() {
    let sim = Sim::new();
    let db = sim.open();
    db.put(b"n", b"42").unwrap();
    db.put(b"x", b"nonsense").unwrap();
    let parse = |v: &[u8]| std::str::from_utf8(v).unwrap().parse::<u32>();
    assert_eq!(db.get_map(b"n", parse).unwrap().unwrap(), Ok(42));
    assert!(db.get_map(b"x", parse).unwrap().unwrap().is_err());
    assert!(db.get_map(b"none", parse).unwrap().is_none());
}

/// What cannot be written is found nowhere, by every kind of read; empty and long targets and bounds are allowed.
#[test]
fn keys_that_cannot_exist_are_found_by_no_read() {
    let sim = Sim::new();
    let db = sim.open();
    let f = db.default_family();
    for _ in 0..2 {
        f.put("a", "v").unwrap();
        let snapshot = db.snapshot();
        let mut tx = db.begin(Isolation::Serializable);
        tx.put(f, "b", "v").unwrap();
        for key in [Vec::new(), vec![b'a'; KEY_BYTES_MAX + 1]] {
            assert!(f.get(&key).unwrap().is_none() && !f.contains(&key).unwrap());
            assert_eq!(f.get_map(&key, <[u8]>::len).unwrap(), None);
            assert_eq!(f.get_part(&key, ..).unwrap(), None);
            assert!(f.value_reader(&key).unwrap().is_none());
            assert_eq!(f.multi_get(&[&key, &b"a".to_vec()]).unwrap()[0], None);
            assert_eq!(f.multi_contains(&[&key, &b"a".to_vec()]).unwrap(), [false, true]);
            assert_eq!((snapshot.get(f, &key).unwrap(), tx.get(f, &key).unwrap()), (None, None));
            assert_eq!((f.take(&key).unwrap(), tx.take(f, &key).unwrap()), (None, None));
            for refused in
                [f.put(&key, "v").map(drop), f.delete(&key).map(drop), f.replace(&key, "v").map(drop)]
            {
                assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
            }
            assert!(matches!(tx.replace(f, &key, "v"), Err(Error::InvalidArgument { .. })));
        }
        assert_eq!(tx.len(), 1);
        let mut cursor = f.cursor().unwrap();
        cursor.seek("").unwrap();
        assert_eq!((cursor.key(), f.range(""..).unwrap().count()), (&b"a"[..], 1));
        db.flush().unwrap();
    }
}

#[test]
fn rows_that_were_read_in_memory_are_in_the_block_cache_after_their_flush() {
    for reads in [0, 10_000] {
        let sim = Sim::new();
        let db = sim.options().cache_bytes(16 << 20).open().unwrap();
        let keys: Vec<_> = (0..4000u32).map(u32::to_be_bytes).collect();
        // One flush writes the tables of all of them.
        let families: Vec<_> = (0..4).map(|n| db.create_family(&format!("f{n}"), small()).unwrap()).collect();
        for f in &families {
            for key in &keys {
                f.put(key, noise(u32::from_be_bytes(*key).into(), 100)).unwrap();
            }
            for n in 0..reads {
                f.get(keys[n % keys.len()]).unwrap().unwrap();
            }
        }
        db.flush().unwrap();
        for f in &families {
            let before = db.stats().cache_misses;
            let rows: Vec<_> = f.iter().unwrap().collect::<Result<_, _>>().unwrap();
            assert!(rows.iter().map(|(key, _)| &**key).eq(keys.iter().map(|key| &key[..])));
            let missed = db.stats().cache_misses - before;
            assert_eq!(missed == 0, reads > 0, "{missed} blocks were read after {reads} gets");
        }
    }
}
