//! Tries the Debian packages as a user does: in a clean system with nothing from the build machine.

use crate::cargo::{Done, said, works};
use crate::ctests::PRINTED;
use crate::install::{CRATE, copy};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Additional packages, needed to compile a program.
const TOOLS: [&str; 2] = ["gcc", "pkg-config"];

/// Compiles and runs the C example as documented, dynamically and statically; then the other checks.
const SCRIPT: &str = "
set -eu
cd /trial
cc kv.c $(pkg-config --cflags --libs tidesdb) -o kv
./kv shop.db
cc -static kv.c $(pkg-config --cflags tidesdb) $(pkg-config --variable=libdir tidesdb)/libtidesdb.a -lm -o kv-static 2>/dev/null
./kv-static shop2.db
echo '#include <tidesdb/xxhash.h>' >xx.c
cc -c xx.c
tidesdb --version | grep -q '^features: .* top'
tidesdb bench list | grep -q ycsb
gzip -t /usr/share/man/man1/tidesdb.1.gz /usr/share/man/man1/tidesdb-load.1.gz
bash -n /usr/share/bash-completion/completions/tidesdb
tidesdb --db own.db put apple red >/dev/null
test \"$(tidesdb --db own.db get apple)\" = red
tidesdb --db own.db verify >/dev/null
tidesdb --db shop.db verify >/dev/null
rm -r own.db shop.db shop2.db
ldd kv | grep -q '/libtidesdb.so.9 '
dpkg --verify libtidesdb9 libtidesdb-dev tidesdb-cli
";

/// Installs `packages` in a clean system in `folder`, which is created if missing, and uses them.
///
/// # Errors
/// If root rights or debootstrap are missing; if anything fails there.
pub(crate) fn run(root: &Path, folder: &Path, packages: &[PathBuf]) -> Done {
    if packages.is_empty() {
        return Err("there are no packages to try".to_owned());
    }
    if !folder.join("etc/debian_version").is_file() {
        make(folder)?;
    }
    let inside = folder.join("trial");
    let _ = std::fs::remove_dir_all(&inside);
    let mut names = Vec::new();
    for package in packages {
        let name = package.file_name().unwrap_or_default();
        copy(package, &inside.join(name), 0o644)?;
        names.push(Path::new("/trial").join(name));
    }
    copy(&root.join(CRATE).join("examples/kv.c"), &inside.join("kv.c"), 0o644)?;
    println!("  installing {} packages in {}", names.len(), folder.display());
    in_there(folder, Command::new("apt-get").args(["update", "--quiet"]))?;
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--quiet", "--no-install-recommends", "--reinstall"]);
    in_there(folder, install.args(TOOLS).args(&names))?;
    let printed = in_there(folder, Command::new("sh").args(["-c", SCRIPT]))?;
    let want = PRINTED.iter().find(|(end, _)| *end == "c").map_or("", |(_, text)| text);
    if printed != want.repeat(2) {
        return Err(format!("the example prints\n{printed}"));
    }
    println!("  installed, compiled against, linked statically and run in a clean system");
    Ok(())
}

/// Creates a system with only Debian's essential packages, of the same release as this machine.
fn make(folder: &Path) -> Done {
    if !works("debootstrap", &["--version"]) {
        return Err("no debootstrap: apt-get install debootstrap".to_owned());
    }
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.ok_or("/etc/os-release names no release")?;
    println!("  making a clean {name} in {}", folder.display());
    said(Command::new("debootstrap").args(["--variant=minbase", name]).arg(folder)).map(drop)
}

/// Runs a command as root in the other system.
fn in_there(folder: &Path, command: &mut Command) -> Result<String, String> {
    let mut chroot = Command::new("chroot");
    chroot.arg(folder).arg(command.get_program()).args(command.get_args());
    chroot.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("DEBIAN_FRONTEND", "noninteractive");
    said(chroot.env("LC_ALL", "C"))
}
