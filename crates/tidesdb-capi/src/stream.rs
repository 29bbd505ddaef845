//! C streams of log files: what the data symbol `_tidesdb_log_file` points to while a database logs to a file.
//!
//! Macros of programs read the symbol and write to the stream without a lock. A stream is therefore never closed: when its
//! database closes, it is turned to `/dev/null` and kept for the next one. The symbols may lie in the program's own data (a copy
//! relocation), so nothing here keeps a second copy of them.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use libc::FILE;
use tidesdb_sync::Mutex;

/// The stream for messages; null stands for stderr.
#[unsafe(export_name = "_tidesdb_log_file")]
pub(crate) static LOG_FILE: AtomicPtr<FILE> = AtomicPtr::new(null_mut());

/// The lowest level that is written, as in `tidesdb_config_t`; INFO until a database is opened.
#[unsafe(export_name = "_tidesdb_log_level")]
pub(crate) static LOG_LEVEL: AtomicI32 = AtomicI32::new(1);

const _: () = assert!(size_of::<AtomicI32>() == size_of::<c_int>());

/// A stream to a log file. Programs' macros write to it, and `tidesdb_log_write`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stream(NonNull<FILE>);

// SAFETY: a stream of C locks itself at each call, and this one is never closed.
unsafe impl Send for Stream {}

/// Streams without a log file, turned to `/dev/null`.
static SPARE: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

impl Stream {
    /// A stream that writes to `file`, line by line; `None` if there is no descriptor left.
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
            // SAFETY: the descriptor is open, and no stream took it over.
            unsafe { libc::close(descriptor) };
            return None;
        };
        // SAFETY: the stream is open and was not used yet, as `setvbuf` demands.
        unsafe { libc::setvbuf(stream.as_ptr(), null_mut(), libc::_IOLBF, 0) };
        Some(Self(stream))
    }

    /// As C sees it.
    pub(crate) fn raw(&self) -> *mut FILE {
        self.0.as_ptr()
    }

    /// Turns the stream to another file. What it buffered goes to the old one.
    fn turn(&self, file: &File) -> bool {
        // SAFETY: the stream is never closed, so it and its descriptor are open.
        unsafe {
            libc::fflush(self.raw());
            libc::dup3(file.as_raw_fd(), libc::fileno(self.raw()), libc::O_CLOEXEC) >= 0
        }
    }

    /// Keeps the stream for another log file.
    pub(crate) fn rest(self) {
        #[expect(clippy::disallowed_methods, reason = "no part of the database")]
        let nothing = File::options().append(true).open("/dev/null");
        if let Ok(nothing) = nothing {
            self.turn(&nothing);
        }
        SPARE.lock().push(self);
    }
}

/// Makes `stream` the one for messages.
pub(crate) fn publish(stream: &Stream) {
    LOG_FILE.store(stream.raw(), Ordering::Release);
}

/// Makes `next` the stream for messages instead of `stream`, unless the program has set another one.
pub(crate) fn withdraw(stream: &Stream, next: Option<&Stream>) {
    let next = next.map_or(null_mut(), Stream::raw);
    let _ = LOG_FILE.compare_exchange(stream.raw(), next, Ordering::AcqRel, Ordering::Relaxed);
}
