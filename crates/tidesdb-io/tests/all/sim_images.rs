//! Crash images: which states each fate allows, and that every allowed state is reached.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::sim::{DataFate, Image, NameFate, SimDisk};
use tidesdb_io::{Dir, Disk, File, FileExt};

fn disk() -> (SimDisk, Arc<dyn Dir>) {
    let sim = SimDisk::new(3);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    (sim, dir)
}

/// Creates a file whose name and bytes are durable.
fn durable_file(dir: &dyn Dir, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = dir.create_new(name, 0).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    dir.sync().unwrap();
    file
}

/// Returns the contents of file `a` in the images of many seeds.
fn contents(sim: &SimDisk, data: DataFate, seeds: u64) -> BTreeSet<Vec<u8>> {
    let image = Image { data, names: NameFate::All };
    (0..seeds).map(|seed| sim.crash_image(&image, seed).read_file("/db/a").unwrap()).collect()
}

fn names(sim: &SimDisk, names: NameFate, seed: u64) -> Vec<String> {
    let image = Image { data: DataFate::All, names };
    sim.crash_image(&image, seed).file_names("/db").unwrap()
}

#[test]
fn a_name_is_durable_after_a_sync_of_its_directory_only() {
    let (sim, dir) = disk();
    let file = dir.create_new("a", 0).unwrap();
    file.write_all_at(b"bytes", 0).unwrap();
    file.sync_all().unwrap();
    assert!(names(&sim, NameFate::Synced, 0).is_empty());
    dir.sync().unwrap();
    assert_eq!(names(&sim, NameFate::Synced, 0), ["a"]);
    assert_eq!(sim.crash_image(&Image::SYNCED, 0).read_file("/db/a").unwrap(), b"bytes");
}

#[test]
fn a_name_may_be_durable_before_its_bytes() {
    let (sim, dir) = disk();
    dir.create_new("a", 0).unwrap().write_all_at(b"bytes", 0).unwrap();
    dir.sync().unwrap();
    assert_eq!(contents(&sim, DataFate::Synced, 1), BTreeSet::from([Vec::new()]));
    assert_eq!(contents(&sim, DataFate::SizeNoData, 1), BTreeSet::from([vec![0; 5]]));
}

#[test]
fn a_rename_happens_whole_or_not_and_keeps_the_old_file() {
    let (sim, dir) = disk();
    durable_file(&*dir, "a", b"old");
    let new = dir.create_new("tmp", 0).unwrap();
    new.write_all_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    dir.rename("tmp", "a").unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..64 {
        let image = sim.crash_image(&Image { data: DataFate::Synced, names: NameFate::Subset }, seed);
        seen.insert((image.file_names("/db").unwrap().join(","), image.read_file("/db/a").unwrap()));
    }
    let state = |names: &str, bytes: &[u8]| (names.to_owned(), bytes.to_vec());
    assert_eq!(seen, BTreeSet::from([state("a", b"old"), state("a,tmp", b"old"), state("a", b"new")]));
    dir.sync().unwrap();
    assert_eq!(sim.crash_image(&Image::SYNCED, 0).read_file("/db/a").unwrap(), b"new");
}

#[test]
fn masks_reach_every_subset_of_names() {
    let (sim, dir) = disk();
    durable_file(&*dir, "gone", b"");
    dir.create_new("a", 0).unwrap();
    dir.create_new("b", 0).unwrap();
    dir.unlink("gone").unwrap();
    assert_eq!(sim.pending_names(), 3);
    for mask in 0..8 {
        let mut want = Vec::new();
        for (bit, name) in ["a", "b"].iter().enumerate() {
            if mask >> bit & 1 == 1 {
                want.push(*name);
            }
        }
        if mask & 4 == 0 {
            want.push("gone");
        }
        assert_eq!(names(&sim, NameFate::Mask(mask), 9), want, "mask {mask}");
    }
    let sampled: BTreeSet<_> = (0..200).map(|seed| names(&sim, NameFate::Subset, seed)).collect();
    assert_eq!(sampled.len(), 8, "sampling reaches all subsets too");
}

