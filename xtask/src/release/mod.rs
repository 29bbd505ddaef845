//! `cargo xtask release`: builds, tests and lays out everything of one version in `target/release-files`, with checksums. Publishes nothing.
//!
//! What is made: the crates as the registry will build them, the program as one file for Linux and Windows, Debian packages, an archive of
//! the C library, and Python wheels. Each part ends the command if it fails; `--only PART` runs single parts. The interface of the crates is
//! compared with that of the versions that are published, that of the C library with the version of the newest tag; `--baseline REV` compares both
//! with a commit instead.

mod abi;
mod names;
mod programs;
mod wheels;

use crate::cargo::{Cargo, Done, said, target};
use crate::{install, package, stages};
use names::Name;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The parts, in their order.
const PARTS: [&str; 7] = ["version", "names", "tests", "crates", "programs", "packages", "wheels"];

/// The name of the wheel.
const WHEEL: &str = "tidesdb";

/// The crate with the program.
const PROGRAM: &str = "tidesdb-cli";

/// The crates that have a workspace of their own, and their folders.
const INTEGRATIONS: [(&str, &str); 1] = [("tidesdb-openraft", "integrations/openraft")];

/// What the parts share.
struct Workshop<'a> {
    root: &'a Path,
    version: &'static str,
    /// Where the files of the release are laid out.
    folder: PathBuf,
    /// Where they are made; removed at the end.
    work: PathBuf,
    /// The commit that the interfaces are compared with, instead of what is published.
    baseline: Option<String>,
}

/// What to do.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    parts: Vec<&'static str>,
    baseline: Option<String>,
}

/// Runs `cargo xtask release` with `args`.
///
/// # Errors
/// Unknown arguments; the first part that fails.
pub(crate) fn run(root: &Path, args: &[String]) -> Done {
    let Plan { parts, baseline } = parse(args)?;
    let folder = std::path::absolute(target(root).join("release-files")).map_err(|e| e.to_string())?;
    let work = folder.join("work");
    // A complete run begins anew, so that no file of an older version is left.
    install::remove(if parts.len() == PARTS.len() { &folder } else { &work })?;
    std::fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let workshop = Workshop { root, version: env!("CARGO_PKG_VERSION"), folder, work, baseline };
    for part in &parts {
        println!("== {part}");
        workshop.part(part).map_err(|message| format!("{part}: {message}"))?;
    }
    install::remove(&workshop.work)?;
    workshop.checksums()
}

fn parse(args: &[String]) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => {
                let name = args.next().ok_or("--only needs the name of a part")?;
                let known = PARTS.iter().find(|part| *part == name);
                let unknown = || format!("no part `{name}`; the parts are: {}", PARTS.join(" "));
                plan.parts.push(*known.ok_or_else(unknown)?);
            }
            "--baseline" => plan.baseline = Some(args.next().ok_or("--baseline needs a commit")?.clone()),
            other => {
                return Err(format!(
                    "unknown argument `{other}`; usage: cargo xtask release [--only PART]... [--baseline REV]"
                ));
            }
        }
    }
    if plan.parts.is_empty() {
        plan.parts = PARTS.to_vec();
    }
    Ok(plan)
}

