//! `cargo xtask package`: Debian packages, an archive for other systems, and their checksums, in
//! `target/package`.
//!
//! Everything is made from the tree that `cargo xtask install` creates. Owners and times do not depend on the
//! machine, so two builds of one commit with the same tools give the same files.

use crate::cargo::{Cargo, DIST, Done, said, target, works};
use crate::install::{self, CRATE, Shape};
use crate::single::features;
use crate::{licenses, pages, trial};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of the current architecture.
struct Machine {
    /// The name used in library folders.
    triple: String,
    /// Debian's name.
    debian: &'static str,
}

impl Machine {
    fn here() -> Result<Self, String> {
        let arch = std::env::consts::ARCH;
        let debian = match arch {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "riscv64" => "riscv64",
            other => return Err(format!("packages are not supported on {other}")),
        };
        Ok(Self { triple: format!("{arch}-linux-gnu"), debian })
    }
}

/// Properties common to all packages.
struct Workshop {
    root: PathBuf,
    /// Output folder of the packages.
    folder: PathBuf,
    /// Folder in which they are assembled; removed at the end.
    work: PathBuf,
    machine: Machine,
    /// The version of the engine.
    engine: String,
    /// The version of the library packages: that of the interface, then that of the engine.
    library: String,
    /// The file name of the shared library.
    shared: String,
    debug_files: bool,
}

/// Packages whose dependencies are part of the installation.
const INSTALLED: [&str; 3] = ["tidesdb-capi", "tidesdb-cli", "tidesdb-bench"];

/// One Debian package.
struct Package {
    name: &'static str,
    version: String,
    section: &'static str,
    depends: String,
    /// The first line is the summary.
    description: &'static str,
    /// Files and links, relative to the root of the tree.
    files: Vec<String>,
    /// Control files for the package manager, by name.
    control: Vec<(&'static str, String)>,
}

const LIBRARY: &str = "embedded key-value store, C library
 TidesDB is an embedded, ordered key-value store on a log-structured merge
 tree. This library has the ABI of libtidesdb 9.3.";

const DEVELOPMENT: &str = "embedded key-value store, headers and static library
 Headers of TidesDB, its static library, and what pkg-config and CMake need.";

const PROGRAM: &str = "embedded key-value store, program
 The tidesdb program loads, looks at, checks and copies TidesDB databases, and
 starts the benchmark, tidesdb-bench.";

const SYMBOLS: &str = "embedded key-value store, debug information
 What debuggers need of the C library of TidesDB.";

/// The programs, with the features that need more than a default build.
const PROGRAMS: &str = concat!(
    "--package tidesdb-cli --bin tidesdb --features ",
    features!(),
    " --package tidesdb-bench --bin tidesdb-bench"
);

/// The file with the checksums.
pub(crate) const SUMS: &str = "SHA256SUMS";

/// The folder of the manual pages, below the prefix.
const MANUAL: &str = "share/man/man1";

/// Where zsh looks for what the administrator installs, below the prefix.
pub(crate) const ZSH: &str = "share/zsh/site-functions";
/// Where Debian's zsh looks for what packages install.
const DEBIAN_ZSH: &str = "share/zsh/vendor-completions";

/// Returns the shells with completions, and where each looks for them, below the prefix. `zsh` is the folder for zsh.
fn completions(zsh: &str) -> [(&'static str, String); 3] {
    [
        ("bash", "share/bash-completion/completions/tidesdb".to_owned()),
        ("zsh", format!("{zsh}/_tidesdb")),
        ("fish", "share/fish/vendor_completions.d/tidesdb.fish".to_owned()),
    ]
}

/// Builds all packages; with `--try DIR` installs the Debian packages in a clean system there.
///
/// # Errors
/// If the arguments are invalid, or a build or a tool fails.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let (mut debug_files, mut trial) = (false, None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--debug-files" => debug_files = true,
            "--try" => trial = Some(PathBuf::from(args.next().ok_or("`--try` needs a folder")?)),
            other => return Err(format!("unknown option `{other}`: use --debug-files, --try")),
        }
    }
    let made = build(root, debug_files)?;
    match trial {
        Some(folder) => trial::run(root, &folder, &made),
        None => Ok(()),
    }
}

