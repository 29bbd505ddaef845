//! `cargo xtask platforms`: compiles the engine for other systems and processors, and runs what an emulator can run here.
//!
//! `docs/platforms.md` says what that shows. A part that lacks a tool prints `SKIPPED` and the reason. The standard library of a target is
//! installed with `rustup target add`; linkers and emulators are packages of Debian, which the message names.

use crate::cargo::{Cargo, Done, said, works};
use std::path::Path;
use std::process::Command;

/// A kind of machine.
struct Platform {
    name: &'static str,
    target: &'static str,
    /// How its programs are linked and run here, and the packages that have both; `None` if it is only compiled.
    run: Option<Run>,
}

struct Run {
    linker: &'static str,
    /// The emulator with its arguments; empty if this machine runs the programs itself.
    runner: &'static str,
    packages: &'static str,
}

const PLATFORMS: [Platform; 7] = [
    Platform { name: "macos", target: "aarch64-apple-darwin", run: None },
    Platform { name: "macos-x86", target: "x86_64-apple-darwin", run: None },
    Platform { name: "freebsd", target: "x86_64-unknown-freebsd", run: None },
    Platform {
        name: "windows",
        target: "x86_64-pc-windows-gnu",
        run: Some(Run {
            linker: "x86_64-w64-mingw32-gcc",
            runner: "wine",
            packages: "gcc-mingw-w64-x86-64-posix wine (9 or newer: older ones lack a library of which programs take random bytes)",
        }),
    },
    Platform {
        name: "x86-32",
        target: "i686-unknown-linux-gnu",
        run: Some(Run {
            linker: "i686-linux-gnu-gcc",
            runner: "",
            packages: "gcc-i686-linux-gnu libc6-dev-i386-cross",
        }),
    },
    Platform {
        name: "arm64",
        target: "aarch64-unknown-linux-gnu",
        run: Some(Run {
            linker: "aarch64-linux-gnu-gcc",
            runner: "qemu-aarch64 -L /usr/aarch64-linux-gnu",
            packages: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
        }),
    },
    Platform {
        name: "s390x",
        target: "s390x-unknown-linux-gnu",
        run: Some(Run {
            linker: "s390x-linux-gnu-gcc",
            runner: "qemu-s390x -L /usr/s390x-linux-gnu",
            packages: "gcc-s390x-linux-gnu libc6-dev-s390x-cross qemu-user",
        }),
    },
];

/// Programs of 32 bits find the libraries of the cross compiler.
const FLAGS_32: &str = "-Clink-arg=-Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2 \
                        -Clink-arg=-Wl,-rpath,/usr/i686-linux-gnu/lib";

/// What is compiled everywhere: without Zstandard, whose C needs a compiler and headers of the system.
const CHECKED: &str = "-p tidesdb-io -p tidesdb-sync -p tidesdb-cache -p tidesdb-memtable -p tidesdb-engine \
                       --features tidesdb-engine/snappy";

/// What runs in an emulator: the parts of the engine that depend on the machine.
const TESTED: &str = "-p tidesdb-io -p tidesdb-sync -p tidesdb-cache -p tidesdb-memtable";

/// Runs `cargo xtask platforms [NAME...]`: all if none is named.
///
/// # Errors
/// An unknown name, and the first failure.
pub(crate) fn run(root: &Path, names: &[String]) -> Done {
    let named = |name: &String| PLATFORMS.iter().find(|platform| platform.name == name);
    if let Some(name) = names.iter().find(|name| named(name).is_none()) {
        let known: Vec<&str> = PLATFORMS.iter().map(|platform| platform.name).collect();
        return Err(format!("no platform `{name}`; there are: {}", known.join(" ")));
    }
    for platform in &PLATFORMS {
        if names.is_empty() || names.iter().any(|name| name == platform.name) {
            platform.run(root)?;
        }
    }
    Ok(())
}

impl Platform {
    fn run(&self, root: &Path) -> Done {
        let Self { name, target, .. } = self;
        if let Err(reason) = self.install(root) {
            println!("SKIPPED {name}: {reason}");
            return Ok(());
        }
        Cargo::new(&format!("check --locked --target {target} {CHECKED}")).run(root)?;
        let Some(run) = &self.run else {
            println!("{name}: compiled, not run");
            return Ok(());
        };
        let emulator = run.runner.split(' ').next().unwrap_or_default();
        let mut tools = [run.linker, emulator].into_iter().filter(|tool| !tool.is_empty());
        if let Some(tool) = tools.find(|tool| !is_there(tool)) {
            println!("SKIPPED tests on {name}: no {tool}: apt-get install {}", run.packages);
            return Ok(());
        }
        let key = |what: &str| format!("CARGO_TARGET_{}_{what}", target.to_uppercase().replace('-', "_"));
        let tests = Cargo::new(&format!("test --locked --lib --tests --target {target} {TESTED}"))
            .env(&key("LINKER"), run.linker)
            .env("WINEDEBUG", "-all");
        let tests = match run.runner {
            "" => tests.env(&key("RUSTFLAGS"), FLAGS_32),
            runner => tests.env(&key("RUNNER"), runner),
        };
        tests.run(root)?;
        println!("{name}: compiled, and the tests of the leaf crates passed");
        Ok(())
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
}

/// Returns whether a program exists: a path, or a name that the shell finds.
fn is_there(tool: &str) -> bool {
    Path::new(tool).exists() || works("which", &[tool])
}
