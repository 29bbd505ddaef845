//! Runs Cargo. Each command is printed before it runs, so that it can be repeated by hand.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

/// Result of a stage; the error is the message of the failure.
pub(crate) type Done = Result<(), String>;

/// The profile of everything that is installed or measured, and the name of its folder below the target folder.
pub(crate) const DIST: &str = "dist";

/// The profile of the tests.
pub(crate) const DEV: &str = "dev";

/// One Cargo command.
pub(crate) struct Cargo {
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Cargo {
    /// Creates a `cargo` command with these arguments, separated by spaces.
    pub(crate) fn new(line: &str) -> Cargo {
        Cargo { args: line.split_whitespace().map(str::to_owned).collect(), env: Vec::new() }
    }

    /// Adds arguments without splitting them.
    pub(crate) fn args(mut self, args: &[String]) -> Cargo {
        self.args.extend(args.iter().cloned());
        self
    }

    /// Sets an environment variable, unless the caller's environment has it already.
    pub(crate) fn env(mut self, key: &str, value: &str) -> Cargo {
        if std::env::var_os(key).is_none() {
            self.env.push((key.to_owned(), value.to_owned()));
        }
        self
    }

    /// Appends `flags` to the caller's value of `key`, and builds into its own folder, because other flags
    /// would invalidate the usual build.
    pub(crate) fn flags(mut self, root: &Path, key: &str, flags: &str, folder: &str) -> Cargo {
        let before = std::env::var(key).unwrap_or_default();
        self.env.push((key.to_owned(), format!("{before} {flags}").trim().to_owned()));
        let target = target(root).join(folder).to_string_lossy().into_owned();
        self.env.push(("CARGO_TARGET_DIR".to_owned(), target));
        self
    }

    /// Runs the command in the root folder.
    ///
    /// # Errors
    /// If the command cannot be started or fails.
    pub(crate) fn run(&self, root: &Path) -> Done {
        let (mut command, line) = self.command(root);
        ended(command.status(), &line)
    }

    /// Runs the command in the root folder. Prints each line of its standard output, and passes it to `read`.
    ///
    /// # Errors
    /// If the command cannot be started or fails.
    pub(crate) fn run_reading(&self, root: &Path, mut read: impl FnMut(&str)) -> Done {
        let (mut command, line) = self.command(root);
        let mut child = match command.stdout(Stdio::piped()).spawn() {
            Ok(child) => child,
            Err(error) => return ended(Err(error), &line),
        };
        let output = child.stdout.take().map(BufReader::new);
        // A program may print bytes that are no text.
        for bytes in output.into_iter().flat_map(|output| output.split(b'\n')).map_while(Result::ok) {
            let text = String::from_utf8_lossy(&bytes);
            println!("{text}");
            read(text.trim_end());
        }
        ended(child.wait(), &line)
    }

    /// Returns the command and prints it.
    fn command(&self, root: &Path) -> (Command, String) {
        let env: String = self.env.iter().map(|(key, value)| format!("{key}='{value}' ")).collect();
        let line = format!("{env}cargo {}", self.args.join(" "));
        eprintln!("$ {line}");
        let mut command = Command::new("cargo");
        command.args(&self.args).envs(self.env.iter().cloned()).current_dir(root);
        // Cargo set variables for its own toolchain; they must not override another one (`+nightly`).
        if self.args.first().is_some_and(|arg| arg.starts_with('+')) {
            command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("RUSTC");
        }
        (command, line)
    }
}

fn ended(status: io::Result<ExitStatus>, line: &str) -> Done {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("failed ({status}): {line}")),
        Err(error) => Err(format!("cannot start ({error}): {line}")),
    }
}

/// Returns whether a command exists and succeeds. Prints nothing.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).env_remove("RUSTUP_TOOLCHAIN");
    command.output().is_ok_and(|output| output.status.success())
}

/// Returns Cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root.join(dir),
        None => root.join("target"),
    }
}

/// Prints a command and runs it; its output is for the user.
///
/// # Errors
/// If it cannot be started or fails.
pub(crate) fn shown(command: &mut Command) -> Done {
    let line = format!("{command:?}");
    eprintln!("$ {line}");
    ended(command.status(), &line)
}

/// Returns the standard output of a command.
///
/// # Errors
/// If it cannot be started or fails, with its output.
pub(crate) fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start ({error}): {command:?}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(format!("failed ({}): {command:?}\n{}{}", output.status, text(&output.stdout), text(&output.stderr)))
}

/// Returns the target of this machine.
///
/// # Errors
/// If `rustc` cannot be started, fails or does not name it.
pub(crate) fn host() -> Result<String, String> {
    let text = said(Command::new("rustc").arg("-vV"))?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or("rustc does not name its host".to_owned())
}
