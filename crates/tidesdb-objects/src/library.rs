//! The interface between `libtidesdb` and `libtidesdb_s3`, which it loads when a C program asks for a store in S3: a table of functions.
//!
//! Both come from this repository, and may come from two versions of it: so the one that loads names a version, and gets no table if the other has
//! another one. Nothing else crosses: each library has its own memory, and texts are copied into buffers of the caller.
//!
//! No function may be called with a null pointer, and none returns by unwinding.
//!
//! ```
//! use tidesdb_objects::library::Text;
//!
//! assert_eq!(Text::of("bucket").len, 6);
//! ```

use std::ffi::c_void;

/// Name of the symbol, a [`TableFn`].
pub const SYMBOL: &std::ffi::CStr = c"tidesdb_s3_table";
/// Version of this interface. It changes with any structure or function here.
pub const VERSION: u32 = 1;

/// The call has succeeded.
pub const DONE: i32 = 0;
/// The condition of a put does not hold.
pub const REFUSED: i32 = 1;
/// The [`Source`] or the [`Sink`] of the caller has failed.
pub const STOPPED: i32 = 2;
/// There is no such object.
pub const NOT_FOUND: i32 = 3;
/// The server lacks what is needed.
pub const UNSUPPORTED: i32 = 4;
/// A setting or a name is wrong.
pub const INVALID: i32 = 5;
/// The object ends before the range.
pub const TOO_SHORT: i32 = 6;
/// The server did not answer in time.
pub const TIMED_OUT: i32 = 7;
/// The credentials do not allow it.
pub const DENIED: i32 = 8;
/// Any other failure.
pub const FAILED: i32 = 9;

/// Returns the table if the library has this version of the interface, or else null.
pub type TableFn = unsafe extern "C" fn(version: u32) -> *const Table;

/// Text in UTF-8, valid during the call. No address means no text.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Text {
    /// Its first byte.
    pub at: *const u8,
    /// Number of bytes.
    pub len: usize,
}

impl Text {
    /// No text.
    pub const NONE: Self = Self { at: std::ptr::null(), len: 0 };

    /// Lends a text for a call.
    pub fn of(text: &str) -> Self {
        Self { at: text.as_ptr(), len: text.len() }
    }
}

/// Room for a text of the caller. What does not fit is cut off.
#[repr(C)]
#[derive(Debug)]
pub struct Room {
    /// Its first byte.
    pub at: *mut u8,
    /// Bytes that fit.
    pub room: usize,
    /// Bytes that were written.
    pub len: usize,
}

/// Where a store is. Texts that are missing have their defaults; see `S3Options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Address of the server.
    pub endpoint: Text,
    /// Name of the bucket.
    pub bucket: Text,
    /// What all names begin with.
    pub prefix: Text,
    /// Without one, the credentials of the environment are used.
    pub key: Text,
    /// Belongs to `key`.
    pub secret: Text,
    /// Region of the bucket.
    pub region: Text,
    /// Path of a file of certificates.
    pub ca_file: Text,
    /// Not 0: without TLS.
    pub allow_http: u32,
    /// Not 0: the bucket is in the name of the host.
    pub virtual_host: u32,
    /// Not 0: certificates are not verified.
    pub skip_verify: u32,
    /// 0: the default.
    pub multipart_from: u64,
    /// 0: the default.
    pub part_bytes: u64,
}

/// Bytes that the caller has. `read` fills a buffer from an offset, and returns [`DONE`] or [`STOPPED`].
#[repr(C)]
#[derive(Debug)]
pub struct Source {
    /// Passed to `read`.
    pub ctx: *mut c_void,
    /// Number of bytes.
    pub len: u64,
    /// The function.
    pub read: unsafe extern "C" fn(ctx: *mut c_void, to: *mut u8, len: usize, at: u64) -> i32,
}

/// Where bytes go, in order. `write` returns [`DONE`] or [`STOPPED`].
#[repr(C)]
#[derive(Debug)]
pub struct Sink {
    /// Passed to `write`.
    pub ctx: *mut c_void,
    /// The function.
    pub write: unsafe extern "C" fn(ctx: *mut c_void, from: *const u8, len: usize) -> i32,
}

/// Receives an object of a list.
pub type EachFn = unsafe extern "C" fn(ctx: *mut c_void, name: Text, bytes: u64);

/// A store of the library.
pub type Store = *mut c_void;

/// The functions. Each returns one of the numbers above, and with a failure a message. A store may be used by several threads at a time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// [`VERSION`].
    pub version: u32,
    /// Opens a store. No request is made.
    pub open: unsafe extern "C" fn(settings: *const Settings, store: *mut Store, message: *mut Room) -> i32,
    /// Closes a store that nothing uses any more.
    pub close: unsafe extern "C" fn(store: Store),
    /// Stores an object.
    pub put: unsafe extern "C" fn(store: Store, name: Text, body: *const Source, message: *mut Room) -> i32,
    /// Stores an object if it has this tag; without a tag, if there is none. Returns the new tag.
    pub put_if: unsafe extern "C" fn(
        store: Store,
        name: Text,
        body: *const Source,
        tag: Text,
        new_tag: *mut Room,
        message: *mut Room,
    ) -> i32,
    /// Reads the bytes from `from` to `to`, or all if `to` is the largest number. Returns the tag of a whole object.
    pub get: unsafe extern "C" fn(
        store: Store,
        name: Text,
        from: u64,
        to: u64,
        sink: *const Sink,
        tag: *mut Room,
        message: *mut Room,
    ) -> i32,
    /// Returns the length and the tag of an object.
    pub head: unsafe extern "C" fn(
        store: Store,
        name: Text,
        bytes: *mut u64,
        tag: *mut Room,
        message: *mut Room,
    ) -> i32,
    /// Lists all objects. After a failure some may have been passed.
    pub list: unsafe extern "C" fn(store: Store, each: EachFn, ctx: *mut c_void, message: *mut Room) -> i32,
    /// Removes an object, if there is one.
    pub delete: unsafe extern "C" fn(store: Store, name: Text, message: *mut Room) -> i32,
    /// Removes the parts of uploads that have not ended.
    pub remove_unfinished: unsafe extern "C" fn(store: Store, message: *mut Room) -> i32,
}
