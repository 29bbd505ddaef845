//! Databases written by another version of the library.

use std::sync::Arc;

use tidesdb::{Comparator, Db, FamilyOptions, SyncMode};

use super::super::{Database, Facts, SETTINGS_FAMILY};
use crate::pointer::text_of;

fn open(dir: &std::path::Path, order: &Comparator) -> Arc<Database> {
    let locked = Db::options(dir)
        .default_family_name(SETTINGS_FAMILY)
        .comparator(order.clone())
        .create_if_missing(true)
        .lock()
        .unwrap();
    let facts = Facts {
        path: dir.to_owned(),
        memory_limit: 1 << 30,
        has_cache: true,
        unified: false,
        sync: SyncMode::None,
        merges: true,
        waits_at_close: false,
        is_view: false,
        connector: None,
        operators: Vec::new(),
        _messages: Arc::new(crate::log::open(99, None, 0)),
    };
    let database = Arc::new(Database::new(locked, Vec::new(), facts).unwrap());
    database.publish().unwrap();
    database
}

/// Regression test: a line end in the name of a comparator produced settings text that could not be parsed, or
/// that named another comparator. The families must be accessible again, with their own comparator.
#[test]
fn settings_that_an_older_version_spoiled_do_not_hide_their_family() {
    let dir = tempfile::tempdir().unwrap();
    let order = Comparator::custom("c:a\nmin_levels", |a: &[u8], b: &[u8]| b.cmp(a));
    {
        let database = open(dir.path(), &order);
        for (name, text) in [
            ("unreadable", "[family]\ncomparator_name=a\nmin_levels\nwrite_buffer_size=7\n"),
            ("other order", "[family]\ncomparator_name=a\nwrite_buffer_size=7777777\n"),
        ] {
            let options = FamilyOptions::default().comparator(order.clone()).write_buffer_bytes(1 << 20);
            let family = database.engine().unwrap().create_family(name, options).unwrap();
            family.put(b"a", b"1").unwrap();
            family.put(b"b", b"2").unwrap();
            let key = format!("family/{}", family.id().0);
            database.engine().unwrap().default_family().put(key.as_bytes(), text.as_bytes()).unwrap();
        }
        database.close().unwrap();
    }
    let database = open(dir.path(), &order);
    for (name, buffer) in [("unreadable", 1 << 20), ("other order", 7_777_777)] {
        let (_, family) = database.family(name).unwrap();
        let config = family.config();
        assert_eq!(text_of(&config.comparator_name).unwrap(), "a\nmin_levels", "{name}");
        assert_eq!(config.write_buffer_size, buffer, "{name}");
        let keys: Vec<_> = family.engine().iter().unwrap().map(|row| row.unwrap().0[0]).collect();
        assert_eq!(keys, b"ba", "{name}");
    }
    database.close().unwrap();
}
