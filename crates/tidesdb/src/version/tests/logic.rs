//! Semantics of installs: names, numbers, counts of live values, obsolete files, orphans, phases.

use super::*;
use crate::files::{self, FileKind};
use crate::types::{Comparator, WalId};

fn file_names(env: &Env) -> Vec<String> {
    let mut names = dir_of(env).list().unwrap();
    names.sort();
    names
}

fn touch(env: &Env, name: &str) {
    dir_of(env).create_new(name, 10).unwrap();
}

#[test]
fn identity_and_marks_survive() {
    let (env, _disk, set) = disk_with(1, 3);
    let identity = set.identity();
    assert_eq!(identity.wal_segment_bytes, SEGMENT);
    let marks = [
        Change::LogStart { wal: WalId(9) },
        Change::LogStart { wal: WalId(4) },
        Change::DurableMark { seq: 70 },
        Change::DurableMark { seq: 60 },
        Change::ClockMark { wall_secs: 5 },
    ];
    install(&set, marks).unwrap();
    drop(set);
    let (set, report) = open(&env);
    assert!(!report.clean && !report.unmarked_record && report.torn_bytes == 0);
    let state = set.state();
    assert_eq!(
        (set.identity(), state.log_start, state.durable_mark, state.clock_mark),
        (identity, WalId(9), 70, 5)
    );
}

#[test]
fn a_clean_shutdown_is_recorded() {
    let (env, disk, set) = disk_with(2, 3);
    let state = facts(&set.state());
    set.close(&VersionEdit::new()).unwrap();
    assert!(matches!(install(&set, [Change::LastSeq { seq: 1 }]), Err(Error::Closed)));
    assert!(matches!(set.close(&VersionEdit::new()), Err(Error::Closed)));
    let (set, report) = open(&env);
    assert!(report.clean);
    assert_eq!(facts(&set.state()), state);
    drop(set);
    let ops = disk.op_count();
    let (set, report) = open(&env);
    assert!(report.clean && set.is_untouched(), "an open alone changes nothing");
    set.close(&VersionEdit::new()).unwrap();
    let changes = |op: &sim::Op| op.index >= ops && sim::OpSet::CHANGES.has(op.kind);
    let of_files = |op: &sim::Op| changes(op) && op.kind != sim::OpKind::SyncDir; // the test opens the directory
    assert!(!disk.ops().iter().any(of_files), "nor does its close");
    let (set, report) = recover(&env);
    assert!(report.clean && !set.is_untouched());
    drop(set);
    assert!(!open(&env).1.clean, "an install clears the clean mark");
}

#[test]
fn family_names_are_data_and_never_file_names() {
    let (env, _disk, set) = disk_with(3, 0);
    let longest = "x".repeat(127);
    let names = ["..", "../x", "a/b", "\u{0}", "CON", "Case", "case", "\u{1F30A}", &longest, " "];
    for (i, name) in names.iter().enumerate() {
        install(&set, [create_family(i as u32 + 1, name)]).unwrap();
    }
    for bad in ["", &"y".repeat(128)] {
        assert!(matches!(install(&set, [create_family(99, bad)]), Err(Error::InvalidArgument { .. })));
        let rename = Change::RenameFamily { family: FamilyId(1), name: bad.into() };
        assert!(matches!(install(&set, [rename]), Err(Error::InvalidArgument { .. })));
    }
    assert!(matches!(install(&set, [create_family(99, "..")]), Err(Error::Exists { .. })));
    let rename = |family, name: &str| Change::RenameFamily { family: FamilyId(family), name: name.into() };
    assert!(matches!(install(&set, [rename(1, "case")]), Err(Error::Exists { .. })));
    assert!(matches!(install(&set, [rename(77, "new")]), Err(Error::NotFound { .. })));
    install(&set, [rename(1, ".."), rename(2, "swap"), rename(3, "../x"), rename(2, "a/b")]).unwrap();
    drop(set);
    let (set, _) = open(&env);
    let state = set.state();
    assert_eq!(state.family_by_name("a/b").unwrap().id, FamilyId(2));
    assert_eq!(state.family_by_name("../x").unwrap().id, FamilyId(3));
    assert_eq!(state.families.len(), names.len());
    let ours = |n: &String| matches!(files::parse(n), Some(FileKind::Manifest(_) | FileKind::Current));
    assert!(file_names(&env).iter().all(ours), "a name became a file: {:?}", file_names(&env));
}

