//! Segments are prepared before they are needed, reused under a new salt, and released.

use std::sync::atomic::Ordering;

use tidesdb_io::{Access, FileExt};

use super::*;
use crate::Error;
use crate::wal::layout::{SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::wal::space::FLUSH_OVERHEAD_BYTES;

fn names(rig: &Rig) -> Vec<String> {
    rig.disk.file_names(DB).unwrap()
}

/// Fills `n` segments with one commit each; returns the commits.
fn fill(log: &Log, n: u64) -> Vec<Commit> {
    (0..n).map(|i| put(log, &body(i, 11_000))).collect()
}

#[test]
fn a_segment_is_complete_before_it_gets_its_name() {
    let rig = Rig::new();
    // Whatever a crash loses, a segment that has its name is whole.
    rig.disk.observe(OpKind::Write, |_, fork| {
        for seed in 0..4 {
            for image in sim::Image::STANDARD {
                let after = fork.crash_image(&image, seed);
                for name in after.file_names(DB).unwrap().iter().filter(|n| n.ends_with(".wal")) {
                    let bytes = after.read_file(format!("{DB}/{name}")).unwrap();
                    assert_eq!(bytes.len() as u64, SEGMENT);
                    SegmentHeader::decode(&bytes[..4096], name).unwrap();
                }
            }
        }
    });
    fill(&rig.log(false), 4);
}

#[test]
fn a_pad_is_written_only_after_the_next_segment_exists() {
    let rig = Rig::new();
    let log = rig.log(false);
    fill(&log, 4);
    let ops = rig.disk.ops();
    let is_pad = |op: &&sim::Op| op.kind == OpKind::Write && op.len == 32;
    let pads: Vec<_> = ops.iter().filter(is_pad).collect();
    assert_eq!(pads.len(), 3);
    for pad in pads {
        let id: u64 =
            pad.path.trim_start_matches("/db/").trim_end_matches(".wal").parse().unwrap_or_else(|_| {
                // An open file keeps the name under which it was created.
                pad.path.trim_start_matches("/db/").trim_end_matches(".wal.free").parse().unwrap()
            });
        let next = format!("/db/{}.free", files::wal(WalId(id + 1)));
        let made = ops.iter().position(|op| op.kind == OpKind::Rename && *op.path == *next).unwrap();
        let durable = ops[made..].iter().find(|op| op.kind == OpKind::SyncDir && op.ok).unwrap();
        assert!(durable.index < pad.index, "the pad of {id} came first");
    }
}

#[test]
fn the_next_segment_is_wanted_from_the_middle_of_the_current_one() {
    let rig = Rig::new();
    let log = rig.log(false);
    let early = put(&log, b"x");
    assert!(!log.wants_next(&early));
    put(&log, &body(1, 6000));
    let late = put(&log, b"y");
    assert!(log.wants_next(&late));
    log.prepare_next().unwrap();
    assert!(!log.wants_next(&late), "it is prepared already");
    assert_eq!(names(&rig), ["000001.wal", "000002.wal"]);
    log.prepare_next().unwrap();
    assert_eq!(names(&rig), ["000001.wal", "000002.wal"]);
    fill(&log, 1);
    assert_eq!(names(&rig), ["000001.wal", "000002.wal"], "the prepared segment is used");
}

#[test]
fn an_oversized_record_replaces_a_prepared_segment() {
    let rig = Rig::new();
    let log = rig.log(true);
    let a = put(&log, b"a");
    log.prepare_next().unwrap();
    let big = body(7, 3 * SEGMENT as usize); // with two headers slightly more than three segments
    let b = put(&log, &big);
    let c = put(&log, b"c");
    let (_, read) = rig.reopened().read().unwrap();
    assert!(read == [(a.seq, b"a".to_vec()), (b.seq, big), (c.seq, b"c".to_vec())]);
    assert_eq!(names(&rig), ["000001.wal", "000002.wal", "000006.wal"]);
}

/// Several segments may be ready. A crash between the record that covers them and their removal leaves both.
#[test]
fn a_prepared_segment_that_an_oversized_record_covers_is_not_damage() {
    for has_record in [false, true] {
        let rig = Rig::new();
        let log = rig.log(true);
        let a = put(&log, b"a");
        let big = body(7, 3 * SEGMENT as usize);
        let b = put(&log, &big);
        let c = put(&log, b"c");
        let other = Rig::new();
        let of_other = other.log_at(WalId(3), false);
        of_other.begin(Vec::new()).unwrap();
        if has_record {
            put(&of_other, b"d");
        } else {
            of_other.prepare_next().unwrap();
        }
        let left = other.disk.read_file(format!("{DB}/000003.wal")).unwrap();
        assert_eq!(left.len() as u64, SEGMENT);
        let file = rig.dir.create_new("000003.wal", 0).unwrap();
        file.write_all_at(&left, 0).unwrap();
        let read = rig.reopened().read();
        if has_record {
            assert!(read.unwrap_err().to_string().contains("overlaps"));
        } else {
            let (_, read) = read.unwrap();
            assert!(read == [(a.seq, b"a".to_vec()), (b.seq, big), (c.seq, b"c".to_vec())]);
        }
    }
}

/// The prepared segment is renamed, then the file of the record, which fails.
#[test]
fn a_prepared_segment_gets_its_name_back_if_nothing_takes_its_place() {
    for failures in [1, 2] {
        let rig = Rig::new();
        let log = rig.log(false);
        let a = put(&log, b"a");
        log.prepare_next().unwrap();
        rig.disk.inject(sim::Fault::errno(sim::errno::EIO).on(OpKind::Rename).skip(1).times(failures));
        let append = |body: &[u8]| log.append(&mut record(body), 1, false, Purpose::Store);
        let (_, failed) = append(&body(7, 3 * SEGMENT as usize)).unwrap_err();
        let mut expected = vec![(a.seq, b"a".to_vec())];
        if failures == 1 {
            assert!(matches!(failed, Error::Io { op: "rename", .. }), "{failed}");
            assert_eq!(names(&rig), ["000001.wal", "000002.wal"]);
            expected.extend((0..3).map(|i| (put(&log, &body(i, 11_000)).seq, body(i, 11_000))));
        } else {
            assert!(matches!(failed, Error::Poisoned { .. }), "{failed}");
            assert!(append(b"b").is_err(), "the file of the next record has no name of the log");
        }
        let (_, read) = rig.reopened().read().unwrap();
        assert!(read == expected, "{failures}");
    }
}

#[test]
fn an_empty_prepared_segment_at_the_end_is_not_damage() {
    let rig = Rig::new();
    let log = rig.log(false);
    let a = put(&log, b"a");
    log.prepare_next().unwrap();
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!(read, [(a.seq, b"a".to_vec())]);
    assert_eq!((found.end, names(&rig).len()), (a.end, 2));
}

/// Makes everything durable.
fn sync(log: &Log) {
    log.sync_to(log.sequencer().tail(), &no_values).unwrap();
}

#[test]
fn a_segment_that_was_never_synced_is_used_again_and_the_device_need_not_write_it() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = fill(&log, 3);
    log.release_before(log.segment_of(commits[2].seq));
    let created = rig.count(OpKind::Create);
    fill(&log, 2);
    assert_eq!(rig.count(OpKind::Create), created, "the files of segments 1 and 2 are used again");
    assert_eq!(rig.count(OpKind::SyncData), 0);
    let lost =
        rig.disk.crash_image(&sim::Image { data: sim::DataFate::Synced, names: sim::NameFate::All }, 1);
    for name in ["000004.wal", "000005.wal"] {
        let bytes = lost.read_file(format!("{DB}/{name}")).unwrap();
        let (header, records) = bytes.split_at(SEGMENT_HEADER_BYTES as usize);
        assert!(
            SegmentHeader::decode(header, name).is_ok() && records.iter().all(|byte| *byte == 0),
            "{name}"
        );
    }
}

