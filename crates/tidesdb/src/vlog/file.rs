//! One value log file: reserving space, writing and reading records.
//!
//! Appenders reserve space with one atomic addition and then write in parallel. `reserved` only grows. A reservation is
//! valid if it starts below `bytes_max`, so exactly one valid reservation reaches `bytes_max`; it is the last one and
//! sets `end`. `settled` counts the bytes of reservations whose write has ended, successfully or not. Once `settled`
//! equals `end`, no thread will write to the file again. `dirty` is set after each write and before the write is added
//! to `settled`, so a thread that reads `settled == end` also sees every `dirty` flag.

use std::collections::TryReserveError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidesdb_io::{Access, Advice, Dir, File, FileExt};

use super::budget::Counted;
use super::format::{FILE_HEADER_BYTES, FileHeader, RECORD_HEADER_BYTES, UNNUMBERED, VlogRecordHeader};
use super::{VlogPointer, scratch};
use crate::codec::{Compression, Salt, compress_bound, compress_to, decompress, decompress_into};
use crate::stats::counts::{self, Counter};
use crate::types::{FILE_BYTES_MAX, FamilyId, VALUE_BYTES_MAX, VlogId};
use crate::{Error, Result, files};

/// Uncompressed payloads up to this length are copied after their header, to save a system call; longer ones are not
/// copied.
const ONE_CALL_BYTES_MAX: usize = 64 << 10;
/// Memory for more bytes than this is not grown but new. Groups of records stay below it: they grow record by record.
const NEW_MEMORY_BYTES: usize = 1 << 20;
/// Maximum bytes of a record to prefetch. A longer read keeps the disk busy on its own.
const AHEAD_BYTES_MAX: u64 = 128 << 10;

/// An open value log file.
#[derive(Debug)]
pub(super) struct VlogFile {
    pub(super) id: VlogId,
    pub(super) salt: Salt,
    name: Arc<str>,
    file: Arc<dyn File>,
    /// The size limit: a file of this many bytes is full.
    pub(super) bytes_max: u64,
    reserved: AtomicU64,
    /// Offset where the last record ends; 0 while records may still be appended.
    end: AtomicU64,
    settled: AtomicU64,
    dirty: AtomicBool,
    /// True once the name and the header are durable.
    is_durable: AtomicBool,
    /// File length when it was last checked.
    len_seen: AtomicU64,
    is_foreign: bool,
    /// The file's share of the write budget; `None` if it is open only for reading or has no budget.
    _counted: Option<Counted>,
    /// Shared by the file and by the leases on it.
    pub(super) users: Arc<()>,
}

/// Held by code that may still write a reference to a value that it appended, such as a batch that is not in the log
/// yet. A value log is sealed only when no lease on it is left.
#[derive(Clone, Debug)]
pub struct Lease(Arc<()>);

impl Lease {
    /// Returns whether both are on the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Adds this lease to `leases`, unless the last one there is on the same file.
    pub fn add_to(self, leases: &mut Vec<Self>) {
        if leases.last().is_none_or(|last| !last.is_same(&self)) {
            leases.push(self);
        }
    }
}

/// Writes a record to `buf` from `at` on: space for its header, and the payload if it is compressed or small. Returns its compression and
/// where it ends, or `None` if the payload is the value itself and too long to be worth a copy. The length of `buf` only grows, so that
/// memory that is used again is not zeroed again.
fn prepare(
    value: &[u8],
    compression: Compression,
    buf: &mut Vec<u8>,
    at: usize,
) -> Option<(Compression, usize)> {
    let start = at + RECORD_HEADER_BYTES;
    // Without memory for its compressed form, a value is stored as it is.
    if make_room(buf, start.saturating_add(compress_bound(compression, value.len()))).is_ok()
        && let Some(bytes) = compress_to(compression, value, &mut buf[start..])
    {
        return Some((compression, start + bytes));
    }
    let is_copied = value.len() <= ONE_CALL_BYTES_MAX;
    let end = start + if is_copied { value.len() } else { 0 };
    buf.resize(buf.len().max(end), 0);
    is_copied.then(|| {
        buf[start..end].copy_from_slice(value);
        (Compression::None, end)
    })
}

