//! The event log of a database, as far as it can be read: lines that are torn, damaged or of another program are counted and left out.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::{Map, Value};
use tidesdb::WriterFigures;

use super::clock;
use crate::host;

/// The older file first.
const FILES: [&str; 2] = ["EVENTS.old", "EVENTS"];
/// More is read of no file: the engine begins a new one after 2 MiB.
const BYTES_MAX: u64 = 8 << 20;
/// A refined time that is further from the one of the line is not believed.
const REFINED_MILLIS: u64 = 2000;

/// One event.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// When it was recorded, in milliseconds since the UNIX epoch. The line has whole seconds; those of the last session are refined.
    pub(crate) millis: u64,
    /// Seconds since the database was opened.
    pub(crate) at: f64,
    pub(crate) name: String,
    fields: Map<String, Value>,
}

impl Event {
    /// A field that is a number; 0 if it is none.
    pub(crate) fn number(&self, field: &str) -> f64 {
        self.fields.get(field).and_then(Value::as_f64).filter(|n| n.is_finite()).unwrap_or(0.0)
    }

    /// A field that is a text; empty if it is none.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// A field that is a list; empty if it is none.
    pub(crate) fn list(&self, field: &str) -> &[Value] {
        self.fields.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// True if the field is `true`.
    pub(crate) fn is(&self, field: &str) -> bool {
        self.fields.get(field).and_then(Value::as_bool).unwrap_or(false)
    }

    /// When the work began that the event reports the end of.
    pub(crate) fn began(&self) -> u64 {
        self.millis.saturating_sub((self.number("seconds").max(0.0) * 1e3) as u64)
    }
}

/// All events that were read, in the order of the files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    pub(crate) all: Vec<Event>,
    /// Lines that are no events.
    pub(crate) damaged: usize,
}

impl Events {
    /// Reads the event log of the database at `path`. One that is not there has no events.
    pub(crate) fn read(path: &Path, figures: &WriterFigures) -> Self {
        let mut this = Self::default();
        tails(path).for_each(|bytes| this.add(&bytes));
        this.refine(figures);
        this
    }

    /// Adds the lines of a file.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            match parse(line) {
                Some(event) => self.all.push(event),
                None => self.damaged += 1,
            }
        }
    }

    /// The events since the last open.
    fn last_session(&self) -> usize {
        self.all.iter().rposition(|event| event.name == "open").unwrap_or(self.all.len())
    }

    /// Refines the times of the events of the session whose figures are known: its lines have whole seconds.
    pub(crate) fn refine(&mut self, figures: &WriterFigures) {
        let written = figures.written.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        let opened = written.saturating_sub(figures.open_for).as_millis() as u64;
        let from = self.last_session();
        for event in &mut self.all[from..] {
            let refined = opened.saturating_add((event.at.max(0.0) * 1e3) as u64);
            if refined.abs_diff(event.millis) <= REFINED_MILLIS {
                event.millis = refined;
            }
        }
    }

    /// The events named `name` between two moments, the end excluded.
    pub(crate) fn named<'a>(
        &'a self,
        name: &'a str,
        from: u64,
        to: u64,
    ) -> impl DoubleEndedIterator<Item = &'a Event> {
        self.all.iter().filter(move |event| event.name == name && (from..to).contains(&event.millis))
    }

    /// The last event with one of these names before `to`.
    pub(crate) fn last(&self, names: &[&str], to: u64) -> Option<&Event> {
        self.all.iter().rev().find(|event| event.millis < to && names.contains(&event.name.as_str()))
    }
}

fn parse(line: &[u8]) -> Option<Event> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(line) else { return None };
    let millis = clock::parse_rfc3339(fields.get("time")?.as_str()?)?;
    let name = fields.get("event")?.as_str()?.to_owned();
    let at = fields.get("at").and_then(Value::as_f64).filter(|at| at.is_finite()).unwrap_or(0.0);
    Some(Event { millis, at, name, fields })
}

/// Returns the last bytes of each file of the event log of the database at `path`, the older file first.
pub(crate) fn tails(path: &Path) -> impl Iterator<Item = Vec<u8>> {
    FILES.into_iter().map(|name| tail(&path.join(name)))
}

/// Returns the last bytes of a file; none if it cannot be read.
fn tail(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut read = || -> std::io::Result<()> {
        let about = std::fs::metadata(path)?;
        if !about.is_file() {
            return Ok(()); // to open a pipe waits for its other end
        }
        let (mut file, len) = (host::open(path)?, about.len());
        file.seek(SeekFrom::Start(len.saturating_sub(BYTES_MAX)))?;
        file.take(BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(())
    };
    drop(read()); // what could be read counts
    bytes
}
