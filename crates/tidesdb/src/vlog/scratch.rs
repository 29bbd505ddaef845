//! A buffer for each thread, so that reading and writing a value costs no allocation beside the value's own.

use std::cell::Cell;

/// Larger buffers are not kept.
const KEEP_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Lends the thread's buffer, whatever it holds.
pub(super) fn with<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = BUFFER.take();
    let result = body(&mut buffer);
    if buffer.capacity() <= KEEP_BYTES_MAX {
        BUFFER.set(buffer);
    }
    result
}
