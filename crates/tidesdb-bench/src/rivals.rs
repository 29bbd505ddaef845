//! Other engines (rivals). Each one is a separate program, so that C libraries never share a process.
//!
//! Such a program has the same interface as a child process of the benchmark: one task in, one outcome out. The
//! program is searched in the directories of `TIDESDB_BENCH_PEERS`, then in the directory of the running program.
//! Nothing here links with another engine.

use std::path::{Path, PathBuf};

use crate::spec::{Durability, Spec};

/// Environment variable with directories of rival programs, separated as in `PATH`. The directory of the running
/// program is searched last.
pub const PLACES: &str = "TIDESDB_BENCH_PEERS";

/// An engine provided by another program.
#[derive(Debug, PartialEq)]
pub struct Rival {
    /// Engine name, and the name of the feature that builds its program.
    pub name: &'static str,
    /// One-line description.
    pub about: &'static str,
    /// Arguments that may follow the name and a colon.
    pub variants: &'static [&'static str],
    /// Durability classes that the engine offers.
    pub classes: &'static [Durability],
    /// True if the program can run rows of transactions.
    pub transactions: bool,
    /// Debian packages that the build needs.
    pub packages: &'static str,
    /// Seconds of the build with the profile `dist` on two processors, after the benchmark itself is built. For RocksDB this is half
    /// the processor time, because its build keeps both processors busy. The others were timed on a machine with other
    /// load, so they are upper bounds.
    pub build_seconds: u64,
}

use Durability::{Device, None as Nothing, Os};

/// All rivals.
pub const ALL: [Rival; 7] = [
    Rival {
        name: "rocksdb",
        about: "RocksDB; rocksdb:blob keeps values of 4 KiB and more in blob files, rocksdb:universal compacts sorted runs",
        variants: &["blob", "universal"],
        classes: &[Nothing, Os, Device],
        transactions: true,
        packages: "g++ libclang-dev",
        build_seconds: 960,
    },
    Rival {
        name: "tidesdb-c",
        about: "TidesDB 10, in C",
        variants: &[],
        classes: &[Nothing, Os, Device],
        transactions: true,
        packages: "cmake gcc pkg-config liblz4-dev",
        build_seconds: 47,
    },
    Rival {
        name: "libtidesdb",
        about: "a libtidesdb.so of version 9 in C: libtidesdb:/path/to/libtidesdb.so",
        variants: &["PATH"],
        classes: &[Nothing, Os, Device],
        transactions: false,
        packages: "",
        build_seconds: 51,
    },
    Rival {
        name: "lmdb",
        about: "LMDB, a copy-on-write B+ tree in a memory map",
        variants: &[],
        classes: &[Os, Device],
        transactions: false,
        packages: "gcc",
        build_seconds: 54,
    },
    Rival {
        name: "fjall",
        about: "Fjall, a log-structured store in Rust",
        variants: &[],
        classes: &[Nothing, Os, Device],
        transactions: false,
        packages: "",
        build_seconds: 60,
    },
    Rival {
        name: "surrealkv",
        about: "SurrealKV, a log-structured store in Rust",
        variants: &[],
        classes: &[Os, Device],
        transactions: false,
        packages: "",
        build_seconds: 218,
    },
    Rival {
        name: "redb",
        about: "redb, a copy-on-write B-tree in Rust",
        variants: &[],
        classes: &[Nothing, Device],
        transactions: false,
        packages: "",
        build_seconds: 40,
    },
];

/// Returns the rival with that name; text after a colon is its argument and is ignored here.
pub fn named(engine: &str) -> Option<&'static Rival> {
    let (name, _) = split(engine);
    ALL.iter().find(|rival| rival.name == name)
}

/// Splits an engine into name and argument.
pub fn split(engine: &str) -> (&str, Option<&str>) {
    engine.split_once(':').map_or((engine, None), |(name, argument)| (name, Some(argument)))
}

/// Returns the directories in which rival programs are searched.
pub fn places() -> Vec<PathBuf> {
    let named = std::env::var_os(PLACES).map(|list| std::env::split_paths(&list).collect::<Vec<_>>());
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    named.into_iter().flatten().chain(beside).collect()
}

/// Returns why the engine does not offer the row; `None` if it does. Rows of different durability classes are never
/// mixed.
pub fn absent(engine: &str, spec: &Spec) -> Option<String> {
    let rival = named(engine)?;
    if spec.level().is_some() && !rival.transactions {
        return Some(format!("the program of {engine} does not support transactions"));
    }
    if spec.bulk && rival.name != "rocksdb" {
        return Some(format!("the program of {engine} does not build sorted tables"));
    }
    if !spec.families.is_empty() {
        return Some(format!("the program of {engine} does not support families"));
    }
    let offered = rival.classes.contains(&spec.durability) || !spec.writes();
    (!offered).then(|| {
        let classes: Vec<&str> = rival.classes.iter().map(|class| class.name()).collect();
        format!("{engine} has no durability {}, only {}", spec.durability.name(), classes.join(" and "))
    })
}

