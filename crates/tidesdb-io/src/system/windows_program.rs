//! What programs ask of Windows: see `program.rs`.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, IntoRawHandle, RawHandle};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::string::FromUtf8Error;

use windows_sys::Win32::System::Console::{
    ENABLE_PROCESSED_OUTPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, SetConsoleMode,
};
use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, GetModuleFileNameW,
    GetModuleHandleExW, GetProcAddress, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS, LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR,
    LOAD_LIBRARY_SEARCH_SYSTEM32, LoadLibraryExW,
};

pub(crate) const KILL: &str = "TerminateProcess";

pub(crate) fn bytes_of(argument: &OsStr) -> Option<&[u8]> {
    argument.to_str().map(str::as_bytes)
}

pub(crate) fn from_bytes(bytes: Vec<u8>) -> Result<OsString, Vec<u8>> {
    String::from_utf8(bytes).map(OsString::from).map_err(FromUtf8Error::into_bytes)
}

pub(crate) fn path_of(bytes: &[u8]) -> Option<&Path> {
    std::str::from_utf8(bytes).ok().map(Path::new)
}

pub(crate) fn is_program(path: &Path) -> bool {
    path.is_file()
}

pub(crate) fn become_another(command: &mut Command, _name: &str) -> io::Result<i32> {
    Ok(command.status()?.code().unwrap_or(1)) // there is always a code on this system
}

pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.code() == Some(1) // the standard library passes it to `TerminateProcess`
}

pub(crate) fn enable_escapes() -> bool {
    [io::stdout().as_raw_handle(), io::stderr().as_raw_handle()].into_iter().all(understands_escapes)
}

/// Lets the console with this handle understand escape sequences; returns whether it does. What is no console is a file, a pipe, or a
/// terminal of another system, which needs no permission.
fn understands_escapes(stream: RawHandle) -> bool {
    let mut mode = 0;
    // SAFETY: the handle is that of a stream of this process, and the call writes one number.
    if unsafe { GetConsoleMode(stream, &raw mut mode) } == 0 {
        return true;
    }
    let wanted = mode | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING;
    // SAFETY: the handle is that of a console, and the call takes a number.
    wanted == mode || unsafe { SetConsoleMode(stream, wanted) } != 0
}

pub(crate) fn raise_files_max(_wanted: u64) -> Option<u64> {
    None
}

pub(crate) fn file_number(file: File) -> isize {
    file.into_raw_handle() as isize
}

pub(crate) fn load(library: &Path, symbol: &CStr) -> io::Result<*const ()> {
    // Without flags, the system looks in the working folder and in those of `PATH`, where anybody may have put a library of this name.
    let (path, folders) = match library.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => {
            // What the library needs may lie beside it. That needs a full path.
            let folders = LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR | LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
            (std::path::absolute(library)?, folders)
        }
        _ => (library.to_owned(), LOAD_LIBRARY_SEARCH_SYSTEM32),
    };
    let name: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    // SAFETY: the name ends with a zero. Constructors of the library run: the caller names one that may be loaded.
    let module = unsafe { LoadLibraryExW(name.as_ptr(), std::ptr::null_mut(), folders) };
    if module.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the module was returned above and is never freed; the symbol ends with a zero.
    match unsafe { GetProcAddress(module, symbol.as_ptr().cast()) } {
        Some(address) => Ok(address as *const ()),
        None => Err(io::Error::last_os_error()),
    }
}

pub(crate) fn file_of_code(address: *const ()) -> Option<PathBuf> {
    let mut module = std::ptr::null_mut();
    let flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    // SAFETY: with this flag the call only compares the address with those of what is loaded, and fills the handle.
    if unsafe { GetModuleHandleExW(flags, address.cast(), &raw mut module) } == 0 {
        return None;
    }
    let mut name = vec![0u16; 32768];
    // SAFETY: the call writes at most as many units as there is room for.
    let len = unsafe { GetModuleFileNameW(module, name.as_mut_ptr(), name.len() as u32) } as usize;
    (len > 0 && len < name.len()).then(|| PathBuf::from(OsString::from_wide(&name[..len])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_paths_are_utf_8() {
        let argument = from_bytes("g\u{fc}n \u{1f433}".into()).unwrap();
        assert_eq!(bytes_of(&argument), Some("g\u{fc}n \u{1f433}".as_bytes()));
        assert_eq!(path_of("g\u{fc}n".as_bytes()), Some(Path::new("g\u{fc}n")));
        assert_eq!(from_bytes(vec![b'a', 0xff]), Err(vec![b'a', 0xff]));
        assert_eq!(path_of(b"a\xff"), None);
        assert_eq!(bytes_of(&OsString::from_wide(&[97, 0xd800])), None, "half of a character");
    }

    /// Regression test: the working folder was searched, too.
    #[test]
    fn a_library_without_a_folder_is_one_of_the_system() {
        crate::sim::alone(|| {
            let home = tempfile::tempdir().unwrap();
            let windows = PathBuf::from(std::env::var_os("SystemRoot").unwrap());
            std::fs::copy(windows.join("System32/version.dll"), home.path().join("planted.dll")).unwrap();
            std::env::set_current_dir(home.path()).unwrap();
            let load = |path: &str| load(Path::new(path), c"GetFileVersionInfoSizeW");
            assert!(load("version.dll").is_ok());
            assert!(load("planted.dll").is_err());
            let planted = load(".\\planted.dll").unwrap();
            assert_eq!(file_of_code(planted).unwrap().file_name(), Some(OsStr::new("planted.dll")));
            std::env::set_current_dir(windows).unwrap(); // the other one is removed
        });
    }

    #[test]
    fn the_code_of_another_program_is_passed_on() {
        let mut command = Command::new("cmd");
        assert_eq!(become_another(command.args(["/c", "exit 7"]), "name").unwrap(), 7);
        assert!(!was_killed(Command::new("cmd").args(["/c", "exit 7"]).status().unwrap()));
    }
}
