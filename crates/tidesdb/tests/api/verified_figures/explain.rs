//! Explanations: they agree with the reads that they explain, and say truthfully what these read.

use std::ops::Bound;
use std::time::{Duration, SystemTime};

use tidesdb::{
    Comparator, Db, Explanation, Family, FamilyOptions, FilterAnswer, KeyBounds, MergeOperator, Outcome,
    RangeExplanation, ReadOrigin, ReadStep, Snapshot, SourceName, Verdict,
};

use crate::common::{Random, Sim, fill, joined, joins, noise, small};

const KEYS: u64 = 40;

fn key(n: u64) -> Vec<u8> {
    format!("key{n:03}").into_bytes()
}

/// Versions with this verdict.
fn with(explained: &Explanation, is_it: impl Fn(Verdict) -> bool) -> Vec<u64> {
    let versions = explained.sources.iter().flat_map(|source| &source.versions);
    versions.filter(|version| is_it(version.verdict)).map(|version| version.seq).collect()
}

/// Asserts that the verdicts of an explanation lead to its outcome, and that its steps are those of a get.
fn check_consistent(explained: &Explanation) {
    let shown = with(explained, |v| v == Verdict::Shown);
    let combined = with(explained, |v| v == Verdict::Combined);
    match &explained.outcome {
        Outcome::Found { .. } => {
            assert!(
                shown.len() == 1 && combined.is_empty() || shown.is_empty() && !combined.is_empty(),
                "{explained}"
            );
        }
        Outcome::Deleted { seq, .. } => {
            assert_eq!(with(explained, |v| v == Verdict::Deletes), [*seq], "{explained}")
        }
        Outcome::Expired { seq, .. } => {
            assert_eq!(with(explained, |v| v == Verdict::Expired), [*seq], "{explained}")
        }
        Outcome::DeletedByRange { seq, .. } => {
            assert!(shown.is_empty() && combined.is_empty(), "{explained}");
            assert!(
                with(explained, |v| v == Verdict::HiddenByRange { by: *seq }).iter().all(|v| v < seq),
                "{explained}"
            );
        }
        Outcome::NoVersion => {
            let seen = with(explained, |v| v != Verdict::TooNew);
            assert!(seen.is_empty(), "{explained}");
        }
        Outcome::Failed { .. } => assert!(!combined.is_empty(), "{explained}"),
        other => panic!("{other:?}"),
    }
    let seqs: Vec<u64> = explained.sources.iter().flat_map(|s| &s.versions).map(|v| v.seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] >= pair[1]), "newest first: {explained}");
    for source in &explained.sources {
        assert_eq!(source.is_searched, !source.steps.is_empty(), "{explained}");
        let answers = source.steps.iter().filter_map(|step| match step {
            ReadStep::Answer { found, .. } => *found,
            _ => None,
        });
        for found in answers {
            assert!(source.versions.iter().any(|version| version.seq == found), "{explained}");
        }
        if source.filter == FilterAnswer::Excluded {
            assert!(!source.steps.iter().any(|step| matches!(step, ReadStep::Index { .. })), "{explained}");
        }
    }
}

