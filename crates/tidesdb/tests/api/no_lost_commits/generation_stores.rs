//! Stores of backups: several writers, conditions that are ignored, calls that fail halfway, damaged objects.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tidesdb::backup::{Backups, CreateOptions, PrunePolicy};
use tidesdb::store::{Body, Condition, DirectoryStore, Object, Tag};
use tidesdb::{Error, MemoryStore, ObjectStore};

use crate::common::{Sim, fill, noise};
use crate::no_lost_commits::generations::{assert_same, backups, restored, sample};

#[test]
fn an_old_writer_is_refused_and_harms_nothing() {
    let sim = Sim::new();
    let (db, old) = (sample(&sim), backups(&sim));
    old.create(&db).unwrap();
    let new = backups(&sim);
    assert_eq!(new.list().unwrap().len(), 1);
    old.create(&db).unwrap(); // a list takes nothing over
    db.put("k", noise(1, 900)).unwrap();
    new.create(&db).unwrap();
    db.put("l", noise(2, 900)).unwrap();
    for _ in 0..2 {
        let refused = old.create(&db).unwrap_err();
        assert!(matches!(&refused, Error::Locked { what, .. } if what.contains("writer 2")), "{refused}");
        assert!(matches!(old.prune(&PrunePolicy::default().keep_last(1)), Err(Error::Locked { .. })));
        assert!(matches!(old.delete(1), Err(Error::Locked { .. })));
    }
    assert_eq!(old.list().unwrap().len(), 3, "it may still read");
    assert_same(&restored(&sim, &new, new.create(&db).unwrap().number), &db);
}

/// The old writer has copied everything when the new one takes the store over, removes what no generation names, and makes its own.
#[test]
fn a_writer_that_is_refused_in_the_end_leaves_garbage_only() {
    let sim = Sim::new();
    let (db, store) = (sample(&sim), MemoryStore::default());
    let [old, new] = [(); 2].map(|()| Backups::with_env(Arc::new(store.clone()), sim.env.clone()));
    old.create(&db).unwrap();
    db.put("long", noise(3, 100_000)).unwrap();
    let (other, taken) = (new.clone(), Arc::new(AtomicU64::new(0)));
    let (seen, second) = (Arc::clone(&taken), db.clone());
    let options = CreateOptions::default().progress(move |_| {
        if seen.fetch_add(1, SeqCst) == 0 {
            other.create(&second).unwrap();
            other.prune(&PrunePolicy::default().keep_last(1)).unwrap();
        }
    });
    assert!(matches!(old.create_with(&db, &options), Err(Error::Locked { .. })));
    assert!(taken.load(SeqCst) > 0);
    assert_eq!(new.list().unwrap().len(), 1);
    assert_same(&restored(&sim, &new, 2), &db);
    let objects = || store.list().unwrap().len();
    let before = objects();
    new.prune(&PrunePolicy::default().keep_last(1)).unwrap();
    assert!(objects() < before, "the garbage of the old writer is removed");
    assert!(new.verify(2).unwrap().is_ok());
}

/// A generation that shares objects with one that is pruned while it is made.
#[test]
fn prune_beside_create_keeps_what_the_new_generation_names() {
    let sim = Sim::new();
    let (db, store) = (sample(&sim), backups(&sim));
    store.create(&db).unwrap();
    store.create(&db).unwrap();
    db.put("long", noise(3, 100_000)).unwrap();
    let other = store.clone();
    let options = CreateOptions::default().progress(move |_| {
        other.prune(&PrunePolicy::default().keep_last(1)).unwrap();
        let _ = other.delete(2);
        assert!(matches!(other.create(&Sim::new().open()), Err(Error::Busy { .. })));
    });
    let made = store.create_with(&db, &options).unwrap();
    assert!(made.bytes_copied < made.bytes, "{made:?}");
    assert_eq!(store.list().unwrap().len(), 1);
    assert!(store.verify(made.number).unwrap().is_ok());
    assert_same(&restored(&sim, &store, made.number), &db);
}