#[test]
fn no_file_is_used_again_that_an_object_store_may_read() {
    let rig = Rig::new();
    let log = rig.log(false);
    log.keep_from(WalId(100));
    let commits = fill(&log, 4);
    sync(&log);
    log.release_before(log.segment_of(commits[3].seq));
    assert_eq!(names(&rig).iter().filter(|n| n.contains(".wal")).collect::<Vec<_>>(), ["000004.wal"]);
}

#[test]
fn old_segments_are_kept_for_reuse() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = fill(&log, 6);
    sync(&log);
    log.release_before(log.segment_of(commits[5].seq));
    let left = names(&rig);
    assert_eq!(left.iter().filter(|n| n.ends_with(".free")).count(), 2, "{left:?}");
    assert_eq!(left.iter().filter(|n| n.ends_with(".wal")).collect::<Vec<_>>(), ["000006.wal"]);
    assert_eq!(rig.count(OpKind::Create), 6);
    fill(&log, 2);
    assert_eq!(rig.count(OpKind::Create), 6, "the kept files were used");
    fill(&log, 1);
    assert_eq!(rig.count(OpKind::Create), 7);
}

#[test]
fn stale_records_of_a_reused_file_are_never_read() {
    let rig = Rig::new();
    let log = rig.log(false);
    for i in 0..200 {
        put(&log, &body(i, 200));
    }
    let tail = log.sequencer().tail();
    log.release_before(log.segment_of(tail));
    let mut written = fill(&log, 2);
    written.push(put(&log, b"last"));
    let config = ScanConfig { first: log.segment_of(tail), ..rig.config() };
    let old: Vec<_> = rig.reopened().read_with(&config).unwrap().1;
    let new: Vec<SeqNo> = old.iter().map(|r| r.0).filter(|s| *s >= tail).collect();
    assert_eq!(new, written.iter().map(|c| c.seq).collect::<Vec<_>>());
}

