//! `cargo xtask install`: the C library with its headers, and how pkg-config and CMake find it.
//!
//! What is installed names no place: pkg-config and CMake take the prefix from where their file lies, so the tree may be
//! moved, or be made below `--destdir` for a package.

use crate::cargo::{Cargo, Done, target};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The package of the C library.
pub(crate) const CRATE: &str = "crates/tidesdb-capi";

const HEADERS: [&str; 5] = ["db.h", "tidesdb.h", "objstore.h", "tidesdb_version.h", "xxhash.h"];

/// Where things go.
#[derive(Debug, PartialEq)]
struct Plan {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
}

impl Plan {
    /// The folder that is written to: the prefix, below `--destdir` if there is one.
    fn folder(&self, current: &Path) -> PathBuf {
        let prefix = current.join(&self.prefix);
        match &self.destdir {
            Some(destdir) => current.join(destdir).join(prefix.strip_prefix("/").unwrap_or(&prefix)),
            None => prefix,
        }
    }
}

/// Builds and installs as `args` say.
///
/// # Errors
/// On arguments that make no sense; if the build fails or a file cannot be written.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let current = std::env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    install(root, &parse(args)?.folder(&current))
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let (mut prefix, mut destdir) = (None, None);
    for pair in args.chunks(2) {
        let [key, value] = pair else { return Err(format!("`{}` needs a value", pair[0])) };
        match key.as_str() {
            "--prefix" => prefix = Some(PathBuf::from(value)),
            "--destdir" => destdir = Some(PathBuf::from(value)),
            other => return Err(format!("no option `{other}`; there are --prefix and --destdir")),
        }
    }
    let prefix = prefix.ok_or("where to? --prefix DIR")?;
    Ok(Plan { prefix, destdir })
}

/// Builds the library and puts everything below `prefix`.
///
/// # Errors
/// If the build fails or a file cannot be written.
pub(crate) fn install(root: &Path, prefix: &Path) -> Done {
    let native = build(root)?;
    let built = target(root).join("release");
    let source = root.join(CRATE);
    let version = version(&source)?;
    let lib = prefix.join("lib");
    let shared = format!("libtidesdb.so.{}", version.full);
    copy(&built.join("libtidesdb_capi.so"), &lib.join(&shared), 0o755)?;
    link(&shared, &lib.join(format!("libtidesdb.so.{}", version.major)))?;
    link(&format!("libtidesdb.so.{}", version.major), &lib.join("libtidesdb.so"))?;
    copy(&built.join("libtidesdb_capi.a"), &lib.join("libtidesdb.a"), 0o644)?;
    for header in HEADERS {
        let to = prefix.join("include/tidesdb").join(header);
        copy(&source.join("include/tidesdb").join(header), &to, 0o644)?;
    }
    for (template, to) in [
        ("tidesdb.pc.in", "lib/pkgconfig/tidesdb.pc"),
        ("tidesdb-config.cmake.in", "lib/cmake/tidesdb/tidesdb-config.cmake"),
        ("tidesdb-config-version.cmake.in", "lib/cmake/tidesdb/tidesdb-config-version.cmake"),
    ] {
        let text = read(&source.join("packaging").join(template))?;
        write(&prefix.join(to), &fill(&text, &version, &native)?)?;
    }
    println!("installed libtidesdb {} below {}", version.full, prefix.display());
    Ok(())
}

/// Builds both libraries; what a program that links the static one has to link besides.
fn build(root: &Path) -> Result<String, String> {
    // rustc prints the libraries only when it compiles, so they go to a file that outlives the build.
    let list = target(root).join("tidesdb-native-libs");
    let print = format!("--print=native-static-libs={}", list.display());
    Cargo::new("rustc --release --package tidesdb-capi --lib --").args(&[print]).run(root)?;
    let libs = read(&list)?;
    let mut kept: Vec<&str> = Vec::new();
    for lib in libs.split_whitespace() {
        if !kept.contains(&lib) {
            kept.push(lib);
        }
    }
    Ok(kept.join(" "))
}

/// The version of the interface, as the header has it.
struct Version {
    full: String,
    major: String,
}

fn version(source: &Path) -> Result<Version, String> {
    let header = read(&source.join("include/tidesdb/tidesdb_version.h"))?;
    let value = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.map(|value| value.trim().trim_matches('"').to_owned()).ok_or(format!("no {name} in the header"))
    };
    Ok(Version { full: value("TIDESDB_VERSION")?, major: value("TIDESDB_VERSION_MAJOR")? })
}

/// A template with its places filled.
fn fill(text: &str, version: &Version, native: &str) -> Result<String, String> {
    let mut out = text.to_owned();
    for (place, value) in [
        ("@VERSION@", version.full.as_str()),
        ("@MAJOR@", version.major.as_str()),
        ("@NATIVE_LIBS@", native),
        ("@URL@", env!("CARGO_PKG_REPOSITORY")),
    ] {
        out = out.replace(place, value);
    }
    match out.split('@').nth(1) {
        Some(left) => Err(format!("a template has a place for `{left}`")),
        None => Ok(out),
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Done {
    make_room(path)?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path, mode: u32) -> Done {
    make_room(to)?;
    let copied = fs::copy(from, to).and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)));
    copied.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn link(to: &str, at: &Path) -> Done {
    make_room(at)?;
    symlink(to, at).map_err(|error| format!("{}: {error}", at.display()))
}

/// Makes the folder, and removes what is there: a program that runs keeps the old file, whole.
fn make_room(path: &Path) -> Done {
    let parent = path.parent().unwrap_or(path);
    fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(args: &[&str]) -> Result<Plan, String> {
        parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_prefix_is_needed_and_destdir_goes_before_it() {
        assert!(plan(&[]).is_err() && plan(&["--prefix"]).is_err() && plan(&["--there", "x"]).is_err());
        let here = Path::new("/here");
        let folder = |args: &[&str]| plan(args).expect("a plan").folder(here);
        assert_eq!(folder(&["--prefix", "/usr"]), Path::new("/usr"));
        assert_eq!(folder(&["--prefix", "out"]), Path::new("/here/out"));
        assert_eq!(folder(&["--prefix", "/usr", "--destdir", "/pkg"]), Path::new("/pkg/usr"));
        assert_eq!(folder(&["--destdir", "pkg", "--prefix", "/usr"]), Path::new("/here/pkg/usr"));
    }

    #[test]
    fn the_templates_have_no_place_left() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(CRATE);
        let version = version(&source).expect("the header has a version");
        assert!(version.full.starts_with(&format!("{}.", version.major)));
        let folder = fs::read_dir(source.join("packaging")).expect("the templates");
        let mut templates = 0;
        for entry in folder {
            let text = read(&entry.expect("a template").path()).expect("text");
            let filled = fill(&text, &version, "-lm -lc").expect("all places are known");
            assert!(filled.contains(&version.full) && !filled.contains('@'));
            templates += 1;
        }
        assert_eq!(templates, 3);
        assert!(fill("@NEW@", &version, "").is_err());
    }

    #[test]
    fn every_header_is_installed() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(CRATE);
        let folder = fs::read_dir(source.join("include/tidesdb")).expect("the headers");
        let mut names: Vec<_> = folder.map(|entry| entry.expect("a header").file_name()).collect();
        names.sort();
        let mut installed = HEADERS;
        installed.sort_unstable();
        assert_eq!(names, installed);
    }
}