/// Passes calls on to a store in memory, and fails or lies as it is told.
#[derive(Debug, Default)]
struct Odd {
    inner: MemoryStore,
    ignores: Option<&'static str>,
    /// Calls from half of this number on fail: before they have an effect if it is even, otherwise after it.
    fails_at: AtomicU64,
    /// How many fail.
    failures: AtomicU64,
    calls: AtomicU64,
}

impl Odd {
    fn call<R>(&self, body: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let first = self.fails_at.load(SeqCst) / 2;
        let call = self.calls.fetch_add(1, SeqCst);
        let fails = (first..first.saturating_add(self.failures.load(SeqCst))).contains(&call);
        let failure = || io::Error::new(io::ErrorKind::ConnectionReset, "no answer");
        match (fails, self.fails_at.load(SeqCst) % 2) {
            (true, 0) => Err(failure()),
            (true, _) => body().and_then(|_| Err(failure())),
            _ => body(),
        }
    }
}

impl ObjectStore for Odd {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        self.call(|| self.inner.put(name, body))
    }

    /// A get that fails has passed a half of the bytes on.
    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut all = Vec::new();
        self.inner.get(name, &mut |piece| {
            all.extend_from_slice(piece);
            Ok(())
        })?;
        let (first, rest) = all.split_at(all.len() / 2);
        sink(first)?;
        self.call(|| Ok(()))?;
        sink(rest)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.call(|| self.inner.list())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.call(|| self.inner.delete(name))
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.call(|| self.inner.get_range(name, range, sink))
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        self.call(|| self.inner.get_tagged(name, sink))
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        let ignored = match condition {
            Condition::Absent => "absent",
            Condition::Tagged(_) => "tagged",
        };
        if self.ignores == Some(ignored) {
            self.inner.put(name, body)?;
            return self.inner.get_tagged(name, &mut |_| Ok(())).map(Some);
        }
        self.call(|| self.inner.put_if(name, body, condition))
    }
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let sim = Sim::new();
    let db = sample(&sim);
    for ignores in ["absent", "tagged"] {
        let odd = Odd { ignores: Some(ignores), fails_at: u64::MAX.into(), ..Odd::default() };
        let inner = odd.inner.clone();
        let store = Backups::with_env(Arc::new(odd), sim.env.clone());
        let refused = store.create(&db).unwrap_err();
        assert!(
            matches!(&refused, Error::InvalidArgument { what } if what.contains("ignores the condition")),
            "{refused}"
        );
        let names: Vec<_> = inner.list().unwrap().into_iter().map(|object| object.name).collect();
        assert_eq!(names, ["backup.probe"]);
    }
    /// A store of a program from before there were conditional puts.
    #[derive(Debug)]
    struct Four(MemoryStore);
    impl ObjectStore for Four {
        fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
            self.0.put(name, body)
        }
        fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
            self.0.get(name, sink)
        }
        fn list(&self) -> io::Result<Vec<Object>> {
            self.0.list()
        }
        fn delete(&self, name: &str) -> io::Result<()> {
            self.0.delete(name)
        }
    }
    let four = Four(MemoryStore::default());
    four.put("a", &Body::bytes(b"0123456789")).unwrap();
    let mut part = Vec::new();
    four.get_range("a", 3..7, &mut |piece| {
        part.extend_from_slice(piece);
        Ok(())
    })
    .unwrap();
    assert_eq!(part, b"3456", "ranges of any store");
    assert!(four.get_range("a", 3..11, &mut |_| Ok(())).is_err());
    let store = Backups::with_env(Arc::new(four), sim.env.clone());
    for refused in [store.create(&db).map(drop), store.list().map(drop)] {
        assert!(matches!(refused, Err(Error::InvalidArgument { .. })), "{refused:?}");
    }
}

/// A store in which a generation is removed before the call that follows `left` others.
#[derive(Debug, Default)]
struct Removing {
    inner: MemoryStore,
    left: AtomicU64,
    remover: std::sync::OnceLock<Backups>,
}

impl Removing {
    fn count(&self) {
        if self.left.fetch_sub(1, SeqCst) == 0 {
            self.remover.get().unwrap().delete(1).unwrap();
        }
    }
}

