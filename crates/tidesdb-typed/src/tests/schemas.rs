//! Random schemas, names with dots, drops, renames, clones, reopens and crashes, against a model: no row that a schema did not make ever
//! disappears, and a table that opens has its rows and consistent indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use tidesdb::{Db, Family, FamilyId, FamilyOptions};
use tidesdb_io::sim::{self, Image, OpSet, SimDisk};

use crate::{Error, Index, IndexDefinition, Key, TableDefinition, decode};

const CATALOGUE: &str = "tidesdb-typed";
/// Names of tables: some are names of indexes of others.
const TABLES: [&str; 5] = ["a", "a.b", "a.b.c", "d", "a.c"];
/// Names of families: those of the tables, some of their indexes, and one that no schema has.
const FAMILIES: [&str; 9] = ["a", "a.b", "a.b.c", "d", "a.c", "d.b", "a.b.c.b", "e", "a.b.b"];
/// Names of indexes, and the indexes.
const INDEXES: [(&str, &dyn Index<u8>); 3] = [("b", &BY_VALUE), ("c", &BY_HALF), ("b.c", &BY_PARITY)];
const BY_VALUE: IndexDefinition<u8, u8> = IndexDefinition::unique("b", |value, keys| keys.add(value));
const BY_HALF: IndexDefinition<u8, u8> = IndexDefinition::new("c", |value, keys| keys.add(value / 2));
const BY_PARITY: IndexDefinition<u8, u16> =
    IndexDefinition::new("b.c", |value, keys| keys.add(u16::from(value % 2)));

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A family of the model.
#[derive(Clone, Debug, Default)]
struct Known {
    rows: Rows,
    /// The table and the index that made it, if it is not a family of rows.
    index: Option<(String, String)>,
    /// True once it was a table: then only tables write it.
    is_table: bool,
}

impl Known {
    /// True if its schema may drop it: it is an index under its name. Elsewhere its rows are somebody's.
    fn is_made_by(&self, table: &str, name: &str) -> bool {
        self.index.as_ref().is_some_and(|(of, index)| of == table && format!("{of}.{index}") == name)
    }

    fn is_index_at_its_place(&self, name: &str) -> bool {
        self.index.as_ref().is_some_and(|(of, index)| format!("{of}.{index}") == name)
    }
}

/// A definition: positions of its table and its indexes, and whether keys have two bytes instead of one.
type Chosen = (usize, [bool; 3], bool);

#[derive(Clone, Debug)]
enum Step {
    /// Puts a row into a family, which is created if there is none.
    Put(usize, Vec<u8>, Vec<u8>),
    /// Opens a table; 0 rows are written, or one.
    Open(Chosen, Option<(u8, u8)>),
    Drop(usize),
    Rename(usize, usize),
    Clone(usize, usize),
    Reopen,
    /// Opens a table; the machine stops before a change of the disk that the number selects.
    Crash(Chosen, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let family = 0..FAMILIES.len();
    let chosen = (0..TABLES.len(), any::<[bool; 3]>(), prop::bool::weighted(0.2));
    let bytes = || {
        prop_oneof![5 => 1usize..2, 1 => 2usize..3].prop_flat_map(|len| prop::collection::vec(0u8..6, len))
    };
    prop_oneof![
        3 => (family.clone(), bytes(), bytes()).prop_map(|(at, key, value)| Step::Put(at, key, value)),
        8 => (chosen.clone(), prop::option::of((0u8..6, 0u8..40))).prop_map(|(c, row)| Step::Open(c, row)),
        3 => family.clone().prop_map(Step::Drop),
        4 => (family.clone(), family.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (family.clone(), family).prop_map(|(from, to)| Step::Clone(from, to)),
        1 => Just(Step::Reopen),
        3 => (chosen, any::<u16>()).prop_map(|(chosen, at)| Step::Crash(chosen, at.into())),
    ]
}

/// The database and its model.
struct World {
    db: Db,
    disk: Arc<SimDisk>,
    known: BTreeMap<FamilyId, Known>,
}

fn open_on(disk: SimDisk) -> (Db, Arc<SimDisk>) {
    let (env, disk, _clock) = sim::env_on(disk, 7);
    disk.log_ops(false);
    let with = |o: &mut tidesdb::DbOptions| (o.disk_free_min, o.wal_segment_bytes) = (0, 64 << 10);
    (Db::options("/db").env(env).background_threads(0).with(with).open().unwrap(), disk)
}

/// Returns all rows of a family.
fn stored(family: &Family) -> Rows {
    family.iter().unwrap().map(|row| row.unwrap()).map(|(k, v)| (k.into_vec(), v.into_vec())).collect()
}

/// What an open said, without its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Opened,
    /// Refused: nothing may have changed.
    Refused,
    /// Rows do not fit the definition: the build of an index ended early.
    Unfit,
}

impl World {
    /// Returns the families by name, without that of the catalogue.
    fn families(&self) -> BTreeMap<String, Family> {
        let names = self.db.families().into_iter().filter(|name| name != CATALOGUE && name != "default");
        names.map(|name| (name.clone(), self.db.family(&name).unwrap())).collect()
    }

