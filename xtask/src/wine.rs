//! Wine, which runs programs for Windows on Linux.
//!
//! It works in a folder of its own below Cargo's target folder, never in that of the user. Another Wine than the one that is found is
//! named with its path in the variable of Cargo for the runner, `CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER`.

use crate::cargo::{said, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of the programs that it runs.
pub(crate) const TARGET: &str = "x86_64-pc-windows-gnu";
/// The compiler for C, which also links.
pub(crate) const COMPILER: &str = "x86_64-w64-mingw32-gcc";
/// The packages of Debian with that compiler and with Wine.
pub(crate) const PACKAGES: &str = "gcc-mingw-w64-x86-64-posix wine64";

/// The variable with the folder in which Wine works.
const PREFIX: &str = "WINEPREFIX";

/// What the program prints about itself is no output of the tests.
const QUIET: (&str, &str) = ("WINEDEBUG", "-all");

/// Where programs for Windows take random bytes from. Wine has it since version 9.
const RANDOM: &str = "bcryptprimitives.dll";

/// The same from a library that older versions have.
const RANDOM_C: &str = "#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(BYTE *bytes, SIZE_T count)
{
    return SystemFunction036(bytes, (ULONG)count);
}
";

/// Returns the Wine that is installed: Debian has the one for 64 bits outside of the path.
pub(crate) fn find() -> Option<&'static str> {
    let places = ["/usr/lib/wine/wine64", "/usr/bin/wine64", "/usr/bin/wine"];
    places.into_iter().find(|place| Path::new(place).exists())
}

/// Makes the folder in which `wine` works, unless it is there, and returns the variables that a program needs to run in it.
///
/// # Errors
/// If Wine does not run, or `compiler` does not make the library that an old one lacks.
pub(crate) fn set_up(root: &Path, wine: &str, compiler: &str) -> Result<Vec<(&'static str, String)>, String> {
    let own = || std::path::absolute(target(root).join("wine")).unwrap_or_default();
    let prefix = std::env::var_os(PREFIX).map_or_else(own, PathBuf::from);
    let system = prefix.join("drive_c/windows/system32");
    if !system.join("kernel32.dll").exists() {
        std::fs::create_dir_all(&prefix).map_err(|e| format!("{}: {e}", prefix.display()))?;
        said(Command::new(wine).args(["cmd", "/c", "exit"]).env(PREFIX, &prefix).env(QUIET.0, QUIET.1))?;
    }
    let library = system.join(RANDOM);
    if !library.exists() {
        let source = prefix.join("random.c");
        std::fs::write(&source, RANDOM_C).map_err(|e| format!("{}: {e}", source.display()))?;
        let mut compile = Command::new(compiler);
        said(compile.args(["-shared", "-o"]).args([&library, &source]).arg("-ladvapi32"))?;
    }
    Ok(vec![(PREFIX, prefix.to_string_lossy().into_owned()), (QUIET.0, QUIET.1.to_owned())])
}
