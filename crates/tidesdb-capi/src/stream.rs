//! C streams of log files: the target of the data symbol `_tidesdb_log_file` while a database logs to a file.
//!
//! The macros of programs read the symbol and write to the stream without a lock, so a stream is never closed.
//! When its database closes, it is redirected to `/dev/null` and kept for the next one. The symbols may be in
//! the program's own data (a copy relocation), so nothing here keeps a second copy of them.

use std::ffi::c_int;
use std::fs::File;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use tidesdb_io::program;
use tidesdb_sync::Mutex;

/// `FILE` of the C library.
#[repr(C)]
pub(crate) struct CFile {
    _opaque: [u8; 0],
}

/// The stream for messages; null means stderr.
#[unsafe(export_name = "_tidesdb_log_file")]
pub(crate) static LOG_FILE: AtomicPtr<CFile> = AtomicPtr::new(null_mut());

/// The lowest level that is logged, as in `tidesdb_config_t`; INFO until a database is opened.
#[unsafe(export_name = "_tidesdb_log_level")]
pub(crate) static LOG_LEVEL: AtomicI32 = AtomicI32::new(1);

const _: () = assert!(size_of::<AtomicI32>() == size_of::<c_int>());

// In `stream.c`.
unsafe extern "C" {
    /// Returns a line-buffered stream that owns the file; null if there is no descriptor left, and then the file is closed.
    fn tidesdb_capi_stream_new(file: isize) -> *mut CFile;
    /// Redirects the stream to the file and closes this number of it. Buffered output goes to the old one. Returns 0 if that fails.
    fn tidesdb_capi_stream_turn(stream: *mut CFile, file: isize) -> c_int;
    /// Redirects the stream to nowhere.
    fn tidesdb_capi_stream_rest(stream: *mut CFile);
}

/// A stream to a log file. The macros of programs and `tidesdb_log_write` write to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stream(NonNull<CFile>);

// SAFETY: a C stream locks itself at each call, and this one is never closed.
unsafe impl Send for Stream {}

/// Streams without a log file, redirected to `/dev/null`.
static SPARE: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

impl Stream {
    /// Returns a line-buffered stream that writes to `file`; `None` if there is no descriptor left.
    pub(crate) fn to(file: &File) -> Option<Self> {
        let number = program::file_number(file.try_clone().ok()?);
        let spare = SPARE.lock().pop();
        let Some(stream) = spare else {
            // SAFETY: the number is that of an open file, which nothing else owns.
            return NonNull::new(unsafe { tidesdb_capi_stream_new(number) }).map(Self);
        };
        // SAFETY: as above, and the stream is never closed.
        if unsafe { tidesdb_capi_stream_turn(stream.raw(), number) } != 0 {
            return Some(stream);
        }
        stream.rest();
        None
    }

    /// Returns the stream as a C pointer.
    pub(crate) fn raw(&self) -> *mut CFile {
        self.0.as_ptr()
    }

    /// Keeps the stream for another log file.
    pub(crate) fn rest(self) {
        // SAFETY: the stream is never closed.
        unsafe { tidesdb_capi_stream_rest(self.raw()) };
        SPARE.lock().push(self);
    }
}

/// Sets `stream` as the stream for messages.
pub(crate) fn publish(stream: &Stream) {
    LOG_FILE.store(stream.raw(), Ordering::Release);
}

/// Replaces `stream` by `next` as the stream for messages, unless the program has set another one.
pub(crate) fn withdraw(stream: &Stream, next: Option<&Stream>) {
    let next = next.map_or(null_mut(), Stream::raw);
    let _ = LOG_FILE.compare_exchange(stream.raw(), next, Ordering::AcqRel, Ordering::Relaxed);
}
