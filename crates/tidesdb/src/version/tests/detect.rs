//! Damage at rest: every byte, every length, whole pages, whole files. Damage must be refused, or reported with an
//! unchanged state.

use super::*;
use crate::files::{self, CURRENT};
use crate::version::format::{PAGE, RECORDS_AT};
use crate::version::replay;
use tidesdb_io::sim::SimDisk;

/// Outcome of reading a damaged manifest.
#[derive(Debug, PartialEq)]
enum Seen {
    Refused,
    Reported,
    Unnoticed,
}

struct Victim {
    disk: Arc<SimDisk>,
    path: String,
    facts: Vec<u8>,
    /// Used bytes of the manifest; the reserve follows.
    used: usize,
}

impl Victim {
    fn new(disk: &SimDisk, name: &str) -> Self {
        let disk = Arc::new(disk.fork());
        disk.log_ops(false);
        let (state, report) = read(&disk).unwrap();
        let used = report.bytes as usize;
        Self { disk, path: format!("{DB}/{name}"), facts: facts(&state), used }
    }

    /// Reads the manifest with `bytes` as its content.
    fn judge(&self, bytes: &[u8], what: &dyn Fn() -> String) -> Seen {
        self.disk.write_file(&self.path, bytes).unwrap();
        match read(&self.disk) {
            Err(e) => {
                assert!(e.is_corruption(), "{}: {e}", what());
                Seen::Refused
            }
            Ok((state, report)) => {
                assert_eq!(facts(&state), self.facts, "{}: another state", what());
                let told = report.repaired_mark
                    || report.half_marked
                    || report.unmarked_record
                    || report.torn_bytes > 0;
                if told { Seen::Reported } else { Seen::Unnoticed }
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.disk.read_file(&self.path).unwrap()
    }
}

fn read(disk: &Arc<SimDisk>) -> Result<(State, ManifestReport)> {
    let disk: Arc<dyn tidesdb_io::Disk> = Arc::<SimDisk>::clone(disk);
    let dir = disk.open_dir(Path::new(DB), false).unwrap();
    let loaded = replay::load(&*dir, &mut |_, _| {})?;
    Ok((loaded.state, loaded.report))
}

/// Four databases: idle and not closed, closed, fresh, and one whose last record is the second.
fn victims() -> Vec<(&'static str, Victim, bool)> {
    let name = |set: &Set| files::manifest(set.manifest().unwrap().0);
    let (_env, idle, set) = disk_with(11, 6);
    let idle = Victim::new(&idle, &name(&set));
    let (_env, closed, set) = disk_with(12, 5);
    let closed_name = name(&set);
    set.close(&VersionEdit::new()).unwrap();
    let closed = Victim::new(&closed, &closed_name);
    let (_env, fresh, set) = disk_with(13, 0);
    let fresh = Victim::new(&fresh, &name(&set));
    let (_env, second, set) = disk_with(14, 1);
    let second = Victim::new(&second, &name(&set));
    vec![("idle", idle, false), ("closed", closed, true), ("fresh", fresh, false), ("second", second, false)]
}

#[test]
fn damage_to_every_byte_of_the_manifest_is_detected() {
    for (kind, victim, clean) in victims() {
        let good = victim.bytes();
        let used = victim.used;
        let mut counts = [0; 2];
        // The reserve consists of zeros: checks a sample of it and its last byte.
        let reserve = (used..good.len()).step_by(251).chain([good.len() - 1]);
        for at in (0..used).chain(reserve) {
            for (n, to) in
                [good[at] ^ 1 << (at % 8), 0, 0xff, good[at].wrapping_add(1)].into_iter().enumerate()
            {
                // Flips a bit of every byte, and tries the other changes on some. `cargo xtask sweep` tries them all.
                if to == good[at] || n > 0 && !at.is_multiple_of(16) {
                    continue;
                }
                let mut bad = good.clone();
                bad[at] = to;
                let seen = victim.judge(&bad, &|| format!("{kind}: byte {at} of {} to {to:#x}", good.len()));
                assert_ne!(seen, Seen::Unnoticed, "{kind}: byte {at} to {to:#x}");
                assert!(!clean || seen == Seen::Refused || at < 5 * PAGE as usize, "{kind}: byte {at}");
                counts[usize::from(seen == Seen::Reported)] += 1;
            }
        }
        println!(
            "{kind}: {used} bytes of {}, refused {}, repaired or reported {}",
            good.len(),
            counts[0],
            counts[1]
        );
    }
}

/// Found on 32 bits: a payload of this length and its header end beyond the addresses.
#[test]
fn the_greatest_length_of_a_record_is_damage() {
    for (kind, victim, _) in victims() {
        let (mut bytes, at) = (victim.bytes(), RECORDS_AT as usize + 4);
        bytes[at..at + 4].fill(0xff);
        assert_eq!(victim.judge(&bytes, &|| format!("{kind}: length of the first record")), Seen::Refused);
    }
}

#[test]
fn a_manifest_of_any_other_length_is_detected() {
    for (kind, victim, clean) in victims() {
        let good = victim.bytes();
        // Every length within the used pages, and a sample of the reserve.
        let used = victim.used;
        for length in (0..used).chain((used..good.len()).step_by(97)).chain([good.len() - 1]) {
            let seen = victim.judge(&good[..length], &|| format!("{kind}: cut to {length}"));
            assert_eq!(seen, Seen::Refused, "{kind}: cut to {length}");
        }
        for garbage in [1usize, 511, 4096, 70_000] {
            let mut bad = good.clone();
            bad.extend((0..garbage).map(|i| 1 + (i % 255) as u8));
            let seen = victim.judge(&bad, &|| format!("{kind}: {garbage} bytes of garbage"));
            assert_eq!(
                seen,
                if clean { Seen::Refused } else { Seen::Reported },
                "{kind}: {garbage} of garbage"
            );
        }
    }
}

#[test]
fn bursts_and_swapped_pages_are_detected() {
    for (kind, victim, _) in victims() {
        let good = victim.bytes();
        let used = victim.used;
        for size in [2, 64, 512, 4096] {
            for at in (0..used).step_by(64) {
                for fill in [0u8, 0x5a] {
                    let mut bad = good.clone();
                    let end = (at + size).min(bad.len());
                    bad[at..end].fill(fill);
                    if bad != good {
                        let seen = victim.judge(&bad, &|| format!("{kind}: {size} bytes at {at}"));
                        assert_ne!(seen, Seen::Unnoticed, "{kind}: {size} bytes of {fill:#x} at {at}");
                    }
                }
            }
        }
        let page = PAGE as usize;
        for a in 0..good.len() / page {
            for b in 0..a {
                let mut bad = good.clone();
                let (left, right) = bad.split_at_mut(a * page);
                left[b * page..][..page].swap_with_slice(&mut right[..page]);
                if bad != good {
                    let seen = victim.judge(&bad, &|| format!("{kind}: pages {a} and {b} swapped"));
                    assert_ne!(seen, Seen::Unnoticed, "{kind}: pages {a} and {b} swapped");
                }
                bad.copy_from_slice(&good);
                bad.copy_within(b * page..(b + 1) * page, a * page);
                if bad != good {
                    let seen = victim.judge(&bad, &|| format!("{kind}: page {b} over {a}"));
                    assert_ne!(seen, Seen::Unnoticed, "{kind}: page {b} over {a}");
                }
            }
        }
    }
}

#[test]
fn damage_to_every_byte_of_current_is_refused() {
    let (_env, disk, _set) = disk_with(21, 3);
    let victim = Victim::new(&disk, CURRENT);
    let good = victim.bytes();
    for at in 0..good.len() {
        for to in (0..=255).filter(|to| *to != good[at]) {
            let mut bad = good.clone();
            bad[at] = to;
            assert_eq!(victim.judge(&bad, &|| format!("byte {at} to {to}")), Seen::Refused);
        }
    }
    for length in 0..good.len() {
        assert_eq!(victim.judge(&good[..length], &|| format!("cut to {length}")), Seen::Refused);
    }
    let mut long = good.clone();
    long.push(0);
    assert_eq!(victim.judge(&long, &|| "one byte more".into()), Seen::Refused);
    let e = read(&victim.disk).unwrap_err().to_string();
    assert!(e.contains("000001.manifest"), "the error must name the manifests: {e}");
}

#[test]
fn lost_and_swapped_files_are_detected() {
    // `CURRENT` is lost while tables or a used manifest exist.
    let (env, disk, set) = disk_with(31, 4);
    let name = files::manifest(set.manifest().unwrap().0);
    disk.remove_file(format!("{DB}/{CURRENT}")).unwrap();
    let e = presence(&*dir_of(&env)).unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains(&name), "{e}");
    assert!(try_create(&env).unwrap_err().is_corruption());

    let (env, disk, _set) = disk_with(32, 0);
    disk.remove_file(format!("{DB}/{CURRENT}")).unwrap();
    assert_eq!(presence(&*dir_of(&env)).unwrap(), Presence::Absent, "an unfinished creation");
    disk.write_file(format!("{DB}/000004.klog"), b"x").unwrap();
    assert!(presence(&*dir_of(&env)).unwrap_err().is_corruption());

    // The manifest is lost, belongs to another database, is older, or has another number.
    let (env, disk, set) = disk_with(33, 4);
    let path = format!("{DB}/{}", files::manifest(set.manifest().unwrap().0));
    let good = disk.read_file(&path).unwrap();
    drop(set);
    disk.remove_file(&path).unwrap();
    let e = try_open(&env).unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains("missing"), "{e}");
    let (_, other, _set) = disk_with(34, 4);
    disk.write_file(&path, &other.read_file(&path).unwrap()).unwrap();
    assert!(try_open(&env).unwrap_err().is_corruption());
    disk.write_file(&path, &good).unwrap();
    drop(recover(&env)); // now number 2 is in force
    disk.write_file(format!("{DB}/000002.manifest"), &good).unwrap();
    assert!(try_open(&env).unwrap_err().is_corruption());
}

