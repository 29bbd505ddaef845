//! The program `tidesdb` as one file, as archives and wheels have it. Those for one system share what they compile.

use crate::cargo::{Cargo, Done, target};
use crate::install;
use crate::platforms::{self, Environment};
use std::path::Path;

/// The C library is linked statically. It then has no shared library to find, and so runs with any.
const STATIC: &str = "-Ctarget-feature=+crt-static";

/// What the program has in packages beyond a default build: what needs a C compiler, the screen of `tidesdb top`
/// and the page of `tidesdb report`, which nobody waits for who only wants the tour. The benchmark may be added.
macro_rules! features {
    ($($more:literal)?) => {
        concat!("tidesdb-cli/zstd,tidesdb-cli/top,tidesdb-cli/report", $(",", $more)?)
    };
}
pub(crate) use features;

/// How the program is built.
pub(crate) struct Single<'a> {
    /// The target of Rust; empty for what the compiler builds unless it is told otherwise.
    pub triple: &'a str,
    /// Variables for Cargo.
    pub env: &'a Environment,
    pub profile: &'a str,
    pub features: &'a str,
    /// Without a shared library, for Linux.
    pub alone: bool,
}

impl Single<'_> {
    /// Returns the name of the file.
    pub(crate) fn file(&self) -> &'static str {
        let windows = self.triple.contains("windows") || (self.triple.is_empty() && cfg!(windows));
        if windows { "tidesdb.exe" } else { "tidesdb" }
    }

    /// Builds the program and copies it, without symbols, to `to`.
    ///
    /// # Errors
    /// If the build or a tool fails; an I/O error.
    pub(crate) fn build(&self, root: &Path, to: &Path) -> Done {
        let Self { triple, profile, .. } = self;
        let mut line =
            format!("build --locked --profile {profile} -p tidesdb-cli --features {}", self.features);
        if !triple.is_empty() {
            line += &format!(" --target {triple}");
        }
        let mut cargo = self.env.iter().fold(Cargo::new(&line), |cargo, (key, value)| cargo.env(key, value));
        let mut built = target(root);
        if self.alone {
            // Other flags than those of libraries: a folder of its own.
            cargo = cargo.flags(root, &platforms::key(triple, "RUSTFLAGS"), STATIC, "static");
            built = built.join("static");
        }
        cargo.run(root)?;
        install::copy(&built.join(triple).join(profile).join(self.file()), to, 0o755)?;
        install::strip_with(&platforms::tool(self.env, "objcopy"), to, None)
    }
}
