//! Addresses, tickets and the published prefix, with one thread in most tests.

use super::*;
use crate::types::SEQ_MAX;
use crate::wal::{Refusal, Sequencer, Unpublished};

/// First sequence number of segment `n`.
fn begin(n: u64) -> SeqNo {
    (n * SEGMENT + SEGMENT_HEADER_BYTES) / UNIT
}

fn fresh() -> Sequencer {
    Sequencer::new(SEGMENT, 1)
}

/// Reserves so much that `rest` bytes of the segment remain.
fn leave(s: &Sequencer, rest: u64) -> Commit {
    let used = s.tail() * UNIT % SEGMENT;
    s.reserve(SEGMENT - used - rest, Purpose::Store).unwrap()
}

#[test]
fn addresses_are_dense_and_start_after_the_header() {
    let s = fresh();
    let (a, b) = (s.reserve(40, Purpose::Store).unwrap(), s.reserve(32, Purpose::Store).unwrap());
    assert_eq!((a.begin, a.seq, a.end), (begin(1), begin(1), begin(1) + 5));
    assert_eq!((b.seq, b.end), (a.end, a.end + 4));
    assert_eq!(s.tail(), b.end);
}

#[test]
fn a_record_may_fill_a_segment_to_its_last_byte() {
    let s = fresh();
    let a = s.reserve(SEGMENT - SEGMENT_HEADER_BYTES, Purpose::Store).unwrap();
    assert_eq!((a.begin, a.seq), (begin(1), begin(1)));
    // The end is where the next record can begin.
    assert_eq!((a.end, s.tail()), (begin(2), begin(2)));
    let b = s.reserve(40, Purpose::Store).unwrap();
    assert_eq!((b.begin, b.seq), (begin(2), begin(2)));
}

#[test]
fn a_rest_too_short_for_a_header_is_skipped_without_a_pad() {
    for rest in [8, 16, 24] {
        let s = fresh();
        assert_eq!(leave(&s, rest).end, begin(2), "rest of {rest}");
        let b = s.reserve(40, Purpose::Store).unwrap();
        assert_eq!((b.begin, b.seq), (begin(2), begin(2)));
    }
}

#[test]
fn a_rest_too_short_for_the_record_is_padded_exactly() {
    for rest in [32, 40, 1000] {
        let s = fresh();
        let a = leave(&s, rest);
        assert_eq!(a.end * UNIT, 2 * SEGMENT - rest);
        let b = s.reserve(rest + 8, Purpose::Store).unwrap();
        assert_eq!((b.begin, b.seq), (a.end, begin(2)));
    }
}

#[test]
fn a_record_that_just_fits_stays_in_the_segment() {
    let s = fresh();
    let a = leave(&s, 40);
    let b = s.reserve(40, Purpose::Store).unwrap();
    assert_eq!((b.begin, b.seq, b.end), (a.end, a.end, begin(2)));
}

#[test]
fn an_oversized_record_gets_segments_of_its_own() {
    for (bytes, span) in [
        (SEGMENT - SEGMENT_HEADER_BYTES + 8, 2),
        (2 * SEGMENT - SEGMENT_HEADER_BYTES, 2),
        (2 * SEGMENT - SEGMENT_HEADER_BYTES + 8, 3),
        (10 * SEGMENT, 11),
    ] {
        let s = fresh();
        let a = s.reserve(40, Purpose::Store).unwrap();
        let big = s.reserve(bytes, Purpose::Store).unwrap();
        assert_eq!(big.seq, begin(2), "{bytes}");
        assert_eq!(big.begin, a.end);
        assert_eq!(big.end, begin(2 + span), "{bytes}");
        assert_eq!(s.reserve(40, Purpose::Store).unwrap().seq, big.end);
    }
}

#[test]
fn only_the_gap_free_prefix_is_visible() {
    let s = fresh();
    let [a, b, c] = [40, 48, 56].map(|n| s.reserve(n, Purpose::Store).unwrap());
    s.done(&c);
    assert_eq!(s.visible_end(), a.seq);
    s.done(&a);
    assert_eq!(s.visible_end(), a.end);
    s.done(&b);
    assert_eq!(s.visible_end(), c.end);
    assert_eq!(s.snapshot(), c.end - 1);
}