#[test]
fn other_formats_are_refused_and_left_alone() {
    use crate::codec::bound_crc;
    for (format, is_newer) in [(MANIFEST_FORMAT + 1, true), (MANIFEST_FORMAT - 1, false)] {
        let (env, disk, set) = disk_with(41, 2);
        let path = format!("{DB}/{}", files::manifest(set.manifest().unwrap().0));
        drop(set);
        let mut bytes = disk.read_file(&path).unwrap();
        bytes[8] = format as u8;
        let salt = bytes[16..32].try_into().unwrap();
        let crc = bound_crc(&salt, 0, &[&bytes[..92]]);
        bytes[92..96].copy_from_slice(&crc.to_le_bytes());
        disk.write_file(&path, &bytes).unwrap();
        let dir = dir_of(&env);
        let ops = disk.op_count();
        match Set::open(context(&env, &dir), false).unwrap_err() {
            Error::FormatTooNew { found, supported: MANIFEST_FORMAT, .. } => {
                assert!(is_newer && found == format)
            }
            Error::FormatTooOld { found, supported: MANIFEST_FORMAT, .. } => {
                assert!(!is_newer && found == format)
            }
            e => panic!("{e}"),
        }
        let changes =
            disk.ops().into_iter().filter(|op| op.index >= ops && sim::OpSet::CHANGES.has(op.kind)).count();
        assert_eq!((changes, disk.read_file(&path).unwrap()), (0, bytes));
    }
}

