//! Where the log ends, and what is damage: one test for each line of the table in `wal/reader.rs`.

use tidesdb_io::sim::{Fault, errno};

use super::*;
use crate::Error;
use crate::wal::LoggedCommit;

const MODES: [RecoveryMode; 4] =
    [RecoveryMode::Strict, RecoveryMode::Tail, RecoveryMode::PointInTime, RecoveryMode::Salvage];

/// A log of `n` commits of 40 bytes each in segment 1.
fn written(n: u64) -> (Rig, Log, Vec<Commit>) {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = (0..n).map(|i| put(&log, &body(i, 8))).collect();
    (rig, log, commits)
}

/// Like [`written`], with the first `synced` commits durable; later records claim so.
fn synced(n: u64, synced: usize) -> (Rig, Log, Vec<Commit>) {
    let (rig, log, mut commits) = written(synced as u64);
    log.sync_to(commits[synced - 1].end, &no_values).unwrap();
    commits.extend((synced as u64..n).map(|i| put(&log, &body(i, 8))));
    (rig, log, commits)
}

fn seqs(read: &[Read]) -> Vec<SeqNo> {
    read.iter().map(|r| r.0).collect()
}

fn all(commits: &[Commit]) -> Vec<SeqNo> {
    commits.iter().map(|c| c.seq).collect()
}

/// Asserts an error that names the file and offset of `address`.
fn assert_refused(result: Result<(Scan, Vec<Read>)>, address: SeqNo) {
    match result {
        Err(Error::Corrupt { file, offset, .. }) => {
            let at = (format!("{:06}.wal", address * UNIT / SEGMENT), address * UNIT % SEGMENT);
            assert_eq!((file.to_string(), offset), at);
        }
        other => panic!("damage was not refused: {:?}", other.map(|(scan, _)| scan)),
    }
}

#[test]
fn a_tail_torn_at_any_byte_is_cut() {
    let (rig, _, commits) = written(4);
    let last = commits[3];
    for address in last.seq * UNIT..last.end * UNIT {
        for boot_id in [BOOT, OTHER_BOOT] {
            let after = rig.reopened();
            after.damage(address);
            let (found, read) = after.read_with(&ScanConfig { boot_id, ..after.config() }).unwrap();
            assert_eq!(seqs(&read), all(&commits[..3]), "byte {address}");
            assert_eq!((found.end, found.damage.is_none()), (last.seq, true));
        }
    }
}

#[test]
fn strict_mode_requires_a_seal() {
    let (rig, log, commits) = written(4);
    let strict = ScanConfig { mode: RecoveryMode::Strict, ..rig.config() };
    assert_refused(rig.reopened().read_with(&strict), commits[3].end);
    log.seal(&no_values).unwrap();
    assert_eq!(seqs(&rig.reopened().read_with(&strict).unwrap().1), all(&commits));
}

/// Commits around the hole of one that reserved its place and was never written.
fn with_a_hole() -> (Rig, Vec<Commit>, SeqNo) {
    let (rig, log, mut commits) = written(2);
    let hole = log.sequencer().reserve(40, Purpose::Store).unwrap();
    for i in 2..5 {
        commits.push(log.append(&mut record(&body(i, 8)), 1, false, Purpose::Store).unwrap());
    }
    (rig, commits, hole.seq)
}

#[test]
fn an_unfinished_commit_is_skipped_in_the_same_boot() {
    let (rig, commits, hole) = with_a_hole();
    for mode in [RecoveryMode::Tail, RecoveryMode::PointInTime, RecoveryMode::Salvage] {
        let (found, read) = rig.reopened().read_with(&ScanConfig { mode, ..rig.config() }).unwrap();
        assert_eq!(seqs(&read), all(&commits), "{mode:?}");
        assert_eq!((found.unfinished, found.cut, found.discarded), (vec![hole], None, 0));
    }
}

