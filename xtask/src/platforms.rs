//! `cargo xtask platforms`: compiles the engine for other systems and processors, and runs what this machine can run of it.
//!
//! `docs/reference/platforms.md` says what that shows. What is missing is installed: the standard library of a target with `rustup target add`, linkers
//! and emulators as packages of Debian, if the caller is root. A part that still lacks a tool prints `SKIPPED` and the reason; a test that is
//! left out is named with the reason. A variable of Cargo for the target, such as `CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER`, is kept if the
//! caller has set it.

use crate::cargo::{Cargo, Done, said, works};
use crate::stages::{Outcome, Staged};
use crate::wine;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kind of machine.
struct Platform {
    name: &'static str,
    target: &'static str,
    /// How its programs are linked and run here; `None` if it is only compiled.
    run: Option<Run>,
}

struct Run {
    linker: &'static str,
    runner: Runner,
    /// The packages of Debian with the linker and the emulator.
    packages: &'static str,
    /// Flags of the compiler.
    flags: &'static str,
    steps: &'static [Step],
}

/// What runs a program.
#[derive(Clone, Copy)]
enum Runner {
    /// This machine.
    Native,
    /// An emulator with its arguments.
    Emulator(&'static str),
    Wine,
}

/// One command of Cargo.
struct Step {
    /// What it shows, for the summary.
    what: &'static str,
    /// The command without the target. [`DISK`] and [`ROWS`] stand for folders.
    cargo: &'static str,
    /// Tests that are left out besides those that are ignored, by their whole names, with the reason.
    left_out: &'static [(&'static str, &'static str)],
}

/// In the arguments of a step: the folder of an empty file system in memory with this many MiB, which needs the right to mount.
const DISK: &str = "{DISK}";
const DISK_MIB: u32 = 48;

/// In the arguments of a step: a folder with `rows.tsv`, which has a million rows. A load begins with nothing else in it. If there is a
/// `dump.tsv` after a step, it must have the same bytes.
const ROWS: &str = "{ROWS}";

const PLATFORMS: [Platform; 7] = [
    Platform { name: "macos", target: "aarch64-apple-darwin", run: None },
    Platform { name: "macos-x86", target: "x86_64-apple-darwin", run: None },
    Platform { name: "freebsd", target: "x86_64-unknown-freebsd", run: None },
    Platform {
        name: "windows",
        target: wine::TARGET,
        run: Some(Run {
            linker: wine::COMPILER,
            runner: Runner::Wine,
            packages: wine::PACKAGES,
            flags: "",
            steps: &[
                Step { what: "leaf crates", cargo: LEAVES, left_out: &[] },
                Step { what: "engine", cargo: ENGINE, left_out: WINE_ENGINE },
                Step { what: "programs, C library, other crates", cargo: PROGRAMS, left_out: &[] },
                Step {
                    what: "50 kills of a writer",
                    cargo: "run -p testkit -- kill --kills 50",
                    left_out: &[],
                },
                Step {
                    what: "a reader beside a writer",
                    cargo: "run -p testkit -- beside --refreshes 100",
                    left_out: &[],
                },
                Step {
                    what: "the tour of the program",
                    cargo: "run -p tidesdb-cli --bin tidesdb -- tour",
                    left_out: &[],
                },
                Step {
                    what: "load of a million rows",
                    cargo: "run -p tidesdb-cli --bin tidesdb -- --db {ROWS}/db load {ROWS}/rows.tsv",
                    left_out: &[],
                },
                Step {
                    what: "dump of these rows",
                    cargo: "run -p tidesdb-cli --bin tidesdb -- --db {ROWS}/db dump --output {ROWS}/dump.tsv",
                    left_out: &[],
                },
                Step {
                    what: "a full disk",
                    cargo: "run -p testkit -- tmpfs --rounds 6 --scarce 0 --mib 48 --dir {DISK}",
                    left_out: &[],
                },
            ],
        }),
    },
    Platform {
        name: "x86-32",
        target: "i686-unknown-linux-gnu",
        run: Some(Run {
            linker: "i686-linux-gnu-gcc",
            runner: Runner::Native,
            packages: "gcc-i686-linux-gnu libc6-dev-i386-cross",
            // Programs find the libraries of the cross compiler.
            flags: "-Clink-arg=-Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2 \
                    -Clink-arg=-Wl,-rpath,/usr/i686-linux-gnu/lib",
            steps: &[
                Step { what: "leaf crates", cargo: LEAVES, left_out: &[] },
                Step { what: "engine", cargo: ENGINE, left_out: &[] },
                Step { what: "C library", cargo: CAPI, left_out: &[] },
            ],
        }),
    },
    Platform {
        name: "arm64",
        target: "aarch64-unknown-linux-gnu",
        run: Some(Run {
            linker: "aarch64-linux-gnu-gcc",
            runner: Runner::Emulator("qemu-aarch64 -L /usr/aarch64-linux-gnu"),
            packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
            flags: "",
            steps: &[
                Step { what: "leaf crates", cargo: LEAVES, left_out: QEMU_LEAVES },
                Step { what: "files", cargo: FILES, left_out: &[] },
            ],
        }),
    },
    Platform {
        name: "s390x",
        target: "s390x-unknown-linux-gnu",
        run: Some(Run {
            linker: "s390x-linux-gnu-gcc",
            runner: Runner::Emulator("qemu-s390x -L /usr/s390x-linux-gnu"),
            packages: "gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user",
            flags: "",
            steps: &[
                Step { what: "leaf crates", cargo: LEAVES, left_out: QEMU_LEAVES },
                Step { what: "files", cargo: FILES, left_out: &[] },
            ],
        }),
    },
];

/// What a check run compiles.
const STAGE: [&str; 2] = ["macos", "windows"];

/// What is compiled everywhere: without Zstandard, whose C needs a compiler and headers of the system.
const CHECKED: &str = "-p tidesdb-io -p tidesdb-sync -p tidesdb-cache -p tidesdb-memtable -p tidesdb-engine \
                       -p tidesdb-typed -p tidesdb-tokio -p tidesdb-objects -p tidesdb-console -p tidesdb-cli \
                       --features tidesdb-engine/snappy,tidesdb-cli/top,tidesdb-cli/report";

/// The tests of the parts of the engine that depend on the machine.
const LEAVES: &str = "test --lib --tests -p tidesdb-io -p tidesdb-sync -p tidesdb-cache -p tidesdb-memtable";

/// The tests of the engine.
const ENGINE: &str = "test --lib --tests -p tidesdb-engine";

/// The tests of the C library: layouts, handles, settings.
const CAPI: &str = "test --lib -p tidesdb-capi";

/// The tests of the programs, of the C library and of the crates beside the engine.
const PROGRAMS: &str = "test --lib --bins --tests -p tidesdb-typed -p tidesdb-tokio -p tidesdb-objects \
                        -p tidesdb-console -p tidesdb-cli -p tidesdb-capi --features tidesdb-typed/json,tidesdb-cli/top,tidesdb-cli/report";

/// The tests that what another machine wrote is read, and that the same bytes are written.
const FILES: &str = "test -p tidesdb-engine --test golden";

/// Without support of the kernel for emulators.
const STARTS_ITSELF: &str = "starts itself, which this machine cannot run";

const QEMU_LEAVES: &[(&str, &str)] = &[
    ("heap::tests::the_allocator_is_asked_again_after_a_while", STARTS_ITSELF),
    ("heap::tests::the_heap_counts_what_was_freed", STARTS_ITSELF),
    ("sim::alone::tests::a_body_runs_in_another_process", STARTS_ITSELF),
    ("sim::alone::tests::a_failure_is_that_of_the_test", STARTS_ITSELF),
    ("tests::memory::an_empty_cache_of_any_capacity_is_small", STARTS_ITSELF),
    ("real_disk_unix::files_and_directories_are_private_whatever_the_umask", STARTS_ITSELF),
    ("real_disk::other_processes_are_kept_out", STARTS_ITSELF),
];

const WINE_ENGINE: &[(&str, &str)] = &[(
    "memory_limit::ten_thousand::ten_thousand_of_each_object_stay_within_the_limit",
    "measures the memory of a process of Linux with the allocator of glibc",
)];

/// How Rust shows the error "Internal error" of Windows. Under Wine 8.0 the start of a process fails with it in rare cases, beside
/// other work.
const UNSTARTED: &str = "code: 1359";

/// Runs `cargo xtask platforms [NAME...]`: all if none is named.
///
/// # Errors
/// An unknown name. Otherwise everything runs, and the failures are listed.
pub(crate) fn run(root: &Path, names: &[String]) -> Done {
    let named = |name: &String| PLATFORMS.iter().find(|platform| platform.name == name);
    if let Some(name) = names.iter().find(|name| named(name).is_none()) {
        let known: Vec<&str> = PLATFORMS.iter().map(|platform| platform.name).collect();
        return Err(format!("no platform `{name}`; there are: {}", known.join(" ")));
    }
    let chosen = |platform: &&Platform| names.is_empty() || names.iter().any(|name| name == platform.name);
    let mut report = Report::default();
    PLATFORMS.iter().filter(chosen).for_each(|platform| platform.run(root, &mut report));
    println!("\n{}", report.lines.join("\n"));
    if report.failures.is_empty() { Ok(()) } else { Err(report.failures.join("\n")) }
}

/// Installs what builds programs for the platform called `name`. Returns the target of Rust, and the variables for Cargo.
///
/// # Errors
/// An unknown name, one that is only compiled, or a tool that is missing.
pub(crate) fn prepare(root: &Path, name: &str) -> Result<(String, Environment), String> {
    let platform = PLATFORMS.iter().find(|platform| platform.name == name);
    let platform = platform.ok_or_else(|| format!("no platform `{name}`"))?;
    let run = platform.run.as_ref().ok_or_else(|| format!("nothing here links programs for {name}"))?;
    platform.install(root)?;
    run.tools(platform.target)?;
    Ok((platform.target.to_owned(), run.environment(root, platform.target)?))
}

/// The stage of a check run: compiles the engine for macOS and Windows.
pub(crate) fn stage(root: &Path) -> Staged {
    compile(root, PLATFORMS.iter().filter(|platform| STAGE.contains(&platform.name)))
}

/// Compiles the engine for each of these; those whose standard library cannot be installed are skipped.
fn compile<'p>(root: &Path, platforms: impl Iterator<Item = &'p Platform>) -> Staged {
    let mut skipped = Vec::new();
    for platform in platforms {
        match platform.install(root) {
            Ok(()) => platform.check(root)?,
            Err(reason) => skipped.push(format!("{}: {}", platform.name, reason.replace('\n', " "))),
        }
    }
    if skipped.is_empty() { Ok(Outcome::Passed) } else { Ok(Outcome::Skipped(skipped.join("; "))) }
}