impl ObjectStore for Removing {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        self.inner.put(name, body)
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.count();
        self.inner.get(name, sink)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        self.count();
        self.inner.get_tagged(name, sink)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.inner.list()
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.inner.delete(name)
    }
}

/// Regression test: a generation that another process removed while it was read was reported as damaged.
#[test]
fn a_generation_that_is_removed_while_it_is_read_is_not_found() {
    type Call = fn(&Backups) -> Result<(), Error>;
    let calls: [Call; 2] = [|b| b.verify(1).map(|report| assert!(report.is_ok())), |b| b.restore(1, "/copy")];
    let sim = Sim::new();
    let db = sample(&sim);
    for call in calls {
        let mut refused = 0;
        for left in 0.. {
            let inner = MemoryStore::default();
            let store =
                Arc::new(Removing { inner: inner.clone(), left: u64::MAX.into(), ..Removing::default() });
            let writer = Backups::with_env(Arc::new(inner), sim.env.clone());
            writer.create(&db).unwrap();
            store.remover.set(writer).unwrap();
            store.left.store(left, SeqCst);
            let machine = Sim::new();
            match call(&Backups::with_env(Arc::<Removing>::clone(&store), machine.env.clone())) {
                Err(e) => {
                    assert!(matches!(e, Error::NotFound { .. }), "before call {left}: {e}");
                    refused += 1;
                }
                Ok(()) if store.left.load(SeqCst) < u64::MAX / 2 => break, // it needs no further call
                Ok(()) => {}
            }
        }
        assert!(refused > 2, "{refused}");
    }
}

/// The puts that find out whether conditions are heeded fail, before or after their effect.
#[test]
fn a_lost_answer_does_not_end_a_take_over() {
    for (call, is_late) in [0, 1, 3, 4].into_iter().flat_map(|call| [(call, 0), (call, 1)]) {
        let sim = Sim::new();
        let db = sample(&sim);
        let (fails_at, failures) = (AtomicU64::new(2 * call + is_late), AtomicU64::new(1));
        let odd = Odd { fails_at, failures, ..Odd::default() };
        let store = Backups::with_env(Arc::new(odd), sim.env.clone());
        let made = store.create(&db).unwrap();
        assert_same(&restored(&sim, &store, made.number), &db);
    }
}

/// Each call of the store fails, once or with those that follow, before or after its effect.
#[test]
fn a_store_that_fails_never_holds_half_a_generation() {
    let life = |fails_at: u64, failures: u64| {
        let sim = Sim::new();
        let db = sample(&sim);
        let odd = Odd { fails_at: u64::MAX.into(), failures: failures.into(), ..Odd::default() };
        let odd = Arc::new(odd);
        let store = Backups::with_env(Arc::<Odd>::clone(&odd), sim.env.clone());
        store.create(&db).unwrap();
        db.put("long", noise(3, 5000)).unwrap();
        odd.calls.store(0, SeqCst);
        odd.fails_at.store(fails_at, SeqCst);
        let made = store.create_with(&db, &CreateOptions::default().prove("/scratch"));
        let calls = odd.calls.load(SeqCst);
        odd.fails_at.store(u64::MAX, SeqCst);
        let all = store.list().unwrap();
        assert!(made.is_err() || all.last().is_some_and(|last| last.proof.is_some_and(|proof| proof.passed)));
        for made in &all {
            assert!(store.verify(made.number).unwrap().is_ok(), "call {fails_at}: {made:?}");
        }
        // The same writer goes on, whatever it does first, and what it removes is garbage.
        if failures > 1 {
            store.delete(1).unwrap();
        }
        let next = store.create(&db).unwrap();
        assert_same(&restored(&sim, &store, next.number), &db);
        for made in store.list().unwrap() {
            assert!(store.verify(made.number).unwrap().is_ok(), "call {fails_at}: {made:?}");
            store.delete(made.number).unwrap();
        }
        assert_eq!(odd.inner.list().unwrap().len(), 2, "call {fails_at}: {:?}", odd.inner.list());
        (calls, made.is_err())
    };
    let (calls, failed) = life(u64::MAX, 1);
    assert!(calls > 15 && !failed, "{calls}");
    for failures in [2, 3, 9] {
        for fails_at in 0..2 * calls {
            life(fails_at, failures);
        }
    }
    let failures = (0..2 * calls).filter(|fails_at| life(*fails_at, 1).1).count();
    assert!(
        failures > 5 && failures < 2 * calls as usize,
        "{failures} of {calls}: reads are taken up again, and puts of the index"
    );
}

