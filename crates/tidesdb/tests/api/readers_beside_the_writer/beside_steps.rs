//! A reader beside the writer, at each step of the other one: the disk calls a hook before each call.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tidesdb::{Db, Error, Family, FamilyOptions, MergeOperator, Reader, SyncMode, WriteBatch};
use tidesdb_io::sim::{Fault, Habits, Image, OpKind, OpSet, SyncModel, errno};
use tidesdb_io::{Access, Advice, Boot, Dir, DirLock, Disk, Env, File, SharedMap, Space};

use crate::common::{DB, Pair, Sim, contents, letters, noise, value};

/// Called before each call with its kind and the name of the file.
type Hook = dyn Fn(Call, &str) -> io::Result<()> + Send + Sync;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Opens a file for reading, or lists the directory.
    Open,
    Read,
    /// Changes the directory or a file.
    Change,
}

#[derive(Clone)]
pub(crate) struct Hooked {
    inner: Arc<dyn Disk>,
    hook: Arc<Hook>,
}

impl Hooked {
    /// Returns `env` with a disk that calls `hook`.
    pub(crate) fn env(env: &Env, hook: impl Fn(Call, &str) -> io::Result<()> + Send + Sync + 'static) -> Env {
        let disk = Self { inner: Arc::clone(&env.disk), hook: Arc::new(hook) };
        Env { disk: Arc::new(disk), ..env.clone() }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hooked")
    }
}

impl Disk for Hooked {
    fn open_dir(&self, path: &Path, create: bool) -> io::Result<Arc<dyn Dir>> {
        let inner = self.inner.open_dir(path, create)?;
        Ok(Arc::new(HookedDir { inner, hook: Arc::clone(&self.hook) }))
    }
}

struct HookedDir {
    inner: Arc<dyn Dir>,
    hook: Arc<Hook>,
}

impl HookedDir {
    fn file(&self, name: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HookedFile { inner, name: name.to_owned(), hook: Arc::clone(&self.hook) })
    }
}

impl fmt::Debug for HookedDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Dir for HookedDir {
    fn create_new(&self, name: &str, prealloc: u64) -> io::Result<Arc<dyn File>> {
        (self.hook)(Call::Change, name)?;
        Ok(self.file(name, self.inner.create_new(name, prealloc)?))
    }
    fn open(&self, name: &str, access: Access) -> io::Result<Arc<dyn File>> {
        (self.hook)(if access == Access::ReadWrite { Call::Change } else { Call::Open }, name)?;
        Ok(self.file(name, self.inner.open(name, access)?))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        (self.hook)(Call::Change, from)?;
        self.inner.rename(from, to)
    }
    fn unlink(&self, name: &str) -> io::Result<()> {
        (self.hook)(Call::Change, name)?;
        self.inner.unlink(name)
    }
    fn link(&self, name: &str, to: &dyn Dir, to_name: &str) -> io::Result<()> {
        (self.hook)(Call::Change, name)?;
        self.inner.link(name, to, to_name)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        (self.hook)(Call::Open, ".")?;
        self.inner.list()
    }
    fn is_empty(&self) -> io::Result<bool> {
        (self.hook)(Call::Open, ".")?;
        self.inner.is_empty()
    }
    fn sync(&self) -> io::Result<()> {
        (self.hook)(Call::Change, ".")?;
        self.inner.sync()
    }
    fn lock(&self, name: &str, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        (self.hook)(Call::Change, name)?;
        self.inner.lock(name, exclusive)
    }
    fn boot(&self) -> Boot {
        self.inner.boot()
    }
    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

struct HookedFile {
    inner: Arc<dyn File>,
    name: String,
    hook: Arc<Hook>,
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl File for HookedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        (self.hook)(Call::Read, &self.name)?;
        self.inner.read_at(buf, offset)
    }
    fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.inner.read_cached_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        (self.hook)(Call::Change, &self.name)?;
        self.inner.write_at(buf, offset)
    }
    fn write_durably_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        (self.hook)(Call::Change, &self.name)?;
        self.inner.write_durably_at(buf, offset)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        (self.hook)(Call::Change, &self.name)?;
        self.inner.allocate(offset, len)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        (self.hook)(Call::Change, &self.name)?;
        self.inner.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        (self.hook)(Call::Change, &self.name)?;
        self.inner.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        (self.hook)(Call::Change, &self.name)?;
        self.inner.sync_all()
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn map_shared(&self, len: u64) -> io::Result<Option<Box<dyn SharedMap>>> {
        self.inner.map_shared(len)
    }
    fn advise(&self, advice: Advice, offset: u64, len: u64) -> io::Result<()> {
        self.inner.advise(advice, offset, len)
    }
    fn is_cached(&self, offset: u64) -> io::Result<bool> {
        self.inner.is_cached(offset)
    }
}

