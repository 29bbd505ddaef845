//! Connectors to object stores: tables of functions, either the library's own, for directories and for S3, or the caller's.
//!
//! By the headers, the caller guarantees that the functions and the context of a connector may be used from any
//! thread, by several at a time, until `destroy` is called, and that they return and fill their out parameters.
//! When `tidesdb_open` succeeds, the database owns the connector: closing it calls `destroy` and frees the
//! connector.
//!
//! A caller may replace functions in the table of the library's connector, or copy functions from it, to do more than it does. So the
//! library goes around a table only if all of it is its own.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tidesdb::ObjectStore;
use tidesdb::store::{Body, Condition, DirectoryStore, Object, Tag};
use tidesdb_io::program;
use tidesdb_objects::library::Settings;
use tidesdb_sync::Mutex;

use crate::abi::{
    BACKEND_FS, BACKEND_S3, Code, ERR_CONFLICT, ERR_IO, ERR_NOT_FOUND, ETAG_BYTES, ListFn, Objstore,
    PUT_IF_MATCH, PUT_IF_NONE_MATCH, PUT_OVERWRITE, SUCCESS,
};
use crate::callback::Inside;
use crate::failure::{Answer, Failure, answer, answer_or, invalid, told};
use crate::gate::Gate;
use crate::library::{self, S3};
use crate::memory::{self, FreeFn};
use crate::pointer::{In, Out};

/// Number of bytes copied at a time between a store and a file.
const PIECE: usize = 1 << 20;
/// Prefix of the names of temporary files that pass objects to and from a caller's functions, in the folder of
/// the database.
const SCRATCH: &str = "connector.";

const IN_USE: Failure = invalid!("the object store is used by a database, or by backups");
const INCOMPLETE: Failure = invalid!("the object store lacks put, get, list or delete_object");

const CONDITION: Failure = told!(ERR_CONFLICT, "the condition of the put does not hold");
const UNKNOWN_CONDITION: Failure = invalid!("the put has no condition of this number");
const FOREIGN: Failure =
    invalid!("the store must be an unchanged result of tidesdb_objstore_fs_create or _s3_create");

/// A connector in use.
#[derive(Debug)]
pub(crate) struct Connector {
    raw: Raw,
    /// The calls of its functions; shut once it is destroyed.
    calls: Gate,
    /// The store itself, if the library created the connector and nobody changed it.
    own: Option<Own>,
    folder: PathBuf,
    scratch: AtomicU64,
}

/// The caller's table, and its address.
#[derive(Clone, Copy, Debug)]
struct Raw {
    at: *mut Objstore,
    table: Objstore,
}

// SAFETY: a table of functions and a context that is only passed back to them. The caller guarantees that they
// may run in any thread, see above.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Drop for Connector {
    fn drop(&mut self) {
        if self.own.is_some()
            && let Some(made) = MADE.lock().get_mut(&self.raw.table.ctx.addr())
        {
            made.in_use = false; // the caller still owns it
        }
    }
}

