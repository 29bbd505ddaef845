//! Values of any length: written and read piece by piece.
//!
//! A [`ValueWriter`] keeps what it gets until it has a chunk. A value that fits one chunk is put like any other. Each chunk of a
//! longer value goes to the value log as soon as it is full. Nothing refers to the chunks until the commit, and leases keep their
//! files from being sealed. The commit syncs the chunks first, in every sync mode; most were synced before. The files are named in
//! the manifest as soon as they have a chunk, so that an open after a crash finds and removes them.

use std::fmt;
use std::io::{self, Read, Write};
use std::ops::RangeBounds;
use std::time::{Duration, SystemTime};

use super::{Db, Snapshot};
use crate::family::ReadView;
use crate::memory::{Charge, Use};
use crate::options::{SyncMode, WriteOptions};
use crate::read::{self, Located, ValueReader};
use crate::txn::Transaction;
use crate::types::{SeqNo, Slice, VlogId, expiry_at};
use crate::vlog::{CHUNK_BYTES, CHUNKED_BYTES_MAX, ChunkedPlace, Lease};
use crate::write::{Chunks, Family, WriteBatch, begin_writing, check_key};
use crate::{Error, Result};

/// Memory of a writer without its chunk and its key.
const WRITER_BYTES: usize = size_of::<ValueWriter>() + size_of::<Chunks>();

/// Writes one value of any length in constant memory. The value becomes visible as a whole with [`ValueWriter::commit`] or
/// with the transaction that it [joins](ValueWriter::join). Dropping the writer discards it: what was written is garbage,
/// whose space is freed later.
///
/// A value of more than 1 MiB is stored in chunks of 1 MiB, each with its own checksum and compression. At most 16 TiB. A
/// chunked value is durable before its commit, in every sync mode. After an error the writer can only be dropped.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tidesdb::Db::open(dir.path())?;
/// use std::io::Write;
/// let mut writer = db.default_family().value_writer("film")?;
/// for scene in 0..1000 {
///     writeln!(writer, "scene {scene}")?;
/// }
/// assert!(!db.contains("film")?);
/// writer.commit()?;
/// let mut film = db.default_family().value_reader("film")?.expect("it was committed");
/// assert_eq!(std::io::read_to_string(&mut film)?.lines().count(), 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueWriter {
    family: Family,
    key: Vec<u8>,
    options: WriteOptions,
    /// `None`: the default of the family.
    expiry: Option<u64>,
    /// The chunk being filled.
    chunk: Vec<u8>,
    stream: Option<Stream>,
    failed: Option<Error>,
    /// Memory of the writer and of the chunk that it fills.
    charge: Charge,
}

/// The chunks of a value that has more than one.
#[derive(Default)]
struct Stream {
    chunks: Chunks,
    /// The newest file that was named in the manifest.
    named: Option<VlogId>,
}

impl ValueWriter {
    fn new(family: &Family, key: &[u8]) -> Result<Self> {
        family.ctx.check_writable()?;
        check_key(key)?;
        family.core.check_usable()?;
        let mut charge = Charge::new(Use::Cursors);
        charge.grow(&family.core.memory, (WRITER_BYTES + key.len()) as u64)?;
        Ok(Self {
            family: family.clone(),
            key: key.to_vec(),
            options: WriteOptions::default(),
            expiry: None,
            chunk: Vec::new(),
            stream: None,
            failed: None,
            charge,
        })
    }

    /// Sets the sync mode of the commit.
    #[must_use]
    pub fn sync(mut self, mode: SyncMode) -> Self {
        self.options.sync = Some(mode);
        self
    }

