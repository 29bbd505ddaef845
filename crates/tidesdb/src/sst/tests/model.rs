//! Compares random tables with sorted vectors.

use super::*;
use crate::sst::TableCursor;
use crate::sst::block::LIMITS;
use crate::sst::blocks::WHOLE_BYTES;
use crate::sst::index::CurrentPartition;
use crate::types::EXPIRY_MAX;

/// Returns a random key of one of several shapes.
fn random_key(rng: &mut Rng, flavour: usize) -> Vec<u8> {
    match flavour {
        0 => {
            let n = rng.below(4);
            (0..n).map(|_| rng.below(3) as u8).collect()
        }
        1 => format!("user/{:012}/profile", rng.below(100_000)).into_bytes(),
        2 => {
            let n = rng.below(20);
            let mut key = vec![0xFF; n];
            key.extend((0..rng.below(3)).map(|_| rng.below(2) as u8 * 0xFF));
            key
        }
        3 => {
            let n = [7, 8, 9, 16, 300][rng.below(5)];
            let mut key = vec![b'p'; n];
            key.extend(rng.next().to_le_bytes().iter().take(rng.below(9)));
            key
        }
        4 => rng.next().to_le_bytes().to_vec(),
        5 if rng.one_in(40) => {
            let n = 65_536 - rng.below(3);
            let mut key = vec![b'k'; n];
            key[n - 1] = rng.next() as u8;
            key
        }
        5 => {
            let n = rng.below(60);
            rng.bytes(n)
        }
        _ => {
            let n = rng.below(6);
            (0..n).map(|_| b"aAbB"[rng.below(4)]).collect()
        }
    }
}

fn random_value(rng: &mut Rng) -> Vec<u8> {
    let n = match rng.below(20) {
        0..4 => 0,
        4..14 => rng.below(120),
        14..18 => 100,
        18 => rng.below(6000),
        _ if rng.one_in(10) => rng.below(60_000),
        _ => 1,
    };
    match rng.below(3) {
        0 => rng.bytes(n),
        1 => vec![b'v'; n],
        _ => b"the quick brown fox jumps ".iter().cycle().take(n).copied().collect(),
    }
}

fn random_entry(rng: &mut Rng, key: Vec<u8>, seq: SeqNo, plain: bool) -> Entry {
    let kind = match rng.below(8) {
        _ if plain => Kind::Put,
        0 => Kind::Delete,
        1 => Kind::SingleDelete,
        2 => Kind::PutPointer,
        _ => Kind::Put,
    };
    let expiry = if plain || rng.one_in(2) { 0 } else { random_expiry(rng) };
    let value = match kind {
        Kind::Put => random_value(rng),
        Kind::PutPointer => {
            let mut pointer = rng.bytes(24);
            pointer[..4].copy_from_slice(&(1 + rng.below(5) as u32).to_le_bytes());
            pointer
        }
        _ => Vec::new(),
    };
    Entry { key, seq, kind, expiry, value }
}

/// Returns an expiry; blocks have columns of every width, with and without entries that never expire.
fn random_expiry(rng: &mut Rng) -> u64 {
    const BASE: u64 = 1_800_000_000_250;
    match rng.below(5) {
        0 => BASE,
        1 => BASE + rng.next() % 200,
        2 => BASE + rng.next() % 60_000,
        3 => BASE + rng.next() % 4_000_000_000,
        _ => 1 + rng.next() % EXPIRY_MAX,
    }
}

fn random_entries(rng: &mut Rng, order: &Comparator, flavour: usize) -> Vec<Entry> {
    let most = [3, 40, 1500][rng.below(3)];
    let keys = 1 + rng.below(most);
    let plain = rng.one_in(3);
    let mut entries = Vec::new();
    let mut seqs = std::collections::BTreeSet::new();
    for _ in 0..keys {
        let key = random_key(rng, flavour);
        let versions = match rng.below(60) {
            0 => rng.below(700),
            1..6 => rng.below(5),
            _ => 0,
        };
        for _ in 0..=versions {
            let seq = [rng.below(8), rng.below(60_000), rng.next() as usize >> 18][rng.below(3)] as SeqNo;
            seqs.insert(seq);
            entries.push(random_entry(rng, key.clone(), seq, plain));
        }
    }
    entries.sort_by(|a, b| order.compare(&a.key, &b.key).then(b.seq.cmp(&a.seq)));
    entries.dedup_by(|a, b| order.compare(&a.key, &b.key).is_eq() && a.seq == b.seq);
    entries
}

