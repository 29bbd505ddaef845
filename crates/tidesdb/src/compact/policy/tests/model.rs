//! A tree of rows without files, to which plans are applied: for tests of whole histories.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::super::{Cause, Plan, PlanKind, Planner, PolicySettings, Run, TableView, Tree};
use crate::types::{Comparator, TableId};
use crate::version::LEVEL_MAX;

/// Pseudo-random numbers; the seed must not be 0.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number less than `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 20) % n
    }

    /// One of `choices`.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Random settings for tables of some tens of rows of [`ENTRY_BYTES`].
pub(crate) fn settings(dice: &mut Dice) -> PolicySettings {
    PolicySettings {
        buffer_bytes: ENTRY_BYTES * (1 + dice.below(20)),
        table_bytes: ENTRY_BYTES * (1 + dice.below(20)),
        l1_tables_trigger: 1 + dice.below(4) as usize,
        ratio: 1 + dice.below(4),
        min_levels: dice.below(8) as u8,
        tiered_offset: dice.below(6) as u8,
        tiered_runs_max: dice.one_of(&[1, 2, 3, 5, 8, PolicySettings::default().tiered_runs_max]),
        density_permille: dice.one_of(&[0, 300, 500]),
        density_min_entries: 1 + dice.below(10),
        ..PolicySettings::default()
    }
}

/// Bytes of a row in random histories.
pub(crate) const ENTRY_BYTES: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum What {
    Put,
    Expiring(u64),
    Delete,
}

impl What {
    fn is_dead(self, now: u64) -> bool {
        match self {
            Self::Put => false,
            Self::Expiring(at) => at <= now,
            Self::Delete => true,
        }
    }
}

pub(crate) type Key = [u8; 6];
/// A key, its sequence number and its value.
pub(crate) type Entry = (Key, u64, What);

/// The key of row `n`: six digits.
pub(crate) fn key(n: u64) -> Key {
    let mut key = [b'0'; 6];
    key.copy_from_slice(format!("{n:06}").as_bytes());
    key
}

/// A table. It has at least one entry.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) level: u8,
    /// As in the manifest.
    generation: u32,
    pub(crate) entries: Vec<Entry>,
    taken: bool,
}

impl File {
    fn max_seq(&self) -> u64 {
        self.entries.iter().map(|e| e.1).max().unwrap()
    }

    fn range(&self) -> (&Key, &Key) {
        (&self.entries[0].0, &self.entries[self.entries.len() - 1].0)
    }

    fn expires(&self) -> u64 {
        let last = self.entries.iter().try_fold(0, |most, e| match e.2 {
            What::Put => None,
            What::Expiring(at) => Some(most.max(at)),
            What::Delete => Some(most),
        });
        last.unwrap_or(0)
    }

    fn view(&self, id: u64, entry_bytes: u64) -> TableView<'_> {
        let (smallest, largest) = self.range();
        TableView {
            id: TableId(id),
            smallest,
            largest,
            bytes: self.entries.len() as u64 * entry_bytes,
            entries: self.entries.len() as u64,
            tombstones: self.entries.iter().filter(|e| e.2 == What::Delete).count() as u64,
            max_seq: self.max_seq(),
            expires: self.expires(),
            taken: self.taken,
        }
    }
}

/// A plan that runs.
pub(crate) struct Job {
    pub(crate) plan: Plan,
    hull: (Key, Key),
    now: u64,
}

/// A tree, what it must hold, and the jobs that run on it.
pub(crate) struct World {
    pub(crate) settings: PolicySettings,
    pub(crate) jobs: Vec<Job>,
    pub(crate) now: u64,
    pub(crate) is_idle: bool,
    pub(crate) probes_credit: u64,
    entry_bytes: u64,
    files: BTreeMap<u64, File>,
    next: u64,
    seq: u64,
    /// The newest version of each key.
    truth: BTreeMap<Key, (u64, What)>,
}

impl World {
    /// An empty tree.
    pub(crate) fn new(settings: PolicySettings, entry_bytes: u64) -> Self {
        Self {
            settings,
            jobs: Vec::new(),
            now: 1,
            is_idle: false,
            probes_credit: 0,
            entry_bytes,
            files: BTreeMap::new(),
            next: 1,
            seq: 0,
            truth: BTreeMap::new(),
        }
    }

    /// Adds a table whose rows are newer than all others, as number `id`.
    pub(crate) fn add(&mut self, level: u8, id: u64, rows: BTreeMap<Key, What>) {
        let mut entries = Vec::new();
        for (key, what) in rows {
            self.seq += 1;
            entries.push((key, self.seq, what));
            self.truth.insert(key, (self.seq, what));
        }
        let range = (&entries[0].0, &entries[entries.len() - 1].0);
        let generation = self.next_generation(level, range);
        let file = File { level, generation, entries: entries.clone(), taken: false };
        assert!(self.files.insert(id, file).is_none(), "table {id} twice");
        self.next = self.next.max(id + 1);
    }

