//! `libtidesdb_s3`: object stores in S3 for the C library, which loads this one when a program asks for such a store. So no other program has the client of
//! HTTP and TLS.
//!
//! The interface is `tidesdb_objects::library`; programs do not call it.
#![allow(unsafe_code, reason = "the interface takes and gives raw pointers")]

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidesdb::ObjectStore;
use tidesdb::store::{Body, Condition, Tag};
use tidesdb_objects::library::{
    DENIED, DONE, EachFn, FAILED, INVALID, NOT_FOUND, REFUSED, Room, STOPPED, Settings, Sink, Source, Store,
    TIMED_OUT, TOO_SHORT, Table, Text, UNSUPPORTED, VERSION,
};
use tidesdb_objects::{S3Options, S3Store, s3};

/// Returns the table of functions, if the caller wants this version of it.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_s3_table(version: u32) -> *const Table {
    if version == VERSION { &raw const TABLE } else { std::ptr::null() }
}

static TABLE: Table =
    Table { version: VERSION, open, close, put, put_if, get, head, list, delete, remove_unfinished };

/// Returns a text of the caller; empty if there is none.
///
/// # Safety
/// It is valid during the call.
unsafe fn text<'a>(text: Text) -> &'a str {
    if text.at.is_null() {
        return "";
    }
    // SAFETY: the caller passes as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.at, text.len) };
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Writes as much of a text as there is room for.
///
/// # Safety
/// The room is valid, and nobody else uses it.
unsafe fn write(text: &str, to: *mut Room) {
    // SAFETY: see above.
    let to = unsafe { &mut *to };
    let mut len = text.len().min(to.room);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    // SAFETY: there is room for as many bytes.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), to.at, len) };
    to.len = len;
}

fn code_of(e: &io::Error) -> i32 {
    match e.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        io::ErrorKind::Unsupported => UNSUPPORTED,
        io::ErrorKind::InvalidInput => INVALID,
        io::ErrorKind::UnexpectedEof => TOO_SHORT,
        io::ErrorKind::TimedOut => TIMED_OUT,
        io::ErrorKind::PermissionDenied => DENIED,
        _ => FAILED,
    }
}

/// Runs the body of a function. It returns [`DONE`] or [`REFUSED`].
///
/// # Safety
/// As [`write`], for the message.
unsafe fn answer(message: *mut Room, body: impl FnOnce() -> io::Result<i32>) -> i32 {
    let (code, text) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(code)) => return code,
        Ok(Err(e)) => (code_of(&e), e.to_string()),
        Err(_) => (FAILED, "libtidesdb_s3 panicked: please report the message on stderr".to_owned()),
    };
    // SAFETY: see above.
    unsafe { write(&text, message) };
    code
}

/// Runs the body of a function on a store.
///
/// # Safety
/// As [`answer`]; the store was opened by [`open`] and not closed.
unsafe fn on(store: Store, message: *mut Room, body: impl FnOnce(&S3Store) -> io::Result<i32>) -> i32 {
    // SAFETY: see above.
    unsafe { answer(message, || body(&*store.cast::<S3Store>())) }
}

fn options(settings: &Settings) -> io::Result<S3Options> {
    // SAFETY: the texts of the settings are valid during the call.
    let get = |of: Text| Some(unsafe { text(of) }).filter(|text| !text.is_empty());
    let bucket = get(settings.bucket)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the store needs a bucket"))?;
    let mut options = S3Options::new(bucket)
        .prefix(get(settings.prefix).unwrap_or_default())
        .allow_http(settings.allow_http != 0)
        .virtual_host(settings.virtual_host != 0)
        .skip_verify(settings.skip_verify != 0);
    if let Some(endpoint) = get(settings.endpoint) {
        options = options.endpoint(endpoint);
    }
    if let Some(region) = get(settings.region) {
        options = options.region(region);
    }
    if let Some(path) = get(settings.ca_file) {
        options = options.ca_file(path);
    }
    options = match (get(settings.key), get(settings.secret)) {
        (Some(key), Some(secret)) => options.keys(key, secret, None),
        (None, None) => options,
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "only one of the two keys is given")),
    };
    if (settings.multipart_from, settings.part_bytes) != (0, 0) {
        let or = |value: u64| if value == 0 { 8 << 20 } else { value };
        options = options.multipart(or(settings.multipart_from), or(settings.part_bytes));
        // The caller sets no time: at least a second for each 64 KiB of a request.
        let longest = or(settings.multipart_from).max(or(settings.part_bytes)) >> 16;
        options = options.timeout(Duration::from_secs(longest.max(60)));
    }
    Ok(options)
}

unsafe extern "C" fn open(settings: *const Settings, store: *mut Store, message: *mut Room) -> i32 {
    // SAFETY: no pointer is null, and all are valid during the call.
    unsafe {
        answer(message, || {
            let opened = s3(options(&*settings)?)?;
            *store = Box::into_raw(Box::new(opened)).cast();
            Ok(DONE)
        })
    }
}

