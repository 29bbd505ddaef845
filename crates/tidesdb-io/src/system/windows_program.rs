//! What programs ask of Windows: see `program.rs`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::windows::io::{AsRawHandle, IntoRawHandle, RawHandle};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::string::FromUtf8Error;

use windows_sys::Win32::System::Console::{
    ENABLE_PROCESSED_OUTPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, SetConsoleMode,
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

#[cfg(test)]
mod tests {
    use std::os::windows::ffi::OsStringExt;

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

    #[test]
    fn the_code_of_another_program_is_passed_on() {
        let mut command = Command::new("cmd");
        assert_eq!(become_another(command.args(["/c", "exit 7"]), "name").unwrap(), 7);
        assert!(!was_killed(Command::new("cmd").args(["/c", "exit 7"]).status().unwrap()));
    }
}