impl Connector {
    /// Creates the adapter for the connector at `at`, for a database in `folder`. The caller owns the connector
    /// until [`Connector::retire`].
    ///
    /// # Errors
    /// `ERR_INVALID_ARGS` if a required function is missing.
    pub(crate) fn new(at: *mut Objstore, folder: &Path) -> Answer<Self> {
        let table = *In::from_caller(at).get()?;
        let all = table.put.is_some() && table.get.is_some() && table.list.is_some();
        if !all || table.delete_object.is_none() {
            return Err(INCOMPLETE);
        }
        let own = own_store(&table);
        if own.is_some() {
            begin_use(table.ctx)?;
        }
        Ok(Self {
            own,
            raw: Raw { at, table },
            calls: Gate::default(),
            // A program may change its folder later.
            folder: std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned()),
            scratch: AtomicU64::new(0),
        })
    }

    /// Returns the store for the engine. If the connector is the library's own, this is the underlying store
    /// itself.
    pub(crate) fn store(self: &Arc<Self>) -> Arc<dyn ObjectStore> {
        match &self.own {
            Some(own) => own.store(),
            None => Arc::<Self>::clone(self),
        }
    }

    /// Returns the name shown in statistics.
    pub(crate) fn name(&self) -> &'static CStr {
        match self.raw.table.backend {
            BACKEND_FS => c"fs",
            BACKEND_S3 => c"s3",
            _ => c"unknown",
        }
    }

    /// Destroys the connector after running calls have ended. Called when the database is closed.
    pub(crate) fn retire(&self) {
        if !self.calls.shut() {
            return;
        }
        self.calls.wait();
        let Raw { at, table } = self.raw;
        let free = free_of(at); // `destroy` forgets it
        if let Some(destroy) = table.destroy {
            // SAFETY: no call is running and none can follow; the caller guarantees the rest, see above.
            unsafe { destroy(table.ctx) };
        }
        // SAFETY: the caller allocated it with `malloc`, or the library with the partner of `free`. Nothing uses it any more.
        unsafe { free(at.cast()) };
    }

    /// Removes temporary files of crashed processes. The folder is locked by this process.
    pub(crate) fn remove_leftovers(&self) {
        let own = format!("{SCRATCH}{}.", std::process::id());
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(SCRATCH) && !name.starts_with(&own) {
                let _ = fs::remove_file(entry.path()); // on failure, the next open tries again
            }
        }
    }

    /// Calls one of the functions, unless the connector is retired.
    fn call<R>(&self, call: impl FnOnce(&Objstore) -> R) -> io::Result<R> {
        let _pass = self.calls.pass().ok_or_else(|| io::Error::other("the database is closed"))?;
        let _inside = Inside::a_connector();
        Ok(call(&self.raw.table))
    }

    /// Creates the name of a temporary file, which is removed when the value is dropped.
    fn scratch(&self) -> Scratch {
        let n = self.scratch.fetch_add(1, Ordering::Relaxed);
        Scratch(self.folder.join(format!("{SCRATCH}{}.{n}", std::process::id())))
    }
}

/// A temporary file with a unique name.
struct Scratch(PathBuf);

impl Scratch {
    fn text(&self) -> io::Result<CString> {
        let bytes = program::bytes_of(self.0.as_os_str()).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(CString::new(bytes)?)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // it may not exist
    }
}

fn check(code: c_int, what: &str) -> io::Result<()> {
    match code {
        0 => Ok(()),
        code => Err(io::Error::other(format!("the connector's {what} returned {code}"))),
    }
}

const GONE: c_int = -1;

impl ObjectStore for Connector {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let (key, scratch) = (CString::new(name)?, self.scratch());
        let path = scratch.text()?;
        let mut file = fs::File::create_new(&scratch.0)?;
        body.for_each(PIECE, &mut |piece| file.write_all(piece))?;
        drop(file);
        let code = self.call(|table| match table.put {
            // SAFETY: both strings live until the call returns; the caller guarantees the rest, see above.
            Some(put) => unsafe { put(table.ctx, key.as_ptr(), path.as_ptr()) },
            None => GONE,
        })?;
        check(code, "put")
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let (key, scratch) = (CString::new(name)?, self.scratch());
        let path = scratch.text()?;
        let code = self.call(|table| match table.get {
            // SAFETY: as for `put`.
            Some(get) => unsafe { get(table.ctx, key.as_ptr(), path.as_ptr()) },
            None => GONE,
        })?;
        check(code, "get")?;
        let mut file = open(&scratch.0)?; // written by a caller's function
        let mut piece = vec![0; PIECE];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(()),
                n => sink(&piece[..n])?,
            }
        }
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let mut all: Vec<Object> = Vec::new();
        let into = std::ptr::from_mut(&mut all).cast();
        let code = self.call(|table| match table.list {
            // SAFETY: the string and the list live until the call returns; the caller guarantees the rest, see
            // above.
            Some(list) => unsafe { list(table.ctx, c"".as_ptr(), Some(collect), into) },
            None => GONE,
        })?;
        if code < 0 { check(code, "list").map(|()| all) } else { Ok(all) }
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let key = CString::new(name)?;
        let code = self.call(|table| match table.delete_object {
            // SAFETY: as for `put`.
            Some(delete) => unsafe { delete(table.ctx, key.as_ptr()) },
            None => GONE,
        })?;
        if code == ERR_NOT_FOUND { Ok(()) } else { check(code, "delete_object") }
    }
}