/// Makes `buf` at least `len` bytes long and keeps what is in it. Long memory is new: the system hands it out as zeros, and only when it
/// is touched, so a gigabyte of room for a compressed value takes only the memory that the value fills.
///
/// # Errors
/// There is not enough memory; `buf` is unchanged.
fn make_room(buf: &mut Vec<u8>, len: usize) -> Result<(), TryReserveError> {
    if buf.len() >= len {
        return Ok(());
    }
    if len > buf.capacity().max(NEW_MEMORY_BYTES) {
        let mut long = tidesdb_io::zeroed(len)?;
        long[..buf.len()].copy_from_slice(buf);
        *buf = long;
        return Ok(());
    }
    buf.try_reserve(len - buf.len())?;
    buf.resize(len, 0);
    Ok(())
}

/// Records that are written with one call.
#[derive(Debug)]
pub(super) struct RecordGroup<'b> {
    buf: &'b mut Vec<u8>,
    /// Where the last record in `buf` ends.
    end: usize,
    /// Start of each record in `buf`, and its header, which is not bound to an offset yet.
    records: Vec<(usize, VlogRecordHeader)>,
}

impl<'b> RecordGroup<'b> {
    /// Creates an empty group that uses the memory of `buf`.
    pub(super) fn new(buf: &'b mut Vec<u8>) -> Self {
        Self { buf, end: 0, records: Vec::new() }
    }

    /// Adds `value`. Returns `false` if it is so long that the caller should append it separately.
    pub(super) fn add(&mut self, value: &[u8], compression: Compression) -> bool {
        if value.len() > ONE_CALL_BYTES_MAX {
            return false;
        }
        let at = self.end;
        let Some((codec, end)) = prepare(value, compression, self.buf, at) else { return false };
        let payload = &self.buf[at + RECORD_HEADER_BYTES..end];
        self.records.push((at, VlogRecordHeader::new(payload, value.len() as u32, codec)));
        self.end = end;
        true
    }

    pub(super) fn bytes(&self) -> usize {
        self.end
    }
}

impl VlogFile {
    /// Creates the file. Its header is durable after a sync of the file, and its name after one of the directory.
    pub(super) fn create(
        dir: &dyn Dir,
        header: FileHeader,
        bytes_max: u64,
        counted: Option<Counted>,
    ) -> Result<Self> {
        Self::create_named(dir, files::vlog(header.vlog).into(), header, bytes_max, counted)
    }

    /// Creates the file `name` of values that belong to no database.
    pub(super) fn create_foreign(dir: &dyn Dir, name: &str, salt: Salt) -> Result<Self> {
        let file = Self::create_named(dir, name.into(), FileHeader::unnumbered(salt), FILE_BYTES_MAX, None)?;
        Ok(Self { id: UNNUMBERED, ..file })
    }

    fn create_named(
        dir: &dyn Dir,
        name: Arc<str>,
        header: FileHeader,
        bytes_max: u64,
        counted: Option<Counted>,
    ) -> Result<Self> {
        let file = dir.create_new(&name, 0).map_err(|e| Error::io("create", &name, e))?;
        if let Err(e) = file.write_all_at(&header.encode(), 0) {
            // If this fails too, the next open sets the file aside, because nothing refers to it.
            let _ = dir.unlink(&name);
            return Err(Error::io("write", &name, e));
        }
        let (dirty, is_durable) = (true.into(), false.into());
        Ok(Self { dirty, is_durable, _counted: counted, ..Self::with(file, name, header, bytes_max) })
    }