fn check_gets(rng: &mut Rng, table: &Table, entries: &[Entry], order: &Comparator, flavour: usize) {
    let guard = tidesdb_sync::pin();
    for round in 0..entries.len().min(600) + 50 {
        let e = &entries[rng.below(entries.len())];
        let key = if round % 4 == 0 { random_key(rng, flavour) } else { e.key.clone() };
        let snapshot = [e.seq, e.seq.saturating_sub(1), rng.below(60_000) as u64, u64::MAX][rng.below(4)];
        let expected = expect_get(entries, order, &key, snapshot);
        assert_eq!(get(table, &key, snapshot).unwrap(), expected);
        let contains = table.get(&key, key_hash(&key), snapshot, false, &guard).unwrap();
        assert_eq!(contains.is_some(), expected.is_some());
        assert!(contains.is_none_or(|f| f.value.is_empty()));
    }
}

fn check_walks(
    rng: &mut Rng,
    cursor: &mut TableCursor,
    entries: &[Entry],
    order: &Comparator,
    flavour: usize,
) {
    cursor.seek_to_first().unwrap();
    for e in entries {
        assert!(cursor.valid());
        assert_eq!(&at(cursor).unwrap(), e);
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    for e in entries.iter().rev() {
        assert!(cursor.valid());
        assert_eq!(cursor.key(), e.key);
        if rng.one_in(3) {
            assert_eq!(&at(cursor).unwrap(), e);
        }
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
    for _ in 0..300 {
        check_seek(rng, cursor, entries, order, flavour);
    }
}

fn check_seek(
    rng: &mut Rng,
    cursor: &mut TableCursor,
    entries: &[Entry],
    order: &Comparator,
    flavour: usize,
) {
    let target = match rng.below(3) {
        0 => random_key(rng, flavour),
        _ => entries[rng.below(entries.len())].key.clone(),
    };
    let mut place = match rng.below(4) {
        0 => {
            cursor.seek(&target).unwrap();
            entries.partition_point(|e| order.compare(&e.key, &target).is_lt())
        }
        1 => {
            cursor.seek_for_prev(&target).unwrap();
            entries.partition_point(|e| order.compare(&e.key, &target).is_le()).wrapping_sub(1)
        }
        _ => {
            let near = entries[rng.below(entries.len())].seq;
            let seq = [near, near.wrapping_sub(1), rng.below(60_000) as u64][rng.below(3)];
            cursor.seek_version(&target, seq).unwrap();
            entries.partition_point(|e| order.compare(&e.key, &target).then(seq.cmp(&e.seq)).is_lt())
        }
    };
    for _ in 0..rng.below(12) {
        let Some(e) = entries.get(place) else { break };
        assert!(cursor.valid());
        if rng.one_in(2) {
            assert_eq!(&at(cursor).unwrap(), e);
        } else {
            assert_eq!((cursor.key(), cursor.seq(), cursor.kind()), (&*e.key, e.seq, e.kind));
        }
        match rng.below(5) {
            0 => {
                cursor.next_key().unwrap();
                place = entries.partition_point(|other| order.compare(&other.key, &e.key).is_le());
            }
            1 | 2 => {
                cursor.next().unwrap();
                place = place.wrapping_add(1);
            }
            _ => {
                cursor.prev().unwrap();
                place = place.wrapping_sub(1);
            }
        }
    }
    assert_eq!(cursor.valid(), place < entries.len());
}

fn check_meta(meta: &TableMeta, entries: &[Entry], order: &Comparator) {
    assert_eq!(meta.entries, entries.len() as u64);
    assert_eq!(meta.tombstones, entries.iter().filter(|e| e.kind.is_tombstone()).count() as u64);
    assert_eq!(meta.smallest, entries[0].key);
    assert_eq!(meta.largest, entries[entries.len() - 1].key);
    assert_eq!(Some(meta.min_seq), entries.iter().map(|e| e.seq).min());
    assert_eq!(Some(meta.max_seq), entries.iter().map(|e| e.seq).max());
    let expiries = || entries.iter().map(|e| e.expiry).filter(|&e| e != 0);
    assert_eq!(meta.oldest_expiry, expiries().min().unwrap_or(0));
    assert_eq!(meta.newest_expiry, expiries().max().unwrap_or(0));
    assert_eq!(meta.has_eternal, entries.iter().any(|e| e.expiry == 0));
    let keys = 1 + entries.windows(2).filter(|w| order.compare(&w[0].key, &w[1].key).is_lt()).count();
    assert_eq!(meta.keys, keys as u64);
    let pointers = entries.iter().filter(|e| e.kind == Kind::PutPointer);
    assert_eq!(meta.vlog_refs.iter().map(|r| r.count).sum::<u64>(), pointers.clone().count() as u64);
    let bytes: u64 = pointers.map(|e| u64::from(u32::from_le_bytes(e.value[4..8].try_into().unwrap()))).sum();
    assert_eq!(meta.vlog_refs.iter().map(|r| r.bytes).sum::<u64>(), bytes);
    let mut encoded = Vec::new();
    meta.encode(&mut encoded);
    let mut d = crate::codec::Decoder::new(&encoded, "manifest", 0);
    assert_eq!(&TableMeta::decode(&mut d).unwrap(), meta);
    d.finish().unwrap();
}

#[test]
fn random_tables_behave_like_sorted_vectors() {
    let orders = [
        Comparator::bytewise(),
        Comparator::bytewise(),
        Comparator::reverse_bytewise(),
        Comparator::case_insensitive(),
        Comparator::u64_le(),
    ];
    for seed in 0..120 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let order = &orders[rng.below(orders.len())];
        let flavour = rng.below(7);
        let entries = random_entries(&mut rng, order, flavour);
        let mut rig = Rig::new();
        rig.partition_bytes = [1, 40, 300, 4096][rng.below(4)];
        let options = TableOptions {
            compression: ALL[rng.below(5)],
            filter_bits_per_key: [0, 1, 10, 20][rng.below(4)],
        };
        let id = TableId(1 + seed);
        let mut w = TableWriter::create(&rig.dir, id, salt(id.0), options, order.clone()).unwrap();
        if rng.one_in(3) {
            w.set_limits(OLD_LIMITS);
        }
        entries.iter().for_each(|e| w.add(e.borrow()).unwrap());
        let meta = Arc::new(w.finish().unwrap());
        check_meta(&meta, &entries, order);
        for is_crowded in [false, true] {
            // A cache large enough for everything, for a part, or for nothing.
            let bytes = [1 << 24, 1 << 15, 0][rng.below(3)];
            let (context, _room) = match is_crowded {
                true => {
                    let (context, share) = rig.crowded(bytes);
                    (context, Some(share))
                }
                false => (rig.context(bytes), None),
            };
            let table = Table::open(&context, order, Arc::clone(&meta)).unwrap();
            check_gets(&mut rng, &table, &entries, order, flavour);
            let mut cursor = TableCursor::new(Arc::clone(&table));
            check_walks(&mut rng, &mut cursor, &entries, order, flavour);
            let mut cursor = TableCursor::bypassing_cache(Arc::clone(&table));
            check_walks(&mut rng, &mut cursor, &entries, order, flavour);
            assert_eq!(table.verify().unwrap(), entries.len() as u64);
        }
    }
}

#[test]
fn a_block_that_a_writer_keeps_is_the_one_that_a_reader_caches() {
    let (mut kept, mut long) = (0, 0);
    for seed in 0..80 {
        let mut rng = Rng::new(1000 + seed);
        let order = &[Comparator::bytewise(), Comparator::case_insensitive()][rng.below(2)];
        let flavour = rng.below(7);
        let entries = random_entries(&mut rng, order, flavour);
        let rig = Rig::new();
        let (options, id) = (options(ALL[rng.below(5)]), TableId(1));
        let writing = Arc::new(rig.context(1 << 26));
        let w = TableWriter::create(&rig.dir, id, salt(seed), options, order.clone()).unwrap();
        let mut w = w.caching(&writing);
        entries.iter().for_each(|e| w.add(e.borrow()).unwrap());
        let meta = Arc::new(w.finish().unwrap());
        let reading = rig.context(1 << 26);
        let table = Table::open(&reading, order, Arc::clone(&meta)).unwrap();
        scan(&table).1.unwrap();
        for b in 0..table.blocks().count() {
            let key = table.blocks().parts().key(b, 0);
            let read = reading.cache.get(key).unwrap();
            let fence = table.blocks().index().fence(&mut CurrentPartition::default(), b).unwrap();
            let values = read.block().unwrap().block().values_len();
            let is_long = fence.disk > WHOLE_BYTES || values > LIMITS.values;
            match writing.cache.get(key) {
                Some(block) => {
                    assert_eq!(format!("{block:?}"), format!("{read:?}"), "block {b} of seed {seed}");
                }
                None => assert!(is_long, "block {b} of seed {seed} is not kept"),
            }
            (kept, long) = (kept + u32::from(!is_long), long + u32::from(is_long));
        }
        let table = Table::open(&writing, order, meta).unwrap();
        check_gets(&mut rng, &table, &entries, order, flavour);
        check_walks(&mut rng, &mut TableCursor::new(table), &entries, order, flavour);
    }
    assert!(kept > 500 && long > 5, "{kept} blocks kept, {long} long ones");
}

#[test]
fn a_writer_keeps_blocks_only_where_they_are_read_and_no_others_leave_for_them() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let entries: Vec<_> = (0..20_000u32).map(|i| Entry::put(format!("{i:05}"), 1, [7; 100])).collect();
    let write = |id, context: &Arc<TableContext>| {
        let options = options(Compression::None);
        let w = TableWriter::create(&rig.dir, TableId(id), salt(id), options, order.clone()).unwrap();
        let mut w = w.caching(context);
        entries.iter().for_each(|e| w.add(e.borrow()).unwrap());
        w
    };
    let small = Arc::new(rig.context(1 << 20));
    write(2, &small).finish().unwrap();
    let stats = small.cache.stats();
    assert!(stats.inserts > 200 && stats.used_bytes > 15 << 16 && stats.evictions == 0, "{stats:?}");
    let abandoned = Arc::new(rig.context(1 << 26));
    let before = abandoned.cache.stats().entries;
    let w = write(3, &abandoned);
    assert!(abandoned.cache.stats().entries > before + 400);
    w.abandon();
    assert_eq!(abandoned.cache.stats().entries, before);
}

