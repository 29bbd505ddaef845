//! The habits of file systems: what an open file keeps, and how far a sync reaches.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::sim::{DataFate, Habits, Image, NameFate, Reach, SimDisk, errno};
use tidesdb_io::{Access, Boot, Dir, Disk, File, FileExt};

use crate::raw;

/// Every change that is not durable survives or is lost on its own.
const ANY: Image = Image { data: DataFate::Sectors { size: 512, keep: 0.5 }, names: NameFate::Subset };

/// A disk with a durable file `a`.
fn disk(habits: Habits) -> (SimDisk, Arc<dyn Dir>, Arc<dyn File>) {
    let sim = SimDisk::new(5);
    sim.set_habits(habits);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    sim.write_file("/db/a", b"old").unwrap();
    sim.write_file("/db-is-durable", b"").unwrap();
    let file = dir.open("a", Access::ReadWrite).unwrap();
    (sim, dir, file)
}

fn names(disk: &SimDisk) -> Vec<String> {
    disk.file_names("/db").unwrap()
}

/// Returns the names that are left if everything is lost that may be.
fn certain(sim: &SimDisk) -> Vec<String> {
    names(&sim.crash_image(&Image::SYNCED, 1))
}

/// Returns what images of many seeds show.
fn seen<T: Ord>(sim: &SimDisk, look: impl Fn(&SimDisk) -> T) -> BTreeSet<T> {
    (0..300).map(|seed| look(&sim.crash_image(&ANY, seed))).collect()
}

#[test]
fn an_open_file_can_keep_its_name() {
    let (_, dir, file) = disk(Habits::WINDOWS);
    dir.create_new("new", 0).unwrap().write_all_at(b"new", 0).unwrap();
    let denied = Some(errno::EACCES);
    assert_eq!(raw(dir.rename("new", "a")), denied);
    dir.rename("a", "b").unwrap();
    dir.unlink("b").unwrap();
    assert_eq!(dir.list().unwrap(), ["b", "new"]);
    for refused in [
        raw(dir.open("b", Access::Read)),
        raw(dir.create_new("b", 0)),
        raw(dir.unlink("b")),
        raw(dir.rename("b", "c")),
        raw(dir.rename("new", "b")),
        raw(dir.link("b", &*dir, "c")),
    ] {
        assert_eq!(refused, denied);
    }
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"old");
    file.sync_data().unwrap();
    drop(file);
    assert_eq!(dir.list().unwrap(), ["new"]);
    dir.rename("new", "b").unwrap();
}

#[test]
fn other_systems_remove_and_replace_open_files() {
    for habits in [Habits::LINUX, Habits::MACOS] {
        let (_, dir, _file) = disk(habits);
        drop(dir.create_new("new", 0).unwrap());
        dir.rename("new", "a").unwrap();
        let _again = dir.open("a", Access::Read).unwrap();
        dir.unlink("a").unwrap();
        assert!(dir.list().unwrap().is_empty());
    }
}

#[test]
fn a_kill_closes_a_removed_file_and_a_power_failure_leaves_its_name() {
    let (sim, dir, _file) = disk(Habits::WINDOWS);
    dir.unlink("a").unwrap();
    let killed = sim.fork();
    assert!(names(&killed).is_empty());
    for disk in [&sim, &killed] {
        let left = [Image::SYNCED, Image::EVERYTHING].map(|image| names(&disk.crash_image(&image, 1)));
        assert_eq!(left, [["a"], ["a"]], "the power failed while the file was open");
    }
    let next = killed.open_dir(Path::new("/db"), false).unwrap();
    next.create_new("b", 0).unwrap().sync_data().unwrap();
    assert_eq!(certain(&killed), ["b"], "what the kill removed is durable with later names");
}

#[test]
fn a_file_that_is_open_for_reading_cannot_be_synced_on_windows() {
    for (habits, error) in [(Habits::WINDOWS, Some(errno::EACCES)), (Habits::LINUX, None)] {
        let (_, dir, _) = disk(habits);
        let file = dir.open("a", Access::Read).unwrap();
        assert_eq!((raw(file.sync_data()), raw(file.sync_all())), (error, error));
    }
}

#[test]
fn windows_tells_no_boots_apart_and_maps_no_files() {
    let (windows, _, file) = disk(Habits::WINDOWS);
    assert!(file.map_shared(3).unwrap().is_none());
    let image = windows.crash_image(&Image::EVERYTHING, 1);
    let boot = |disk: &SimDisk| disk.open_dir("/".as_ref(), false).unwrap().boot();
    assert_eq!([&windows, &windows.fork(), &image].map(boot), [Boot::default(); 3]);
    let (macos, _, file) = disk(Habits::MACOS);
    assert!(file.map_shared(3).unwrap().is_none());
    assert_ne!(boot(&macos), boot(&macos.crash_image(&Image::EVERYTHING, 1)));
}