/// Asserts that the explanations of each key and of a range say what the reads return.
fn check_all(family: &Family, snapshot: Option<&Snapshot>, random: &mut Random, random_range: bool) {
    for n in 0..=KEYS {
        let key = key(n);
        let (got, explained) = match snapshot {
            Some(snapshot) => (snapshot.get(family, &key), snapshot.explain(family, &key).unwrap()),
            None => (family.get(&key), family.explain(&key).unwrap()),
        };
        match got {
            Ok(got) => {
                let value = explained.outcome.value();
                assert_eq!(value.map(|v| v.to_vec()), got.map(|v| v.to_vec()), "{explained}");
                assert!(!matches!(explained.outcome, Outcome::Failed { .. }), "{explained}");
            }
            Err(error) => {
                let Outcome::Failed { error: explained_error, .. } = &explained.outcome else {
                    panic!("{explained}")
                };
                assert_eq!(explained_error.to_string(), error.to_string());
            }
        }
        check_consistent(&explained);
    }
    let ends = [key(random.below(KEYS)), key(random.below(KEYS))];
    let bounds: KeyBounds = match random_range {
        true => (Bound::Included(ends[0].clone()), Bound::Excluded(ends[1].clone())),
        false => (Bound::Unbounded, Bound::Unbounded),
    };
    for rows_max in [usize::MAX, 5, 0] {
        let mut cursor = match snapshot {
            Some(snapshot) => snapshot.cursor(family).unwrap(),
            None => family.cursor().unwrap(),
        };
        cursor.set_range(bounds.clone());
        let mut keys = Vec::new();
        cursor.seek_to_first().unwrap();
        while cursor.valid() && keys.len() < rows_max {
            keys.push(cursor.key().to_vec());
            cursor.next().unwrap();
        }
        let explained = match snapshot {
            Some(snapshot) => snapshot.explain_range(family, bounds.clone(), rows_max).unwrap(),
            None => family.explain_range(bounds.clone(), rows_max).unwrap(),
        };
        assert_eq!(explained.keys.iter().map(|key| key.to_vec()).collect::<Vec<_>>(), keys, "{explained}");
        assert_eq!(explained.is_complete, !cursor.valid(), "{explained}");
        check_counts(&explained);
    }
}

fn check_counts(explained: &RangeExplanation) {
    for source in &explained.sources {
        let of_classes = source.shown
            + source.operands
            + source.older
            + source.too_new
            + source.tombstones
            + source.expired
            + source.hidden_by_range;
        assert_eq!(source.entries, of_classes, "{explained}");
    }
    let rows = explained.keys.len() as u64;
    let shown = explained.total(|source| source.shown);
    assert!(shown <= rows && rows <= shown + explained.total(|source| source.operands), "{explained}");
}

fn history(seed: u64, cache_bytes: u64) {
    let sim = Sim::new();
    let db = sim.options().cache_bytes(cache_bytes).open().unwrap();
    let fails = MergeOperator::custom("joins short ones", |value, operand| match operand.len() {
        3 => Err("three bytes are refused".into()),
        _ => joins(value, operand),
    });
    let families = [
        db.default_family().clone(),
        db.create_family("joined", joined()).unwrap(),
        db.create_family("failing", small().merge_operator(fails)).unwrap(),
        db.create_family("reverse", joined().comparator(Comparator::reverse_bytewise())).unwrap(),
        db.create_family("custom", joined().comparator(Comparator::custom("bytes", <[u8]>::cmp))).unwrap(),
    ];
    let mut random = Random::new(seed);
    let mut snapshots = Vec::new();
    for step in 1..=600u64 {
        let family = &families[random.index(families.len())];
        let key = key(random.below(KEYS));
        let long = if random.one_in(6) { 700 } else { 0 };
        let value = noise(step, (random.below(60) + long) as usize);
        let has_operator = family.name() != "default";
        match random.below(20) {
            0..6 => drop(family.put(&key, &value).unwrap()),
            6..9 => drop(family.delete(&key).unwrap()),
            9..11 => {
                let ttl = Duration::from_millis(random.below(4000) + 1);
                family.put_with_ttl(&key, &value, ttl).unwrap();
            }
            11..15 if has_operator => drop(family.merge(&key, &value[..value.len().min(5)]).unwrap()),
            15 => {
                let end = self::key(random.below(KEYS));
                let range = if key <= end { (key, end) } else { (end, key) };
                match family.name().as_str() {
                    "reverse" => family.delete_range(range.1..range.0),
                    _ => family.delete_range(range.0..range.1),
                }
                .unwrap();
            }
            16 => family.flush().unwrap(),
            17 if random.one_in(4) => family.compact().unwrap(),
            18 if snapshots.len() < 4 => snapshots.push(db.snapshot()),
            18 => drop(snapshots.remove(0)),
            _ => sim.clock.advance(Duration::from_millis(random.below(800))),
        }
        if step.is_multiple_of(60) {
            let snapshot =
                if snapshots.is_empty() { None } else { snapshots.get(random.index(snapshots.len())) };
            for family in &families {
                check_all(family, None, &mut random, true);
                check_all(family, snapshot, &mut random, false);
            }
        }
    }
    db.close().unwrap();
}