/// Flips bytes in each region of each object.
#[test]
fn damage_of_any_object_is_found_by_verify_and_by_restore() {
    let sim = Sim::new();
    let (db, store) = (sample(&sim), backups(&sim));
    store.create(&db).unwrap();
    fill(&db.family("a").unwrap(), 5, &noise(8, 4000));
    let made = store.create(&db).unwrap();
    let expected = restored(&sim, &store, made.number);
    let names: Vec<String> = sim.disk.file_names("/backups").unwrap();
    assert!(names.iter().filter(|name| name.ends_with(".vlog")).count() >= 2, "{names:?}");
    let mut tried = 0;
    for name in names.iter().filter(|name| *name != "backup.probe") {
        let path = format!("/backups/{name}");
        let intact = sim.disk.read_file(&path).unwrap();
        let mut damaged: Vec<Option<Vec<u8>>> = vec![None, Some(intact[..intact.len() - 1].to_vec())];
        damaged.push(Some([&intact[..], b"x"].concat()));
        for at in (0..8).map(|n| n * (intact.len() - 1) / 7) {
            let mut flipped = intact.clone();
            flipped[at] ^= 0x10;
            damaged.push(Some(flipped));
        }
        for bytes in damaged {
            match &bytes {
                Some(bytes) => sim.disk.write_file(&path, bytes).unwrap(),
                None => sim.disk.remove_file(&path).unwrap(),
            }
            let what = format!("{name}: {:?} of {} bytes", bytes.as_ref().map(Vec::len), intact.len());
            tried += 1;
            if name == "backup.index" {
                let list = store.list();
                assert!(bytes.is_none() || list.unwrap_err().is_corruption(), "{what}");
                assert!(store.restore(made.number, "/damaged").is_err(), "{what}");
            } else {
                let found = |number| !store.verify(number).unwrap().is_ok();
                assert!(found(1) || found(2), "{what}");
                for number in [1, 2] {
                    let path = "/damaged";
                    match store.restore(number, path) {
                        Ok(()) => {
                            assert!(!found(number), "{what}");
                            sim.disk.file_names(path).unwrap().iter().for_each(|name| {
                                sim.disk.remove_file(format!("{path}/{name}")).unwrap();
                            });
                        }
                        Err(e) => assert!(e.is_corruption() && found(number), "{what}: {e}"),
                    }
                    let left = sim.disk.file_names(path).unwrap_or_default();
                    assert!(left.iter().all(|name| name == "LOCK"), "{what}: {left:?}");
                }
            }
            sim.disk.write_file(&path, &intact).unwrap();
        }
    }
    assert!(tried > 50, "{tried}");
    assert!(store.verify(1).unwrap().is_ok() && store.verify(2).unwrap().is_ok());
    assert_same(&expected, &db);
}