/// Returns the durability class for filling a database. The fill is not measured, and is synced afterwards.
pub fn filling_class(engine: &str) -> Durability {
    match named(engine) {
        Some(rival) if !rival.classes.contains(&Os) => rival.classes.first().copied().unwrap_or(Device),
        _ => Os,
    }
}

impl Rival {
    /// Returns the name of the program.
    pub fn program(&self) -> String {
        format!("tidesdb-bench-{}", self.name)
    }

    /// Returns the path of the program in the first of `places` that has it.
    pub fn find(&self, places: &[PathBuf]) -> Option<PathBuf> {
        let name = format!("{}{}", self.program(), std::env::consts::EXE_SUFFIX);
        places.iter().map(|place| place.join(&name)).find(|path| path.is_file())
    }

    /// Checks the argument of the engine.
    ///
    /// # Errors
    /// Returns the arguments that the engine accepts.
    pub fn check(&self, argument: Option<&str>) -> Result<(), String> {
        match (argument, self.variants) {
            (None, ["PATH"]) => Err(format!("{0} needs a path: {0}:/path/to/libtidesdb.so", self.name)),
            (Some(path), ["PATH"]) => match Path::new(path).is_file() {
                true => Ok(()),
                false => Err(format!("{}: the file {path} does not exist", self.name)),
            },
            (Some(argument), variants) if !variants.contains(&argument) => match variants {
                [] => Err(format!("{} has no variant {argument:?}", self.name)),
                _ => Err(format!("{} has no variant {argument:?}, only {}", self.name, variants.join(", "))),
            },
            _ => Ok(()),
        }
    }

    /// Returns instructions to build the program, for a terminal.
    pub fn recipe(&self) -> String {
        let mut out = String::new();
        if !self.packages.is_empty() {
            out += &format!("  apt-get install {}\n", self.packages);
        }
        out += &format!("  {}\n", self.command());
        let time = match self.build_seconds {
            s if s >= 120 => format!("{} minutes", s.div_ceil(60)),
            s => format!("{s} s"),
        };
        out + &format!("which takes about {time} on two processors")
    }

    /// Returns the command that builds the program.
    pub fn command(&self) -> String {
        format!(
            "RUSTFLAGS=\"-C target-cpu=native\" cargo build --profile dist -p tidesdb-bench-peers --features {}",
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Workload;

    #[test]
    fn engines_are_found_by_name_and_argument() {
        assert_eq!(named("rocksdb:blob").map(|r| r.name), Some("rocksdb"));
        assert_eq!(split("libtidesdb:/a:b"), ("libtidesdb", Some("/a:b")));
        assert_eq!(named("tidesdb"), None);
        assert_eq!(named("tidesdb-c").map(Rival::program).as_deref(), Some("tidesdb-bench-tidesdb-c"));
        let rocks = named("rocksdb").unwrap();
        assert_eq!((rocks.check(None), rocks.check(Some("blob"))), (Ok(()), Ok(())));
        assert!(rocks.check(Some("x")).unwrap_err().contains("only blob, universal"));
        assert!(named("redb:x").unwrap().check(Some("x")).is_err());
        let library = named("libtidesdb").unwrap();
        assert!(library.check(None).unwrap_err().contains("needs a path"));
        assert!(library.check(Some("/none/lib.so")).unwrap_err().contains("/none/lib.so"));
    }

    #[test]
    fn rows_of_classes_not_offered_are_absent() {
        let write = |durability| Spec { durability, ..Spec::default() };
        assert!(absent("redb", &write(Os)).unwrap().contains("only none and device"));
        assert_eq!(absent("redb", &Spec { workload: Workload::Read, ..write(Os) }), None);
        assert!(absent("lmdb", &write(Nothing)).is_some());
        assert_eq!(absent("tidesdb", &write(Nothing)), None);
        let counters = Spec { workload: Workload::Transaction, ..Spec::default() };
        assert!(absent("fjall", &counters).unwrap().contains("not support transactions"));
        assert_eq!((absent("rocksdb", &counters), absent("tidesdb-c", &counters)), (None, None));
        assert!(absent("redb", &Spec { isolation: counters.level(), ..write(Device) }).is_some());
        let tables = Spec { bulk: true, ..Spec::default() };
        assert!(absent("fjall", &tables).unwrap().contains("does not build sorted tables"));
        assert_eq!((absent("rocksdb", &tables), absent("tidesdb", &tables)), (None, None));
        assert_eq!((filling_class("redb"), filling_class("lmdb"), filling_class("null")), (Nothing, Os, Os));
        assert!(ALL.iter().all(|rival| rival.classes.contains(&Device)));
    }

    #[test]
    fn a_program_is_found_in_the_first_directory_that_has_it() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = [a.path().to_owned(), b.path().to_owned()];
        let rival = named("fjall").unwrap();
        assert_eq!(rival.find(&places), None);
        let program = b.path().join(format!("tidesdb-bench-fjall{}", std::env::consts::EXE_SUFFIX));
        std::fs::write(&program, "").unwrap();
        assert_eq!(rival.find(&places), Some(program));
        assert!(rival.recipe().contains("--features fjall") && !rival.recipe().contains("apt-get"));
        assert!(named("rocksdb").unwrap().recipe().contains("apt-get install g++ libclang-dev"));
    }
}
