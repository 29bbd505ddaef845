//! Test fixture for commands: a database in a temporary directory, and command lines run on it in this process.

use std::path::PathBuf;

use clap::Parser;
use tidesdb::Db;

use super::Verb;
use crate::failure::{Exit, Failure};
use crate::output::Out;
use crate::session::{Access, Common, Session};

/// A command line without the program's name.
#[derive(Parser)]
#[command(no_binary_name = true)]
pub(super) struct Line {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// A test database.
pub(super) struct Stage {
    pub(super) dir: tempfile::TempDir,
    pub(super) db: Db,
}

impl Stage {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::options(dir.path().join("db")).sync(tidesdb::SyncMode::None).open().unwrap();
        Self { dir, db }
    }

    /// Creates a database with these rows; each value equals its key.
    pub(super) fn with(keys: &[&str]) -> Self {
        let stage = Self::new();
        keys.iter().for_each(|key| assert!(stage.db.put(key.as_bytes(), key.as_bytes()).is_ok()));
        stage
    }

    /// Creates a file next to the directory of the database.
    pub(super) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(super) fn try_run(&self, words: &[&str], terminal: bool) -> Result<(Exit, String), Failure> {
        let line = Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
        let path = self.dir.path().join("db");
        let session = Session {
            db: self.db.clone(),
            path,
            common: line.common,
            access: Access::Write,
            beside: None,
            is_script: false,
        };
        let mut bytes = Vec::new();
        let exit = line.verb.run(&session, &mut Out::new(&mut bytes, terminal))?;
        Ok((exit, String::from_utf8(bytes).unwrap()))
    }

    /// Returns the output of a command that ends with `Done`.
    pub(super) fn run(&self, words: &[&str]) -> String {
        let (exit, out) = self.try_run(words, false).unwrap_or_else(|e| panic!("{}", e.message()));
        assert_eq!(exit, Exit::Done, "{words:?}");
        out
    }

    /// Returns the failure of a command.
    pub(super) fn fails(&self, words: &[&str]) -> Failure {
        self.try_run(words, false).expect_err("the command must fail")
    }
}