unsafe extern "C" fn close(store: Store) {
    // SAFETY: opened by `open`, and closed once.
    let store = unsafe { Box::from_raw(store.cast::<S3Store>()) };
    let _ = catch_unwind(AssertUnwindSafe(|| drop(store)));
}

/// The caller's source, for a body. It is read by the thread of the call only.
struct Reader<'a>(&'a Source);

// SAFETY: see above: `ObjectStore` of this library reads a body in the thread that passes it.
unsafe impl Sync for Reader<'_> {}

impl Reader<'_> {
    fn read(&self, to: &mut [u8], at: u64) -> io::Result<()> {
        // SAFETY: the source and the buffer are valid during the call.
        match unsafe { (self.0.read)(self.0.ctx, to.as_mut_ptr(), to.len(), at) } {
            DONE => Ok(()),
            _ => Err(stopped()),
        }
    }
}

/// What a source or a sink of the caller has failed with, which the caller keeps.
#[derive(Debug)]
struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped by the caller")
    }
}

impl std::error::Error for Stopped {}

fn stopped() -> io::Error {
    io::Error::other(Stopped)
}

/// Returns [`STOPPED`] for an error that came from the caller.
fn unless_stopped<T>(result: io::Result<T>, done: impl FnOnce(T) -> i32) -> io::Result<i32> {
    match result {
        Ok(found) => Ok(done(found)),
        Err(e) if e.get_ref().is_some_and(|inner| inner.is::<Stopped>()) => Ok(STOPPED),
        Err(e) => Err(e),
    }
}

unsafe extern "C" fn put(store: Store, name: Text, body: *const Source, message: *mut Room) -> i32 {
    // SAFETY: no pointer is null, and all are valid during the call.
    unsafe {
        on(store, message, |store| {
            let reader = Reader(&*body);
            let read = |to: &mut [u8], at: u64| reader.read(to, at);
            unless_stopped(store.put(text(name), &Body::read(reader.0.len, &read)), |()| DONE)
        })
    }
}

unsafe extern "C" fn put_if(
    store: Store,
    name: Text,
    body: *const Source,
    tag: Text,
    new_tag: *mut Room,
    message: *mut Room,
) -> i32 {
    // SAFETY: as for `put`.
    unsafe {
        on(store, message, |store| {
            let reader = Reader(&*body);
            let read = |to: &mut [u8], at: u64| reader.read(to, at);
            let old = (!tag.at.is_null()).then(|| Tag(text(tag).to_owned()));
            let condition = old.as_ref().map_or(Condition::Absent, Condition::Tagged);
            let put = store.put_if(text(name), &Body::read(reader.0.len, &read), condition);
            unless_stopped(put, |put| match put {
                Some(tag) => {
                    write(&tag.0, new_tag);
                    DONE
                }
                None => REFUSED,
            })
        })
    }
}

unsafe extern "C" fn get(
    store: Store,
    name: Text,
    from: u64,
    to: u64,
    sink: *const Sink,
    tag: *mut Room,
    message: *mut Room,
) -> i32 {
    // SAFETY: as for `put`.
    unsafe {
        on(store, message, |store| {
            let sink = &*sink;
            let mut pass = |piece: &[u8]| match (sink.write)(sink.ctx, piece.as_ptr(), piece.len()) {
                DONE => Ok(()),
                _ => Err(stopped()),
            };
            if to == u64::MAX {
                return unless_stopped(store.get_tagged(text(name), &mut pass), |found| {
                    write(&found.0, tag);
                    DONE
                });
            }
            unless_stopped(store.get_range(text(name), from..to, &mut pass), |()| DONE)
        })
    }
}

unsafe extern "C" fn head(
    store: Store,
    name: Text,
    bytes: *mut u64,
    tag: *mut Room,
    message: *mut Room,
) -> i32 {
    // SAFETY: as for `put`.
    unsafe {
        on(store, message, |store| {
            let (len, found) = store.head(text(name))?;
            *bytes = len;
            write(&found.0, tag);
            Ok(DONE)
        })
    }
}

unsafe extern "C" fn list(store: Store, each: EachFn, ctx: *mut c_void, message: *mut Room) -> i32 {
    // SAFETY: as for `put`.
    unsafe {
        on(store, message, |store| {
            for object in store.list()? {
                each(ctx, Text::of(&object.name), object.bytes);
            }
            Ok(DONE)
        })
    }
}

unsafe extern "C" fn delete(store: Store, name: Text, message: *mut Room) -> i32 {
    // SAFETY: as for `put`.
    unsafe { on(store, message, |store| store.delete(text(name)).map(|()| DONE)) }
}

unsafe extern "C" fn remove_unfinished(store: Store, message: *mut Room) -> i32 {
    // SAFETY: as for `put`.
    unsafe { on(store, message, |store| store.remove_unfinished().map(|()| DONE)) }
}
