//! Log messages of the engine, to stderr or to the file `LOG` of a database.
//!
//! The engine logs through `tracing`, once per process, so a message does not identify its database. Each open
//! database whose level includes the message gets it; stderr gets it once.
//!
//! Programs built against the headers of libtidesdb 9.3 log as well: their macros read `_tidesdb_log_level` and
//! `_tidesdb_log_file`, which follow the open databases, and call `tidesdb_log_write`.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int};
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use tidesdb_sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::stream::{self, LOG_LEVEL, Stream};

/// Destination of the messages for one database, and the maximum length of its file.
struct Sink {
    number: u64,
    /// The level, as in the configuration; a higher number logs less.
    level: u8,
    file: Option<LogFile>,
}

/// The file `LOG` of a database.
struct LogFile {
    file: File,
    /// The length in bytes at which the file is truncated and restarted.
    longest: u64,
    /// The same file as a C stream; `None` if the process has no descriptor left for it.
    stream: Option<Stream>,
}

/// A level above all messages: nothing is logged.
const NO_LEVEL: i32 = 99;

static SINKS: Mutex<Vec<Sink>> = Mutex::new(Vec::new());
/// The lowest level that any database logs.
static WANTED: AtomicU8 = AtomicU8::new(u8::MAX);
static INSTALLED: Once = Once::new();

/// Guard: while it lives, messages go to the destination it was opened for.
pub(crate) struct Messages {
    number: Option<u64>,
}

/// Sends messages of at least `level` (0 debug ... 4 fatal, above that none) to `LOG` in `directory`, or to
/// stderr. A file of `longest` bytes or more is truncated and restarted; 0 = never.
pub(crate) fn open(level: i32, directory: Option<&Path>, longest: u64) -> Messages {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Ok(level @ 0..=4) = u8::try_from(level) else {
        let sinks = SINKS.lock();
        if sinks.is_empty() {
            LOG_LEVEL.store(NO_LEVEL, Ordering::Relaxed);
        }
        return Messages { number: None };
    };
    // A program that has installed its own `tracing` subscriber keeps it.
    INSTALLED.call_once(|| drop(tracing::subscriber::set_global_default(Listener)));
    #[expect(clippy::disallowed_methods, reason = "a log for people, not part of the database")]
    let file = directory.map(|dir| File::options().create(true).append(true).open(dir.join("LOG")));
    let longest = if longest == 0 { u64::MAX } else { longest };
    let file = file.and_then(Result::ok);
    let file = file.map(|file| LogFile { stream: Stream::to(&file), file, longest });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut sinks = SINKS.lock();
    if let Some(stream) = file.as_ref().and_then(|file| file.stream.as_ref()) {
        stream::publish(stream);
    }
    sinks.push(Sink { number, level, file });
    update(&sinks);
    Messages { number: Some(number) }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut sinks = SINKS.lock();
            let Some(at) = sinks.iter().position(|sink| sink.number == number) else { return };
            let gone = sinks.remove(at).file.and_then(|file| file.stream);
            if let Some(gone) = &gone {
                let streams = sinks.iter().rev().filter_map(|sink| sink.file.as_ref()?.stream.as_ref());
                stream::withdraw(gone, { streams }.next());
            }
            update(&sinks);
            drop(sinks);
            if let Some(gone) = gone {
                gone.rest();
            }
        }
    }
}

fn update(sinks: &[Sink]) {
    let wanted = sinks.iter().map(|sink| sink.level).min();
    WANTED.store(wanted.unwrap_or(u8::MAX), Ordering::Relaxed);
    // Without an open database the level stays, because programs may log before and after.
    if let Some(wanted) = wanted {
        LOG_LEVEL.store(i32::from(wanted), Ordering::Relaxed);
    }
    tracing::callsite::rebuild_interest_cache();
}

fn number(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 2,
        Level::INFO => 1,
        _ => 0,
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        number(metadata.level()) >= WANTED.load(Ordering::Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        let _ = write!(line.0, "tidesdb {:5} ", event.metadata().level());
        event.record(&mut line);
        line.0.push('\n');
        let level = number(event.metadata().level());
        let mut to_stderr = false;
        for sink in SINKS.lock().iter_mut().filter(|sink| level >= sink.level) {
            match &mut sink.file {
                Some(log) => append(&mut log.file, log.longest, &line.0),
                None => to_stderr = true,
            }
        }
        if to_stderr {
            let _ = std::io::stderr().write_all(line.0.as_bytes());
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Appends a message. If writing fails, the message is lost, because there is nowhere to report it.
fn append(file: &mut File, longest: u64, line: &str) {
    if file.metadata().is_ok_and(|meta| meta.len() >= longest) {
        let _ = file.set_len(0);
    }
    let _ = file.write_all(line.as_bytes());
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}

unsafe extern "C" {
    /// Writes a line to `_tidesdb_log_file`; in `log_write.c`.
    fn tidesdb_capi_log_write(level: c_int, file: *const c_char, line: c_int, format: *const c_char, ...);
}

/// Exports [`tidesdb_capi_log_write`] under its public name: a jump leaves all arguments in place.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) extern "C" fn tidesdb_log_write() {
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    naked_asm!("jmp {write}", write = sym tidesdb_capi_log_write);
    #[cfg(any(target_arch = "aarch64", target_arch = "arm"))]
    naked_asm!("b {write}", write = sym tidesdb_capi_log_write);
    #[cfg(target_arch = "riscv64")]
    naked_asm!("tail {write}", write = sym tidesdb_capi_log_write);
    #[cfg(target_arch = "s390x")]
    naked_asm!("jg {write}", write = sym tidesdb_capi_log_write);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a line as the macros of C programs do.
    fn say(number: c_int) {
        // SAFETY: the strings end with 0, and the argument is what the format says.
        unsafe { tidesdb_capi_log_write(1, c"a.c".as_ptr(), 7, c"line %d\n".as_ptr(), number) };
    }

    /// Regression test: a close put the stream of its log file aside under the lock of the destinations.
    #[test]
    fn lines_of_programs_go_to_the_log_that_is_open() {
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        // Databases of other tests log there too.
        let said = |dir: &tempfile::TempDir| -> Vec<String> {
            let text = std::fs::read_to_string(dir.path().join("LOG")).expect("the log is text");
            text.lines().filter(|line| line.contains(" a.c:7: ")).map(str::to_owned).collect()
        };
        let messages = open(1, Some(one.path()), 0);
        say(1);
        say(2);
        let lines = ["tidesdb INFO  a.c:7: line 1", "tidesdb INFO  a.c:7: line 2"];
        assert_eq!(said(&one), lines, "each line is in the file at once");
        drop(messages); // a build with debug assertions checks the order of locks
        say(3);
        let messages = open(1, Some(two.path()), 0);
        say(4);
        drop(messages);
        assert_eq!(
            (said(&one), said(&two)),
            (lines.map(str::to_owned).to_vec(), vec![lines[0].replace('1', "4")])
        );
    }
}