/// Two families whose rows follow from the number of commits.
const KEYS: u64 = 40;

fn tiny() -> FamilyOptions {
    FamilyOptions::default().vlog_file_bytes(16 << 10).write_buffer_bytes(64 << 10)
}

fn row(n: u64) -> Vec<u8> {
    noise(n, if n.is_multiple_of(3) { 3000 } else { 100 })
}

/// Commit `n`, which starts with 1: puts a counter and a row into both families, and deletes another row.
fn commit(db: &Db, families: &[Family], n: u64) {
    let mut batch = WriteBatch::new();
    for family in families {
        batch.put(family, b"count", n.to_le_bytes()).unwrap();
        batch.put(family, format!("row{:03}", n % KEYS), row(n)).unwrap();
        let gone = format!("row{:03}", (n + KEYS / 2) % KEYS);
        match n % 5 {
            0 => batch.delete_range(family, gone.clone()..format!("{gone}x")).unwrap(),
            _ => batch.delete(family, gone).unwrap(),
        }
    }
    db.write(&mut batch).unwrap();
}

fn model(n: u64) -> Vec<Pair> {
    let mut rows = std::collections::BTreeMap::new();
    for i in 1..=n {
        rows.insert(b"count".to_vec(), i.to_le_bytes().to_vec());
        rows.insert(format!("row{:03}", i % KEYS).into_bytes(), row(i));
        rows.remove(format!("row{:03}", (i + KEYS / 2) % KEYS).as_bytes());
    }
    rows.into_iter().collect()
}

/// Checks a view against the model and returns the number of commits that it shows.
fn check(view: &Db, what: &str) -> u64 {
    let count = |f: &Family| value(f, b"count").map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
    let default = view.default_family();
    let n = count(default);
    assert_eq!(contents(default), model(n), "{what}: the default family at {n}");
    let second = view.family("second").map(|second| contents(&second));
    match second {
        Ok(second) => assert_eq!(second, model(n), "{what}: the second family at {n}"),
        Err(e) => assert_eq!(n, 0, "{what}: {e}"),
    }
    n
}

/// Runs `work` in a thread of its own, because the caller may hold locks of another database.
fn apart<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A reader that a hook uses.
#[derive(Default)]
struct Watcher {
    reader: Option<Reader>,
    shown: u64,
    seq: u64,
    views: Vec<(u64, Db)>,
    looks: u64,
}

impl Watcher {
    fn look(&mut self, what: &str) {
        let Some(reader) = &self.reader else { return };
        let view = reader.refresh().unwrap_or_else(|e| panic!("{what}: {e}"));
        let n = check(&view, what);
        assert!(n >= self.shown, "{what}: {n} after {}", self.shown);
        assert!(reader.seq() >= self.seq, "{what}");
        (self.shown, self.seq) = (n, reader.seq());
        self.looks += 1;
        if self.looks.is_multiple_of(50) {
            self.views.push((n, view));
        }
        if self.looks.is_multiple_of(60) {
            let (n, view) = self.views.swap_remove(self.looks as usize % self.views.len());
            assert_eq!(check(&view, "an older view"), n);
        }
    }
}