#[test]
fn a_key_may_have_versions_in_many_blocks() {
    let versions = 100_000;
    let mut entries = vec![Entry::put("a", 5, "before")];
    entries.extend((0..versions).rev().map(|i| Entry::put("key", 10 + 2 * i, i.to_string())));
    entries.push(Entry::put("key\0", 7, "after"));
    entries.push(Entry::put("z", 8, "last"));
    for compression in [Compression::None, Compression::Lz4] {
        let rig = Rig::new();
        let order = Comparator::bytewise();
        let meta = rig.write(1, &entries, options(compression), &order);
        let table = rig.open(&meta, &order, true).unwrap();
        assert!(table.blocks().count() > 300);
        for i in (0..versions).step_by(7).chain([0, versions - 1]) {
            for snapshot in [10 + 2 * i, 11 + 2 * i] {
                let found = get(&table, b"key", snapshot).unwrap().unwrap();
                assert_eq!((found.seq, found.value), (10 + 2 * i, i.to_string().into_bytes()));
            }
        }
        assert_eq!(get(&table, b"key", 9).unwrap(), None);
        assert_eq!(get(&table, b"ke", u64::MAX).unwrap(), None);
        assert_eq!(get(&table, b"key\0", u64::MAX).unwrap().unwrap().seq, 7);
        let mut cursor = TableCursor::new(Arc::clone(&table));
        cursor.seek(b"key").unwrap();
        assert_eq!(cursor.seq(), 10 + 2 * (versions - 1));
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), b"a");
        cursor.seek_for_prev(b"key").unwrap();
        assert_eq!(cursor.seq(), 10);
        cursor.next().unwrap();
        assert_eq!(cursor.key(), b"key\0");
        // A seek within the loaded block, which ends with the key: the key's first version is in a much earlier block.
        cursor.seek_for_prev(b"key").unwrap();
        cursor.seek(b"key").unwrap();
        assert_eq!(cursor.seq(), 10 + 2 * (versions - 1));
        assert_eq!(scan(&table).0, entries);
        assert_eq!(table.verify().unwrap(), entries.len() as u64);
    }
}

