//! Times inserts, gets and scans of both maps: `cargo run --profile dist -p tidesdb-memtable --example
//! insert_bench`.
//!
//! Keys are 16 bytes (random hex or zero-padded decimals), values 100 bytes. Times are wall time divided by the
//! operations of all threads. `cpu` is processor time, which other processes disturb less. An argument sets the
//! entries per run instead of 448,000.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock and starts threads itself")]

use std::sync::{Arc, Barrier};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use tidesdb_memtable::{KeyOrder, Memtable, Version};

const VALUE: [u8; 100] = [7; 100];

fn random_keys(thread: usize, count: usize) -> Vec<[u8; 16]> {
    let mut state = 88_172_645_463_325_252 ^ ((thread as u64 + 1) << 32);
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        format!("{state:016x}").into_bytes().try_into().expect("16 digits")
    };
    (0..count).map(next).collect()
}

fn decimal_keys(thread: usize, count: usize) -> Vec<[u8; 16]> {
    let key = |i| format!("{:016}", thread * 1_250_000 + i).into_bytes().try_into().expect("16 digits");
    (0..count).map(key).collect()
}

/// Processor time of this process in nanoseconds.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Returns wall and processor nanoseconds per insert, and the filled memtable.
fn fill(order: KeyOrder, keys: &[Vec<[u8; 16]>]) -> (f64, f64, Arc<Memtable>) {
    let memtable = Memtable::new(order, 64 << 20, 1);
    let start = Barrier::new(keys.len() + 1);
    let total: usize = keys.iter().map(Vec::len).sum();
    let (wall, cpu) = std::thread::scope(|scope| {
        let (memtable, start) = (&memtable, &start);
        let threads: Vec<_> = keys
            .iter()
            .map(|keys| {
                scope.spawn(move || {
                    start.wait();
                    for (seq, key) in keys.iter().enumerate() {
                        let version = Version { seq: seq as u64, kind: 0, expiry: 0 };
                        memtable.insert(key, version, &VALUE).expect("memory");
                    }
                })
            })
            .collect();
        let (begin, cpu) = (Instant::now(), cpu_ns());
        start.wait();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        (begin.elapsed().as_nanos() as f64, cpu_ns() - cpu)
    });
    (wall / total as f64, cpu / total as f64, memtable)
}

/// Returns processor nanoseconds per get.
fn get_ns(memtable: &Memtable, keys: &[[u8; 16]]) -> f64 {
    let begin = cpu_ns();
    let mut bytes = 0;
    for i in 0..keys.len() {
        let key = &keys[i * 7919 % keys.len()];
        bytes += memtable.get(key, u64::MAX).expect("inserted").value.len();
    }
    assert_eq!(bytes, keys.len() * VALUE.len());
    (cpu_ns() - begin) / keys.len() as f64
}

/// Returns processor nanoseconds per entry forwards and backwards; checks the order.
fn walk_ns(memtable: &Arc<Memtable>, total: usize) -> (f64, f64) {
    let mut cursor = memtable.cursor();
    let begin = cpu_ns();
    let (mut count, mut bytes) = (0, 0);
    cursor.seek_to_first();
    while cursor.valid() {
        let entry = cursor.entry();
        bytes += usize::from(entry.key[15]) + entry.value.len();
        count += 1;
        cursor.next();
    }
    let forwards = (cpu_ns() - begin) / total as f64;
    assert_eq!(count, total);
    let begin = cpu_ns();
    cursor.seek_to_last();
    while cursor.valid() {
        let entry = cursor.entry();
        bytes -= usize::from(entry.key[15]) + entry.value.len();
        cursor.prev();
    }
    assert_eq!(bytes, 0);
    (forwards, (cpu_ns() - begin) / total as f64)
}

fn main() {
    let total = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(448_000);
    println!("{total} entries; ns per operation");
    for order in [KeyOrder::Bytewise, KeyOrder::Custom(Arc::new(<[u8]>::cmp))] {
        for (name, make) in
            [("random hex", random_keys as fn(usize, usize) -> Vec<[u8; 16]>), ("decimals", decimal_keys)]
        {
            for threads in [1, 2, 8] {
                let keys: Vec<_> = (0..threads).map(|thread| make(thread, total / threads)).collect();
                let (insert, cpu, memtable) = fill(order.clone(), &keys);
                let get = get_ns(&memtable, &keys[0]);
                let (forwards, backwards) = walk_ns(&memtable, total / threads * threads);
                let mib = memtable.allocated_bytes() >> 20;
                println!(
                    "{order:?} {name} threads={threads}: insert {insert:.0} cpu {cpu:.0} get {get:.0} walk {forwards:.1} \
                     back {backwards:.1}, {mib} MiB"
                );
            }
        }
    }
}