/// Builds all packages. Returns the paths of the Debian packages.
///
/// # Errors
/// If a build or a tool fails.
pub(crate) fn build(root: &Path, debug_files: bool) -> Result<Vec<PathBuf>, String> {
    let folder = target(root).join("package");
    let source = root.join(CRATE);
    let engine = env!("CARGO_PKG_VERSION").to_owned();
    let interface = install::version(&source)?;
    let workshop = Workshop {
        root: root.to_owned(),
        work: folder.join("work"),
        folder,
        machine: Machine::here()?,
        library: format!("{}+{engine}", interface.full),
        shared: format!("libtidesdb.so.{}", interface.full),
        engine,
        debug_files,
    };
    workshop.clear()?;
    Cargo::new(&format!("build --profile {DIST} {PROGRAMS}")).run(root)?;
    let mut made = vec![workshop.archive()?];
    let packages = if works("dpkg-deb", &["--version"]) {
        workshop.packages()?
    } else {
        println!("  SKIPPED packages for Debian: apt-get install dpkg-dev");
        Vec::new()
    };
    made.extend(packages.iter().cloned());
    let names: Vec<_> = made.iter().filter_map(|path| path.file_name()).collect();
    checksums(&workshop.folder, &names)?;
    fs::remove_dir_all(&workshop.work).map_err(|error| format!("{}: {error}", workshop.work.display()))?;
    for path in &made {
        let size = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.len();
        println!("  {size:>10}  {}", path.display());
    }
    Ok(packages)
}