/// What was done: a line for each part.
#[derive(Default)]
struct Report {
    lines: Vec<String>,
    failures: Vec<String>,
}

impl Report {
    fn add(&mut self, platform: &str, what: &str, outcome: Result<String, String>) {
        let text = match outcome {
            Ok(text) => text,
            Err(message) => {
                self.failures.push(format!("{platform}, {what}: {message}"));
                "FAILED".to_owned()
            }
        };
        self.lines.push(format!("{platform}, {what}: {text}"));
    }
}

impl Platform {
    fn run(&self, root: &Path, report: &mut Report) {
        let name = self.name;
        if let Err(reason) = self.install(root) {
            return report.lines.push(format!("SKIPPED {name}: {reason}"));
        }
        report.add(name, "check of the engine", self.check(root).map(|()| "ok".to_owned()));
        let Some(run) = &self.run else {
            return report.lines.push(format!("{name}: only compiled, nothing here runs its programs"));
        };
        let env = match run.tools(self.target).and_then(|()| run.environment(root, self.target)) {
            Ok(env) => env,
            Err(reason) => return report.lines.push(format!("SKIPPED tests on {name}: {reason}")),
        };
        for step in run.steps {
            let (mut left_out, what) = (Vec::new(), step.what);
            match step.run(root, self.target, &env, &mut left_out) {
                Ok(Shown::Text(text)) => report.add(name, what, Ok(text)),
                Ok(Shown::Nothing(why)) => report.lines.push(format!("SKIPPED {what} on {name}: {why}")),
                Err(message) => report.add(name, what, Err(message)),
            }
            report.lines.extend(left_out.iter().map(|text| format!("  left out: {text}")));
        }
    }

