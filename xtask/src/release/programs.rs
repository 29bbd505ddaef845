//! The program as one file that needs nothing of the system: for Linux without a shared library, in an archive with its manual pages and
//! completions; for Windows as a ZIP file.

use super::Workshop;
use crate::cargo::{Cargo, DIST, Done, said, target, works};
use crate::platforms::Environment;
use crate::{install, licenses, package, platforms};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A system and a processor.
struct Single {
    /// How the archive names them.
    name: &'static str,
    /// The name of the platform; `None` for the machine of this process, of x86-64.
    platform: Option<&'static str>,
    features: &'static str,
    linking: &'static str,
    end: &'static str,
}

/// The C library is linked statically. It then has no shared library to find, and so runs with any.
const STATIC: &str = "-Ctarget-feature=+crt-static";

const SINGLES: [Single; 3] = [
    Single {
        name: "x86_64-linux",
        platform: None,
        features: "tidesdb-cli/zstd,tidesdb-cli/bench",
        linking: STATIC,
        end: "",
    },
    Single {
        name: "aarch64-linux",
        platform: Some("arm64"),
        features: "tidesdb-cli/zstd,tidesdb-cli/bench",
        linking: STATIC,
        end: "",
    },
    // The benchmark measures on Linux only.
    Single {
        name: "x86_64-windows",
        platform: Some("windows"),
        features: "tidesdb-cli/zstd",
        linking: "",
        end: ".exe",
    },
];

/// What each program is made to do, in an empty folder: its lines are the arguments.
const TRIAL: [&str; 8] = [
    "--version",
    "--db t.db put apple red",
    "--db t.db get apple",
    "--db t.db scan",
    "--db t.db stats",
    "--db t.db checkpoint copy.db",
    "--db copy.db verify",
    "completions bash",
];

/// This starts the program again, which an emulator of another processor does not do.
const TOUR: &str = "tour";

/// So does the benchmark, where it is a part of the program.
const MEASURED: &str = "bench run --ops 2000 --threads 2";

/// Builds, tries and packs all of them.
///
/// # Errors
/// The first failure; a tool that is missing.
pub(super) fn make(workshop: &Workshop<'_>) -> Done {
    let licenses = licenses::text(workshop.root, &["tidesdb-cli", "tidesdb-bench"])?;
    for single in &SINGLES {
        let (program, runner) = single.build(workshop.root)?;
        single.try_out(workshop, &program, &runner)?;
        single.pack(workshop, &program, &licenses)?;
    }
    Ok(())
}

impl Single {
    /// Returns the program, and what starts it here: variables, and words before its own.
    fn build(&self, root: &Path) -> Result<(PathBuf, Runner), String> {
        let (triple, env) = match self.platform {
            Some(name) => platforms::prepare(root, name)?,
            None => ("x86_64-unknown-linux-gnu".to_owned(), Vec::new()),
        };
        let line = format!(
            "build --locked --profile {DIST} --target {triple} --package tidesdb-cli --features {}",
            self.features
        );
        let flags = platforms::key(&triple, "RUSTFLAGS");
        let cargo = env.iter().fold(Cargo::new(&line), |cargo, (key, value)| cargo.env(key, value));
        // What is linked otherwise has its own folder, so that neither is built again for the other.
        let cargo =
            cargo.env("CARGO_PROFILE_DIST_STRIP", "symbols").flags(root, &flags, self.linking, "single");
        cargo.run(root)?;
        let folder = target(root).join("single");
        let program = folder.join(&triple).join(DIST).join(format!("tidesdb{}", self.end));
        let words = env.iter().find(|(key, _)| key.ends_with("_RUNNER"));
        let words = words.map(|(_, line)| line.split(' ').next().unwrap_or_default().to_owned());
        Ok((program, Runner { words, env }))
    }

    /// Runs the program in a folder that has nothing else: the root of the file system where that is permitted and the machine is its own.
    fn try_out(&self, workshop: &Workshop<'_>, program: &Path, runner: &Runner) -> Done {
        let folder = workshop.work.join(format!("try-{}", self.name));
        let file = format!("tidesdb{}", self.end);
        install::copy(program, &folder.join(&file), 0o755)?;
        std::fs::create_dir_all(folder.join("tmp")).map_err(|e| format!("{}: {e}", folder.display()))?;
        let alone = self.platform.is_none() && works("sh", &["-c", "[ $(id -u) = 0 ] && command -v chroot"]);
        if alone {
            // The one file that each process may expect.
            let null = folder.join("dev/null");
            install::remove(&folder.join("dev"))?;
            std::fs::create_dir_all(folder.join("dev")).map_err(|e| format!("{}: {e}", folder.display()))?;
            said(Command::new("mknod").arg(&null).args(["c", "1", "3"]))?;
        }
        let emulated = runner.words.as_ref().is_some_and(|word| word.starts_with("qemu"));
        let tour = (!emulated).then_some(TOUR);
        let bench = (!emulated && self.features.contains("bench")).then_some(MEASURED);
        let lines: Vec<&str> = TRIAL.into_iter().chain(tour).chain(bench).collect();
        for &line in &lines {
            // It reads what the kernel says of a process, which an empty file system does not have.
            let alone = alone && line != MEASURED;
            let mut command = match (&runner.words, alone) {
                (Some(words), _) => {
                    let mut command = Command::new(words);
                    command.arg(folder.join(&file));
                    command
                }
                (None, true) => {
                    let mut command = Command::new("chroot");
                    command.arg(&folder).arg(format!("/{file}"));
                    command
                }
                (None, false) => Command::new(folder.join(&file)),
            };
            if !alone {
                command.env("TMPDIR", folder.join("tmp"));
            }
            command.envs(runner.env.iter().map(|(key, value)| (key, value)));
            let text = said(command.args(line.split(' ')).current_dir(&folder))
                .map_err(|error| format!("{}: {error}", self.name))?;
            if line == "--version" && !text.starts_with(&format!("tidesdb {}", workshop.version)) {
                return Err(format!("{} says {text:?}", self.name));
            }
        }
        let place = if alone { "alone in a file system with /dev/null" } else { "in an empty folder" };
        println!("  {}: {} commands, {place}: {}", self.name, lines.len(), lines.join("; "));
        Ok(())
    }

    /// Lays out the archive. The pages are written by the program for this machine, which is built first.
    fn pack(&self, workshop: &Workshop<'_>, program: &Path, licenses: &str) -> Done {
        let name = format!("tidesdb-{}-{}", workshop.version, self.name);
        let tree = workshop.work.join(&name);
        let file = tree.join(format!("tidesdb{}", self.end));
        install::copy(program, &file, 0o755)?;
        install::write(&tree.join("LICENSES.txt"), licenses)?;
        package::page(workshop.root, "docs/reference/cli.md", &tree)?;
        let host = workshop.work.join(format!("try-{}/tidesdb", SINGLES[0].name));
        if self.end.is_empty() {
            package::manual(&host, &tree, package::ZSH)?;
        }
        package::open_to_all(&tree)?;
        workshop.archive(&name, if self.end.is_empty() { "tar.gz" } else { "zip" }).map(drop)
    }
}

/// What starts a program of another machine.
struct Runner {
    words: Option<String>,
    env: Environment,
}