    /// Adds a table of random rows of the first `keys` keys to level 1.
    pub(crate) fn flush(&mut self, dice: &mut Dice, keys: u64) {
        let (from, width) = match dice.below(3) {
            0 => (0, keys),
            _ => (dice.below(keys), 1 + dice.below(keys / 4)),
        };
        let deletes = dice.one_of(&[0, 10, 50, 95]);
        let expiring = dice.one_of(&[0, 0, 100]);
        let rows = (0..1 + dice.below(40)).map(|_| {
            let n = (from + dice.below(width)).min(keys - 1);
            let what = match dice.below(100) {
                roll if roll < deletes => What::Delete,
                _ if dice.below(100) < expiring => What::Expiring(self.now + 1 + dice.below(20)),
                _ => What::Put,
            };
            (key(n), what)
        });
        let rows = rows.collect();
        self.add(1, self.next, rows);
    }

    /// The generation above those of all tables in `level` that overlap the range; 0 if there is none.
    fn next_generation(&self, level: u8, range: (&Key, &Key)) -> u32 {
        let met = self.files.values().filter(|f| f.level == level && overlap(f.range(), range));
        if level == 1 { 0 } else { met.map(|f| f.generation + 1).max().unwrap_or(0) }
    }

    /// The runs of `level` as in a [`Tree`], newest first.
    pub(crate) fn runs(&self, level: u8) -> Vec<Vec<(u64, &File)>> {
        let mut files: Vec<_> =
            self.files.iter().filter(|(_, f)| f.level == level).map(|(id, f)| (*id, f)).collect();
        if level == 1 {
            files.sort_by_key(|(id, f)| Reverse((f.max_seq(), *id)));
            return vec![files];
        }
        files.sort_by_key(|(_, f)| f.generation);
        let mut runs: Vec<Vec<(u64, &File)>> = Vec::new(); // the oldest first
        for (id, file) in files {
            let meets = |run: &Vec<(u64, &File)>| run.iter().any(|(_, f)| overlap(f.range(), file.range()));
            let at = runs.iter().rposition(meets).map_or(0, |below| below + 1);
            runs.resize_with(runs.len().max(at + 1), Vec::new);
            runs[at].push((id, file));
        }
        runs.iter_mut().for_each(|run| run.sort_by_key(|(_, f)| *f.range().0));
        runs.reverse();
        runs
    }

