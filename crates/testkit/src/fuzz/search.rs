//! A log segment in which anything may look like a record. It measures the work of a search among its bytes, not only the result.
//!
//! A segment that was used before holds old bytes, among them values that users have chosen. So an input says where headers of records
//! lie, at which distances, and how long their records claim to be; some of the records are valid.

use std::sync::Arc;

use tidesdb::RecoveryMode;
use tidesdb::internals::types::WalId;
use tidesdb::internals::wal::layout::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader, UNIT,
};
use tidesdb::internals::wal::reader::{CrashedLog, ScanConfig};
use tidesdb::internals::wal::{LogTail, PartInMemory, TailConfig};
use tidesdb_io::Dir;
use tidesdb_io::sim::{self, SimDisk};

use super::bytes::{put, u32_at};
use crate::world::PATH;

/// Bytes of the segment. Checksums are counted by builds with debug assertions only. Others notice by their time what reads the bytes of a
/// longer segment again and again.
const SEGMENT: u64 = if cfg!(debug_assertions) { 256 << 10 } else { 4 << 20 };
/// Bytes that are read and checksummed for each byte of the segment, at most.
const WORK_MAX: u64 = 100;
/// Bytes of one group of headers in the input: where the first one lies, how long its record is, the distance of two, by how much each
/// record is longer than the one before it, how many there are, and what they are.
const GROUP: usize = 20;
const GROUPS_MAX: usize = 40;
const BOOT: [u8; 16] = [1; 16];
const UUID: [u8; 16] = [2; 16];

/// Builds the segment that `data` describes.
fn segment(data: &[u8]) -> (SegmentHeader, Vec<u8>) {
    let header =
        SegmentHeader { id: 1, segment_bytes: SEGMENT, span: 1, salt: [3; 16], db_uuid: UUID, boot_id: BOOT };
    let mut file = header.encode();
    file.resize(SEGMENT as usize, 0);
    for group in data.chunks_exact(GROUP).take(GROUPS_MAX) {
        let number = |at| u64::from(u32_at(group, at).unwrap_or(0));
        let places = (SEGMENT - SEGMENT_HEADER_BYTES - RECORD_HEADER_BYTES as u64) / UNIT;
        let distance = number(8) % 4096 * UNIT + UNIT;
        let first = SEGMENT_HEADER_BYTES + number(0) % places * UNIT;
        let last = SEGMENT - RECORD_HEADER_BYTES as u64;
        let count = 1 + number(16) % (1 << 20);
        for (i, at) in (first..=last).step_by(distance as usize).take(count as usize).enumerate() {
            let room = last - at;
            // A claim of many bytes means that the record reaches to the end of the segment, as longer ones are no records.
            let claimed = number(4).wrapping_add(number(12).wrapping_mul(i as u64));
            add(&header, &mut file, at, claimed.min(room), group[19]);
        }
    }
    (header, file)
}

/// Adds the header of a record with `body` bytes at `at`. `what` says whether it is valid, what it states, and its kind.
fn add(segment: &SegmentHeader, file: &mut [u8], at: u64, body: u64, what: u8) {
    let seq = segment.seq_at(at);
    let stated = if what & 8 == 0 { 0 } else { seq };
    let record = RecordHeader {
        seq,
        body_len: body as u32,
        kind: RecordKind::ALL[usize::from(what >> 1) % RecordKind::ALL.len()],
        ops: 1,
        complete: stated,
        synced: if what & 16 == 0 { 0 } else { stated },
    };
    let end = at + record.record_bytes().min(SEGMENT - at);
    let bytes = &mut file[at as usize..end as usize];
    // Its checksum takes as long as the record: only the first of a group may be valid if the group is dense.
    if what & 1 == 0 || body > 4096 {
        let mut head = [0; RECORD_HEADER_BYTES];
        RecordHeader { body_len: 0, ..record }.write(&segment.salt, &mut head);
        put(&mut head, 4, &record.body_len.to_le_bytes());
        put(bytes, 0, &head);
    } else {
        record.write(&segment.salt, bytes);
    }
}

