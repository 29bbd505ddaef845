//! Programs of the crate registry that commands use, each in one version, in `target/tools`.

use crate::cargo::{Cargo, said, target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that is the crate of the same name.
pub(crate) struct Tool {
    pub name: &'static str,
    pub version: &'static str,
    /// What `cargo install` is told besides.
    pub flags: &'static str,
}

impl Tool {
    /// Returns the program if it is there in the right version.
    pub(crate) fn installed(&self, root: &Path) -> Option<PathBuf> {
        let program = self.place(root);
        let said = said(Command::new(&program).arg("--version")).ok()?;
        let version = said.split_whitespace().last()?.trim_start_matches('v');
        (version == self.version).then_some(program)
    }

    /// Returns the program, and installs it if it is missing or has another version.
    ///
    /// # Errors
    /// If it cannot be installed, or does not start.
    pub(crate) fn install(&self, root: &Path) -> Result<PathBuf, String> {
        if let Some(program) = self.installed(root) {
            return Ok(program);
        }
        let Self { name, version, flags } = self;
        let install =
            Cargo::new(&format!("install {name} --version ={version} --locked --force {flags} --root"));
        install.args(&[target(root).join("tools").display().to_string()]).run(root)?;
        self.installed(root).ok_or_else(|| format!("{} does not start", self.place(root).display()))
    }

    fn place(&self, root: &Path) -> PathBuf {
        target(root).join("tools/bin").join(format!("{}{}", self.name, std::env::consts::EXE_SUFFIX))
    }
}