/// What a damaged generation shares with the next one is copied again if its length shows it; the proof finds the rest.
#[test]
fn a_damaged_store_is_noticed_by_a_proof_and_a_missing_object_is_copied_again() {
    let sim = Sim::new();
    let (db, store) = (sample(&sim), backups(&sim));
    store.create(&db).unwrap();
    let names = sim.disk.file_names("/backups").unwrap();
    let table = names.iter().find(|name| name.ends_with(".klog")).unwrap();
    let path = format!("/backups/{table}");
    let intact = sim.disk.read_file(&path).unwrap();
    sim.disk.write_file(&path, &intact[..intact.len() / 2]).unwrap();
    let healed = store.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap();
    assert!(healed.bytes_copied > 0 && healed.proof.unwrap().passed, "{healed:?}");
    assert!(!store.verify(1).unwrap().is_ok());
    let flipped = sim.disk.file_names("/backups").unwrap();
    let table = flipped.iter().rfind(|name| name.ends_with(".klog")).unwrap();
    sim.disk.corrupt(format!("/backups/{table}"), 50, |byte| !byte).unwrap();
    let failed = store.create_with(&db, &CreateOptions::default().prove("/scratch")).unwrap_err();
    assert!(failed.is_corruption(), "{failed}");
    let all = store.list().unwrap();
    assert!(
        all.iter().map(|made| made.proof.map(|proof| proof.passed)).eq([None, Some(true), Some(false)]),
        "{all:?}"
    );
    // The proof of the second was before the damage: a new one fails.
    let options = || sim.options_as_stored("/scratch");
    assert!(store.prove(2, options()).unwrap_err().is_corruption());
    assert!(store.list().unwrap().iter().all(|made| made.proof.is_none_or(|proof| !proof.passed)));
    assert!(matches!(store.prove(9, options()), Err(Error::NotFound { .. })));
}

/// A description that is damaged names nothing that can be known: the next generation copies everything, and nothing is removed until the
/// damaged one is deleted.
#[test]
fn a_generation_follows_one_with_a_damaged_description() {
    let sim = Sim::new();
    let (db, store) = (sample(&sim), backups(&sim));
    store.create(&db).unwrap();
    let names = || sim.disk.file_names("/backups").unwrap();
    let described = names().into_iter().find(|name| name.ends_with(".generation")).unwrap();
    sim.disk.corrupt(format!("/backups/{described}"), 40, |byte| !byte).unwrap();
    let store = backups(&sim);
    let before = names().len();
    let made = store.create(&db).unwrap();
    assert_eq!((made.number, made.bytes_copied), (2, made.bytes));
    assert!(names().len() > before);
    assert!(!store.verify(1).unwrap().is_ok() && store.verify(2).unwrap().is_ok());
    let unsure = store.prune(&PrunePolicy::default().keep_last(5)).unwrap_err();
    assert!(unsure.is_corruption(), "{unsure}");
    store.delete(1).unwrap();
    assert_eq!(names().len(), before, "{:?}", names());
    assert_same(&restored(&sim, &store, 2), &db);
}

#[test]
fn a_lost_index_is_made_again() {
    let sim = Sim::new();
    let (db, store) = (sample(&sim), backups(&sim));
    for n in 0..3u8 {
        db.put([n], noise(n.into(), 900)).unwrap();
        store.create(&db).unwrap();
    }
    store.delete(2).unwrap();
    let before = store.list().unwrap();
    assert!(matches!(store.repair(), Err(Error::Exists { .. })));
    let intact = sim.disk.read_file("/backups/backup.index").unwrap();
    for (n, damage) in [Some(&intact[..20]), None].into_iter().enumerate() {
        match damage {
            Some(bytes) => sim.disk.write_file("/backups/backup.index", bytes).unwrap(),
            None => sim.disk.remove_file("/backups/backup.index").unwrap(),
        }
        let new = backups(&sim);
        let refused = new.create(&db).unwrap_err();
        assert!(refused.is_corruption(), "{refused}");
        assert_eq!(new.repair().unwrap(), before);
        assert_eq!(new.list().unwrap(), before);
        let path = format!("/again{n}");
        new.restore(3, &path).unwrap();
        assert_same(&sim.options_as_stored(&path).open().unwrap(), &db);
        assert!(matches!(store.create(&db), Err(Error::Locked { .. } | Error::Corrupt { .. })));
    }
    let new = backups(&sim);
    assert_eq!(new.create(&db).unwrap().number, 4);
    assert!(new.list().unwrap().iter().all(|made| new.verify(made.number).unwrap().is_ok()));
}

/// A store that does something before it lists its objects for the first time.
struct Meanwhile {
    inner: MemoryStore,
    first: std::sync::Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Meanwhile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

impl ObjectStore for Meanwhile {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        self.inner.put(name, body)
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.inner.get(name, sink)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        self.inner.get_tagged(name, sink)
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        self.inner.put_if(name, body, condition)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let listed = self.inner.list();
        if let Some(first) = self.first.lock().unwrap().take() {
            std::thread::scope(|s| s.spawn(first).join()).unwrap(); // as another process does
        }
        listed
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.inner.delete(name)
    }
}