impl Workshop<'_> {
    fn part(&self, part: &str) -> Done {
        let root = self.root;
        match part {
            "version" => self.version(),
            "names" => self.names(),
            "tests" => stages::run(root, &["tidy", "lint", "test", "docs", "c-dist"]),
            "crates" => self.crates(),
            "programs" => programs::make(self),
            "packages" => {
                package::build(root, false)?;
                self.take(&target(root).join("package"), &[".deb", ".tar.gz"])
            }
            "wheels" => wheels::make(self),
            other => Err(format!("no part `{other}`")),
        }
    }

    /// The list of changes begins with this version, and the tree is that of a commit without a tag of another one.
    fn version(&self) -> Done {
        let changes = install::read(&self.root.join("CHANGELOG.md"))?;
        let first = newest(&changes).ok_or("CHANGELOG.md has no version")?;
        if first.0 != self.version {
            return Err(format!("CHANGELOG.md begins with {}, the crates have {}", first.0, self.version));
        }
        println!("  {}, {}", self.version, first.1);
        let changed = said(self.git().args(["status", "--porcelain"]))?;
        if !changed.is_empty() {
            return Err(format!("the tree differs from its commit:\n{changed}"));
        }
        let tags = said(self.git().args(["tag", "--points-at", "HEAD"]))?;
        let tag = format!("v{}", self.version);
        match tags.lines().find(|known| *known != tag) {
            Some(other) => Err(format!("the commit has the tag {other}")),
            None => Ok(()),
        }
    }

    fn git(&self) -> Command {
        let mut git = Command::new("git");
        git.current_dir(self.root);
        git
    }

    /// Says whether each name can be used, and compares the interfaces with those of what is published.
    fn names(&self) -> Done {
        abi::compare(self.root, self.baseline.as_deref())?;
        let (mut published, mut taken) = (Vec::new(), Vec::new());
        let crates = published_crates(self.root)?;
        let outside = INTEGRATIONS.iter().map(|(name, _)| *name);
        let all = crates.iter().map(String::as_str).chain(outside);
        let of_crates = all.map(|name| (name, "crates.io", names::of_crate(name)));
        let of_wheel = std::iter::once_with(|| (WHEEL, "PyPI", names::of_wheel(WHEEL)));
        for (name, registry, answer) in of_crates.chain(of_wheel) {
            match answer {
                Name::Free => println!("  {registry}: {name} is free"),
                Name::Published(version) if version == self.version => {
                    taken.push(format!("{name} {version}"))
                }
                Name::Published(version) => {
                    println!("  {registry}: {name} has {version}");
                    if registry == "crates.io" {
                        published.push(name.to_owned());
                    }
                }
                Name::Unknown(said) => {
                    return Err(format!("{registry} does not say whether {name} is free: {said}"));
                }
            }
        }
        if !taken.is_empty() {
            return Err(format!("published already: {}", taken.join(", ")));
        }
        match &self.baseline {
            Some(baseline) => names::compare(self.root, &crates, Some(baseline)),
            None if published.is_empty() => {
                println!("  no crate is published: there is nothing to compare the interface with");
                Ok(())
            }
            None => names::compare(self.root, &published, None),
        }
    }

    /// Builds the crates as the registry would, and installs the program from them. The files that would be uploaded are kept.
    fn crates(&self) -> Done {
        Cargo::new("publish --workspace --dry-run --locked").run(self.root)?;
        let folder = target(self.root).join("package");
        // Cargo keeps those of a dry run in the folder for what it has not finished.
        let unfinished = folder.join("tmp-crate");
        self.take(if unfinished.is_dir() { &unfinished } else { &folder }, &[".crate"])?;
        let patches = self.unpack()?;
        self.install_program(&patches)?;
        INTEGRATIONS.iter().try_for_each(|(name, folder)| self.integration(name, folder, &patches))
    }

    /// Returns the folder in which the file of a crate is unpacked.
    fn unpacked(&self, name: &str) -> PathBuf {
        self.work.join("crates").join(format!("{name}-{}", self.version))
    }

    /// Unpacks the file of a crate.
    fn unpack_one(&self, name: &str) -> Done {
        let sources = self.work.join("crates");
        std::fs::create_dir_all(&sources).map_err(|e| format!("{}: {e}", sources.display()))?;
        let file = self.folder.join(format!("{name}-{}.crate", self.version));
        said(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(&sources)).map(drop)
    }

    /// Unpacks the files of the crates. Returns the arguments with which each takes the place of the one that the registry will have.
    fn unpack(&self) -> Result<Vec<String>, String> {
        let mut patches = Vec::new();
        for name in published_crates(self.root)? {
            self.unpack_one(&name)?;
            if name != PROGRAM {
                let path = self.unpacked(&name);
                let patch = format!("patch.crates-io.{name}.path={:?}", path.to_string_lossy());
                patches.extend(["--config".to_owned(), patch]);
            }
        }
        Ok(patches)
    }

    /// Packs a crate that has a workspace of its own, and builds it from its file and those of the other crates alone.
    fn integration(&self, name: &str, folder: &str, patches: &[String]) -> Done {
        let manifest = self.root.join(folder).join("Cargo.toml");
        let into = self.work.join("integrations");
        // What it depends on is not in the registry yet, so it is not built where it is packed.
        let place = [&manifest, &into].map(|path| path.to_string_lossy().into_owned());
        let [manifest, target] = place;
        Cargo::new("package --no-verify --exclude-lockfile --manifest-path")
            .args(&[manifest, "--target-dir".to_owned(), target.clone()])
            .run(self.root)?;
        self.take(&into.join("package"), &[".crate"])?;
        self.unpack_one(name)?;
        let manifest = self.unpacked(name).join("Cargo.toml");
        install::write(&manifest, &(install::read(&manifest)? + "\n[workspace]\n"))?;
        let manifest = manifest.to_string_lossy().into_owned();
        let args = ["--manifest-path".to_owned(), manifest, "--target-dir".to_owned(), target];
        Cargo::new("build").args(&args).args(patches).run(self.root)
    }

    /// Installs and runs the program from the files of the crates alone.
    fn install_program(&self, patches: &[String]) -> Done {
        let root = self.work.join("installed");
        let mut args = ["install", "--path"].map(str::to_owned).to_vec();
        args.push(self.unpacked(PROGRAM).to_string_lossy().into_owned());
        args.extend(["--root".to_owned(), root.to_string_lossy().into_owned()]);
        args.extend(patches.iter().cloned());
        // The folder may lie in the workspace of this tree, of which the crate is no member.
        let manifest = self.unpacked(PROGRAM).join("Cargo.toml");
        install::write(&manifest, &(install::read(&manifest)? + "\n[workspace]\n"))?;
        Cargo::new("").args(&args).run(self.root)?;
        let program = root.join("bin/tidesdb");
        for line in ["put apple red", "get apple", "verify"] {
            let mut command = Command::new(&program);
            said(command.arg("--db").arg(self.work.join("t.db")).args(line.split(' ')))?;
        }
        Ok(())
    }

    /// Copies the files of a folder that have one of these ends.
    fn take(&self, folder: &Path, ends: &[&str]) -> Done {
        let files = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
        paths.retain(|path| ends.iter().any(|end| path.to_string_lossy().ends_with(end)));
        if paths.is_empty() {
            return Err(format!("{} has no file *{}", folder.display(), ends.join(", *")));
        }
        paths.iter().try_for_each(|path| self.keep(path))
    }

    fn keep(&self, path: &Path) -> Done {
        install::copy(path, &self.folder.join(path.file_name().unwrap_or_default()), 0o644)
    }

    /// Packs the folder `name` of the workshop. Neither owners nor times depend on the machine.
    fn archive(&self, name: &str, end: &str) -> Result<PathBuf, String> {
        let archive = self.folder.join(format!("{name}.{end}"));
        if end != "zip" {
            package::tar(self.root, &self.work, name, "gzip -9n", &archive)?;
            return Ok(archive);
        }
        let script = "set -e; find \"$2\" -exec touch -h -d \"@$3\" {} +; rm -f \"$1\"
                      find \"$2\" -type f | LC_ALL=C sort | TZ=UTC zip -q -X -@ \"$1\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&archive).args([name, &package::time(self.root)]);
        said(command.current_dir(&self.work))?;
        Ok(archive)
    }

    /// Writes the checksums of all files, and shows them. Each has its licences, and the version in its name.
    fn checksums(&self) -> Done {
        let files = std::fs::read_dir(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))?;
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name != package::SUMS).collect();
        if names.is_empty() {
            return Ok(()); // only parts that lay out nothing were run
        }
        names.sort_unstable();
        for name in &names {
            let path = self.folder.join(name);
            if !name.contains(self.version) {
                return Err(format!("{} is not of version {}: remove it", path.display(), self.version));
            }
            if !has_license(&contents(&path)?) {
                return Err(format!("{} has no licence", path.display()));
            }
            let size = std::fs::metadata(&path).map_err(|e| format!("{name}: {e}"))?.len();
            println!("  {size:>10}  {name}");
        }
        package::checksums(&self.folder, &names)
    }
}