#[test]
fn after_a_machine_crash_a_hole_cuts_the_log() {
    let (rig, commits, hole) = with_a_hole();
    let other = ScanConfig { boot_id: OTHER_BOOT, ..rig.config() };
    let unknown = ScanConfig { boot_id: [0; 16], ..rig.config() };
    let failed = ScanConfig { sync_failed: true, ..rig.config() };
    for config in [&other, &unknown, &failed] {
        for mode in [RecoveryMode::Tail, RecoveryMode::PointInTime] {
            let (found, read) = rig.reopened().read_with(&ScanConfig { mode, ..config.clone() }).unwrap();
            assert_eq!(seqs(&read), all(&commits[..2]));
            assert_eq!((found.cut, found.discarded, found.end), (Some(hole), 3, hole));
            assert!(found.damage.is_none() && found.unfinished.is_empty());
        }
        let strict = ScanConfig { mode: RecoveryMode::Strict, ..config.clone() };
        assert_refused(rig.reopened().read_with(&strict), hole);
        let salvage = ScanConfig { mode: RecoveryMode::Salvage, ..config.clone() };
        assert_eq!(seqs(&rig.reopened().read_with(&salvage).unwrap().1), all(&commits));
    }
}

#[test]
fn all_unfinished_commits_are_skipped() {
    let rig = Rig::new();
    let log = rig.log(false);
    let (mut holes, mut commits) = (Vec::new(), Vec::new());
    for i in 0..10 {
        holes.push(log.sequencer().reserve(32 + 8 * (i % 3), Purpose::Store).unwrap().seq);
        commits.push(log.append(&mut record(&body(i, 8)), 1, false, Purpose::Store).unwrap());
    }
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!((seqs(&read), found.unfinished), (all(&commits), holes));
}

#[test]
fn a_hole_at_the_end_of_a_segment_is_skipped() {
    let rig = Rig::new();
    let log = rig.log(false);
    let mut commits = vec![put(&log, b"a")];
    let hole = log.sequencer().reserve(8000, Purpose::Store).unwrap();
    commits.push(log.append(&mut record(&body(1, 8000)), 1, false, Purpose::Store).unwrap()); // in segment 2
    let (found, read) = rig.reopened().read().unwrap();
    assert_eq!((seqs(&read), found.unfinished), (all(&commits), vec![hole.seq]));
}

#[test]
fn damage_to_a_complete_record_is_refused_in_the_same_boot() {
    let (rig, _, commits) = written(5);
    for victim in &commits[..3] {
        let after = rig.reopened();
        after.damage(victim.seq * UNIT + 35);
        assert_refused(after.read(), victim.seq);
    }
}

#[test]
fn after_a_machine_crash_damage_above_all_claims_cuts_the_log() {
    let (rig, _, commits) = written(5);
    let after = rig.reopened();
    after.damage(commits[2].seq * UNIT + 35);
    let config = ScanConfig { boot_id: OTHER_BOOT, ..after.config() };
    let (found, read) = after.read_with(&config).unwrap();
    assert_eq!((seqs(&read), found.cut), (all(&commits[..2]), Some(commits[2].seq)));
}

#[test]
fn damage_below_a_synced_claim_is_always_refused() {
    let (rig, _, commits) = synced(6, 3);
    for boot_id in [BOOT, OTHER_BOOT] {
        for sync_failed in [false, true] {
            for victim in &commits[..3] {
                let after = rig.reopened();
                after.damage(victim.seq * UNIT + 8);
                let config = ScanConfig { boot_id, sync_failed, ..after.config() };
                assert_refused(after.read_with(&config), victim.seq);
            }
        }
    }
}

#[test]
fn the_durable_mark_of_the_manifest_counts_as_a_claim() {
    let (rig, _, commits) = written(4);
    let after = rig.reopened();
    after.damage(commits[3].seq * UNIT);
    let config = ScanConfig { boot_id: OTHER_BOOT, watermark: commits[3].seq, ..after.config() };
    assert_eq!(after.read_with(&config).unwrap().1.len(), 3);
    assert_refused(after.read_with(&ScanConfig { watermark: commits[3].end, ..config }), commits[3].seq);
}

#[test]
fn either_seal_protects_the_last_record() {
    let (rig, log, commits) = written(3);
    log.seal(&no_values).unwrap();
    let seals = [commits[2].end, log.sequencer().tail() - 4];
    for lost in seals {
        let after = rig.reopened();
        after.damage(commits[2].seq * UNIT);
        after.damage(lost * UNIT);
        let config = ScanConfig { boot_id: OTHER_BOOT, ..after.config() };
        assert_refused(after.read_with(&config), commits[2].seq);
    }
}