    /// Lets the value expire after `ttl`: see [`WriteBatch::put_with_ttl`]. A TTL that ends after the year 10889 makes the
    /// commit fail.
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        let expiry = self.family.ctx.reads.expiry_after(ttl);
        self.expiring(expiry)
    }

    /// Lets the value expire at `expiry`; `None` = never. A moment after the year 10889 makes the commit fail.
    #[must_use]
    pub fn expires_at(self, expiry: impl Into<Option<SystemTime>>) -> Self {
        self.expiring(expiry_at(expiry.into()))
    }

    fn expiring(mut self, expiry: Result<u64>) -> Self {
        match expiry {
            Ok(expiry) => self.expiry = Some(expiry),
            Err(e) => self.failed = Some(e),
        }
        self
    }

    /// Bytes written so far; 0 after an error.
    pub fn len(&self) -> u64 {
        let appended = self.stream.as_ref().map_or(0, |s| s.chunks.count() as u64 * CHUNK_BYTES as u64);
        appended + self.chunk.len() as u64
    }

    /// Returns true if nothing was written so far.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the key to what was written. Returns the commit's sequence number.
    ///
    /// # Errors
    /// The error of an earlier write; as [`crate::Db::write`]. Unless it is `CommitUnknown`, nothing was committed.
    pub fn commit(mut self) -> Result<SeqNo> {
        let mut batch = WriteBatch::new();
        self.add_to(&mut batch)?;
        let reads = &self.family.ctx.reads;
        let _timer = reads.sample(&reads.times.commits);
        super::write(&self.family.ctx, &mut batch, &self.options)
    }

    /// Adds the put to `transaction`: the value becomes visible with its other writes. The transaction decides about the sync
    /// mode.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let films = db.default_family();
    /// let mut tx = db.begin(tidesdb::Isolation::Snapshot);
    /// let mut writer = films.value_writer("film")?;
    /// std::io::copy(&mut &[7; 3 << 20][..], &mut writer)?;
    /// writer.join(&mut tx)?;
    /// tx.put(films, "film:title", "Sevens")?;
    /// tx.commit()?;
    /// assert_eq!(films.value_reader("film")?.expect("it was committed").len(), 3 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of an earlier write; as [`Transaction::put`]; `Io`, `NoSpace`, `Poisoned`.
    pub fn join(mut self, transaction: &mut Transaction) -> Result<()> {
        let family = self.family.clone();
        self.add_to(transaction.for_writing(&family)?)
    }

    /// Adds the put to `batch`, once all chunks are durable.
    fn add_to(&mut self, batch: &mut WriteBatch) -> Result<()> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        self.try_add_to(batch).map_err(|e| self.fail(e))
    }

    fn try_add_to(&mut self, batch: &mut WriteBatch) -> Result<()> {
        let expiry = self.expiry.map_or_else(|| self.family.stored_default_expiry(), Ok)?;
        let Some(stream) = &mut self.stream else {
            return batch.put_until(&self.family, &self.key, &self.chunk, expiry);
        };
        if !self.chunk.is_empty() {
            stream.add(&self.family, &self.chunk)?;
        }
        let (place, leases) = stream.finish(&self.family)?;
        batch.put_chunks(&self.family, &self.key, &place, leases, expiry)
    }

    /// Appends the full chunk and empties it.
    fn append_chunk(&mut self) -> Result<()> {
        if self.stream.is_none() {
            self.family.ctx.database()?.name_value_logs(&self.family.core, false)?;
        }
        let stream = self.stream.get_or_insert_default();
        if (stream.chunks.count() as u64 + 1) * CHUNK_BYTES as u64 >= CHUNKED_BYTES_MAX {
            return Err(Error::invalid(format!("a value is limited to {CHUNKED_BYTES_MAX} bytes")));
        }
        stream.add(&self.family, &self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    /// Makes room for `more` bytes in the chunk, as far as they fit.
    ///
    /// # Errors
    /// `Busy` if memory is scarce.
    fn make_room(&mut self, more: usize) -> Result<()> {
        let wanted = self.chunk.len().saturating_add(more).min(CHUNK_BYTES);
        if wanted > self.chunk.capacity() {
            let room = wanted.next_power_of_two(); // a chunk is one
            self.charge.grow(&self.family.core.memory, (WRITER_BYTES + self.key.len() + room) as u64)?;
            self.chunk.reserve_exact(room - self.chunk.len());
        }
        Ok(())
    }

    /// Fills the chunk with up to `more` bytes by `fill`, after appending it if it is full. Remembers an error.
    fn fill<R>(&mut self, more: usize, fill: impl FnOnce(&mut Vec<u8>) -> Result<R>) -> Result<R> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        let filled = || {
            if self.chunk.len() == CHUNK_BYTES {
                self.append_chunk()?;
            }
            self.make_room(more)?;
            fill(&mut self.chunk)
        };
        filled().map_err(|e| self.fail(e))
    }

    /// Keeps the error `e` and discards what was written: the value can no longer be committed, and a full disk needs its space.
    fn fail(&mut self, e: Error) -> Error {
        let e = self.family.ctx.refused(self.len(), e);
        (self.stream, self.chunk) = (None, Vec::new());
        self.charge.set(&self.family.core.memory, (WRITER_BYTES + self.key.len()) as u64);
        self.failed = Some(e.clone());
        super::work_here(&self.family.ctx, &Err::<(), _>(e.clone()));
        e
    }

    /// Writes all that `source` yields.
    fn read_from(&mut self, mut source: impl Read) -> Result<()> {
        let mut read = |most: usize, out: &mut Vec<u8>| {
            let read = source.by_ref().take(most as u64).read_to_end(out);
            read.map_err(|e| Error::io("read", "the source of a value", e))
        };
        let mut next = Vec::with_capacity(1);
        loop {
            self.fill(CHUNK_BYTES, |chunk| read(CHUNK_BYTES - chunk.len(), chunk))?;
            next.clear();
            if read(1, &mut next)? == 0 {
                return Ok(());
            }
            self.fill(1, |chunk| {
                chunk.append(&mut next);
                Ok(())
            })?;
        }
    }
}

