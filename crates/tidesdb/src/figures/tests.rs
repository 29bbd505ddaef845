//! Tests of the history: rings of chunks.

use std::sync::Arc;

use tidesdb_io::sim::{Fault, OpKind, SimDisk, errno};
use tidesdb_io::{Access, Dir, Disk};

use super::*;
use crate::files::FIGURES;

const UUID: [u8; 16] = [5; 16];

fn dir(disk: &Arc<SimDisk>) -> Arc<dyn Dir> {
    disk.open_dir("/db".as_ref(), true).unwrap()
}

fn figures(n: i64, families: i64) -> Vec<(String, i64)> {
    let of_family = |family| (format!("family.{family}.user_bytes"), n * family);
    let own = [("puts.p99".to_owned(), n * 1000 - 5), ("lowest".to_owned(), -(1 << 40) - n)];
    own.into_iter().chain((0..families).map(of_family)).collect()
}

fn disk() -> Arc<SimDisk> {
    let disk = Arc::new(SimDisk::new(3));
    disk.log_ops(false);
    disk
}

#[test]
fn samples_are_read_as_they_were_written_across_chunks_and_sessions() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    let mut expected = Vec::new();
    for n in 0..3000_u64 {
        if n % 1000 == 999 {
            file = FiguresFile::open(&*dir, UUID).unwrap().unwrap();
        }
        file.record(Pace::Seconds, 5_000_000 + n * 1000, &figures(n as i64, 1 + n as i64 % 70)).unwrap();
        expected.push((5_000_000 + n * 1000, n as i64 * 1000 - 5));
    }
    file.record(Pace::Minutes, 1, &figures(9, 0)).unwrap();
    let history = read_history(&*dir, UUID, Pace::Seconds).unwrap();
    assert_eq!(history.series("puts.p99"), expected);
    assert_eq!(history.series("lowest")[7].1, -(1 << 40) - 7);
    let of_family = history.series("family.3.user_bytes");
    assert!(of_family.iter().any(|(millis, value)| (*millis, *value) == (5_000_000 + 2990 * 1000, 2990 * 3)));
    assert_eq!(read_history(&*dir, UUID, Pace::Minutes).unwrap().series("puts.p99"), [(1, 8995)]);
    assert!(read_history(&*dir, [6; 16], Pace::Seconds).unwrap().samples.is_empty(), "of another database");
}

/// A program that starts often once took a chunk for each of its samples.
#[test]
fn short_sessions_share_chunks_and_a_figure_that_is_not_recorded_has_no_value() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    for n in 0..500_u64 {
        let mut now = figures(n as i64, 3);
        if n % 3 == 1 {
            now.pop();
        }
        file.record(Pace::Minutes, n, &now).unwrap();
        file = FiguresFile::open(&*dir, UUID).unwrap().unwrap();
    }
    let history = read_history(&*dir, UUID, Pace::Minutes).unwrap();
    assert_eq!(history.samples.len(), 500);
    let expected: Vec<(u64, i64)> = (0..500).filter(|n| n % 3 != 1).map(|n| (n, 2 * n as i64)).collect();
    assert_eq!(history.series("family.2.user_bytes"), expected);
}

#[test]
fn numbers_that_no_writer_reaches_and_a_removed_file_are_left_behind() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    file.write(b"first").unwrap();
    let mut forged = disk.read_file("/db/FIGURES").unwrap();
    let at = 4096 + (128 << 10); // the slot of odd numbers
    forged[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    let crc = crate::codec::bound_crc(&[1; 16], at as u64, &[&forged[at..at + 12], b"first"]);
    forged[at + 12..at + 16].copy_from_slice(&crc.to_le_bytes());
    disk.write_file("/db/FIGURES", &forged).unwrap();
    assert!(newest(&*dir, UUID).unwrap().is_none());
    let mut file = FiguresFile::open(&*dir, UUID).unwrap().unwrap();
    file.write(b"second").unwrap();
    assert_eq!(newest(&*dir, UUID).unwrap().unwrap().content, b"second");
    assert!(file.write(&vec![0; CONTENT_BYTES_MAX + 1]).is_err() && file.is_there(&*dir));
    dir.unlink(FIGURES).unwrap();
    assert!(!file.is_there(&*dir));
}

