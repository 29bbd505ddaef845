//! Values are overwritten while collections move them and remove their files, and everything that reads values reads them meanwhile:
//! gets, iterators, snapshots, streams, readers beside the writer, copies, and what a power failure leaves.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Db, Family, FamilyOptions, OpenOptions, SyncMode};
use tidesdb_io::sim::Image;

use crate::common::{Random, Sim, Stop, contents, noise, small};

const KEYS: u32 = 150;
/// Power failures, and puts for each.
const FAILURES: u32 = 30;
const PUTS: u32 = 400;
/// Bytes of a value that is stored in chunks.
const LONG: usize = 5 << 19;

fn tiny() -> FamilyOptions {
    small().write_buffer_bytes(64 << 10).vlog_file_bytes(16 << 10).table_bytes(4 << 10)
}

fn options(sim: &Sim) -> OpenOptions {
    sim.options().sync(SyncMode::None).default_family(tiny())
}

/// The key that put `n` writes.
fn key(n: u32) -> [u8; 4] {
    (n.wrapping_mul(2_654_435_761) / 7 % KEYS).to_be_bytes()
}

fn value(n: u32) -> Vec<u8> {
    [&n.to_be_bytes()[..], &noise(u64::from(n), 600 + n as usize % 1500)].concat()
}

/// Returns the number of the put that wrote `bytes` to `of`.
fn number(of: &[u8], bytes: &[u8], what: &str) -> u32 {
    let n = u32::from_be_bytes(bytes[..4].try_into().unwrap());
    assert!(key(n) == *of && value(n) == bytes, "{what}: a wrong value of key {of:?}");
    n
}

/// Checks that `family` has the state after some number of puts, and returns that.
fn puts(family: &Family, what: &str) -> u32 {
    let all: Vec<u32> = contents(family).iter().map(|(k, v)| number(k, v, what)).collect();
    let end = all.iter().max().map_or(0, |n| n + 1);
    let newest: BTreeMap<_, u32> = (0..end).map(|n| (key(n), n)).collect();
    assert!(all.iter().eq(newest.values()), "{what}: not the state after {end} puts");
    end
}

fn long(n: u32) -> Vec<u8> {
    n.to_be_bytes().repeat(LONG / 4)
}

/// Reads in one of many ways.
fn read(sim: &Sim, db: &Db, random: &mut Random, copies: u32) {
    let family = db.default_family();
    match random.below(6) {
        0 => drop(puts(family, "an iterator")),
        1 => {
            let snapshot = db.snapshot();
            let rows = || snapshot.iter(family).unwrap().map(|row| row.unwrap());
            let before: Vec<_> = rows().map(|(k, v)| (k.to_vec(), number(&k, &v, "a snapshot"))).collect();
            std::thread::sleep(Duration::from_millis(random.below(20)));
            assert!(rows().map(|(k, v)| (k.to_vec(), number(&k, &v, "a snapshot"))).eq(before));
        }
        2 => {
            let Some(mut reader) = db.family("streams").unwrap().value_reader("long").unwrap() else {
                return;
            };
            let mut bytes = vec![0; LONG];
            for part in bytes.chunks_mut(LONG / 3 + 1) {
                reader.read_exact(part).unwrap();
                std::thread::sleep(Duration::from_millis(random.below(10)));
            }
            let n = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            assert!(bytes == long(n), "a stream");
        }
        3 => {
            let reader = options(sim).open_reader().unwrap();
            let view = reader.view();
            let before = puts(view.default_family(), "a view");
            std::thread::sleep(Duration::from_millis(random.below(20)));
            assert_eq!(puts(view.default_family(), "a view, later"), before);
            assert!(puts(reader.refresh().unwrap().default_family(), "a new view") >= before);
        }
        4 => {
            let path = format!("/copy{copies}");
            db.checkpoint(&path).unwrap();
            let copy = sim.options_as_stored(&path).open().unwrap();
            puts(copy.default_family(), "a copy");
            assert!(copy.verify().unwrap().is_ok());
        }
        _ => {
            for _ in 0..50 {
                let of = random.below(u64::from(KEYS)) as u32;
                if let Some(value) = family.get(of.to_be_bytes()).unwrap() {
                    number(&of.to_be_bytes(), &value, "a get");
                }
            }
        }
    }
}

#[test]
fn everything_that_reads_values_finds_them_while_their_files_come_and_go() {
    let sim = Sim::new();
    let db = options(&sim).background_threads(3).open().unwrap();
    let streams = db.create_family("streams", tiny()).unwrap();
    let (done, wanted, written) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|s| {
        let (sim, db, streams, done, wanted, written) = (&sim, &db, &streams, &done, &wanted, &written);
        let _stop = Stop(done);
        s.spawn(move || {
            for n in 0.. {
                while n >= wanted.load(SeqCst) && !done.load(SeqCst) {
                    std::thread::yield_now();
                }
                if done.load(SeqCst) {
                    return;
                }
                db.put(key(n), value(n)).unwrap();
                written.store(n + 1, SeqCst);
                if n % 100 == 0 {
                    streams.put_stream("long", &mut &*long(n)).unwrap();
                }
            }
        });
        for reader in 0..2 {
            s.spawn(move || {
                let mut random = Random::new(u64::from(reader));
                for copy in 0.. {
                    if done.load(SeqCst) {
                        return;
                    }
                    read(sim, db, &mut random, copy * 2 + reader);
                }
            });
        }
        for seed in 0..u64::from(FAILURES) {
            wanted.fetch_add(PUTS, SeqCst);
            std::thread::sleep(Duration::from_millis(seed % 9));
            let image = Image::STANDARD[seed as usize % 10];
            let after = sim.power_lost(&image, seed);
            let what = format!("seed {seed}, {image:?}");
            let db = options(&after).open().unwrap_or_else(|e| panic!("{what}: {e}"));
            puts(db.default_family(), &what);
            assert!(db.verify().unwrap().is_ok(), "{what}");
        }
        while written.load(SeqCst) < wanted.load(SeqCst) {
            std::thread::yield_now();
        }
    });
    assert_eq!(puts(db.default_family(), "at the end"), FAILURES * PUTS);
    let stats = db.default_family().stats();
    assert!(stats.value_files_removed > 20 && stats.value_bytes_moved > 0, "{stats}");
}