#[test]
fn dropped_families_never_reappear() {
    let (env, _disk, mut set) = disk_with(4, 0);
    let mut live: Vec<(FamilyId, String, usize)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..300u64 {
        match n % 5 {
            0 | 1 => {
                let id = set.new_family_id().unwrap();
                assert!(seen.insert(id), "number {id:?} was used before");
                let name = format!("f{}", n % 7);
                let taken = live.iter().any(|f| f.1 == name);
                assert_eq!(install(&set, [create_family(id.0, &name)]).is_err(), taken);
                if !taken {
                    assert!(set.version(id).unwrap().is_empty(), "a new family must be empty");
                    live.push((id, name, 0));
                }
            }
            2 => {
                if let Some(f) = live.last_mut() {
                    let table = meta(set.new_table_id().unwrap().0, ("a", "b"), (n, n), &[]);
                    install(&set, [add(f.0.0, 1, &table)]).unwrap();
                    f.2 += 1;
                }
            }
            3 => {
                if let Some(f) = live.first_mut() {
                    f.1 = format!("renamed {n}");
                    install(&set, [Change::RenameFamily { family: f.0, name: f.1.as_str().into() }]).unwrap();
                }
            }
            _ => {
                let f = live.remove(0);
                install(&set, [Change::DropFamily { family: f.0 }]).unwrap();
                assert!(set.version(f.0).is_none());
            }
        }
        if n % 50 == 49 {
            drop(set);
            set = open(&env).0;
        }
        let state = set.state();
        state.check().unwrap();
        assert_eq!(state.families.len(), live.len());
        for (id, name, tables) in &live {
            assert_eq!(&*state.families[id].name, name);
            assert_eq!(set.version(*id).unwrap().tables().count(), *tables);
        }
    }
}

fn vlog_of(family: u32) -> Change {
    Change::AddVlog { family: FamilyId(family), vlog: VlogId(1), salt: [1; 16] }
}

#[test]
fn invalid_edits_change_nothing() {
    let (_env, _disk, set) = disk_with(5, 0);
    install(&set, [create_family(1, "f"), add(1, 1, &meta(1, ("a", "b"), (1, 2), &[]))]).unwrap();
    let before = (facts(&set.state()), set.manifest());
    let family = FamilyId(1);
    let seal = Change::SealVlog { family, vlog: VlogId(9), bytes: 1, sealed_at: 1 };
    let vlog = vlog_of(1);
    let referring = meta(3, ("a", "b"), (5, 6), &[(1, 5, 1)]);
    let other_order = FamilyOptions::default().comparator(Comparator::reverse_bytewise());
    let bad: Vec<Vec<Change>> = vec![
        vec![create_family(1, "g")],
        vec![remove(2, 1, 1)],
        vec![add(1, 1, &meta(1, ("x", "y"), (9, 9), &[]))],
        vec![add(1, 2, &meta(3, ("a", "b"), (5, 6), &[(1, 5, 1)]))],
        vec![Change::LastSeq { seq: 1000 }, seal],
        vec![vlog.clone(), vlog.clone()],
        vec![vlog.clone(), Change::RemoveVlog { family, vlog: VlogId(1) }],
        vec![vlog, add(1, 2, &referring), Change::DropFamily { family }, add(1, 2, &referring)],
        vec![Change::SetOptions { family, options: other_order }],
        vec![Change::DropFamily { family: FamilyId(2) }],
        vec![create_family(2, "g"), add(2, 1, &meta(1, ("a", "b"), (1, 2), &[]))],
        vec![vlog_of(1), create_family(2, "g"), vlog_of(2)],
        vec![Change::AddTable {
            family,
            level: 2,
            generation: 0,
            meta: meta(u64::MAX, ("a", "b"), (5, 6), &[]),
        }],
    ];
    for changes in bad {
        let what = format!("{changes:?}");
        assert!(install(&set, changes).is_err(), "{what}");
        assert_eq!((facts(&set.state()), set.manifest()), before, "{what}");
        assert!(!set.is_poisoned());
    }
    install(&set, [remove(1, 1, 1), add(1, 2, &meta(1, ("a", "b"), (1, 2), &[]))]).unwrap();
    assert_eq!(set.version(family).unwrap().level_len(2), 1, "a table may move");
    assert!(set.obsolete().is_empty(), "a moved table is not obsolete");
}

