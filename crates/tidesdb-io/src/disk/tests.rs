//! Tests of the parts of the real disk that are not visible through its traits.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::file::RealFile;
use super::mmap::RealSharedMap;
use crate::system::{Folder, How};
use crate::{Entropy, File, FileExt, SeededEntropy, SharedMap};

const MIB: u64 = 1 << 20;

/// Bytes of the disk that a file takes.
#[cfg(unix)]
fn taken(path: &Path) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap()) * 512
}

/// Bytes of the disk that a file takes.
#[cfg(windows)]
fn taken(path: &Path) -> u64 {
    let folder = Folder::open(path.parent().unwrap()).unwrap();
    crate::system::allocated(&folder.open_file("file", How::Read).unwrap()).unwrap()
}

fn new_file(dir: &Path) -> RealFile {
    RealFile::new(Folder::open(dir).unwrap().open_file("file", How::CreateNew).unwrap())
}

#[test]
fn allocation_by_writing_keeps_content_and_fills_holes() {
    let temp = tempfile::tempdir().unwrap();
    let file = new_file(temp.path());
    let this: &dyn File = &file;
    this.write_all_at(b"head", 10).unwrap();
    this.set_len(40_000).unwrap();
    this.write_all_at(b"tail", 30_000).unwrap();
    file.allocate_by_writing(5, 50_001).unwrap();
    assert_eq!(this.len().unwrap(), 50_001);
    let mut all = vec![0; 50_001];
    this.read_exact_at(&mut all, 0).unwrap();
    let mut want = vec![0; 50_001];
    want[10..14].copy_from_slice(b"head");
    want[30_000..30_004].copy_from_slice(b"tail");
    assert!(all == want);
    this.sync_all().unwrap();
    let taken = taken(&temp.path().join("file"));
    assert!(taken >= 13 * 4096, "{taken} bytes of the disk");
}

/// In a program that had closed standard input, output or error, a file of the database got its number, and what was written to the stream was
/// written into the file.
#[cfg(unix)]
#[test]
#[expect(clippy::disallowed_methods, reason = "one file is opened around the function under test")]
fn no_file_takes_the_descriptor_of_a_closed_stream() {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    crate::sim::alone(|| {
        let temp = tempfile::tempdir().unwrap();
        // SAFETY: nothing else in this process uses standard input, which is closed by the drop.
        drop(unsafe { OwnedFd::from_raw_fd(0) });
        let folder = Folder::open(temp.path()).unwrap();
        assert!(std::fs::File::open(temp.path()).unwrap().as_raw_fd() == 0, "the number is free");
        for how in [How::CreateNew, How::Read, How::Random, How::ReadWrite, How::Lock { exclusive: true }] {
            let file = folder.open_file("file", how).unwrap();
            assert!(file.as_raw_fd() > 2, "{how:?}: {file:?}");
        }
    });
}

/// A length without blocks, as that of a log segment, takes nothing of the disk; what is reserved in it has its blocks, and reads as zeros.
#[test]
fn a_length_takes_nothing_of_the_disk_and_what_is_reserved_does() {
    let temp = tempfile::tempdir().unwrap();
    let file = new_file(temp.path());
    let this: &dyn File = &file;
    let check = |reserved: u64, what: &str| {
        let taken = taken(&temp.path().join("file"));
        assert!((reserved..reserved + MIB).contains(&taken), "{what}: {taken} bytes of the disk");
    };
    this.allocate(0, 64 << 10).unwrap();
    check(64 << 10, "the beginning");
    this.set_len(32 * MIB).unwrap();
    this.write_all_at(b"record", 0).unwrap();
    check(64 << 10, "with a length");
    let mut end = 64 << 10;
    for len in [64 << 10, 128 << 10, 3 * MIB] {
        this.allocate(end, len).unwrap();
        end += len;
        check(end, "with another piece");
    }
    this.allocate(0, end).unwrap();
    check(end, "with blocks that it has");
    let mut all = vec![1; 4 * MIB as usize];
    this.read_exact_at(&mut all, 0).unwrap();
    assert!(all.starts_with(b"record") && all[6..].iter().all(|byte| *byte == 0));
    assert_eq!(this.len().unwrap(), 32 * MIB);
    this.allocate(32 * MIB - 5, MIB).unwrap();
    check(end + MIB, "beyond its length");
    assert_eq!(this.len().unwrap(), 33 * MIB - 5);
}

