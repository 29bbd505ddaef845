//! Runs: order, search, and the invariants that a version checks.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::types::Comparator;
use crate::version::Run;
use crate::version::placing::{self, Placed};
use proptest::prelude::*;

fn family_with(order: Comparator, tables: &[(u8, Arc<TableMeta>)]) -> Result<FamilyVersion<TableId>> {
    let options = FamilyOptions::default().comparator(order);
    let mut state = State::default();
    let mut e = edit([Change::CreateFamily { family: FamilyId(1), name: "f".into(), options }]);
    for (level, meta) in tables {
        e.push(add(1, *level, meta));
    }
    state.apply(&e)?;
    let family = &state.families[&FamilyId(1)];
    FamilyVersion::build(family, None, &Arc::default(), |_, m| Ok(Arc::new(m.id)))
}

fn ids<'a>(slots: impl IntoIterator<Item = &'a Arc<TableSlot<TableId>>>) -> Vec<u64> {
    slots.into_iter().map(|s| s.id().0).collect()
}

/// What `run` of `level` becomes without `gone` and with `new`, which do not overlap what stays.
fn changed(
    order: &Comparator,
    level: u8,
    run: Option<&Arc<Run<TableId>>>,
    gone: &[Arc<TableSlot<TableId>>],
    new: &[Arc<TableSlot<TableId>>],
) -> Option<Arc<Run<TableId>>> {
    let new = new.iter().map(|slot| Placed { generation: 0, slot: Arc::clone(slot) }).collect();
    let (runs, gone): (Vec<_>, Vec<_>) = (run.cloned().into_iter().collect(), gone.iter().collect());
    let mut runs = placing::rearranged(order, level, &runs, (&gone, new), |_| 0).unwrap();
    assert!(runs.len() <= 1);
    runs.pop()
}

#[test]
fn reads_search_the_newest_data_first() {
    let v = family_with(
        Comparator::bytewise(),
        &[
            (1, meta(7, ("a", "m"), (30, 39), &[])),
            (1, meta(9, ("c", "z"), (10, 19), &[])),
            (1, meta(8, ("b", "d"), (20, 29), &[])),
            (2, meta(1, ("d", "e"), (1, 9), &[])),
            (2, meta(2, ("a", "c"), (1, 9), &[])),
            (4, meta(3, ("c", "c"), (1, 1), &[])),
        ],
    )
    .unwrap();
    assert_eq!(ids(v.level(1)), [7, 8, 9]);
    assert_eq!(ids(v.level(2)), [2, 1]);
    assert_eq!((v.depth(), v.level_len(3), v.level_len(9)), (4, 0, 0));
    let found = |key: &[u8]| {
        let mut ids = Vec::new();
        v.tables_for(key, |slot| ids.push(slot.id().0));
        ids
    };
    assert_eq!(found(b"c"), [7, 8, 9, 2, 3]);
    assert_eq!(found(b"n"), [9]);
    assert_eq!(found(b"cc"), [7, 8, 9]);
    assert_eq!(found(b"zz"), [0u64; 0]);
    assert_eq!(ids(&v.tables_meeting(2, &(&b"c"[..]..=&b"d"[..]))), [2, 1]);
    assert_eq!(ids(&v.tables_meeting(2, &(&b"c"[..]..&b"d"[..]))), [2]);
    assert_eq!(ids(&v.tables_meeting(1, &(&b"e"[..]..))), [7, 9]);
    let is_over = |id| v.overlaps_older(v.table(TableId(id)).unwrap());
    assert!(is_over(9) && is_over(2) && !is_over(1) && !is_over(3));
}