#[test]
fn a_table_that_does_not_open_is_not_installed() {
    let (env, _disk, _) = sim::env(6);
    let dir = dir_of(&env);
    let mut context = context(&env, &dir);
    context.open_table = Arc::new(|family, meta| match meta.id.0 {
        13 => Err(Error::corrupt("000013.klog", 0, format!("of {}", family.name))),
        _ => Ok(Arc::new(meta.id)),
    });
    let set = Set::create(context, SEGMENT).unwrap();
    install(&set, [create_family(1, "f"), add(1, 1, &meta(12, ("a", "b"), (1, 1), &[]))]).unwrap();
    assert!(install(&set, [add(1, 1, &meta(13, ("a", "b"), (2, 2), &[]))]).unwrap_err().is_corruption());
    assert_eq!(set.version(FamilyId(1)).unwrap().tables().count(), 1);
    install(&set, [add(1, 1, &meta(14, ("a", "b"), (3, 3), &[]))]).unwrap();
}

#[test]
fn a_value_log_is_obsolete_once_nothing_refers_to_it() {
    let (env, _disk, set) = disk_with(7, 0);
    let (family, vlog) = (FamilyId(1), VlogId(1));
    let t1 = meta(1, ("a", "b"), (1, 5), &[(1, 100, 3)]);
    let t2 = meta(2, ("c", "d"), (6, 9), &[(1, 50, 2)]);
    install(&set, [create_family(1, "f"), Change::AddVlog { family, vlog, salt: [7; 16] }]).unwrap();
    install(&set, [add(1, 1, &t1)]).unwrap();
    install(&set, [add(1, 1, &t2)]).unwrap();
    let info = |set: &Set| set.version(family).unwrap().vlogs()[&vlog];
    assert_eq!((info(&set).live_bytes, info(&set).live_count), (150, 5));
    install(&set, [remove(1, 1, 1)]).unwrap();
    install(&set, [remove(1, 1, 2)]).unwrap();
    assert_eq!((info(&set).live_bytes, info(&set).live_count), (0, 0));
    let obsolete = |set: &Set| {
        let state = &set.state().families[&family];
        state.obsolete_vlogs_at(state.flushed_to).count()
    };
    assert_eq!(obsolete(&set), 0, "the value log is still being written");
    install(&set, [Change::SealVlog { family, vlog, bytes: 999, sealed_at: 9 }]).unwrap();
    assert_eq!(obsolete(&set), 0, "a memtable may refer to it");
    assert!(install(&set, [Change::RemoveVlog { family, vlog }]).is_err());
    install(&set, [Change::FlushedTo { family, seq: 8 }]).unwrap();
    assert_eq!(obsolete(&set), 0);
    install(&set, [Change::FlushedTo { family, seq: 9 }]).unwrap();
    assert_eq!(obsolete(&set), 1);
    drop(set);
    touch(&env, &files::vlog(vlog));
    let (set, _) = recover(&env);
    assert_eq!((obsolete(&set), info(&set).bytes, info(&set).sealed_at), (1, 999, Some(9)));
    let reader = set.version(family).unwrap();
    set.unlink_obsolete();
    install(&set, [Change::RemoveVlog { family, vlog }]).unwrap();
    assert!(set.obsolete().is_empty(), "a reader still uses it");
    drop(reader);
    assert_eq!(set.obsolete().take(), [FileKind::Vlog(vlog)]);
}