impl Write for ValueWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let written = self.fill(bytes.len(), |chunk| {
            let n = bytes.len().min(CHUNK_BYTES - chunk.len());
            chunk.extend_from_slice(&bytes[..n]);
            Ok(n)
        });
        Ok(written?)
    }

    /// Does nothing: a value is durable only with its commit.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for ValueWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueWriter").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Stream {
    /// Appends `chunk` to the value log, and names new files of chunks in the manifest.
    fn add(&mut self, family: &Family, chunk: &[u8]) -> Result<()> {
        let file = self.chunks.add(family, chunk)?;
        self.name(family, file)
    }

    /// Names `file` in the manifest, with all files that were begun before it, if it has no name yet. Files before it are probably
    /// full: they are synced, so that little is left to sync at the end.
    fn name(&mut self, family: &Family, file: VlogId) -> Result<()> {
        if self.named >= Some(file) {
            return Ok(());
        }
        let _reservation = begin_writing(family, 0)?;
        family.ctx.database()?.name_value_logs(&family.core, true)?;
        match self.named.replace(file) {
            Some(_) => sync(family),
            None => Ok(()),
        }
    }

    /// Appends the index of the chunks and makes everything durable.
    fn finish(&mut self, family: &Family) -> Result<(ChunkedPlace, Vec<Lease>)> {
        let (place, leases) = self.chunks.finish(family)?;
        self.name(family, place.index.vlog)?;
        sync(family)?;
        Ok((place, leases))
    }
}

/// Makes durable what was appended to the value logs of `family`.
fn sync(family: &Family) -> Result<()> {
    let synced = family.core.vlog.sync();
    synced.map_err(|e| Error::clone(&family.ctx.poison(e)))
}

impl Family {
    /// Returns a writer of the value of `key`, for values of any length. Nothing is visible until its
    /// [`commit`](ValueWriter::commit).
    ///
    /// # Errors
    /// `InvalidArgument` for an empty or too long key; `NotFound` (dropped family), `ReadOnly`, `Closed`, `Poisoned`; `Busy` if iterators, and
    /// readers and writers of values, hold their share of `memory_limit`.
    pub fn value_writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        ValueWriter::new(self, key.as_ref())
    }

    /// Sets `key` to all that `source` yields, in constant memory. Returns the commit's sequence number.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path())?;
    /// let source = std::io::Read::take(std::io::repeat(b'x'), 5_000_000);
    /// db.put_stream("film", source)?;
    /// assert_eq!(db.get_part("film", 4_999_990..)?.as_deref(), Some(&b"xxxxxxxxxx"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `Io` if reading `source` fails; as [`ValueWriter::commit`]. Unless it is `CommitUnknown`, nothing was committed.
    pub fn put_stream(&self, key: impl AsRef<[u8]>, source: impl Read) -> Result<SeqNo> {
        let mut writer = self.value_writer(key)?;
        writer.read_from(source)?;
        writer.commit()
    }

    /// Returns a reader of the value of `key`, for values of any length.
    ///
    /// # Errors
    /// As [`Family::get`]; `Busy` if iterators, and readers and writers of values, hold their share of `memory_limit`.
    pub fn value_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        Ok(read_at(self, key.as_ref(), None)?.map(ValueReader::detached))
    }

    /// Returns the bytes of the value of `key` in `range`, as far as the value has them. Reads only the chunks that
    /// hold them.
    ///
    /// # Errors
    /// As [`Family::get`]; `MemoryLimit` if the bytes are too many.
    pub fn get_part(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Option<Slice>> {
        read_at(self, key.as_ref(), None)?.map(|reader| reader.range(range)).transpose()
    }
}