    fn named(&self, name: &str) -> Option<(FamilyId, &Known)> {
        let id = self.db.family(name).ok()?.id();
        Some((id, &self.known[&id]))
    }

    /// Checks that everything that no schema may delete is as it was, and learns what an open of `chosen` made and dropped.
    fn learn(&mut self, chosen: Option<Chosen>, said: Said) {
        let families = self.families();
        let ids: BTreeSet<FamilyId> = families.values().map(Family::id).collect();
        let table = chosen.map_or("", |(table, ..)| TABLES[table]);
        let listed: Vec<&str> = chosen.map_or(Vec::new(), |(_, listed, _)| {
            INDEXES.iter().zip(listed).filter(|(_, yes)| *yes).map(|((name, _), _)| *name).collect()
        });
        for (id, known) in self.known.clone() {
            if !ids.contains(&id) {
                let is_own =
                    INDEXES.iter().any(|(name, _)| known.is_made_by(table, &format!("{table}.{name}")));
                assert!(is_own && said != Said::Refused, "a family is gone: {known:?}");
                self.known.remove(&id);
            }
        }
        for (name, family) in families {
            let made = listed.iter().find(|index| format!("{table}.{index}") == name);
            match self.known.get_mut(&family.id()) {
                None => {
                    assert!(said != Said::Refused && (name == table || made.is_some()), "{name} is new");
                    let index = made.map(|index| (table.to_owned(), (*index).to_owned()));
                    let rows = stored(&family);
                    self.known.insert(family.id(), Known { rows, index, is_table: name == table });
                }
                // An empty family that the index has taken over.
                Some(known) if made.is_some() && known.rows.is_empty() && said != Said::Refused => {
                    let index = made.map(|index| (table.to_owned(), (*index).to_owned()));
                    *known = Known { rows: stored(&family), index, is_table: false };
                }
                Some(known) if known.is_index_at_its_place(&name) => known.rows = stored(&family),
                Some(known) => assert_eq!(stored(&family), known.rows, "rows of {name} have changed"),
            }
        }
    }

    /// Opens the table of `chosen`, and checks what it says.
    fn open(&mut self, chosen: Chosen, row: Option<(u8, u8)>) {
        let said = match chosen.2 {
            false => self.open_as::<u8>(chosen, row),
            true => self.open_as::<u16>(chosen, row.map(|(key, value)| (u16::from(key), value))),
        };
        self.learn(Some(chosen), said);
        self.note_table(chosen, said);
    }

    /// From now on only tables write the family.
    fn note_table(&mut self, chosen: Chosen, said: Said) {
        if said != Said::Refused
            && let Some((_, known)) = self.named_mut(TABLES[chosen.0])
        {
            (known.is_table, known.index) = (true, None);
        }
    }

    fn open_as<K>(&mut self, chosen: Chosen, row: Option<(K, u8)>) -> Said
    where
        K: Key + Copy + Ord + std::fmt::Debug + for<'a> Key<Ref<'a> = K>,
    {
        let table = TABLES[chosen.0];
        let listed =
            INDEXES.iter().zip(chosen.1).filter(|(_, yes)| *yes).map(|((name, index), _)| (*name, *index));
        let (names, indexes): (Vec<_>, Vec<&'static dyn Index<u8>>) = listed.unzip();
        let families: Vec<String> = names.iter().map(|name| format!("{table}.{name}")).collect();
        // A family of rows under the name of an index is refused, whoever made it.
        let clashes = families.iter().any(|name| {
            self.named(name)
                .is_some_and(|(_, known)| !known.rows.is_empty() && !known.is_made_by(table, name))
        });
        let clashes = clashes
            || self
                .named(table)
                .is_some_and(|(_, known)| known.is_index_at_its_place(table) && !known.rows.is_empty());
        let is_free = self.named(table).is_none() && families.iter().all(|name| self.named(name).is_none());
        let before = self.named(table).map(|(_, known)| known.rows.clone()).unwrap_or_default();
        let decoded: Result<BTreeMap<K, u8>, _> =
            before.iter().map(|(k, v)| Ok::<_, crate::Malformed>((decode(k)?, decode(v)?))).collect();

        let definition = TableDefinition::<K, u8>::new(table).indexes(indexes.leak());
        let opened = match definition.open(&self.db) {
            Ok(opened) => opened,
            Err(Error::NameTaken { .. } | Error::Mismatch { .. }) => {
                assert!(!is_free, "nothing has one of the names");
                return Said::Refused;
            }
            Err(Error::Duplicate { .. }) => {
                let values: BTreeSet<&Vec<u8>> = before.values().collect();
                assert!(values.len() < before.len() && !clashes);
                return Said::Unfit;
            }
            Err(Error::Decode { .. }) => {
                assert!(decoded.is_err() && !clashes);
                return Said::Unfit;
            }
            Err(e) => panic!("{e}"),
        };
        assert!(!clashes, "{table} with {names:?} took a family");
        let Ok(mut decoded) = decoded else { return Said::Opened }; // its first and last row fit
        assert_eq!(opened.check_indexes().unwrap(), before.len() as u64, "{table} with {names:?}");
        if let Some((key, value)) = row {
            match opened.put(key, value) {
                Ok(()) => drop(decoded.insert(key, value)),
                Err(Error::Duplicate { .. }) => assert!(decoded.values().any(|other| *other == value)),
                Err(e) => panic!("{e}"),
            }
        }
        let rows: BTreeMap<K, u8> = opened.iter().unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows, decoded);
        assert_eq!(opened.check_indexes().unwrap(), rows.len() as u64);
        if let Some((_, known)) = self.named_mut(table) {
            known.rows = stored(opened.family());
        }
        Said::Opened
    }

