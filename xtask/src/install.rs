//! `cargo xtask install`: installs the C library with its headers and its files for pkg-config and CMake.
//!
//! Installed files contain no absolute paths: the pkg-config and CMake files derive the prefix from their own
//! location. So the tree may be moved, or be created below `--destdir` for a package. Libraries are installed
//! without debug information, which is ten times their size; `--debug-files` keeps it in separate files.

use crate::cargo::{Cargo, DIST, Done, said, target, works};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of the C library.
pub(crate) const CRATE: &str = "crates/tidesdb-capi";

const HEADERS: [&str; 5] = ["db.h", "tidesdb.h", "objstore.h", "tidesdb_version.h", "xxhash.h"];

/// Removes debug information, and the code for link-time optimisation that only rustc could use.
const STRIP_ARCHIVE: [&str; 3] = ["--strip-debug", "--remove-section=.llvmbc", "--remove-section=.llvmcmd"];

/// Destinations of the installation.
#[derive(Debug, PartialEq)]
struct Plan {
    prefix: PathBuf,
    destdir: Option<PathBuf>,
    shape: Shape,
}

/// Layout of the tree below the prefix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// The folder of the libraries, below the prefix.
    pub(crate) libdir: String,
    /// True to keep debug information, in `.debug` next to the libraries.
    pub(crate) debug_files: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self { libdir: "lib".to_owned(), debug_files: false }
    }
}

impl Plan {
    /// Returns the folder to write to: the prefix, below `--destdir` if given.
    fn folder(&self, current: &Path) -> PathBuf {
        let prefix = current.join(&self.prefix);
        match &self.destdir {
            Some(destdir) => current.join(destdir).join(prefix.strip_prefix("/").unwrap_or(&prefix)),
            None => prefix,
        }
    }
}

/// Builds and installs as given by `args`.
///
/// # Errors
/// If the arguments are invalid, the build fails or a file cannot be written.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let current = std::env::current_dir().map_err(|error| format!("the current folder: {error}"))?;
    let plan = parse(args)?;
    install(root, &plan.folder(&current), &plan.shape)
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let (mut prefix, mut destdir, mut shape) = (None, None, Shape::default());
    let mut args = args.iter();
    while let Some(key) = args.next() {
        if key == "--debug-files" {
            shape.debug_files = true;
            continue;
        }
        let mut value = || args.next().ok_or(format!("`{key}` needs a value"));
        match key.as_str() {
            "--prefix" => prefix = Some(PathBuf::from(value()?)),
            "--destdir" => destdir = Some(PathBuf::from(value()?)),
            "--libdir" => shape.libdir = libdir(value()?)?,
            other => {
                return Err(format!(
                    "unknown option `{other}`; the options are --prefix, --destdir, --libdir and --debug-files"
                ));
            }
        }
    }
    let prefix = prefix.ok_or("the destination is missing: --prefix DIR")?;
    Ok(Plan { prefix, destdir, shape })
}

/// Checks that a folder is below the prefix and has no `.` or `..`.
fn libdir(value: &str) -> Result<String, String> {
    let parts: Vec<&str> = value.split('/').filter(|part| !part.is_empty()).collect();
    if value.starts_with('/') || parts.is_empty() || parts.contains(&"..") || parts.contains(&".") {
        return Err(format!("--libdir must be a folder below the prefix (lib, lib64), not `{value}`"));
    }
    Ok(parts.join("/"))
}

