//! A libtidesdb of version 9, loaded from the path in the engine's name. Reads run in one transaction at read
//! committed. A cursor is kept for all seeks of a session until the session is refreshed.

mod ffi;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tidesdb_bench::engine::{Config, Engine, Result, Session, Stats};
use tidesdb_bench::measure::now;
use tidesdb_bench::rivals;
use tidesdb_bench::spec::Durability;

use ffi::{Cursor, Db, Settings, Transaction};

fn main() -> ExitCode {
    tidesdb_bench_peers::serve(open)
}

/// Background work that takes longer after the writes is a failure.
const SETTLE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(2);

struct Tides {
    db: Db,
    settings: String,
}

fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let spec = &config.spec;
    let path = rivals::split(&config.engine).1.ok_or("it needs a path: libtidesdb:/path/to/libtidesdb.so")?;
    let size = |n: u64| usize::try_from(n).map_err(|e| e.to_string());
    let sync = match spec.durability {
        // With mode 0, a commit has reached the system when it returns.
        Durability::None | Durability::Os => 0,
        Durability::Device => 1,
    };
    let settings = Settings { sync, cache: size(spec.cache)?, memtable: size(spec.memtable)?, apart: 4096 };
    std::fs::create_dir_all(&config.dir).map_err(|e| e.to_string())?;
    let db = Db::open(Path::new(path), &config.dir, &settings)?;
    let settings = format!(
        "{path}: sync mode {sync}, cache {} B, memtable {} B (4 at most), LZ4, filter 10 bits/key, values separated from {} B, 1 flush \
         and 1 compaction thread, read committed",
        settings.cache, settings.memtable, settings.apart,
    );
    Ok(Box::new(Tides { db, settings }))
}

impl Engine for Tides {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let (write, read) = (Reused::new(&self.db), Reused::new(&self.db));
        Ok(Box::new(TidesSession { db: &self.db, write, read, cursor: None }))
    }

    fn sync(&self) -> Result<()> {
        self.db.sync()
    }

    fn settle(&self) -> Result<()> {
        let start = now();
        self.db.flush()?;
        let mut quiet = 0;
        while quiet < 5 {
            quiet = if self.db.is_busy() { 0 } else { quiet + 1 };
            if start.elapsed() > SETTLE {
                return Err(format!("background work did not finish within {SETTLE:?}"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close()
    }

    fn stats(&self) -> Stats {
        Stats::default()
    }

    fn settings(&self) -> String {
        self.settings.clone()
    }
}

/// A transaction that is reused.
struct Reused<'a> {
    db: &'a Db,
    transaction: Option<Transaction<'a>>,
    /// True between begin and commit.
    active: bool,
}

impl<'a> Reused<'a> {
    fn new(db: &'a Db) -> Self {
        Self { db, transaction: None, active: false }
    }

    /// Returns the transaction, starting it if necessary.
    fn begun(&mut self) -> Result<&mut Transaction<'a>> {
        let transaction = match &mut self.transaction {
            Some(transaction) => {
                if !self.active {
                    transaction.reset()?;
                }
                transaction
            }
            empty => empty.insert(self.db.begin()?),
        };
        self.active = true;
        Ok(transaction)
    }

    fn commit(&mut self) -> Result<()> {
        match &mut self.transaction {
            Some(transaction) if std::mem::take(&mut self.active) => transaction.commit(),
            _ => Ok(()),
        }
    }
}

struct TidesSession<'a> {
    db: &'a Db,
    write: Reused<'a>,
    read: Reused<'a>,
    cursor: Option<Cursor<'a>>,
}

impl<'a> TidesSession<'a> {
    fn cursor(&mut self) -> Result<&mut Cursor<'a>> {
        match &mut self.cursor {
            Some(cursor) => Ok(cursor),
            empty => Ok(empty.insert(Cursor::new(self.db)?)),
        }
    }
}

/// Passes rows to `row`, starting at the cursor's position; `there` is false if the cursor is at no row.
fn rows(
    cursor: &mut Cursor<'_>,
    mut there: bool,
    limit: u64,
    row: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<u64> {
    let mut n = 0;
    while there {
        cursor.row(row)?;
        n += 1;
        if n == limit {
            break;
        }
        there = cursor.advance()?;
    }
    Ok(n)
}

impl Session for TidesSession<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write.begun()?.put(key, value)
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write.begun()?.delete(key)
    }

    fn commit(&mut self) -> Result<()> {
        self.write.commit()
    }

    fn get(&mut self, key: &[u8], value: &mut dyn FnMut(&[u8])) -> Result<bool> {
        // At read committed each read sees all commits up to then, so the transaction need not end.
        self.read.begun()?.get(key, value)
    }

    fn seek(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let cursor = self.cursor()?;
        let there = cursor.seek(key)?;
        if there {
            cursor.key(found)?;
        }
        Ok(there)
    }

    fn range(&mut self, key: &[u8], limit: u64, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let cursor = self.cursor()?;
        let there = cursor.seek(key)?;
        rows(cursor, there, limit, row)
    }

    fn iterate(&mut self, row: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = Cursor::new(self.db)?;
        let there = cursor.first()?;
        rows(&mut cursor, there, u64::MAX, row)
    }

    fn refresh(&mut self) -> Result<()> {
        self.cursor = None;
        Ok(())
    }
}
