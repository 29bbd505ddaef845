//! Copying and reading at a limited rate, with progress, until the caller or the close of the database ends it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidesdb_io::{Clock, File, FileExt, crc32c};
use tidesdb_sync::Mutex;

use super::{Progress, ProgressFn};
use crate::callback::contained;
use crate::{Error, Result};

/// Bytes between two looks at whether to go on.
pub(super) const PIECE_BYTES: usize = 1 << 20;
/// Milliseconds between two calls of the progress for a caller that looks often.
const GLANCE_MILLIS: u64 = 100;
/// Longest sleep between two looks.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// The pace of one call, over many files.
pub(super) struct Pace<'a> {
    pub(super) clock: &'a dyn Clock,
    /// 0 = no limit.
    pub(super) bytes_per_second: u64,
    pub(super) progress: Option<&'a ProgressFn>,
    /// Ends the call when it is set.
    pub(super) stop: Option<&'a AtomicBool>,
    /// Fails if the call must end for another reason.
    check: &'a (dyn Fn() -> Result<()> + Sync),
    total: AtomicU64,
    /// When the next byte may be copied.
    next: Mutex<Duration>,
    done: AtomicU64,
    /// When [`Pace::glance`] has shown the progress last, in milliseconds of the clock.
    glanced: AtomicU64,
}

impl<'a> Pace<'a> {
    pub(super) fn new(clock: &'a dyn Clock, check: &'a (dyn Fn() -> Result<()> + Sync)) -> Self {
        Self {
            clock,
            bytes_per_second: 0,
            progress: None,
            stop: None,
            check,
            total: AtomicU64::new(0),
            next: Mutex::default(),
            done: AtomicU64::new(0),
            glanced: AtomicU64::new(0),
        }
    }

    /// Says that so many bytes are still to come.
    pub(super) fn expect(&self, bytes: u64) {
        let done = self.done.load(Ordering::Relaxed);
        self.total.fetch_max(done.saturating_add(bytes), Ordering::Relaxed);
    }

    /// Fails if the call must end. Shows the progress, whose function may end it.
    pub(super) fn look(&self) -> Result<()> {
        self.note(0)
    }

    /// Like [`Pace::look`], for a caller that looks at each row: shows the progress a few times per second only.
    pub(super) fn glance(&self) -> Result<()> {
        let now = u64::try_from(self.clock.mono().as_millis()).unwrap_or(u64::MAX);
        if now.saturating_sub(self.glanced.load(Ordering::Relaxed)) < GLANCE_MILLIS {
            return self.check();
        }
        self.glanced.store(now, Ordering::Relaxed);
        self.show()?;
        self.check()
    }

    fn check(&self) -> Result<()> {
        if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::Busy { cause: "the call was stopped" });
        }
        (self.check)()
    }

    /// Counts bytes that were copied or read, waits for the rate, and reports.
    pub(super) fn note(&self, bytes: u64) -> Result<()> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.show()?;
        if self.bytes_per_second == 0 {
            return self.check();
        }
        let takes = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        let due = {
            let mut next = self.next.lock();
            *next = (*next).max(self.clock.mono()).saturating_add(takes.unwrap_or(Duration::MAX));
            *next
        };
        loop {
            self.check()?;
            let rest = due.saturating_sub(self.clock.mono());
            if rest.is_zero() {
                return Ok(());
            }
            self.clock.sleep(rest.min(SLEEP_MAX));
            self.glance()?; // a function of progress may end the call, and waits for no piece
        }
    }

    /// Shows the progress.
    fn show(&self) -> Result<()> {
        let Some(progress) = self.progress else { return Ok(()) };
        let done = self.done.load(Ordering::Relaxed);
        let bytes_total = self.total.load(Ordering::Relaxed).max(done);
        contained(|| progress(&Progress { bytes_done: done, bytes_total }))
            .ok_or_else(|| Error::invalid("the function that shows the progress panicked"))
    }
}

/// The bytes of a file from an offset on, read at the pace of a copy. A store may read them in any order and more than once; their checksum
/// is computed while they are read in order.
pub(super) struct Paced<'a> {
    file: &'a dyn File,
    from: u64,
    pace: &'a Pace<'a>,
    summed: Mutex<Summed>,
    failed: Mutex<Option<Error>>,
}

#[derive(Default)]
struct Summed {
    end: u64,
    crc: u32,
}

impl<'a> Paced<'a> {
    pub(super) fn new(file: &'a dyn File, from: u64, pace: &'a Pace<'a>) -> Self {
        Self { file, from, pace, summed: Mutex::default(), failed: Mutex::default() }
    }

    /// Fills `buf` from the offset `at`.
    pub(super) fn read(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let mut at = at;
        for piece in buf.chunks_mut(PIECE_BYTES) {
            self.file.read_exact_at(piece, self.from + at)?;
            let mut summed = self.summed.lock();
            if summed.end == at {
                *summed = Summed { end: at + piece.len() as u64, crc: crc32c(summed.crc, piece) };
            }
            drop(summed);
            self.pace.note(piece.len() as u64).map_err(|e| {
                *self.failed.lock() = Some(e);
                io::Error::other("the copy ends")
            })?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Why the copy had to end, if it had.
    pub(super) fn failure(&self) -> Option<Error> {
        self.failed.lock().take()
    }

    /// Returns the checksum of the first `len` bytes.
    pub(super) fn crc(&self, len: u64) -> io::Result<u32> {
        loop {
            let Summed { end, crc } = *self.summed.lock();
            if end >= len {
                return Ok(crc);
            }
            let mut piece = vec![0; (len - end).min(PIECE_BYTES as u64) as usize];
            self.file.read_exact_at(&mut piece, self.from + end)?;
            *self.summed.lock() = Summed { end: end + piece.len() as u64, crc: crc32c(crc, &piece) };
        }
    }
}