#[test]
fn sectors_persist_alone_and_in_any_order() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", &[b'0'; 4 * 512]);
    file.write_all_at(&[b'1'; 3 * 512], 512).unwrap();
    let seen = contents(&sim, DataFate::Sectors { size: 512, keep: 0.5 }, 200);
    assert_eq!(seen.len(), 8, "each of three sectors is old or new");
    for bytes in &seen {
        assert!(bytes[..512].iter().all(|&b| b == b'0'), "a sector that was not written changed");
        assert!(bytes.chunks(512).all(|sector| sector.iter().all(|&b| b == sector[0])), "a torn sector");
    }
    let seen = contents(&sim, DataFate::Sectors { size: 4096, keep: 0.5 }, 50);
    assert_eq!(seen.len(), 2, "one big sector");
    assert_eq!(contents(&sim, DataFate::Sectors { size: 512, keep: 1.0 }, 20).len(), 1);
    let none = contents(&sim, DataFate::Sectors { size: 512, keep: 0.0 }, 20);
    assert_eq!(none, contents(&sim, DataFate::Synced, 1));
}

#[test]
fn a_durable_write_makes_its_own_bytes_durable_and_no_others() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", &[b'0'; 4 * 512]);
    file.write_all_at(&[b'1'; 3 * 512], 0).unwrap();
    file.write_all_durably_at(&[b'2'; 512], 512).unwrap();
    assert_eq!(contents(&sim, DataFate::Synced, 1).len(), 1);
    let seen = contents(&sim, DataFate::Sectors { size: 512, keep: 0.5 }, 200);
    let sectors = |bytes: &Vec<u8>| bytes.chunks(512).map(|sector| sector[0]).collect::<Vec<_>>();
    let seen: BTreeSet<_> = seen.iter().map(sectors).collect();
    let wanted = [b"0200", b"0210", b"1200", b"1210"].map(|sectors| sectors.to_vec());
    assert_eq!(seen, wanted.into(), "an earlier write is lost or not, and never covers the durable bytes");
    assert_eq!(file.len().unwrap(), 4 * 512);
    file.write_all_durably_at(&[b'3'; 512], 4 * 512).unwrap();
    assert!(contents(&sim, DataFate::Synced, 1).iter().all(|bytes| bytes.len() == 5 * 512));
}

#[test]
fn a_sector_holds_any_of_its_versions_in_time() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", b"....");
    for (i, byte) in (0..).zip([b"1", b"2", b"3"]) {
        file.write_all_at(byte, i).unwrap();
    }
    let seen = contents(&sim, DataFate::Sectors { size: 512, keep: 0.4 }, 200);
    let want = [&b"...."[..], b"1...", b"12..", b"123."];
    assert_eq!(seen, want.iter().map(|v| v.to_vec()).collect());
}

#[test]
fn lengths_persist_apart_from_bytes() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", b"ab");
    file.write_all_at(b"cd", 2).unwrap();
    file.write_all_at(b"ef", 4).unwrap();
    let seen = contents(&sim, DataFate::Sectors { size: 512, keep: 0.5 }, 300);
    let lens: BTreeSet<usize> = seen.iter().map(Vec::len).collect();
    assert_eq!(lens, BTreeSet::from([2, 4, 6]));
    assert!(seen.contains(b"ab\0\0\0\0".as_slice()), "the length survived, the bytes did not");
    assert!(seen.contains(b"abcdef".as_slice()));
    assert_eq!(contents(&sim, DataFate::SizeNoData, 3), BTreeSet::from([b"ab\0\0\0\0".to_vec()]));
}