#[test]
fn files_are_unlinked_after_the_last_reader_is_gone() {
    let (env, disk, set) = disk_with(8, 0);
    for id in 1..=3 {
        touch(&env, &files::table(TableId(id)));
    }
    let (a, b) = (meta(1, ("a", "b"), (1, 1), &[]), meta(2, ("a", "b"), (2, 2), &[]));
    install(&set, [create_family(1, "f"), add(1, 1, &a), add(1, 1, &b)]).unwrap();
    let old = set.version(FamilyId(1)).unwrap();
    let slot = Arc::clone(old.table(TableId(1)).unwrap());
    install(&set, [remove(1, 1, 1), remove(1, 1, 2), add(1, 2, &meta(3, ("a", "b"), (1, 2), &[]))]).unwrap();
    assert_eq!(set.unlink_obsolete(), 0, "a version keeps both files alive");
    drop(old);
    assert_eq!(set.unlink_obsolete(), 1, "a reader keeps one file alive");
    assert_eq!(file_names(&env), ["000001.klog", "000001.manifest", "000003.klog", "CURRENT"]);
    drop(slot);
    use tidesdb_io::sim::{Fault, OpKind, errno};
    disk.inject(Fault::errno(errno::EACCES).on(OpKind::Unlink));
    assert_eq!((set.unlink_obsolete(), set.obsolete().len()), (0, 1), "a failure is retried");
    assert_eq!((set.unlink_obsolete(), set.obsolete().len()), (1, 0));
    install(&set, [create_family(2, "g"), add(2, 1, &meta(4, ("a", "b"), (1, 1), &[]))]).unwrap();
    install(&set, [Change::DropFamily { family: FamilyId(1) }]).unwrap();
    assert_eq!(set.unlink_obsolete(), 1);
    assert_eq!(file_names(&env), ["000001.manifest", "CURRENT"]);
    let queue = Arc::clone(set.obsolete());
    install(&set, [Change::RenameFamily { family: FamilyId(2), name: "h".into() }]).unwrap();
    drop(set);
    assert!(queue.is_empty(), "a table named by the manifest is queued for unlinking: {:?}", queue.take());
}

#[test]
fn an_edit_that_removes_what_is_not_in_force_panics_and_changes_nothing() {
    let (_env, _disk, set) = disk_with(5, 0);
    install(&set, [create_family(1, "f"), add(1, 1, &meta(1, ("a", "b"), (1, 2), &[]))]).unwrap();
    let before = (facts(&set.state()), set.manifest());
    for wrong in [remove(1, 2, 1), remove(1, 1, 2)] {
        let install = std::panic::AssertUnwindSafe(|| install(&set, [wrong]));
        assert!(std::panic::catch_unwind(install).is_err());
        assert_eq!((facts(&set.state()), set.manifest()), before);
    }
}

#[test]
fn publish_sees_installs_in_order() {
    let (_env, _disk, set) = disk_with(9, 2);
    let seen = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for key in ["a", "b", "c", "d"] {
            let (set, seen) = (&set, &seen);
            scope.spawn(move || {
                for _ in 0..10 {
                    let table = meta(set.new_table_id().unwrap().0, (key, key), (1, 1), &[]);
                    for change in [add(1, 7, &table), remove(1, 7, table.id.0)] {
                        set.install(&edit([change]), |versions| {
                            assert!(versions.contains_key(&FamilyId(1)));
                            seen.lock().unwrap().push(set.installs());
                        })
                        .unwrap();
                    }
                }
            });
        }
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen.len() == 80 && seen.is_sorted());
}

#[test]
fn orphans_are_set_aside_and_unlinked_after_a_clean_session() {
    let (env, _disk, set) = disk_with(10, 0);
    install(&set, [create_family(1, "f"), add(1, 1, &meta(5, ("a", "b"), (1, 1), &[]))]).unwrap();
    drop(set);
    for name in [
        "000005.klog",
        "000009.klog",
        "000004.vlog",
        "000077.manifest",
        "000001.wal",
        "000003.klog.orphan",
        "notes",
    ] {
        touch(&env, name);
    }
    let (set, _) = recover(&env);
    assert!(set.new_table_id().unwrap() > TableId(9) && set.new_vlog_id().unwrap() > VlogId(4));
    touch(&env, "000050.klog"); // created after the open: not an orphan
    let report = set.settle_orphans();
    assert_eq!((report.set_aside, report.unlinked, report.failed), (3, 0, 0));
    assert_eq!(set.settle_orphans(), OrphanReport::default(), "only the first call settles");
    set.unlink_obsolete();
    let kept =
        ["000001.wal", "000003.klog.orphan", "000004.vlog.orphan", "000005.klog", "000009.klog.orphan"];
    let names = file_names(&env);
    assert!(kept.iter().all(|k| names.iter().any(|n| n == k)), "{names:?}");
    assert!(names.contains(&"000077.manifest.orphan".into()) && names.contains(&"000050.klog".into()));
    drop(set);
    let (set, _) = recover(&env); // the last session was not closed cleanly
    assert_eq!(set.settle_orphans().unlinked, 0);
    set.unlink_obsolete();
    set.close(&VersionEdit::new()).unwrap();
    let (set, _) = recover(&env);
    assert!(set.manifest().unwrap().0 > 77);
    assert_eq!(set.settle_orphans().unlinked, 5);
    set.unlink_obsolete();
    let manifest = files::manifest(set.manifest().unwrap().0);
    assert_eq!(file_names(&env), ["000001.wal", "000005.klog", &manifest, "CURRENT", "notes"]);
}

