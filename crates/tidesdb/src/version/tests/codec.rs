//! Encoding of edits, headers and marks.

use super::*;
use crate::codec::Compression;
use crate::types::{Comparator, WalId};
use crate::version::format::{Header, Mark, PAGE, encode_record};

fn every_change() -> Vec<Change> {
    let family = FamilyId(300);
    let options = FamilyOptions {
        comparator: Comparator::custom("mine", |a, b| b.cmp(a)),
        write_buffer_bytes: 1 << 31,
        value_threshold: 7,
        compression: Compression::Zstd,
        filter_bits_per_key: 12,
        table_bytes: 1 << 40,
        l1_tables_trigger: 9,
        vlog_file_bytes: 3,
        ..FamilyOptions::default()
    };
    vec![
        Change::NextIds { table: TableId(9000), vlog: VlogId(77), family: FamilyId(301) },
        Change::CreateFamily { family, name: "../a/\u{0}b".into(), options: options.clone() },
        Change::AddVlog { family, vlog: VlogId(5), salt: [9; 16] },
        Change::SealVlog { family, vlog: VlogId(5), bytes: 1 << 50, sealed_at: 1 << 46 },
        add(300, 1, &meta(8000, ("a", "zz"), (3, 4), &[(5, 100, 2)])),
        Change::RenameFamily { family, name: "n\u{e9}".into() },
        Change::SetOptions { family, options: FamilyOptions { value_threshold: 1, ..options } },
        Change::FlushedTo { family, seq: 1 << 46 },
        remove(300, 1, 8000),
        Change::RemoveVlog { family, vlog: VlogId(5) },
        Change::DropFamily { family },
        Change::LogStart { wal: WalId(crate::types::WAL_ID_MAX) },
        Change::LastSeq { seq: 99 },
        Change::DurableMark { seq: 98 },
        Change::ClockMark { wall_secs: 1_700_000_000 },
        Change::Unknown { tag: IGNORABLE | 0x33, body: b"future".as_slice().into() },
        Change::CleanShutdown,
    ]
}

fn encoded(changes: &[Change]) -> Vec<u8> {
    let mut out = Vec::new();
    edit(changes.iter().cloned()).encode(&mut out);
    out
}

#[test]
fn every_change_round_trips() {
    let changes = every_change();
    let bytes = encoded(&changes);
    let back = VersionEdit::decode(&bytes, "m", 0).unwrap();
    assert_eq!(format!("{:?}", back.changes), format!("{changes:?}"));
    assert_eq!(encoded(&back.changes), bytes);
    let mut state = State::default();
    state.apply(&back).unwrap();
    assert!(state.clean && state.families.is_empty());
    assert_eq!(
        (state.next_table, state.log_start, state.last_seq),
        (TableId(9000), WalId(crate::types::WAL_ID_MAX), 99)
    );
}