#[test]
fn each_recovery_mode_handles_damage() {
    let (rig, _, commits) = synced(6, 4);
    let victim = commits[1];
    let read = |mode| {
        let after = rig.reopened();
        after.damage(victim.seq * UNIT + 33);
        after.read_with(&ScanConfig { mode, ..after.config() })
    };
    assert_refused(read(RecoveryMode::Strict), victim.seq);
    assert_refused(read(RecoveryMode::Tail), victim.seq);
    let (found, got) = read(RecoveryMode::PointInTime).unwrap();
    assert_eq!(seqs(&got), all(&commits[..1]));
    assert_eq!((found.cut, found.discarded), (Some(victim.seq), 4));
    assert!(found.damage.unwrap().is_corruption());
    let (found, got) = read(RecoveryMode::Salvage).unwrap();
    assert_eq!(seqs(&got), [&all(&commits)[..1], &all(&commits)[2..]].concat());
    assert!(found.damage.unwrap().is_corruption());
}

#[test]
fn the_first_damage_is_reported() {
    let (rig, _, commits) = synced(6, 5);
    rig.damage(commits[3].seq * UNIT);
    rig.damage(commits[1].seq * UNIT);
    assert_refused(rig.reopened().read(), commits[1].seq);
}

#[test]
fn a_damaged_length_does_not_hide_later_records() {
    let (rig, _, commits) = synced(6, 5);
    // A length that reaches over the next records.
    let (file, offset) = rig.place(commits[1].seq * UNIT + 4);
    rig.disk.corrupt(file, offset, |_| 120).unwrap();
    assert_refused(rig.reopened().read(), commits[1].seq);
}

#[test]
fn swapped_records_are_refused() {
    let (rig, _, commits) = synced(6, 5);
    let [a, b] = [commits[1], commits[3]].map(|c| rig.place(c.seq * UNIT).1);
    rig.disk.swap_ranges(rig.place(SEGMENT).0, a, b, 40).unwrap();
    assert_refused(rig.reopened().read(), commits[1].seq);
}

/// Three segments of one commit each.
fn three_segments() -> (Rig, Vec<Commit>) {
    let rig = Rig::new();
    let log = rig.log(false);
    let commits = (0..3).map(|i| put(&log, &body(i, 11_000))).collect();
    (rig, commits)
}

fn path(n: u64) -> String {
    format!("{DB}/{}", files::wal(WalId(n)))
}

#[test]
fn segments_with_swapped_names_are_refused() {
    let (rig, _) = three_segments();
    let [one, two] = [1, 2].map(|n| rig.disk.read_file(path(n)).unwrap());
    rig.disk.write_file(path(1), &two).unwrap();
    rig.disk.write_file(path(2), &one).unwrap();
    for mode in &MODES[..3] {
        let e = rig.reopened().read_with(&ScanConfig { mode: *mode, ..rig.config() }).unwrap_err();
        assert!(matches!(&e, Error::Corrupt { file, offset: 0, .. } if **file == *"000001.wal"), "{e}");
    }
    let salvage = ScanConfig { mode: RecoveryMode::Salvage, ..rig.config() };
    assert_eq!(rig.reopened().read_with(&salvage).unwrap().1.len(), 1);
}

#[test]
fn segments_of_another_database_are_refused() {
    let (rig, _) = three_segments();
    let foreign = ScanConfig { db_uuid: [7; 16], ..rig.config() };
    assert!(rig.reopened().read_with(&foreign).unwrap_err().is_corruption());
    let other_length = ScanConfig { segment_bytes: 2 * SEGMENT, ..rig.config() };
    assert!(rig.reopened().read_with(&other_length).unwrap_err().is_corruption());
}

