//! Credentials are in no log, error, event or `Debug`.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidesdb::store::Body;
use tidesdb::{Db, ObjectStore, RemoteOptions};

use super::proxy::{Fault, Proxy};
use super::{bytes_of, given, new_prefix, options};
use crate::s3;

const SECRETS: [&str; 3] = ["AKIASECRETSECRET0001", "hushhushhushhush/+0002", "tokentokentoken0003"];

/// Collects what subscribers print.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn check(what: &str, text: &str) {
    for secret in SECRETS {
        assert!(!text.contains(secret), "{what} has {secret}: {text}");
    }
}

fn check_files(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => check_files(&path),
            false => {
                check(&path.display().to_string(), &String::from_utf8_lossy(&std::fs::read(&path).unwrap()))
            }
        }
    }
}

/// One process: the subscriber is that of all threads.
#[test]
#[ignore = "needs a server"]
fn nothing_shows_credentials() {
    tidesdb_io::sim::alone(|| {
        let lines = Lines::default();
        let writer = lines.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::level_filters::LevelFilter::TRACE)
            .with_writer(move || writer.clone())
            .init();
        // A server that repeats all that it was sent, and one that does not know the keys.
        let echo = Proxy::new(|_| Fault::Echo);
        for endpoint in [echo.endpoint(), given("TIDESDB_S3_ENDPOINT"), "http://127.0.0.1:1".to_owned()] {
            let [id, secret, token] = SECRETS;
            let options =
                options(&endpoint, &new_prefix()).keys(id, secret, Some(token.to_owned())).retries(1);
            check("Debug of options", &format!("{options:?} {options:#?}"));
            let store = s3(options).unwrap();
            check("Debug of the store", &format!("{store:?} {store:#?}"));
            let errors = [
                store.put("one", &Body::bytes(b"x")).err(),
                store.put("long", &Body::bytes(&vec![1; 9 << 20])).err(),
                bytes_of(&store, "one").err(),
                store.list().err(),
                store.delete("one").err(),
                store.head("one").err(),
                store.remove_unfinished().err(),
                store.put_if("one", &Body::bytes(b"x"), tidesdb::store::Condition::Absent).err(),
            ];
            // A server that does not check them may let some pass.
            for error in errors.into_iter().flatten() {
                check("an error", &format!("{error} {error:?} {error:#?}"));
            }
            let temp = tempfile::tempdir().unwrap();
            let options = RemoteOptions::new(Arc::new(store));
            check("Debug of the options of a database", &format!("{options:?}"));
            if let Ok(db) = Db::options(temp.path()).remote(options).open() {
                db.put("k", "v").unwrap();
                for error in [db.upload().err(), db.close().err()].into_iter().flatten() {
                    check("an error of the database", &format!("{error} {error:?}"));
                }
            }
            check_files(temp.path());
        }
        let text = String::from_utf8_lossy(&lines.0.lock().unwrap()).into_owned();
        check("the log", &text);
        assert!(text.lines().count() > 10, "the subscriber has heard nothing: {text}");
    });
}
