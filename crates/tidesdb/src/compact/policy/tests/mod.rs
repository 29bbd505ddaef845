//! Text scripts: a picture of a tree in, plans out. `scripts/README.md` describes the language.
//!
//! `REWRITE=1 cargo test -p tidesdb-engine policy` writes what came out into the scripts; read the difference before you keep it.

pub(super) mod model;
mod cost;
mod histories;
mod settling;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::PathBuf;

use super::{Plan, Planner, PolicySettings, Run, TableView, Tree};
use crate::types::{Comparator, TableId};
use model::{Key, What, World, key};

/// Bytes of a row of the trees that are carried out.
const ROW: u64 = 1 << 20;

#[test]
fn plans_are_those_of_the_scripts() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/compact/policy/tests/scripts");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let scripts: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    assert!(scripts.len() >= 5, "scripts are missing from {folder:?}");
    for path in scripts {
        let text = std::fs::read_to_string(&path).unwrap();
        let result = answered(&text);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, result).unwrap();
        } else {
            assert!(text == result, "{}: expected\n{text}\nand the plans are\n{result}", path.display());
        }
    }
}

/// The script with the answers that the planner gives.
fn answered(script: &str) -> String {
    let mut settings = PolicySettings::default();
    let mut out = String::new();
    for block in script.trim_end().split("\n\n") {
        let question = block.split_once("\n----").map_or(block, |(question, _)| question);
        let is_case = block.contains("\n----");
        let case = Case::parse(question, &mut settings);
        writeln!(out, "{}{question}", if out.is_empty() { "" } else { "\n" }).unwrap();
        if is_case {
            let answer = case.answer(&settings);
            writeln!(out, "----\n{answer}").unwrap();
            let tiered_runs_max = PolicySettings::default().tiered_runs_max;
            let by_default = case.answer(&PolicySettings { tiered_runs_max, ..settings });
            if by_default != answer {
                writeln!(out, "---- with as many runs as by default\n{by_default}").unwrap();
            }
        }
    }
    out
}

/// One picture.
#[derive(Default)]
struct Case {
    settles: bool,
    /// Level 1 and the runs of each deeper level.
    runs: Vec<(u8, Vec<Table>)>,
    busy: Vec<(u8, String, String)>,
    numbers: HashMap<String, u64>,
}

struct Table {
    smallest: String,
    largest: String,
    numbers: HashMap<String, u64>,
}

impl Case {
    fn parse(question: &str, settings: &mut PolicySettings) -> Self {
        let mut case = Self::default();
        for line in question.lines().filter(|line| !line.starts_with('#')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word.strip_suffix(':').map(|level| level.parse::<u8>().unwrap()) {
                Some(level) => {
                    let tables = rest.split(' ').flat_map(|text| tables(level, text));
                    case.runs.push((level, tables.collect()));
                }
                None => match word {
                    "settle" => case.settles = true,
                    "set" => rest.split(' ').for_each(|text| set(settings, text)),
                    "busy" => {
                        let (level, range) = rest.split_once(' ').unwrap();
                        let (from, to) = range.split_once('-').unwrap();
                        case.busy.push((level.parse().unwrap(), from.into(), to.into()));
                    }
                    _ => drop(case.numbers.insert(word.into(), number(rest))),
                },
            }
        }
        case
    }

    fn answer(&self, settings: &PolicySettings) -> String {
        if self.settles { self.settled(settings) } else { self.planned(settings) }
    }

    fn told(&self, name: &str, default: u64) -> u64 {
        self.numbers.get(name).copied().unwrap_or(default)
    }

    /// The plans that are due at once.
    fn planned(&self, settings: &PolicySettings) -> String {
        let order = Comparator::bytewise();
        let runs = self.runs.iter();
        let runs = runs
            .map(|(level, tables)| Run { level: *level, tables: tables.iter().map(Table::view).collect() });
        let mut tree = Tree::new(&order, runs.collect());
        let busy = self.busy.iter().map(|(level, from, to)| (*level, (from.as_bytes(), to.as_bytes())));
        tree.busy.extend(busy);
        tree.floor = self.told("floor", u64::MAX);
        tree.now = self.told("now", 0);
        tree.probes_credit = self.told("probes_credit", 0);
        tree.settles = self.told("idle", 0) != 0;
        let plans = plans(tree, settings, self.told("plans", 1) as usize);
        let lines: Vec<_> = plans.iter().map(ToString::to_string).collect();
        if lines.is_empty() { "none".into() } else { lines.join("\n") }
    }