/// Appends an object to the list at `into`.
unsafe extern "C" fn collect(key: *const c_char, size: usize, into: *mut c_void) {
    // SAFETY: `into` is the list that `Connector::list` passes. It waits for this call, so nothing else uses
    // the list meanwhile.
    let Some(all) = (unsafe { into.cast::<Vec<Object>>().as_mut() }) else { return };
    if let Ok(name) = In::from_caller(key).text() {
        all.push(Object { name: name.to_owned(), bytes: size as u64 });
    }
}

/// A store that the library made.
#[derive(Clone, Debug)]
enum Own {
    Directory(Arc<DirectoryStore>),
    S3(Arc<S3>),
}

impl Own {
    fn store(&self) -> Arc<dyn ObjectStore> {
        match self {
            Self::Directory(store) => Arc::<DirectoryStore>::clone(store),
            Self::S3(store) => Arc::<S3>::clone(store),
        }
    }

    /// Returns the length of an object, and its tag, if the connector has a function for it.
    fn head(&self, name: &str) -> io::Result<(u64, Tag)> {
        match self {
            Self::S3(store) => store.head(name),
            Self::Directory(store) => {
                let found = store.list()?.into_iter().find(|object| object.name == name);
                Ok((found.ok_or(io::ErrorKind::NotFound)?.bytes, Tag(String::new())))
            }
        }
    }
}

/// Creates a connector that keeps objects in the directory `root`.
///
/// # Errors
/// `ERR_IO` if the directory cannot be created; `ERR_MEMORY`.
pub(crate) fn directory(root: &Path) -> Answer<*mut Objstore> {
    let store = fs::create_dir_all(root)
        .and_then(|()| DirectoryStore::open(root))
        .map_err(|e| Failure::text_of(ERR_IO, format!("{}: {e}", root.display())))?;
    made(Own::Directory(Arc::new(store)), DIRECTORY)
}

/// Creates a connector that keeps objects in S3.
///
/// # Errors
/// Those of [`library::open`]; `ERR_MEMORY`.
pub(crate) fn s3(settings: &Settings) -> Answer<*mut Objstore> {
    made(Own::S3(library::open(settings)?), IN_S3)
}

fn made(store: Own, table: Objstore) -> Answer<*mut Objstore> {
    let context = NEXT_CONTEXT.fetch_add(CONTEXTS_APART, Ordering::Relaxed);
    let free = memory::current_free();
    let at = memory::copy_all(&[Objstore { ctx: std::ptr::without_provenance_mut(context), ..table }])?;
    MADE.lock().insert(context, Made { store, at: at.addr(), in_use: false, free });
    Ok(at)
}

/// Passes on the store of a connector that the library made and nobody changed. Then destroys the connector.
///
/// # Errors
/// `ERR_INVALID_ARGS` for any other connector, and for one in use; those of `pass`. The connector stays the caller's.
pub(crate) fn take<R>(at: *mut Objstore, pass: impl FnOnce(Arc<dyn ObjectStore>) -> Answer<R>) -> Answer<R> {
    let connector = Connector::new(at, Path::new(""))?;
    let own = connector.own.as_ref().ok_or(FOREIGN)?;
    let passed = pass(own.store())?;
    connector.retire();
    Ok(passed)
}

