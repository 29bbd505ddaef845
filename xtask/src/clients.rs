//! The stage `clients`: programs in other languages that use the installed C library of this repository.
//!
//! The Rust binding on crates.io runs its own tests. Go and Java have one program each; Java calls the library
//! through JNA, which Maven fetches. A part that cannot run here prints `SKIPPED`.

use crate::cargo::{Done, said, target, works};
use crate::ctests::difference;
use crate::install::{self, CRATE, Shape, read, write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Version of the binding, and the exact version of libtidesdb that it requests from pkg-config.
const BINDING: &str = "0.11.1";
const BOUND: &str = "9.3.6";

/// Selects the layout of `tidesdb_db_stats_t` of 9.3.8 and later in the binding.
const LAYOUT: &str = "--cfg tidesdb_has_single_writer_fencing";

const JNA: &str = "5.14.0";

/// The oldest Java version that compiles the program.
const JAVA: u32 = 17;

/// Expected output of the programs in Go and Java.
const PRINTED: &str = "second: refused\napple is green\nold is not there\nall:\n  apple = green\n  banana = yellow\ncopy:\n  \
                       apple = green\n  banana = yellow\n";

/// Result of a part, or the reason why it cannot run here.
type Part = Result<Result<String, String>, String>;

struct Bench {
    source: PathBuf,
    folder: PathBuf,
    prefix: PathBuf,
}

/// Runs all parts that can run here.
///
/// # Errors
/// If the library cannot be installed, or a part fails.
pub(crate) fn run(root: &Path) -> Done {
    let folder = target(root).join("clients");
    let _ = std::fs::remove_dir_all(&folder);
    let bench = Bench { source: root.join(CRATE), prefix: folder.join("prefix"), folder };
    install::install(root, &bench.prefix, &Shape::default())?;
    for (name, part) in
        [("Go", Bench::go as fn(&Bench) -> Part), ("Java", Bench::java), ("Rust", Bench::rust)]
    {
        match part(&bench)? {
            Ok(how) => println!("  {name}: {how}"),
            Err(why) => println!("  SKIPPED {name}: {why}"),
        }
    }
    Ok(())
}

impl Bench {
    /// Returns a command whose program finds the library.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        install::found_by(&mut command, &self.prefix);
        command.current_dir(&self.folder);
        command
    }

    fn go(&self) -> Part {
        if !works("go", &["version"]) || !works("pkg-config", &["--version"]) {
            return Ok(Err("apt-get install golang-go pkg-config".to_owned()));
        }
        let program = self.folder.join("kv-go");
        let mut build = self.command("go");
        build.env("CGO_ENABLED", "1").env("GOWORK", "off").args(["build", "-o"]).arg(&program);
        said(build.arg(self.source.join("examples/kv.go")))?;
        let program = program.to_string_lossy();
        self.tour(self.command(&program).arg("go.db"))
    }

    fn java(&self) -> Part {
        if java_version().is_none_or(|version| version < JAVA) || !works("mvn", &["--version"]) {
            return Ok(Err(format!("apt-get install openjdk-{JAVA}-jdk-headless maven")));
        }
        let mut fetch = self.command("mvn");
        fetch.args(["-B", "-q", "dependency:copy", &format!("-Dartifact=net.java.dev.jna:jna:{JNA}")]);
        if let Err(error) = said(fetch.arg(format!("-DoutputDirectory={}", self.folder.display()))) {
            let first = error.lines().find(|line| line.contains("ERROR")).unwrap_or(&error).to_owned();
            return Ok(Err(format!("Maven cannot fetch JNA: {first}")));
        }
        let mut program = self.command("java");
        program.arg("-cp").arg(self.folder.join(format!("jna-{JNA}.jar")));
        self.tour(program.arg(self.source.join("examples/Kv.java")).arg("java.db"))
    }

    /// Runs a program and checks that it prints the expected output.
    fn tour(&self, command: &mut Command) -> Part {
        match difference(PRINTED, &said(command)?) {
            Some(line) => Err(format!("{command:?}: {line}")),
            None => Ok(Ok("put, get, iterate, conflict, expiry, backup".to_owned())),
        }
    }

    /// Runs the tests in the binding's package.
    fn rust(&self) -> Part {
        if !works("pkg-config", &["--version"]) {
            return Ok(Err("apt-get install pkg-config".to_owned()));
        }
        let suite = match self.fetch() {
            Ok(suite) => suite,
            Err(error) => {
                let first = error.lines().find(|line| line.contains("error")).unwrap_or(&error).to_owned();
                return Ok(Err(format!("Cargo cannot fetch the binding: {first}")));
            }
        };
        let pkg_config = self.folder.join("pkgconfig/tidesdb.pc");
        write(&pkg_config, &self.bound()?)?;
        let mut tests = self.command("cargo");
        tests.args(["test", "--quiet", "--no-default-features"]).env("RUSTFLAGS", LAYOUT).current_dir(&suite);
        tests.env("PKG_CONFIG_PATH", self.folder.join("pkgconfig"));
        let printed = said(tests.env("CARGO_TARGET_DIR", self.folder.join("target")))?;
        let passed: Vec<u32> = printed.lines().filter_map(passed).collect();
        match passed.iter().sum::<u32>() {
            0 => Err(format!("the binding ran no tests:\n{printed}")),
            all => Ok(Ok(format!("binding {BINDING}, {all} tests of its own"))),
        }
    }

    /// Fetches the binding and copies it to a writable folder. Its default features would fetch another
    /// library.
    fn fetch(&self) -> Result<PathBuf, String> {
        let asking = self.folder.join("asking");
        let wanted = format!("tidesdb = {{ version = \"={BINDING}\", default-features = false }}");
        let package = "[package]\nname = \"asking\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n";
        write(&asking.join("Cargo.toml"), &format!("{package}{wanted}\n"))?;
        write(&asking.join("src/lib.rs"), "")?;
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let mut ask = self.command("cargo");
        ask.args(["metadata", "--format-version", "1", "--filter-platform", &platform]).current_dir(&asking);
        let from = manifest(&said(&mut ask)?).ok_or("error: cargo metadata does not list it")?;
        let suite = self.folder.join("suite");
        said(Command::new("cp").arg("-r").arg(from.parent().unwrap_or(&from)).arg(&suite))?;
        // Without this line, Cargo would treat it as a member of the workspace around it.
        let manifest = suite.join("Cargo.toml");
        write(&manifest, &format!("{}\n[workspace]\n", read(&manifest)?))?;
        Ok(suite)
    }

    /// Returns the pkg-config file of the library, with the version that the binding requests.
    fn bound(&self) -> Result<String, String> {
        let text = read(&self.prefix.join("lib/pkgconfig/tidesdb.pc"))?;
        let line = |line: &str| match line.split_once(['=', ':']) {
            Some(("prefix", _)) => format!("prefix={}\n", self.prefix.display()),
            Some(("Version", _)) => format!("Version: {BOUND}\n"),
            _ => format!("{line}\n"),
        };
        Ok(text.lines().map(line).collect())
    }
}

