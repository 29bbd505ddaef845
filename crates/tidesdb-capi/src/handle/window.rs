//! [`Window`]: rows of an iterator, seen without taking it.
//!
//! Most calls on an iterator ask for the row it stands on or go one row on. Where that row and those lie that its cursor has read ahead
//! is written here by who has taken the iterator, so that such a call costs a nanosecond or two. Others change nothing but
//! the row it stands on. Two threads that use one iterator at a time, which the header forbids, may miss rows; what they see was
//! written here as one.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use tidesdb::types::RowSpan;

use crate::pointer::Out;

/// What a value shows without being taken.
pub(crate) trait Front: Sync {
    /// One that shows nothing.
    const NOTHING: Self;
    /// Shows nothing. Called by who has the value.
    fn clear(&self);
}

/// Most values show nothing.
impl Front for () {
    const NOTHING: Self = ();

    fn clear(&self) {}
}

/// Most rows there are.
const ROWS: usize = 16;
/// In `Window::written` the lowest bits are how many rows there are. Above them is a number that is another each time that rows are
/// written.
const COUNT_BITS: u32 = 8;
const COUNT: usize = (1 << COUNT_BITS) - 1;
const _: () = assert!(ROWS <= COUNT);

/// Where key and value of a row lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: *const u8,
    pub(crate) key_size: usize,
    pub(crate) value: *const u8,
    pub(crate) value_size: usize,
}

impl Row {
    /// Tells a caller where key and value lie.
    #[inline(always)]
    pub(crate) fn tell(
        self,
        key: Out<*const u8>,
        key_size: Out<usize>,
        value: Out<*const u8>,
        value_size: Out<usize>,
    ) {
        key.set(self.key);
        key_size.set(self.key_size);
        value.set(self.value);
        value_size.set(self.value_size);
    }
}

/// Rows that an iterator has at hand.
#[repr(C)]
pub(crate) struct Window {
    written: AtomicUsize,
    /// How many rows are left, the one stood on included. A step that comes late may leave one of older rows here: a word of its own, so that
    /// it cannot undo what was written, and believed only within the count.
    left: AtomicUsize,
    /// The bytes that keys are among, and where each row lies there. The last row is the last one here: the place of the row stood on is
    /// told by how many are left.
    keys: AtomicPtr<u8>,
    /// What values are among: value and key are so far from here as they would be from `keys` if they lay there one behind the other.
    values: AtomicPtr<u8>,
    rows: [AtomicU64; ROWS],
    /// Whether the value of a row was asked for.
    asked: AtomicBool,
}

impl Window {
    /// The row stood on, if it is here.
    #[inline(always)]
    pub(crate) fn row(&self) -> Option<Row> {
        // No older than when the iterator was given back: who calls has seen that it is.
        let written = self.written.load(Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        if left > written & COUNT {
            return None;
        }
        // None for no row left, as there is no row `ROWS`.
        let span = self.rows.get(ROWS.wrapping_sub(left))?.load(Ordering::Relaxed);
        let (keys, values) = (self.keys.load(Ordering::Relaxed), self.values.load(Ordering::Relaxed));
        // Pairs with the fence in `open`: who has read any part of a later row sees that `written` has changed.
        fence(Ordering::Acquire);
        if self.written.load(Ordering::Relaxed) != written {
            return None;
        }
        let span = RowSpan::from_bits(span);
        Some(Row {
            key: keys.cast_const().wrapping_add(span.start()),
            key_size: span.key_len(),
            value: values.cast_const().wrapping_add(span.start() + span.key_len()),
            value_size: span.value_len(),
        })
    }

    /// The row stood on, if it is here, of which the value is asked for.
    #[inline(always)]
    pub(crate) fn asked_row(&self) -> Option<Row> {
        self.ask();
        self.row()
    }

    /// One row on, if it is here.
    #[inline(always)]
    pub(crate) fn step(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let there = left > 1 && left <= self.written.load(Ordering::Relaxed) & COUNT;
        if there {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        there
    }

    /// Whether there is a row to stand on.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.written.load(Ordering::Relaxed) & COUNT != 0
    }

    /// Ends the showing, if there is one; how many rows were left then. For who has the iterator.
    #[inline]
    pub(crate) fn close(&self) -> Option<usize> {
        let written = self.written.load(Ordering::Relaxed);
        if written & COUNT == 0 {
            return None;
        }
        self.written.store((written | COUNT).wrapping_add(1), Ordering::Relaxed);
        Some(self.left.load(Ordering::Relaxed))
    }

    /// Shows these rows, of which the iterator stands on the first; none if they are too many. For who has the iterator and has closed it.
    #[inline]
    pub(crate) fn open(&self, bytes: &[u8], rows: &[RowSpan]) {
        if rows.len() <= ROWS {
            self.show(bytes.as_ptr(), bytes.as_ptr(), rows);
        }
    }

    /// Shows one row, unless it is too long. As [`Window::open`].
    #[inline]
    pub(crate) fn open_one(&self, key: &[u8], value: &[u8]) {
        if let Some(row) = RowSpan::new(0, key.len(), value.len()) {
            self.show(key.as_ptr(), value.as_ptr().wrapping_sub(key.len()), &[row]);
        }
    }

    #[inline]
    fn show(&self, keys: *const u8, values: *const u8, rows: &[RowSpan]) {
        fence(Ordering::Release);
        self.keys.store(keys.cast_mut(), Ordering::Relaxed);
        self.values.store(values.cast_mut(), Ordering::Relaxed);
        for (to, row) in self.rows[ROWS - rows.len()..].iter().zip(rows) {
            to.store(row.to_bits(), Ordering::Relaxed);
        }
        self.left.store(rows.len(), Ordering::Relaxed);
        let written = self.written.load(Ordering::Relaxed);
        self.written.store(written & !COUNT | rows.len(), Ordering::Release);
    }

    /// Notes that the value of the row stood on was asked for.
    #[inline(always)]
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether it was, since the last time. For who has the iterator.
    #[inline]
    pub(crate) fn was_asked(&self) -> bool {
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked.store(false, Ordering::Relaxed);
        asked
    }
}

impl Front for Window {
    const NOTHING: Self = Self {
        written: AtomicUsize::new(0),
        left: AtomicUsize::new(0),
        keys: AtomicPtr::new(ptr::null_mut()),
        values: AtomicPtr::new(ptr::null_mut()),
        rows: [const { AtomicU64::new(0) }; ROWS],
        asked: AtomicBool::new(false),
    };