#[test]
fn a_written_commit_is_not_visible() {
    let s = fresh();
    let [a, b] = [40, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    s.written(&b);
    assert_eq!((s.written_end(), s.visible_end()), (a.seq, a.seq));
    s.written(&a);
    assert_eq!((s.written_end(), s.visible_end()), (b.end, a.seq));
}

#[test]
fn a_ready_commit_is_visible_once_durable() {
    let s = fresh();
    let [a, b] = [40, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    s.ready(&a);
    s.ready(&b);
    assert_eq!(s.visible_end(), a.seq);
    s.set_durable(a.end);
    assert_eq!(s.visible_end(), a.end);
    s.set_durable(b.end - 1);
    assert_eq!(s.visible_end(), a.end, "the last byte counts");
    s.set_durable(b.end);
    assert_eq!(s.visible_end(), b.end);
    s.set_durable(a.end);
    assert_eq!(s.durable(), b.end, "the durable end never goes back");
}

#[test]
fn a_commit_that_is_not_durable_stays_invisible_after_a_durable_one() {
    let s = fresh();
    let [a, b] = [40, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    s.set_durable(a.end);
    s.ready(&a);
    s.ready(&b);
    assert_eq!(s.visible_end(), a.end);
}

#[test]
fn tickets_and_slots_wrap_around() {
    let s = fresh();
    for _ in 0..200_000 {
        let c = s.reserve(32, Purpose::Store).unwrap();
        assert!(s.visible_end() <= c.seq);
        s.done(&c);
        assert_eq!((s.visible_end(), s.written_end()), (c.end, c.end));
    }
}

#[test]
fn a_full_ring_makes_reservers_wait_and_loses_no_commit() {
    let s = fresh();
    let mut waiting: Vec<Commit> = (1..1 << 14).map(|_| s.reserve(32, Purpose::Store).unwrap()).collect();
    let next = std::thread::scope(|scope| {
        let blocked = scope.spawn(|| s.reserve(32, Purpose::Store).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!blocked.is_finished(), "the slot of an unpublished commit was reused");
        s.done(&waiting.remove(0));
        blocked.join().unwrap()
    });
    for c in &waiting {
        s.done(c);
    }
    assert_eq!(s.visible_end(), next.seq);
    s.done(&next);
    assert_eq!(s.visible_end(), next.end);
}

#[test]
fn no_commit_is_ordered_while_the_tail_is_held() {
    let s = fresh();
    let a = s.reserve(40, Purpose::Store).unwrap();
    let held = s.hold();
    let boundary = held.boundary;
    assert_eq!((boundary, s.tail()), (a.end, a.end));
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| s.reserve(40, Purpose::Store).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!blocked.is_finished());
        s.done(&a);
        assert_eq!(s.visible_end(), a.end, "publishing continues");
        drop(held);
        assert!(blocked.join().unwrap().seq >= boundary);
    });
}

#[test]
fn readers_wait_for_a_commit_that_has_returned() {
    let s = fresh();
    let [a, b] = [40, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    s.done(&b); // its writer returns although `a` is not done
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| s.snapshot());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!reader.is_finished(), "a reader missed a commit that had returned");
        s.done(&a);
        assert_eq!(reader.join().unwrap(), b.end - 1);
    });
}

#[test]
fn readers_do_not_wait_for_a_commit_that_failed() {
    let s = fresh();
    let [a, b] = [40, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    s.done(&b);
    s.stop();
    assert_eq!(s.snapshot(), a.seq - 1);
}

/// The words of the sequencer hold 47 bits. Sequence numbers once wrapped in a log of more than 2^50 bytes.
#[test]
fn sequence_numbers_continue_beyond_47_bits() {
    const SEGMENT_MAX: u64 = 1 << 30;
    for word in [1u64, 2, 3, 8000] {
        // Two segments before the low bits wrap.
        let first = (word << 47) * UNIT / SEGMENT_MAX - 2;
        let s = Sequencer::new(SEGMENT_MAX, first);
        let mut last = s.tail();
        assert_eq!(last, (first * SEGMENT_MAX + SEGMENT_HEADER_BYTES) / UNIT);
        for i in 0..6000u64 {
            let c = s.reserve(1 << 20, Purpose::Store).unwrap();
            assert!(c.seq >= last && c.end > c.seq, "{word} {i}");
            assert_eq!((s.tail(), s.visible_end()), (c.end, last));
            s.written(&c);
            assert_eq!(s.written_end(), c.end);
            if i % 2 == 0 {
                s.ready(&c);
                assert_eq!(s.visible_end(), last, "not durable");
                s.set_durable(c.end);
            } else {
                s.done(&c);
            }
            assert_eq!((s.visible_end(), s.snapshot()), (c.end, c.end - 1));
            last = c.end;
        }
        assert!(last > word << 47);
    }
}

/// A log that uses all its sequence numbers, in steps of the largest record.
#[test]
fn sequence_numbers_are_right_up_to_the_last() {
    const SEGMENT_MAX: u64 = 1 << 30;
    const STEP: u64 = 1 << 43; // 2^46 bytes, longer than any record, to limit the number of steps
    let s = Sequencer::new(SEGMENT_MAX, 1);
    let mut last = s.tail();
    loop {
        match s.reserve(STEP * UNIT, Purpose::Store) {
            Ok(c) => {
                assert!(c.seq >= last && c.end > c.seq + STEP);
                s.done(&c);
                assert_eq!((s.visible_end(), s.tail()), (c.end, c.end));
                last = c.end;
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Exhausted);
                break;
            }
        }
    }
    assert!(last > SEQ_MAX / 2 && last < SEQ_MAX);
    // A short record still fits, up to the margin.
    assert!(s.reserve(40, Purpose::Store).is_ok());
}