#[test]
fn tables_of_a_level_lie_in_runs_by_their_generation() {
    let queue = Arc::default();
    let order = Comparator::bytewise();
    let slot = |id, keys| {
        let meta = meta(id, keys, (1, 1), &[]);
        Arc::new(TableSlot::new(meta, Arc::new(TableId(id)), &queue))
    };
    let numbers = |runs: &[Arc<Run<TableId>>]| runs.iter().map(|run| ids(run.tables())).collect::<Vec<_>>();
    let generation = |id: TableId| (id.0 / 10) as u32;
    let place = |runs: &[_], gone: &[&Arc<TableSlot<TableId>>], new: &[&Arc<TableSlot<TableId>>]| {
        let new = new.iter().map(|slot| Placed { generation: generation(slot.id()), slot: Arc::clone(slot) });
        placing::rearranged(&order, 2, runs, (gone, new.collect()), generation).unwrap()
    };
    let (a, b, c) = (slot(1, ("a", "c")), slot(2, ("d", "f")), slot(11, ("b", "e")));
    let (d, e) = (slot(21, ("e", "g")), slot(22, ("x", "z")));
    // A table lies above the newest older one that it overlaps, not above all generations before.
    let all = place(&[], &[], &[&d, &a, &e, &c, &b]);
    assert_eq!(numbers(&all), [vec![21], vec![11], vec![1, 2, 22]]);
    // It sinks when that goes, and so does what was above it, but never below an older one.
    assert_eq!(numbers(&place(&all, &[&c], &[])), [vec![21], vec![1, 2, 22]]);
    assert_eq!(numbers(&place(&all, &[&a, &b], &[])), [vec![21], vec![11, 22]]);
    assert_eq!(numbers(&place(&place(&all, &[&a, &b], &[]), &[&c], &[])), [vec![21, 22]]);
    // A table that is rewritten in its generation stays below newer ones.
    let new = slot(12, ("b", "d"));
    assert_eq!(numbers(&place(&all, &[&c], &[&new])), [vec![12, 21], vec![1, 2, 22]]);
    let new = slot(3, ("d", "f"));
    assert_eq!(numbers(&place(&all, &[&b], &[&new])), [vec![21], vec![11], vec![1, 3, 22]]);
}

#[test]
fn overlapping_tables_of_a_level_need_different_generations() {
    let with = |generations: [u32; 2]| {
        let mut state = State::default();
        let tables = [meta(1, ("a", "c"), (1, 1), &[]), meta(2, ("b", "d"), (1, 1), &[])];
        let tables = tables.iter().zip(generations).map(|(meta, generation)| add_at(1, 2, generation, meta));
        state.apply(&edit([create_family(1, "f")].into_iter().chain(tables))).unwrap();
        let state = &state.families[&FamilyId(1)];
        FamilyVersion::build(state, None, &Arc::default(), |_, m| Ok(Arc::new(m.id)))
    };
    let newest = |generations| {
        with(generations).unwrap().runs().iter().map(|run| ids(run.tables())).collect::<Vec<_>>()
    };
    assert_eq!(newest([3, 4]), [[2], [1]]);
    assert_eq!(newest([4, 3]), [[1], [2]]);
    assert!(with([3, 3]).unwrap_err().to_string().contains("overlaps another one of its generation"));
}