    /// Installs the standard library of the target, unless it is there.
    fn install(&self, root: &Path) -> Done {
        let library =
            said(Command::new("rustc").args(["--print", "target-libdir", "--target", self.target]))?;
        if Path::new(library.trim()).exists() {
            return Ok(());
        }
        said(Command::new("rustup").args(["target", "add", self.target]).current_dir(root)).map(drop)
    }

    fn check(&self, root: &Path) -> Done {
        Cargo::new(&format!("check --locked --target {} {CHECKED}", self.target)).run(root)
    }
}

/// Returns the name of Cargo's variable for a target.
pub(crate) fn key(target: &str, what: &str) -> String {
    format!("CARGO_TARGET_{}_{what}", target.to_uppercase().replace('-', "_"))
}

pub(crate) type Environment = Vec<(String, String)>;

/// Returns the name of the tool that goes with the linker of `env`, such as `aarch64-linux-gnu-objcopy`.
pub(crate) fn tool(env: &Environment, name: &str) -> String {
    let linker = env.iter().find_map(|(key, value)| key.ends_with("_LINKER").then_some(value));
    let begin = linker.and_then(|linker| Some(&linker[..linker.rfind("gcc")?])).unwrap_or_default();
    format!("{begin}{name}")
}

impl Run {
    /// Installs the linker and the emulator, unless they are there. The error is the reason why they are missing.
    fn tools(&self, target: &str) -> Done {
        let missing = || {
            let emulator = match self.runner {
                Runner::Native => None,
                Runner::Emulator(line) => line.split(' ').next().filter(|program| !is_there(program)),
                Runner::Wine => wine::find().is_none().then_some("wine64"),
            };
            let emulator = emulator.filter(|_| std::env::var_os(key(target, "RUNNER")).is_none());
            emulator.or_else(|| Some(self.linker).filter(|program| !is_there(program)))
        };
        let Some(tool) = missing() else { return Ok(()) };
        let install = format!("apt-get install {}", self.packages);
        if !works("sh", &["-c", "[ $(id -u) = 0 ] && command -v apt-get"]) {
            return Err(format!("no {tool}: {install}"));
        }
        let get = format!("export DEBIAN_FRONTEND=noninteractive; {install} -y --no-install-recommends");
        eprintln!("$ {install}");
        said(Command::new("sh").args(["-c", &format!("({get}) || (apt-get update; {get})")]))?;
        missing().map_or(Ok(()), |tool| Err(format!("no {tool} after {install}")))
    }