#[test]
fn golden_edit() {
    let bytes = encoded(&[
        create_family(1, "default"),
        Change::AddVlog { family: FamilyId(1), vlog: VlogId(2), salt: [0xaa; 16] },
        remove(1, 2, 300),
        Change::LogStart { wal: WalId(7) },
        Change::ClockMark { wall_secs: 128 },
        Change::CleanShutdown,
    ]);
    let mut want = vec![1, 0, 1, 7];
    want.extend_from_slice(b"default");
    want.extend_from_slice(&[3, 8]); // name of the order, required
    want.extend_from_slice(b"bytewise");
    want.extend_from_slice(&[4, 4, 0x80, 0x80, 0x80, 0x20]); // write buffer 64 MiB
    want.extend_from_slice(&[6, 2, 0x80, 0x04]); // value threshold 512
    want.extend_from_slice(&[8, 1, 2]); // LZ4
    want.extend_from_slice(&[10, 1, 10]); // filter bits
    want.extend_from_slice(&[12, 4, 0x80, 0x80, 0x80, 0x40]); // table bytes 128 MiB
    want.extend_from_slice(&[14, 1, 4]); // L1 trigger
    want.extend_from_slice(&[18, 5, 0x80, 0x80, 0x80, 0x80, 0x01]); // value log bytes 256 MiB
    want.extend_from_slice(&[20, 1, 6]); // level size ratio
    want.extend_from_slice(&[22, 1, 1]); // least number of levels
    want.extend_from_slice(&[24, 1, 1]); // offset of the tiered level
    want.extend_from_slice(&[26, 2, 0xf4, 0x03]); // tombstones: 500 in a thousand
    want.extend_from_slice(&[28, 2, 0x80, 0x08]); // of at least 1024 entries
    want.extend_from_slice(&[30, 1, 25]); // garbage: 25 in a hundred
    want.extend_from_slice(&[34, 1, 0]); // no default TTL
    want.extend_from_slice(&[36, 1, 24]); // runs of the tiered level
    want[1] = (want.len() - 2) as u8;
    want.extend_from_slice(&[7, 18, 1, 2]);
    want.extend_from_slice(&[0xaa; 16]);
    want.extend_from_slice(&[6, 4, 1, 2, 0xac, 0x02]);
    want.extend_from_slice(&[11, 1, 7]);
    want.extend_from_slice(&[0x81, 2, 0x80, 0x01]);
    want.extend_from_slice(&[15, 0]);
    assert_eq!(bytes, want);
}

#[test]
fn golden_pages() {
    let salt = *b"0123456789abcdef";
    let identity = Identity { uuid: *b"ABCDEFGHIJKLMNOP", wal_segment_bytes: 64 << 20 };
    let header = Header { salt, identity, number: 3 };
    let page = header.encode();
    assert_eq!(page.len() as u64, PAGE);
    assert_eq!(&page[..16], b"TDBMANI\n\x02\0\0\0\x01\0\0\0");
    assert_eq!(&page[16..64], b"0123456789abcdefABCDEFGHIJKLMNOP\0\0\0\x04\0\0\0\0\x03\0\0\0\0\0\0\0");
    assert_eq!(Header::decode(&page, "m").unwrap(), header);
    let mark = Mark { number: 2, end: 0x5014, file_bytes: 0x20000, chain: 0xdead_beef };
    let page = mark.encode(&salt, M2);
    assert_eq!(
        &page[..36],
        b"TDBMARK\n\x02\0\0\0\0\0\0\0\x14\x50\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\xef\xbe\xad\xde"
    );
    assert_eq!(Mark::decode(&page, &salt, M2), Some(mark));
    assert_eq!(Mark::decode(&page, &salt, 2 * PAGE), None, "a mark is valid only at its own offset");
    let (record, crc) = encode_record(&salt, 12288, 1, 5, b"xyz").unwrap();
    assert_eq!(record.len() as u64, PAGE);
    assert_eq!(record[..4], crc.to_le_bytes());
    assert_eq!(&record[4..24], b"\x03\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0xyz\0");
    // These checksums are those of the format of the first release.
    let sums =
        [header.encode()[92..96].to_vec(), mark.encode(&salt, M2)[60..64].to_vec(), record[..4].to_vec()];
    let sums: Vec<u32> = sums.iter().map(|b| u32::from_le_bytes(b.as_slice().try_into().unwrap())).collect();
    assert_eq!(sums, GOLDEN_SUMS);
}

/// Offset of the mark of an even record.
const M2: u64 = PAGE;
/// Checksums of a header, a mark and a record.
const GOLDEN_SUMS: [u32; 3] = [718_023_911, 606_671_547, 340_965_601];