fn families(db: &Db) -> Vec<Family> {
    vec![db.default_family().clone(), db.family_or_create("second", tiny()).unwrap()]
}

#[test]
fn every_step_of_the_writer() {
    for mode in [SyncMode::None, SyncMode::Full] {
        let sim = Sim::new();
        let watcher = Arc::new(Mutex::new(Watcher::default()));
        let (watching, steps) = (Arc::clone(&watcher), AtomicU64::new(0));
        let env = Hooked::env(&sim.env, move |call, name| {
            let step = steps.fetch_add(1, SeqCst);
            if call == Call::Change {
                apart(|| watching.lock().unwrap().look(&format!("step {step}, before a change of {name}")));
            }
            Ok(())
        });
        let open = || sim.options().env(env.clone()).sync(mode).default_family(tiny()).open().unwrap();
        let mut db = open();
        watcher.lock().unwrap().reader = Some(sim.options().open_reader().unwrap());
        let mut all = families(&db);
        for n in 1..=330 {
            commit(&db, &all, n);
            match n % 60 {
                17 => db.flush().unwrap(),
                34 => db.compact().unwrap(),
                45 | 59 => {
                    all.clear();
                    if n % 60 == 45 {
                        db.abandon()
                    } else {
                        db.close().unwrap()
                    }
                    db = open();
                    all = families(&db);
                }
                _ => {}
            }
        }
        let mut watcher = watcher.lock().unwrap();
        watcher.look("the end");
        assert_eq!(watcher.shown, 330);
        assert!(watcher.looks > 500, "{}", watcher.looks);
    }
}

#[test]
fn every_step_of_the_reader() {
    let sim = Sim::new();
    let mut db = sim.options().sync(SyncMode::None).default_family(tiny()).open().unwrap();
    let all = families(&db);
    commit(&db, &all, 1);
    let writer = Arc::new(Mutex::new((db.clone(), all, 1u64)));
    let (writing, left) = (Arc::clone(&writer), Arc::new(AtomicU64::new(0)));
    let (budget, steps) = (Arc::clone(&left), AtomicU64::new(0));
    let env = Hooked::env(&sim.env, move |call, name| {
        assert_ne!(call, Call::Change, "a reader changes {name}");
        let step = steps.fetch_add(1, SeqCst);
        if step.is_multiple_of(3) && budget.load(SeqCst) > 0 {
            budget.fetch_sub(1, SeqCst);
            apart(|| {
                let mut writer = writing.lock().unwrap();
                let (db, all, n) = &mut *writer;
                *n += 1;
                commit(db, all, *n);
                match step % 5 {
                    0 => db.flush().unwrap(),
                    1 => db.compact().unwrap(),
                    _ => {}
                }
            });
        }
        Ok(())
    });
    let reader = sim.options().env(env).open_reader().unwrap();
    let mut shown = 0;
    let mut views = Vec::new();
    for round in 0..120u64 {
        let before = writer.lock().unwrap().2;
        left.store(round % 40, SeqCst);
        let view = reader.refresh().unwrap_or_else(|e| panic!("round {round}: {e}"));
        left.store(0, SeqCst);
        let n = check(&view, &format!("round {round}"));
        assert!(n >= shown && n >= before, "round {round}: {n}, {shown}, {before}");
        shown = n;
        if round.is_multiple_of(7) {
            views.push((n, view));
        }
        if round % 50 == 30 {
            let mut writer = writer.lock().unwrap();
            writer.1.clear();
            writer.0 = reader.view(); // releases the handle
            db.abandon();
            db = sim.options().sync(SyncMode::None).default_family(tiny()).open().unwrap();
            (writer.0, writer.1) = (db.clone(), families(&db));
        }
    }
    for (n, view) in views {
        assert_eq!(check(&view, "an older view"), n);
    }
}