    /// Returns the variables that programs are built and run with.
    fn environment(&self, root: &Path, target: &str) -> Result<Environment, String> {
        let mut env = vec![
            (key(target, "LINKER"), self.linker.to_owned()),
            (format!("CC_{}", target.replace('-', "_")), self.linker.to_owned()),
        ];
        if !self.flags.is_empty() {
            env.push((key(target, "RUSTFLAGS"), self.flags.to_owned()));
        }
        match self.runner {
            Runner::Native => {}
            Runner::Emulator(line) => env.push((key(target, "RUNNER"), line.to_owned())),
            Runner::Wine => {
                let named = std::env::var(key(target, "RUNNER")).ok();
                let wine = named.or_else(|| wine::find().map(str::to_owned)).ok_or("no Wine")?;
                let variables = wine::set_up(root, &wine, self.linker)?;
                env.extend(variables.into_iter().map(|(key, value)| (key.to_owned(), value)));
                env.push((key(target, "RUNNER"), wine));
            }
        }
        Ok(env)
    }
}

/// What a step has shown.
enum Shown {
    /// Counts of tests, or the last line of a program.
    Text(String),
    /// It cannot run here, for this reason.
    Nothing(String),
}

impl Step {
    /// Runs the step. Adds the names of tests that do not run, with the reasons, to `left_out`.
    fn run(
        &self,
        root: &Path,
        target: &str,
        env: &Environment,
        left_out: &mut Vec<String>,
    ) -> Result<Shown, String> {
        let (command, rest) = self.cargo.split_once(' ').unwrap_or((self.cargo, ""));
        let mut line = format!("{command} --locked --target {target} {rest}");
        if command == "test" {
            line += " --no-fail-fast -- --exact";
            self.left_out.iter().for_each(|(test, _)| line += &format!(" --skip {test}"));
        }
        left_out.extend(self.left_out.iter().map(|(test, reason)| format!("{test}: {reason}")));
        let disk = match line.contains(DISK).then(|| Disk::mount(root)) {
            None => None,
            Some(Ok(disk)) => Some(disk),
            Some(Err(reason)) => return Ok(Shown::Nothing(reason)),
        };
        if let Some(Disk(path)) = &disk {
            line = line.replace(DISK, &path.to_string_lossy());
        }
        let rows = if line.contains(ROWS) { Some(Rows::new(root, line.contains(" load "))?) } else { None };
        if let Some(Rows(path)) = &rows {
            line = line.replace(ROWS, &path.to_string_lossy());
        }
        let cargo = env.iter().fold(Cargo::new(&line), |cargo, (key, value)| cargo.env(key, value));
        let attempt = || {
            let mut output = Output::default();
            (cargo.run_reading(root, |line| output.read(line)), output)
        };
        let (mut done, mut output) = attempt();
        if done.is_err() && output.is_unstarted {
            eprintln!("{}: a program did not start ({UNSTARTED}), so once more", self.what);
            (done, output) = attempt();
        }
        left_out.extend(output.ignored);
        let [passed, failed] = output.counts;
        let text = match command {
            "test" => format!("{passed} passed, {failed} failed, {} left out", left_out.len()),
            _ => output.last,
        };
        done.map_err(|message| format!("{text}; {message}"))?;
        rows.map_or(Ok(()), |rows| rows.check())?;
        Ok(Shown::Text(text))
    }
}