/// A sync would keep the first read waiting while the device writes what the crashed process left.
#[test]
fn after_a_crash_the_first_install_begins_the_manifest() {
    let (env, disk, set) = disk_with(12, 4);
    let (before, state) = (set.manifest().unwrap().0, facts(&set.state()));
    drop(set);
    for _ in 0..2 {
        let ops = disk.op_count();
        let (set, _) = open(&env);
        let syncs = disk.ops().into_iter().filter(|op| op.index >= ops && sim::OpSet::SYNCS.has(op.kind));
        assert_eq!(syncs.count(), 0, "the open of a crashed database waits for no sync");
        assert_eq!((set.manifest(), facts(&set.state())), (None, state.clone()));
    }
    let (set, _) = recover(&env);
    set.settle_orphans();
    set.unlink_obsolete();
    assert_eq!(set.manifest().unwrap().0, before + 1);
    let manifests = file_names(&env).into_iter().filter(|name| name.ends_with(".manifest"));
    assert_eq!(manifests.collect::<Vec<_>>(), [files::manifest(before + 1)]);
    set.close(&VersionEdit::new()).unwrap();
    let (set, report) = open(&env);
    assert!(report.clean && set.manifest().is_none(), "nor does the open of a database that was closed");
}

#[test]
fn a_read_only_open_changes_nothing() {
    let (env, disk, set) = disk_with(11, 4);
    let state = facts(&set.state());
    drop(set);
    let ops = disk.op_count();
    let dir = env.disk.open_dir(Path::new(DB), false).unwrap();
    let (set, _) = Set::open(context(&env, &dir), true).unwrap();
    assert_eq!(facts(&set.state()), state);
    assert!(matches!(install(&set, [Change::LastSeq { seq: 1 }]), Err(Error::ReadOnly)));
    set.settle_orphans();
    set.unlink_obsolete();
    set.close(&VersionEdit::new()).unwrap();
    let changes = |op: &sim::Op| op.index >= ops && sim::OpSet::CHANGES.has(op.kind);
    assert_eq!(disk.ops().into_iter().filter(changes).count(), 0);
}

#[test]
fn a_custom_key_order_must_be_given_at_each_open() {
    let (env, _disk, set) = disk_with(12, 0);
    let mine = || Comparator::custom("mine", |a, b| b.cmp(a));
    let family = |id, name: &str, order| Change::CreateFamily {
        family: FamilyId(id),
        name: name.into(),
        options: FamilyOptions::default().comparator(order),
    };
    let tables = [meta(1, ("z", "m"), (1, 1), &[]), meta(2, ("l", "a"), (1, 1), &[])];
    install(&set, [family(1, "f", mine()), add(1, 2, &tables[0]), add(1, 2, &tables[1])]).unwrap();
    install(&set, [family(2, "gone", Comparator::custom("lost", |a, b| a.cmp(b)))]).unwrap();
    install(&set, [Change::DropFamily { family: FamilyId(2) }]).unwrap();
    drop(set);
    let e = try_open(&env).unwrap_err();
    assert!(matches!(e, Error::InvalidArgument { .. }) && e.to_string().contains("mine"), "{e}");
    let dir = dir_of(&env);
    let given = Context { comparators: vec![mine()], ..context(&env, &dir) };
    let (set, _) = Set::open(given, false).unwrap();
    let version = set.version(FamilyId(1)).unwrap();
    assert_eq!(version.level(2).next().unwrap().id(), TableId(1), "sorted by the order given");
    let mut first = None;
    version.tables_for(b"c", |slot| first = first.or(Some(slot.id())));
    assert_eq!(first, Some(TableId(2)));
}

#[test]
fn applying_a_snapshot_reproduces_the_state() {
    let (_env, _disk, set) = disk_with(13, 30);
    let (family, vlog) = (FamilyId(1), set.new_vlog_id().unwrap());
    install(&set, [Change::AddVlog { family, vlog, salt: [1; 16] }]).unwrap();
    let state = set.state();
    let mut again = State::default();
    again.apply(&state.snapshot()).unwrap();
    assert_eq!(facts(&again), facts(&state));
    assert_eq!(
        (again.next_table, again.next_vlog, again.next_family),
        (state.next_table, state.next_vlog, state.next_family)
    );
    again.check().unwrap();
}