fn read_at(family: &Family, key: &[u8], seq: Option<SeqNo>) -> Result<Option<ValueReader>> {
    let view = family.core.owned_view();
    let located = read::locate(&family.ctx.reads, &family.core, &view, key, seq)?;
    located.map(|located| reader_of(family, &view, located)).transpose()
}

fn reader_of(family: &Family, view: &ReadView, located: Located) -> Result<ValueReader> {
    ValueReader::new(&family.core, view, family.ctx.options.read_only, located)
}

fn read_in(tx: &Transaction, family: &Family, key: &[u8]) -> Result<Option<ValueReader>> {
    let view = family.core.owned_view();
    let located = tx.locate(family, key, &view)?;
    located.map(|located| reader_of(family, &view, located)).transpose()
}

impl Db {
    /// Returns a writer of the value of `key`: see [`Family::value_writer`].
    ///
    /// # Errors
    /// As [`Family::value_writer`].
    pub fn value_writer(&self, key: impl AsRef<[u8]>) -> Result<ValueWriter> {
        self.inner.default.value_writer(key)
    }

    /// Sets `key` to all that `source` yields: see [`Family::put_stream`].
    ///
    /// # Errors
    /// As [`Family::put_stream`].
    pub fn put_stream(&self, key: impl AsRef<[u8]>, source: impl Read) -> Result<SeqNo> {
        self.inner.default.put_stream(key, source)
    }

    /// Returns a reader of the value of `key`: see [`Family::value_reader`].
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn value_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.inner.default.value_reader(key)
    }

    /// Returns the bytes of the value of `key` in `range`: see [`Family::get_part`].
    ///
    /// # Errors
    /// As [`Family::get_part`].
    pub fn get_part(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Option<Slice>> {
        self.inner.default.get_part(key, range)
    }
}

impl Snapshot {
    /// Returns a reader of the value of `key` as of the snapshot. It may outlive the snapshot.
    ///
    /// # Errors
    /// As [`Family::get`].
    pub fn value_reader(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.check(family)?;
        Ok(read_at(family, key.as_ref(), Some(self.seq()))?.map(ValueReader::detached))
    }

    /// Returns the bytes of the value of `key` in `range` as of the snapshot, as far as the value has them.
    ///
    /// # Errors
    /// As [`Family::get_part`].
    pub fn get_part(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Slice>> {
        self.check(family)?;
        read_at(family, key.as_ref(), Some(self.seq()))?.map(|reader| reader.range(range)).transpose()
    }
}

impl Transaction {
    /// Sets `key` to all that `source` yields, in constant memory, with the commit of the transaction.
    ///
    /// # Errors
    /// As [`Family::put_stream`] and [`Transaction::put`].
    pub fn put_stream(&mut self, family: &Family, key: impl AsRef<[u8]>, source: impl Read) -> Result<()> {
        self.for_writing(family)?;
        let mut writer = family.value_writer(key)?;
        writer.read_from(source)?;
        writer.join(self)
    }

    /// Returns a reader of the value of `key`, including the transaction's own writes. It may outlive the transaction.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn value_reader(&self, family: &Family, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        Ok(read_in(self, family, key.as_ref())?.map(ValueReader::detached))
    }

    /// Returns the bytes of the value of `key` in `range`, as far as the value has them, including the transaction's
    /// own writes.
    ///
    /// # Errors
    /// As [`Transaction::get`] and [`Family::get_part`].
    pub fn get_part(
        &self,
        family: &Family,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Option<Slice>> {
        read_in(self, family, key.as_ref())?.map(|reader| reader.range(range)).transpose()
    }
}
