//! Unit tests of the arena: pieces do not overlap, all are counted, limits hold.

use std::collections::BTreeMap;

use super::*;

/// Allocates in several threads and checks that the pieces are disjoint and writable.
fn allocate(arena: &Arena, threads: usize, sizes: &[(usize, usize)]) -> u64 {
    let pieces: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|t| {
                scope.spawn(move || {
                    let take = |&(size, align): &(usize, usize)| {
                        let at = arena.alloc_entry(size, align).expect("memory");
                        assert_eq!(at.addr().get() % align, 0);
                        // SAFETY: `size` fresh bytes.
                        unsafe { at.write_bytes(t as u8, size) };
                        (at.addr().get(), size)
                    };
                    sizes.iter().map(take).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("worker")).collect()
    });
    let count = pieces.len() as u64;
    let sorted: BTreeMap<usize, usize> = pieces.into_iter().collect();
    assert_eq!(sorted.len() as u64, count, "no address twice");
    let ends = sorted.iter().map(|(at, size)| at + size);
    assert!(ends.zip(sorted.keys().skip(1)).all(|(end, next)| end <= *next), "no overlap");
    assert!(sorted.values().sum::<usize>() <= arena.allocated_bytes());
    count
}

/// With addresses of 32 bits the offset of a retired chunk wrapped around: a thread that was late got the header of the chunk, and
/// wrote over it.
#[test]
fn a_retired_chunk_has_no_room_wherever_it_is() {
    for base in [1 << 12, 1 << 31, (usize::MAX >> 1) & !0xFFF, 0xF000_0000] {
        let chunk = Chunk { state: AtomicU64::new(size_of::<Chunk>() as u64), size: 4096 };
        assert!(chunk.bump(base, 100, 8, 1).is_some());
        assert_eq!(chunk.close(), 1);
        for (size, align) in [(1, 1), (100, 8), (64, 64), (0, 64)] {
            assert_eq!(chunk.bump(base, size, align, 1), None, "{size} bytes at {base:x}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn pieces_are_disjoint_and_counted() {
    let mixed: Vec<_> = (0..3000)
        .map(|i| (32 + i * 37 % 400, 8))
        .chain([(1024, 64), (5000, 8), (70_000, 8), (9, 8)])
        .collect();
    for (hint, threads) in [(0, 1), (1 << 20, 8), (64 << 20, 3)] {
        let arena = Arena::new(hint);
        assert_eq!((arena.entries(), arena.allocated_bytes()), (0, 0));
        let mut count = allocate(&arena, threads, &mixed);
        assert_eq!(arena.entries(), count);
        count += allocate(&arena, threads, &mixed);
        assert_eq!(arena.entries(), count);
    }
}

#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn a_large_arena_grows_into_mappings() {
    let arena = Arena::new(64 << 20);
    let count = allocate(&arena, 2, &[(1 << 20, 8); 12]) + allocate(&arena, 2, &[(120, 8); 100_000]);
    assert_eq!(arena.entries(), count);
    assert!(arena.allocated_bytes() < 60 << 20);
}

/// A program with many memtables would otherwise keep much of their memory in its heap after they are dropped.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_small_arena_takes_little_from_the_heap() {
    let arena = Arena::new(16 << 20);
    allocate(&arena, 1, &[(300, 8); 1000]);
    let bytes = arena.blocks.lock().heap_bytes();
    assert!((1..=32 << 10).contains(&bytes), "{bytes} bytes are from the heap");
}

/// Consecutive arenas reuse mappings; arenas that live at the same time never share one.
#[test]
fn dropped_mappings_are_used_again_but_not_twice() {
    for _ in 0..3 {
        let arenas = [Arena::new(64 << 20), Arena::new(64 << 20)];
        let mut pieces = Vec::new();
        for i in 0..2 * 40 * 16 {
            let at = arenas[i % 2].alloc(64 << 10, 8).expect("memory").cast::<u64>();
            // SAFETY: 64 KiB of fresh bytes, aligned to 8.
            unsafe { at.write(i as u64) };
            pieces.push(at);
        }
        for (i, at) in pieces.iter().enumerate() {
            // SAFETY: written above, and the arena is alive.
            assert_eq!(unsafe { at.read() }, i as u64);
        }
    }
}

#[test]
fn a_small_arena_takes_a_page() {
    let arena = Arena::new(64 << 20);
    allocate(&arena, 1, &[(100, 8); 20]);
    assert!(arena.allocated_bytes() <= 4096);
}

#[test]
fn the_limit_holds_and_small_pieces_still_fit() {
    let arena = Arena::with_limit(1 << 20, 64 << 10);
    assert!(arena.alloc(100_000, 8).is_none());
    let mut taken = 0;
    while arena.alloc_entry(500, 8).is_some() {
        taken += 1;
    }
    assert!(arena.allocated_bytes() <= 64 << 10);
    assert!(taken * 500 > 40 << 10, "{taken}");
    assert_eq!(arena.entries(), taken);
    arena.uncount();
    assert_eq!(arena.entries(), taken - 1);
}

#[test]
fn an_absurd_size_is_refused() {
    let arena = Arena::new(1 << 20);
    assert!(arena.alloc(usize::MAX / 2, 8).is_none());
    assert!(arena.alloc(16, 8).is_some());
}

/// What an arena charges is at least what it handed out, and goes with it.
#[test]
#[cfg_attr(miri, ignore = "counts over many operations; too slow under Miri")]
fn a_charged_arena_adds_its_memory_to_the_sum() {
    let sum = Arc::default();
    for hint in [0, 1 << 20, 64 << 20] {
        let arena = Arena::charged(hint, &[Arc::clone(&sum)]);
        assert_eq!(sum.load(Ordering::Relaxed), 0, "an empty arena takes no memory");
        allocate(&arena, 2, &[(300, 8); 20_000]);
        let (charged, handed_out) = (sum.load(Ordering::Relaxed), arena.allocated_bytes() as u64);
        assert!(charged >= handed_out && charged < handed_out + (3 << 20), "{charged} {handed_out}");
        drop(arena);
        assert_eq!(sum.load(Ordering::Relaxed), 0);
    }
}
