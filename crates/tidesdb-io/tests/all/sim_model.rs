//! The simulated disk against a model that keeps every version of everything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidesdb_io::sim::{DataFate, Image, NameFate, SimDisk};
use tidesdb_io::{Access, Dir, Disk, Entropy, File, FileExt, SeededEntropy, SharedMap};

const SECTOR: usize = 512;

/// The model of a file: every content since the last sync, the durable one first.
#[derive(Clone, Debug)]
struct ModelFile {
    versions: Vec<Vec<u8>>,
    /// True if sectors may mix versions byte by byte, as after writes through a map.
    mapped: bool,
}

impl ModelFile {
    fn current(&self) -> &Vec<u8> {
        self.versions.last().unwrap()
    }

    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut next = self.current().clone();
        change(&mut next);
        self.versions.push(next);
    }

    fn sync(&mut self) {
        self.versions = vec![self.current().clone()];
        self.mapped = false;
    }

    /// Checks that every sector of an image holds one of the versions.
    fn allows(&self, image: &[u8]) -> Result<(), String> {
        if !self.versions.iter().any(|v| v.len() == image.len()) {
            return Err(format!("length {} never was", image.len()));
        }
        for (i, sector) in image.chunks(SECTOR).enumerate() {
            let start = i * SECTOR;
            let versions: Vec<Vec<u8>> =
                self.versions.iter().map(|v| slice_padded(v, start, sector.len())).collect();
            let allowed = if self.mapped {
                (0..sector.len()).all(|b| versions.iter().any(|v| v[b] == sector[b]))
            } else {
                versions.iter().any(|v| v == sector)
            };
            if !allowed {
                return Err(format!("sector {i} holds bytes that were never there"));
            }
        }
        Ok(())
    }
}

fn slice_padded(bytes: &[u8], start: usize, len: usize) -> Vec<u8> {
    let mut out = bytes.get(start..bytes.len().min(start + len)).unwrap_or(&[]).to_vec();
    out.resize(len, 0);
    out
}

type Names = BTreeMap<String, usize>;

#[derive(Debug)]
enum Change {
    Set(String, usize),
    Remove(String, usize),
    Rename(String, String, usize),
}

/// The model of the whole disk: one directory.
#[derive(Debug, Default)]
struct Model {
    files: Vec<ModelFile>,
    cached: Names,
    durable: Names,
    pending: Vec<Change>,
}

impl Model {
    fn names_after(&self, mask: u64) -> Names {
        let mut names = self.durable.clone();
        let remove = |names: &mut Names, name: &String, file: usize| {
            if names.get(name) == Some(&file) {
                names.remove(name);
            }
        };
        for (i, change) in self.pending.iter().enumerate() {
            if mask >> i & 1 == 0 {
                continue;
            }
            match change {
                Change::Set(name, file) => drop(names.insert(name.clone(), *file)),
                Change::Remove(name, file) => remove(&mut names, name, *file),
                Change::Rename(from, to, file) => {
                    remove(&mut names, from, *file);
                    names.insert(to.clone(), *file);
                }
            }
        }
        names
    }
}

/// An open file: its number in the model, its handle, and its map if it has one.
type Open = (usize, Arc<dyn File>, Option<Box<dyn SharedMap>>);

struct Script {
    seed: u64,
    rng: SeededEntropy,
    sim: SimDisk,
    dir: Arc<dyn Dir>,
    model: Model,
    open: Vec<Open>,
    cuts: bool,
}

impl Script {
    fn new(seed: u64, cuts: bool) -> Self {
        let sim = SimDisk::new(seed);
        let dir = sim.open_dir(Path::new("/db"), true).unwrap();
        let rng = SeededEntropy::new(seed);
        Self { seed, rng, sim, dir, model: Model::default(), open: Vec::new(), cuts }
    }

    fn below(&self, n: usize) -> usize {
        (self.rng.next_u64() % n as u64) as usize
    }

    fn name(&self) -> String {
        ["a", "b", "c", "d", "e"][self.below(5)].to_owned()
    }