#[test]
fn inspect_shows_every_edit() {
    let (env, _disk, set) = disk_with(14, 3);
    let mut seen = Vec::new();
    let (state, report) =
        inspect(&*dir_of(&env), &mut |at, edit| seen.push((at, edit.changes.len()))).unwrap();
    assert_eq!((seen.len() as u64, report.records), (4, 4));
    assert_eq!(facts(&state), facts(&set.state()));
    assert!(seen.is_sorted_by_key(|s| s.0));
}

/// An install once tried its edit on a clone of the state, which cost as much as there were families. It applies the edit to the state itself
/// now, and takes it back if anything fails. Each edit here fails by its last change, after all others were applied, or while a table is
/// opened.
#[test]
fn an_edit_that_fails_leaves_the_state_as_it_was() {
    let (env, ..) = sim::env(17);
    let dir = dir_of(&env);
    let panics = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (open, is_due) = (Arc::clone(&panics), std::sync::atomic::Ordering::SeqCst);
    let open_table: Arc<OpenTable<TableId>> = Arc::new(move |_, meta| {
        assert!(!open.load(is_due), "the comparator of a user panics");
        Ok(Arc::new(meta.id))
    });
    let set = Set::create(Context { open_table, ..context(&env, &dir) }, SEGMENT).unwrap();
    let table = |id: u64, refs: &[(u32, u64, u64)]| meta(id, ("a", "b"), (1, 5), refs);
    let vlog = |vlog: u32, family: u32| Change::AddVlog {
        family: FamilyId(family),
        vlog: VlogId(vlog),
        salt: [7; 16],
    };
    let rename =
        |family: u32, name: &str| Change::RenameFamily { family: FamilyId(family), name: name.into() };
    let drop_family = |family: u32| Change::DropFamily { family: FamilyId(family) };
    install(&set, [create_family(1, "one"), vlog(1, 1), add(1, 1, &table(1, &[(1, 100, 2)]))]).unwrap();
    install(&set, [create_family(2, "two"), add(2, 1, &table(2, &[]))]).unwrap();
    let good = [
        vec![create_family(3, "three"), add(3, 1, &table(3, &[])), vlog(3, 3)],
        vec![drop_family(1), create_family(3, "one")],
        vec![rename(1, "three"), rename(2, "one"), rename(1, "two")],
        vec![remove(1, 1, 1), add(1, 1, &table(3, &[(1, 50, 1)]))],
        vec![remove(2, 1, 2), add(1, 1, &table(2, &[]))], // a file changes hands
        vec![drop_family(1), drop_family(2)],
        vec![Change::LastSeq { seq: 99 }, Change::LogStart { wal: WalId(8) }],
        vec![],
    ];
    let bad = [
        vec![drop_family(77)],
        vec![create_family(9, "nine"), create_family(10, "nine")],
        vec![
            create_family(9, "nine"),
            create_family(10, "ten"),
            add(9, 1, &table(50, &[])),
            add(10, 1, &table(50, &[])),
        ],
    ];
    let before = set.state();
    let is_unchanged = |edit: &[Change]| {
        let after = set.state();
        assert_eq!(facts(&after), facts(&before), "{edit:?}");
        assert!(after.check().is_ok(), "{edit:?}: {:?}", after.check());
        let counters = |state: &State| (state.next_family, state.next_table, state.next_vlog);
        assert_eq!(counters(&after), counters(&before), "{edit:?}");
    };
    for good in &good {
        for bad in &bad {
            let all = [&good[..], bad].concat();
            assert!(install(&set, all.clone()).is_err(), "{all:?}");
            is_unchanged(&all);
        }
        panics.store(true, is_due);
        let all = [&good[..], &[create_family(9, "nine"), add(9, 1, &table(50, &[]))]].concat();
        let install = || install(&set, all.clone());
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(install)).is_err(), "{all:?}");
        panics.store(false, is_due);
        is_unchanged(&all);
    }
    let table = add(1, 1, &meta(4, ("a", "b"), (6, 9), &[]));
    for edit in [good[2].clone(), vec![table], good[0].clone()] {
        install(&set, edit.clone()).unwrap();
        assert!(set.state().check().is_ok(), "{edit:?}");
    }
    assert_eq!(set.state().family_by_name("one").map(|family| family.id), Some(FamilyId(2)));
}