/// The table of a connector for a directory, without its context.
const DIRECTORY: Objstore = Objstore {
    backend: BACKEND_FS,
    put: Some(own_put),
    get: Some(own_get),
    range_get: Some(own_range_get),
    delete_object: Some(own_delete),
    exists: Some(own_exists),
    list: Some(own_list),
    put_if: None,
    head: None,
    destroy: Some(own_destroy),
    ctx: std::ptr::null_mut(),
};

/// The table of a connector for S3, without its context.
const IN_S3: Objstore =
    Objstore { backend: BACKEND_S3, put_if: Some(own_put_if), head: Some(own_head), ..DIRECTORY };

/// A connector created by [`made`] and not destroyed yet.
#[derive(Debug)]
struct Made {
    store: Own,
    /// The address of its table.
    at: usize,
    /// A database or backups use it.
    in_use: bool,
    /// Frees the table. `tidesdb_init` and `tidesdb_finalize` may have changed the functions in use since.
    free: FreeFn,
}

/// All of them by their contexts. Like a handle, a context is a number that is never dereferenced: a caller may pass any.
static MADE: Mutex<BTreeMap<usize, Made>> = Mutex::new(BTreeMap::new());
static NEXT_CONTEXT: AtomicUsize = AtomicUsize::new(CONTEXTS_APART);
const CONTEXTS_APART: usize = 16;

/// Returns the store of a connector created by [`made`], if its functions and context are as they were.
fn own_store(table: &Objstore) -> Option<Own> {
    let own = store_of(table.ctx)?;
    let as_made = match own {
        Own::Directory(_) => DIRECTORY,
        Own::S3(_) => IN_S3,
    };
    (functions(table) == functions(&as_made)).then_some(own)
}

fn functions(table: &Objstore) -> [Option<*const ()>; 9] {
    [
        table.put.map(|f| f as *const ()),
        table.get.map(|f| f as *const ()),
        table.range_get.map(|f| f as *const ()),
        table.delete_object.map(|f| f as *const ()),
        table.exists.map(|f| f as *const ()),
        table.list.map(|f| f as *const ()),
        table.put_if.map(|f| f as *const ()),
        table.head.map(|f| f as *const ()),
        table.destroy.map(|f| f as *const ()),
    ]
}

/// Returns the store that a context of ours stands for.
fn store_of(ctx: *mut c_void) -> Option<Own> {
    MADE.lock().get(&ctx.addr()).map(|made| made.store.clone())
}

/// Notes that a database or backups use a connector of ours.
///
/// # Errors
/// `ERR_INVALID_ARGS` if others do.
fn begin_use(ctx: *mut c_void) -> Answer {
    match MADE.lock().get_mut(&ctx.addr()) {
        Some(made) if made.in_use => Err(IN_USE),
        Some(made) => {
            made.in_use = true;
            Ok(())
        }
        None => Err(INCOMPLETE),
    }
}

/// Returns the function that frees the table at this address: the partner of the one that allocated it.
fn free_of(at: *mut Objstore) -> FreeFn {
    let made = MADE.lock();
    made.values().find(|made| made.at == at.addr()).map_or(memory::LIBC.free, |made| made.free)
}

unsafe extern "C" fn own_destroy(ctx: *mut c_void) {
    let made = MADE.lock().remove(&ctx.addr());
    drop(made);
}

/// Runs a call of our own connector on the object `key`.
fn on_object(ctx: *mut c_void, key: *const c_char, call: impl FnOnce(&Own, &str) -> io::Result<()>) -> Code {
    answer(|| {
        let store = store_of(ctx).ok_or(INCOMPLETE)?;
        call(&store, In::from_caller(key).text()?).map_err(of_io)
    })
}