#[test]
fn explanations_say_what_reads_return() {
    for seed in 1..=12 {
        // Without memory for a cache, filters and indexes are read part by part.
        let cache_bytes = [1 << 20, 0, 64 << 10][seed as usize % 3];
        history(seed, cache_bytes);
    }
}

/// A database with three tables of level 1 over the same keys, and one table below.
fn tables(sim: &Sim, cache_bytes: u64) -> Db {
    let db = sim.options().cache_bytes(cache_bytes).open().unwrap();
    let family = db.default_family();
    fill(family, 2000, b"oldest");
    db.compact().unwrap();
    for value in [&b"older"[..], b"new", b"newest"] {
        for n in (0..2000).step_by(7) {
            family.put(format!("key{n:06}"), value).unwrap();
        }
        db.flush().unwrap();
    }
    db
}

fn steps(explained: &Explanation, of: usize) -> &[ReadStep] {
    &explained.sources[of].steps
}

#[test]
fn the_block_of_a_get_is_read_once_and_then_in_the_cache_and_an_explanation_does_not_change_that() {
    let sim = Sim::new();
    drop(tables(&sim, 1 << 20));
    let db = sim.open();
    let family = db.default_family();
    let block = |explained: &Explanation| {
        steps(explained, 0).iter().find_map(|step| match step {
            ReadStep::Block { from, bytes, .. } => Some((*from, *bytes > 0)),
            _ => None,
        })
    };
    for _ in 0..3 {
        let before = db.stats();
        let explained = family.explain("key000007").unwrap();
        assert_eq!(block(&explained), Some((ReadOrigin::Device, true)), "{explained}");
        assert_eq!(explained.work().table_reads(), 1, "{explained}");
        assert_eq!(explained.sources_searched(), 1, "{explained}");
        assert_eq!(db.stats().cache_bytes, before.cache_bytes, "it left the cache alone");
    }
    family.get("key000007").unwrap();
    let explained = family.explain("key000007").unwrap();
    assert_eq!(block(&explained), Some((ReadOrigin::Cache, false)), "{explained}");
    assert_eq!((explained.work().table_reads(), explained.work().in_memory), (0, 1), "{explained}");
}

#[test]
fn an_explanation_of_partitioned_tables_names_their_parts_and_caches_none() {
    let mut sizes = 0;
    for cache_bytes in (2..12).map(|n| n << 12) {
        let sim = Sim::new();
        drop(tables(&sim, cache_bytes));
        let db = sim.options().cache_bytes(cache_bytes).open().unwrap();
        let entries = || db.stats().cache_entries;
        let before = entries();
        let explained = db.default_family().explain("key000007").unwrap();
        let has = |wanted: fn(&ReadStep) -> bool| steps(&explained, 0).iter().any(wanted);
        let is_part = |step: &ReadStep| matches!(step, ReadStep::FilterPart { .. });
        assert_eq!(has(is_part), has(|step| matches!(step, ReadStep::IndexPart { .. })), "{explained}");
        assert_eq!(entries(), before, "{explained}");
        db.get("key000007").unwrap();
        // With enough memory the parts are not read apart, with too little they are not cached.
        sizes += u32::from(has(is_part) && entries() > before);
    }
    assert!(sizes > 0, "no size of the cache has partitioned tables and caches their parts");
}