/// Builds the library and installs everything below `prefix`.
///
/// # Errors
/// If the build fails or a file cannot be written.
pub(crate) fn install(root: &Path, prefix: &Path, shape: &Shape) -> Done {
    let native = build(root)?;
    let source = root.join(CRATE);
    let version = version(&source)?;
    let lib = prefix.join(&shape.libdir);
    install_libraries(&target(root).join(DIST), &lib, &version, shape)?;
    for header in HEADERS {
        let to = prefix.join("include/tidesdb").join(header);
        copy(&source.join("include/tidesdb").join(header), &to, 0o644)?;
    }
    for (template, to) in [
        ("tidesdb.pc.in", "pkgconfig/tidesdb.pc"),
        ("tidesdb-config.cmake.in", "cmake/tidesdb/tidesdb-config.cmake"),
        ("tidesdb-config-version.cmake.in", "cmake/tidesdb/tidesdb-config-version.cmake"),
    ] {
        let text = read(&source.join("packaging").join(template))?;
        write(&lib.join(to), &fill(&text, &version, &native, &shape.libdir)?)?;
    }
    println!("installed libtidesdb {} below {}", version.full, prefix.display());
    Ok(())
}

fn install_libraries(built: &Path, lib: &Path, version: &Version, shape: &Shape) -> Done {
    let shared = version.shared();
    let debug = shape.debug_files.then(|| lib.join(".debug"));
    let names =
        [("libtidesdb_capi.so", shared.as_str(), 0o755), ("libtidesdb_capi.a", "libtidesdb.a", 0o644)];
    for (from, to, mode) in names {
        copy(&built.join(from), &lib.join(to), mode)?;
        strip(&lib.join(to), debug.as_deref())?;
    }
    link(&shared, &lib.join(format!("libtidesdb.so.{}", version.major)))?;
    link(&format!("libtidesdb.so.{}", version.major), &lib.join("libtidesdb.so"))
}

/// Removes debug information from a library or program. With a folder, it is kept there, where debuggers find
/// it.
///
/// # Errors
/// If objcopy fails.
pub(crate) fn strip(file: &Path, debug: Option<&Path>) -> Done {
    if !works("objcopy", &["--version"]) {
        println!("  {} keeps its debug information, because objcopy is missing", file.display());
        return Ok(());
    }
    let archive = file.extension().is_some_and(|end| end == "a");
    let mut command = Command::new("objcopy");
    if archive {
        command.args(STRIP_ARCHIVE);
    } else {
        command.arg("--strip-unneeded");
    }
    if let Some(debug) = debug {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kept = debug.join(if archive { name } else { format!("{name}.debug") });
        make_room(&kept)?;
        if archive {
            copy(file, &kept, 0o644)?;
        } else {
            said(Command::new("objcopy").arg("--only-keep-debug").arg(file).arg(&kept))?;
            let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
            link.push(&kept);
            command.arg(link);
        }
    }
    said(command.arg(file)).map(drop)
}

/// Builds both libraries. Returns the libraries that a program linked with the static one needs too.
fn build(root: &Path) -> Result<String, String> {
    // rustc prints the libraries only when it compiles, so they are written to a file that outlives the build.
    let list = target(root).join("tidesdb-native-libs");
    let print = format!("--print=native-static-libs={}", list.display());
    Cargo::new(&format!("rustc --profile {DIST} --package tidesdb-capi --lib --"))
        .args(&[print])
        .run(root)?;
    let libs = read(&list)?;
    let mut kept: Vec<&str> = Vec::new();
    for lib in libs.split_whitespace() {
        if !kept.contains(&lib) {
            kept.push(lib);
        }
    }
    Ok(kept.join(" "))
}

/// The version of the interface, from the header.
pub(crate) struct Version {
    /// For example `9.3.14`.
    pub(crate) full: String,
    /// For example `9`.
    pub(crate) major: String,
}

impl Version {
    /// Returns the file name of the shared library.
    pub(crate) fn shared(&self) -> String {
        format!("libtidesdb.so.{}", self.full)
    }
}

/// Reads the version of the interface from its header.
///
/// # Errors
/// If the header has no version.
pub(crate) fn version(source: &Path) -> Result<Version, String> {
    let header = read(&source.join("include/tidesdb/tidesdb_version.h"))?;
    let value = |name: &str| {
        let line = header.lines().find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.map(|value| value.trim().trim_matches('"').to_owned()).ok_or(format!("no {name} in the header"))
    };
    Ok(Version { full: value("TIDESDB_VERSION")?, major: value("TIDESDB_VERSION_MAJOR")? })
}