#[test]
fn a_missing_segment_at_any_position_is_damage() {
    for gone in 1..=3 {
        for boot_id in [BOOT, OTHER_BOOT] {
            let (rig, commits) = three_segments();
            rig.disk.remove_file(path(gone)).unwrap();
            let config = ScanConfig { boot_id, ..rig.config() };
            let e = rig.reopened().read_with(&config).unwrap_err();
            assert!(e.is_corruption(), "segment {gone}: {e}");
            let point = ScanConfig { mode: RecoveryMode::PointInTime, ..config.clone() };
            let (found, read) = rig.reopened().read_with(&point).unwrap();
            assert_eq!(seqs(&read), all(&commits[..gone as usize - 1]), "segment {gone}");
            assert!(found.damage.is_some() && found.cut.is_some());
            let salvage = ScanConfig { mode: RecoveryMode::Salvage, ..config };
            assert_eq!(rig.reopened().read_with(&salvage).unwrap().1.len(), 2);
        }
    }
}

#[test]
fn a_segment_of_wrong_length_is_refused() {
    for len in [0, 100, 4095, 4096, SEGMENT - 1, SEGMENT + 1, 2 * SEGMENT] {
        let (rig, _) = three_segments();
        rig.disk.truncate_file(path(2), len).unwrap();
        let e = rig.reopened().read().unwrap_err();
        assert!(matches!(&e, Error::Corrupt { file, .. } if **file == *"000002.wal"), "{len}: {e}");
    }
}

#[test]
fn overlapping_segments_are_refused() {
    let rig = Rig::new();
    let log = rig.log(false);
    put(&log, &body(1, 2 * SEGMENT as usize)); // covers 2 to 4
    let strange = rig.disk.read_file(path(1)).unwrap();
    rig.disk.write_file(path(3), &strange).unwrap();
    assert!(rig.reopened().read().unwrap_err().is_corruption());
}

#[test]
fn a_read_error_is_returned_in_every_mode() {
    let (rig, _) = three_segments();
    for mode in MODES {
        for kind in [OpKind::Read, OpKind::Open, OpKind::Len] {
            for skip in 0..3 {
                let after = rig.reopened();
                after.disk.inject(Fault::errno(errno::EIO).on(kind).path_ends(".wal").skip(skip).forever());
                let e = after.read_with(&ScanConfig { mode, ..after.config() }).unwrap_err();
                assert!(matches!(e, Error::Io { .. }), "{mode:?} {kind:?} {skip}: {e}");
            }
        }
    }
}

#[test]
fn short_reads_read_the_same_log() {
    let (rig, commits) = three_segments();
    let after = rig.reopened();
    after.disk.inject(Fault::short().on(OpKind::Read).forever());
    assert_eq!(seqs(&after.read().unwrap().1), all(&commits));
}

#[test]
fn pieces_have_offsets_and_end_when_no_more_are_wanted() {
    let (rig, _, commits) = written(5);
    let after = rig.reopened();
    for boot_id in [BOOT, OTHER_BOOT] {
        let config = ScanConfig { boot_id, ..after.config() };
        let log = CrashedLog::find(&after.dir, &config).unwrap();
        let mut seen = Vec::new();
        let found = log.read(1, |logged, _| {
            let Logged::Commits(piece) = logged else { panic!("no commit is large") };
            assert_eq!(piece.commits().len(), 1, "a piece ends at the first commit that fills it");
            for LoggedCommit { seq, file, offset, .. } in piece.commits() {
                assert_eq!((file, offset), ("000001.wal", seq * UNIT % SEGMENT + RECORD_HEADER_BYTES as u64));
                seen.push(seq);
            }
            Ok(seen.len() < 3)
        });
        assert_eq!(seen, all(&commits[..3]));
        assert_eq!(found.unwrap().commits, 5, "the rest is counted");
        assert!(matches!(log.read(1, |_, _| Err(Error::Closed)), Err(Error::Closed)));
    }
}

#[test]
fn only_what_follows_a_hole_is_read_twice() {
    let segment = 1 << 20;
    for hole_at in [0, 40, 80] {
        let rig = Rig::on(SimDisk::new(1), segment);
        let log = rig.log(false);
        let mut commits = Vec::new();
        for i in 0..80 {
            if i == hole_at {
                log.sequencer().reserve(40, Purpose::Store).unwrap();
            }
            commits.push(log.append(&mut record(&body(i, 8000)), 1, false, Purpose::Store).unwrap());
        }
        let again = commits.get(hole_at as usize).map_or(0, |c| (commits[79].end - c.seq) * UNIT);
        let after = rig.reopened();
        let (config, mut seen) = (after.config(), Vec::new());
        let log = CrashedLog::find(&after.dir, &config).unwrap();
        log.read(64 << 10, |logged, _| {
            seen.extend(bodies(&logged)?);
            Ok(true)
        })
        .unwrap();
        assert_eq!(seqs(&seen), all(&commits));
        let ops = after.disk.ops();
        let read: u64 = ops.iter().filter(|op| op.kind == OpKind::Read).map(|op| op.len).sum();
        // A record that ends outside of the window is read again with the next one.
        let most = (segment + again) / 8 * 9 + (128 << 10);
        assert!(read <= most, "{read} of {most} bytes with a hole at {hole_at}");
    }
}

