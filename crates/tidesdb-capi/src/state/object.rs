//! Objects of the extended interface that one thread uses at a time: batches, readers and writers of values, and builders of tables.

use std::io::{BufRead, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tidesdb::{Error, SeqNo, ValueReader, ValueWriter};

use super::family::Family;
use super::tables::Builder;
use super::writing::{Batch, Writing};
use super::{NO_KEY, OBJECTS, Reading, TRANSACTIONS};
use crate::callback::{self, Receiver};
use crate::failure::{Answer, Failure, invalid};
use crate::handle::{Front, Handle, STALE};

const ENDED: Failure = invalid!("the value was committed or joined: free the writer");

/// An object.
pub(crate) enum Object {
    Batch(Box<Batch>),
    Reader(Box<ValueReader>),
    Writer(Box<Writer>),
    Builder(Box<Builder>),
}

/// The kind of an object, for its free function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ObjectKind {
    Batch = 1,
    Reader,
    Writer,
    Builder,
}

impl Object {
    fn kind(&self) -> ObjectKind {
        match self {
            Self::Batch(_) => ObjectKind::Batch,
            Self::Reader(_) => ObjectKind::Reader,
            Self::Writer(_) => ObjectKind::Writer,
            Self::Builder(_) => ObjectKind::Builder,
        }
    }
}

/// The kind of an object, which a free function sees while a call uses the object. 0 is no kind.
pub(crate) struct Shape(AtomicU8);

impl Front for Shape {
    const NOTHING: Self = Self(AtomicU8::new(0));

    fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Creates the handle of an object.
///
/// # Errors
/// `ERR_MEMORY`.
pub(super) fn insert(object: Object, database: Handle) -> Answer<Handle> {
    let kind = object.kind() as u8;
    OBJECTS.insert_shown(object, database, |shape| shape.0.store(kind, Ordering::Relaxed))
}

/// A writer of a value, until it has ended.
pub(crate) struct Writer {
    engine: Option<ValueWriter>,
    cf: Handle,
    /// Keeps the settings of the family alive.
    _family: Arc<Family>,
}

/// Runs `body` on a batch.
///
/// # Errors
/// `ERR_INVALID_ARGS`, `ERR_BUSY`; those of `body`.
#[inline]
pub(crate) fn batch<R>(handle: Handle, body: impl FnOnce(&mut Batch) -> Answer<R>) -> Answer<R> {
    OBJECTS.with(handle, |object| if let Object::Batch(batch) = object { body(batch) } else { Err(STALE) })
}

fn writer<R>(handle: Handle, body: impl FnOnce(&mut Writer) -> Answer<R>) -> Answer<R> {
    OBJECTS.with(handle, |object| if let Object::Writer(writer) = object { body(writer) } else { Err(STALE) })
}

fn reader<R>(handle: Handle, body: impl FnOnce(&mut ValueReader) -> Answer<R>) -> Answer<R> {
    OBJECTS.with(handle, |object| if let Object::Reader(reader) = object { body(reader) } else { Err(STALE) })
}

/// Creates a batch.
///
/// # Errors
/// Errors of [`super::database`]; `ERR_MEMORY`.
pub(crate) fn new_batch(database: Handle) -> Answer<Handle> {
    let database = super::database(database)?;
    database.engine()?;
    insert(Object::Batch(Box::new(Batch::new(&database))), database.handle())
}

/// Hands the operations of a batch to the thread of its database that commits them. The batch is empty afterwards.
///
/// # Errors
/// `ERR_INVALID_ARGS`, `ERR_INVALID_DB`, `ERR_MEMORY`: the receiver is not called then.
pub(crate) fn commit_in_background(handle: Handle, how: &Writing, receiver: Receiver) -> Answer {
    batch(handle, |batch| {
        let database = Arc::clone(batch.database());
        database.committer().start(database.engine()?)?;
        let (operations, sync) = batch.take(how)?;
        database.committer().commit(operations, sync, receiver)
    })
}

/// Creates a writer of a value.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors.
pub(crate) fn new_writer(cf: Handle, key: &[u8], how: &Writing) -> Answer<Handle> {
    callback::not_in_order()?;
    let family = super::family(cf)?;
    let database = family.database()?;
    let engine = family.engine().value_writer(key)?;
    let engine = engine.expires_at(how.expiry(family.engine())?).sync(how.sync_for(&family, &database));
    let writer = Writer { engine: Some(engine), cf, _family: Arc::clone(&family) };
    insert(Object::Writer(Box::new(writer)), database.handle())
}

/// Appends bytes to a value.
///
/// # Errors
/// `ERR_INVALID_ARGS` after its end; the engine's errors.
pub(crate) fn append(handle: Handle, bytes: &[u8]) -> Answer {
    callback::not_in_order()?;
    writer(handle, |writer| {
        let engine = writer.engine.as_mut().ok_or(ENDED)?;
        engine.write_all(bytes).map_err(failure_of)
    })
}

/// Commits the value of a writer, which ends.
///
/// # Errors
/// As [`append`].
pub(crate) fn commit(handle: Handle) -> Answer<SeqNo> {
    callback::not_in_order()?;
    writer(handle, |writer| Ok(writer.engine.take().ok_or(ENDED)?.commit()?))
}

/// Adds the value of a writer to a transaction. The writer ends.
///
/// # Errors
/// As [`append`]; those of a write of the transaction.
pub(crate) fn join(handle: Handle, txn: Handle) -> Answer {
    callback::not_in_order()?;
    writer(handle, |writer| {
        let cf = writer.cf;
        if writer.engine.is_none() {
            return Err(ENDED);
        }
        TRANSACTIONS.lend(txn)?.write(cf, |txn, _| {
            let engine = writer.engine.take().ok_or(ENDED)?;
            Ok(engine.join(txn)?)
        })
    })
}

/// Creates a reader of a value. Returns it and the length of the value.
///
/// # Errors
/// `ERR_NOT_FOUND`; those of [`Reading::on`]; the engine's errors.
pub(crate) fn new_reader(cf: Handle, key: &[u8], reading: &Reading) -> Answer<(Handle, u64)> {
    reading.on(cf, |view, owner| {
        let database = owner.get()?;
        let reader = view.value_reader(key)?.ok_or(NO_KEY)?;
        let len = reader.len();
        Ok((insert(Object::Reader(Box::new(reader)), database.handle())?, len))
    })
}

/// Reads up to `room` bytes from a value into `out`: from `at` on, or from where the last read ended. Returns the number of bytes, 0 at the end. After
/// an error the next read begins where this one did.
///
/// # Errors
/// `ERR_INVALID_ARGS`; the engine's errors.
pub(crate) fn read(
    handle: Handle,
    at: Option<u64>,
    room: usize,
    mut out: impl FnMut(usize, &[u8]) -> usize,
) -> Answer<usize> {
    reader(handle, |reader| {
        let start = reader.seek(at.map_or(SeekFrom::Current(0), SeekFrom::Start)).map_err(failure_of)?;
        let mut done = 0;
        // A full buffer ends the read: the next piece of the value may be damaged, which is no failure of this read.
        while done < room {
            let bytes = match reader.fill_buf() {
                Ok(bytes) => bytes,
                Err(e) => {
                    let _ = reader.seek(SeekFrom::Start(start)); // only sets the position
                    return Err(failure_of(e));
                }
            };
            let taken = out(done, bytes);
            reader.consume(taken);
            done += taken;
            if taken == 0 {
                break;
            }
        }
        Ok(done)
    })
}

/// Returns the engine's error in an error of a stream.
fn failure_of(e: std::io::Error) -> Failure {
    match e.downcast::<Error>() {
        Ok(error) => error.into(),
        Err(e) => Failure::text_of(crate::abi::ERR_IO, e.to_string()),
    }
}

/// Frees an object of this kind. If a call uses it now, it ends with that call.
///
/// # Errors
/// `ERR_INVALID_ARGS`.
pub(crate) fn free(handle: Handle, kind: ObjectKind) -> Answer {
    if OBJECTS.front_even_lent(handle)?.0.load(Ordering::Relaxed) != kind as u8 {
        return Err(STALE);
    }
    OBJECTS.remove(handle).map(drop)
}
