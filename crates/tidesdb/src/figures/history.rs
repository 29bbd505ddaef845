//! The history of figures: rings of chunks, one for seconds and one for minutes. A chunk stands alone: it has the names of its figures, and
//! the differences of each sample to the one before. A sample is one write at the end of its chunk. A chunk that is reused has a new number,
//! to which the checksums are bound, so samples of its earlier use are not taken for later ones.

use std::collections::HashMap;

use tidesdb_io::{Dir, File, FileExt};

use super::slots::{HISTORY_AT, NUMBER_MAX, open_for_reading};
use super::{MILLIS_MAX, read};
use crate::codec::{Decoder, Salt, bound_crc, put_bytes, put_varint};
use crate::files::FIGURES;
use crate::order;
use crate::{Error, Result};

/// Bytes of a chunk.
const CHUNK_BYTES: u64 = 32 << 10;
/// Bytes before the samples of a chunk: its number, and their checksum.
const CHUNK_HEADER_BYTES: usize = 12;
/// Bytes before a sample: its length, and the checksum.
const SAMPLE_HEADER_BYTES: usize = 8;
/// Maximum number of figures of a sample.
const NAMES_MAX: usize = 1000;

/// How often samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Once a second, for an hour.
    Seconds,
    /// Once a minute, for a day.
    Minutes,
}

impl Pace {
    /// How many chunks there are. One holds sixty samples of a usual size.
    const fn chunks(self) -> u64 {
        match self {
            Self::Seconds => 60,
            Self::Minutes => 24,
        }
    }

    /// Where the chunk `number` is. Two chunks of minutes and five of seconds follow each other, so the file grows as they are used.
    fn place(self, number: u64) -> u64 {
        let n = number % self.chunks();
        let at = match self {
            Self::Minutes => n / 2 * 7 + n % 2,
            Self::Seconds => n / 5 * 7 + 2 + n % 5,
        };
        HISTORY_AT + at * CHUNK_BYTES
    }
}

/// Figures of the past: see [`crate::WriterFigures`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// Names of figures.
    pub names: Vec<String>,
    /// What they were, in the order of time as the writers recorded it.
    pub samples: Vec<Sample>,
}

/// Figures of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sample {
    /// Milliseconds since the UNIX epoch, by the clock of the writer.
    pub millis: u64,
    /// The figures that were recorded, by the place of their name in [`History::names`].
    pub values: Vec<(u32, i64)>,
}

impl History {
    /// The moments at which the figure `name` was recorded, in milliseconds since the UNIX epoch, and its values.
    pub fn series(&self, name: &str) -> Vec<(u64, i64)> {
        let Some(at) = self.names.iter().position(|other| other == name) else { return Vec::new() };
        let of = |sample: &Sample| {
            let (_, value) = sample.values.iter().find(|(name, _)| *name as usize == at)?;
            Some((sample.millis, *value))
        };
        self.samples.iter().filter_map(of).collect()
    }
}

/// Appends samples of one pace.
#[derive(Debug)]
pub(super) struct HistoryWriter {
    pace: Pace,
    /// Number of the chunk in use; 0 before the first.
    chunk: u64,
    /// Bytes of it that are used.
    used: usize,
    /// The names of its figures, and their last values.
    names: HashMap<String, usize>,
    last: Vec<i64>,
    last_millis: u64,
}

