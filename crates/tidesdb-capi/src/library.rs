//! Object stores in S3, by a library of its own: `libtidesdb_s3`, loaded with the first such store and kept until the process ends.
//!
//! It is looked for at the path in `TIDESDB_S3_LIBRARY`, or else beside this library, or else where the system looks for libraries.

use std::any::Any;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use tidesdb::ObjectStore;
use tidesdb::store::{Body, Condition, Object, Tag};
use tidesdb_io::program;
use tidesdb_objects::library::{
    DENIED, DONE, INVALID, NOT_FOUND, REFUSED, Room, STOPPED, SYMBOL, Settings, Sink, Source, TIMED_OUT,
    TOO_SHORT, Table, TableFn, Text, UNSUPPORTED, VERSION,
};
use tidesdb_sync::Mutex;

use crate::abi::{ERR_INVALID_ARGS, ERR_IO};
use crate::failure::{Answer, Failure};

/// Names another place for the library.
const VARIABLE: &str = "TIDESDB_S3_LIBRARY";
/// Longest message that is passed on.
const MESSAGE_BYTES: usize = 2000;
/// Longest tag of an object.
const TAG_BYTES: usize = 1000;

/// The functions of the library, once it is loaded.
static LOADED: Mutex<Option<Table>> = Mutex::new(None);

/// Loads the library, unless that was done.
///
/// # Errors
/// `ERR_IO` with what is missing and what to do about it.
fn load() -> Answer<Table> {
    let mut loaded = LOADED.lock();
    if let Some(table) = *loaded {
        return Ok(table);
    }
    let file = format!("{DLL_PREFIX}tidesdb_s3{DLL_SUFFIX}");
    let places = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let here = program::file_of_code(load as *const ());
            let beside = here
                .map(|here| here.with_file_name(&file))
                .filter(|beside| beside.is_absolute() && beside.is_file());
            beside.into_iter().chain([PathBuf::from(&file)]).collect()
        }
    };
    let mut why: Vec<String> = Vec::new();
    for place in places {
        let address = match program::load(&place, SYMBOL) {
            Ok(address) => address,
            Err(e) => {
                why.push(e.to_string());
                continue;
            }
        };
        // SAFETY: the symbol of this name is such a function.
        let table = unsafe { std::mem::transmute::<*const (), TableFn>(address)(VERSION) };
        // SAFETY: a table is a static of the library, which is never unloaded.
        match unsafe { table.as_ref() } {
            Some(table) => return Ok(*loaded.insert(*table)),
            None => why.push(format!("{} belongs to another version of libtidesdb", place.display())),
        }
    }
    let why = why.join("; ");
    let text = format!(
        "object stores in S3 need {file}, which cannot be loaded ({why}): install it beside libtidesdb (`cargo xtask install --s3`), or set \
         {VARIABLE} to its path"
    );
    Err(Failure::text_of(ERR_IO, text))
}

/// A store of the library.
pub(crate) struct S3 {
    table: Table,
    store: *mut c_void,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("S3")
    }
}

// SAFETY: the library's stores may be used by several threads at a time, and dropped in any.
unsafe impl Send for S3 {}
// SAFETY: as above.
unsafe impl Sync for S3 {}

impl Drop for S3 {
    fn drop(&mut self) {
        // SAFETY: opened by this table; nobody uses it any more.
        unsafe { (self.table.close)(self.store) }
    }
}

/// Opens a store. No request is made.
///
/// # Errors
/// `ERR_IO` if the library cannot be loaded; `ERR_INVALID_ARGS` for settings that it refuses.
pub(crate) fn open(settings: &Settings) -> Answer<Arc<S3>> {
    let table = load()?;
    let (mut store, mut message) = (std::ptr::null_mut(), Writable::new(MESSAGE_BYTES));
    // SAFETY: all pointers are valid during the call.
    match unsafe { (table.open)(settings, &raw mut store, &raw mut message.room) } {
        DONE => Ok(Arc::new(S3 { table, store })),
        INVALID => Err(Failure::text_of(ERR_INVALID_ARGS, message.text())),
        _ => Err(Failure::text_of(ERR_IO, message.text())),
    }
}

/// Room for a text of the library.
struct Writable {
    bytes: Vec<u8>,
    room: Room,
}

impl Writable {
    fn new(len: usize) -> Self {
        let mut bytes = vec![0; len];
        let room = Room { at: bytes.as_mut_ptr(), room: len, len: 0 };
        Self { bytes, room }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.room.len]).into_owned()
    }
}

/// A function of this library that the other one calls, and how it has failed.
struct Called<F> {
    function: F,
    error: Option<io::Error>,
    panic: Option<Box<dyn Any + Send>>,
}

impl<F> Called<F> {
    fn new(function: F) -> Self {
        Self { function, error: None, panic: None }
    }

    fn run(&mut self, call: impl FnOnce(&mut F) -> io::Result<()>) -> i32 {
        let function = &mut self.function;
        match catch_unwind(AssertUnwindSafe(|| call(function))) {
            Ok(Ok(())) => return DONE,
            Ok(Err(e)) => self.error = Some(e),
            Err(panic) => self.panic = Some(panic),
        }
        STOPPED
    }

    /// Returns the result of a call that used the function.
    fn result(self, code: i32, message: &Writable) -> io::Result<i32> {
        if let Some(panic) = self.panic {
            resume_unwind(panic);
        }
        match self.error {
            Some(e) if code == STOPPED => Err(e),
            _ => result(code, message),
        }
    }
}