    fn step(&mut self) {
        let name = self.name();
        match self.below(16) {
            0 | 1 => self.create(name),
            2 => self.rename(name),
            3 => self.unlink(name),
            4 => self.link(name),
            5 => {
                self.dir.sync().unwrap();
                self.model.durable = self.model.cached.clone();
                self.model.pending.clear();
            }
            6 => {
                if let Ok(file) = self.dir.open(&name, Access::ReadWrite) {
                    self.open.push((self.model.cached[&name], file, None));
                }
            }
            _ => self.use_file(),
        }
    }

    fn create(&mut self, name: String) {
        let prealloc = self.below(3) * 3_000;
        match self.dir.create_new(&name, prealloc as u64) {
            Err(_) => assert!(self.model.cached.contains_key(&name)),
            Ok(file) => {
                let id = self.model.files.len();
                let versions = vec![Vec::new(), vec![0; prealloc]];
                self.model.files.push(ModelFile { versions, mapped: false });
                assert_eq!(self.model.cached.insert(name.clone(), id), None);
                self.model.pending.push(Change::Set(name, id));
                self.open.push((id, file, None));
            }
        }
    }

    fn rename(&mut self, from: String) {
        let to = self.name();
        let known = self.model.cached.get(&from).copied();
        assert_eq!(self.dir.rename(&from, &to).is_ok(), known.is_some());
        let Some(id) = known else { return };
        if self.model.cached.get(&to) != Some(&id) {
            self.model.cached.remove(&from);
            self.model.cached.insert(to.clone(), id);
            self.model.pending.push(Change::Rename(from, to, id));
        }
    }

    fn unlink(&mut self, name: String) {
        let known = self.model.cached.remove(&name);
        assert_eq!(self.dir.unlink(&name).is_ok(), known.is_some());
        if let Some(id) = known {
            self.model.pending.push(Change::Remove(name, id));
        }
    }

    fn link(&mut self, name: String) {
        let to = self.name();
        let known = self.model.cached.get(&name).copied();
        let works = known.filter(|_| !self.model.cached.contains_key(&to));
        assert_eq!(self.dir.link(&name, &*self.dir, &to).is_ok(), works.is_some());
        if let Some(id) = works {
            self.model.cached.insert(to.clone(), id);
            self.model.pending.push(Change::Set(to, id));
        }
    }

    fn use_file(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let slot = self.below(self.open.len());
        let (offset, len, what) = (self.below(9_000), self.below(2_500), self.below(9));
        let data = vec![self.below(256) as u8; len];
        let cuts = self.cuts;
        let (id, file, map) = &mut self.open[slot];
        let model = &mut self.model.files[*id];
        match what {
            0 => {
                file.sync_data().unwrap();
                model.sync();
            }
            1 if cuts || offset >= model.current().len() => {
                *map = None;
                file.set_len(offset as u64).unwrap();
                model.change(|bytes| bytes.resize(offset, 0));
            }
            2 if !cuts && !model.current().is_empty() => {
                *map = file.map_shared(model.current().len() as u64).unwrap();
            }
            3 if !cuts => {
                if let Some(map) = map
                    && map.write(offset as u64, &data).is_ok()
                {
                    model.mapped = true;
                    model.change(|bytes| bytes[offset..offset + len].copy_from_slice(&data));
                }
            }
            4 => drop(self.open.swap_remove(slot)),
            5 => {
                let mut got = vec![0; len];
                let n = file.read_at(&mut got, offset as u64).unwrap();
                let all = model.current();
                assert_eq!(got[..n], all[offset.min(all.len())..all.len().min(offset + len)]);
            }
            _ => {
                let file: &dyn File = &**file;
                file.write_all_at(&data, offset as u64).unwrap();
                model.change(|bytes| {
                    if len > 0 {
                        bytes.resize(bytes.len().max(offset + len), 0);
                        bytes[offset..offset + len].copy_from_slice(&data);
                    }
                });
            }
        }
    }