/// A log of oversized records only. Their numbers once wrapped, because only short records moved the anchor.
#[test]
fn numbers_of_oversized_records_continue_beyond_47_bits() {
    const SEGMENT_MAX: u64 = 1 << 30;
    const RECORD: u64 = 1 << 32;
    let s = Sequencer::new(SEGMENT_MAX, 1);
    let mut last = s.tail();
    while last < 3 << 47 {
        let c = s.hold().reserve(RECORD).unwrap();
        assert!(c.seq >= last && c.end > c.seq, "{c:?} after {last}");
        s.done(&c);
        assert_eq!((s.visible_end(), s.tail()), (c.end, c.end));
        last = c.end;
    }
}

#[test]
fn no_record_ends_above_its_limit() {
    let s = fresh();
    let start = s.tail() * UNIT;
    s.set_limit(Purpose::Store, start + 80);
    s.set_limit(Purpose::Relief, start + 120);
    assert_eq!(s.end_of_next(40), start + 40);
    s.reserve(40, Purpose::Store).unwrap();
    s.reserve(40, Purpose::Store).unwrap();
    assert_eq!(s.reserve(32, Purpose::Store), Err(Refusal::Limit));
    s.reserve(40, Purpose::Relief).unwrap();
    assert_eq!(s.reserve(32, Purpose::Relief), Err(Refusal::Limit));
    assert_eq!(s.tail() * UNIT, start + 120, "a refusal changes nothing");
    s.set_limit(Purpose::Store, u64::MAX);
    assert!(s.reserve(SEGMENT - 5000, Purpose::Store).is_ok());
}

#[test]
fn only_the_holder_of_the_tail_can_reserve() {
    let s = fresh();
    let held = s.hold();
    let c = held.reserve(3 * SEGMENT).unwrap();
    assert_eq!(s.tail(), c.end);
    std::thread::scope(|scope| {
        let second = scope.spawn(|| s.hold().boundary);
        let writer = scope.spawn(|| s.reserve(40, Purpose::Store).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!second.is_finished() && !writer.is_finished());
        drop(held);
        assert!(second.join().unwrap() >= c.end);
        assert!(writer.join().unwrap().seq >= c.end);
    });
}

/// A reader inside a commit must not wait for that commit.
#[test]
fn a_reader_within_a_commit_does_not_wait_for_it() {
    let s = fresh();
    let here = Unpublished::begin();
    let [a, b] = [40, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    std::thread::scope(|scope| scope.spawn(|| s.done(&b)).join().unwrap());
    assert_eq!(s.snapshot(), a.seq - 1, "the published prefix");
    drop(here);
    s.done(&a);
    assert_eq!(s.snapshot(), b.end - 1);
}

#[test]
fn writers_wait_for_an_earlier_large_commit_and_readers_do_not() {
    let s = fresh();
    let waits = s.begin_large();
    let [large, small] = [4000, 48].map(|n| s.reserve(n, Purpose::Store).unwrap());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| s.done(&small));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!writer.is_finished(), "it returned although readers must then wait");
        assert_eq!(s.snapshot(), large.seq - 1);
        s.done(&large);
        drop(waits);
        writer.join().unwrap();
        assert_eq!(s.snapshot(), small.end - 1);
    });
}

/// A comparator of one database reads another database, and the other way round, each within a commit. Each once waited
/// for the commit of the other.
#[test]
fn readers_within_commits_of_two_databases_do_not_wait_for_each_other() {
    let (s, t) = (fresh(), fresh());
    let place = |of: &Sequencer| {
        let [first, second] = [40, 48].map(|n| of.reserve(n, Purpose::Store).unwrap());
        std::thread::scope(|scope| scope.spawn(|| of.done(&second)).join().unwrap());
        first
    };
    let (mine, theirs) = (place(&s), place(&t));
    let met = std::sync::Barrier::new(2);
    let (met, s, t) = (&met, &s, &t);
    std::thread::scope(|scope| {
        let ends = [(s, t, mine), (t, s, theirs)].map(|(own, other, commit)| {
            scope.spawn(move || {
                let here = Unpublished::begin();
                met.wait();
                let seen = other.snapshot();
                met.wait();
                own.done(&commit);
                drop(here);
                seen
            })
        });
        let mut looks = 0;
        while !ends.iter().all(|end| end.is_finished()) {
            looks += 1;
            if looks > 5000 {
                s.stop();
                t.stop();
                panic!("two readers wait for each other");
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    assert_eq!((s.snapshot(), t.snapshot()), (s.tail() - 1, t.tail() - 1));
}
