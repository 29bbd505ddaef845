//! A reusable buffer per thread, so that reading or writing a value allocates nothing but the value itself.

use tidesdb_sync::Kept;

use super::CHUNK_BYTES;

/// Buffers with a larger capacity are freed after use. One with room for a compressed chunk is kept.
const KEEP_BYTES_MAX: usize = CHUNK_BYTES + CHUNK_BYTES / 16;

thread_local! {
    static BUFFER: Kept<Vec<u8>> = Kept::new();
}

/// Calls `body` with this thread's buffer, which may have the content of its last use.
pub(super) fn with<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = Kept::take(&BUFFER).unwrap_or_default();
    let result = body(&mut buffer);
    if buffer.capacity() <= KEEP_BYTES_MAX {
        Kept::put(&BUFFER, buffer);
    }
    result
}