#[test]
fn a_segment_that_goes_before_it_is_looked_at_hides_no_commit() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    let (writer, armed) = (db.clone(), Arc::new(AtomicBool::new(false)));
    let once = Arc::clone(&armed);
    let env = Hooked::env(&sim.env, move |_, name| {
        if name.ends_with(".wal") && once.swap(false, SeqCst) {
            apart(|| {
                crate::common::fill(writer.default_family(), 2000, &[1; 200]);
                writer.flush().unwrap();
            });
        }
        Ok(())
    });
    let reader = sim.options().env(env).open_reader().unwrap();
    letters(db.default_family(), "a");
    armed.store(true, SeqCst);
    let view = reader.refresh().unwrap();
    assert!(!armed.load(SeqCst) && !sim.disk.file_names(DB).unwrap().contains(&"000001.wal".to_owned()));
    assert_eq!(value(view.default_family(), b"a").as_deref(), Some(&b"a"[..]));
}

/// The writer gives a family a merge operator and logs an operand while the reader is between manifest and log.
#[test]
fn an_operator_that_is_added_during_a_refresh_is_known_to_the_view() {
    for nth in 1..=6u64 {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        let (writer, left) = (db.clone(), Arc::new(AtomicU64::new(0)));
        let count = Arc::clone(&left);
        let env = Hooked::env(&sim.env, move |_, name| {
            let counts = name.ends_with(".wal") && count.load(SeqCst) > 0;
            if counts && count.fetch_sub(1, SeqCst) == 1 {
                apart(|| {
                    let options = crate::common::small().merge_operator(MergeOperator::append("."));
                    writer.family_or_create("default", options).unwrap().merge("a", "b").unwrap();
                });
            }
            Ok(())
        });
        letters(db.default_family(), "a");
        let reader = sim.options().env(env).open_reader().unwrap();
        letters(db.default_family(), "c");
        left.store(nth, SeqCst);
        let seen = contents(reader.refresh().unwrap().default_family());
        let view = reader.refresh().unwrap();
        let added = left.swap(0, SeqCst) == 0;
        assert!(added || nth > 2, "step {nth}");
        assert_eq!(contents(view.default_family()), contents(db.default_family()), "step {nth}");
        let value_of_a = seen.into_iter().next().unwrap().1;
        assert!(value_of_a == b"a" || value_of_a == b"a.b", "step {nth}");
    }
}

/// The writer drops a family while the reader looks for one of its values. Where the boot of the machine is unknown, the reader took the
/// missing value for the end of what the machine had kept, and a family that was made after the commit for a proof that nothing is missing before
/// it.
#[test]
fn a_value_of_a_family_that_is_dropped_during_a_refresh_does_not_end_the_log() {
    for habits in [Habits::LINUX, Habits::WINDOWS] {
        let sim = Sim::new();
        sim.disk.set_habits(habits);
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        let gone = db.create_family("gone", tiny().value_threshold(100)).unwrap();
        let mut batch = WriteBatch::new();
        batch.put(db.default_family(), "a", "kept").unwrap();
        batch.put(&gone, "b", noise(1, 1000)).unwrap();
        db.write(&mut batch).unwrap();
        db.create_family("new", tiny()).unwrap();
        drop(gone);
        let (writer, armed) = (db.clone(), AtomicBool::new(true));
        let env = Hooked::env(&sim.env, move |_, name| {
            if name.ends_with(".vlog") && armed.swap(false, SeqCst) {
                apart(|| writer.drop_family("gone").unwrap());
            }
            Ok(())
        });
        let view = sim.options().env(env).open_reader().unwrap().view();
        assert!(view.family("gone").is_err(), "it was dropped during the refresh");
        assert_eq!(value(view.default_family(), b"a").as_deref(), Some(&b"kept"[..]), "{habits:?}");
    }
}

