//! What programs ask of the system beside the files of a database: their arguments as bytes, other programs, the terminal.
//!
//! ```
//! use std::ffi::OsStr;
//! use std::path::Path;
//! use tidesdb_io::program;
//!
//! assert_eq!(program::bytes_of(OsStr::new("g\u{fc}n")), Some("g\u{fc}n".as_bytes()));
//! assert_eq!(program::path_of(b"data/db"), Some(Path::new("data/db")));
//! ```

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::system::program as own;

/// What ends a process that gets no chance to react, as the system calls it.
pub const KILL: &str = own::KILL;

/// Returns an argument as bytes: on Unix those that it consists of, on Windows its UTF-8; `None` if it has a surrogate without the
/// other one there, which no text has.
pub fn bytes_of(argument: &OsStr) -> Option<&[u8]> {
    own::bytes_of(argument)
}

/// Returns bytes as an argument; the reverse of [`bytes_of`].
///
/// # Errors
/// The bytes, if they are not UTF-8 and the system is Windows.
pub fn from_bytes(bytes: Vec<u8>) -> Result<OsString, Vec<u8>> {
    own::from_bytes(bytes)
}

/// Returns the path that these bytes are; `None` if they are not UTF-8 and the system is Windows.
pub fn path_of(bytes: &[u8]) -> Option<&Path> {
    own::path_of(bytes)
}

/// Returns whether a file at `path` can be started: on Unix its mode says so. Windows goes by its name, which is the caller's matter.
pub fn is_program(path: &Path) -> bool {
    own::is_program(path)
}

/// Replaces this process by `command`, which sees `name` as its own; so it returns only if that fails. Windows cannot do that: there the
/// command runs beside this process, and the result is its exit code.
///
/// # Errors
/// The error of the system, if the command cannot be started.
pub fn become_another(command: &mut Command, name: &str) -> io::Result<i32> {
    own::become_another(command, name)
}

/// Returns whether a process ended because [`std::process::Child::kill`] ended it. On Windows a process that ends itself with code 1 looks
/// the same.
pub fn was_killed(status: ExitStatus) -> bool {
    own::was_killed(status)
}

/// Lets the terminals that show the output and the errors of this process understand escape sequences. Returns whether they do: a console
/// of Windows before version 10 does not. Terminals of Unix always do.
pub fn enable_escapes() -> bool {
    own::enable_escapes()
}

/// Raises the number of files that this process may have open towards `wanted`, as far as the system allows it. Returns that number, or
/// `None` if there is no limit, as on Windows.
pub fn raise_files_max(wanted: u64) -> Option<u64> {
    own::raise_files_max(wanted)
}

/// Returns the number by which functions of the system know an open file: its descriptor on Unix, its handle on Windows. The caller closes it.
pub fn file_number(file: File) -> isize {
    own::file_number(file)
}

/// Loads a shared library, which stays until the process ends, and returns the address of what it exports as `symbol`. A name without a folder is looked for
/// where the system looks for libraries; on Windows only in the folder of the system, never in the working folder or those of `PATH`.
///
/// ```
/// assert!(tidesdb_io::program::load("there-is-none.so".as_ref(), c"symbol").is_err());
/// ```
///
/// # Errors
/// What the system says: the library or the symbol is missing, or the library needs another one that is.
pub fn load(library: &Path, symbol: &CStr) -> io::Result<*const ()> {
    own::load(library, symbol)
}

/// Returns the file of the library or program that has the code at `address`.
///
/// ```
/// let here = tidesdb_io::program::file_of_code(tidesdb_io::program::enable_escapes as *const ());
/// assert!(here.is_some_and(|file| file.is_file()));
/// ```
pub fn file_of_code(address: *const ()) -> Option<PathBuf> {
    own::file_of_code(address)
}