#[test]
fn the_last_write_is_torn_at_every_byte() {
    let (sim, dir) = disk();
    let first = durable_file(&*dir, "a", b"");
    let other = durable_file(&*dir, "b", b"");
    other.write_all_at(b"earlier", 0).unwrap();
    first.write_all_at(b"12", 0).unwrap();
    first.write_all_at(b"345", 2).unwrap();
    let want = [&b"12"[..], b"123", b"1234", b"12345"];
    assert_eq!(contents(&sim, DataFate::TornLast, 100), want.iter().map(|v| v.to_vec()).collect());
    for seed in 0..20 {
        let image = sim.crash_image(&Image { data: DataFate::TornLast, names: NameFate::All }, seed);
        assert_eq!(image.read_file("/db/b").unwrap(), b"earlier", "only the last write of the disk is torn");
    }
    // Only the last change is torn: a truncation after the write makes the write whole.
    first.set_len(1).unwrap();
    assert_eq!(contents(&sim, DataFate::TornLast, 20), BTreeSet::from([b"1".to_vec()]));
}

#[test]
fn pages_of_a_map_persist_independently() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", &[b'.'; 3 * 4096]);
    let map = file.map_shared(3 * 4096).unwrap().unwrap();
    map.write(0, b"11").unwrap();
    map.write(2, b"22").unwrap();
    map.write(2 * 4096 - 1, b"xy").unwrap();
    let seen = contents(&sim, DataFate::Sectors { size: 4096, keep: 0.4 }, 400);
    let heads: BTreeSet<&[u8]> = seen.iter().map(|bytes| &bytes[..5]).collect();
    let want = [&b"....."[..], b"1....", b"11...", b"112..", b"1122."];
    assert_eq!(heads, want.into_iter().collect(), "a copy may stop in the middle, versions are in order");
    let ends: BTreeSet<&[u8]> = seen.iter().map(|bytes| &bytes[8191..8193]).collect();
    assert_eq!(ends, [&b".."[..], b"x.", b".y", b"xy"].into_iter().collect(), "pages persist independently");
    file.sync_data().unwrap();
    assert_eq!(contents(&sim, DataFate::Synced, 1).first().unwrap()[..5], *b"1122.", "a sync covers maps");
}

#[test]
fn garbage_stays_inside_sectors_at_risk() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", &[b'0'; 3 * 512]);
    file.write_all_at(b"1", 600).unwrap();
    let seen = contents(&sim, DataFate::PowersafeOff { size: 512 }, 200);
    let garbage = seen.iter().filter(|bytes| bytes[512..600] != [b'0'; 88]).count();
    assert!(garbage > 10, "durable bytes of the same sector are sometimes lost");
    for bytes in &seen {
        assert!(bytes.len() == 3 * 512 && bytes[..512] == [b'0'; 512] && bytes[1024..] == [b'0'; 512]);
    }
    file.write_all_at(b"1", 3 * 512).unwrap();
    let lens: BTreeSet<usize> =
        contents(&sim, DataFate::PowersafeOff { size: 512 }, 100).iter().map(Vec::len).collect();
    assert_eq!(lens, BTreeSet::from([3 * 512, 3 * 512 + 1]), "garbage does not make a file longer");
}

#[test]
fn a_durable_truncation_hides_earlier_writes() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", &[b'0'; 1024]);
    file.write_all_at(&[b'1'; 1024], 0).unwrap();
    file.write_all_at(&[b'2'; 1024], 0).unwrap();
    file.set_len(256).unwrap();
    file.set_len(2048).unwrap();
    let seen = contents(&sim, DataFate::Sectors { size: 512, keep: 0.3 }, 300);
    let lens: BTreeSet<usize> = seen.iter().map(Vec::len).collect();
    assert_eq!(lens, BTreeSet::from([256, 1024, 2048]));
    assert!(seen.iter().any(|bytes| bytes[..256] == [b'1'; 256]));
    for bytes in seen.iter().filter(|bytes| bytes.len() == 2048) {
        assert_eq!(bytes[256..], [0; 1792], "the length shows that the truncation persisted");
    }
    assert_eq!(sim.crash_image(&Image::EVERYTHING, 0).read_file("/db/a").unwrap()[256..], [0; 1792]);
}

