//! `tidesdb get`: the value of a key.

use std::ffi::OsString;

use crate::failure::{Exit, Outcome};
use crate::output::{Out, row_json};
use crate::session::Session;

/// Print the value of a key
///
/// To a file or a pipe the value is written unchanged, without a line feed at the end. On a terminal it is printed with
/// escapes. Exit code 1 if there is no such key.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Get {
    /// The key
    key: OsString,
}

impl Get {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let key = session.bytes(&self.key)?;
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
