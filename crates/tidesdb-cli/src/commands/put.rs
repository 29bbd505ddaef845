//! `tidesdb put`: sets a key.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidesdb::{SyncMode, WriteBatch};

use crate::failure::{Exit, Failure, Outcome};
use crate::host;
use crate::progress::Progress;
use crate::session::{self, Session};

/// Bytes copied between two looks at the progress bar.
const COPY_BYTES: usize = 256 << 10;

/// Set a key to a value
///
/// The database is created if it does not exist. Without VALUE, the whole standard input is the value. With --file, the
/// value is streamed: it may be longer than the memory.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Put {
    /// The key
    key: OsString,
    /// The value
    value: Option<OsString>,
    /// Read the value from this file; - is the standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    /// Expire the key after this time: 30s, 5m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = session::duration)]
    ttl: Option<Duration>,
}

impl Put {
    pub(crate) fn run(&self, session: &Session) -> Outcome {
        let key = session.bytes(&self.key)?;
        if let Some(path) = &self.file {
            return self.stream(session, &key, path);
        }
        let value = match &self.value {
            Some(value) => session.bytes(value)?,
            None => {
                session.check_input()?;
                read_value(&mut io::stdin().lock())?.into()
            }
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

impl Put {
    /// Sets the key to the content of the file at `path`, in constant memory.
    fn stream(&self, session: &Session, key: &[u8], path: &Path) -> Outcome {
        let is_input = path.as_os_str() == "-";
        if is_input {
            session.check_input()?;
        }
        let mut writer = session.family()?.value_writer(key)?;
        if let Some(ttl) = self.ttl {
            writer = writer.ttl(ttl);
        }
        if let Some(mode) = session.write_options(SyncMode::Full).sync {
            writer = writer.sync(mode);
        }
        let failed = |e: &io::Error| Failure::file("read", path, e);
        let (mut source, total): (Box<dyn Read>, _) = match is_input {
            true => (Box::new(io::stdin().lock()), None),
            false => {
                let file = host::open(path).map_err(|e| failed(&e))?;
                let len = file.metadata().ok().filter(Metadata::is_file).map(|m| m.len());
                (Box::new(file), len)
            }
        };
        copy(&mut source, &mut writer, total, failed)?;
        writer.commit()?;
        Ok(Exit::Done)
    }
}

/// Copies all of `source` to `target` and draws a progress bar. `failed` makes the error if reading fails.
pub(super) fn copy(
    source: &mut dyn Read,
    target: &mut dyn Write,
    total: Option<u64>,
    failed: impl Fn(&io::Error) -> Failure,
) -> Outcome<()> {
    let progress = Progress::new(total);
    let mut buffer = vec![0; COPY_BYTES];
    let mut done = 0;
    loop {
        let n = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(failed(&e)),
        };
        target.write_all(&buffer[..n]).map_err(failure)?;
        done += n as u64;
        progress.stream(done);
    }
}

/// The failure that `e` stands for: that of the database, if it is one.
pub(super) fn failure(e: io::Error) -> Failure {
    match e.get_ref().and_then(|e| e.downcast_ref::<tidesdb::Error>()) {
        Some(error) => error.clone().into(),
        None => e.into(),
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
    use clap::Parser;

    use super::super::stage::{Line, Stage};
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
        assert!(cursor.valid() && cursor.expiry().is_some());
    }

    #[test]
    fn a_file_is_streamed() {
        let stage = Stage::new();
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| b'a' + (n % 26) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        let path = file.path().to_str().unwrap();
        stage.run(&["put", "film", "--file", path, "--ttl", "1h"]);
        assert_eq!(stage.db.value_reader("film").unwrap().unwrap().len(), 3_000_000);
        let out = tempfile::NamedTempFile::new().unwrap();
        let target = out.path().to_str().unwrap();
        stage.run(&["get", "film", "--file", target]);
        assert!(std::fs::read(out.path()).unwrap() == bytes);
        assert!(stage.run(&["get", "film", "--file", "-"]).len() >= 3_000_000);
        assert_eq!(stage.try_run(&["get", "none", "--file", target], false).unwrap().0, Exit::No);
        assert!(std::fs::read(out.path()).unwrap() == bytes, "a missing key leaves the file as it is");
        assert_eq!(stage.fails(&["put", "film", "--file", "/no/such/file"]).exit, Exit::Failed);
        assert!(Line::try_parse_from(["put", "film", "value", "--file", path]).is_err());
    }

    #[test]
    fn an_empty_key_is_rejected() {
        assert_eq!(Stage::new().fails(&["put", "", "v"]).exit, Exit::Usage);
    }
}
