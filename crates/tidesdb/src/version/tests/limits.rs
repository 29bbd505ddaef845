//! Every list that the manifest holds may outgrow a record: by small edits, and by a single one. `PAYLOAD_BYTES_MAX` and `SNAPSHOT_BYTES` are
//! small in tests.

use super::*;
use crate::ranges::RangeTombstone;
use crate::types::VlogId;
use crate::version::format::{PAYLOAD_BYTES_MAX, SNAPSHOT_BYTES};

/// Makes the changes that add item `n` to a list.
type Item = fn(u64) -> Vec<Change>;

/// A key of 60 KB.
fn long(n: u64, last: &str) -> String {
    format!("{n:010}{}{last}", "k".repeat(60_000))
}

fn add_vlog(n: u64) -> Change {
    Change::AddVlog { family: FamilyId(1), vlog: VlogId(n as u32 + 1), salt: [7; 16] }
}

fn range(n: u64) -> RangeTombstone {
    let bound = |last| Some(long(n, last).into_bytes().into());
    RangeTombstone::new(n + 1, bound("a"), bound("z"))
}

/// Each list, how many items together exceed a record at least twice, and the item.
const LISTS: [(&str, u64, Item); 6] = [
    ("families", 2_900, |n| vec![create_family(n as u32 + 2, &format!("{n:0127}"))]),
    ("tables", 10, |n| {
        let table = meta(n + 1, (&long(n, "a"), &long(n, "z")), (n + 1, n + 1), &[]);
        vec![add(1, 1, &table)]
    }),
    ("value logs", 28_000, |n| vec![add_vlog(n)]),
    ("references to value logs", 4, |n| {
        let many = 15_000;
        let refs: Vec<_> = (0..many).map(|v| ((n * many + v) as u32 + 1, 1 << 14, 1)).collect();
        let table = meta(n + 1, ("a", "z"), (n + 1, n + 1), &refs);
        (0..many).map(|v| add_vlog(n * many + v)).chain([add(1, 1, &table)]).collect()
    }),
    ("range tombstones", 10, |n| vec![Change::AddRange { family: FamilyId(1), range: Arc::new(range(n)) }]),
    ("unknown facts", 30, |n| {
        vec![Change::Unknown { tag: IGNORABLE | (n as u8 + 2), body: vec![n as u8; 30_000].into() }]
    }),
];

/// Checks that the state is read back, also beside the writer, and that edits, roll-overs and a close go on.
fn check(env: &Env, set: Set, what: &str) {
    let state = facts(&set.state());
    assert!(state.len() > 2 * PAYLOAD_BYTES_MAX, "{what}: {} bytes", state.len());
    let tail = ManifestTail::open(&*dir_of(env)).unwrap();
    assert_eq!(facts(tail.state()), state, "{what}");
    drop(set);
    for session in 0..3 {
        let (set, report) = open(env);
        assert!(!report.half_marked && !report.repaired_mark && report.torn_bytes == 0, "{what}: {report:?}");
        install(&set, [Change::LastSeq { seq: 1000 + session }])
            .unwrap_or_else(|e| panic!("{what}: {e}, session {session}"));
        let state = facts(&set.state());
        match session {
            0 => drop(set),
            _ => set.close(&VersionEdit::new()).unwrap(),
        }
        let (set, report) = open(env);
        assert_eq!(report.clean, session > 0, "{what}");
        assert_eq!(facts(&set.state()), state, "{what}");
    }
}

#[test]
fn every_list_may_outgrow_a_record_edit_by_edit() {
    for (what, items, item) in LISTS {
        let (env, _disk, set) = disk_with(1, 0);
        install(&set, [create_family(1, "first")]).unwrap();
        // Many items to an edit, so that the test is short.
        for from in (0..items).step_by(items.div_ceil(10) as usize) {
            let all = (from..(from + items.div_ceil(10)).min(items)).flat_map(item);
            install(&set, all).unwrap_or_else(|e| panic!("{what}: {e}, item {from}"));
        }
        check(&env, set, what);
    }
}

#[test]
fn every_list_may_outgrow_a_record_with_one_edit() {
    for (what, items, item) in LISTS {
        let (env, disk, set) = disk_with(2, 0);
        install(&set, [create_family(1, "first")]).unwrap();
        let writes = disk.op_count();
        install(&set, (0..items).flat_map(item)).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(disk.op_count() > writes);
        check(&env, set, what);
    }
}

/// The pieces of a snapshot are whole changes in order; none is longer than a record, or much longer than wanted.
#[test]
fn pieces_end_between_changes() {
    let small: Vec<Change> = (0..15_000).map(add_vlog).collect();
    let large =
        |n: u64| Change::Unknown { tag: IGNORABLE | 9, body: vec![n as u8; PAYLOAD_BYTES_MAX - 100].into() };
    let mixed = [large(1), add_vlog(1), large(2), large(3), add_vlog(2)];
    let cases = [small, mixed.to_vec(), vec![add_vlog(1)], Vec::new()];
    for changes in cases {
        let all = edit(changes);
        let mut whole = Vec::new();
        all.encode(&mut whole);
        let pieces: Vec<_> = all.encode_in_pieces(SNAPSHOT_BYTES, PAYLOAD_BYTES_MAX).collect();
        assert_eq!(pieces.concat(), whole);
        let decoded = pieces.iter().map(|piece| VersionEdit::decode(piece, "", 0).unwrap().changes.len());
        assert_eq!(decoded.sum::<usize>(), all.changes.len());
        assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= PAYLOAD_BYTES_MAX));
        let rest = pieces.split_last().map_or(&[][..], |(_, rest)| rest);
        assert!(rest.windows(2).all(|two| two[0].len() + two[1].len() >= SNAPSHOT_BYTES));
        let whole = all.encode_within(PAYLOAD_BYTES_MAX).map(|one| vec![one]);
        assert_eq!(whole.is_some(), pieces.concat().len() <= PAYLOAD_BYTES_MAX);
    }
}
