//! Batches of reads, and advice about the page cache.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::sim::{Fault, OpKind, SimDisk, errno};
use tidesdb_io::{
    Access, Advice, Descriptors, Dir, Disk, Entropy, File, FileExt, PooledDir, ReadRequest, RealDisk,
    SeededEntropy, read_batch,
};

const FILES: usize = 7;
const LEN: usize = 300_000;

fn byte(file: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ file) as u8
}

/// Opens `FILES` files of known content for reading.
fn files(dir: &Arc<dyn Dir>) -> Vec<Arc<dyn File>> {
    let name = |n: usize| n.to_string();
    for n in 0..FILES {
        let file = dir.create_new(&name(n), 0).unwrap();
        let content: Vec<u8> = (0..LEN).map(|at| byte(n, at)).collect();
        file.write_all_at(&content, 0).unwrap();
        file.sync_data().unwrap();
    }
    (0..FILES).map(|n| dir.open(&name(n), Access::Read).unwrap()).collect()
}

/// Reads `count` random ranges in one batch, some of them past the end, and checks each result.
fn check_batch(files: &[Arc<dyn File>], rng: &SeededEntropy, count: usize) {
    let below = |n: usize| (rng.next_u64() % n as u64) as usize;
    let places: Vec<(usize, usize, usize)> =
        (0..count).map(|_| (below(FILES), below(LEN + 100), below(9_000))).collect();
    let mut buffers: Vec<Vec<u8>> = places.iter().map(|&(_, _, len)| vec![0; len]).collect();
    let mut reads: Vec<ReadRequest<'_>> = places
        .iter()
        .zip(&mut buffers)
        .map(|(&(n, at, _), buf)| ReadRequest { file: &*files[n], offset: at as u64, buf, result: Ok(()) })
        .collect();
    read_batch(&mut reads);
    for (read, &(n, at, len)) in reads.iter().zip(&places) {
        if at + len <= LEN || len == 0 {
            assert!(read.result.is_ok(), "{read:?}");
            assert!(read.buf.iter().enumerate().all(|(i, &b)| b == byte(n, at + i)), "file {n} at {at}");
        } else {
            assert_eq!(read.result.as_ref().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}

#[test]
fn a_batch_reads_what_single_reads_do() {
    let temp = tempfile::tempdir().unwrap();
    let disks: [(Arc<dyn Disk>, &Path); 2] =
        [(Arc::new(RealDisk::new()), temp.path()), (Arc::new(SimDisk::new(3)), Path::new("/db"))];
    for (disk, path) in disks {
        let dir = disk.open_dir(path, true).unwrap();
        let files = files(&dir);
        let rng = SeededEntropy::new(9);
        for count in [0, 1, 2, 32, 100, 500] {
            files.iter().for_each(|file| file.advise(Advice::DontNeed, 0, 0).unwrap());
            check_batch(&files, &rng, count);
        }
    }
}

#[test]
fn threads_read_batches_through_few_descriptors() {
    let temp = tempfile::tempdir().unwrap();
    let descriptors = Arc::new(Descriptors::new(2));
    let dir = PooledDir::wrap(RealDisk::new().open_dir(temp.path(), true).unwrap(), &descriptors);
    let files = files(&dir);
    files.iter().for_each(|file| file.advise(Advice::Random, 0, 0).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let files = &files;
            scope.spawn(move || {
                let rng = SeededEntropy::new(thread);
                for round in 0..60 {
                    if round % 20 == 0 {
                        files[round % FILES].advise(Advice::DontNeed, 0, 0).unwrap();
                    }
                    check_batch(files, &rng, 32);
                }
            });
        }
    });
    assert!(descriptors.open_files() <= 2);
}

#[test]
fn a_failed_read_fails_no_other_of_its_batch() {
    let sim = SimDisk::new(5);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    let files = files(&dir);
    sim.inject(Fault::errno(errno::EIO).on(OpKind::Read).path_ends("/3").forever());
    sim.inject(Fault::errno(errno::EIO).on(OpKind::Advise).forever());
    sim.inject(Fault::short().on(OpKind::Read).every(2).forever());
    let mut buffers = vec![vec![0; 5_000]; FILES];
    let mut reads: Vec<ReadRequest<'_>> = files
        .iter()
        .zip(&mut buffers)
        .map(|(file, buf)| ReadRequest { file: &**file, offset: 17, buf, result: Ok(()) })
        .collect();
    read_batch(&mut reads);
    for (n, read) in reads.iter().enumerate() {
        match &read.result {
            Ok(()) => assert!(read.buf.iter().enumerate().all(|(i, &b)| b == byte(n, 17 + i))),
            Err(e) => assert_eq!((n, e.raw_os_error()), (3, Some(errno::EIO))),
        }
    }
    assert!(reads[3].result.is_err());
}

#[test]
fn a_batch_asks_for_all_ranges_before_it_waits_for_the_first() {
    let sim = SimDisk::new(6);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    let files = files(&dir);
    let before = sim.ops().len();
    check_batch(&files, &SeededEntropy::new(1), 32);
    let kinds: Vec<OpKind> = sim.ops()[before..].iter().map(|op| op.kind).collect();
    assert_eq!(kinds[..32], [OpKind::Advise; 32]);
    assert!(kinds[32..].iter().all(|&kind| kind == OpKind::Read));
    // A single read is not announced.
    let before = sim.ops().len();
    let mut buf = [0; 10];
    read_batch(&mut [ReadRequest { file: &*files[0], offset: 0, buf: &mut buf, result: Ok(()) }]);
    assert_eq!(sim.ops()[before..].iter().map(|op| op.kind).collect::<Vec<_>>(), [OpKind::Read]);
}

#[test]
fn advice_brings_pages_into_the_cache_and_out_of_it() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = RealDisk::new().open_dir(temp.path(), true).unwrap();
    let file = &files(&dir)[0];
    file.advise(Advice::DontNeed, 0, 0).unwrap();
    if file.is_cached(LEN as u64 / 2).unwrap() {
        println!("skipped: this file system keeps its pages");
        return;
    }
    file.advise(Advice::Random, 0, 0).unwrap();
    file.advise(Advice::DontNeed, 0, 0).unwrap();
    file.read_exact_at(&mut [0; 100], 40_960).unwrap();
    assert!(file.is_cached(40_960).unwrap());
    assert!(!file.is_cached(45_056).unwrap(), "a random read loaded the next page");
    file.advise(Advice::WillNeed, 0, 0).unwrap();
    // Loading goes on behind the call.
    let loaded = (0..5_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        file.is_cached(200_000).unwrap()
    });
    assert!(loaded);
    // Past the end of the file there is nothing to wait for.
    assert!(file.is_cached(LEN as u64 + 100_000).unwrap());
}