#[test]
fn each_source_says_why_it_was_not_the_answer() {
    let sim = Sim::new();
    let db = tables(&sim, 1 << 20);
    let family = db.default_family();
    // In the largest table only: the filters of the three above exclude it, or one of them is wrong.
    let explained = family.explain("key000008").unwrap();
    let names: Vec<u8> = explained
        .sources
        .iter()
        .filter_map(|source| match source.name {
            SourceName::Table { level, .. } => Some(level),
            _ => None,
        })
        .collect();
    assert_eq!(names[..3], [1, 1, 1], "{explained}");
    assert!(names.len() == 4 && names[3] > 1, "{explained}");
    let excluded = explained.sources.iter().filter(|source| source.filter == FilterAnswer::Excluded).count();
    assert!(excluded >= 2, "{explained}");
    assert_eq!(explained.sources_searched(), 4);
    assert!(explained.outcome.value().is_some_and(|value| **value == b"oldest"[..]));
    // In all four: the first is the answer, and the others were not looked into.
    let explained = family.explain("key000007").unwrap();
    assert_eq!((explained.sources_searched(), explained.sources.len()), (1, 4), "{explained}");
    assert_eq!(with(&explained, |v| matches!(v, Verdict::Overwritten { .. })).len(), 3, "{explained}");
    assert_eq!(explained.dead_versions(), 3);
    assert!(explained.to_string().contains("not looked into"), "{explained}");
    db.compact().unwrap();
    let merged = family.explain("key000007").unwrap();
    assert_eq!((merged.sources.len(), merged.dead_versions()), (1, 0), "{merged}");
}

#[test]
fn a_value_in_a_value_log_and_a_range_tombstone_are_named() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    family.put("a", noise(1, 5000)).unwrap();
    family.put("b", "v").unwrap();
    family.put("c", "v").unwrap();
    let found = family.explain("a").unwrap();
    assert_eq!((found.work().log_values, found.work().log_value_bytes > 5000), (1, true), "{found}");
    assert!(found.to_string().contains("value: read from value log "), "{found}");
    db.flush().unwrap();
    let seq = family.delete_range("b".."c").unwrap();
    for explained in [family.explain("b").unwrap(), {
        db.flush().unwrap();
        family.explain("b").unwrap()
    }] {
        let Outcome::DeletedByRange { seq: by, .. } = explained.outcome else { panic!("{explained}") };
        let in_memory = explained.sources.iter().find_map(|source| source.range_tombstone.as_ref());
        let tombstone = in_memory.or(explained.range_tombstone.as_ref()).unwrap();
        assert!(by >= seq && tombstone.seq == by, "{explained}");
        assert_eq!(tombstone.start.as_deref(), Some(&b"b"[..]));
        assert_eq!(tombstone.end.as_deref(), Some(&b"c"[..]));
    }
}

#[test]
fn expiry_is_told_with_its_time() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    family.put_with_ttl("k", "v", Duration::from_secs(10)).unwrap();
    let alive = family.explain("k").unwrap();
    assert!(alive.to_string().contains(", expires in 10.0 s"), "{alive}");
    sim.clock.advance(Duration::from_secs(15));
    let expired = family.explain("k").unwrap();
    let Outcome::Expired { at: Some(at), .. } = expired.outcome else { panic!("{expired}") };
    assert!(at > SystemTime::UNIX_EPOCH && expired.now > at);
    assert!(expired.to_string().contains("expired 5.0 s ago"), "{expired}");
}

#[test]
fn a_scan_over_deleted_keys_says_so() {
    let sim = Sim::new();
    let db = sim.open();
    let family = db.default_family();
    fill(family, 1000, b"v");
    db.flush().unwrap();
    for n in 0..900 {
        family.delete(format!("key{n:06}")).unwrap();
    }
    let explained = family.explain_range(.., 10).unwrap();
    assert_eq!(explained.keys.len(), 10);
    assert_eq!(explained.total(|source| source.tombstones), 900, "{explained}");
    assert_eq!(explained.total(|source| source.older), 900, "{explained}");
    assert_eq!(explained.total(|source| source.shown), 10, "{explained}");
    let used = db.stats().cache_bytes;
    assert!(explained.total(|source| source.table_reads + source.blocks_in_memory) > 0, "{explained}");
    family.explain_range(.., usize::MAX).unwrap();
    assert_eq!(db.stats().cache_bytes, used, "a scan explained leaves the cache alone");
}

#[test]
fn a_dropped_family_and_a_closed_database_refuse() {
    let sim = Sim::new();
    let db = sim.open();
    let gone = db.create_family("gone", FamilyOptions::default()).unwrap();
    db.drop_family("gone").unwrap();
    assert!(gone.explain("k").is_err() && gone.explain_range(.., 1).is_err());
    let family = db.default_family().clone();
    db.close().unwrap();
    assert!(family.explain("k").is_err());
}