impl Workshop {
    /// Removes the files of an earlier run. Cargo has its own files in this folder.
    fn clear(&self) -> Done {
        let _ = fs::remove_dir_all(&self.work);
        for entry in fs::read_dir(&self.folder).into_iter().flatten().filter_map(Result::ok) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".deb") || name.ends_with(".tar.gz") || name == SUMS {
                fs::remove_file(entry.path()).map_err(|error| format!("{name}: {error}"))?;
            }
        }
        fs::create_dir_all(&self.work).map_err(|error| format!("{}: {error}", self.work.display()))
    }

    /// Creates the whole tree below `prefix`: libraries, headers, the program, documents.
    fn tree(&self, prefix: &Path, libdir: &str, zsh: &str) -> Done {
        let shape = Shape { libdir: libdir.to_owned(), debug_files: self.debug_files, ..Shape::default() };
        install::install(&self.root, prefix, &shape)?;
        for name in ["tidesdb", "tidesdb-bench"] {
            let program = prefix.join("bin").join(name);
            install::copy(&target(&self.root).join(DIST).join(name), &program, 0o755)?;
            install::strip(&program, None)?;
        }
        let documents = prefix.join("share/doc/tidesdb");
        for name in ["README.md", "CHANGELOG.md", "docs/reference/c-api.md", "docs/reference/cli.md"] {
            page(&self.root, name, &documents)?;
        }
        let example = self.root.join(CRATE).join("examples/kv.c");
        install::copy(&example, &documents.join("examples/kv.c"), 0o644)?;
        install::write(&documents.join("copyright"), &licenses::text(&self.root, &INSTALLED)?)?;
        manual(&prefix.join("bin/tidesdb"), prefix, zsh)
    }

    /// Creates the archive for systems without packages.
    fn archive(&self) -> Result<PathBuf, String> {
        let name = format!("tidesdb-{}-{}", self.engine, self.machine.triple);
        self.tree(&self.work.join(&name), "lib", ZSH)?;
        open_to_all(&self.work.join(&name))?;
        let archive = self.folder.join(format!("{name}.tar.gz"));
        tar(&self.root, &self.work, &name, "gzip", &archive)?;
        Ok(archive)
    }

    fn packages(&self) -> Result<Vec<PathBuf>, String> {
        let tree = self.work.join("tree");
        let libdir = format!("lib/{}", self.machine.triple);
        self.tree(&tree.join("usr"), &libdir, DEBIAN_ZSH)?;
        let library = tree.join("usr").join(&libdir).join("libtidesdb.so.9");
        let of_library = format!("{}, libgcc-s1", libc_of(&library)?);
        let of_program = format!("{}, libgcc-s1", libc_of(&tree.join("usr/bin/tidesdb"))?);
        if self.debug_files {
            self.move_symbols(&tree, &libdir)?;
        }
        let packages = self.contents(&libdir, of_library, of_program);
        packages.iter().map(|package| self.package(&tree, package)).collect()
    }

    /// Returns the packages with their files.
    fn contents(&self, libdir: &str, of_library: String, of_program: String) -> Vec<Package> {
        let libdir = format!("usr/{libdir}");
        let below = |names: &[&str]| names.iter().map(|name| format!("{libdir}/{name}")).collect::<Vec<_>>();
        let mut development = below(&["libtidesdb.so", "libtidesdb.a", "pkgconfig", "cmake"]);
        development.extend(["usr/include", "usr/share/doc/tidesdb/c-api.md"].map(str::to_owned));
        development.push("usr/share/doc/tidesdb/examples".to_owned());
        let own = format!("libtidesdb9 (= {})", self.library);
        let mut packages = vec![
            Package {
                name: "libtidesdb9",
                version: self.library.clone(),
                section: "libs",
                depends: of_library,
                description: LIBRARY,
                files: below(&["libtidesdb.so.9", &self.shared]),
                control: vec![
                    ("triggers", "activate-noawait ldconfig\n".to_owned()),
                    ("shlibs", format!("libtidesdb 9 libtidesdb9 (>= {})\n", self.library)),
                ],
            },
            Package {
                name: "libtidesdb-dev",
                version: self.library.clone(),
                section: "libdevel",
                depends: format!("{own}, libc6-dev | libc-dev, libxxhash-dev"),
                description: DEVELOPMENT,
                files: development,
                control: Vec::new(),
            },
            Package {
                name: "tidesdb-cli",
                version: self.engine.clone(),
                section: "database",
                depends: of_program,
                description: PROGRAM,
                files: ["bin/tidesdb", "bin/tidesdb-bench", "share/doc/tidesdb/cli.md", MANUAL]
                    .into_iter()
                    .map(str::to_owned)
                    .chain(completions(DEBIAN_ZSH).map(|(_, file)| file))
                    .map(|file| format!("usr/{file}"))
                    .collect(),
                control: Vec::new(),
            },
        ];
        if self.debug_files {
            packages.push(Package {
                name: "libtidesdb9-dbgsym",
                version: self.library.clone(),
                section: "debug",
                depends: own,
                description: SYMBOLS,
                files: vec!["usr/lib/debug".to_owned()],
                control: Vec::new(),
            });
        }
        packages
    }

    /// Moves debug information to Debian's folder for all libraries. The static library has none.
    fn move_symbols(&self, tree: &Path, libdir: &str) -> Done {
        let from = tree.join("usr").join(libdir).join(".debug");
        let to = tree.join("usr/lib/debug/usr").join(libdir);
        let name = format!("{}.debug", self.shared);
        install::copy(&from.join(&name), &to.join(&name), 0o644)?;
        fs::remove_dir_all(&from).map_err(|error| format!("{}: {error}", from.display()))
    }

    /// Creates one Debian package from a tree.
    fn package(&self, tree: &Path, package: &Package) -> Result<PathBuf, String> {
        let stage = self.work.join(package.name);
        for file in &package.files {
            let to = stage.join(file);
            fs::create_dir_all(to.parent().unwrap_or(&to)).map_err(|error| format!("{file}: {error}"))?;
            done(Command::new("cp").arg("-a").arg(tree.join(file)).arg(&to))?;
        }
        let documents = stage.join("usr/share/doc").join(package.name);
        install::copy(&tree.join("usr/share/doc/tidesdb/copyright"), &documents.join("copyright"), 0o644)?;
        open_to_all(&stage)?;
        let sums = said(
            Command::new("sh")
                .current_dir(&stage)
                .args(["-c", "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum"]),
        )?;
        let kib = said(Command::new("du").args(["-sk", "--apparent-size"]).arg(&stage))?;
        let kib = kib.split_whitespace().next().unwrap_or("0").to_owned();
        install::write(&stage.join("DEBIAN/control"), &self.control(package, &kib))?;
        install::write(&stage.join("DEBIAN/md5sums"), &sums)?;
        for (name, text) in &package.control {
            install::write(&stage.join("DEBIAN").join(name), text)?;
        }
        open_to_all(&stage)?;
        let file = format!("{}_{}_{}.deb", package.name, package.version, self.machine.debian);
        let path = self.folder.join(file);
        let mut command = Command::new("dpkg-deb");
        command.args(["--root-owner-group", "-Zxz", "--build"]).arg(&stage).arg(&path);
        done(command.env("SOURCE_DATE_EPOCH", time(&self.root)))?;
        Ok(path)
    }

    fn control(&self, package: &Package, kib: &str) -> String {
        let from = |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
        let (name, email) =
            (from("DEBFULLNAME", "TidesDB maintainers"), from("DEBEMAIL", "maintainers@tidesdb.invalid"));
        let Package { name: of, version, section, depends, description, .. } = package;
        format!(
            "Package: {of}\nVersion: {version}\nArchitecture: {}\nMaintainer: {name} <{email}>\n\
             Installed-Size: {kib}\nDepends: {depends}\nSection: {section}\nPriority: optional\n\
             Description: {description}\n",
            self.machine.debian,
        )
    }
}

/// Packs the folder `name` of `work` with the program `gzip`. Neither owners nor times depend on the machine.
///
/// # Errors
/// If `tar` fails.
pub(crate) fn tar(root: &Path, work: &Path, name: &str, gzip: &str, archive: &Path) -> Done {
    let mut command = Command::new("tar");
    command.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-I", gzip]);
    command.arg(format!("--mtime=@{}", time(root))).arg("-cf").arg(archive);
    done(command.arg("-C").arg(work).arg(name))
}