    /// Opens a file of an earlier session for reading.
    pub(super) fn open(dir: &dyn Dir, family: FamilyId, vlog: VlogId) -> Result<Self> {
        let name: Arc<str> = files::vlog(vlog).into();
        let file = dir.open(&name, Access::Random).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::corrupt(&name, 0, "the value log is missing"),
            _ => Error::io("open", &name, e),
        })?;
        let mut bytes = [0; FILE_HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(|e| short_is_corrupt(e, &name, 0))?;
        let mut header = FileHeader::decode(&bytes, &name)?;
        let is_foreign = header.is_unnumbered();
        if is_foreign {
            (header.family, header.vlog) = (family, vlog);
        }
        if header.vlog != vlog || header.family != family {
            return Err(Error::corrupt(
                &name,
                12,
                "the file belongs to another family or has another number",
            ));
        }
        let len = file.len().map_err(|e| Error::io("stat", &name, e))?;
        Ok(Self { end: len.into(), settled: len.into(), is_foreign, ..Self::with(file, name, header, 0) })
    }

    /// Returns whether the file was written outside of the database: the pointers in it know it as [`UNNUMBERED`].
    pub(super) fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    fn with(file: Arc<dyn File>, name: Arc<str>, header: FileHeader, bytes_max: u64) -> Self {
        let start = FILE_HEADER_BYTES as u64;
        Self {
            id: header.vlog,
            salt: header.salt,
            name,
            file,
            bytes_max,
            reserved: AtomicU64::new(start),
            end: AtomicU64::new(0),
            settled: AtomicU64::new(start),
            dirty: AtomicBool::new(false),
            is_durable: AtomicBool::new(true),
            len_seen: AtomicU64::new(start),
            is_foreign: false,
            _counted: None,
            users: Arc::default(),
        }
    }

    /// Returns a lease. Taken before an append, so that the file cannot seem unused in between.
    pub(super) fn lease(&self) -> Lease {
        Lease(Arc::clone(&self.users))
    }

    /// Appends `value`. Returns `None` if the file is full.
    pub(super) fn append(&self, value: &[u8], compression: Compression) -> Result<Option<VlogPointer>> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::invalid(format!("a value is longer than {VALUE_BYTES_MAX} bytes")));
        }
        if self.is_full() {
            return Ok(None); // saves compressing the value
        }
        scratch::with(|buf| {
            let raw_len = value.len() as u32;
            match prepare(value, compression, buf, 0) {
                Some((codec, end)) => {
                    let header = VlogRecordHeader::new(&buf[RECORD_HEADER_BYTES..end], raw_len, codec);
                    self.append_record(header, &mut buf[..end], &[])
                }
                None => {
                    let header = VlogRecordHeader::new(value, raw_len, Compression::None);
                    self.append_record(header, &mut buf[..RECORD_HEADER_BYTES], value)
                }
            }
        })
    }

    /// Writes the record in `buf`, followed by `rest`. Fills in the record header first. Returns `None` if the file is full.
    pub(super) fn append_record(
        &self,
        mut header: VlogRecordHeader,
        buf: &mut [u8],
        rest: &[u8],
    ) -> Result<Option<VlogPointer>> {
        let placed = self.place((buf.len() + rest.len()) as u64, |offset| {
            header.bind(&self.salt, offset);
            buf[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode());
            self.file.write_all_at(buf, offset)?;
            if rest.is_empty() { Ok(()) } else { self.file.write_all_at(rest, offset + buf.len() as u64) }
        })?;
        Ok(placed.map(|offset| header.pointer(self.id, offset)))
    }

    /// Appends the records of `group` with one write, adds their pointers to `out` and empties the group. Returns
    /// `false` and does nothing if the file is full.
    pub(super) fn append_group(
        &self,
        group: &mut RecordGroup<'_>,
        out: &mut Vec<VlogPointer>,
    ) -> Result<bool> {
        let RecordGroup { buf, end, records } = group;
        let buf = &mut buf[..*end];
        let placed = self.place(buf.len() as u64, |offset| {
            for (at, header) in records.iter_mut() {
                header.bind(&self.salt, offset + *at as u64);
                buf[*at..*at + RECORD_HEADER_BYTES].copy_from_slice(&header.encode());
            }
            self.file.write_all_at(buf, offset)
        })?;
        let Some(offset) = placed else {
            return Ok(false);
        };
        out.extend(records.drain(..).map(|(at, header)| header.pointer(self.id, offset + at as u64)));
        *end = 0;
        Ok(true)
    }

    /// Reserves `bytes` and calls `write` with their offset. Returns `None` if the file is full.
    fn place(&self, bytes: u64, write: impl FnOnce(u64) -> io::Result<()>) -> Result<Option<u64>> {
        let Some(offset) = self.reserve(bytes) else {
            return Ok(None);
        };
        let written = write(offset);
        self.dirty.store(true, Ordering::SeqCst);
        self.settled.fetch_add(bytes, Ordering::SeqCst);
        written.map_err(|e| Error::io_at("write", &self.name, offset, e))?;
        Ok(Some(offset))
    }

    fn is_full(&self) -> bool {
        self.reserved.load(Ordering::Relaxed) >= self.bytes_max
    }

    fn reserve(&self, bytes: u64) -> Option<u64> {
        let offset = self.reserved.fetch_add(bytes, Ordering::SeqCst);
        if offset >= self.bytes_max {
            return None;
        }
        if offset + bytes >= self.bytes_max {
            self.end.store(offset + bytes, Ordering::SeqCst);
        }
        Some(offset)
    }

    /// Ends the file: no further record can be reserved.
    pub(super) fn close(&self) {
        let end = self.reserved.fetch_add(self.bytes_max, Ordering::SeqCst);
        if end < self.bytes_max {
            self.end.store(end, Ordering::SeqCst);
        }
    }

    /// Returns the final length once no thread will write to the file any more.
    pub(super) fn sealed_len(&self) -> Option<u64> {
        let end = self.end.load(Ordering::SeqCst);
        (end != 0 && self.settled.load(Ordering::SeqCst) == end).then_some(end)
    }

    /// Returns the length if no write is in progress: the bytes below it will not change.
    pub(super) fn quiet_len(&self) -> Option<u64> {
        // The order of the loads matters: `reserved` only grows, and `settled` never exceeds it.
        let settled = self.settled.load(Ordering::SeqCst);
        (self.reserved.load(Ordering::SeqCst) == settled).then_some(settled).or_else(|| self.sealed_len())
    }

    /// Returns the number of bytes whose writes have ended, file header included.
    pub(super) fn settled_len(&self) -> u64 {
        self.settled.load(Ordering::SeqCst)
    }

    /// Returns whether bytes were written since the last sync started.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Returns whether the name and the header are durable.
    pub(super) fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::SeqCst)
    }

    /// Notes that the directory was synced after the file.
    pub(super) fn set_durable(&self) {
        self.is_durable.store(true, Ordering::SeqCst);
    }

    /// Makes durable everything appended before the call. Two threads must not call it at the same time.
    pub(super) fn sync(&self) -> Result<()> {
        if self.dirty.swap(false, Ordering::SeqCst) {
            self.file.sync_data().map_err(|e| Error::io("sync", &self.name, e))?;
        }
        Ok(())
    }

    /// Starts loading the records from `first` to `last`, which are near each other; of a single long one, its beginning.
    pub(super) fn load_ahead(&self, first: &VlogPointer, last: &VlogPointer) {
        if self.check_range(last).is_ok() {
            let len = last.offset + last.record_bytes() - first.offset;
            let len = if first == last { len.min(AHEAD_BYTES_MAX) } else { len };
            let _ = self.file.advise(Advice::WillNeed, first.offset, len); // a hint
        }
    }

    /// Starts loading the blocks of the file that hold the record, as far as `is_new` returns true for their numbers.
    pub(super) fn load_blocks_ahead(
        &self,
        pointer: &VlogPointer,
        block_bytes: u64,
        mut is_new: impl FnMut(usize) -> bool,
    ) {
        if self.check_range(pointer).is_err() {
            return;
        }
        let len = pointer.record_bytes().clamp(1, AHEAD_BYTES_MAX);
        let blocks = pointer.offset / block_bytes..=(pointer.offset + len - 1) / block_bytes;
        for block in blocks.filter(|block| is_new(*block as usize)) {
            let _ = self.file.advise(Advice::WillNeed, block * block_bytes, block_bytes); // a hint
        }
    }

    /// Returns the value that `pointer` addresses; `pointer` must name this file.
    pub(super) fn read(&self, pointer: &VlogPointer) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        if pointer.raw_len == pointer.disk_len && pointer.disk_len as usize > ONE_CALL_BYTES_MAX {
            self.check_range(pointer)?;
            value = tidesdb_io::zeroed(pointer.raw_len as usize).map_err(no_memory)?;
            self.read_to(pointer, &mut value)?;
        } else {
            self.read_into(pointer, &mut value)?;
        }
        Ok(value)
    }

    /// Reads the records `wanted[i]` for all `i` in `group`, which are in ascending order and near each other, with one
    /// call. Passes each value to `visit`.
    pub(super) fn read_group(
        &self,
        wanted: &[VlogPointer],
        group: &[usize],
        visit: &mut impl FnMut(usize, Result<Vec<u8>>),
    ) {
        let (Some(&first), Some(&last)) = (group.first(), group.last()) else { return };
        let (start, last) = (wanted[first].offset, &wanted[last]);
        scratch::with(|buf| {
            let whole = self.check_range(last).and_then(|()| {
                buf.resize((last.offset + last.record_bytes() - start) as usize, 0);
                self.read_exact(buf, start)
            });
            for &i in group {
                let p = &wanted[i];
                count_read(p);
                let at = (p.offset - start) as usize;
                let value =
                    whole.clone().and_then(|()| self.value_in(p, &buf[at..at + p.record_bytes() as usize]));
                visit(i, value);
            }
        });
    }

    /// Returns the value of the record that `pointer` names, whose bytes are `record`.
    fn value_in(&self, pointer: &VlogPointer, record: &[u8]) -> Result<Vec<u8>> {
        let (header, payload) = self.verify(pointer, record)?;
        let mut value = Vec::new();
        self.decode_into(pointer, &header, payload, &mut value)?;
        Ok(value)
    }

    /// Replaces the content of `value` by the value that `pointer` addresses. Unlike [`VlogFile::read`], reuses memory.
    pub(super) fn read_into(&self, pointer: &VlogPointer, value: &mut Vec<u8>) -> Result<()> {
        count_read(pointer);
        scratch::with(|buf| {
            let (header, payload) = self.read_record(pointer, buf)?;
            self.decode_into(pointer, &header, payload, value)
        })
    }

    /// Reads the value that `pointer` addresses into `out`, which has its length.
    pub(super) fn read_to(&self, pointer: &VlogPointer, out: &mut [u8]) -> Result<()> {
        count_read(pointer);
        if pointer.raw_len == pointer.disk_len && pointer.raw_len as usize == out.len() {
            self.check_range(pointer)?;
            let mut head = [0; RECORD_HEADER_BYTES];
            self.read_exact(&mut head, pointer.offset)?;
            let header = self.check_header(pointer, &head)?;
            self.read_exact(out, pointer.offset + RECORD_HEADER_BYTES as u64)?;
            return self.check_payload(pointer, &header, out);
        }
        scratch::with(|buf| {
            let (header, payload) = self.read_record(pointer, buf)?;
            decompress(header.codec, payload, out, |what| self.corrupt(pointer.offset, what))
        })
    }

    /// Replaces the content of `value` by the value that the verified record at `pointer` stores as `payload`.
    fn decode_into(
        &self,
        pointer: &VlogPointer,
        header: &VlogRecordHeader,
        payload: &[u8],
        value: &mut Vec<u8>,
    ) -> Result<()> {
        if header.codec == Compression::None {
            value.clear();
            value.try_reserve_exact(payload.len()).map_err(no_memory)?;
            value.extend_from_slice(payload);
            return Ok(());
        }
        let corrupt = |what: &str| self.corrupt(pointer.offset, what);
        decompress_into(header.codec, payload, header.raw_len as usize, value, corrupt)
    }

    /// Damage in the value that the valid record at `pointer` stores.
    #[cold]
    pub(super) fn damaged(&self, pointer: &VlogPointer, what: &str) -> Error {
        self.corrupt(pointer.offset + RECORD_HEADER_BYTES as u64, what)
    }

    /// Verifies the record that `pointer` names.
    pub(super) fn check(&self, pointer: &VlogPointer) -> Result<()> {
        scratch::with(|buf| self.read_record(pointer, buf).map(drop))
    }

    /// Reads and verifies the record that `pointer` names. Returns its header and its stored payload, which lies in
    /// `buf`.
    pub(super) fn read_record<'b>(
        &self,
        pointer: &VlogPointer,
        buf: &'b mut Vec<u8>,
    ) -> Result<(VlogRecordHeader, &'b [u8])> {
        self.check_range(pointer)?;
        // With addresses of 32 bits, no buffer is as long as the longest value.
        let bytes = RECORD_HEADER_BYTES.saturating_add(pointer.disk_len as usize);
        make_room(buf, bytes).map_err(no_memory)?;
        let record = &mut buf[..bytes];
        self.read_exact(record, pointer.offset)?;
        self.verify(pointer, record)
    }

    /// Verifies a record, and returns its header and its stored payload.
    fn verify<'b>(&self, pointer: &VlogPointer, record: &'b [u8]) -> Result<(VlogRecordHeader, &'b [u8])> {
        let (head, payload) = record.split_at(RECORD_HEADER_BYTES);
        let header = self.check_header(pointer, head)?;
        self.check_payload(pointer, &header, payload)?;
        Ok((header, payload))
    }

    fn check_header(&self, pointer: &VlogPointer, head: &[u8]) -> Result<VlogRecordHeader> {
        let header = VlogRecordHeader::decode(head, &self.salt, pointer.offset)
            .ok_or_else(|| self.corrupt(pointer.offset, "checksum mismatch in a record header"))?;
        if header.pointer(self.id, pointer.offset) == *pointer {
            Ok(header)
        } else {
            Err(self.corrupt(pointer.offset, "the pointer belongs to another record"))
        }
    }

    fn check_payload(&self, pointer: &VlogPointer, header: &VlogRecordHeader, payload: &[u8]) -> Result<()> {
        if header.payload_matches(payload) {
            Ok(())
        } else {
            Err(self.corrupt(pointer.offset, "checksum mismatch in a value"))
        }
    }

    /// Refuses a pointer beyond the end of the file, before memory is allocated.
    pub(super) fn check_range(&self, pointer: &VlogPointer) -> Result<()> {
        let end = pointer.offset.saturating_add(pointer.record_bytes());
        if end > self.len_seen.load(Ordering::Relaxed) {
            let len = self.len()?;
            self.len_seen.store(len, Ordering::Relaxed);
            if end > len {
                return Err(self.corrupt(pointer.offset, "a pointer leads beyond the end of the file"));
            }
        }
        Ok(())
    }

    pub(super) fn len(&self) -> Result<u64> {
        self.file.len().map_err(|e| Error::io("stat", &self.name, e))
    }

    pub(super) fn read_exact(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|e| short_is_corrupt(e, &self.name, offset))
    }

    #[cold]
    fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::corrupt(&self.name, offset, what)
    }
}

/// Counts a read of a value in this thread.
fn count_read(pointer: &VlogPointer) {
    counts::add(Counter::LogValues, 1);
    counts::add(Counter::LogValueBytes, pointer.record_bytes());
}

fn no_memory(_: TryReserveError) -> Error {
    Error::MemoryLimit { what: "reading a value".into() }
}

fn short_is_corrupt(e: io::Error, name: &str, offset: u64) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::corrupt(name, offset, "unexpected end of file"),
        _ => Error::io_at("read", name, offset, e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_keeps_what_is_there_and_is_zero_behind_it() {
        for len in [0, 5, NEW_MEMORY_BYTES, NEW_MEMORY_BYTES + 1, 9 << 20] {
            let mut buf = b"first".to_vec();
            make_room(&mut buf, len).unwrap();
            assert_eq!((&buf[..5], buf.len()), (&b"first"[..], len.max(5)));
            assert!(buf[5..].iter().all(|&byte| byte == 0));
            make_room(&mut buf, 3).unwrap();
            assert_eq!(buf.len(), len.max(5), "never shorter");
        }
    }
}