/// Runs `call` and checks its work.
fn measured(disk: &SimDisk, what: &str, call: impl FnOnce()) {
    let work = disk.work(call);
    assert!(
        work <= WORK_MAX * SEGMENT,
        "{what} reads and checksums {} bytes for each byte of the segment",
        work / SEGMENT
    );
}

/// Tests the searches for records in a segment of this description.
pub(super) fn run(data: &[u8]) {
    let (header, file) = segment(data);
    let (env, disk, _clock) = sim::env(3);
    let Ok(dir) = env.disk.open_dir(PATH.as_ref(), true) else { return };
    if disk.write_file(format!("{PATH}/000001.wal"), &file).is_err() {
        return;
    }
    for (mode, boot_id) in [
        (RecoveryMode::Tail, BOOT),
        (RecoveryMode::Tail, [9; 16]),
        (RecoveryMode::PointInTime, BOOT),
        (RecoveryMode::Salvage, [9; 16]),
    ] {
        measured(&disk, "a recovery", || recover(&dir, mode, boot_id));
    }
    measured(&disk, "a reader beside the writer", || {
        let config = TailConfig { segment_bytes: SEGMENT, db_uuid: UUID, boot_id: BOOT };
        // Damage is an answer, too.
        let _ = LogTail::new(config, WalId(1)).read(&*dir, 0, |_, _| Ok(None));
    });
    measured(&disk, "an inspection", || {
        let mut part = PartInMemory::new(&header, &file, 0);
        let mut at = SEGMENT_HEADER_BYTES;
        while let Ok(Some((found, record))) = part.next_record(at) {
            assert!(found >= at && found + record.record_bytes() <= SEGMENT, "a record at {found}");
            at = found + record.record_bytes();
        }
    });
}

fn recover(dir: &Arc<dyn Dir>, mode: RecoveryMode, boot_id: [u8; 16]) {
    let config = ScanConfig {
        segment_bytes: SEGMENT,
        db_uuid: UUID,
        boot_id,
        first: WalId(1),
        first_existed: true,
        watermark: 0,
        sync_failed: false,
        mode,
        has_values: false,
    };
    let mut passed = 0;
    let read = CrashedLog::find(dir, &config).and_then(|log| {
        log.read(16 << 10, |_, _| {
            passed += 1;
            Ok(true)
        })
    });
    if let Ok(scan) = read {
        assert!(passed <= scan.commits, "{passed} pieces of {} commits", scan.commits);
    }
}

/// The densest headers, of records that reach to the end of the segment; of records of all lengths; and valid records between them.
pub(super) fn seeds() -> Vec<(String, Vec<u8>)> {
    let group = |first: u32, body: u32, distance: u32, longer: u32, what: u8| {
        let count = [0xFF, 0xFF, 0x0F, what];
        [
            &first.to_le_bytes()[..],
            &body.to_le_bytes(),
            &distance.to_le_bytes(),
            &longer.to_le_bytes(),
            &count,
        ]
        .concat()
    };
    let whole = u32::MAX;
    vec![
        ("one-valid".into(), [group(0, 100, 4095, 0, 1), group(30, 50, 5, 0, 0)].concat()),
        ("to-the-end".into(), group(0, whole, 3, 0, 0)),
        ("longer-and-longer".into(), group(1, 0, 3, 24, 0)),
        ("beyond-a-window".into(), group(0, 20_000, 3, 0, 8)),
        ("valid-between".into(), [group(0, whole, 3, 0, 0), group(3, 0, 31, 0, 25)].concat()),
        ("valid-side-by-side".into(), group(0, 0, 3, 0, 9)),
        ("pads-and-seals".into(), [group(0, whole, 7, 0, 2), group(4, whole, 7, 0, 4)].concat()),
    ]
}
