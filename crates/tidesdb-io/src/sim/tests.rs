//! Tests of the simulator's parts against simple models.

use std::path::Path;
use std::sync::Arc;

use super::bytes::{Bytes, PAGE};
use super::inode::{Blocks, Inode};
use super::rng::Rng;
use super::{SimDisk, SyncModel, env_on};
use crate::{Access, is_out_of_descriptors};

#[test]
fn bytes_behave_as_a_vector() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (mut bytes, mut model) = (Bytes::default(), Vec::new());
        let mut kept: Vec<(Bytes, Vec<u8>)> = Vec::new();
        for _ in 0..200 {
            let offset = rng.below(70 * PAGE);
            match rng.below(6) {
                0 => {
                    bytes.set_len(offset);
                    model.resize(offset as usize, 0);
                }
                1 => kept.push((bytes.clone(), model.clone())),
                2 => {
                    let mut got = vec![1; rng.below(3 * PAGE) as usize];
                    let n = bytes.read(&mut got, offset);
                    let end = model.len().min(offset as usize + got.len());
                    assert_eq!(got[..n], model[end.min(offset as usize)..end], "seed {seed}");
                }
                _ => {
                    let data = vec![rng.next() as u8; rng.below(3 * PAGE) as usize];
                    bytes.write(offset, &data);
                    if !data.is_empty() {
                        let end = offset as usize + data.len();
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&data);
                    }
                }
            }
            assert_eq!(bytes.len(), model.len() as u64, "seed {seed}");
        }
        kept.push((bytes, model));
        for (bytes, model) in kept {
            assert!(bytes.to_vec() == model, "a clone changed, seed {seed}");
        }
    }
}

/// Found on 32 bits: what was written beyond 4 GiB was at the offset less 4 GiB.
#[test]
fn a_file_beyond_addresses_of_32_bits() {
    const AT: u64 = (5 << 30) + PAGE - 2;
    let mut file = Bytes::default();
    file.write(AT, b"beyond");
    assert_eq!((file.len(), file.range(AT - 1, 9)), (AT + 6, b"\0beyond".to_vec()));
    assert_eq!(file.range(AT - (4 << 30), 6), [0; 6]);
    file.write(AT - (4 << 30), b"below");
    assert_eq!((file.range(AT, 6), file.range(AT - (4 << 30), 6)), (b"beyond".to_vec(), b"below\0".to_vec()));
    file.set_len(AT + 3);
    file.set_len(AT + 6);
    assert_eq!(file.range(AT, 6), b"bey\0\0\0");
    file.set_len(4 << 30);
    file.set_len(AT + 6);
    assert_eq!((file.range(AT, 6), file.range(AT - (4 << 30), 5)), (vec![0; 6], b"below".to_vec()));
}

#[test]
fn a_write_does_not_change_a_clone() {
    let mut file = Bytes::default();
    file.write(0, &vec![7; 1 << 20]);
    let copy = file.clone();
    file.write(0, b"x");
    assert_eq!(copy.range(0, 2), [7, 7]);
    assert_eq!(file.range(0, 2), [b'x', 7]);
}

#[test]
fn after_a_failed_sync_only_rewritten_pages_become_durable() {
    let mut file = Inode::default();
    file.set_len(1, 3 * PAGE);
    file.sync();
    file.write(2, 0, b"aa", false);
    file.write(3, PAGE, b"bb", false);
    file.fail_sync(SyncModel::Linux);
    assert!(!file.dirty(), "the pages count as clean");
    file.sync();
    assert_eq!(file.durable.range(0, 2), [0, 0], "the retried sync wrote nothing");
    assert_eq!(file.cached.range(0, 2), *b"aa");
    // One of the lost pages is made dirty again, so all of it is written.
    file.write(4, 10, b"c", false);
    file.sync();
    assert_eq!(file.durable.range(0, 2), *b"aa");
    assert_eq!(file.durable.range(PAGE, 2), [0, 0]);
}

#[test]
fn chances_are_about_right() {
    let mut rng = Rng::new(3);
    let hits = (0..10_000).filter(|_| rng.chance(0.25)).count();
    assert!((2_200..2_800).contains(&hits), "{hits} of 10000");
    assert!((0..100).all(|_| rng.chance(1.0)) && !(0..100).any(|_| rng.chance(0.0)));
    assert_eq!(rng.below(0), 0);
}

#[test]
fn files_without_a_name_are_dropped_once_nothing_can_bring_them_back() {
    let (env, disk, _) = env_on(SimDisk::new(1), 1);
    let files = || disk.state.lock().world.files.len();
    let dir = env.disk.open_dir(Path::new("/db"), true).unwrap();
    let file = dir.create_new("a", 0).unwrap();
    dir.sync().unwrap();
    dir.unlink("a").unwrap();
    assert_eq!(files(), 1);
    dir.sync().unwrap();
    assert_eq!(files(), 1, "still open");
    let second = Arc::clone(&file);
    drop(file);
    dir.sync().unwrap();
    assert_eq!(files(), 1, "still open");
    drop(second);
    dir.sync().unwrap();
    assert_eq!(files(), 0);
}

#[test]
fn blocks_are_what_a_set_of_bytes_says() {
    let mut rng = Rng::new(9);
    for _ in 0..200 {
        let (mut file, mut model) = (Inode::default(), std::collections::BTreeSet::new());
        for seq in 0..40 {
            let (from, len) = (rng.below(60), rng.below(20));
            match rng.below(4) {
                0 => {
                    file.set_len(seq, from);
                    model.retain(|at| *at < from);
                }
                1 => {
                    file.allocate(seq, from..from + len);
                    model.extend(from..from + len);
                }
                _ => {
                    file.write(seq, from, &vec![1; len as usize], false);
                    model.extend(from..from + len);
                }
            }
            let blocks: &Blocks = &file.blocks;
            assert_eq!(blocks.bytes(), model.len() as u64);
            let (range, room) = (from..from + rng.below(30), rng.below(12));
            let missing: Vec<u64> = range.clone().filter(|at| !model.contains(at)).collect();
            assert_eq!(blocks.missing(&range), missing.len() as u64);
            let reach = missing.get(room as usize).copied().unwrap_or(range.end);
            assert_eq!(blocks.reach(&range, room), reach, "{range:?} with room for {room}");
        }
    }
}

#[test]
fn only_so_many_files_are_open_as_the_limit_allows() {
    let (env, disk, _) = env_on(SimDisk::new(1), 1);
    let dir = env.disk.open_dir(Path::new("/d"), true).unwrap();
    disk.limit_open_files(2);
    let first = dir.create_new("a", 0).unwrap();
    let second = dir.open("a", Access::Read).unwrap();
    for refused in [dir.create_new("b", 0), dir.open("a", Access::Read)] {
        assert!(is_out_of_descriptors(&refused.unwrap_err()));
    }
    assert_eq!(dir.list().unwrap(), ["a"]);
    let map = second.without_descriptor().unwrap().unwrap();
    drop(second); // the map takes none
    drop((dir.create_new("b", 0).unwrap(), first));
    drop(map);
    let _both = ["a", "b"].map(|name| dir.open(name, Access::Read).unwrap());
    assert!(dir.open("b", Access::Read).is_err());
}
