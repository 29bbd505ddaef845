//! Reading a manifest beside its writer.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tidesdb_io::sim::OpKind;
use tidesdb_sync::Mutex;

use super::*;

#[test]
fn each_poll_finds_what_was_installed() {
    let (env, disk, mut set) = disk_with(5, 3);
    let dir = dir_of(&env);
    let mut tail = ManifestTail::open(&*dir).unwrap();
    let mut manifests = std::collections::BTreeSet::new();
    for n in 3..120 {
        let installs = n % 3;
        for i in 0..installs {
            let changes = step(&set, n * 3 + i);
            install(&set, changes).unwrap();
        }
        if n % 17 == 0 {
            drop(set);
            set = open(&env).0;
        }
        set.unlink_obsolete();
        let changed = tail.poll(&*dir).unwrap();
        assert!(changed || installs == 0, "install {n}");
        assert_eq!(facts(tail.state()), facts(&set.state()), "install {n}");
        assert!(!tail.poll(&*dir).unwrap());
        manifests.insert(tail.name().to_owned());
    }
    assert!(manifests.len() > 7, "of sessions and of manifests that grew too large: {manifests:?}");
    assert_eq!(disk.file_names(DB).unwrap().iter().filter(|name| name.ends_with(".manifest")).count(), 1);
}

#[test]
fn at_each_change_of_the_disk_the_state_was_in_force_or_is_being_installed() {
    let (_env, disk, set) = disk_with(6, 2);
    let allowed: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let seen = Arc::new(AtomicUsize::new(0));
    for kind in [OpKind::Write, OpKind::Rename, OpKind::SyncData, OpKind::Unlink] {
        let (states, count) = (Arc::clone(&allowed), Arc::clone(&seen));
        disk.observe(kind, move |_, fork| {
            let (env, _disk, _clock) = sim::env_on(fork, 1);
            let tail = ManifestTail::open(&*dir_of(&env)).unwrap();
            assert!(states.lock().contains(&facts(tail.state())));
            count.fetch_add(1, SeqCst);
        });
        for n in 2..40 {
            let changes = step(&set, n);
            let mut next = set.state();
            let before = facts(&next);
            next.apply(&edit(changes.clone())).unwrap();
            *allowed.lock() = vec![before, facts(&next)];
            install(&set, changes).unwrap();
            set.unlink_obsolete();
        }
    }
    assert!(seen.load(SeqCst) > 200, "{}", seen.load(SeqCst));
}

#[test]
fn a_damaged_record_below_a_mark_is_damage() {
    let (env, disk, set) = disk_with(7, 9);
    let dir = dir_of(&env);
    let mut tail = ManifestTail::open(&*dir).unwrap();
    let before = facts(tail.state());
    let changes = step(&set, 9);
    install(&set, changes).unwrap();
    let (number, end) = set.manifest().unwrap();
    let file = dir.open(&crate::files::manifest(number), tidesdb_io::Access::ReadWrite).unwrap();
    tidesdb_io::FileExt::write_all_at(&*file, &[0xEE; 8], end - 4096 + 30).unwrap();
    for _ in 0..2 {
        assert!(tail.poll(&*dir).unwrap_err().is_corruption());
        assert_eq!(facts(tail.state()), before);
    }
    drop(disk);
}