/// Opens a reader and then a writer on a disk as a crash leaves it. The reader must show a part of what is recovered.
fn look_at(sim: &Sim, what: &str) -> tidesdb::Result<()> {
    let reader = sim.options().open_reader()?;
    let before = check(&reader.view(), what);
    let db = sim.options().default_family(tiny()).open()?;
    let now = check(&reader.refresh()?, what);
    assert_eq!(check(&db, what), now, "{what}");
    assert!(before <= now, "{what}: {before} {now}");
    Ok(())
}

#[test]
fn every_moment_at_which_the_writer_may_die() {
    let sim = Sim::new();
    let db = sim.options().sync(SyncMode::None).default_family(tiny()).open().unwrap();
    let all = families(&db);
    let (moments, mut step) = (Arc::new(Mutex::new(Vec::new())), 0u64);
    let seen = Arc::clone(&moments);
    sim.disk.observe(OpKind::Write | OpKind::Rename | OpKind::Unlink | OpKind::Create, move |op, fork| {
        step += 1;
        seen.lock().unwrap().push((step, format!("{op:?}"), fork));
    });
    for n in 1..=150 {
        commit(&db, &all, n);
        match n % 50 {
            17 => db.flush().unwrap(),
            34 => db.compact().unwrap(),
            _ => {}
        }
        for (step, op, fork) in std::mem::take(&mut *moments.lock().unwrap()) {
            let image = &Image::STANDARD[step as usize % Image::STANDARD.len()];
            let what = format!("step {step}, before {op}, image {image:?}");
            let lost = Sim::on(fork.crash_image(image, step));
            for sim in [Sim::on(fork), lost] {
                look_at(&sim, &what).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
    }
}

#[test]
fn a_power_failure_leaves_a_log_that_a_reader_can_read() {
    let mut failed = Vec::new();
    for seed in 0..60u64 {
        let sim = Sim::new();
        let db = sim.options().sync(SyncMode::None).open().unwrap();
        for n in 0..100u8 {
            db.put(&[n], &vec![n; if n % 10 == 0 { 2000 } else { 20 }]).unwrap();
        }
        let after = sim.power_lost(&Image::STANDARD[seed as usize % 10], seed);
        let reader = match after.options().open_reader() {
            Ok(reader) => reader,
            Err(e) => {
                failed.push(format!("seed {seed}: {e}"));
                continue;
            }
        };
        let shown = contents(reader.view().default_family());
        let db = after.open();
        let recovered = contents(db.default_family());
        assert_eq!(recovered[..shown.len().min(recovered.len())], shown, "seed {seed}");
        assert_eq!(contents(reader.refresh().unwrap().default_family()), recovered, "seed {seed}");
    }
    assert!(failed.is_empty(), "{} of 60 failed: {failed:#?}", failed.len());
}

#[test]
fn a_refresh_that_failed_does_not_lose_the_value_logs_of_the_next_view() {
    let sim = Sim::new();
    let db = sim.options().default_family(tiny()).open().unwrap();
    let second = db.create_family("second", tiny()).unwrap();
    let fill = |family: &Family, from: u64| {
        (0..50).for_each(|n| drop(family.put(format!("k{n}").as_bytes(), &noise(from + n, 3000))));
    };
    fill(&second, 0);
    let reader = sim.options().open_reader().unwrap();
    let files = sim.disk.file_names(DB).unwrap();
    // The manifest names new value logs of the default family, and none of the second one yet.
    fill(db.default_family(), 100);
    db.default_family().flush().unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpKind::Open).path_ends(".vlog"));
    assert!(matches!(reader.refresh(), Err(Error::Io { .. })));
    sim.disk.clear_faults();
    let view = reader.refresh().unwrap();
    fill(&second, 200);
    sim.eventually(&db, |now| {
        let gone = files.iter().filter(|f| f.ends_with(".vlog") && !now.contains(f)).count();
        gone > 3
    });
    for n in 0..50 {
        let shown = value(&view.family("second").unwrap(), format!("k{n}").as_bytes());
        assert_eq!(shown, Some(noise(n, 3000)), "{n}");
    }
}

