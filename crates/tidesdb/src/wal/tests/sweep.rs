//! Damages every byte of a sealed log: commits are never lost without an error.

use super::*;

/// A short log over two segments, sealed; with its commits and the result of the scan.
fn sealed() -> (Rig, Vec<Read>, Scan) {
    let rig = Rig::new();
    let log = rig.log(false);
    for len in [8, 100, 0, 6000] {
        put(&log, &body(len as u64, len));
    }
    log.sync_to(log.sequencer().tail(), &no_values).unwrap();
    for len in [7000, 30, 31] {
        put(&log, &body(len as u64, len));
    }
    log.seal(&no_values).unwrap();
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!((read.len(), found.end * UNIT / rig.segment), (7, 2));
    (rig, read, found)
}

/// Reads a damaged log: it must be refused (true) or complete (false).
fn check(rig: &Rig, expected: &[Read], what: &str) -> bool {
    let config = ScanConfig { boot_id: OTHER_BOOT, ..rig.config() };
    match rig.read_with(&config) {
        Ok((_, read)) => {
            assert!(
                read == expected,
                "{what}: {} of {} commits, without an error",
                read.len(),
                expected.len()
            );
            false
        }
        Err(e) => {
            assert!(e.is_corruption(), "{what}: {e}");
            true
        }
    }
}

#[test]
fn a_flipped_bit_is_refused_or_harmless() {
    let (rig, expected, found) = sealed();
    let after = rig.reopened();
    let mut refused = 0;
    for n in [1, 2] {
        for offset in 0..SEGMENT {
            let path = format!("{DB}/{}", files::wal(WalId(n)));
            let flip = |b: u8| b ^ 1 << (offset % 8);
            after.disk.corrupt(&path, offset, flip).unwrap();
            let was = check(&after, &expected, &format!("byte {offset} of segment {n}"));
            after.disk.corrupt(&path, offset, flip).unwrap();
            let covered = offset < 4096 || (n * SEGMENT + offset) / UNIT < expected.last().unwrap().0;
            let pad = n == 1 && offset >= last_record_of_segment_1(&expected);
            assert!(was || pad || !covered, "byte {offset} of segment {n} should be covered");
            refused += u64::from(was);
        }
    }
    assert!(refused > 2 * 4096 + 6000 + 7000, "{refused}");
    assert!(found.sealed);
}

/// Offset of the pad in segment 1.
fn last_record_of_segment_1(read: &[Read]) -> u64 {
    let (seq, body) = read.iter().rfind(|(seq, _)| seq * UNIT < 2 * SEGMENT).unwrap();
    seq * UNIT - SEGMENT + crate::wal::layout::record_bytes(body.len() as u64)
}

#[test]
fn a_lost_page_is_refused_or_harmless() {
    let (rig, expected, _) = sealed();
    for page in [512, 4096] {
        for n in [1, 2] {
            for at in (0..SEGMENT).step_by(page) {
                for fill in [0, 0xFF, 0x55] {
                    let after = rig.reopened();
                    let path = format!("{DB}/{}", files::wal(WalId(n)));
                    for offset in at..at + page as u64 {
                        after.disk.corrupt(&path, offset, |_| fill).unwrap();
                    }
                    check(&after, &expected, &format!("{page} bytes of {fill} at {at} of segment {n}"));
                }
            }
        }
    }
}