#[test]
fn unknown_changes() {
    let mut bytes = encoded(&[Change::LastSeq { seq: 1 }]);
    bytes.extend_from_slice(&[0x7f, 2, 1, 1]);
    let e = VersionEdit::decode(&bytes, "m", 0).unwrap_err();
    assert!(matches!(e, Error::FormatTooNew { found: 3, supported: 2, .. }), "{e}");
    let e = VersionEdit::decode(&[0, 0], "m", 0).unwrap_err();
    assert!(e.is_corruption(), "{e}");

    // One that may be ignored outlives the manifest it came in; the newest body counts.
    let (env, _disk, set) = disk_with(1, 2);
    let tag = IGNORABLE | 0x40;
    for body in [b"old".as_slice(), b"new"] {
        install(&set, [Change::Unknown { tag, body: body.into() }]).unwrap();
    }
    drop(set);
    drop(open(&env));
    let (set, _) = open(&env);
    assert_eq!(&*set.state().unknown[&tag], b"new");
}

#[test]
fn a_change_with_leftover_bytes_is_corrupt() {
    let known = |c: &Change| !matches!(c, Change::Unknown { .. });
    for change in every_change().into_iter().filter(known) {
        let mut bytes = encoded(std::slice::from_ref(&change));
        assert!(bytes[1] < 0x7f, "the length of this test's changes is one byte");
        bytes[1] += 1;
        bytes.push(0);
        let e = VersionEdit::decode(&bytes, "m", 0).unwrap_err();
        assert!(e.is_corruption(), "{change:?}: {e}");
    }
}

/// A newer version may append fields after those this version knows: optional ones are skipped, required ones are
/// refused.
#[test]
fn bodies_may_have_additional_fields() {
    let known = |c: &Change| !matches!(c, Change::Unknown { .. });
    for change in every_change().into_iter().filter(known) {
        let mut bytes = encoded(std::slice::from_ref(&change));
        let at = bytes.len();
        bytes[1] += 4;
        bytes.extend_from_slice(&[0xc8, 0x01, 1, 7]); // field 100
        let edit = VersionEdit::decode(&bytes, "m", 0).unwrap();
        assert_eq!(edit.changes.len(), 1);
        bytes[at] |= 1;
        let e = VersionEdit::decode(&bytes, "m", 0).unwrap_err();
        assert!(matches!(e, Error::FormatTooNew { .. }), "{change:?}: {e}");
    }
}

/// An older version opens the database, changes an option and writes a new manifest: the newer option survives.
#[test]
fn options_of_a_newer_version_survive_an_older_one() {
    let mut create = encoded(&[create_family(1, "f")]);
    create[1] += 4;
    create.extend_from_slice(&[0xc8, 0x01, 1, 7]);
    let mut state = State::default();
    state.apply(&VersionEdit::decode(&create, "m", 0).unwrap()).unwrap();
    let options = FamilyOptions { value_threshold: 9, ..FamilyOptions::default() };
    state.apply(&edit([Change::SetOptions { family: FamilyId(1), options }])).unwrap();
    let snapshot = encoded(&state.snapshot().changes);
    assert!(snapshot.windows(4).any(|bytes| bytes == [0xc8, 0x01, 1, 7]));
}

#[test]
fn damaged_edits_do_not_panic() {
    let bytes = encoded(&every_change());
    for end in 0..bytes.len() {
        if let Ok(edit) = VersionEdit::decode(&bytes[..end], "m", 0) {
            assert_eq!(
                encoded(&edit.changes),
                bytes[..end],
                "a truncated edit must consist of complete changes"
            );
        }
    }
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(1)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            if let Ok(edit) = VersionEdit::decode(&bad, "m", 0) {
                let again = VersionEdit::decode(&encoded(&edit.changes), "m", 0).unwrap();
                assert_eq!(format!("{again:?}"), format!("{edit:?}"), "decoding and encoding must agree");
                let _ = State::default().apply(&edit);
            }
        }
    }
    // Lengths that exceed the bytes that follow.
    for hostile in [vec![5, 0xff, 0xff, 0xff, 0xff, 0x0f], vec![1, 0xff], vec![0xff; 40], vec![2, 0x80, 0]] {
        assert!(VersionEdit::decode(&hostile, "m", 0).unwrap_err().is_corruption());
    }
}