#[test]
fn a_long_record_is_read_in_parts() {
    for len in [4064, 4065, 9000, 40_000] {
        let rig = Rig::new();
        let log = rig.log(false);
        for bytes in [b"before".to_vec(), body(1, len), b"after".to_vec()] {
            put(&log, &bytes);
        }
        let after = rig.reopened();
        let mut large = Vec::new();
        let config = after.config();
        let log = CrashedLog::find(&after.dir, &config).unwrap();
        let found = log.read(0, |logged, _| {
            assert!(matches!(logged, Logged::Commits(_)) || len > 4064);
            if let Logged::Large(commit) = logged {
                large.push(commit);
            }
            Ok(true)
        });
        assert_eq!((found.unwrap().commits, large.len()), (3, usize::from(len > 4064)));
        let Some(commit) = large.pop() else { continue };
        // A part that cannot be used is followed by a longer one.
        let mut parts = Vec::new();
        let all_at_once = |part: &Piece, is_last: bool| {
            let bytes = part.commits().map(|c| c.body.len()).sum();
            parts.push(bytes);
            Ok(Taken::Operations(if is_last { bytes } else { 0 }, 0))
        };
        commit.read(1000, all_at_once).unwrap();
        assert!(parts.iter().zip(&parts[1..]).all(|(a, b)| a < b) && parts.last() == Some(&len), "{parts:?}");
        let mut calls = 0;
        commit
            .read(1000, |_, _| {
                calls += 1;
                Ok(Taken::Enough)
            })
            .unwrap();
        assert_eq!(calls, 1);
        // The bytes are checked again.
        let path = format!("{DB}/{}", commit.name);
        after.disk.corrupt(path, commit.offset() + len as u64 / 2, |b| b ^ 1).unwrap();
        let e = commit.read(1000, |part, _| Ok(Taken::Operations(part.bytes(), 0))).unwrap_err();
        assert!(e.is_corruption(), "{e}");
    }
}

#[test]
fn segments_below_the_first_are_ignored() {
    let (rig, commits) = three_segments();
    rig.disk.corrupt(path(1), 0, |b| b ^ 1).unwrap();
    let config = ScanConfig { first: WalId(2), ..rig.config() };
    assert_eq!(seqs(&rig.reopened().read_with(&config).unwrap().1), all(&commits[1..]));
}

#[test]
fn a_piece_splits_into_parts_in_order() {
    let (rig, _, commits) = written(20);
    let after = rig.reopened();
    let mut pieces = Vec::new();
    let config = after.config();
    let log = CrashedLog::find(&after.dir, &config).unwrap();
    log.read(usize::MAX, |logged, _| {
        if let Logged::Commits(piece) = logged {
            pieces.push(piece);
        }
        Ok(true)
    })
    .unwrap();
    assert_eq!(pieces.len(), 1);
    for parts in [1, 2, 3, 19, 100] {
        let split = pieces[0].split(parts);
        assert!(split.len() <= parts && split.len() > parts.min(20) / 2, "{} of {parts}", split.len());
        let seen: Vec<SeqNo> = split.iter().flat_map(|part| part.commits().map(|c| c.seq)).collect();
        assert_eq!(seen, all(&commits));
    }
    for (n, left) in [(0, 20), (7, 13), (19, 1)] {
        assert_eq!(pieces[0].from(commits[n].seq).commits().len(), left);
    }
    assert_eq!(pieces[0].from(commits[19].end).commits().len(), 0);
    pieces[0].truncate(commits[7].seq);
    assert_eq!(pieces[0].commits().len(), 7);
}