#[test]
fn a_file_without_names_is_gone_and_two_names_share_one_file() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", b"bytes");
    dir.link("a", &*dir, "b").unwrap();
    dir.sync().unwrap();
    dir.unlink("a").unwrap();
    file.write_all_at(b"BYTES", 0).unwrap();
    let image = sim.crash_image(&Image { data: DataFate::Synced, names: NameFate::Synced }, 0);
    assert_eq!(image.file_names("/db").unwrap(), ["a", "b"], "the unlink was lost");
    image.corrupt("/db/a", 0, |_| b'?').unwrap();
    assert_eq!(image.read_file("/db/b").unwrap(), b"?ytes");
    assert_eq!(sim.read_file("/db/b").unwrap(), b"BYTES", "the image is independent of the disk");
}

#[test]
fn a_directory_made_by_open_is_durable_at_once() {
    let sim = SimDisk::new(1);
    sim.open_dir(Path::new("/x/y/db"), true).unwrap();
    let image = sim.crash_image(&Image::SYNCED, 0);
    image.open_dir(Path::new("/x/y/../y/db"), false).unwrap();
    assert!(image.open_dir(Path::new("/x/z"), false).is_err());
}

#[test]
fn the_next_open_syncs_a_directory_created_before_a_crash() {
    // The first process dies between creating the directory and syncing its name.
    let sim = SimDisk::new(1);
    let probe = SimDisk::new(1);
    probe.open_dir(Path::new("/db"), true).unwrap();
    sim.crash_at(probe.op_count() - 1);
    assert!(sim.open_dir(Path::new("/db"), true).is_err());
    let next = sim.fork();
    assert_eq!(next.file_names("/db").unwrap().len(), 0, "the directory is there");
    assert!(next.crash_image(&Image::SYNCED, 0).file_names("/db").is_err(), "not durable yet");
    durable_file(&*next.open_dir(Path::new("/db"), true).unwrap(), "a", b"x");
    assert_eq!(next.crash_image(&Image::SYNCED, 0).read_file("/db/a").unwrap(), b"x");
}

#[test]
fn standard_images_can_all_be_built_and_repeat() {
    let (sim, dir) = disk();
    let file = durable_file(&*dir, "a", &[1; 5_000]);
    file.write_all_at(&[2; 9_000], 2_000).unwrap();
    dir.create_new("b", 100).unwrap();
    for image in Image::STANDARD {
        let [one, two] = [0, 0].map(|_| sim.crash_image(&image, 77));
        assert_eq!(one.file_names("/db").unwrap(), two.file_names("/db").unwrap());
        assert!(one.read_file("/db/a").unwrap() == two.read_file("/db/a").unwrap(), "{image:?}");
        let dir = one.open_dir(Path::new("/db"), true).unwrap();
        dir.lock("LOCK", true).unwrap();
        durable_file(&*dir, "new", b"the disk works");
    }
}

#[test]
fn a_lost_unlink_brings_back_a_file_whose_name_was_not_durable() {
    let (sim, dir) = disk();
    let file = dir.create_new("a", 0).unwrap();
    file.write_all_at(b"bytes", 0).unwrap();
    file.sync_data().unwrap();
    drop(file);
    dir.unlink("a").unwrap();
    // The sync of another directory collects unused files and must not collect this one.
    sim.open_dir(Path::new("/other"), true).unwrap().sync().unwrap();
    let image = sim.crash_image(&Image { data: DataFate::Synced, names: NameFate::Mask(1) }, 0);
    assert_eq!(image.read_file("/db/a").unwrap(), b"bytes");
    assert!(names(&sim, NameFate::Mask(0b11), 0).is_empty());
}