impl HistoryWriter {
    /// Goes on after what `file` holds.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn after(pace: Pace, file: &dyn File, salt: &Salt) -> Result<Self> {
        let mut chunk = 0;
        for n in 0..pace.chunks() {
            chunk = chunk.max(number_of(pace, n, file, salt)?.unwrap_or(0));
        }
        let mut this = Self {
            pace,
            chunk,
            used: CHUNK_BYTES as usize,
            names: HashMap::new(),
            last: Vec::new(),
            last_millis: 0,
        };
        if chunk > 0 {
            let place = pace.place(chunk);
            let bytes = read(file, place, CHUNK_BYTES as usize)?;
            // Damage in it is left behind: the next sample begins a new chunk.
            if let Ok(end) = walk(&bytes, (place, chunk), salt, |_, _| {}) {
                this.used = end.at;
                this.names = end.names.into_iter().zip(0..).collect();
                (this.last, this.last_millis) = (end.last, end.millis);
            }
        }
        Ok(this)
    }

    /// Appends a sample of these figures. One that no chunk can hold is left out.
    ///
    /// # Errors
    /// `Io`: the sample is lost, and the next one begins a new chunk.
    pub(super) fn append(
        &mut self,
        file: &dyn File,
        salt: &Salt,
        millis: u64,
        figures: &[(String, i64)],
    ) -> Result<()> {
        let mut sample = self.encode(millis, figures);
        if self.used + SAMPLE_HEADER_BYTES + sample.len() > CHUNK_BYTES as usize
            || self.names.len() > NAMES_MAX
        {
            (self.chunk, self.used) = (self.chunk.wrapping_add(1), 0);
            (self.names, self.last, self.last_millis) = (HashMap::new(), Vec::new(), 0);
            sample = self.encode(millis, figures);
        }
        let (place, number) = (self.pace.place(self.chunk), self.chunk.to_le_bytes());
        let mut out = Vec::with_capacity(CHUNK_HEADER_BYTES + SAMPLE_HEADER_BYTES + sample.len());
        if self.used == 0 {
            out.extend_from_slice(&number);
            out.extend_from_slice(&bound_crc(salt, place, &[&number]).to_le_bytes());
        }
        let at = place + (self.used + out.len()) as u64;
        let len = (sample.len() as u32).to_le_bytes();
        out.extend_from_slice(&len);
        out.extend_from_slice(&bound_crc(salt, at, &[&number, &len, &sample]).to_le_bytes());
        out.extend_from_slice(&sample);
        let fits = self.used + out.len() <= CHUNK_BYTES as usize;
        let written = if fits { file.write_all_at(&out, place + self.used as u64) } else { Ok(()) };
        if fits && written.is_ok() {
            self.used += out.len();
        } else {
            // The next sample begins this chunk anew, or one more if samples of it are there.
            self.chunk -= u64::from(self.used == 0);
            self.used = CHUNK_BYTES as usize;
        }
        written.map_err(|e| Error::io("write", FIGURES, e))
    }

    /// Encodes a sample as its differences to the last one, which it becomes.
    fn encode(&mut self, millis: u64, figures: &[(String, i64)]) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * figures.len());
        put_varint(&mut out, millis.wrapping_sub(self.last_millis));
        self.last_millis = millis;
        let new: Vec<&String> =
            figures.iter().map(|(name, _)| name).filter(|name| !self.names.contains_key(*name)).collect();
        put_varint(&mut out, new.len() as u64);
        for name in new {
            put_bytes(&mut out, name.as_bytes());
            self.names.insert(name.clone(), self.last.len());
            self.last.push(0);
        }
        let mut now = vec![None; self.last.len()];
        figures.iter().for_each(|(name, value)| now[self.names[name]] = Some(*value));
        for (value, last) in now.iter().zip(&mut self.last) {
            let moved = value.map(|value| value.wrapping_sub(*last));
            let zigzag = moved.map(|moved| ((moved << 1) ^ (moved >> 63)).cast_unsigned());
            put_varint(&mut out, zigzag.map_or(0, |n| n.saturating_add(1))); // 0 = it was not recorded
            *last = value.unwrap_or(*last);
        }
        out
    }
}

/// Returns the number of the chunk in place `n`, if there is one.
fn number_of(pace: Pace, n: u64, file: &dyn File, salt: &Salt) -> Result<Option<u64>> {
    let place = pace.place(n);
    let header = read(file, place, CHUNK_HEADER_BYTES)?;
    if header.len() < CHUNK_HEADER_BYTES {
        return Ok(None);
    }
    let mut d = Decoder::new(&header, FIGURES, place);
    let (number, crc) = (d.u64()?, d.u32()?);
    let is_whole = bound_crc(salt, place, &[&header[..8]]) == crc
        && pace.place(number) == place
        && (1..=NUMBER_MAX).contains(&number);
    Ok(is_whole.then_some(number))
}

