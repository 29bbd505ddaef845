//! C streams of log files: the target of the data symbol `_tidesdb_log_file` while a database logs to a file.
//!
//! The macros of programs read the symbol and write to the stream without a lock, so a stream is never closed.
//! When its database closes, it is redirected to `/dev/null` and kept for the next one. The symbols may be in
//! the program's own data (a copy relocation), so nothing here keeps a second copy of them.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::FILE;
use tidesdb_sync::Mutex;

/// The stream for messages; null means stderr.
#[unsafe(export_name = "_tidesdb_log_file")]
pub(crate) static LOG_FILE: AtomicPtr<FILE> = AtomicPtr::new(null_mut());

/// The lowest level that is logged, as in `tidesdb_config_t`; INFO until a database is opened.
#[unsafe(export_name = "_tidesdb_log_level")]
pub(crate) static LOG_LEVEL: AtomicI32 = AtomicI32::new(1);

const _: () = assert!(size_of::<AtomicI32>() == size_of::<c_int>());

/// A stream to a log file. The macros of programs and `tidesdb_log_write` write to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stream(NonNull<FILE>);

// SAFETY: a C stream locks itself at each call, and this one is never closed.
unsafe impl Send for Stream {}

/// Streams without a log file, redirected to `/dev/null`.
static SPARE: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

impl Stream {
    /// Returns a line-buffered stream that writes to `file`; `None` if there is no descriptor left.
    pub(crate) fn to(file: &File) -> Option<Self> {
        let spare = SPARE.lock().pop();
        if let Some(stream) = spare {
            if stream.turn(file) {
                return Some(stream);
            }
            stream.rest();
            return None;
        }
        let descriptor = file.try_clone().ok()?.into_raw_fd();
        // SAFETY: the descriptor is open and nothing else owns it.
        let stream = NonNull::new(unsafe { libc::fdopen(descriptor, c"a".as_ptr()) });
        let Some(stream) = stream else {
            // SAFETY: the descriptor is open and no stream owns it.
            unsafe { libc::close(descriptor) };
            return None;
        };
        // SAFETY: the stream is open and was not used yet, as `setvbuf` requires.
        unsafe { libc::setvbuf(stream.as_ptr(), null_mut(), libc::_IOLBF, 0) };
        Some(Self(stream))
    }

    /// Returns the stream as a C pointer.
    pub(crate) fn raw(&self) -> *mut FILE {
        self.0.as_ptr()
    }

    /// Redirects the stream to another file. Buffered output goes to the old one.
    fn turn(&self, file: &File) -> bool {
        // SAFETY: the stream is never closed, so it and its descriptor are open.
        unsafe {
            libc::fflush(self.raw());
            libc::dup3(file.as_raw_fd(), libc::fileno(self.raw()), libc::O_CLOEXEC) >= 0
        }
    }

    /// Keeps the stream for another log file.
    pub(crate) fn rest(self) {
        #[expect(clippy::disallowed_methods, reason = "not a part of the database")]
        let nothing = File::options().append(true).open("/dev/null");
        if let Ok(nothing) = nothing {
            self.turn(&nothing);
        }
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