/// Writes the checksums of these files of a folder.
///
/// # Errors
/// If `sha256sum` fails; an I/O error.
pub(crate) fn checksums(folder: &Path, names: &[impl AsRef<OsStr>]) -> Done {
    let sums = said(Command::new("sha256sum").current_dir(folder).args(names))?;
    install::write(&folder.join(SUMS), &sums)
}

/// Returns the time for all files in UNIX seconds: `SOURCE_DATE_EPOCH`, or the time of the commit.
pub(crate) fn time(root: &Path) -> String {
    let git = || said(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]));
    let time = std::env::var("SOURCE_DATE_EPOCH").or_else(|_| git());
    time.map_or_else(|_| "0".to_owned(), |time| time.trim().to_owned())
}

/// Returns the dependency of a file on the C library's package: the newest version among its symbols.
fn libc_of(file: &Path) -> Result<String, String> {
    let versions = said(Command::new("readelf").args(["--version-info", "--wide"]).arg(file))?;
    let newest = newest_glibc(&versions).ok_or(format!("{} does not need glibc", file.display()))?;
    Ok(format!("libc6 (>= {}.{})", newest.0, newest.1))
}

fn newest_glibc(versions: &str) -> Option<(u32, u32)> {
    let numbers = versions.split("GLIBC_").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let mut parts = rest[..end].split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    });
    numbers.max()
}

/// Writes the completions and the compressed manual pages of the program below `prefix`; those of zsh into the folder `zsh` there.
///
/// # Errors
/// If the program, or `gzip`, fails.
pub(crate) fn manual(program: &Path, prefix: &Path, zsh: &str) -> Done {
    for (shell, file) in completions(zsh) {
        install::write(&prefix.join(file), &said(Command::new(program).args(["completions", shell]))?)?;
    }
    let manual = prefix.join(MANUAL);
    done(Command::new(program).arg("man").arg(&manual))?;
    // Neither names nor times, so that the files depend on the pages only.
    done(Command::new("sh").current_dir(&manual).args(["-c", "gzip -9 --no-name *.1"]))
}

/// Copies a page of the repository into a folder of documents, without its links to pages that are not there.
///
/// # Errors
/// The I/O error, with the path.
pub(crate) fn page(root: &Path, name: &str, documents: &Path) -> Done {
    let from = root.join(name);
    let to = documents.join(from.file_name().unwrap_or_default());
    install::write(&to, &pages::alone(&install::read(&from)?))
}

/// Makes all files readable for all users, whatever the umask.
///
/// # Errors
/// If `chmod` fails.
pub(crate) fn open_to_all(folder: &Path) -> Done {
    done(Command::new("chmod").args(["-R", "u+rwX,go+rX,go-w"]).arg(folder))
}

fn done(command: &mut Command) -> Done {
    said(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_compared_by_number() {
        let versions = "Name: GLIBC_2.4  Flags\n Name: GLIBC_2.28  x\n GLIBC_2.9\n GLIBC_PRIVATE GLIBC_ABI";
        assert_eq!(newest_glibc(versions), Some((2, 28)));
        assert_eq!(newest_glibc("GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(newest_glibc("GCC_3.0"), None);
    }

    /// A script takes the place of the program, which takes minutes to build.
    #[test]
    fn completions_and_compressed_pages_are_installed() {
        let dir = std::env::temp_dir().join(format!("tidesdb-pages-{}", std::process::id()));
        let program = dir.join("program");
        let script =
            "#!/bin/sh\nif [ $1 = man ]; then mkdir -p $2; echo page >$2/tidesdb.1; else echo for $2; fi\n";
        install::write(&dir.join("script"), script).expect("the script");
        install::copy(&dir.join("script"), &program, 0o755).expect("the program");
        manual(&program, &dir.join("usr"), ZSH).expect("the pages");
        for (shell, file) in completions(ZSH) {
            assert_eq!(install::read(&dir.join("usr").join(file)), Ok(format!("for {shell}\n")));
        }
        let names: Vec<_> = fs::read_dir(dir.join("usr").join(MANUAL)).expect("the manual").collect();
        assert_eq!(names.len(), 1);
        assert!(dir.join("usr").join(MANUAL).join("tidesdb.1.gz").is_file());
        fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_description_has_a_summary_and_indented_lines() {
        for text in [LIBRARY, DEVELOPMENT, PROGRAM, SYMBOLS] {
            let mut lines = text.lines();
            assert!(lines.next().is_some_and(|line| line.len() <= 80 && !line.starts_with(' ')));
            let rest: Vec<_> = lines.collect();
            assert!(!rest.is_empty() && rest.iter().all(|line| line.starts_with(' ') && line.len() <= 80));
        }
    }
}