#[test]
fn a_map_that_fits_no_address_is_none() {
    let temp = tempfile::tempdir().unwrap();
    let file = new_file(temp.path());
    file.set_len(1).unwrap();
    let maps = file.without_descriptor().unwrap().is_some();
    file.set_len(3 << 30).unwrap();
    assert_eq!(file.without_descriptor().unwrap().is_some(), maps && usize::BITS >= 64);
}

#[test]
fn maps_write_any_range_and_nothing_else() {
    const LEN: usize = 10_000;
    let temp = tempfile::tempdir().unwrap();
    let file = new_file(temp.path());
    let this: &dyn File = &file;
    this.allocate(0, LEN as u64).unwrap();
    let Some(map) = this.map_shared(LEN as u64).unwrap() else {
        println!("skipped: no maps on this file system");
        return;
    };
    let mut model = vec![0; LEN];
    let rng = SeededEntropy::new(5);
    let below = |n: u64| (rng.next_u64() % n) as usize;
    for round in 0..3_000 {
        if round == 1_000 {
            map.expect_order();
        }
        let start = below(LEN as u64 + 1);
        let len = below(if round % 10 == 0 { 5_000 } else { 40 }).min(LEN - start);
        let data: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        map.write(start as u64, &data).unwrap();
        model[start..start + len].copy_from_slice(&data);
    }
    let mut all = vec![0; LEN];
    this.read_exact_at(&mut all, 0).unwrap();
    assert!(all == model);
    let read = this.without_descriptor().unwrap().unwrap();
    read.read_exact_at(&mut all, 0).unwrap();
    assert!(all == model);
    this.write_all_at(b"seen through the map", 100).unwrap();
    drop(map);
    read.read_exact_at(&mut all[..20], 100).unwrap();
    assert_eq!(&all[..20], b"seen through the map");
    for (offset, len) in [(LEN as u64, 1), (LEN as u64 + 1, 0), (u64::MAX, 2), (0, LEN + 1)] {
        let map = this.map_shared(LEN as u64).unwrap().unwrap();
        let error = map.write(offset, &vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(this.map_shared(LEN as u64 + 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(this.map_shared(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn concurrent_writers_of_one_word_lose_no_bytes() {
    const WRITERS: usize = 4;
    let temp = tempfile::tempdir().unwrap();
    let file = new_file(temp.path());
    file.allocate(0, 4096).unwrap();
    if file.map_shared(4096).unwrap().is_none() {
        println!("skipped: no maps on this file system");
        return;
    }
    let again = Folder::open(temp.path()).unwrap().open_file("file", How::ReadWrite).unwrap();
    let map = Arc::new(RealSharedMap::new(&again, 4096).unwrap());
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let map = Arc::clone(&map);
            // Each writer takes every fourth group of three bytes, so every word has two or three writers.
            scope.spawn(move || {
                for run in (writer..4096 / 3).step_by(WRITERS) {
                    map.write(run as u64 * 3, &[writer as u8 + 1; 3]).unwrap();
                }
            });
        }
    });
    let mut bytes = [0; 4096];
    (&file as &dyn File).read_exact_at(&mut bytes, 0).unwrap();
    for run in 0..4096 / 3 {
        let want = [(run % WRITERS) as u8 + 1; 3];
        assert_eq!(bytes[run * 3..run * 3 + 3], want, "run {run}");
    }
}

#[test]
fn an_empty_file_maps_to_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let file = new_file(temp.path());
    assert!(file.without_descriptor().unwrap().is_none());
}