fn of_io(e: io::Error) -> Failure {
    match e.kind() {
        io::ErrorKind::NotFound => Failure::text_of(ERR_NOT_FOUND, e.to_string()),
        _ => Failure::text_of(ERR_IO, e.to_string()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the caller, not one of the database")]
fn open(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

unsafe extern "C" fn own_put(ctx: *mut c_void, key: *const c_char, path: *const c_char) -> Code {
    on_object(ctx, key, |store, key| {
        let path = In::from_caller(path).path().map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut file = open(path)?;
        let len = file.metadata()?.len();
        let file: Mutex<_> = Mutex::new(&mut file);
        let read = |to: &mut [u8], at: u64| {
            let mut file = file.lock();
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(to)
        };
        store.store().put(key, &Body::read(len, &read))
    })
}

unsafe extern "C" fn own_get(ctx: *mut c_void, key: *const c_char, path: *const c_char) -> Code {
    on_object(ctx, key, |store, key| {
        let path = In::from_caller(path).path().map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut file = fs::File::create(path)?;
        let got = store.store().get(key, &mut |piece| file.write_all(piece));
        got.inspect_err(|_| drop(fs::remove_file(path))) // a part of an object is none
    })
}

unsafe extern "C" fn own_delete(ctx: *mut c_void, key: *const c_char) -> Code {
    on_object(ctx, key, |store, key| store.store().delete(key))
}

/// Returns the number of bytes read, or -1.
unsafe extern "C" fn own_range_get(
    ctx: *mut c_void,
    key: *const c_char,
    offset: u64,
    buf: *mut c_void,
    size: usize,
) -> isize {
    let mut wanted = Vec::new();
    let code = on_object(ctx, key, |store, key| {
        let end = offset.saturating_add(size as u64).min(store.head(key)?.0);
        if offset >= end {
            return Ok(());
        }
        store.store().get_range(key, offset..end, &mut |piece| {
            wanted.extend_from_slice(piece);
            Ok(())
        })
    });
    if code != SUCCESS || (buf.is_null() && !wanted.is_empty()) {
        return -1;
    }
    for (i, byte) in wanted.iter().enumerate() {
        Out::from_caller(buf.cast::<u8>().wrapping_add(i)).set(*byte);
    }
    wanted.len() as isize
}

/// Returns 1 and the size if the object exists, 0 if not, or a negative code.
unsafe extern "C" fn own_exists(ctx: *mut c_void, key: *const c_char, size: *mut usize) -> c_int {
    let mut bytes = 0;
    let code = on_object(ctx, key, |store, key| {
        bytes = store.head(key)?.0;
        Ok(())
    });
    match code {
        SUCCESS => {
            Out::from_caller(size).set(bytes as usize);
            1
        }
        ERR_NOT_FOUND => 0,
        code => code,
    }
}

/// Returns the number of objects whose names begin with `prefix`, or a negative code.
unsafe extern "C" fn own_list(
    ctx: *mut c_void,
    prefix: *const c_char,
    each: Option<ListFn>,
    list_ctx: *mut c_void,
) -> c_int {
    answer_or(ERR_IO, || {
        let store = store_of(ctx).ok_or(INCOMPLETE)?;
        let prefix = if prefix.is_null() { "" } else { In::from_caller(prefix).text()? };
        let all = store.store().list().map_err(|e| Failure::text_of(ERR_IO, e.to_string()))?;
        let mut count = 0;
        for object in all.iter().filter(|object| object.name.starts_with(prefix)) {
            let key = CString::new(object.name.as_str()).unwrap_or_default();
            if let Some(each) = each {
                // SAFETY: the key lives until the call returns; the caller guarantees the rest.
                unsafe { each(key.as_ptr(), object.bytes as usize, list_ctx) };
            }
            count += 1;
        }
        Ok(count)
    })
}

/// Stores bytes if a condition holds, and returns the new tag in `new_etag`, unless that is null. `ERR_CONFLICT`: the condition does not hold.
unsafe extern "C" fn own_put_if(
    ctx: *mut c_void,
    key: *const c_char,
    data: *const c_void,
    size: usize,
    condition: c_int,
    etag: *const c_char,
    new_etag: *mut c_char,
) -> c_int {
    answer(|| {
        let store = store_of(ctx).ok_or(INCOMPLETE)?;
        let (key, bytes) = (In::from_caller(key).text()?, In::from_caller(data.cast::<u8>()).bytes(size)?);
        let (body, old) = (
            Body::bytes(bytes),
            match condition {
                PUT_IF_MATCH => Some(Tag(In::from_caller(etag).text()?.to_owned())),
                _ => None,
            },
        );
        let put = match (condition, &old) {
            (PUT_OVERWRITE, _) => {
                let put = store.store().put(key, &body).and_then(|()| store.head(key));
                put.map(|(_, tag)| Some(tag))
            }
            (PUT_IF_NONE_MATCH, _) => store.store().put_if(key, &body, Condition::Absent),
            (PUT_IF_MATCH, Some(tag)) => store.store().put_if(key, &body, Condition::Tagged(tag)),
            _ => return Err(UNKNOWN_CONDITION),
        };
        match put.map_err(of_io)? {
            Some(tag) => tell_tag(&tag, new_etag),
            None => Err(CONDITION),
        }
    })
}

/// Returns the length and the tag of an object; either may be null.
unsafe extern "C" fn own_head(
    ctx: *mut c_void,
    key: *const c_char,
    size: *mut usize,
    etag: *mut c_char,
) -> c_int {
    answer(|| {
        let store = store_of(ctx).ok_or(INCOMPLETE)?;
        let (bytes, tag) = store.head(In::from_caller(key).text()?).map_err(of_io)?;
        Out::from_caller(size).set(bytes as usize);
        tell_tag(&tag, etag)
    })
}

fn tell_tag(tag: &Tag, to: *mut c_char) -> Answer {
    if to.is_null() {
        return Ok(());
    }
    let text = CString::new(tag.0.as_str()).unwrap_or_default();
    let bytes = text.as_bytes_with_nul();
    if bytes.len() > ETAG_BYTES {
        return Err(Failure::text_of(ERR_IO, "the tag of the object is longer than TDB_OBJSTORE_ETAG_SIZE"));
    }
    for (n, byte) in bytes.iter().enumerate() {
        Out::from_caller(to.cast::<u8>().wrapping_add(n)).set(*byte);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidesdb::{Db, RemoteOptions};

    use super::*;

    /// Not [`own_destroy`] itself, so that the connector looks like one of the caller's.
    unsafe extern "C" fn destroy(ctx: *mut c_void) {
        // SAFETY: the context is that of a connector of ours, and `retire` destroys it once.
        unsafe { own_destroy(ctx) }
    }

    /// The engine holds locks while it uploads and fetches.
    #[test]
    fn the_engine_calls_a_connector_of_the_caller_while_it_uploads_and_fetches() {
        let [dir, again, objects] = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        let connect = |dir: &Path| {
            let at = directory(objects.path()).expect("a connector");
            // SAFETY: the table was created above and is not shared.
            unsafe { (*at).destroy = Some(destroy) };
            let connector = Arc::new(Connector::new(at, dir).expect("a complete table"));
            assert!(connector.own.is_none(), "it passes for one of the caller");
            let options = Db::options(dir).remote(RemoteOptions::new(connector.store()));
            (options.open().expect("open"), connector)
        };
        let (db, connector) = connect(dir.path());
        db.put(b"key", b"value").expect("put");
        db.close().expect("an upload");
        connector.retire();
        let (db, connector) = connect(again.path());
        assert_eq!(db.get(b"key").expect("a fetched table").as_deref(), Some(&b"value"[..]));
        db.close().expect("close");
        connector.retire();
    }
}
