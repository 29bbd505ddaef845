//! The Python wheels. That for this machine passes the tests of the package; of the others, what can be seen here is checked: the files, the
//! libraries that the module needs, and the program, which an emulator runs.

use super::{Workshop, programs};
use crate::cargo::{DIST, Done, said};
use crate::platforms::{self, Environment};
use crate::{install, wheel};
use std::path::Path;
use std::process::Command;

/// What a wheel has in the folder of the package, beside the extension module.
const FILES: [&str; 4] = ["__init__.py", "__main__.py", "_tidesdb.pyi", "py.typed"];

/// Libraries that every system has to which the name of the wheel admits it, without the end of the name: those of Linux...
const OF_LINUX: [&str; 7] = ["ld-linux-", "libc.", "libdl.", "libgcc_s.", "libm.", "libpthread.", "librt."];
/// ... and those of Windows, and of Python itself.
const OF_WINDOWS: [&str; 9] = [
    "advapi32.",
    "api-ms-win-",
    "bcryptprimitives.",
    "kernel32.",
    "msvcrt.",
    "ntdll.",
    "python3.",
    "userenv.",
    "ws2_32.",
];

/// What the program in a wheel is made to do: its lines are the arguments.
const TRIAL: [&str; 4] = ["--version", "--db t.db put apple red", "--db t.db get apple", "--db t.db verify"];

/// Builds, checks and keeps the wheels.
///
/// # Errors
/// The first failure; a tool that is missing.
pub(super) fn make(workshop: &Workshop<'_>) -> Done {
    for platform in [None, Some("arm64"), Some("windows")] {
        let wanted = wheel::Wheel { other: platform, profile: DIST, release: true };
        let wheel = wheel::build(workshop.root, wanted)?;
        let name = wheel.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (_, env) =
            platform.map_or(Ok(Default::default()), |name| platforms::prepare(workshop.root, name))?;
        check(workshop, &wheel, &env).map_err(|error| format!("{name}: {error}"))?;
        if platform.is_none() {
            wheel::test(workshop.root, &wheel, true, &[])?;
        }
        workshop.keep(&wheel)?;
    }
    Ok(())
}

/// Checks what is in a wheel that was built with `env`.
fn check(workshop: &Workshop<'_>, wheel: &Path, env: &Environment) -> Done {
    let folder = workshop.work.join("wheel");
    install::remove(&folder)?;
    said(Command::new("unzip").arg("-q").arg(wheel).arg("-d").arg(&folder))?;
    let windows = wheel.to_string_lossy().contains("win_amd64");
    let module = if windows { "_tidesdb.pyd" } else { "_tidesdb.abi3.so" };
    for file in FILES.into_iter().chain([module]) {
        let path = folder.join("tidesdb").join(file);
        std::fs::metadata(&path).map_err(|error| format!("tidesdb/{file}: {error}"))?;
    }
    let mut objdump = Command::new(platforms::tool(env, "objdump"));
    let headers = said(objdump.arg("-p").arg(folder.join("tidesdb").join(module)))?;
    let known: &[&str] = if windows { &OF_WINDOWS } else { &OF_LINUX };
    let needed = needed(&headers);
    if let Some(other) = needed.iter().find(|name| !known.iter().any(|known| name.starts_with(known))) {
        return Err(format!("{module} needs {other}"));
    }
    let program = folder.join(format!("tidesdb-{}.data/scripts", workshop.version)).join(if windows {
        "tidesdb.exe"
    } else {
        "tidesdb"
    });
    said(Command::new("chmod").arg("+x").arg(&program))?;
    for line in TRIAL {
        let mut command = programs::started(&program, env);
        said(command.args(line.split(' ')).current_dir(&folder))?;
    }
    println!("  {module} needs {}; the program: {}", needed.join(", "), TRIAL.join("; "));
    Ok(())
}

/// Returns the libraries that a file needs, in small letters, as `objdump -p` says it of Linux and of Windows.
fn needed(headers: &str) -> Vec<String> {
    let names = headers.lines().filter_map(|line| {
        let line = line.trim();
        line.strip_prefix("NEEDED").or_else(|| line.strip_prefix("DLL Name:"))
    });
    let mut names: Vec<String> = names.map(|name| name.trim().to_lowercase()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_of_both_systems_are_read() {
        let linux = "Dynamic Section:\n  NEEDED               libc.so.6\n  NEEDED               libgcc_s.so.1\n  INIT  0x1\n";
        assert_eq!(needed(linux), ["libc.so.6", "libgcc_s.so.1"]);
        let windows =
            " vma:  Hint\n\tDLL Name: python3.dll\n\tDLL Name: KERNEL32.dll\n\tDLL Name: KERNEL32.dll\n";
        assert_eq!(needed(windows), ["kernel32.dll", "python3.dll"]);
        assert!(needed("").is_empty());
    }
}