#[test]
fn a_writer_refuses_unordered_or_malformed_entries() {
    let rig = Rig::new();
    let order = Comparator::bytewise();
    let create = |id| {
        TableWriter::create(&rig.dir, TableId(id), salt(id), options(Compression::Lz4), order.clone())
            .unwrap()
    };
    let wrong = [("a", 9), ("b", 5), ("b", 6)];
    for (id, (key, seq)) in wrong.into_iter().enumerate() {
        let mut w = create(id as u64);
        w.add(Entry::put("b", 5, "").borrow()).unwrap();
        assert_eq!(w.last_key(), b"b");
        let error = w.add(Entry::put(key, seq, "").borrow()).unwrap_err();
        assert!(matches!(error, crate::Error::Internal { .. }), "{error}");
        w.abandon();
    }
    let mut w = create(10);
    let tombstone = Entry { kind: Kind::Delete, ..Entry::put("k", 1, "v") };
    assert!(w.add(tombstone.borrow()).is_err());
    assert!(create(11).finish().is_err(), "a table without entries must be refused");
    let mut w = create(12);
    assert!(w.add(Entry { kind: Kind::PutPointer, ..Entry::put("k", 1, "v") }.borrow()).is_err());
    assert!(w.add(Entry::put(vec![0; 65_537], 1, "v").borrow()).is_err());
    w.abandon();
    assert!(
        !rig.dir.list().unwrap().contains(&crate::files::table(TableId(0))),
        "the files of abandoned tables must be removed"
    );
    assert!(
        TableWriter::create(&rig.dir, TableId(10), salt(1), options(Compression::Lz4), order.clone())
            .is_err()
    );
}
