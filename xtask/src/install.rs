//! `cargo xtask install`: installs the C library with its headers and its files for pkg-config and CMake.
//!
//! Installed files contain no absolute paths: the pkg-config and CMake files derive the prefix from their own
//! location. So the tree may be moved, or be created below `--destdir` for a package. Libraries are installed
//! without debug information, which is ten times their size; `--debug-files` keeps it in separate files.
//!
//! `--target` installs for another system. Its libraries have the names that the linker and the loader of that system look for: [`Kind`].

use crate::cargo::{Cargo, DEV, DIST, Done, said, target, works};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of the C library.
pub(crate) const CRATE: &str = "crates/tidesdb-capi";

const HEADERS: [&str; 7] =
    ["db.h", "tidesdb.h", "extended.h", "extended.hpp", "objstore.h", "tidesdb_version.h", "xxhash.h"];

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
    /// The target of the compiler; `None` for this machine.
    pub(crate) target: Option<String>,
    /// True to install the library for object stores in S3, too.
    pub(crate) s3: bool,
    /// The profile that the libraries are built with.
    pub(crate) profile: &'static str,
}

impl Default for Shape {
    fn default() -> Self {
        Self { libdir: "lib".to_owned(), debug_files: false, target: None, s3: false, profile: DIST }
    }
}

impl Shape {
    /// Returns the name of the folder that Cargo builds into.
    fn built(&self) -> &str {
        if self.profile == DEV { "debug" } else { self.profile }
    }

    /// Returns the kind of system that it is for.
    fn kind(&self) -> Kind {
        Kind::of(self.target.as_deref().unwrap_or(std::env::consts::OS))
    }

    /// Returns the bytes of a pointer there.
    fn pointer_bytes(&self) -> usize {
        let is_short = |target: &String| ["i586", "i686", "arm"].iter().any(|arch| target.starts_with(arch));
        self.target.as_ref().map_or(size_of::<usize>(), |target| if is_short(target) { 4 } else { 8 })
    }

    /// Returns the name of a tool of GNU for that system.
    fn tool(&self, name: &str) -> String {
        let foreign = self.target.as_ref().filter(|_| self.kind() == Kind::Windows && !cfg!(windows));
        let arch = foreign.and_then(|target| target.split('-').next());
        arch.map_or_else(|| name.to_owned(), |arch| format!("{arch}-w64-mingw32-{name}"))
    }
}

/// How a system names libraries.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Linux and FreeBSD: `libtidesdb.so.9.3.14` with the links `libtidesdb.so.9`, for programs, and `libtidesdb.so`, for the linker.
    Elf,
    /// macOS: `libtidesdb.9.3.14.dylib` with two such links.
    Apple,
    /// Windows: `bin/tidesdb.dll`, and for the linker `libtidesdb.dll.a`.
    Windows,
}

impl Kind {
    /// Returns the kind of a target or a system.
    fn of(target: &str) -> Self {
        let has = |part: &str| target.contains(part);
        if has("windows") {
            Self::Windows
        } else if has("apple") || has("macos") {
            Self::Apple
        } else {
            Self::Elf
        }
    }

    /// Returns the file of the shared library as Cargo names it.
    fn built(self) -> &'static str {
        match self {
            Self::Elf => "libtidesdb_capi.so",
            Self::Apple => "libtidesdb_capi.dylib",
            Self::Windows => "tidesdb_capi.dll",
        }
    }

    /// Returns the path of the shared library below the prefix.
    fn shared(self, version: &Version, libdir: &str) -> String {
        match self {
            Self::Elf => format!("{libdir}/libtidesdb.so.{}", version.full),
            Self::Apple => format!("{libdir}/libtidesdb.{}.dylib", version.full),
            Self::Windows => "bin/tidesdb.dll".to_owned(),
        }
    }

    /// Returns the links next to the shared library, each to the one before it.
    fn links(self, version: &Version) -> Vec<String> {
        match self {
            Self::Elf => vec![format!("libtidesdb.so.{}", version.major), "libtidesdb.so".to_owned()],
            Self::Apple => {
                vec![format!("libtidesdb.{}.dylib", version.major), "libtidesdb.dylib".to_owned()]
            }
            Self::Windows => Vec::new(),
        }
    }

    /// Returns what CMake has to know of the shared library.
    fn properties(self, version: &Version, libdir: &str) -> String {
        let shared = self.shared(version, libdir);
        let location = format!("IMPORTED_LOCATION \"${{_tidesdb_prefix}}/{shared}\"");
        let more = match self {
            Self::Elf => format!("IMPORTED_SONAME \"libtidesdb.so.{}\"", version.major),
            Self::Apple => return location,
            Self::Windows => format!("IMPORTED_IMPLIB \"${{_tidesdb_prefix}}/{libdir}/{IMPORTS}\""),
        };
        format!("{location}\n        {more}")
    }
}

