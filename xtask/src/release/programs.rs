//! The program as one file that needs nothing of the system: for Linux without a shared library, in an archive with its manual pages and
//! completions; for Windows as a ZIP file.

use super::Workshop;
use crate::cargo::{DIST, Done, said, works};
use crate::platforms::Environment;
use crate::single::{Single, features};
use crate::{install, licenses, package, platforms};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program for a system and a processor.
struct Archive {
    /// How the archive is named.
    name: &'static str,
    /// The name of the platform; `None` for the machine of this process, of x86-64.
    platform: Option<&'static str>,
    features: &'static str,
    /// Without a shared library.
    alone: bool,
}

const ARCHIVES: [Archive; 3] = [
    Archive { name: "x86_64-linux", platform: None, features: features!("tidesdb-cli/bench"), alone: true },
    Archive {
        name: "aarch64-linux",
        platform: Some("arm64"),
        features: features!("tidesdb-cli/bench"),
        alone: true,
    },
    // The benchmark measures on Linux only.
    Archive { name: "x86_64-windows", platform: Some("windows"), features: features!(), alone: false },
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
    for archive in &ARCHIVES {
        let (program, env) = archive.build(workshop)?;
        archive.try_out(workshop, &program, &env)?;
        archive.pack(workshop, &program, &licenses)?;
    }
    Ok(())
}

impl Archive {
    /// Returns the folder in which the program is tried.
    fn folder(&self, workshop: &Workshop<'_>) -> PathBuf {
        workshop.work.join(format!("try-{}", self.name))
    }

    /// Returns the program, and the variables that it was built with.
    fn build(&self, workshop: &Workshop<'_>) -> Result<(PathBuf, Environment), String> {
        let (triple, env) = match self.platform {
            Some(name) => platforms::prepare(workshop.root, name)?,
            None => ("x86_64-unknown-linux-gnu".to_owned(), Vec::new()),
        };
        let (features, alone) = (self.features, self.alone);
        let single = Single { triple: &triple, env: &env, profile: DIST, features, alone };
        let program = self.folder(workshop).join(single.file());
        single.build(workshop.root, &program)?;
        Ok((program, env))
    }

    /// Runs the program in a folder that has nothing else: the root of the file system where that is permitted and the machine is its own.
    fn try_out(&self, workshop: &Workshop<'_>, program: &Path, env: &Environment) -> Done {
        let folder = self.folder(workshop);
        std::fs::create_dir_all(folder.join("tmp")).map_err(|e| format!("{}: {e}", folder.display()))?;
        let alone = self.platform.is_none() && works("sh", &["-c", "[ $(id -u) = 0 ] && command -v chroot"]);
        if alone {
            // The one file that each process may expect.
            let null = folder.join("dev/null");
            install::remove(&folder.join("dev"))?;
            std::fs::create_dir_all(folder.join("dev")).map_err(|e| format!("{}: {e}", folder.display()))?;
            said(Command::new("mknod").arg(&null).args(["c", "1", "3"]))?;
        }
        let emulated = emulator(env).is_some_and(|word| word.starts_with("qemu"));
        let tour = (!emulated).then_some(TOUR);
        let bench = (!emulated && self.features.contains("bench")).then_some(MEASURED);
        let lines: Vec<&str> = TRIAL.into_iter().chain(tour).chain(bench).collect();
        for &line in &lines {
            // It reads what the kernel says of a process, which an empty file system does not have.
            let alone = alone && line != MEASURED;
            let mut command = if alone { Command::new("chroot") } else { started(program, env) };
            if alone {
                command.arg(&folder).arg("/tidesdb");
            } else {
                command.env("TMPDIR", folder.join("tmp"));
            }
            let text = said(command.args(line.split(' ')).current_dir(&folder))
                .map_err(|error| format!("{}: {error}", self.name))?;
            let is_whole = |text: &str| {
                text.starts_with(&format!("tidesdb {}", workshop.version))
                    && text.contains("zstd")
                    && text.contains(" top")
            };
            if line == "--version" && !is_whole(&text) {
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
        install::copy(program, &tree.join(program.file_name().unwrap_or_default()), 0o755)?;
        install::write(&tree.join("LICENSES.txt"), licenses)?;
        package::page(workshop.root, "docs/reference/cli.md", &tree)?;
        let windows = self.name.ends_with("windows");
        if !windows {
            let host = ARCHIVES[0].folder(workshop).join("tidesdb");
            package::manual(&host, &tree, package::ZSH)?;
        }
        package::open_to_all(&tree)?;
        workshop.archive(&name, if windows { "zip" } else { "tar.gz" }).map(drop)
    }
}

/// Returns the command that starts a program which was built with `env`, here.
pub(super) fn started(program: &Path, env: &Environment) -> Command {
    let mut command = match emulator(env) {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    command.envs(env.iter().map(|(key, value)| (key, value)));
    command
}

/// Returns what runs programs of another system, or of another processor.
fn emulator(env: &Environment) -> Option<&str> {
    let line = env.iter().find_map(|(key, value)| key.ends_with("_RUNNER").then_some(value))?;
    line.split(' ').next()
}
