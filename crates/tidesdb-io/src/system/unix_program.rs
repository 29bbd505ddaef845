//! What programs ask of Unix: see `program.rs`.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub(crate) const KILL: &str = "SIGKILL";

pub(crate) fn bytes_of(argument: &OsStr) -> Option<&[u8]> {
    Some(argument.as_bytes())
}

pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<OsString, Vec<u8>> {
    Ok(OsString::from_vec(bytes))
}

pub(crate) fn path_of(bytes: &[u8]) -> Option<&Path> {
    Some(Path::new(OsStr::from_bytes(bytes)))
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

pub(crate) fn become_another(command: &mut Command, name: &str) -> io::Result<i32> {
    Err(command.arg0(name).exec())
}

pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(libc::SIGKILL)
}

pub(crate) fn enable_escapes() -> bool {
    true
}

pub(crate) fn raise_files_max(wanted: u64) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    let wanted = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    let is_raised = wanted > current && setrlimit(Resource::Nofile, raised).is_ok();
    Some(if is_raised { wanted } else { current })
}

pub(crate) fn file_number(file: File) -> isize {
    file.into_raw_fd() as isize
}

pub(crate) fn load(library: &Path, symbol: &CStr) -> io::Result<*const ()> {
    let name = CString::new(library.as_os_str().as_bytes())?;
    // SAFETY: the name ends with a zero. Constructors of the library run: the caller names one that may be loaded.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(loader_error());
    }
    // SAFETY: the handle was returned above and is never closed; the symbol ends with a zero.
    let address = unsafe { libc::dlsym(handle, symbol.as_ptr()) };
    if address.is_null() { Err(loader_error()) } else { Ok(address.cast_const().cast()) }
}

/// Returns what the last call of the loader in this thread has said.
fn loader_error() -> io::Error {
    // SAFETY: takes nothing; the text is valid until the next call of the loader in this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return io::Error::other("the loader gives no reason");
    }
    // SAFETY: as above; it ends with a zero.
    io::Error::other(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

pub(crate) fn file_of_code(address: *const ()) -> Option<PathBuf> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call only compares the address with those of what is loaded, and fills the structure.
    let known = unsafe { libc::dladdr(address.cast(), found.as_mut_ptr()) } != 0;
    // SAFETY: all zeros are a value of it, too.
    let name = unsafe { found.assume_init() }.dli_fname;
    if !known || name.is_null() {
        return None;
    }
    // SAFETY: the name of something that is loaded, which ends with a zero.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_paths_are_any_bytes() {
        let bytes = b"a\xff\xfe/\x80".to_vec();
        let argument = from_bytes(bytes.clone()).unwrap();
        assert_eq!(bytes_of(&argument), Some(&bytes[..]));
        assert_eq!(path_of(&bytes), Some(Path::new(&argument)));
    }

    #[test]
    fn a_killed_process_is_known_from_one_that_ends() {
        let shell = |script: &str| Command::new("sh").args(["-c", script]).status().unwrap();
        assert!(was_killed(shell("kill -9 $$")));
        for script in ["exit 1", "exit 9", "exit 137", "kill -15 $$"] {
            assert!(!was_killed(shell(script)), "{script}");
        }
    }

    #[test]
    fn the_limit_of_open_files_is_never_lowered() {
        let before = getrlimit(Resource::Nofile).current;
        assert_eq!(raise_files_max(0), before);
        assert_eq!(raise_files_max(1), before);
    }
}