/// The library through which programs of Windows are linked to the DLL.
const IMPORTS: &str = "libtidesdb.dll.a";

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
        match key.as_str() {
            "--debug-files" => shape.debug_files = true,
            "--s3" => shape.s3 = true,
            _ => {}
        }
        if ["--debug-files", "--s3"].contains(&key.as_str()) {
            continue;
        }
        let mut value = || args.next().ok_or(format!("`{key}` needs a value"));
        match key.as_str() {
            "--prefix" => prefix = Some(PathBuf::from(value()?)),
            "--destdir" => destdir = Some(PathBuf::from(value()?)),
            "--libdir" => shape.libdir = libdir(value()?)?,
            "--target" => shape.target = Some(target_of(value()?)?),
            other => {
                return Err(format!(
                    "unknown option `{other}`; the options are --prefix, --destdir, --libdir, --target, --debug-files and --s3"
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

/// Refuses the targets whose libraries this program cannot name.
fn target_of(value: &str) -> Result<String, String> {
    if value.contains("windows") && !value.ends_with("-windows-gnu") {
        return Err(format!(
            "--target {value}: build for x86_64-pc-windows-gnu; programs of other compilers use that DLL too, through an \
             import library that `lib /def:tidesdb.def` makes"
        ));
    }
    Ok(value.to_owned())
}

/// Builds the library and installs everything below `prefix`.
///
/// # Errors
/// If the build fails or a file cannot be written.
pub(crate) fn install(root: &Path, prefix: &Path, shape: &Shape) -> Done {
    let native = build(root, shape)?;
    let source = root.join(CRATE);
    let version = version(&source)?;
    let lib = prefix.join(&shape.libdir);
    let built = target(root).join(shape.target.as_deref().unwrap_or("")).join(shape.built());
    install_libraries(&built, prefix, &version, shape)?;
    if shape.kind() == Kind::Windows {
        install_imports(&source, prefix, shape)?;
    }
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
        write(&lib.join(to), &fill(&text, &version, &native, shape)?)?;
    }
    if shape.s3 {
        install_s3(root, &built, prefix, shape)?;
    }
    println!("installed libtidesdb {} below {}", version.full, prefix.display());
    Ok(())
}

fn install_libraries(built: &Path, prefix: &Path, version: &Version, shape: &Shape) -> Done {
    let (kind, lib) = (shape.kind(), prefix.join(&shape.libdir));
    let shared = prefix.join(kind.shared(version, &shape.libdir));
    let debug = shape.debug_files.then(|| lib.join(".debug"));
    for (from, to, mode) in
        [(kind.built(), &shared, 0o755), ("libtidesdb_capi.a", &lib.join("libtidesdb.a"), 0o644)]
    {
        copy(&built.join(from), to, mode)?;
        // The one for Windows refuses an archive that has files without sections.
        if kind != Kind::Windows || from == kind.built() {
            strip_with(&shape.tool("objcopy"), to, debug.as_deref())?;
        }
    }
    let mut to = shared.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for name in kind.links(version) {
        link(&to, &lib.join(&name))?;
        to = name;
    }
    Ok(())
}

/// Builds the library for object stores in S3 and installs it beside the other one, which loads it by its name.
fn install_s3(root: &Path, built: &Path, prefix: &Path, shape: &Shape) -> Done {
    let target = shape.target.as_ref().map_or_else(String::new, |target| format!("--target {target}"));
    Cargo::new(&format!("build --profile {} --package tidesdb-s3 --lib {target}", shape.profile))
        .run(root)?;
    let (folder, name) = match shape.kind() {
        Kind::Elf => (shape.libdir.as_str(), "libtidesdb_s3.so"),
        Kind::Apple => (shape.libdir.as_str(), "libtidesdb_s3.dylib"),
        Kind::Windows => ("bin", "tidesdb_s3.dll"),
    };
    let to = prefix.join(folder).join(name);
    copy(&built.join(name), &to, 0o755)?;
    let debug = shape.debug_files.then(|| prefix.join(&shape.libdir).join(".debug"));
    strip_with(&shape.tool("objcopy"), &to, debug.as_deref())
}

/// Installs the import library of the DLL, and the list that it is made from, for the tools of other compilers.
fn install_imports(source: &Path, prefix: &Path, shape: &Shape) -> Done {
    let lib = prefix.join(&shape.libdir);
    let symbols = read(&source.join("c-tests/symbols.txt"))?;
    let exported = said(Command::new(shape.tool("objdump")).arg("-p").arg(prefix.join("bin/tidesdb.dll")))?;
    let exported: Vec<&str> = exported.split_whitespace().collect();
    let mut names = symbols.lines().filter_map(|line| line.split(' ').next());
    if let Some(missing) = names.find(|name| !exported.contains(name)) {
        return Err(format!("bin/tidesdb.dll does not export {missing}"));
    }
    let list = lib.join("tidesdb.def");
    write(&list, &definitions(&symbols))?;
    let mut command = Command::new(shape.tool("dlltool"));
    said(command.arg("-d").arg(list).arg("-l").arg(lib.join(IMPORTS))).map(drop)
}

/// Returns the list of what the DLL exports, as linkers of Windows read it.
fn definitions(symbols: &str) -> String {
    let mut out = "LIBRARY tidesdb.dll\nEXPORTS\n".to_owned();
    for line in symbols.lines() {
        let mut words = line.split(' ');
        let data = if line.contains(" data ") { " DATA" } else { "" };
        out.push_str(&format!("    {}{data}\n", words.next().unwrap_or_default()));
    }
    out
}

/// Removes debug information from a library or program. With a folder, it is kept there, where debuggers find
/// it.
///
/// # Errors
/// If objcopy fails.
pub(crate) fn strip(file: &Path, debug: Option<&Path>) -> Done {
    strip_with("objcopy", file, debug)
}

/// As [`strip`], with another `objcopy`.
///
/// # Errors
/// If it fails.
pub(crate) fn strip_with(objcopy: &str, file: &Path, debug: Option<&Path>) -> Done {
    if !works(objcopy, &["--version"]) {
        println!("  {} keeps its debug information, because {objcopy} is missing", file.display());
        return Ok(());
    }
    let archive = file.extension().is_some_and(|end| end == "a");
    let mut command = Command::new(objcopy);
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
            said(Command::new(objcopy).arg("--only-keep-debug").arg(file).arg(&kept))?;
            let mut link = std::ffi::OsString::from("--add-gnu-debuglink=");
            link.push(&kept);
            command.arg(link);
        }
    }
    said(command.arg(file)).map(drop)
}

/// Builds both libraries. Returns the libraries that a program linked with the static one needs too.
fn build(root: &Path, shape: &Shape) -> Result<String, String> {
    // rustc prints the libraries only when it compiles, so they are written to a file that outlives the build.
    let list = target(root).join("tidesdb-native-libs");
    let print = format!("--print=native-static-libs={}", list.display());
    let target = shape.target.as_ref().map_or_else(String::new, |target| format!("--target {target}"));
    let build = |kinds: &str| {
        let line = format!(
            "rustc --profile {} --package tidesdb-capi --lib --crate-type {kinds} {target}",
            shape.profile
        );
        Cargo::new(&line)
    };
    let mut kinds = "staticlib,lib".to_owned();
    if shape.profile == DIST {
        // Cargo optimises across crates only where no Rust library is made as well: that saves half a megabyte.
        build("cdylib").args(&["--config".to_owned(), format!("profile.{DIST}.lto=\"fat\"")]).run(root)?;
    } else {
        kinds.push_str(",cdylib");
    }
    build(&kinds).args(&["--".to_owned(), print]).run(root)?;
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
fn fill(text: &str, version: &Version, native: &str, shape: &Shape) -> Result<String, String> {
    let mut out = text.to_owned();
    let libdir = &shape.libdir;
    // The path from the folder of the libraries to the prefix.
    let up = libdir.split('/').map(|_| "..").collect::<Vec<_>>().join("/");
    for (place, value) in [
        ("@VERSION@", version.full.as_str()),
        ("@MAJOR@", version.major.as_str()),
        ("@NATIVE_LIBS@", native),
        ("@SHARED@", &shape.kind().properties(version, libdir)),
        ("@POINTER_BYTES@", &shape.pointer_bytes().to_string()),
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

/// Removes a folder with all that it contains, if it exists.
///
/// # Errors
/// The I/O error, with the path.
pub(crate) fn remove(folder: &Path) -> Done {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Creates a folder without anything in it.
///
/// # Errors
/// What the system says.
pub(crate) fn emptied(folder: &Path) -> Done {
    remove(folder)?;
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Lets `command`, and the programs that it builds, find the library below `prefix`.
pub(crate) fn found_by(command: &mut Command, prefix: &Path) {
    let lib = prefix.join("lib");
    command.env("PKG_CONFIG_PATH", lib.join("pkgconfig")).env("LD_LIBRARY_PATH", lib);
}

/// Copies a file; creates the target folder if needed.
///
/// # Errors
/// The I/O error, with both paths.
pub(crate) fn copy(from: &Path, to: &Path, mode: u32) -> Done {
    make_room(to)?;
    let copied = fs::copy(from, to).and_then(|_| set_mode(to, mode));
    copied.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Files have no mode here.
#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: u32) -> std::io::Result<()> {
    Ok(())
}

/// Creates a symbolic link; where only administrators may, another name of the file.
///
/// # Errors
/// The I/O error, with the path.
pub(crate) fn link(to: &str, at: &Path) -> Done {
    make_room(at)?;
    #[cfg(unix)]
    let linked = std::os::unix::fs::symlink(to, at);
    #[cfg(not(unix))]
    let linked = fs::hard_link(at.with_file_name(to), at);
    linked.map_err(|error| format!("{}: {error}", at.display()))
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

    fn below(libdir: &str) -> Shape {
        Shape { libdir: libdir.to_owned(), ..Shape::default() }
    }

    /// The shape for another system.
    fn abroad(target: &str) -> Shape {
        let args = ["--prefix", "/usr", "--target", target];
        plan(&args).expect("a target whose libraries have names").shape
    }

    #[test]
    fn libraries_have_the_names_that_their_system_looks_for() {
        let version = Version { full: "9.3.14".to_owned(), major: "9".to_owned() };
        let cmake = |lines: &[&str]| lines.join("\n        ");
        for (target, shared, links, lines) in [
            (
                "x86_64-unknown-freebsd",
                "lib/libtidesdb.so.9.3.14",
                &["libtidesdb.so.9", "libtidesdb.so"][..],
                &[
                    "IMPORTED_LOCATION \"${_tidesdb_prefix}/lib/libtidesdb.so.9.3.14\"",
                    "IMPORTED_SONAME \"libtidesdb.so.9\"",
                ][..],
            ),
            (
                "aarch64-apple-darwin",
                "lib/libtidesdb.9.3.14.dylib",
                &["libtidesdb.9.dylib", "libtidesdb.dylib"],
                &["IMPORTED_LOCATION \"${_tidesdb_prefix}/lib/libtidesdb.9.3.14.dylib\""],
            ),
            (
                "x86_64-pc-windows-gnu",
                "bin/tidesdb.dll",
                &[],
                &[
                    "IMPORTED_LOCATION \"${_tidesdb_prefix}/bin/tidesdb.dll\"",
                    "IMPORTED_IMPLIB \"${_tidesdb_prefix}/lib/libtidesdb.dll.a\"",
                ],
            ),
        ] {
            let kind = abroad(target).kind();
            assert_eq!(kind.shared(&version, "lib"), shared, "{target}");
            assert_eq!(kind.links(&version), links, "{target}");
            assert_eq!(kind.properties(&version, "lib"), cmake(lines), "{target}");
        }
        assert_eq!(
            (Kind::of("linux"), Kind::of("macos"), Kind::of("windows")),
            (Kind::Elf, Kind::Apple, Kind::Windows)
        );
        assert_eq!(abroad("i686-unknown-linux-gnu").pointer_bytes(), 4);
        assert_eq!(abroad("aarch64-apple-darwin").pointer_bytes(), 8);
        assert_eq!(abroad("aarch64-apple-darwin").tool("objcopy"), "objcopy");
        let refused = plan(&["--prefix", "/usr", "--target", "x86_64-pc-windows-msvc"]);
        assert!(refused.expect_err("no names").contains("x86_64-pc-windows-gnu"));
    }

    #[test]
    fn an_import_library_has_all_functions_and_data() {
        let list = definitions("tidesdb_allocator data 32\ntidesdb_open\n");
        assert_eq!(list, "LIBRARY tidesdb.dll\nEXPORTS\n    tidesdb_allocator DATA\n    tidesdb_open\n");
    }

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
        assert_eq!(
            shape,
            Shape { libdir: "lib/x".to_owned(), debug_files: true, target: None, ..Shape::default() }
        );
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
            let filled = fill(&text, &version, "-lm -lc", &below("lib")).expect("all places are known");
            assert!(filled.contains(&version.full) && !filled.contains('@'));
            templates += 1;
        }
        assert_eq!(templates, 3);
        assert!(fill("@NEW@", &version, "", &below("lib")).is_err());
        assert_eq!(fill("@UP@:@LIBDIR@", &version, "", &below("lib")).as_deref(), Ok("..:lib"));
        assert_eq!(fill("@UP@:@LIBDIR@", &version, "", &below("lib/x")).as_deref(), Ok("../..:lib/x"));
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