#[test]
fn a_view_that_is_alive_counts_against_the_memory_limit() {
    let sim = Sim::new();
    let large = FamilyOptions::default().write_buffer_bytes(64 << 20);
    let db = sim.options().sync(SyncMode::None).default_family(large).open().unwrap();
    let reader = sim.options().memory_limit(16 << 20).open_reader().unwrap();
    let put = |from: u64, to: u64| {
        for n in from..to {
            db.put(format!("k{n:08}"), noise(n, 400)).unwrap();
        }
    };
    put(0, 22_000);
    reader.refresh().unwrap();
    db.flush().unwrap();
    put(22_000, 44_000); // as much as before, which fitted
    let refused = reader.refresh().unwrap_err();
    assert!(matches!(refused, Error::MemoryLimit { .. }), "{refused}");
    let view = reader.view();
    assert!(value(view.default_family(), b"k00021999").is_some(), "the previous view stays");
    drop((reader, view));
    let reader = sim.options().memory_limit(16 << 20).open_reader().unwrap();
    assert!(value(reader.view().default_family(), b"k00043999").is_some());
}

#[test]
fn a_value_that_a_failed_sync_has_lost_is_not_shown() {
    let sim = Sim::new();
    sim.disk.set_sync_model(SyncModel::Btrfs);
    let db = sim.options().sync(SyncMode::None).open().unwrap();
    letters(db.default_family(), "a");
    db.sync().unwrap();
    db.put(b"b", noise(1, 3000)).unwrap();
    sim.disk.inject(Fault::errno(errno::EIO).on(OpSet::SYNCS).path_ends(".vlog"));
    assert!(db.sync().is_err());
    let reader = sim.options().open_reader().unwrap();
    assert_eq!(crate::common::keys(reader.view().iter()), ["a"]);
    db.abandon();
    let db = sim.open();
    letters(db.default_family(), "c");
    assert_eq!(contents(reader.refresh().unwrap().default_family()), contents(db.default_family()));
}

#[test]
fn a_view_that_was_closed_is_replaced() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "ab");
    let reader = sim.options().open_reader().unwrap();
    reader.refresh().unwrap().close().unwrap();
    let view = reader.refresh().unwrap();
    assert!(view.get(b"a").unwrap().is_some());
}

#[test]
fn another_database_in_the_same_directory_is_refused() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "ab");
    db.flush().unwrap();
    let reader = sim.options().open_reader().unwrap();
    let before = reader.view();
    db.close().unwrap();
    for name in sim.disk.file_names(DB).unwrap() {
        sim.disk.remove_file(format!("{DB}/{name}")).unwrap();
    }
    let db = sim.open();
    letters(db.default_family(), "xyz");
    db.flush().unwrap();
    match reader.refresh() {
        Err(Error::Corrupt { .. }) => {}
        Err(e) => panic!("{e}"),
        Ok(view) => panic!("two databases are mixed: {:?}", contents(view.default_family())),
    }
    assert!(before.get(b"a").unwrap().is_some());
}

#[test]
fn calls_that_would_change_a_view_change_nothing() {
    let sim = Sim::new();
    let db = sim.open();
    letters(db.default_family(), "ab");
    let env = Hooked::env(&sim.env, |call, name| {
        assert_ne!(call, Call::Change, "a reader changes {name}");
        Ok(())
    });
    let reader = sim.options().env(env).open_reader().unwrap();
    let view = reader.view();
    assert!(view.flush().is_err());
    assert!(view.create_family("x", FamilyOptions::default()).is_err());
    assert!(view.drop_family("default").is_err());
    assert!(view.rename_family("default", "x").is_err());
    assert!(view.default_family().change_options(tiny()).is_err());
    assert!(view.put(b"x", b"y").is_err());
    assert!(view.compact().is_err());
    assert!(view.checkpoint("/copy").is_err());
    drop(view.stats());
    assert!(view.verify().unwrap().is_ok());
    view.close().unwrap();
    drop(reader);
}
