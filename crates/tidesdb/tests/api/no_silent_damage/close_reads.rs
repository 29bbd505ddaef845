//! Reads beside a close, and beside the next open of the directory, which may remove any file: none reports damage.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tidesdb::{Comparator, Db, Error, Isolation, OpenOptions, SyncMode};

use crate::common::{inner, small};
use crate::no_lost_commits::close_timeouts::{Gate, LONG};

/// A database whose key order waits once it is armed.
struct Gated {
    dir: tempfile::TempDir,
    order: Comparator,
    armed: Arc<AtomicBool>,
    gate: Arc<Gate>,
}

impl Gated {
    /// Rows with values in several value logs.
    fn new() -> Self {
        let (armed, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Gate::default()));
        let (is_armed, passed) = (Arc::clone(&armed), Arc::clone(&gate));
        let order = Comparator::custom("gated", move |a, b| {
            if is_armed.swap(false, SeqCst) {
                passed.pass();
            }
            a.cmp(b)
        });
        let this = Self { dir: tempfile::tempdir().unwrap(), order, armed, gate };
        let db = this.options().open().unwrap();
        for key in 0..40u8 {
            db.put([key], vec![key; 3000]).unwrap();
            if key % 10 == 9 {
                db.flush().unwrap();
            }
        }
        let long: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        db.put_stream([100], &long[..]).unwrap();
        db.close().unwrap();
        let logs = this.files().iter().filter(|path| path.extension().is_some_and(|e| e == "vlog")).count();
        assert!(logs >= 4, "several value logs: {:?}", this.files());
        this
    }

    fn options(&self) -> OpenOptions {
        let options = Db::options(self.dir.path()).sync(SyncMode::None).background_threads(0);
        let family = small().comparator(self.order.clone()).vlog_file_bytes(16 << 10);
        options.default_family(family).with(|o| o.disk_free_min = 0)
    }

    /// The tables and value logs in the directory.
    fn files(&self) -> Vec<PathBuf> {
        let paths = std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| path.extension().is_some_and(|e| e == "klog" || e == "vlog")).collect()
    }

    /// Closes `db` while another thread waits in the key order, if the close does not wait for that thread. Then removes all files, as
    /// the next open may.
    fn close_under(&self, db: &Db) -> bool {
        self.gate.wait_until_reached();
        loop {
            match db.close_timeout(Duration::from_millis(20)) {
                Ok(()) => break,
                Err(Error::Closing { waits_for }) if waits_for.contains("calls that read") => return false,
                Err(Error::Closing { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
        self.files().iter().for_each(|path| std::fs::remove_file(path).unwrap());
        true
    }
}

/// A verification was no call that a close waits for: it took the files that the next open had removed for damage.
#[test]
fn a_verify_beside_a_close_reports_no_damage() {
    let gated = Gated::new();
    let db = gated.options().open().unwrap();
    std::thread::scope(|s| {
        gated.armed.store(true, SeqCst);
        let verify = s.spawn(|| db.verify());
        let was_closed = gated.close_under(&db);
        gated.gate.open();
        let verified = verify.join().unwrap();
        assert!(matches!(verified, Err(Error::Closed)), "{verified:?}");
        assert!(!was_closed, "the close waits for the verification");
        db.close_timeout(LONG).unwrap();
    });
    assert!(matches!(db.verify(), Err(Error::Closed)));
    assert!(gated.options().open().unwrap().verify().unwrap().is_ok());
}

/// A read that began before a close took a value log that the next open had removed for a missing one.
#[test]
fn reads_that_go_on_after_a_close_report_no_damage() {
    type Reading = fn(&Db) -> Result<(), Error>;
    let reads: [(&str, Reading); 6] = [
        ("get", |db| db.get([15]).map(drop)),
        ("multi_get", |db| db.multi_get(&[[15], [25]]).map(drop)),
        ("snapshot", |db| db.snapshot().get(db.default_family(), [15]).map(drop)),
        ("transaction", |db| db.begin(Isolation::Snapshot).get(db.default_family(), [15]).map(drop)),
        ("cursor", |db| {
            let mut cursor = db.cursor()?;
            cursor.seek([15])?;
            cursor.value().map(drop)
        }),
        ("value_reader", |db| {
            let mut reader = db.value_reader([100])?.unwrap();
            reader.read_to_end(&mut Vec::new()).map_err(inner).map(drop)
        }),
    ];
    let mut wrong = Vec::new();
    for (what, read) in reads {
        let gated = Gated::new();
        let db = gated.options().open().unwrap();
        std::thread::scope(|s| {
            gated.armed.store(true, SeqCst);
            let reading = s.spawn(|| read(&db));
            let was_closed = gated.close_under(&db);
            let left = gated.files();
            gated.gate.open();
            let ended = reading.join().unwrap();
            assert!(was_closed, "{what}: a close does not wait for reads");
            assert!(left.is_empty(), "{what}: {left:?}");
            if !matches!(ended, Err(Error::Closed)) {
                wrong.push(format!("{what}: {ended:?}"));
            }
        });
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
