//! Messages of the engine, to stderr or to the file `LOG` of a database.
//!
//! The engine speaks through `tracing`, once for the whole process, so a message does not say which database it is about: each
//! open database that wants its level gets it, stderr once.

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

/// Where the messages for one database go, and how long its file may get.
struct Sink {
    number: u64,
    /// As in the configuration; a higher number says less.
    level: u8,
    file: Option<(File, u64)>,
}

static SINKS: Mutex<Vec<Sink>> = Mutex::new(Vec::new());
/// The lowest level that anybody wants.
static WANTED: AtomicU8 = AtomicU8::new(u8::MAX);
static INSTALLED: Once = Once::new();

/// As long as it lives, messages go where it was opened for.
pub(crate) struct Messages {
    number: Option<u64>,
}

/// Sends messages of at least `level` (0 debug ... 4 fatal, more for none) somewhere: to `LOG` in `directory`, or to stderr. A file
/// that is longer than `longest` bytes begins anew; 0 = never.
pub(crate) fn open(level: i32, directory: Option<&Path>, longest: u64) -> Messages {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Ok(level @ 0..=4) = u8::try_from(level) else { return Messages { number: None } };
    // A program that has a subscriber of its own for `tracing` keeps it.
    INSTALLED.call_once(|| drop(tracing::subscriber::set_global_default(Listener)));
    #[expect(clippy::disallowed_methods, reason = "a log for people beside the database, not part of it")]
    let file = directory.map(|dir| File::options().create(true).append(true).open(dir.join("LOG")));
    let file = file.and_then(Result::ok).map(|file| (file, if longest == 0 { u64::MAX } else { longest }));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut sinks = SINKS.lock();
    sinks.push(Sink { number, level, file });
    update(&sinks);
    Messages { number: Some(number) }
}

impl Drop for Messages {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut sinks = SINKS.lock();
            sinks.retain(|sink| sink.number != number);
            update(&sinks);
        }
    }
}

fn update(sinks: &[Sink]) {
    WANTED.store(sinks.iter().map(|sink| sink.level).min().unwrap_or(u8::MAX), Ordering::Relaxed);
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
                Some((file, longest)) => append(file, *longest, &line.0),
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

/// A message that cannot be written is lost: there is nobody to tell.
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
