//! The order of calls, checked on the log of the simulated disk: sync data, sync the directory, write the names, then
//! delete.

use std::collections::BTreeSet;

use super::*;
use crate::files::{CURRENT_NEW, FileKind};
use tidesdb_io::sim::{Op, OpKind};

/// Follows the calls and fails at the first one that comes too early. Returns the number of switches, appends and
/// unlinks.
fn check_order(ops: &[Op]) -> (usize, usize, usize) {
    let mut unsynced: BTreeSet<&str> = BTreeSet::new();
    let mut marked: BTreeSet<&str> = BTreeSet::new();
    let mut unnamed: BTreeSet<&str> = BTreeSet::new();
    let mut switched = false;
    let (mut switches, mut appends, mut unlinks) = (0, 0, 0);
    for op in ops.iter().filter(|op| op.ok) {
        let name = op.path.rsplit('/').next().unwrap_or_default();
        let manifest = matches!(crate::files::parse(name), Some(FileKind::Manifest(_)));
        match op.kind {
            OpKind::Create => {
                unnamed.insert(&op.path);
            }
            OpKind::Write if manifest && (4096..20480).contains(&op.offset) => {
                assert!(
                    unsynced.is_empty(),
                    "a mark was written while something else was not synced: {op:?}"
                );
                marked.insert(&op.path);
            }
            OpKind::Write => {
                assert!(marked.is_empty(), "a record was written before the last marks were synced: {op:?}");
                appends += usize::from(manifest && op.offset > 0);
                unsynced.insert(&op.path);
            }
            OpKind::SyncData | OpKind::SyncAll => {
                unsynced.remove(&*op.path);
                marked.remove(&*op.path);
            }
            OpKind::Rename => {
                assert_eq!(name, CURRENT_NEW);
                assert!(unsynced.is_empty() && marked.is_empty(), "renamed before {unsynced:?} was synced");
                unnamed.remove(&*op.path);
                assert!(unnamed.is_empty(), "renamed before the names of {unnamed:?} were durable");
                (switched, switches) = (true, switches + 1);
            }
            OpKind::SyncDir => {
                unnamed.clear();
                switched = false;
            }
            OpKind::Unlink if name != CURRENT_NEW => {
                assert!(!switched && unsynced.is_empty() && marked.is_empty(), "unlinked too early: {op:?}");
                unlinks += 1;
            }
            _ => {}
        }
    }
    (switches, appends, unlinks)
}

#[test]
fn files_are_durable_before_they_are_named_and_named_before_deletion() {
    let (env, disk, set) = disk_with(51, 30);
    set.unlink_obsolete();
    set.close(&VersionEdit::new()).unwrap();
    let (set, _) = open(&env);
    for n in 30..60 {
        install(&set, step(&set, n)).unwrap();
        set.unlink_obsolete();
    }
    let (switches, appends, unlinks) = check_order(&disk.ops());
    assert!(switches >= 5 && appends >= 60 && unlinks >= 5, "{switches} {appends} {unlinks}");
}

/// The checker detects a record or a name that was not synced in time.
#[test]
fn the_checker_can_fail() {
    let (_env, disk, _set) = disk_with(52, 3);
    let mut ops = disk.ops();
    let mark = ops.iter().rposition(|op| op.kind == OpKind::SyncData).unwrap();
    ops.remove(mark - 3); // the sync of the record
    assert!(std::panic::catch_unwind(|| check_order(&ops)).is_err());
    let first = ops.iter().position(|op| op.kind == OpKind::Rename).unwrap();
    let early: Vec<Op> =
        ops[..first].iter().filter(|op| op.kind != OpKind::SyncDir).chain(&ops[first..]).cloned().collect();
    assert!(std::panic::catch_unwind(|| check_order(&early)).is_err());
}