/// A process that has too many files open for a moment keeps its history of a day.
#[test]
fn an_open_that_fails_is_no_removal() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    file.record(Pace::Minutes, 1, &figures(1, 1)).unwrap();
    for error in [errno::EMFILE, errno::EIO] {
        disk.inject(Fault::errno(error).on(OpKind::Open).forever());
        assert!(file.is_there(&*dir), "{error}");
        assert!(FiguresFile::open(&*dir, UUID).is_err(), "{error}: it would be replaced");
        disk.clear_faults();
    }
    assert!(file.is_there(&*dir) && FiguresFile::open(&*dir, UUID).unwrap().is_some());
    assert_eq!(read_history(&*dir, UUID, Pace::Minutes).unwrap().samples.len(), 1);
}

/// A link in the place of the file is replaced, not followed.
#[cfg(unix)]
#[test]
fn a_link_is_replaced() {
    let place = tempfile::tempdir().unwrap();
    let dir = tidesdb_io::RealDisk::new().open_dir(place.path(), false).unwrap();
    let file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    std::fs::rename(place.path().join(FIGURES), place.path().join("other")).unwrap();
    std::os::unix::fs::symlink("other", place.path().join(FIGURES)).unwrap();
    assert!(!file.is_there(&*dir) && FiguresFile::open(&*dir, UUID).unwrap().is_none());
    assert!(FiguresFile::create(&*dir, [2; 16], UUID).unwrap().is_there(&*dir));
}

/// The oldest chunk is replaced, and no sample of its earlier use is taken for one of the later.
#[test]
fn the_history_is_bounded_and_loses_the_oldest_samples() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    for n in 0..20_000_u64 {
        file.record(Pace::Seconds, n, &figures(n as i64 * 77_777, 200)).unwrap();
        file.record(Pace::Minutes, n, &figures(n as i64 * 77_777, 200)).unwrap();
    }
    for pace in [Pace::Seconds, Pace::Minutes] {
        let seen: Vec<u64> =
            read_history(&*dir, UUID, pace).unwrap().series("puts.p99").iter().map(|(at, _)| *at).collect();
        assert!(seen.len() > 500 && seen.len() < 20_000, "{}", seen.len());
        assert!(seen.windows(2).all(|pair| pair[0] + 1 == pair[1]) && seen.last() == Some(&19_999));
    }
    let len = dir.open(FIGURES, Access::Read).unwrap().len().unwrap();
    assert!(len <= 4 << 20, "{len}");
}

#[test]
fn damage_loses_samples_and_shows_no_wrong_ones() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    (0..200_u64).for_each(|n| file.record(Pace::Seconds, n, &figures(n as i64, 5)).unwrap());
    let whole = disk.read_file("/db/FIGURES").unwrap();
    let right = read_history(&*dir, UUID, Pace::Seconds).unwrap().series("puts.p99");
    assert_eq!(right.len(), 200);
    let mut lost = 0;
    for at in (0..whole.len()).filter(|at| whole[*at] != 0).step_by(5) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        disk.write_file("/db/FIGURES", &damaged).unwrap();
        let seen = read_history(&*dir, UUID, Pace::Seconds).unwrap().series("puts.p99");
        assert_eq!(seen, right[..seen.len()], "byte {at}");
        lost += usize::from(seen.len() < 200);
    }
    assert!(lost > 100, "{lost}");
}

/// A figure that appears and goes, a name of any length, more figures than a chunk can hold.
#[test]
fn odd_samples_cost_history_and_nothing_else() {
    let disk = disk();
    let dir = dir(&disk);
    let mut file = FiguresFile::create(&*dir, [1; 16], UUID).unwrap();
    file.record(Pace::Seconds, 1, &figures(1, 1)).unwrap();
    file.record(Pace::Seconds, 2, &[("n".repeat(40_000), 1)]).unwrap();
    file.record(Pace::Seconds, 3, &figures(3, 5000)).unwrap();
    file.record(Pace::Seconds, 4, &[]).unwrap();
    file.record(Pace::Seconds, 5, &figures(5, 1)).unwrap();
    let history = read_history(&*dir, UUID, Pace::Seconds).unwrap();
    assert_eq!(history.series("puts.p99"), [(1, 995), (5, 4995)]);
    assert_eq!(history.samples.iter().map(|sample| sample.millis).collect::<Vec<_>>(), [1, 4, 5]);
}