/// Returns the history of `pace` in `FIGURES` in `dir`; without samples if there is no file of the database `uuid`.
///
/// # Errors
/// `FormatTooNew`, `Corrupt`, `Io`.
pub fn read_history(dir: &dyn Dir, uuid: [u8; 16], pace: Pace) -> Result<History> {
    let Some((file, salt)) = open_for_reading(dir, uuid)? else { return Ok(History::default()) };
    let mut chunks = Vec::new();
    for n in 0..pace.chunks() {
        if let Some(number) = number_of(pace, n, &*file, &salt)? {
            chunks.push((number, read(&*file, pace.place(n), CHUNK_BYTES as usize)?));
        }
    }
    order::sort_by_key(&mut chunks, |(number, _)| *number);
    let (mut history, mut names) = (History::default(), HashMap::new());
    for (number, chunk) in chunks {
        read_chunk(&chunk, (pace.place(number), number), &salt, &mut history, &mut names)?;
    }
    Ok(history)
}

/// Reads the samples of a chunk at `place` with this number.
fn read_chunk(
    chunk: &[u8],
    at: (u64, u64),
    salt: &Salt,
    history: &mut History,
    names: &mut HashMap<String, u32>,
) -> Result<()> {
    let mut ids = Vec::new();
    walk(chunk, at, salt, |chunk, values| {
        for name in &chunk.names[ids.len()..] {
            let next = names.len() as u32;
            let id = *names.entry(name.clone()).or_insert(next);
            if id == next {
                history.names.push(name.clone());
            }
            ids.push(id);
        }
        let values = values.iter().map(|(at, value)| (ids[*at], *value)).collect();
        history.samples.push(Sample { millis: chunk.millis.min(MILLIS_MAX), values });
    })?;
    Ok(())
}

/// What was read of a chunk.
struct Walked {
    /// Its names in the order in which they appear, with their last values.
    names: Vec<String>,
    last: Vec<i64>,
    millis: u64,
    /// Where the next sample is.
    at: usize,
}

/// Calls `visit` after each sample of a chunk at `place` with this number, up to the first that is not whole, with the places of the names of
/// which it has a value.
fn walk(
    chunk: &[u8],
    (place, number): (u64, u64),
    salt: &Salt,
    mut visit: impl FnMut(&Walked, &[(usize, i64)]),
) -> Result<Walked> {
    let number = number.to_le_bytes();
    let mut this = Walked { names: Vec::new(), last: Vec::new(), millis: 0, at: CHUNK_HEADER_BYTES };
    while let Some(header) = chunk.get(this.at..this.at + SAMPLE_HEADER_BYTES) {
        let offset = place + this.at as u64;
        let mut d = Decoder::new(header, FIGURES, offset);
        let (len, crc) = (d.u32()? as usize, d.u32()?);
        let begin = this.at + SAMPLE_HEADER_BYTES;
        let Some(sample) = begin.checked_add(len).and_then(|end| chunk.get(begin..end)) else { break };
        if len == 0 || bound_crc(salt, offset, &[&number, &header[..4], sample]) != crc {
            break;
        }
        let mut d = Decoder::new(sample, FIGURES, place + begin as u64);
        this.millis = this.millis.wrapping_add(d.varint()?);
        for _ in 0..d.length(d.remaining())? {
            this.names.push(String::from_utf8_lossy(d.bytes(d.remaining())?).into_owned());
            this.last.push(0);
        }
        let mut values = Vec::with_capacity(this.last.len());
        for (at, last) in this.last.iter_mut().enumerate() {
            if let Some(moved) = d.varint()?.checked_sub(1) {
                *last = last.wrapping_add((moved >> 1).cast_signed() ^ -((moved & 1).cast_signed()));
                values.push((at, *last));
            }
        }
        d.finish()?;
        this.at = begin + len;
        visit(&this, &values);
    }
    Ok(this)
}