/// Returns the names of the files in a crate, an archive, a package or a wheel, one in each line.
fn contents(path: &Path) -> Result<String, String> {
    let (program, option) = match path.extension().and_then(|end| end.to_str()) {
        Some("zip" | "whl") => ("unzip", "-Z1"),
        Some("deb") => ("dpkg-deb", "--contents"),
        _ => ("tar", "-tzf"),
    };
    said(Command::new(program).arg(option).arg(path))
}

/// Returns whether one of these files is for the licences.
fn has_license(names: &str) -> bool {
    names.lines().any(|name| {
        let file = name.rsplit('/').next().unwrap_or_default();
        file.starts_with("LICENSE") || file == "copyright"
    })
}

/// Returns the first version of a list of changes, and the rest of its line.
fn newest(changes: &str) -> Option<(&str, &str)> {
    let line = changes.lines().find_map(|line| line.strip_prefix("## "))?;
    Some(line.split_once(", ").unwrap_or((line, "")))
}

/// Returns the names of the crates that are published.
fn published_crates(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("crates");
    let dirs = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names = Vec::new();
    for manifest in dirs.filter_map(|dir| Some(dir.ok()?.path().join("Cargo.toml"))) {
        let text = install::read(&manifest)?;
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        if !text.contains("publish = false") {
            names.push(name.ok_or_else(|| format!("{} has no name", manifest.display()))?.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_run_in_their_order_unless_named() {
        let parse = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Plan { parts: PARTS.to_vec(), baseline: None }));
        let named = Plan { parts: vec!["crates", "names"], baseline: Some("HEAD~1".to_owned()) };
        assert_eq!(parse("--only crates --baseline HEAD~1 --only names"), Ok(named));
        assert!(parse("--only everything").is_err_and(|error| error.contains("wheels")));
        assert!(parse("--only").is_err() && parse("crates").is_err() && parse("--baseline").is_err());
    }

    #[test]
    fn the_newest_version_is_that_of_the_first_heading() {
        assert_eq!(newest("# Changes\n\n## 1.2.3, 1 May\n\n## 1.2.2"), Some(("1.2.3", "1 May")));
        assert_eq!(newest("## 1.2.3\n"), Some(("1.2.3", "")));
        assert_eq!(newest("# Changes\n"), None);
    }

    /// Neither the test kit nor this program is for others.
    #[test]
    fn what_is_published_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let crates = published_crates(&root).expect("the crates");
        assert!(crates.contains(&"tidesdb-engine".to_owned()) && crates.contains(&"tidesdb-cli".to_owned()));
        assert!(!crates.iter().any(|name| ["testkit", "tidesdb-bench-peers"].contains(&name.as_str())));
    }

    /// Cargo packs what is in the folder of a crate only.
    #[test]
    fn each_published_crate_has_the_licences() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in published_crates(&root).expect("the crates") {
            let folder = if name == "tidesdb-engine" { "tidesdb" } else { &name };
            for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
                let own = install::read(&root.join("crates").join(folder).join(license));
                assert_eq!(own, install::read(&root.join(license)), "{name}");
            }
        }
        for (name, folder) in INTEGRATIONS {
            let manifest = install::read(&root.join(folder).join("Cargo.toml")).expect("a manifest");
            assert!(manifest.contains(&format!("name = \"{name}\"")));
            assert!(manifest.contains(&format!("version = \"{}\"", env!("CARGO_PKG_VERSION"))), "{name}");
            for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
                let own = install::read(&root.join(folder).join(license));
                assert_eq!(own, install::read(&root.join(license)), "{name}");
            }
        }
    }

    #[test]
    fn a_licence_is_a_file_of_its_own() {
        for with in [
            "tidesdb-io-0.1.0/LICENSE-MIT\n",
            "a\ntidesdb-0.1.0.dist-info/licenses/LICENSE-APACHE\n",
            "-rw-r--r-- root/root 9 2026-01-01 00:00 ./usr/share/doc/tidesdb-cli/copyright\n",
        ] {
            assert!(has_license(with), "{with}");
        }
        for without in ["", "LICENSE.d/readme\n", "src/copyright.rs\n"] {
            assert!(!has_license(without), "{without}");
        }
    }

    #[test]
    fn an_archive_depends_on_its_files_only() {
        let folder = std::env::temp_dir().join(format!("tidesdb-release-{}", std::process::id()));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut made = Vec::new();
        for n in 0..2 {
            let work = folder.join(format!("work-{n}"));
            install::write(&work.join("thing/file"), "text").expect("a file");
            let workshop =
                Workshop { root: &root, version: "1", folder: folder.clone(), work, baseline: None };
            let path = workshop.archive("thing", "tar.gz").expect("an archive");
            made.push(std::fs::read(path).expect("it is there"));
            std::thread::sleep(std::time::Duration::from_millis(1100)); // times are whole seconds
        }
        install::remove(&folder).expect("removed");
        assert!(!made[0].is_empty() && made[0] == made[1]);
    }
}