/// Fills the placeholders of a template.
fn fill(text: &str, version: &Version, native: &str, libdir: &str) -> Result<String, String> {
    let mut out = text.to_owned();
    // The path from the folder of the libraries to the prefix.
    let up = libdir.split('/').map(|_| "..").collect::<Vec<_>>().join("/");
    for (place, value) in [
        ("@VERSION@", version.full.as_str()),
        ("@MAJOR@", version.major.as_str()),
        ("@NATIVE_LIBS@", native),
        ("@LIBDIR@", libdir),
        ("@UP@", &up),
    ] {
        out = out.replace(place, value);
    }
    match out.split('@').nth(1) {
        Some(left) => Err(format!("a template has the unknown placeholder `{left}`")),
        None => Ok(out),
    }
}

/// Reads a text file.
///
/// # Errors
/// The I/O error, with the path.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a text file; creates its folder if needed.
///
/// # Errors
/// The I/O error, with the path.
pub(crate) fn write(path: &Path, text: &str) -> Done {
    make_room(path)?;
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies a file; creates the target folder if needed.
///
/// # Errors
/// The I/O error, with both paths.
pub(crate) fn copy(from: &Path, to: &Path, mode: u32) -> Done {
    make_room(to)?;
    let copied = fs::copy(from, to).and_then(|_| fs::set_permissions(to, fs::Permissions::from_mode(mode)));
    copied.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

/// Creates a symbolic link.
///
/// # Errors
/// The I/O error, with the path.
pub(crate) fn link(to: &str, at: &Path) -> Done {
    make_room(at)?;
    symlink(to, at).map_err(|error| format!("{}: {error}", at.display()))
}

/// Creates the folder, and removes the old file: a running program keeps that one.
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
        for wrong in ["/lib", "../lib", "", "lib/./x"] {
            assert!(plan(&["--prefix", "/usr", "--libdir", wrong]).is_err(), "{wrong}");
        }
        let shape =
            plan(&["--debug-files", "--libdir", "lib//x/", "--prefix", "/usr"]).expect("a plan").shape;
        assert_eq!(shape, Shape { libdir: "lib/x".to_owned(), debug_files: true });
        let here = Path::new("/here");
        let folder = |args: &[&str]| plan(args).expect("a plan").folder(here);
        assert_eq!(folder(&["--prefix", "/usr"]), Path::new("/usr"));
        assert_eq!(folder(&["--prefix", "out"]), Path::new("/here/out"));
        assert_eq!(folder(&["--prefix", "/usr", "--destdir", "/pkg"]), Path::new("/pkg/usr"));
        assert_eq!(folder(&["--destdir", "pkg", "--prefix", "/usr"]), Path::new("/here/pkg/usr"));
    }

    #[test]
    fn the_templates_have_no_unknown_placeholder() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(CRATE);
        let version = version(&source).expect("the header has a version");
        assert!(version.full.starts_with(&format!("{}.", version.major)));
        let folder = fs::read_dir(source.join("packaging")).expect("the templates");
        let mut templates = 0;
        for entry in folder {
            let text = read(&entry.expect("a template").path()).expect("text");
            let filled = fill(&text, &version, "-lm -lc", "lib").expect("all places are known");
            assert!(filled.contains(&version.full) && !filled.contains('@'));
            templates += 1;
        }
        assert_eq!(templates, 3);
        assert!(fill("@NEW@", &version, "", "lib").is_err());
        assert_eq!(fill("@UP@:@LIBDIR@", &version, "", "lib").as_deref(), Ok("..:lib"));
        assert_eq!(fill("@UP@:@LIBDIR@", &version, "", "lib/x").as_deref(), Ok("../..:lib/x"));
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
