//! The simulator applied to a small protocol: replacing a file. The correct protocol survives every crash point
//! and image; each classic mistake is found.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tidesdb_io::sim::{self, Image, OpSet, SimDisk};
use tidesdb_io::{Access, Dir, Disk, FileExt};

const LEN: usize = 3_000;
const UPDATES: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    None,
    /// The new bytes are not synced before the rename.
    NoDataSync,
    /// The rename is not synced before the update counts.
    NoDirSync,
    /// The old file is overwritten in place.
    InPlace,
}

/// Replaces file `now` by `LEN` times `value`, atomically.
fn update(dir: &dyn Dir, value: u8, mistake: Mistake) -> std::io::Result<()> {
    let bytes = [value; LEN];
    if mistake == Mistake::InPlace {
        let file = dir.open("now", Access::ReadWrite).or_else(|_| dir.create_new("now", 0))?;
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        return dir.sync();
    }
    if dir.list()?.contains(&"next".to_owned()) {
        dir.unlink("next")?;
    }
    let file = dir.create_new("next", 0)?;
    file.write_all_at(&bytes, 0)?;
    if mistake != Mistake::NoDataSync {
        file.sync_data()?;
    }
    dir.rename("next", "now")?;
    if mistake != Mistake::NoDirSync {
        dir.sync()?;
    }
    Ok(())
}

/// Returns what is wrong with a disk on which update `acked` was the last to return.
fn wrong(disk: &SimDisk, acked: u8) -> Option<String> {
    let bytes = match disk.read_file("/db/now") {
        Ok(bytes) => bytes,
        Err(_) if acked == 0 => return None,
        Err(e) => return Some(format!("lost: {e}")),
    };
    let value = *bytes.first()?;
    if bytes != [value; LEN] {
        return Some(format!("torn, {} bytes", bytes.len()));
    }
    (value != acked && value != acked + 1).then(|| format!("{value} after {acked}"))
}

/// Crashes before every call and builds every standard image with several seeds. Returns the number of images
/// and the errors found.
fn sweep(mistake: Mistake) -> (usize, Vec<String>) {
    let (env, disk, _) = sim::env(1);
    let dir = env.disk.open_dir(Path::new("/db"), true).unwrap();
    let points = Arc::new(Mutex::new(Vec::new()));
    let acked = Arc::new(Mutex::new(0));
    let (sink, seen) = (Arc::clone(&points), Arc::clone(&acked));
    disk.observe(OpSet::ALL, move |op, fork| {
        sink.lock().unwrap().push((op.index, *seen.lock().unwrap(), fork))
    });
    for value in 1..=UPDATES {
        update(&*dir, value, mistake).unwrap();
        *acked.lock().unwrap() = value;
    }
    disk.stop_observing();
    let points = points.lock().unwrap();
    let mut found = Vec::new();
    let mut images = 0;
    for (index, acked, fork) in points.iter() {
        for image in Image::STANDARD {
            for seed in 0..8 {
                images += 1;
                let crashed = fork.crash_image(&image, seed);
                found.extend(
                    wrong(&crashed, *acked).map(|e| format!("call {index}, {image:?}, seed {seed}: {e}")),
                );
                assert_eq!(recover_and_go_on(&crashed), Ok(()), "call {index}");
            }
        }
    }
    (images, found)
}

/// Checks that the next update works on the recovered state.
fn recover_and_go_on(disk: &SimDisk) -> Result<(), String> {
    let dir = disk.open_dir(Path::new("/db"), true).unwrap();
    update(&*dir, 99, Mistake::None).unwrap();
    let after = disk.crash_image(&Image::SYNCED, 0);
    wrong(&after, 99).map_or(Ok(()), Err)
}

#[test]
fn the_correct_protocol_survives_and_mistakes_are_found() {
    for mistake in [Mistake::None, Mistake::NoDataSync, Mistake::NoDirSync, Mistake::InPlace] {
        let (images, found) = sweep(mistake);
        println!("{mistake:?}: {} of {images} images wrong", found.len());
        assert!(images > 2_000);
        assert_eq!(found.is_empty(), mistake == Mistake::None, "{mistake:?}: {found:#?}");
    }
}

#[test]
fn a_crash_at_a_call_leaves_the_observed_state() {
    let clean = SimDisk::new(4);
    let dir = clean.open_dir(Path::new("/db"), true).unwrap();
    let snapshots = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&snapshots);
    clean.observe(OpSet::ALL, move |op, fork| sink.lock().unwrap().push((op.index, fork)));
    (1..4).for_each(|value| update(&*dir, value, Mistake::None).unwrap());
    for (index, snapshot) in snapshots.lock().unwrap().iter() {
        let sim = SimDisk::new(4);
        let dir = sim.open_dir(Path::new("/db"), true).unwrap();
        sim.crash_at(*index);
        let error = (1..4).find_map(|value| update(&*dir, value, Mistake::None).err()).unwrap();
        assert!(sim::is_crash(&error));
        for image in Image::STANDARD {
            let [one, two] = [&sim, snapshot].map(|disk| disk.crash_image(&image, *index));
            let names = one.file_names("/db").unwrap();
            assert_eq!(names, two.file_names("/db").unwrap());
            for name in names {
                let path = format!("/db/{name}");
                assert!(one.read_file(&path).unwrap() == two.read_file(&path).unwrap(), "{path}");
            }
        }
    }
}