#[test]
fn names_on_windows_are_durable_with_the_next_flush_or_rename() {
    let (sim, dir, file) = disk(Habits::WINDOWS);
    let elsewhere = sim.open_dir(Path::new("/elsewhere"), true).unwrap();
    for name in ["b", "c"] {
        drop(dir.create_new(name, 0).unwrap());
    }
    dir.sync().unwrap();
    assert_eq!(certain(&sim), ["a"], "there is no sync of a directory");
    let all = seen(&sim, names);
    assert_eq!(all.len(), 4, "names survive or are lost on their own: {all:?}");
    drop(elsewhere.create_new("x", 0).unwrap());
    elsewhere.rename("x", "y").unwrap();
    assert_eq!(certain(&sim), ["a", "b", "c"], "a rename in another directory writes them all");
    dir.unlink("b").unwrap();
    dir.link("c", &*dir, "d").unwrap();
    assert_eq!(certain(&sim), ["a", "b", "c"]);
    file.write_all_durably_at(b"new", 0).unwrap();
    assert_eq!(certain(&sim), ["a", "c", "d"], "a flush of any file writes them too");
    assert_eq!(sim.crash_image(&Image::SYNCED, 1).file_names("/elsewhere").unwrap(), ["y"]);
}

/// Fails if the seam chooses a weaker call than `F_FULLFSYNC`.
#[test]
fn each_sync_on_macos_reaches_the_device() {
    let (sim, dir, file) = disk(Habits::MACOS);
    let durable = || sim.crash_image(&Image::SYNCED, 1).read_file("/db/a").unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(durable(), b"one");
    file.write_all_at(b"two", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(durable(), b"two");
    file.write_all_durably_at(b"six", 0).unwrap();
    assert_eq!(durable(), b"six");
    dir.rename("a", "b").unwrap();
    assert_eq!(certain(&sim), ["a"], "a rename alone is not durable");
    dir.sync().unwrap();
    assert_eq!(certain(&sim), ["b"]);
}

/// Two files, `a` and `b`, each with its sync by a call that reaches `reach`, then a name.
fn two_steps(reach: Reach) -> (SimDisk, Arc<dyn Dir>, Arc<dyn File>) {
    let (sim, dir, file) = disk(Habits { file_sync: reach, ..Habits::MACOS });
    sim.write_file("/db/b", b"old").unwrap();
    file.write_all_at(b"new", 0).unwrap();
    file.sync_data().unwrap();
    dir.open("b", Access::ReadWrite).unwrap().write_all_at(b"new", 0).unwrap();
    drop(dir.create_new("c", 0).unwrap());
    (sim, dir, file)
}

/// Returns what an image has of the two steps: the bytes of `a`, those of `b`, the name `c`.
fn kept(disk: &SimDisk) -> [bool; 3] {
    let is_new = |name: &str| disk.read_file(name).unwrap() == b"new";
    [is_new("/db/a"), is_new("/db/b"), names(disk).contains(&"c".to_owned())]
}

#[test]
fn what_the_device_has_in_its_cache_is_lost_or_kept_until_it_is_flushed() {
    let (sim, dir, _) = two_steps(Reach::Cache);
    assert_eq!(kept(&sim.fork()), [true; 3], "a kill of the process loses nothing");
    assert_eq!(kept(&sim.crash_image(&Image::SYNCED, 1)), [false; 3]);
    assert_eq!(seen(&sim, kept).len(), 8, "in any order");
    // This sync flushes the cache of the device. Not handed to it so far: `b`.
    dir.sync().unwrap();
    assert_eq!(kept(&sim.crash_image(&Image::SYNCED, 1)), [true, false, true]);
    assert_eq!(seen(&sim, kept), [[true, false, true], [true, true, true]].into());
}

#[test]
fn a_barrier_keeps_the_order_and_makes_nothing_durable() {
    let (sim, dir, file) = two_steps(Reach::Barrier);
    assert_eq!(kept(&sim.fork()), [true; 3]);
    assert_eq!(kept(&sim.crash_image(&Image::SYNCED, 1)), [false; 3]);
    assert_eq!(kept(&sim.crash_image(&Image::EVERYTHING, 1)), [true; 3]);
    let all = seen(&sim, kept);
    assert!(all.iter().all(|[first, second, name]| *first || !second && !name), "{all:?}");
    assert_eq!(all.len(), 5, "the first alone, with either, with both; or nothing");
    // The bytes of `b` are not synced: they may come to the device before the second barrier or after it.
    file.write_all_at(b"end", 0).unwrap();
    file.sync_data().unwrap();
    drop(dir.create_new("d", 0).unwrap());
    let all = seen(&sim, |disk| (names(disk).contains(&"d".to_owned()), disk.read_file("/db/a").unwrap()));
    assert!(all.iter().all(|(name, bytes)| !name || bytes == b"end"), "{all:?}");
    assert_eq!(all.len(), 4);
    dir.sync().unwrap();
    let left = sim.crash_image(&Image::SYNCED, 1);
    assert_eq!((left.read_file("/db/a").unwrap(), names(&left).len()), (b"end".to_vec(), 4));
    assert_eq!(left.read_file("/db/b").unwrap(), b"old");
}

#[test]
fn forks_and_images_keep_the_habits() {
    let (sim, _, _) = disk(Habits::WINDOWS);
    for disk in [sim.fork(), sim.crash_image(&Image::SYNCED, 1)] {
        let dir = disk.open_dir(Path::new("/db"), false).unwrap();
        let _held = dir.open("a", Access::Read).unwrap();
        drop(dir.create_new("b", 0).unwrap());
        assert_eq!(raw(dir.rename("b", "a")), Some(errno::EACCES));
    }
}