    /// The plans that are carried out one after the other until none is due, and the tree that is left.
    fn settled(&self, settings: &PolicySettings) -> String {
        let mut world = World::new(*settings, ROW);
        world.now = self.told("now", 1);
        world.probes_credit = self.told("probes_credit", 0);
        world.is_idle = self.told("idle", 0) != 0;
        for (level, tables) in self.runs.iter().rev() {
            tables.iter().rev().for_each(|table| world.add(*level, table.view().id.0, table.rows()));
        }
        let mut lines: Vec<_> = world.settle().iter().map(ToString::to_string).collect();
        let levels = (1..=world.depth()).map(|level| (level, world.runs(level), world.bytes(level)));
        let levels = levels.filter(|(_, _, bytes)| *bytes > 0).map(|(level, runs, bytes)| {
            let tables: usize = runs.iter().map(Vec::len).sum();
            let runs =
                if level > 1 && runs.len() > 1 { format!(" in {} runs", runs.len()) } else { String::new() };
            format!("{level}: {tables}{runs}, {}M", bytes / ROW)
        });
        lines.push(format!("settled: {}", levels.collect::<Vec<_>>().join("; ")));
        lines.join("\n")
    }
}

/// Up to `want` compactions that can run at the same time, most urgent first.
fn plans(mut tree: Tree<'_>, settings: &PolicySettings, want: usize) -> Vec<Plan> {
    let mut plans = Vec::new();
    while plans.len() < want
        && let Some(plan) = Planner::new(&tree, settings).next()
    {
        let mut taken = Vec::new();
        for table in tree.runs.iter_mut().flat_map(|run| &mut run.tables) {
            if plan.inputs.iter().any(|(_, id)| *id == table.id) {
                table.taken = true;
                taken.push(*table);
            }
        }
        tree.busy.extend(tree.hull(&taken).map(|keys| (plan.target, keys)));
        plans.push(plan);
    }
    plans
}

impl Table {
    fn view(&self) -> TableView<'_> {
        let of = |name: &str, default| self.numbers.get(name).copied().unwrap_or(default);
        TableView {
            id: TableId(of("id", 0)),
            smallest: self.smallest.as_bytes(),
            largest: self.largest.as_bytes(),
            bytes: of("bytes", 0),
            entries: of("entries", of("bytes", 0) / 100),
            tombstones: of("tombstones", 0),
            max_seq: of("seq", of("id", 0)),
            expires: of("expires", 0),
            taken: of("taken", 0) != 0,
        }
    }

    /// Rows of [`ROW`] bytes, spread over the keys of the table, which are numbers of three digits.
    fn rows(&self) -> BTreeMap<Key, What> {
        let edge = |key: &str| key.parse::<u64>().expect("keys of three digits") * 1000;
        let (from, to) = (edge(&self.smallest), edge(&self.largest) + 999);
        let TableView { id, bytes, .. } = self.view();
        let last = (bytes / ROW - 1).max(1);
        // Rows between the first and the last are moved a little, so that tables have few keys in common.
        let moved = |n: u64| {
            if n.is_multiple_of(last) { 0 } else { (id.0 * 7919 + n * 104_729) % ((to - from) / last) }
        };
        let rows = (0..bytes / ROW).map(|n| (key(from + (to - from) * n / last + moved(n)), What::Put));
        rows.collect()
    }
}

/// `id[from-to]bytes,name=number,...`, or `count*bytes,...` for tables that share the keys 000 to 999.
fn tables(level: u8, text: &str) -> Vec<Table> {
    let (what, attributes) = text.split_once(',').unwrap_or((text, ""));
    let mut numbers: HashMap<String, u64> = HashMap::new();
    for attribute in attributes.split(',').filter(|a| !a.is_empty()) {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, "1"));
        numbers.insert(name.into(), number(value));
    }
    let table = |id: u64, smallest: String, largest: String, bytes: &str| {
        let mut numbers = numbers.clone();
        numbers.insert("id".into(), id);
        numbers.insert("bytes".into(), number(bytes));
        Table { smallest, largest, numbers }
    };
    if let Some((count, bytes)) = what.split_once('*') {
        let count: u64 = count.parse().unwrap();
        let key = |k: u64| 1000 * k / count;
        let one = |k| {
            let (smallest, largest) = (format!("{:03}", key(k)), format!("{:03}", key(k + 1) - 1));
            table(u64::from(level) * 1000 + k, smallest, largest, bytes)
        };
        return (0..count).map(one).collect();
    }
    let (id, rest) = what.split_once('[').unwrap();
    let (range, bytes) = rest.split_once(']').unwrap();
    let (from, to) = range.split_once('-').unwrap();
    vec![table(id.parse().unwrap(), from.into(), to.into(), bytes)]
}

fn set(settings: &mut PolicySettings, text: &str) {
    let (name, value) = text.split_once('=').unwrap();
    let value = number(value);
    match name {
        "buffer" => settings.buffer_bytes = value,
        "table" => settings.table_bytes = value,
        "trigger" => settings.l1_tables_trigger = value as usize,
        "ratio" => settings.ratio = value,
        "min_levels" => settings.min_levels = value as u8,
        "runs" => settings.tiered_runs_max = value,
        "offset" => settings.tiered_offset = value as u8,
        "density" => settings.density_permille = value as u32,
        "density_min" => settings.density_min_entries = value,
        "merge_max" => settings.merge_bytes_max = value,
        _ => panic!("no setting is called {name}"),
    }
}

fn number(text: &str) -> u64 {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().unwrap_or_else(|_| panic!("{text:?} is no number")) * factor
}
