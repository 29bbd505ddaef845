//! What readers of many values ask the device for.

use tidesdb_io::sim::{OpKind, SimDisk};

use super::*;
use crate::vlog::ValueLoads;

const VALUES: u64 = 400;

/// A set of `VALUES` values of a thousand bytes, and pointers to them in an order that is not that of the file.
fn sample(env: &Env) -> (VlogSet, Vec<VlogPointer>) {
    let set = set(env, 1, 1 << 20);
    let appended: Vec<_> =
        (0..VALUES).map(|i| set.append(&noise(i, 1000), Compression::None).unwrap()).collect();
    set.sizes.set_live(appended.iter().map(VlogPointer::record_bytes).sum());
    let scattered = (0..VALUES).map(|i| appended[(i * 171 % VALUES) as usize]).collect();
    (set, scattered)
}

/// Returns offset and length of each request that the loads of `wanted`, eight at a time, cause.
fn asked(disk: &SimDisk, set: &VlogSet, wanted: &[VlogPointer], mut loads: ValueLoads) -> Vec<(u64, u64)> {
    disk.log_ops(true);
    for some in wanted.chunks(8) {
        loads.load(set, some);
    }
    let ops = disk.ops();
    disk.log_ops(false);
    ops.into_iter().filter(|op| op.kind == OpKind::Advise).map(|op| (op.offset, op.len)).collect()
}

#[test]
fn a_scan_asks_for_values_and_later_for_whole_blocks() {
    let (env, disk) = world();
    let (set, wanted) = sample(&env);
    let all = asked(&disk, &set, &wanted, ValueLoads::of_scan(&set, true));
    let (values, blocks): (Vec<_>, Vec<_>) = all.iter().partition(|(_, len)| *len < 64 << 10);
    let few = 150..=264; // four blocks hold 259 values, and neighbours are one request
    assert!(few.contains(&values.len()), "{}", values.len());
    let offsets: Vec<u64> = blocks.iter().map(|(at, _)| at >> 16).collect();
    let mut sorted = offsets.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..7).collect::<Vec<_>>(), "each block once");
    assert!(asked(&disk, &set, &wanted[..8], ValueLoads::of_scan(&set, true)).len() == 8);
}

#[test]
fn a_reader_of_whole_files_asks_for_blocks_from_the_start() {
    let (env, disk) = world();
    let (set, wanted) = sample(&env);
    assert_eq!(asked(&disk, &set, &wanted, ValueLoads::of_files(true)).len(), 7);
}

#[test]
fn what_the_page_cache_cannot_keep_is_loaded_value_by_value() {
    let (env, disk) = world();
    let (set, wanted) = sample(&env);
    for loads in [ValueLoads::of_scan(&set, false), ValueLoads::of_files(false)] {
        let all = asked(&disk, &set, &wanted, loads);
        assert!(all.len() > 300 && all.iter().all(|(_, len)| *len < 16 << 10));
    }
}

#[test]
fn absurd_pointers_are_not_loaded() {
    let (env, disk) = world();
    let (set, wanted) = sample(&env);
    let absurd = [
        VlogPointer { offset: u64::MAX - 5, ..wanted[0] },
        VlogPointer { offset: 1 << 50, ..wanted[0] },
        VlogPointer { vlog: VlogId(77), ..wanted[0] },
    ];
    assert!(asked(&disk, &set, &absurd, ValueLoads::of_files(true)).is_empty());
    assert!(asked(&disk, &set, &absurd, ValueLoads::of_files(false)).is_empty());
}
