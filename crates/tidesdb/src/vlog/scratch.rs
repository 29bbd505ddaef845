//! A reusable buffer per thread, so that reading or writing a value allocates nothing but the value itself.

use std::cell::Cell;

use super::CHUNK_BYTES;

/// Buffers with a larger capacity are freed after use. One with room for a compressed chunk is kept.
const KEEP_BYTES_MAX: usize = CHUNK_BYTES + CHUNK_BYTES / 16;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Calls `body` with this thread's buffer, which still has the content of its last use.
pub(super) fn with<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = BUFFER.take();
    let result = body(&mut buffer);
    if buffer.capacity() <= KEEP_BYTES_MAX {
        BUFFER.set(buffer);
    }
    result
}