    fn named_mut(&mut self, name: &str) -> Option<(FamilyId, &mut Known)> {
        let id = self.db.family(name).ok()?.id();
        Some((id, self.known.get_mut(&id)?))
    }

    /// Opens a table, and continues on a disk as a crash in between may leave it.
    fn crash(&mut self, chosen: Chosen, at: usize) {
        let forks: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
        let taken = Arc::clone(&forks);
        self.disk.observe(OpSet::CHANGES, move |_, fork| taken.lock().unwrap().push(fork));
        let definition = |wide: bool| {
            let listed = INDEXES.iter().zip(chosen.1).filter(|(_, yes)| *yes).map(|((_, index), _)| *index);
            let indexes: Vec<&'static dyn Index<u8>> = listed.collect();
            let table = TABLES[chosen.0];
            match wide {
                false => {
                    TableDefinition::<u8, u8>::new(table).indexes(indexes.leak()).open(&self.db).map(drop)
                }
                true => {
                    TableDefinition::<u16, u8>::new(table).indexes(indexes.leak()).open(&self.db).map(drop)
                }
            }
        };
        let said = match definition(chosen.2) {
            Err(Error::NameTaken { .. } | Error::Mismatch { .. }) => Said::Refused,
            Ok(()) | Err(_) => Said::Unfit,
        };
        self.disk.stop_observing();
        let forks = std::mem::take(&mut *forks.lock().unwrap());
        let Some(fork) = forks.get(at % forks.len().max(1)) else {
            return self.learn(Some(chosen), said); // it changed nothing
        };
        let image = Image::STANDARD[at % Image::STANDARD.len()];
        let disk = fork.crash_image(&image, at as u64);
        (self.db, self.disk) = open_on(disk);
        self.learn(Some(chosen), said);
        self.note_table(chosen, said);
    }

    fn run(&mut self, step: Step) {
        let opens = matches!(step, Step::Open(..) | Step::Crash(..));
        match step {
            Step::Put(at, key, value) => {
                let name = FAMILIES[at];
                if self
                    .named(name)
                    .is_some_and(|(_, known)| known.is_table || known.is_index_at_its_place(name))
                {
                    return; // past the table
                }
                let family = self.db.family_or_create(name, FamilyOptions::default()).unwrap();
                family.put(&key, &value).unwrap();
                self.known.entry(family.id()).or_default().rows.insert(key, value);
            }
            Step::Open(chosen, row) => self.open(chosen, row),
            Step::Drop(at) => {
                if let Some((id, _)) = self.named(FAMILIES[at]) {
                    self.db.drop_family(FAMILIES[at]).unwrap();
                    self.known.remove(&id);
                }
            }
            Step::Rename(from, to) => drop(self.db.rename_family(FAMILIES[from], FAMILIES[to])),
            Step::Clone(from, to) => {
                if let Ok(family) = self.db.clone_family(FAMILIES[from], FAMILIES[to]) {
                    self.known.insert(family.id(), Known { rows: stored(&family), ..Known::default() });
                }
            }
            Step::Reopen => {
                let disk = self.disk.fork();
                (self.db, self.disk) = open_on(disk);
            }
            Step::Crash(chosen, at) => self.crash(chosen, at),
        }
        if !opens {
            self.learn(None, Said::Refused);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn no_row_that_a_schema_did_not_make_disappears(steps in prop::collection::vec(step(), 1..60)) {
        let (db, disk) = open_on(SimDisk::new(7));
        let mut world = World { db, disk, known: BTreeMap::new() };
        for step in steps {
            world.run(step);
        }
    }
}