#[test]
fn violated_invariants_are_refused() {
    let bytewise = Comparator::bytewise;
    let broken = [
        ("overlaps", vec![(2, meta(1, ("a", "c"), (1, 1), &[])), (2, meta(2, ("c", "d"), (1, 1), &[]))]),
        ("smallest key", vec![(2, meta(1, ("b", "a"), (1, 1), &[]))]),
        ("oldest commit", vec![(1, meta(1, ("a", "b"), (2, 1), &[]))]),
        ("interleave", vec![(1, meta(1, ("a", "b"), (1, 9), &[])), (1, meta(2, ("b", "c"), (5, 20), &[]))]),
        ("interleave", vec![(1, meta(1, ("a", "b"), (1, 9), &[])), (1, meta(2, ("a", "c"), (9, 20), &[]))]),
        ("level 0", vec![(0, meta(1, ("a", "b"), (1, 1), &[]))]),
        ("level 65", vec![(65, meta(1, ("a", "b"), (1, 1), &[]))]),
        ("there already", vec![(1, meta(1, ("a", "b"), (1, 1), &[])), (2, meta(1, ("a", "b"), (1, 1), &[]))]),
        ("value log 4", vec![(1, meta(1, ("a", "b"), (1, 1), &[(4, 1, 1)]))]),
    ];
    for (law, tables) in broken {
        let e = family_with(bytewise(), &tables).unwrap_err().to_string();
        assert!(e.contains(law), "{law}: {e}");
    }
    // The same tables are valid in the reverse order; tables that do not overlap may interleave in age.
    family_with(Comparator::reverse_bytewise(), &[(2, meta(1, ("b", "a"), (1, 1), &[]))]).unwrap();
    let apart = [(1, meta(1, ("a", "b"), (1, 9), &[])), (1, meta(2, ("c", "d"), (5, 20), &[]))];
    family_with(bytewise(), &apart).unwrap();
}

/// The first and last key of a table as numbers, and its first and last sequence number.
type Extent = ((u64, u64), (SeqNo, SeqNo));

/// L1 of tables with these extents, and the number of comparisons of keys that building it took.
fn level_1(tables: &[Extent]) -> (Result<FamilyVersion<TableId>>, u64) {
    let compared = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&compared);
    let order = Comparator::custom("counting", move |a, b| {
        count.fetch_add(1, Ordering::Relaxed);
        a.cmp(b)
    });
    let key = |n: u64| format!("{n:08}");
    let table =
        |(i, &((from, to), seqs)): (usize, &_)| (1, meta(i as u64 + 1, (&key(from), &key(to)), seqs, &[]));
    let tables: Vec<_> = tables.iter().enumerate().map(table).collect();
    (family_with(order, &tables), compared.load(Ordering::Relaxed))
}

/// Each table was once compared with each other one.
#[test]
fn a_long_level_1_is_checked_in_linear_work() {
    const TABLES: u64 = 20_000;
    let apart = |i: u64| ((i * 7919 % TABLES * 2, i * 7919 % TABLES * 2 + 1), (1, 10));
    let nested = |i: u64| ((i * 2, i * 2), (TABLES - i, TABLES + i));
    let newer_and_newer = |i: u64| ((0, TABLES), (i * 10, i * 10 + 9));
    let some = |table: &dyn Fn(u64) -> _| (0..TABLES).map(table).collect::<Vec<_>>();
    for tables in [some(&apart), some(&nested), some(&newer_and_newer)] {
        let (version, compared) = level_1(&tables);
        assert_eq!(version.unwrap().level_len(1), tables.len());
        assert!(compared <= 100 * TABLES, "{compared} comparisons");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn tables_of_level_1_interleave_if_two_of_them_do(
        tables in prop::collection::vec(((0..30u64, 0..6u64), (1..30u64, 0..8u64)), 1..8)
    ) {
        let tables: Vec<_> = tables
            .into_iter()
            .map(|((from, keys), (oldest, ages))| ((from, from + keys), (oldest, oldest + ages)))
            .collect();
        let meets = |a: (u64, u64), b: (u64, u64)| a.0 <= b.1 && b.0 <= a.1;
        let interleave = |i: usize| {
            let (keys, ages) = tables[i];
            tables[..i].iter().any(|other| meets(keys, other.0) && meets(ages, other.1))
        };
        match level_1(&tables).0 {
            Ok(_) => prop_assert!(!(0..tables.len()).any(interleave)),
            Err(e) => prop_assert!((0..tables.len()).any(interleave) && e.to_string().contains("interleave"), "{e}"),
        }
    }

    /// The search over prefixes finds the same tables as a linear scan.
    #[test]
    fn the_search_agrees_with_a_linear_scan(
        mut cuts in prop::collection::btree_set(prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 255]), 0..12), 2..40),
        probes in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 255]), 0..12), 1..20),
        reverse in any::<bool>(),
    ) {
        let order = if reverse { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        if cuts.len() % 2 == 1 {
            cuts.pop_last();
        }
        let mut cuts: Vec<Vec<u8>> = cuts.into_iter().collect();
        cuts.sort_by(|a, b| order.compare(a, b));
        let queue = Arc::default();
        let slot = |(i, pair): (usize, &[Vec<u8>])| {
            let mut m = (*meta(i as u64, ("", ""), (1, 1), &[])).clone();
            (m.smallest, m.largest) = (pair[0].as_slice().into(), pair[1].as_slice().into());
            let id = Arc::new(m.id);
            Arc::new(TableSlot::new(Arc::new(m), id, &queue))
        };
        let tables: Vec<_> = cuts.chunks(2).enumerate().map(slot).collect();
        let level = changed(&order, 2, None, &[], &tables).unwrap();
        prop_assert_eq!(ids(level.tables()), ids(&tables));
        for key in probes.iter().chain(&cuts) {
            let walked = tables.iter().find(|t| t.covers(&order, key)).map(|t| t.id());
            prop_assert_eq!(level.find(&order, key).map(|t| t.id()), walked);
            let at = tables.iter().position(|t| order.compare(&t.meta().largest, key).is_ge());
            prop_assert_eq!(level.lower_bound(&order, key), at.unwrap_or(tables.len()));
            for other in &probes {
                let (lo, hi) = if order.compare(key, other).is_le() { (key, other) } else { (other, key) };
                let range = lo.as_slice()..hi.as_slice();
                let walked: Vec<_> = tables.iter().filter(|t| t.meets(&order, &range)).cloned().collect();
                prop_assert_eq!(ids(&level.meeting(&order, &range)), ids(&walked));
            }
        }
    }
}

