//! Reading a log beside its writer.

use super::*;
use crate::Error;
use crate::wal::{LogTail, TailConfig};

const CONFIG: TailConfig = TailConfig { segment_bytes: SEGMENT, db_uuid: UUID, boot_id: BOOT };

/// Returns the commits that a read finds.
fn read_to(rig: &Rig, tail: &mut LogTail, durable: SeqNo) -> Result<Vec<Read>> {
    let mut found = Vec::new();
    tail.read(&*rig.dir, durable, |piece, same_boot| {
        assert!(same_boot);
        found.extend(piece.commits().map(|commit| (commit.seq, commit.body.to_vec())));
        Ok(None)
    })?;
    Ok(found)
}

fn read(rig: &Rig, tail: &mut LogTail) -> Vec<Read> {
    read_to(rig, tail, 0).unwrap()
}

/// Changes bytes of a segment behind the back of the log.
fn overwrite(rig: &Rig, segment: u64, at: u64, bytes: &[u8]) {
    let file = rig.dir.open(&files::wal(WalId(segment)), tidesdb_io::Access::ReadWrite).unwrap();
    tidesdb_io::FileExt::write_all_at(&*file, bytes, at).unwrap();
}

#[test]
fn each_read_continues_where_the_last_one_ended() {
    for mapped in [false, true] {
        let rig = Rig::new();
        let log = rig.log(mapped);
        let mut tail = LogTail::new(CONFIG, WalId(1));
        let mut expected = Vec::new();
        let mut found = Vec::new();
        for round in 0..60u64 {
            for i in 0..round % 4 {
                let body = body(round * 10 + i, (round * 397 % 9000) as usize);
                expected.push((put_by(&log, &body, mapped).seq, body));
            }
            if round % 9 == 4 {
                let body = body(round, 3 * SEGMENT as usize); // oversized
                expected.push((put(&log, &body).seq, body));
            }
            found.extend(read(&rig, &mut tail));
            assert_eq!(found, expected, "round {round}");
            assert!(read(&rig, &mut tail).is_empty());
        }
    }
}

#[test]
fn a_read_stops_at_a_record_that_is_being_written() {
    let rig = Rig::new();
    let log = rig.log(false);
    let first = put(&log, b"first");
    // Two writers: the second one is done, the first one has only its place.
    let mut slow = blank_record(100);
    let place = log.reserve(&mut slow, Purpose::Store).unwrap();
    let third = log.append(&mut record(b"third"), 1, false, Purpose::Store).unwrap().seq;
    let mut tail = LogTail::new(CONFIG, WalId(1));
    let seqs = |read: Vec<Read>| read.into_iter().map(|(seq, _)| seq).collect::<Vec<_>>();
    assert_eq!(seqs(read(&rig, &mut tail)), [first.seq]);
    assert!(read(&rig, &mut tail).is_empty());
    log.write_at(&place, RecordKind::Commit, 1, &mut slow, false).unwrap();
    assert_eq!(seqs(read(&rig, &mut tail)), [place.seq, third]);
}

#[test]
fn a_damaged_record_that_something_claims_is_damage() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits: Vec<_> = (0..3).map(|i| put(&log, &body(i, 50))).collect();
    let at = commits[1].seq * UNIT - SEGMENT;
    overwrite(&rig, 1, at + RECORD_HEADER_BYTES as u64, &[0xEE]);
    let mut tail = LogTail::new(CONFIG, WalId(1));
    let error = read_to(&rig, &mut tail, 0).unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { offset, .. } if *offset == at),
        "claimed by the third: {error}"
    );
    // The last record: only the manifest may know it.
    overwrite(&rig, 1, at + RECORD_HEADER_BYTES as u64, &body(1, 50)[..1]);
    let last = commits[2].seq * UNIT - SEGMENT;
    overwrite(&rig, 1, last + RECORD_HEADER_BYTES as u64, &[0xEE]);
    let mut tail = LogTail::new(CONFIG, WalId(1));
    assert_eq!(read(&rig, &mut tail).len(), 2);
    assert!(read_to(&rig, &mut tail, commits[2].seq).unwrap().is_empty());
    assert!(read_to(&rig, &mut tail, commits[2].seq + 1).unwrap_err().is_corruption());
}

#[test]
fn records_of_an_earlier_use_of_a_file_are_never_read() {
    let rig = Rig::new();
    let log = rig.log(false);
    let mut tail = LogTail::new(CONFIG, WalId(1));
    put(&log, &body(0, 5000));
    assert_eq!(read(&rig, &mut tail).len(), 1);
    let mut last = 0;
    for i in 1..30 {
        last = put(&log, &body(i, 5000)).seq;
        log.release_before(log.segment_of(last));
    }
    // The segment of the tail is gone, or its file has another number by now.
    assert!(read_to(&rig, &mut tail, 0).map_or(true, |found| found.is_empty()));
    tail.restart(log.segment_of(last));
    let found = read(&rig, &mut tail);
    assert_eq!(found.last().unwrap().0, last);
    assert!(found.len() <= 3, "the file was used before, but holds {} records now", found.len());
}

#[test]
fn a_refused_commit_is_read_again() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits: Vec<_> = (0..6).map(|i| put(&log, &body(i, 500)).seq).collect();
    let mut tail = LogTail::new(CONFIG, WalId(1));
    let until = |tail: &mut LogTail, stop: Option<SeqNo>| {
        let mut found = Vec::new();
        let read = tail.read(&*rig.dir, 0, |piece, _| {
            found
                .extend(piece.commits().map(|c| c.seq).take_while(|seq| stop.is_none_or(|stop| *seq < stop)));
            Ok(stop)
        });
        read.map(|()| found)
    };
    assert_eq!(until(&mut tail, Some(commits[3])).unwrap(), commits[..3]);
    assert_eq!(tail.end(), commits[3]);
    assert!(tail.read(&*rig.dir, 0, |_, _| Err(Error::Closed)).is_err());
    assert_eq!(until(&mut tail, None).unwrap(), commits[3..]);
}
