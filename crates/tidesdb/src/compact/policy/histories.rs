//! Random histories: the jobs that the default policy plans run beside each other and end or fail in any order. Every key keeps
//! its answer, and without new data the work ends. `ROUNDS=20000 cargo test -p tidesdb-engine jobs_beside` looks longer.

use std::collections::BTreeMap;

use super::{Claim, CompactionPolicy, Plan, PlanKind, PolicySettings, Spooky, TableView, Tree};
use crate::types::{Comparator, TableId};

const ENTRY_BYTES: u64 = 100;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 20) % n
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Put,
    Expiring(u32),
    Delete,
}

impl What {
    fn is_dead(self, now: u32) -> bool {
        match self {
            Self::Put => false,
            Self::Expiring(at) => at <= now,
            Self::Delete => true,
        }
    }
}

type Key = [u8; 3];
type Entry = (Key, u64, What);

#[derive(Clone, Debug)]
struct File {
    level: u8,
    entries: Vec<Entry>,
    taken: bool,
}

impl File {
    fn max_seq(&self) -> u64 {
        self.entries.iter().map(|e| e.1).max().unwrap()
    }
    fn range(&self) -> (&Key, &Key) {
        (&self.entries[0].0, &self.entries[self.entries.len() - 1].0)
    }
}

struct Job {
    plan: Plan,
    hull: (Key, Key),
    now: u32,
}

struct World {
    files: BTreeMap<u64, File>,
    next: u64,
    seq: u64,
    now: u32,
    truth: BTreeMap<Key, (u64, What)>,
    jobs: Vec<Job>,
    is_idle: bool,
    settings: PolicySettings,
}

impl World {
    fn level(&self, level: u8) -> Vec<(u64, &File)> {
        let mut files: Vec<_> =
            self.files.iter().filter(|(_, f)| f.level == level).map(|(id, f)| (*id, f)).collect();
        match level {
            1 => files.sort_by_key(|(id, f)| std::cmp::Reverse((f.max_seq(), *id))),
            _ => files.sort_by_key(|(_, f)| *f.range().0),
        }
        files
    }

    fn depth(&self) -> u8 {
        self.files.values().map(|f| f.level).max().unwrap_or(0)
    }

    fn begin(&mut self) -> bool {
        let order = Comparator::bytewise();
        let plan = {
            let view = |(id, f): (u64, &'_ File)| -> (u64, Key, Key, u64, u64, u64, u32, bool) {
                let dead = f.entries.iter().filter(|e| e.2 == What::Delete).count() as u64;
                let expires = f.entries.iter().try_fold(0, |most, e| match e.2 {
                    What::Put => None,
                    What::Expiring(at) => Some(most.max(at)),
                    What::Delete => Some(most),
                });
                (
                    id,
                    *f.range().0,
                    *f.range().1,
                    f.entries.len() as u64,
                    dead,
                    f.max_seq(),
                    expires.unwrap_or(0),
                    f.taken,
                )
            };
            let facts: Vec<Vec<_>> =
                (1..=self.depth()).map(|l| self.level(l).into_iter().map(view).collect()).collect();
            let levels = facts
                .iter()
                .map(|level| {
                    level
                        .iter()
                        .map(|t| TableView {
                            id: TableId(t.0),
                            smallest: &t.1,
                            largest: &t.2,
                            bytes: t.3 * ENTRY_BYTES,
                            entries: t.3,
                            tombstones: t.4,
                            max_seq: t.5,
                            expires: t.6,
                            taken: t.7,
                        })
                        .collect()
                })
                .collect();
            let mut tree = Tree::new(&order, levels);
            tree.now = self.now;
            tree.settles = self.is_idle;
            tree.claims = self
                .jobs
                .iter()
                .map(|j| Claim { level: j.plan.target, smallest: &j.hull.0, largest: &j.hull.1 })
                .collect();
            Spooky.pick(&tree, &self.settings)
        };
        let Some(plan) = plan else { return false };
        for (level, id) in &plan.inputs {
            let file = self.files.get_mut(&id.0).unwrap();
            assert!(!file.taken && file.level == *level, "{plan}");
            file.taken = true;
        }
        let files: Vec<_> = plan.inputs.iter().map(|(_, id)| &self.files[&id.0]).collect();
        let hull = (
            *files.iter().map(|f| f.range().0).min().unwrap(),
            *files.iter().map(|f| f.range().1).max().unwrap(),
        );
        self.jobs.push(Job { plan, hull, now: self.now });
        true
    }