/// A slot for a table of the one key `key`.
/// Returns a generator of pseudo-random numbers.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut x = seed | 1;
    move || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x >> 33
    }
}

fn slot(id: u64, key: &[u8], seq: u64, queue: &Arc<ObsoleteFiles>) -> Arc<TableSlot<TableId>> {
    let mut m = (*meta(id, ("", ""), (seq, seq), &[])).clone();
    (m.smallest, m.largest) = (key.into(), key.into());
    Arc::new(TableSlot::new(Arc::new(m), Arc::new(TableId(id)), queue))
}

/// Checks every search of a sorted run against `model`, the keys in order with the numbers of their tables.
fn check_searches(level: &Run<TableId>, order: &Comparator, model: &[(Vec<u8>, u64)], probes: &[Vec<u8>]) {
    let numbers: Vec<u64> = model.iter().map(|(_, id)| *id).collect();
    assert_eq!((level.len(), ids(level.tables())), (model.len(), numbers.clone()));
    assert_eq!(
        level.tables().rev().map(|t| t.id().0).collect::<Vec<_>>(),
        numbers.iter().rev().copied().collect::<Vec<_>>()
    );
    assert_eq!(level.bytes(), level.tables().map(|t| t.meta().file_bytes).sum::<u64>());
    for (at, id) in numbers.iter().enumerate() {
        assert_eq!(level.get(at).map(|t| t.id().0), Some(*id));
    }
    assert!(level.get(model.len()).is_none());
    for probe in probes.iter().chain(model.iter().map(|(key, _)| key)) {
        let at = model.partition_point(|(key, _)| order.compare(key, probe).is_lt());
        let here = model.get(at).filter(|(key, _)| key == probe).map(|(_, id)| *id);
        assert_eq!(level.find(order, probe).map(|t| t.id().0), here);
        assert_eq!(level.lower_bound(order, probe), at);
    }
    for pair in probes.chunks_exact(2) {
        let (lo, hi) = if order.compare(&pair[0], &pair[1]).is_le() {
            (&pair[0], &pair[1])
        } else {
            (&pair[1], &pair[0])
        };
        let range = lo.as_slice()..=hi.as_slice();
        let within =
            model.iter().filter(|(key, _)| order.compare(key, lo).is_ge() && order.compare(key, hi).is_le());
        assert_eq!(ids(&level.meeting(order, &range)), within.map(|(_, id)| *id).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Runs of many chunks, whose keys share their first eight bytes in long runs, and which grow and shrink.
    #[test]
    fn changed_runs_of_many_chunks_are_searched_like_a_sorted_vector(
        steps in prop::collection::vec((any::<u64>(), 1..700_usize, any::<bool>()), 1..8),
        fronts in 1..6_u64,
        reverse in any::<bool>(),
    ) {
        let order = if reverse { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        let queue = Arc::default();
        let key = |n: u64| format!("front-{:02}{:04}", n % fronts, n / fronts % 3000).into_bytes();
        let (mut level, mut model) = (None::<Arc<Run<TableId>>>, Vec::<(Vec<u8>, u64)>::new());
        let (mut slots, mut next) = (std::collections::BTreeMap::new(), 0);
        for (seed, count, grows) in steps {
            let mut random = random(seed);
            let (mut gone, mut new) = (Vec::new(), Vec::new());
            for _ in 0..count {
                if !grows {
                    if model.is_empty() {
                        break;
                    }
                    let (_, id) = model.remove(random() as usize % model.len());
                    let slot: Arc<TableSlot<TableId>> = slots.remove(&id).unwrap();
                    gone.push(slot);
                    continue;
                }
                let key = key(random());
                let at = model.partition_point(|(k, _)| order.compare(k, &key).is_lt());
                if model.get(at).is_none_or(|(k, _)| *k != key) {
                    next += 1;
                    let slot = slot(next, &key, 1, &queue);
                    slots.insert(next, Arc::clone(&slot));
                    model.insert(at, (key, next));
                    new.push(slot);
                }
            }
            let before = level.clone();
            let numbers = before.iter().flat_map(|run| ids(run.tables())).collect::<Vec<_>>();
            level = changed(&order, 2, before.as_ref(), &gone, &new);
            let Some(level) = &level else { continue };
            let probes: Vec<_> = (0..60).map(|_| key(random())).chain([Vec::new(), b"k".to_vec(), vec![255; 20]]).collect();
            check_searches(level, &order, &model, &probes);
            prop_assert_eq!(before.iter().flat_map(|run| ids(run.tables())).collect::<Vec<_>>(), numbers, "the older version is as before");
        }
    }

    /// Level 1 stays in the order of ages.
    #[test]
    fn changed_levels_of_overlapping_tables_are_ordered_by_age(
        steps in prop::collection::vec((any::<u64>(), 1..400_usize, any::<bool>()), 1..8),
    ) {
        let (order, queue) = (Comparator::bytewise(), Arc::default());
        let mut level = None::<Arc<Run<TableId>>>;
        let (mut slots, mut next) = (Vec::<Arc<TableSlot<TableId>>>::new(), 0);
        for (seed, count, grows) in steps {
            let mut random = random(seed);
            let (mut gone, mut new) = (Vec::new(), Vec::new());
            for _ in 0..count {
                if !grows {
                    if slots.is_empty() {
                        break;
                    }
                    gone.push(slots.swap_remove(random() as usize % slots.len()));
                } else {
                    next += 1;
                    new.push(slot(next, b"a", random() % 50, &queue));
                }
            }
            slots.extend(new.iter().cloned());
            level = changed(&order, 1, level.as_ref(), &gone, &new);
            let Some(level) = &level else { continue };
            slots.sort_by_key(|slot| std::cmp::Reverse((slot.meta().max_seq, slot.id())));
            prop_assert_eq!(ids(level.tables()), ids(&slots));
            prop_assert!((0..slots.len()).all(|at| level.get(at).map(|t| t.id()) == Some(slots[at].id())));
        }
    }
}