/// Regression test: the list that the slower of two repairs had made replaced one with a newer generation, which was then deleted.
#[test]
fn a_repair_does_not_replace_an_index_that_another_one_has_made() {
    let sim = Sim::new();
    let db = sample(&sim);
    for damage in [None, Some(&b"damaged"[..])] {
        let inner = MemoryStore::default();
        let open = |store: Arc<dyn ObjectStore>| Backups::with_env(store, sim.env.clone());
        open(Arc::new(inner.clone())).create(&db).unwrap();
        match damage {
            Some(bytes) => inner.put("backup.index", &Body::bytes(bytes)).unwrap(),
            None => inner.delete("backup.index").unwrap(),
        }
        let (other, again) = (open(Arc::new(inner.clone())), db.clone());
        let first = Box::new(move || {
            assert_eq!(other.repair().unwrap().len(), 1);
            assert_eq!(other.create(&again).unwrap().number, 2);
        });
        let slow = Meanwhile { inner: inner.clone(), first: std::sync::Mutex::new(Some(first)) };
        let slow = open(Arc::new(slow));
        let refused = slow.repair().unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        let new = open(Arc::new(inner));
        assert_eq!(new.list().unwrap().len(), 2);
        assert_eq!(new.create(&db).unwrap().number, 3);
        assert!(new.list().unwrap().iter().all(|made| new.verify(made.number).unwrap().is_ok()));
    }
}

/// A store that is away made a removal wait for each object.
#[test]
fn a_removal_ends_at_the_first_object_that_cannot_be_removed() {
    let mut ended = 0;
    for call in 0.. {
        let sim = Sim::new();
        let db = sample(&sim);
        let odd = Arc::new(Odd { fails_at: u64::MAX.into(), failures: u64::MAX.into(), ..Odd::default() });
        let store = Backups::with_env(Arc::<Odd>::clone(&odd), sim.env.clone());
        store.create(&db).unwrap();
        db.put("k", noise(9, 4000)).unwrap();
        db.compact().unwrap();
        store.create(&db).unwrap();
        let first = odd.calls.load(SeqCst) + call;
        odd.fails_at.store(2 * first, SeqCst);
        match store.delete(1) {
            Ok(()) => break,
            Err(Error::Io { op: "delete", .. }) => {
                assert_eq!(odd.calls.load(SeqCst), first + 1);
                ended += 1;
            }
            Err(_) => {}
        }
    }
    assert!(ended > 1, "{ended}");
}

/// Two threads that are two writers: of each change, one wins.
#[test]
fn two_writers_at_once_leave_whole_generations() {
    let temp = tempfile::tempdir().unwrap();
    let open = || Backups::new(Arc::new(DirectoryStore::open(temp.path().join("store")).unwrap()));
    let made: Vec<u64> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..3u8)
            .map(|n| {
                let (open, path) = (&open, temp.path().join(format!("db{n}")));
                s.spawn(move || {
                    let db = tidesdb::Db::options(path).sync(tidesdb::SyncMode::None).open().unwrap();
                    let mut made = Vec::new();
                    for round in 0..8u8 {
                        db.put([round], noise(u64::from(n), 2000)).unwrap();
                        match open().create(&db) {
                            Ok(generation) => made.push(generation.number),
                            Err(Error::Locked { .. } | Error::Busy { .. }) => {}
                            Err(e) => panic!("{e}"),
                        }
                    }
                    made
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let all = open().list().unwrap();
    assert!(!all.is_empty());
    let listed: Vec<u64> = all.iter().map(|generation| generation.number).collect();
    assert!(made.iter().all(|number| listed.contains(number)), "{made:?} in {listed:?}");
    for number in &listed {
        assert!(open().verify(*number).unwrap().is_ok(), "{number}");
        open().restore(*number, temp.path().join(format!("restored{number}"))).unwrap();
    }
}