#[test]
fn a_reused_file_gets_a_new_salt() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = fill(&log, 2);
    sync(&log);
    let salt = |name: &str| rig.disk.read_file(format!("{DB}/{name}")).unwrap()[32..48].to_vec();
    let first = salt("000001.wal");
    log.release_before(log.segment_of(commits[1].seq));
    fill(&log, 1);
    assert_eq!(rig.count(OpKind::Create), 2, "segment 3 is the file of segment 1");
    assert_ne!(salt("000003.wal"), first);
}

#[test]
fn an_oversized_segment_is_kept_while_its_end_is_needed() {
    let rig = Rig::new();
    let log = rig.log(false);
    let big = put(&log, &body(1, 3 * SEGMENT as usize));
    let first = log.segment_of(big.seq);
    log.release_before(WalId(first.0 + 1));
    assert!(names(&rig).contains(&files::wal(first)), "it still covers needed records");
    log.release_before(log.segment_of(big.end));
    assert!(
        !names(&rig).iter().any(|n| n.starts_with(&files::wal(first))),
        "long files are not kept for reuse"
    );
}

#[test]
fn files_of_an_earlier_log_are_reused() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = fill(&log, 3);
    sync(&log);
    log.release_before(log.segment_of(commits[2].seq));
    let free: Vec<String> = names(&rig).into_iter().filter(|n| n.ends_with(".free")).collect();
    let next = rig.reopened();
    let log = next.log_at(WalId(4), false);
    log.begin(free).unwrap();
    let commit = put(&log, b"new");
    assert_eq!(next.count(OpKind::Create), 0);
    let config = ScanConfig { first: WalId(4), ..next.config() };
    assert_eq!(next.reopened().read_with(&config).unwrap().1, [(commit.seq, b"new".to_vec())]);
}

#[test]
fn remove_all_leaves_nothing() {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = fill(&log, 5);
    log.release_before(log.segment_of(commits[3].seq));
    log.prepare_next().unwrap();
    log.remove_all();
    assert_eq!(names(&rig), Vec::<String>::new());
}

#[test]
fn bytes_since_and_segment_of() {
    let rig = Rig::new();
    let log = rig.log(false);
    let a = put(&log, b"a");
    assert_eq!(log.segment_of(a.seq), WalId(1));
    assert_eq!(log.bytes_since(a.seq), 40);
    assert_eq!(log.bytes_since(a.end + 100), 0);
}

/// A flush writes at most as many bytes as its part of the log. Commits fill the blocks that the log has without a look at the disk, so
/// the disk must have room for the flush of all of them, in new segments and in spare ones.
#[test]
fn what_commits_fill_can_be_flushed() {
    for (room, bytes, spare) in (0..40).flat_map(|n| {
        let room = 20_000 + n * 5_003;
        [(room, 90, false), (room, 11_000, false), (room, 90, true), (room, 11_000, true)]
    }) {
        let rig = Rig::new();
        let log = rig.log(false);
        if spare {
            fill(&log, 3);
            sync(&log);
            log.release_before(log.segment_of(log.sequencer().tail()));
            assert_eq!(names(&rig).iter().filter(|n| n.ends_with(".free")).count(), 2);
        }
        let from = log.sequencer().tail();
        log.set_needed_from(from);
        rig.disk.limit_space(Some(FLUSH_OVERHEAD_BYTES + room));
        let filled = loop {
            let backed = log.backed.load(Ordering::SeqCst);
            let free = rig.dir.space().unwrap().free;
            // The tail may be behind the header of a segment that has no blocks yet.
            let unflushed = log.bytes_since(from).min(backed.saturating_sub(from * UNIT));
            assert!(
                free >= unflushed + FLUSH_OVERHEAD_BYTES || unflushed == 0,
                "room {room}, records of {bytes}, spare {spare}: {free} bytes are free, {unflushed} are only in the log"
            );
            match log.append(&mut record(&body(1, bytes)), 1, false, Purpose::Store) {
                Ok(commit) => log.sequencer().done(&commit),
                Err((None, Error::NoSpace { .. })) => break unflushed,
                Err((_, e)) => panic!("{e}"),
            }
        };
        let least = room.saturating_sub(3 * SEGMENT) / 2;
        assert!(filled >= least, "room {room}, records of {bytes}, spare {spare}: {filled} bytes filled");
    }
}