fn result(code: i32, message: &Writable) -> io::Result<i32> {
    let kind = match code {
        DONE | REFUSED => return Ok(code),
        NOT_FOUND => io::ErrorKind::NotFound,
        UNSUPPORTED => io::ErrorKind::Unsupported,
        INVALID => io::ErrorKind::InvalidInput,
        TOO_SHORT => io::ErrorKind::UnexpectedEof,
        TIMED_OUT => io::ErrorKind::TimedOut,
        DENIED => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    Err(io::Error::new(kind, message.text()))
}

type Reader<'a> = Called<&'a Body<'a>>;

unsafe extern "C" fn read(ctx: *mut c_void, to: *mut u8, len: usize, at: u64) -> i32 {
    // SAFETY: the reader that `body` has passed, whose call waits for this one, and a buffer of the library.
    let (reader, to) = unsafe { (&mut *ctx.cast::<Reader<'_>>(), std::slice::from_raw_parts_mut(to, len)) };
    reader.run(|body| body.read_exact_at(to, at))
}

type Writer<'a> = Called<&'a mut dyn FnMut(&[u8]) -> io::Result<()>>;

unsafe extern "C" fn write(ctx: *mut c_void, from: *const u8, len: usize) -> i32 {
    // SAFETY: the writer that `S3::read` has passed, whose call waits for this one, and bytes of the library.
    let (writer, from) = unsafe { (&mut *ctx.cast::<Writer<'_>>(), std::slice::from_raw_parts(from, len)) };
    writer.run(|sink| sink(from))
}

unsafe extern "C" fn collect(ctx: *mut c_void, name: Text, bytes: u64) {
    // SAFETY: the list that `list` has passed, whose call waits for this one, and a text of the library.
    let (all, name) =
        unsafe { (&mut *ctx.cast::<Vec<Object>>(), std::slice::from_raw_parts(name.at, name.len)) };
    all.push(Object { name: String::from_utf8_lossy(name).into_owned(), bytes });
}

impl S3 {
    fn read(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Tag> {
        let mut writer: Writer<'_> = Called::new(sink);
        let (mut message, mut tag) = (Writable::new(MESSAGE_BYTES), Writable::new(TAG_BYTES));
        let to = Sink { ctx: (&raw mut writer).cast(), write };
        let Range { start, end } = range.unwrap_or(0..u64::MAX);
        // SAFETY: all pointers are valid during the call.
        let code = unsafe {
            (self.table.get)(
                self.store,
                Text::of(name),
                start,
                end,
                &raw const to,
                &raw mut tag.room,
                &raw mut message.room,
            )
        };
        writer.result(code, &message).map(|_| Tag(tag.text()))
    }

    /// Returns the length and the tag of an object.
    ///
    /// # Errors
    /// `NotFound`; any other.
    pub(crate) fn head(&self, name: &str) -> io::Result<(u64, Tag)> {
        let (mut message, mut tag, mut bytes) = (Writable::new(MESSAGE_BYTES), Writable::new(TAG_BYTES), 0);
        // SAFETY: all pointers are valid during the call.
        let code = unsafe {
            (self.table.head)(
                self.store,
                Text::of(name),
                &raw mut bytes,
                &raw mut tag.room,
                &raw mut message.room,
            )
        };
        result(code, &message).map(|_| (bytes, Tag(tag.text())))
    }
}

impl ObjectStore for S3 {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let mut reader: Reader<'_> = Called::new(body);
        let mut message = Writable::new(MESSAGE_BYTES);
        let source = Source { ctx: (&raw mut reader).cast(), len: body.len(), read };
        // SAFETY: all pointers are valid during the call.
        let code =
            unsafe { (self.table.put)(self.store, Text::of(name), &raw const source, &raw mut message.room) };
        reader.result(code, &message).map(drop)
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.read(name, None, sink).map(drop)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let (mut all, mut message) = (Vec::<Object>::new(), Writable::new(MESSAGE_BYTES));
        let into = (&raw mut all).cast();
        // SAFETY: all pointers are valid during the call.
        let code = unsafe { (self.table.list)(self.store, collect, into, &raw mut message.room) };
        result(code, &message).map(|_| all)
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let mut message = Writable::new(MESSAGE_BYTES);
        // SAFETY: all pointers are valid during the call.
        let code = unsafe { (self.table.delete)(self.store, Text::of(name), &raw mut message.room) };
        result(code, &message).map(drop)
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.read(name, Some(range), sink).map(drop)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        self.read(name, None, sink)
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        let mut reader: Reader<'_> = Called::new(body);
        let (mut message, mut tag) = (Writable::new(MESSAGE_BYTES), Writable::new(TAG_BYTES));
        let source = Source { ctx: (&raw mut reader).cast(), len: body.len(), read };
        let old = match condition {
            Condition::Absent => Text::NONE,
            Condition::Tagged(tag) => Text::of(&tag.0),
        };
        // SAFETY: all pointers are valid during the call.
        let code = unsafe {
            (self.table.put_if)(
                self.store,
                Text::of(name),
                &raw const source,
                old,
                &raw mut tag.room,
                &raw mut message.room,
            )
        };
        let code = reader.result(code, &message)?;
        Ok((code == DONE).then(|| Tag(tag.text())))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        let mut message = Writable::new(MESSAGE_BYTES);
        // SAFETY: all pointers are valid during the call.
        let code = unsafe { (self.table.remove_unfinished)(self.store, &raw mut message.room) };
        result(code, &message).map(drop)
    }
}
