//! `cargo xtask dll`: the C library for Windows as C programs use it: installed, through its headers, linked through its import library, and run
//! by Wine.
//!
//! The programs that test the library on Linux need processes and signals of Unix; `c-tests/windows` has what is different.

use crate::cargo::{Done, said, target, works};
use crate::ctests::{PRINTED, README_PRINTED, difference, readme_source};
use crate::install::{self, CRATE, Shape, read};
use crate::wine::{self, COMPILER, PACKAGES, TARGET};
use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Returns the reason why the programs cannot be built or run here, if there is one.
pub(crate) fn hindrance() -> Option<String> {
    let missing =
        if !works(COMPILER, &["--version"]) { COMPILER } else { wine::find().map_or("wine64", |_| "") };
    (!missing.is_empty()).then(|| format!("no {missing}: apt-get install {PACKAGES}"))
}

/// Installs the library into its own folder, builds the programs and runs them.
///
/// # Errors
/// The first failure.
pub(crate) fn run(root: &Path) -> Done {
    if let Some(reason) = hindrance() {
        println!("SKIPPED the C library for Windows: {reason}");
        return Ok(());
    }
    let folder = target(root).join("dll");
    install::remove(&folder)?;
    let prefix = folder.join("prefix");
    install::install(root, &prefix, &Shape { target: Some(TARGET.to_owned()), ..Shape::default() })?;
    install::copy(&prefix.join("bin/tidesdb.dll"), &folder.join("tidesdb.dll"), 0o755)?;
    let wine = wine::find().unwrap_or_default();
    let house = House { folder, prefix, wine, env: wine::set_up(root, wine, COMPILER)? };
    let source = root.join(CRATE);
    house.prints(
        "layout",
        &source.join("c-tests/layout.c"),
        &read(&source.join("c-tests/layout.golden"))?,
    )?;
    house.prints("kv", &source.join("examples/kv.c"), PRINTED[0].1)?;
    let readme = house.folder.join("readme.c");
    install::write(&readme, &readme_source(root)?)?;
    house.prints("readme", &readme, README_PRINTED)?;
    let printed = house.run("windows", &source.join("c-tests/windows/main.c"))?;
    println!("  windows: {}", printed.trim());
    Ok(())
}

struct House {
    folder: PathBuf,
    prefix: PathBuf,
    wine: &'static str,
    env: Vec<(&'static str, String)>,
}

impl House {
    /// Builds a program and returns what it prints.
    fn run(&self, name: &str, source: &Path) -> Result<String, String> {
        let program = self.folder.join(format!("{name}.exe"));
        let mut command = Command::new(COMPILER);
        command.args(FLAGS).arg("-I").arg(self.prefix.join("include")).arg(source);
        said(command.arg("-L").arg(self.prefix.join("lib")).arg("-ltidesdb").arg("-o").arg(&program))?;
        let mut command = Command::new(self.wine);
        command
            .arg(&program)
            .current_dir(&self.folder)
            .envs(self.env.iter().map(|(key, value)| (key, value)));
        said(&mut command).map(|text| text.replace("\r\n", "\n"))
    }

    fn prints(&self, name: &str, source: &Path, want: &str) -> Done {
        match difference(want, &self.run(name, source)?) {
            Some(line) => Err(format!("{name}.exe: {line}")),
            None => {
                println!("  {name}.exe");
                Ok(())
            }
        }
    }
}