/// A log begins with a short piece. Each further one doubles it, until a piece is a segment. A file is made in advance with its first block,
/// and gets the others when commits come near to it.
#[test]
fn pieces_of_the_log_grow_to_whole_segments() {
    let rig = Rig::on(SimDisk::new(1), 1 << 20);
    let log = rig.log(true);
    let used = || rig.dir.space().map(|space| space.total - space.free).unwrap();
    put(&log, b"first");
    assert_eq!(used(), 64 << 10);
    for n in 0.. {
        let commit = put_by(&log, &body(n, 3000), true);
        assert!(commit.end * UNIT <= log.backed.load(Ordering::SeqCst));
        if log.wants_next(&commit) {
            log.prepare_next().unwrap();
        }
        if log.segment_of(commit.end) == WalId(6) {
            break;
        }
    }
    let ops = rig.disk.ops();
    let is_piece = |op: &&sim::Op| op.ok && matches!(op.kind, OpKind::Create | OpKind::Allocate);
    let pieces: Vec<u64> = ops.iter().filter(is_piece).map(|op| op.len >> 10).collect();
    assert_eq!(pieces, [64, 64, 128, 256, 512, 4, 1020, 4, 1020, 4, 1020, 4, 1020, 4, 1020]);
    assert_eq!(used(), 6 << 20);
    assert_eq!(rig.reopened().read().unwrap().0.cut, None);
}

/// A record that is longer than the next piece gets the blocks that it needs, and one that does not fit into the segment those of the rest.
#[test]
fn a_record_longer_than_a_piece_gets_its_blocks() {
    let rig = Rig::on(SimDisk::new(1), 1 << 20);
    let log = rig.log(false);
    let lens = [200_000, 10, 700_000, 300_000, 2_000_000, 10, 500_000];
    let commits: Vec<_> =
        (0..).zip(lens).map(|(n, len)| (put(&log, &body(n, len)).seq, body(n, len))).collect();
    assert!(rig.reopened().read().unwrap().1 == commits);
}

/// The reserve is long enough for a flush of the whole log before the log gets more blocks, also if the disk becomes full meanwhile.
#[test]
fn the_reserve_grows_before_the_log() {
    let (least, most) = (512 << 10, 4 << 20);
    for room in (0..60).map(|n| Some(n * 150_007)).chain([None]) {
        let rig = Rig::on(SimDisk::new(1), 1 << 20);
        let log = rig.log_with(WalId(1), false, least..=most);
        log.begin(Vec::new()).unwrap();
        log.restore_reserve();
        let reserve = || rig.dir.open(files::RESERVE, Access::Read).unwrap().len().unwrap();
        assert_eq!(reserve(), least + (64 << 10));
        rig.disk.limit_space(room);
        for n in 0.. {
            let backed = log.backed.load(Ordering::SeqCst) - (1 << 20);
            assert!(reserve() >= most.min(least + backed), "{room:?}: {} for a log of {backed}", reserve());
            match log.append(&mut record(&body(n, 5000)), 1, false, Purpose::Store) {
                Ok(commit) => log.sequencer().done(&commit),
                Err((None, Error::NoSpace { free, needed, .. })) => {
                    assert!(room.is_some() && free < needed, "{room:?}: {free} of {needed}");
                    break;
                }
                Err((_, e)) => panic!("{e}"),
            }
            if backed > 8 << 20 {
                assert_eq!((room, reserve()), (None, most));
                break;
            }
        }
    }
}

/// The last session may have left a reserve that is shorter than this one wants: it is used nevertheless, and extended.
#[test]
fn a_short_reserve_is_taken_over() {
    let rig = Rig::on(SimDisk::new(1), 1 << 20);
    let open = |data| {
        let log = rig.log_with(WalId(1), false, 512 << 10..=4 << 20);
        log.note_data(data);
        log.take_over_reserve().unwrap();
        log
    };
    let reserve = || rig.dir.open(files::RESERVE, Access::Read).unwrap().len().unwrap();
    open(0).restore_reserve();
    assert_eq!(reserve(), 512 << 10);
    rig.disk.limit_space(Some(0));
    let log = open(1 << 20);
    let deleted = log.append(&mut record(b"delete"), 1, false, Purpose::Relief);
    assert!(deleted.is_ok(), "the space of the reserve was not used: {deleted:?}");
    rig.disk.limit_space(None);
    log.restore_reserve();
    assert!(reserve() >= (512 << 10) + (1 << 20));
}
