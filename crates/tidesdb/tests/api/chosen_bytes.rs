//! Values that look like records of the log: whatever users store, an open after a kill, and a reader beside the writer, take work that is
//! linear in the log.

use tidesdb::{OpenOptions, SyncMode};
use tidesdb_io::checksummed_bytes;
use tidesdb_io::sim::OpKind;

use crate::common::{DB, Sim};

const SEGMENT: u64 = 256 << 10;
/// Bytes of the header of a record.
const HEADER: u64 = 32;
/// Bytes of a value, of a record before its value, and of the whole record, with a key of one byte.
const VALUE: u64 = 504;
const BEFORE: u64 = HEADER + 6;
const RECORD: u64 = 544;

/// A value for the commit `seq`. Each place at a multiple of 32 in it looks like the header of a commit that reaches to the end of the
/// segment, if the file is used again for one of the next segments.
fn headers(seq: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE as usize];
    let first = seq * 8 + BEFORE;
    for at in (first.next_multiple_of(32)..=first + VALUE - HEADER).step_by(32) {
        let later = 1 + at / 32 % 16; // that many segments
        let skip = (at - first) as usize;
        let body = (SEGMENT - at % SEGMENT - HEADER) as u32;
        value[skip + 4..skip + 8].copy_from_slice(&body.to_le_bytes());
        value[skip + 8..skip + 16].copy_from_slice(&((at + later * SEGMENT) / 8).to_le_bytes());
        value[skip + 24..skip + 28].copy_from_slice(&(1u32 | 1 << 24).to_le_bytes());
    }
    value
}

/// Returns the bytes that are read and checksummed by `call`, for each byte of the log.
fn work(sim: &Sim, log_bytes: u64, call: impl FnOnce()) -> f64 {
    sim.disk.log_ops(true);
    let before = checksummed_bytes();
    call();
    let read: u64 = sim.disk.ops().iter().filter(|op| op.kind == OpKind::Read).map(|op| op.len).sum();
    sim.disk.log_ops(false);
    (checksummed_bytes() - before + read) as f64 / log_bytes as f64
}

fn options(sim: &Sim) -> OpenOptions {
    sim.options().sync(SyncMode::None).with(|o| o.wal_segment_bytes = SEGMENT)
}

/// Puts values until the log has used its files again, and dies. Returns the machine, the bytes of its log, and how many places in it look
/// like the header of a record that reaches to the end of its segment.
fn killed(value: impl Fn(u64) -> Vec<u8>) -> (Sim, u64, usize) {
    let sim = Sim::new();
    let db = options(&sim).open().unwrap();
    let mut seq = db.put(b"k", &value(0)).unwrap();
    for i in 0..50 * SEGMENT / RECORD {
        seq = db.put(&[i as u8 % 64], &value(seq + RECORD / 8)).unwrap();
    }
    db.abandon();
    let killed = sim.killed();
    let names = killed.disk.file_names(DB).unwrap();
    let (mut bytes, mut chosen) = (0, 0);
    for name in names.iter().filter(|name| name.ends_with(".wal")) {
        let file = killed.disk.read_file(format!("{DB}/{name}")).unwrap();
        let number = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let first = number(16) * SEGMENT; // of the segment
        let is_chosen = |at: &usize| {
            let reaches = number(*at) >> 32 == SEGMENT - *at as u64 - HEADER;
            reaches && number(at + 8) == (first + *at as u64) / 8
        };
        chosen += (4096..file.len() - 32).step_by(8).filter(is_chosen).count();
        bytes += file.len() as u64;
    }
    (killed, bytes, chosen)
}

#[test]
fn values_that_look_like_records_do_not_slow_an_open_down() {
    let look = |sim: &Sim, bytes| {
        let again = sim.killed();
        let opened = work(&again, bytes, || drop(options(&again).open().unwrap()));
        let read = work(sim, bytes, || drop(options(sim).open_reader().unwrap()));
        (opened, read)
    };
    let (honest, bytes, _) = killed(|seq| vec![seq as u8 | 1; VALUE as usize]);
    let honest = look(&honest, bytes);
    let (chosen, bytes, places) = killed(headers);
    assert!(places > 500, "{places} places look like records");
    let chosen = look(&chosen, bytes);
    println!(
        "an open and a reader: {honest:.1?} bytes for each byte of the log, {chosen:.1?} with chosen ones"
    );
    assert!(chosen.0 <= honest.0 + 60.0 && chosen.1 <= honest.1 + 60.0, "{chosen:.1?}, not {honest:.1?}");
}