/// Returns the path of the binding's manifest in the output of `cargo metadata`.
fn manifest(metadata: &str) -> Option<PathBuf> {
    let end = format!("/tidesdb-{BINDING}/Cargo.toml");
    let paths = metadata.split("\"manifest_path\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    paths.into_iter().find(|path| path.ends_with(&end)).map(PathBuf::from)
}

/// Returns the number of passed tests in a result line.
fn passed(line: &str) -> Option<u32> {
    line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok()
}

/// Returns the major version of the Java compiler.
fn java_version() -> Option<u32> {
    major(&said(Command::new("javac").arg("-version")).ok()?)
}

fn major(printed: &str) -> Option<u32> {
    printed.trim().strip_prefix("javac ")?.split(['.', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_is_found_among_others() {
        let text = format!(
            "{{\"manifest_path\":\"/a/libc/Cargo.toml\",\"x\":1}},{{\"manifest_path\":\"/b/tidesdb-{BINDING}/Cargo.toml\"}}"
        );
        assert_eq!(manifest(&text), Some(PathBuf::from(format!("/b/tidesdb-{BINDING}/Cargo.toml"))));
        assert_eq!(manifest("{\"manifest_path\":\"/a/tidesdb-0.9.0/Cargo.toml\"}"), None);
    }

    #[test]
    fn results_are_counted() {
        assert_eq!(passed("test result: ok. 71 passed; 0 failed; 0 ignored"), Some(71));
        assert_eq!(passed("test result: FAILED. 70 passed; 1 failed"), None);
        assert_eq!(passed("running 71 tests"), None);
    }

    #[test]
    fn versions_of_java() {
        assert_eq!(major("javac 17.0.15\n"), Some(17));
        assert_eq!(major("javac 25-ea\n"), Some(25));
        assert_eq!(major("javac 1.8.0_392\n"), Some(1));
        assert_eq!(major("gcj 4"), None);
    }
}