    fn end(&mut self, at: usize) {
        let Job { plan, now, .. } = self.jobs.swap_remove(at);
        let inputs: Vec<File> = plan.inputs.iter().map(|(_, id)| self.files.remove(&id.0).unwrap()).collect();
        match plan.kind {
            PlanKind::Drop => {}
            PlanKind::Move => {
                for ((_, id), file) in plan.inputs.iter().zip(inputs) {
                    self.files.insert(id.0, File { level: plan.target, taken: false, ..file });
                }
            }
            _ => {
                let mut merged: BTreeMap<Key, (u64, What)> = BTreeMap::new();
                for (key, seq, what) in inputs.iter().flat_map(|f| &f.entries) {
                    let newest = merged.entry(*key).or_insert((*seq, *what));
                    if *seq > newest.0 {
                        *newest = (*seq, *what);
                    }
                }
                for what in merged.values_mut() {
                    if what.1.is_dead(now) {
                        what.1 = What::Delete;
                    }
                }
                if plan.bottom {
                    merged.retain(|_, what| what.1 != What::Delete);
                }
                let (mut cuts, mut guards) = (&plan.cuts[..], &plan.guards[..]);
                let most = (self.settings.table_bytes / ENTRY_BYTES).max(1) as usize;
                let mut out: Vec<Entry> = Vec::new();
                let mut outs = Vec::new();
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
                for entries in outs {
                    self.files.insert(self.next, File { level: plan.target, entries, taken: false });
                    self.next += 1;
                }
            }
        }
        self.check(&plan);
    }

    fn check(&self, plan: &Plan) {
        for level in 2..=self.depth() {
            for pair in self.level(level).windows(2) {
                assert!(pair[0].1.range().1 < pair[1].1.range().0, "level {level} overlaps after {plan}");
            }
        }
        let mut found: BTreeMap<Key, (u64, What)> = BTreeMap::new();
        for level in 1..=self.depth() {
            for (_, file) in self.level(level) {
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

    fn flush(&mut self, dice: &mut Dice, keys: u64) {
        let mut entries: BTreeMap<Key, (u64, What)> = BTreeMap::new();
        let (from, width) = match dice.below(3) {
            0 => (0, keys),
            _ => (dice.below(keys), 1 + dice.below(keys / 4)),
        };
        let deletes = [0, 10, 50, 95][dice.below(4) as usize];
        let expiring = [0, 0, 100][dice.below(3) as usize];
        for _ in 0..1 + dice.below(40) {
            let n = (from + dice.below(width)).min(keys - 1);
            let key = [b'0' + (n / 100) as u8, b'0' + (n / 10 % 10) as u8, b'0' + (n % 10) as u8];
            self.seq += 1;
            let what = match dice.below(100) {
                roll if roll < deletes => What::Delete,
                _ if dice.below(100) < expiring => What::Expiring(self.now + 1 + dice.below(20) as u32),
                _ => What::Put,
            };
            entries.insert(key, (self.seq, what));
        }
        self.truth.extend(entries.iter().map(|(k, v)| (*k, *v)));
        let entries = entries.into_iter().map(|(k, (seq, what))| (k, seq, what)).collect();
        self.files.insert(self.next, File { level: 1, entries, taken: false });
        self.next += 1;
    }
}

fn settings(dice: &mut Dice) -> PolicySettings {
    PolicySettings {
        buffer_bytes: 100 * (1 + dice.below(20)),
        table_bytes: 100 * (1 + dice.below(20)),
        l1_tables_trigger: 1 + dice.below(4) as usize,
        ratio: 1 + dice.below(4),
        min_levels: dice.below(8) as u8,
        dividing_offset: dice.below(4) as u8,
        density_permille: [0, 300, 500][dice.below(3) as usize],
        density_min_entries: 1 + dice.below(10),
        ..PolicySettings::default()
    }
}

#[test]
fn jobs_beside_each_other_keep_every_answer() {
    let rounds = std::env::var("ROUNDS").map_or(60, |n| n.parse().unwrap());
    for seed in 1..=rounds {
        let mut dice = Dice(seed * 0x9E37_79B9 + 1);
        let keys = [30, 200, 900][dice.below(3) as usize];
        let mut world = World {
            files: BTreeMap::new(),
            next: 1,
            seq: 0,
            now: 1,
            truth: BTreeMap::new(),
            jobs: Vec::new(),
            is_idle: false,
            settings: settings(&mut dice),
        };
        for _ in 0..300 {
            world.is_idle = dice.below(10) == 0;
            match dice.below(10) {
                0..4 => world.flush(&mut dice, keys),
                4..7 if world.jobs.len() < 4 => drop(world.begin()),
                9 if dice.below(4) == 0 => world.now += dice.below(10) as u32,
                9 if dice.below(16) == 0 => world.settings = settings(&mut dice),
                _ if !world.jobs.is_empty() => {
                    let at = dice.below(world.jobs.len() as u64) as usize;
                    if dice.below(10) == 0 {
                        // It fails.
                        for (_, id) in world.jobs.swap_remove(at).plan.inputs {
                            world.files.get_mut(&id.0).unwrap().taken = false;
                        }
                    } else {
                        world.end(at);
                    }
                }
                _ => {}
            }
        }
        while !world.jobs.is_empty() {
            world.end(0);
        }
        world.is_idle = seed % 2 == 0;
        for n in 0.. {
            if !world.begin() {
                break;
            }
            assert!(
                n < 2000,
                "seed {seed}: compactions never end: {:?} {}",
                world.settings,
                world.jobs[0].plan
            );
            world.end(0);
        }
    }
}