    /// A number that no table has had.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    pub(crate) fn depth(&self) -> u8 {
        self.files.values().map(|f| f.level).max().unwrap_or(0)
    }

    /// The tree as the planner sees it.
    fn tree<'a>(&'a self, order: &'a Comparator) -> Tree<'a> {
        let bytes = self.entry_bytes;
        let runs =
            (1..=self.depth()).flat_map(|level| self.runs(level).into_iter().map(move |run| (level, run)));
        let run = |(level, run): (u8, Vec<(u64, &'a File)>)| Run {
            level,
            tables: run.into_iter().map(|(id, file)| file.view(id, bytes)).collect(),
        };
        let mut tree = Tree::new(order, runs.map(run).collect());
        tree.now = self.now;
        tree.settles = self.is_idle;
        tree.probes_credit = self.probes_credit;
        tree.busy = self.jobs.iter().map(|j| (j.plan.target, (&j.hull.0[..], &j.hull.1[..]))).collect();
        tree
    }

    /// Begins the job that is planned. Returns false if there is none.
    pub(crate) fn begin(&mut self) -> bool {
        let order = Comparator::bytewise();
        let Some(plan) = Planner::new(&self.tree(&order), &self.settings).next() else { return false };
        for (level, id) in &plan.inputs {
            let file = self.files.get_mut(&id.0).unwrap();
            assert!(!file.taken && file.level == *level, "{plan}");
            file.taken = true;
        }
        let files: Vec<_> = plan.inputs.iter().map(|(_, id)| &self.files[&id.0]).collect();
        let smallest = *files.iter().map(|f| f.range().0).min().unwrap();
        let largest = *files.iter().map(|f| f.range().1).max().unwrap();
        self.jobs.push(Job { plan, hull: (smallest, largest), now: self.now });
        true
    }

    /// Ends the job at `at`, which failed.
    pub(crate) fn fail(&mut self, at: usize) {
        for (_, id) in self.jobs.swap_remove(at).plan.inputs {
            self.files.get_mut(&id.0).unwrap().taken = false;
        }
    }

    /// Carries out the job at `at`.
    pub(crate) fn end(&mut self, at: usize) {
        let Job { plan, now, hull } = self.jobs.swap_remove(at);
        let inputs: Vec<File> = plan.inputs.iter().map(|(_, id)| self.files.remove(&id.0).unwrap()).collect();
        let above = self.next_generation(plan.target, (&hull.0, &hull.1));
        match plan.kind {
            PlanKind::Drop => {}
            PlanKind::Move => {
                for ((_, id), file) in plan.inputs.iter().zip(inputs) {
                    let generation = above + file.generation;
                    self.files.insert(id.0, File { level: plan.target, generation, taken: false, ..file });
                }
            }
            _ => {
                for entries in self.merged(&plan, &inputs, now) {
                    let file = File { level: plan.target, generation: above, entries, taken: false };
                    self.files.insert(self.next, file);
                    self.next += 1;
                }
            }
        }
        self.check(&plan);
    }

    /// The rows of the tables into which `plan` merges `inputs`.
    fn merged(&self, plan: &Plan, inputs: &[File], now: u64) -> Vec<Vec<Entry>> {
        let mut merged: BTreeMap<Key, (u64, What)> = BTreeMap::new();
        for (key, seq, what) in inputs.iter().flat_map(|f| &f.entries) {
            let newest = merged.entry(*key).or_insert((*seq, *what));
            if *seq > newest.0 {
                *newest = (*seq, *what);
            }
        }
        for what in merged.values_mut().filter(|what| what.1.is_dead(now)) {
            what.1 = What::Delete;
        }
        if plan.bottom {
            merged.retain(|_, what| what.1 != What::Delete);
        }
        let (mut cuts, mut guards) = (&plan.cuts[..], &plan.guards[..]);
        let most = (self.settings.table_bytes / self.entry_bytes).max(1) as usize;
        let (mut out, mut outs) = (Vec::new(), Vec::new());
        for (key, (seq, what)) in merged {
            let passed = |keys: &[Vec<u8>]| keys.iter().take_while(|k| k[..] <= key[..]).count();
            let (c, g) = (passed(cuts), passed(guards));
            (cuts, guards) = (&cuts[c..], &guards[g..]);
            if !out.is_empty() && (c > 0 || g > 1 || out.len() >= most) {
                outs.push(std::mem::take(&mut out));
            }
            out.push((key, seq, what));
        }
        outs.extend((!out.is_empty()).then_some(out));
        outs
    }

    /// Checks the tree after `plan`: tables of a generation are disjoint, newer data is above older data, and every key has its answer.
    fn check(&self, plan: &Plan) {
        for (a, b) in self
            .files
            .values()
            .enumerate()
            .flat_map(|(n, a)| self.files.values().skip(n + 1).map(move |b| (a, b)))
        {
            let same = a.level > 1 && (a.level, a.generation) == (b.level, b.generation);
            assert!(!same || !overlap(a.range(), b.range()), "level {} overlaps after {plan}", a.level);
        }
        let mut found: BTreeMap<Key, (u64, What)> = BTreeMap::new();
        for level in 1..=self.depth() {
            for (_, file) in self.runs(level).into_iter().flatten() {
                for (key, seq, what) in &file.entries {
                    let first = found.entry(*key).or_insert((*seq, *what));
                    assert!(first.0 >= *seq, "older data of {key:?} above newer after {plan}");
                }
            }
        }
        for (key, (seq, what)) in &self.truth {
            let live = found.get(key).filter(|f| !f.1.is_dead(self.now));
            match what.is_dead(self.now) {
                true => assert!(live.is_none(), "{key:?} came back after {plan}"),
                false => assert!(live.is_some_and(|f| f.0 == *seq), "{key:?} is lost after {plan}"),
            }
        }
    }

    /// Carries out one plan after the other until none is due, and returns them. It ends, because of a sum in which each row counts the
    /// levels below it: a plan that moves rows down or drops some lowers it. Only a plan that removes the largest level raises it,
    /// and no level is removed twice: it goes when all data is at most half of what makes it come, and data only gets less.
    pub(crate) fn settle(&mut self) -> Vec<Plan> {
        assert!(self.jobs.is_empty(), "jobs run");
        let (mut plans, mut removed) = (Vec::new(), BTreeSet::new());
        let mut height = self.height();
        while self.begin() {
            let plan = self.jobs[0].plan.clone();
            let deepest = plan.inputs.iter().map(|(level, _)| *level).max().unwrap();
            self.end(0);
            let before = std::mem::replace(&mut height, self.height());
            if plan.kind != PlanKind::Drop && deepest > plan.target {
                assert!(plan.cause == Cause::Levels && removed.insert(deepest), "{plan} after {plans:?}");
            } else {
                assert!(height < before, "nothing came of {plan}: {:?}", self.settings);
            }
            plans.push(plan);
        }
        plans
    }

    /// Sum of the levels below each row.
    fn height(&self) -> u64 {
        self.files.values().map(|f| f.entries.len() as u64 * u64::from(LEVEL_MAX + 1 - f.level)).sum()
    }

    /// Bytes of `level`.
    pub(crate) fn bytes(&self, level: u8) -> u64 {
        let files = self.files.values().filter(|f| f.level == level);
        files.map(|f| f.entries.len() as u64 * self.entry_bytes).sum()
    }

    /// What [`Planner::debt_bytes`] says of each level.
    pub(crate) fn debts(&self) -> Vec<u64> {
        let order = Comparator::bytewise();
        let tree = self.tree(&order);
        let planner = Planner::new(&tree, &self.settings);
        (1..=planner.shape().largest).map(|level| planner.debt_bytes(level)).collect()
    }
}

fn overlap(a: (&Key, &Key), b: (&Key, &Key)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}
