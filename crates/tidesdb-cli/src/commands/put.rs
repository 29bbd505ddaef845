//! `tidesdb put`: sets a key.

use std::ffi::OsString;
use std::io::{self, Read};
use std::time::Duration;

use tidesdb::{SyncMode, WriteBatch};

use crate::failure::{Exit, Failure, Outcome};
use crate::session::{self, Session};

/// Set a key to a value
///
/// The database is created if it does not exist. Without VALUE, the whole standard input is the value.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Put {
    /// The key
    key: OsString,
    /// The value
    value: Option<OsString>,
    /// Expire the key after this time: 30s, 5m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = session::duration)]
    ttl: Option<Duration>,
}

impl Put {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        let key = session.bytes(&self.key)?;
        let value = match &self.value {
            Some(value) => session.bytes(value)?,
            None => read_value(&mut io::stdin().lock())?.into(),
        };
        let family = session.family()?;
        let mut batch = WriteBatch::new();
        match self.ttl {
            Some(ttl) => batch.put_with_ttl(&family, &key, &value, ttl)?,
            None => batch.put(&family, &key, &value)?,
        }
        session.db.write_with(&mut batch, &session.write_options(SyncMode::Full))?;
        Ok(Exit::Done)
    }
}

fn read_value(input: &mut dyn Read) -> Outcome<Vec<u8>> {
    let mut value = Vec::new();
    input
        .read_to_end(&mut value)
        .map_err(|e| Failure::failed(format!("cannot read the standard input: {e}")))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::super::stage::Stage;
    use super::*;

    #[test]
    fn puts_with_escapes_and_families() {
        let stage = Stage::new();
        stage.db.create_family("f", Default::default()).unwrap();
        stage.run(&["put", "a", "x\\n"]);
        stage.run(&["put", "-e", "b\\xff", "x\\n"]);
        stage.run(&["put", "--family", "f", "c", ""]);
        assert_eq!(stage.db.get(b"a").unwrap().unwrap(), b"x\\n");
        assert_eq!(stage.db.get(b"b\xff").unwrap().unwrap(), b"x\n");
        assert_eq!(stage.db.family("f").unwrap().get(b"c").unwrap().unwrap(), b"");
        assert!(stage.db.get(b"c").unwrap().is_none());
    }

    #[test]
    fn a_ttl_is_stored() {
        let stage = Stage::new();
        stage.run(&["put", "a", "x", "--ttl", "1h"]);
        let mut cursor = stage.db.cursor().unwrap();
        cursor.seek_to_first().unwrap();
        assert!(cursor.valid() && cursor.expiry() > 3600);
    }

    #[test]
    fn an_empty_key_is_rejected() {
        assert_eq!(Stage::new().fails(&["put", "", "v"]).exit, Exit::Usage);
    }
}