/// Files that no single fault produces, but a device that loses many writes, or a bug, might.
#[test]
fn old_marks_stale_records_and_forged_chains_are_refused() {
    use crate::version::format::{Header, RECORDS_AT, encode_record};
    let (_env, disk, set) = disk_with(61, 3);
    let name = files::manifest(set.manifest().unwrap().0);
    let before = disk.read_file(format!("{DB}/{name}")).unwrap();
    let mut ends = vec![set.manifest().unwrap().1 as usize];
    for n in 3..8 {
        install(&set, step(&set, n)).unwrap();
        ends.push(set.manifest().unwrap().1 as usize);
    }
    let victim = Victim::new(&disk, &name);
    let good = victim.bytes();
    let (marks, page) = (PAGE as usize..RECORDS_AT as usize, PAGE as usize);

    // All marks are older than the last records.
    let mut old = good.clone();
    old[marks.clone()].copy_from_slice(&before[marks]);
    assert_eq!(victim.judge(&old, &|| "old marks".into()), Seen::Refused);
    old[ends[0]] ^= 1; // and the first of them is damaged
    assert_eq!(victim.judge(&old, &|| "old marks, torn record".into()), Seen::Refused);
    old[ends[0]..ends[1]].fill(0);
    assert_eq!(victim.judge(&old, &|| "old marks, lost record".into()), Seen::Refused);

    // A record with valid checksums that does not follow its predecessor.
    let header = Header::decode(&good[..page], &name).unwrap();
    let payload_len = u32::from_le_bytes(good[ends[0] + 4..ends[0] + 8].try_into().unwrap()) as usize;
    let payload = &good[ends[0] + 20..ends[0] + 20 + payload_len];
    let number = u64::from_le_bytes(good[ends[0] + 8..ends[0] + 16].try_into().unwrap());
    for (number, prev_of) in [(number, 1), (number + 2, 0)] {
        let prev = u32::from_le_bytes(good[ends[0] + 16..ends[0] + 20].try_into().unwrap()) ^ prev_of;
        let (record, _) = encode_record(&header.salt, ends[0] as u64, number, prev, payload).unwrap();
        let mut forged = good.clone();
        forged[ends[0]..ends[1]].copy_from_slice(&record);
        assert_eq!(victim.judge(&forged, &|| format!("forged record {number}")), Seen::Refused);
    }

    // Each manifest has its own salt, so pages of an older one are not accepted.
    let (env, disk, set) = disk_with(62, 3);
    let older = disk.read_file(format!("{DB}/{}", files::manifest(1))).unwrap();
    drop(set);
    let (set, _) = recover(&env);
    let victim = Victim::new(&disk, &files::manifest(set.manifest().unwrap().0));
    let newer = victim.bytes();
    assert_ne!(older[16..32], newer[16..32], "the salt was used before");
    for at in (0..newer.len().min(older.len())).step_by(page) {
        let mut mixed = newer.clone();
        mixed[at..at + page].copy_from_slice(&older[at..at + page]);
        if mixed != newer {
            assert_ne!(victim.judge(&mixed, &|| format!("old page at {at}")), Seen::Unnoticed);
        }
    }
}
