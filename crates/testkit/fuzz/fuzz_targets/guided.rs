//! Runs one of the fuzz targets of `testkit`, guided by coverage. `cargo xtask fuzz-guided` builds and starts it.
//!
//! `TIDESDB_FUZZ_TARGET` names the target. A target seals its input itself: whatever bytes libFuzzer chooses, the checksums of the file that is
//! made of them are valid. Half of the changes are those of `mutate`, which knows numbers at bounds and lengths; the others are libFuzzer's.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use testkit::fuzz::mutate;
use testkit::fuzz::targets::{TARGETS, Target};
use testkit::rng::Rng;

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("TIDESDB_FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.into_iter().find(|target| target.name == name);
        found.unwrap_or_else(|| panic!("TIDESDB_FUZZ_TARGET names no target: {name:?}"))
    })
}

fuzz_target!(|data: &[u8]| (target().run)(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed.is_multiple_of(2) {
        return fuzzer_mutate(data, size, max_size);
    }
    let changed = mutate::input(&[data[..size].to_vec()], &mut Rng::new(u64::from(seed)));
    let len = changed.len().min(max_size);
    data[..len].copy_from_slice(&changed[..len]);
    len
});