    fn clear(&self) {
        self.close();
        self.was_asked();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: usize, key: usize, value: usize) -> RowSpan {
        RowSpan::new(start, key, value).unwrap()
    }

    fn parts(row: Row) -> (usize, usize, usize) {
        (row.key_size, row.value.addr().wrapping_sub(row.key.addr()), row.value_size)
    }

    #[test]
    fn rows_are_shown_one_by_one() {
        let window = Window::NOTHING;
        assert!(window.row().is_none() && !window.step() && !window.is_open());
        assert_eq!(window.close(), None);
        let bytes = [0; 64];
        window.open(&bytes, &[span(0, 3, 4), span(7, 2, 0), span(9, 1, 9)]);
        for (at, left) in [((3, 3, 4), 3), ((2, 2, 0), 2), ((1, 1, 9), 1)] {
            assert!(window.is_open());
            assert_eq!(parts(window.row().unwrap()), at);
            assert_eq!(window.step(), left > 1);
        }
        assert_eq!(parts(window.row().unwrap()), (1, 1, 9), "the last one stays");
        assert_eq!(window.close(), Some(1));
        assert!(window.row().is_none() && !window.step() && !window.is_open());
        window.open(&bytes, &[span(0, 1, 1); ROWS]);
        assert!((1..ROWS).all(|_| window.row().is_some() && window.step()) && !window.step());
        window.close();
        window.open(&bytes, &[span(0, 1, 1); ROWS + 1]);
        assert!(window.row().is_none(), "there is no room for so many");
    }

    #[test]
    fn one_row_may_lie_in_two_places() {
        let (window, key, value) = (Window::NOTHING, vec![1_u8; 20], vec![2_u8; 60_000]);
        window.open_one(&key, &value);
        let row = window.row().unwrap();
        assert_eq!((row.key, row.key_size), (key.as_ptr(), 20));
        assert_eq!((row.value, row.value_size), (value.as_ptr(), 60_000));
        assert!(!window.was_asked() && window.asked_row() == Some(row) && window.was_asked());
        window.close();
        window.open_one(&key, &[0; 1 << 16]);
        assert!(window.row().is_none(), "too long");
    }

    /// Whoever looks while rows are written sees rows of one writing, or none: here rows of an even length lie among the first bytes and
    /// rows of an odd one among the second.
    #[test]
    fn what_is_seen_was_written_as_one() {
        const ENOUGH: usize = if cfg!(miri) { 20 } else { 1_000_000 };
        let (window, bytes) = (Window::NOTHING, [vec![0_u8; 1 << 12], vec![0_u8; 1 << 12]]);
        let (seen, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    window.step();
                }
            });
            let looker = scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let Some(row) = window.row() else { continue };
                    let n = row.key_size;
                    assert_eq!(row.key.addr(), bytes[n % 2].as_ptr().addr() + 2 * n, "{row:?}");
                    assert_eq!(parts(row), (n, n, n));
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            });
            for round in 0.. {
                window.close();
                let n = round % 1000;
                window.open(&bytes[n % 2], &[span(2 * n, n, n); ROWS][..1 + round % ROWS]);
                while round % 3 == 0 && window.step() {}
                if looker.is_finished() || (round > ENOUGH && seen.load(Ordering::Relaxed) >= ENOUGH) {
                    break;
                }
            }
            stop.store(true, Ordering::Release);
        });
    }
}