/// What a command has printed so far.
#[derive(Default)]
struct Output {
    /// Tests that passed and failed.
    counts: [u64; 2],
    /// The names of tests that are ignored, with the reasons.
    ignored: Vec<String>,
    /// The last line with text.
    last: String,
    is_unstarted: bool,
}

impl Output {
    fn read(&mut self, line: &str) {
        if let Some(new) = counted(line) {
            self.counts.iter_mut().zip(new).for_each(|(sum, n)| *sum += n);
        }
        self.ignored.extend(ignored(line));
        self.is_unstarted |= line.contains(UNSTARTED);
        if !line.is_empty() {
            self.last = line.to_owned();
        }
    }
}

/// A small file system in memory. It is unmounted when this is dropped.
struct Disk(PathBuf);

impl Disk {
    /// The error is the reason why there is none.
    fn mount(root: &Path) -> Result<Self, String> {
        let path = crate::cargo::target(root).join("small-disk");
        std::fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let size = format!("size={DISK_MIB}m");
        let mut mount = Command::new("mount");
        let mounted = said(mount.args(["-t", "tmpfs", "-o", &size, "tidesdb-test"]).arg(&path));
        mounted.map(|_| Self(path)).map_err(|_| "mounting a tmpfs is not permitted here".to_owned())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = said(Command::new("umount").arg(&self.0));
    }
}

/// A folder with a million rows, and what a program makes of them.
struct Rows(PathBuf);

