//! The work of a search among bytes that a user may have chosen: it is linear in the bytes, whatever they are.

use tidesdb_io::{Entropy, SeededEntropy};

use super::*;
use crate::inspect;
use crate::wal::layout::{RecordHeader, SegmentHeader};
use crate::wal::{LogTail, TailConfig};

/// Bytes of a segment whose every byte is chosen, from the first record on.
type Choose = fn(&SegmentHeader, &mut [u8], &dyn Entropy);

const HEAD: u64 = SEGMENT_HEADER_BYTES;
const MIB: u64 = 1 << 20;

/// Puts what looks like the header of a commit to `at` of the file: only its checksum is wrong.
fn forge(segment: &SegmentHeader, file: &mut [u8], at: u64, body_len: u64) {
    let (at, seq) = (at as usize, segment.seq_at(at));
    file[at + 4..at + 8].copy_from_slice(&(body_len as u32).to_le_bytes());
    file[at + 8..at + 16].copy_from_slice(&seq.to_le_bytes());
    file[at + 24..at + 32].copy_from_slice(&(1 | (RecordKind::Commit as u64) << 24).to_le_bytes());
}

fn header(segment_bytes: u64) -> SegmentHeader {
    SegmentHeader { id: 1, segment_bytes, span: 1, salt: [9; 16], db_uuid: UUID, boot_id: BOOT }
}

fn random(_: &SegmentHeader, file: &mut [u8], entropy: &dyn Entropy) {
    for word in file[HEAD as usize..].chunks_mut(8) {
        word.copy_from_slice(&entropy.next_u64().to_le_bytes()[..word.len()]);
    }
}

/// Headers, as dense as they can be, of records that reach to the end of the segment.
fn to_the_end(segment: &SegmentHeader, file: &mut [u8], _: &dyn Entropy) {
    let end = file.len() as u64;
    for at in (HEAD..end).step_by(RECORD_HEADER_BYTES) {
        forge(segment, file, at, end - at - RECORD_HEADER_BYTES as u64);
    }
}

/// Headers of records of all lengths.
fn any_length(segment: &SegmentHeader, file: &mut [u8], entropy: &dyn Entropy) {
    let end = file.len() as u64;
    for at in (HEAD..end).step_by(RECORD_HEADER_BYTES) {
        forge(segment, file, at, entropy.next_u64() % (end - at - RECORD_HEADER_BYTES as u64 + 1));
    }
}

/// Headers of records a little longer than what a reader holds in memory.
fn beyond_the_window(segment: &SegmentHeader, file: &mut [u8], _: &dyn Entropy) {
    let end = file.len() as u64;
    for at in (HEAD..end).step_by(RECORD_HEADER_BYTES) {
        forge(segment, file, at, (64 << 10).min(end - at - RECORD_HEADER_BYTES as u64));
    }
}

/// Empty records at each place where a record can begin.
fn empty(segment: &SegmentHeader, file: &mut [u8], _: &dyn Entropy) {
    for at in (HEAD..file.len() as u64 - 40).step_by(UNIT as usize) {
        let (at, seq) = (at as usize, segment.seq_at(at));
        file[at + 8..at + 16].copy_from_slice(&seq.to_le_bytes());
    }
}

/// A valid record after every eighth header of a record that reaches to the end of the segment, so there are many holes.
fn between_records(segment: &SegmentHeader, file: &mut [u8], entropy: &dyn Entropy) {
    to_the_end(segment, file, entropy);
    let end = file.len() as u64;
    for at in (HEAD..end - 64).step_by(8 * RECORD_HEADER_BYTES).skip(1) {
        let header = RecordHeader {
            seq: segment.seq_at(at),
            body_len: 0,
            kind: RecordKind::Commit,
            ops: 1,
            complete: 0,
            synced: 0,
        };
        header.write(&segment.salt, &mut file[at as usize..][..RECORD_HEADER_BYTES]);
    }
}

/// Kinds of bytes, and the longest segment of each, in MiB: a test at 64 MiB takes a while.
const KINDS: [(&str, Choose, u64); 6] = [
    ("random bytes", random, 64),
    ("records to the end", to_the_end, 64),
    ("records of any length", any_length, 8),
    ("records beyond the window", beyond_the_window, 8),
    ("empty records", empty, 8),
    ("valid records between others", between_records, 8),
];

/// A disk with one segment of chosen bytes.
fn chosen(segment_bytes: u64, choose: Choose) -> Rig {
    let header = header(segment_bytes);
    let mut file = header.encode();
    file.resize(segment_bytes as usize, 0);
    choose(&header, &mut file, &SeededEntropy::new(segment_bytes));
    let rig = Rig::on(SimDisk::new(1), segment_bytes);
    rig.disk.write_file(format!("{DB}/000001.wal"), &file).unwrap();
    rig
}

/// Returns the bytes that `call` reads from the disk and checksums for each byte of the segment.
fn work(rig: &Rig, call: impl FnOnce()) -> f64 {
    rig.disk.work(call) as f64 / rig.segment as f64
}

/// Checks that the work of `call` for each byte is bounded, and that it does not grow with the segment.
fn check_is_linear(bound: f64, longest: u64, call: impl Fn(&Rig)) {
    for (name, choose, mib) in KINDS {
        let mib = mib.min(longest);
        let small = work_of(MIB, choose, &call);
        let work = if small <= bound { work_of(mib * MIB, choose, &call) } else { small };
        println!("{name}: {small:.1} and {work:.1} bytes for each byte of a segment of 1 and {mib} MiB");
        assert!(work <= bound, "{name}: {work:.1} bytes for each byte of the segment");
        assert!(work <= small * 1.2, "{name}: {work:.1} bytes for each byte, in a short segment {small:.1}");
    }
}

fn work_of(segment_bytes: u64, choose: Choose, call: impl Fn(&Rig)) -> f64 {
    let rig = chosen(segment_bytes, choose);
    work(&rig, || call(&rig))
}

/// 16 KiB of headers made the open after a kill take 43 seconds, and each place of 91,135 values of 504 bytes more than a minute.
#[test]
fn recovery_is_linear_in_the_log_whatever_its_bytes_are() {
    check_is_linear(60.0, 64, |rig| {
        let config = ScanConfig { mode: RecoveryMode::PointInTime, ..rig.config() };
        let log = CrashedLog::find(&rig.dir, &config).unwrap();
        log.read(64 << 10, |_, _| Ok(true)).unwrap();
    });
}

#[test]
fn a_reader_beside_the_writer_does_linear_work_whatever_the_bytes_are() {
    check_is_linear(60.0, 8, |rig| {
        let config = TailConfig { segment_bytes: rig.segment, db_uuid: UUID, boot_id: BOOT };
        let read = LogTail::new(config, WalId(1)).read(&*rig.dir, 0, |_, _| Ok(None));
        read.unwrap();
    });
}

#[test]
fn an_inspection_does_linear_work_whatever_the_bytes_are() {
    let temp = tempfile::tempdir().unwrap();
    check_is_linear(60.0, 8, |rig| {
        let file = rig.disk.read_file(format!("{DB}/000001.wal")).unwrap();
        std::fs::write(temp.path().join("000001.wal"), file).unwrap();
        inspect::wal(temp.path(), "000001.wal", true, &mut |_| ()).unwrap();
    });
}
