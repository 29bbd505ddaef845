//! `tidesdb delete`: deletes keys.

use std::ffi::OsString;

use serde_json::json;
use tidesdb::{SyncMode, WriteBatch};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Out;
use crate::progress::Progress;
use crate::range::Range;
use crate::session::Session;
use crate::text;

/// Delete keys
///
/// Prints how many of them existed; exit code 1 if none did.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Delete {
    /// The keys
    #[arg(required_unless_present = "prefix")]
    keys: Vec<OsString>,
    /// All keys that begin with KEY
    #[arg(short, long, value_name = "KEY", conflicts_with = "keys")]
    prefix: Option<OsString>,
}

/// Maximum number of deletes per commit.
const BATCH_ROWS: usize = 1000;

impl Delete {
    pub(crate) fn run(&self, session: &Session, out: &mut Out<'_>) -> Outcome {
        let deleted = match &self.prefix {
            Some(prefix) => delete_prefix(session, &session.bytes(prefix)?)?,
            None => self.delete_keys(session)?,
        };
        if session.common.json {
            out.json(&json!({ "deleted": deleted }))?;
        } else {
            out.line(format!("{} deleted", text::count(deleted, "key", "keys")))?;
        }
        Ok(if deleted == 0 { Exit::No } else { Exit::Done })
    }

    fn delete_keys(&self, session: &Session) -> Outcome<u64> {
        let family = session.family()?;
        let mut batch = WriteBatch::new();
        let mut deleted = 0;
        for key in &self.keys {
            let key = session.bytes(key)?;
            deleted += u64::from(family.contains(&key)?);
            batch.delete(&family, &key)?;
        }
        session.db.write_with(&mut batch, &session.write_options(SyncMode::Full))?;
        Ok(deleted)
    }
}

fn delete_prefix(session: &Session, prefix: &[u8]) -> Outcome<u64> {
    let family = session.family()?;
    if !family.current_options().comparator.is_bytewise() {
        return Err(Failure::usage("--prefix needs a family in byte order"));
    }
    let mut batch = WriteBatch::new();
    // One sync at the end covers everything written before it.
    let quick = session.write_options(SyncMode::None);
    let progress = Progress::new(None);
    let (mut seen, mut bytes) = (0, 0);
    let deleted = Range::prefix(prefix).walk(&family, false, |key, _, _| {
        batch.delete(&family, key)?;
        (seen, bytes) = (seen + 1, bytes + key.len() as u64);
        if batch.len() == BATCH_ROWS {
            progress.update(seen, bytes);
            session.db.write_with(&mut batch, &quick)?;
        }
        Ok(true)
    })?;
    session.db.write_with(&mut batch, &session.write_options(SyncMode::Full))?;
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn some_or_none() {
        let stage = Stage::with(&["a", "b", "c"]);
        assert_eq!(stage.run(&["delete", "a", "b", "x"]), "2 keys deleted\n");
        assert_eq!(
            stage.try_run(&["delete", "a"], false).unwrap(),
            (Exit::No, "0 keys deleted\n".to_owned())
        );
        assert_eq!(stage.run(&["scan", "--keys-only"]), "c\n");
    }

    #[test]
    fn a_whole_prefix() {
        let keys: Vec<String> = (0..2500).map(|n| format!("p{n}")).collect();
        let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        keys.extend(["o", "q"]);
        let stage = Stage::with(&keys);
        assert_eq!(stage.run(&["delete", "--json", "--prefix", "p"]), "{\"deleted\":2500}\n");
        assert_eq!(stage.run(&["scan", "--keys-only"]), "o\nq\n");
    }
}