impl Rows {
    fn new(root: &Path, empty: bool) -> Result<Self, String> {
        let path = crate::cargo::target(root).join("rows");
        let file = path.join("rows.tsv");
        if empty {
            let _ = std::fs::remove_dir_all(&path); // it need not exist
        }
        let write = |text: String| std::fs::create_dir_all(&path).and_then(|()| std::fs::write(&file, text));
        if !file.exists() {
            let row = |n: u32| format!("key{n:07}\tvalue {:08x}\n", n.wrapping_mul(2_654_435_761));
            write((0..1_000_000).map(row).collect()).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(Self(path))
    }

    fn check(&self) -> Done {
        let read = |name: &str| std::fs::read(self.0.join(name)).map_err(|e| format!("{name}: {e}"));
        let is_same = !self.0.join("dump.tsv").exists() || read("dump.tsv")? == read("rows.tsv")?;
        if is_same { Ok(()) } else { Err("the dump differs from the rows that were loaded".to_owned()) }
    }
}

/// Returns how many tests passed and failed, if `line` is the last one of a test program.
fn counted(line: &str) -> Option<[u64; 2]> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let part = counts.split("; ").find(|part| part.ends_with(what))?;
        part.split(' ').next()?.parse().ok()
    };
    Some([count(" passed")?, count(" failed")?])
}

/// Returns the name of a test and the reason, if `line` says that it is ignored.
fn ignored(line: &str) -> Option<String> {
    let (test, rest) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
    Some(format!("{test}: {}", rest.strip_prefix(", ").unwrap_or("ignored everywhere")))
}

/// Returns whether a program exists: a path, or a name that the shell finds.
fn is_there(tool: &str) -> bool {
    Path::new(tool).exists() || works("which", &[tool])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::tree::Tree;
    use std::collections::BTreeSet;

    #[test]
    fn an_unknown_platform_is_refused() {
        let error = run(Path::new("nowhere"), &["amiga".to_owned()]).expect_err("there is no such platform");
        assert!(error.contains("amiga") && error.contains("windows"), "{error}");
    }

    #[test]
    fn tests_are_counted_and_ignored_ones_named() {
        let line =
            "test result: ok. 83 passed; 1 failed; 2 ignored; 0 measured; 5 filtered out; finished in 7.52s";
        assert_eq!((counted(line), ignored(line)), (Some([83, 1]), None));
        let line = "test a::b ... ignored, not on this system";
        assert_eq!((counted(line), ignored(line).as_deref()), (None, Some("a::b: not on this system")));
        assert_eq!(ignored("test a ... ignored").as_deref(), Some("a: ignored everywhere"));
        for other in ["test a ... ok", "test result: ok. no numbers", "running 3 tests", ""] {
            assert_eq!((counted(other), ignored(other)), (None, None), "{other}");
        }
    }

    #[test]
    fn a_program_that_did_not_start_is_seen() {
        let mut output = Output::default();
        ["test a ... FAILED", "code: 1358", ""].iter().for_each(|line| output.read(line));
        assert!(!output.is_unstarted);
        output.read("Err(Os { code: 1359, kind: Uncategorized, message: \"Internal error.\" })");
        assert!(output.is_unstarted && output.last.starts_with("Err"));
    }

    #[test]
    fn a_platform_that_cannot_be_installed_is_skipped_with_the_reason() {
        let unknown = Platform { name: "amiga", target: "m68k-commodore-amigaos", run: None };
        let Ok(Outcome::Skipped(why)) = compile(Path::new("."), [&unknown].into_iter()) else {
            panic!("nothing compiles for it");
        };
        assert!(why.starts_with("amiga: ") && why.contains(unknown.target) && !why.contains('\n'), "{why}");
    }

    /// Cargo runs a test that was renamed, and leaves out none.
    #[test]
    fn tests_that_are_left_out_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let tree = Tree::read(&root).expect("the files of the repository");
        let functions = || tree.sources.values().flat_map(Source::functions).map(|function| function.name);
        let known: BTreeSet<String> = functions().collect();
        let steps = PLATFORMS.iter().filter_map(|platform| platform.run.as_ref()).flat_map(|run| run.steps);
        for (test, _) in steps.flat_map(|step| step.left_out) {
            assert!(known.contains(test.rsplit("::").next().unwrap_or(test)), "there is no test {test}");
        }
    }

    #[test]
    fn the_stage_compiles_platforms_of_the_table() {
        assert!(STAGE.iter().all(|name| PLATFORMS.iter().any(|platform| platform.name == *name)));
    }
}
