//! Advice about the page cache: its effect on a real disk, and that reads do not depend on it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidesdb_io::sim::{Fault, OpKind, SimDisk, errno};
use tidesdb_io::{
    Access, Advice, Descriptors, Dir, Disk, Entropy, File, FileExt, PooledDir, RealDisk, SeededEntropy,
};

const FILES: usize = 7;
const LEN: usize = 300_000;

fn byte(file: usize, at: usize) -> u8 {
    (at.wrapping_mul(31) ^ at >> 8 ^ file) as u8
}

/// Creates `FILES` files of known content and opens them for random reading.
fn files(dir: &Arc<dyn Dir>) -> Vec<Arc<dyn File>> {
    for n in 0..FILES {
        let file = dir.create_new(&n.to_string(), 0).unwrap();
        let content: Vec<u8> = (0..LEN).map(|at| byte(n, at)).collect();
        file.write_all_at(&content, 0).unwrap();
        file.sync_data().unwrap();
    }
    (0..FILES).map(|n| dir.open(&n.to_string(), Access::Random).unwrap()).collect()
}

/// Asks the disk to load `count` random ranges, some of them past the end, then reads and checks each.
fn check_batch(files: &[Arc<dyn File>], rng: &SeededEntropy, count: usize) {
    let below = |n: usize| (rng.next_u64() % n as u64) as usize;
    let places: Vec<(usize, usize, usize)> =
        (0..count).map(|_| (below(FILES), below(LEN), 1 + below(9_000))).collect();
    for &(n, at, len) in &places {
        let _ = files[n].advise(Advice::WillNeed, at as u64, len as u64);
    }
    for (n, at, len) in places {
        let mut buf = vec![0; len];
        match files[n].read_exact_at(&mut buf, at as u64) {
            Ok(()) => assert!(buf.iter().enumerate().all(|(i, &b)| b == byte(n, at + i)), "file {n} at {at}"),
            Err(e) => assert!(at + len > LEN, "{e}"),
        }
    }
}

#[test]
fn threads_advise_and_read_with_two_descriptors() {
    let temp = tempfile::tempdir().unwrap();
    let descriptors = Arc::new(Descriptors::new(2));
    let dir = PooledDir::wrap(RealDisk::new().open_dir(temp.path(), true).unwrap(), &descriptors);
    let files = files(&dir);
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
fn a_simulated_disk_counts_advice_and_can_refuse_it() {
    let sim = SimDisk::new(5);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    let files = files(&dir);
    let rng = SeededEntropy::new(1);
    let before = sim.ops().len();
    check_batch(&files, &rng, 32);
    let kinds: Vec<OpKind> = sim.ops()[before..].iter().map(|op| op.kind).collect();
    assert_eq!(kinds[..32], [OpKind::Advise; 32]);
    assert!(kinds[32..].iter().all(|&kind| kind == OpKind::Read));
    assert_eq!(files[0].read_cached_at(&mut [0], 5).unwrap(), None);
    assert_eq!(sim.ops().len(), before + kinds.len(), "a read of the page cache is not counted as a call");
    let refused = sim.inject(Fault::errno(errno::EIO).on(OpKind::Advise).forever());
    check_batch(&files, &rng, 32);
    assert_eq!(sim.struck(refused), 32);
}

#[test]
fn a_fault_within_a_range_strikes_calls_that_touch_it() {
    let sim = SimDisk::new(5);
    let dir = sim.open_dir(Path::new("/db"), true).unwrap();
    let file = &files(&dir)[0];
    sim.inject(Fault::errno(errno::EIO).on(OpKind::Read).within(1000, 2000).forever());
    for (at, len, fails) in [(0, 1000, false), (0, 1001, true), (1999, 1, true), (2000, 5, false)] {
        assert_eq!(file.read_exact_at(&mut vec![0; len], at).is_err(), fails, "{len} bytes at {at}");
    }
}

#[test]
fn advice_loads_and_drops_pages_of_the_page_cache() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = RealDisk::new().open_dir(temp.path(), true).unwrap();
    let file = &files(&dir)[0];
    file.advise(Advice::DontNeed, 0, 0).unwrap();
    if file.is_cached(LEN as u64 / 2).unwrap() {
        println!("skipped: this file system keeps its pages");
        return;
    }
    file.advise(Advice::DontNeed, 0, 0).unwrap();
    file.read_exact_at(&mut [0; 100], 40_960).unwrap();
    assert!(file.is_cached(40_960).unwrap());
    assert!(!file.is_cached(45_056).unwrap(), "a random read loaded the next page");
    file.advise(Advice::WillNeed, 0, 0).unwrap();
    // Loading continues after the call returns.
    let loaded = (0..5_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        file.is_cached(200_000).unwrap()
    });
    assert!(loaded);
    // Past the end of the file there is nothing to wait for.
    assert_eq!(file.read_cached_at(&mut [0], LEN as u64 + 100_000).unwrap(), Some(0));
    // Bytes that are read without waiting are those of the file.
    let (mut cached, mut waited) = ([0; 100], [0; 100]);
    assert_eq!(file.read_cached_at(&mut cached, 40_960).unwrap(), Some(100));
    file.read_exact_at(&mut waited, 40_960).unwrap();
    assert_eq!(cached, waited);
}