    /// Compares the names and contents of a disk with the expected ones.
    fn same(&self, disk: &SimDisk, names: &Names, content: impl Fn(&ModelFile) -> &Vec<u8>, what: &str) {
        let seed = self.seed;
        let found = disk.file_names("/db").unwrap();
        assert_eq!(found, names.keys().cloned().collect::<Vec<_>>(), "{what}, seed {seed}");
        for (name, id) in names {
            let bytes = disk.read_file(format!("/db/{name}")).unwrap();
            assert!(bytes == *content(&self.model.files[*id]), "{what} of {name}, seed {seed}");
        }
    }

    fn check_images(&self) {
        let model = &self.model;
        let seed = self.rng.next_u64();
        self.same(&self.sim, &model.cached, ModelFile::current, "cached");
        let fork = self.sim.fork();
        self.same(&fork, &model.cached, ModelFile::current, "fork");
        assert_eq!(fork.pending_names(), self.sim.pending_names());
        let image = |data, names| self.sim.crash_image(&Image { data, names }, seed);
        let synced = self.sim.crash_image(&Image::SYNCED, seed);
        self.same(&synced, &model.durable, |file| &file.versions[0], "synced");
        self.same(
            &fork.crash_image(&Image::SYNCED, seed),
            &model.durable,
            |file| &file.versions[0],
            "fork synced",
        );
        let all = self.sim.crash_image(&Image::EVERYTHING, seed);
        self.same(&all, &model.cached, ModelFile::current, "everything");
        assert_eq!((all.pending_names(), all.pending_writes()), (0, 0));
        // Everything in an image is durable.
        self.same(
            &all.crash_image(&Image::SYNCED, 0),
            &model.cached,
            ModelFile::current,
            "everything, synced",
        );
        assert_eq!(self.sim.pending_names(), model.pending.len());
        for mask in [seed, 1, 0b101] {
            let names = model.names_after(mask);
            self.same(&image(DataFate::All, NameFate::Mask(mask)), &names, ModelFile::current, "mask");
        }
        if !self.cuts {
            self.check_sectors(&image(DataFate::Sectors { size: 512, keep: 0.5 }, NameFate::All));
            self.check_sectors(&image(DataFate::Sectors { size: 4096, keep: 0.2 }, NameFate::All));
            self.check_sectors(&image(DataFate::SizeNoData, NameFate::All));
        }
    }

    fn check_sectors(&self, image: &SimDisk) {
        for (name, id) in &self.model.cached {
            let bytes = image.read_file(format!("/db/{name}")).unwrap();
            if let Err(e) = self.model.files[*id].allows(&bytes) {
                panic!("{name}: {e}, seed {}", self.seed);
            }
        }
    }
}

fn run(seeds: std::ops::Range<u64>, cuts: bool) {
    let mut pending = 0;
    for seed in seeds {
        let mut script = Script::new(seed, cuts);
        for step in 0..150 {
            script.step();
            if step % 10 == 9 {
                script.check_images();
                pending += script.sim.pending_writes();
            }
        }
    }
    assert!(pending > 100, "nothing was ever at risk");
}

#[test]
fn images_hold_only_written_versions() {
    run(0..60, false);
}

#[test]
fn images_of_truncated_files_hold_only_written_versions() {
    run(1_000..1_060, true);
}

#[test]
fn the_same_seed_reproduces_a_run() {
    let run = |seed| {
        let mut script = Script::new(seed, false);
        (0..300).for_each(|_| script.step());
        let image = Image { data: DataFate::Sectors { size: 512, keep: 0.5 }, names: NameFate::Subset };
        let image = script.sim.crash_image(&image, seed);
        let files: Vec<_> = image.file_names("/db").unwrap();
        let bytes: Vec<_> =
            files.iter().map(|name| image.read_file(format!("/db/{name}")).unwrap()).collect();
        (script.sim.ops(), files, bytes)
    };
    assert!(run(5) == run(5));
    assert!(run(5) != run(6));
}
