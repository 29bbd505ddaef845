//! [`Window`]: rows of an iterator that can be read without lending it.
//!
//! Most calls on an iterator read the current row or move one row on. The call that last held the iterator
//! writes the locations of the current row and of the rows that the cursor has read ahead into the window. A
//! call that is answered from the window costs a nanosecond or two, and changes nothing but the position. If
//! two threads use one iterator at a time, which the header forbids, they may miss rows, but what they read is
//! consistent.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence};

use tidesdb::internals::types::RowSpan;

use crate::pointer::Out;

/// The part of a value that can be read without lending it.
pub(crate) trait Front: Sync {
    /// An empty front.
    const NOTHING: Self;
    /// Empties the front. Called by the thread that has the value.
    fn clear(&self);
}

/// Most values have no front.
impl Front for () {
    const NOTHING: Self = ();

    fn clear(&self) {}
}

/// Maximum number of rows.
const ROWS: usize = 16;
/// The lowest bits of `Window::written` hold the number of rows. The bits above hold a number that changes each
/// time rows are written.
const COUNT_BITS: u32 = 8;
const COUNT: usize = (1 << COUNT_BITS) - 1;
const _: () = assert!(ROWS <= COUNT);

/// The addresses and sizes of the key and value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) key: *const u8,
    pub(crate) key_size: usize,
    pub(crate) value: *const u8,
    pub(crate) value_size: usize,
}

impl Row {
    /// Writes the addresses and sizes to the caller.
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

/// The rows that an iterator shows.
#[repr(C)]
pub(crate) struct Window {
    written: AtomicUsize,
    /// Number of rows left, including the current one. A delayed step may store a count for older rows here. So
    /// this is a word of its own, which cannot undo a write of rows, and it is used only if it does not exceed
    /// the count in `written`.
    left: AtomicUsize,
    /// Start of the memory that holds the keys; `rows` has the span of each row in it. The last row is the last
    /// element of `rows`, so the number of rows left gives the position of the current row.
    keys: AtomicPtr<u8>,
    /// Start of the memory that holds the values. A value is at the offset it would have from `keys` if it
    /// followed its key there.
    values: AtomicPtr<u8>,
    rows: [AtomicU64; ROWS],
    /// True if the value of a row was requested.
    asked: AtomicBool,
}

impl Window {
    /// Returns the current row, if the window has it.
    #[inline(always)]
    pub(crate) fn row(&self) -> Option<Row> {
        // At least as new as the write before the iterator was given back, because the caller has seen that
        // return.
        let written = self.written.load(Ordering::Relaxed);
        let left = self.left.load(Ordering::Relaxed);
        if left > written & COUNT {
            return None;
        }
        // `None` if no row is left, because there is no row `ROWS`.
        let span = self.rows.get(ROWS.wrapping_sub(left))?.load(Ordering::Relaxed);
        let (keys, values) = (self.keys.load(Ordering::Relaxed), self.values.load(Ordering::Relaxed));
        // Pairs with the fence in `show`: a reader that has read any part of newer rows sees that `written` has
        // changed.
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

    /// Returns the current row, if the window has it, and records that its value was requested.
    #[inline(always)]
    pub(crate) fn asked_row(&self) -> Option<Row> {
        self.ask();
        self.row()
    }

    /// Moves to the next row. Returns false if the window does not have it.
    #[inline(always)]
    pub(crate) fn step(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        let there = left > 1 && left <= self.written.load(Ordering::Relaxed) & COUNT;
        if there {
            self.left.store(left - 1, Ordering::Relaxed);
        }
        there
    }

    /// Returns true if there is a current row.
    #[inline(always)]
    pub(crate) fn is_open(&self) -> bool {
        self.written.load(Ordering::Relaxed) & COUNT != 0
    }

    /// Closes the window. Returns the number of rows that were left if it was open. Called by the thread that
    /// has the iterator.
    #[inline]
    pub(crate) fn close(&self) -> Option<usize> {
        let written = self.written.load(Ordering::Relaxed);
        if written & COUNT == 0 {
            return None;
        }
        self.written.store((written | COUNT).wrapping_add(1), Ordering::Relaxed);
        Some(self.left.load(Ordering::Relaxed))
    }

    /// Shows these rows; the iterator is on the first one. Shows nothing if there are too many. Called by the
    /// thread that has the iterator, after `close`.
    #[inline]
    pub(crate) fn open(&self, bytes: &[u8], rows: &[RowSpan]) {
        if rows.len() <= ROWS {
            self.show(bytes.as_ptr(), bytes.as_ptr(), rows);
        }
    }

    /// Shows one row, unless it is too long. Otherwise like [`Window::open`].
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

    /// Records that the value of the current row was requested.
    #[inline(always)]
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Returns whether a value was requested since the last call. Called by the thread that has the iterator.
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
        assert_eq!(parts(window.row().unwrap()), (1, 1, 9), "the position stays on the last row");
        assert_eq!(window.close(), Some(1));
        assert!(window.row().is_none() && !window.step() && !window.is_open());
        window.open(&bytes, &[span(0, 1, 1); ROWS]);
        assert!((1..ROWS).all(|_| window.row().is_some() && window.step()) && !window.step());
        window.close();
        window.open(&bytes, &[span(0, 1, 1); ROWS + 1]);
        assert!(window.row().is_none(), "too many rows are not shown");
    }

    #[test]
    fn key_and_value_of_one_row_may_be_in_separate_memory() {
        let (window, key, value) = (Window::NOTHING, vec![1_u8; 20], vec![2_u8; 60_000]);
        window.open_one(&key, &value);
        let row = window.row().unwrap();
        assert_eq!((row.key, row.key_size), (key.as_ptr(), 20));
        assert_eq!((row.value, row.value_size), (value.as_ptr(), 60_000));
        assert!(!window.was_asked() && window.asked_row() == Some(row) && window.was_asked());
        window.close();
        window.open_one(&key, &[0; 1 << 16]);
        assert!(window.row().is_none(), "too long a row is not shown");
    }

    /// A reader that runs during writes must see the rows of one write, or none. Here, rows of an even length
    /// are in the first buffer and rows of an odd length in the second.
    #[test]
    fn a_concurrent_reader_sees_consistent_rows() {
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
