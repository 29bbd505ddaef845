//! [`ValueReader`]: reads a value piece by piece.

use std::fmt;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::{Bound, RangeBounds};
use std::slice::from_ref;
use std::sync::Arc;

use super::get::Located;
use crate::family::{FamilyCore, ReadView};
use crate::memory::{Charge, Memory, Use};
use crate::types::{Slice, VALUE_BYTES_MAX};
use crate::version::FileGuard;
use crate::vlog::{ChunkIndex, ChunkedPlace, ValuePlace, VlogSet};
use crate::{Error, Result};

/// Reads one value in constant memory, from any position. Reads what the value was when the reader was made, whatever is
/// written or deleted meanwhile: it keeps the value logs of the value until it is dropped, and nothing else.
///
/// A value that a [`ValueWriter`](crate::ValueWriter) stored in chunks is read chunk by chunk, and each chunk is verified. Any
/// other value is read whole when the reader is made. Errors are [`io::Error`]s that hold an [`Error`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use std::io::{Read, Seek, SeekFrom};
/// db.put("film", "opening, plot, ending")?;
/// let mut reader = db.default_family().value_reader("film")?.expect("it was put");
/// assert_eq!(reader.len(), 21);
/// reader.seek(SeekFrom::End(-6))?;
/// let mut end = String::new();
/// reader.read_to_string(&mut end)?;
/// assert_eq!(end, "ending");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueReader {
    source: Source,
    len: u64,
    at: u64,
    /// Memory of the value, or of the chunk and the index.
    charge: Charge,
}

enum Source {
    Whole(Slice),
    Chunks(Box<Chunks>),
}

/// A chunked value, and the chunk that was read last.
struct Chunks {
    vlog: Arc<VlogSet>,
    memory: Arc<Memory>,
    /// Keep the files of the value. Dropped after `vlog`, which may have them open.
    files: Vec<Arc<FileGuard>>,
    index: ChunkIndex,
    chunk: Vec<u8>,
    /// Number of the chunk in `chunk`.
    loaded: Option<usize>,
}

/// Bytes of memory that the guards of so many files take.
fn guard_bytes(files: usize) -> u64 {
    (files * size_of::<Arc<FileGuard>>()) as u64
}

impl Chunks {
    fn open(family: &FamilyCore, view: &ReadView, is_beside: bool, place: &ChunkedPlace) -> Result<Self> {
        let files = place.parts.iter().map(|part| view.version.value_guard(part.vlog)).collect();
        let vlog = match is_beside {
            true => Arc::new(family.vlog.part(place.parts.iter().map(|part| part.vlog))),
            false => Arc::clone(&family.vlog),
        };
        let (index, memory) = (vlog.read_index(place)?, Arc::clone(&family.memory));
        Ok(Self { vlog, memory, files, index, chunk: Vec::new(), loaded: None })
    }

    /// Returns the rest of the chunk that contains byte `at` of the value; empty at the end.
    fn from(&mut self, at: u64, charge: &mut Charge) -> Result<&[u8]> {
        let Some((number, start)) = self.index.find(at) else { return Ok(&[]) };
        if self.loaded != Some(number) {
            let chunk = self.index.chunks()[number].raw_len as usize;
            if chunk > self.chunk.capacity() {
                let kept = self.index.memory_bytes() + guard_bytes(self.files.len());
                charge.grow(&self.memory, kept + chunk as u64)?;
            }
            self.load(number)?;
        }
        Ok(self.chunk.get((at - start) as usize..).unwrap_or_default())
    }

    fn load(&mut self, number: usize) -> Result<()> {
        let chunks = self.index.chunks();
        let in_order = number == self.loaded.take().map_or(0, |last| last + 1);
        self.vlog.read_into(&chunks[number], &mut self.chunk)?;
        self.loaded = Some(number);
        if let Some(next) = chunks.get(number + 1).filter(|_| in_order) {
            self.vlog.load_many(from_ref(next));
        }
        Ok(())
    }
}

impl ValueReader {
    /// Creates a reader of the value at `located`, whose files the caller keeps during the call, by `view` or by leases. If nothing is
    /// ever appended to them, another process may remove them: `is_beside`.
    pub(crate) fn new(
        family: &FamilyCore,
        view: &ReadView,
        is_beside: bool,
        located: Located,
    ) -> Result<Self> {
        let mut charge = Charge::new(Use::Cursors);
        let place = match located {
            Located::Inline(value) => {
                charge.grow(&family.memory, (size_of::<Self>() + value.len()) as u64)?;
                return Ok(Self::whole(value, charge));
            }
            Located::Stored(ValuePlace::Record(pointer)) => {
                charge.grow(&family.memory, size_of::<Self>() as u64 + u64::from(pointer.raw_len))?;
                return family.vlog.read(&pointer).map(|value| Self::whole(value.into(), charge));
            }
            Located::Stored(ValuePlace::Chunks(place)) => place,
        };
        charge.grow(&family.memory, ChunkIndex::bytes_of(place.len) + guard_bytes(place.parts.len()))?;
        let chunks = Chunks::open(family, view, is_beside, &place)?;
        Ok(Self { source: Source::Chunks(Box::new(chunks)), len: place.len, at: 0, charge })
    }

    /// Copies a value that is part of a memtable, which it would keep.
    pub(crate) fn detached(self) -> Self {
        let source = match self.source {
            Source::Whole(value) => Source::Whole(value.into_vec().into()),
            chunks => chunks,
        };
        Self { source, ..self }
    }

    fn whole(value: Slice, charge: Charge) -> Self {
        Self { len: value.len() as u64, source: Source::Whole(value), at: 0, charge }
    }

    /// Length of the value in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the value is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes in `range`, as far as the value has them.
    pub(crate) fn range(mut self, range: impl RangeBounds<u64>) -> Result<Slice> {
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => u64::MAX,
        };
        let end = end.min(self.len);
        let len = end.saturating_sub(start);
        let too_long = || Error::MemoryLimit {
            what: format!("{len} bytes are too long to be read at once; read them with `value_reader`")
                .into(),
        };
        let mut out = Vec::new();
        let room = usize::try_from(len).ok().filter(|len| *len <= VALUE_BYTES_MAX).ok_or_else(too_long)?;
        out.try_reserve_exact(room).map_err(|_| too_long())?;
        self.at = start;
        while out.len() < room {
            let bytes = self.rest()?;
            let n = bytes.len().min(room - out.len());
            out.extend_from_slice(&bytes[..n]);
            self.at += n as u64;
        }
        Ok(out.into())
    }

    /// Returns bytes from the position on: at least one, unless the position is at or after the end.
    fn rest(&mut self) -> Result<&[u8]> {
        match &mut self.source {
            Source::Whole(value) => {
                Ok(usize::try_from(self.at).ok().and_then(|at| value.get(at..)).unwrap_or_default())
            }
            Source::Chunks(chunks) => chunks.from(self.at, &mut self.charge),
        }
    }
}

impl Read for ValueReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.rest()?;
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

impl BufRead for ValueReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.rest()?)
    }

    fn consume(&mut self, n: usize) {
        self.at = self.at.saturating_add(n as u64).min(self.len.max(self.at));
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a seek to a position before the start of the value")
        })?;
        Ok(self.at)
    }
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("len", &self.len).field("at", &self.at).finish_non_exhaustive()
    }
}
