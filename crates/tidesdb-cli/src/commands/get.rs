//! `tidesdb get`: the value of a key.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::put::copy;
use crate::failure::{Exit, Failure, Outcome};
use crate::new_file::NewFile;
use crate::output::{Out, row_json};
use crate::session::Session;

/// Print the value of a key
///
/// To a file or a pipe the value is written unchanged, without a line feed at the end. On a terminal it is printed with
/// escapes. Exit code 1 if there is no such key. With --file, the value is streamed: it may be longer than the memory.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Get {
    /// The key
    key: OsString,
    /// Write the value to this file, which is replaced when the value is complete; - is the standard output
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    file: Option<PathBuf>,
}

impl Get {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let key = session.bytes(&self.key)?;
        if let Some(path) = &self.file {
            return stream(session, &key, path, out);
        }
        let Some(value) = session.family()?.get(&key)? else {
            return Ok(Exit::No);
        };
        if session.common.json {
            out.json(&row_json(&key, Some(&value)))?;
        } else {
            out.value(&value)?;
        }
        Ok(Exit::Done)
    }
}

/// Writes the value of `key` to the file at `path`, in constant memory. Without such a key, or if it cannot be read to its end, no file is
/// created or replaced.
fn stream(session: &Session, key: &[u8], path: &Path, out: &mut Out<'_>) -> Outcome {
    let Some(mut reader) = session.family()?.value_reader(key)? else {
        return Ok(Exit::No);
    };
    let total = Some(reader.len());
    if path.as_os_str() == "-" {
        copy(&mut reader, out, total, failed_read)?;
    } else {
        let mut file = NewFile::create(path)?;
        copy(&mut reader, &mut file, total, failed_read)?;
        file.finish()?;
    }
    Ok(Exit::Done)
}

fn failed_read(e: &io::Error) -> Failure {
    match e.get_ref().and_then(|e| e.downcast_ref::<tidesdb::Error>()) {
        Some(error) => error.clone().into(),
        None => Failure::failed(e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn values_come_back_exactly() {
        let stage = Stage::new();
        stage.db.put(b"k", b"a\nb").unwrap();
        stage.db.put(b"t\t", b"tab").unwrap();
        assert_eq!(stage.run(&["get", "k"]), "a\nb");
        assert_eq!(stage.try_run(&["get", "k"], true).unwrap().1, "a\\nb\n");
        assert_eq!(stage.run(&["get", "-e", "\\x74\\t"]), "tab");
        assert_eq!(stage.run(&["get", "--json", "k"]), "{\"key\":\"k\",\"value\":\"a\\nb\"}\n");
        assert_eq!(stage.try_run(&["get", "none"], false).unwrap(), (Exit::No, String::new()));
    }

    #[test]
    fn a_missing_family_is_a_usage_error() {
        let failure = Stage::new().fails(&["get", "--family", "none", "k"]);
        assert_eq!(failure.exit, Exit::Usage);
        assert!(failure.message().contains("tidesdb families"), "{}", failure.message());
    }
}
