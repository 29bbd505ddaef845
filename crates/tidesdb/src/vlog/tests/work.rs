//! The work of a scan is linear in the value log, whatever its bytes are.

use tidesdb_io::{Entropy, SeededEntropy};

use super::*;
use crate::vlog::format::{FILE_HEADER_BYTES, FileHeader, MARK, RECORD_HEADER_BYTES, VlogRecordHeader};

const SALT: [u8; 16] = [3; 16];

/// Bytes from the first record on, all of them chosen.
type Choose = fn(&mut [u8], &dyn Entropy);

/// Writes the header of a record of `len` bytes at `at`. It is valid, its payload is not.
fn claim(file: &mut [u8], at: usize, len: usize) {
    let mut header = VlogRecordHeader::new(&[], len as u32, Compression::None);
    (header.disk_len, header.payload_crc) = (len as u32, 1);
    header.bind(&SALT, at as u64);
    file[at..at + RECORD_HEADER_BYTES].copy_from_slice(&header.encode());
}

/// Writes headers from `from` on, each of a record as long as `len` says about the bytes behind it.
fn claims(file: &mut [u8], len: impl Fn(usize) -> usize) {
    let last = file.len() - RECORD_HEADER_BYTES;
    for at in (FILE_HEADER_BYTES..=last).step_by(RECORD_HEADER_BYTES) {
        claim(file, at, len(last - at));
    }
}

fn random(file: &mut [u8], entropy: &dyn Entropy) {
    for word in file[FILE_HEADER_BYTES..].chunks_mut(8) {
        word.copy_from_slice(&entropy.next_u64().to_le_bytes()[..word.len()]);
    }
}

/// What looks like a header at every other byte, but for its checksum.
fn marks(file: &mut [u8], _: &dyn Entropy) {
    for pair in file[FILE_HEADER_BYTES..].chunks_exact_mut(2) {
        pair.copy_from_slice(&[Compression::None as u8, MARK]);
    }
}

const KINDS: [(&str, Choose); 7] = [
    ("random bytes", random),
    ("headers without a checksum", marks),
    ("records to the end", |file, _| claims(file, |rest| rest)),
    ("records of any length", |file, entropy| {
        claims(file, |rest| (entropy.next_u64() % (rest as u64 + 1)) as usize);
    }),
    ("records beyond a window", |file, _| claims(file, |rest| rest.min(300 << 10))),
    ("empty records", |file, _| claims(file, |_| 0)),
    ("records longer than the file", |file, _| claims(file, |rest| rest + 1)),
];

/// Returns the bytes that a scan reads and checksums for each byte of a value log.
fn work_of(bytes: usize, choose: Choose) -> f64 {
    let (env, disk) = world();
    let mut file = FileHeader { family: FAMILY, vlog: VlogId(1), salt: SALT }.encode().to_vec();
    file.resize(bytes, 0);
    choose(&mut file, &SeededEntropy::new(7));
    write_file(&env, "000001.vlog", &file);
    let vlogs = set(&env, 9, 4096);
    disk.work(|| _ = vlogs.scan(VlogId(1), |_| {}).unwrap()) as f64 / bytes as f64
}

#[test]
fn a_scan_does_linear_work_whatever_the_bytes_are() {
    for (name, choose) in KINDS {
        let (small, large) = (work_of(256 << 10, choose), work_of(4 << 20, choose));
        println!("{name}: {small:.1} and {large:.1} bytes for each byte of a value log of 256 KiB and 4 MiB");
        assert!(large <= 50.0, "{name}: {large:.1} bytes for each byte of the value log");
        assert!(
            large <= small * 1.2 + 1.0,
            "{name}: {large:.1} bytes for each byte, in a short log {small:.1}"
        );
    }
}
