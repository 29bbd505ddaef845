//! Infers from the clients' observations who wrote which version, the anomalies of single reads, and the edges between
//! transactions.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::graph::{Dep, Edge, Graph};
use super::{Anomaly, End, History, List, Op, Record};
use crate::isolation::Key;

/// Fate of an appended element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// A committed version ends with this element.
    Installed,
    /// Its transaction committed, with another element appended after it.
    Intermediate,
    /// It was never committed.
    Undone,
}

/// The transaction that appended an element, and the element's position.
#[derive(Clone, Copy, Debug)]
struct Written {
    by: usize,
    key: Key,
    after: Option<u64>,
    fate: Fate,
}

/// A version: the key and the last element of its list; `None` for the state before the first version.
type Version = (Key, Option<u64>);

/// A history with its edges.
pub(super) struct Inferred {
    /// The dependency graph: transactions, then points in time.
    pub(super) graph: Graph,
    /// Anomalies of single reads and keys.
    pub(super) direct: Vec<(Anomaly, String)>,
}

/// Finds everything except cycles.
pub(super) fn infer(history: &History) -> Inferred {
    let mut this = Inference::new(history);
    history.records.iter().enumerate().for_each(|(n, record)| this.writes(n, record));
    this.versions();
    for (n, record) in history.records.iter().enumerate() {
        this.reads(n, record);
    }
    this.time();
    Inferred { graph: this.graph, direct: this.direct }
}

struct Inference<'a> {
    history: &'a History,
    graph: Graph,
    direct: Vec<(Anomaly, String)>,
    written: HashMap<u64, Written>,
    /// Committed versions: key, element that it was appended to, last element.
    installed: Vec<(Key, Option<u64>, u64)>,
    /// The versions that followed a version, directly or not.
    later: HashMap<Version, Vec<u64>>,
    /// Elements of the final lists.
    lasting: HashSet<u64>,
    /// Versions that were read but are no prefix of the final list; each is reported once.
    forked: HashSet<u64>,
}

/// A transaction's own appends so far, by key: previous element and new element.
type Own = BTreeMap<Key, Vec<(Option<u64>, u64)>>;

/// Updates a transaction's own writes by one operation.
fn step(own: &mut Own, op: &Op) {
    match op {
        Op::Append { key, after, element } => own.entry(*key).or_default().push((*after, *element)),
        Op::Undo { key } => {
            let appends = own.entry(*key).or_default();
            appends.pop();
            if appends.is_empty() {
                own.remove(key);
            }
        }
        Op::Read { .. } | Op::Scan { .. } => {}
    }
}

impl<'a> Inference<'a> {
    fn new(history: &'a History) -> Self {
        Self {
            history,
            graph: Graph::new(history.records.len()),
            direct: Vec::new(),
            written: HashMap::new(),
            installed: Vec::new(),
            later: HashMap::new(),
            lasting: history.finals.values().flatten().copied().collect(),
            forked: HashSet::new(),
        }
    }

    fn wrong(&mut self, what: Anomaly, text: String) {
        self.direct.push((what, text));
    }

    fn edge(&mut self, from: usize, (to, dep, key): (usize, Dep, Key)) {
        self.graph.add(from, Edge { to, dep, key });
    }

    /// Records the appends of transaction `n`.
    fn writes(&mut self, n: usize, record: &Record) {
        let mut own = Own::new();
        for op in &record.ops {
            if let Op::Append { key, after, element } = op {
                let written = Written { by: n, key: *key, after: *after, fate: Fate::Undone };
                self.written.insert(*element, written);
            }
            step(&mut own, op);
        }
        if record.end != End::Committed {
            return;
        }
        for (key, appends) in own {
            let last = appends.len() - 1;
            for (i, (_, element)) in appends.iter().enumerate() {
                let fate = if i == last { Fate::Installed } else { Fate::Intermediate };
                self.written.entry(*element).and_modify(|written| written.fate = fate);
            }
            self.installed.push((key, appends[0].0, appends[last].1));
        }
    }

    /// Determines the order of versions and adds the `ww` edges.
    fn versions(&mut self) {
        for (key, after, element) in &self.installed {
            self.later.entry((*key, *after)).or_default().push(*element);
        }
        for (key, after, element) in self.installed.clone() {
            let writer = self.written[&element].by;
            if let Some(before) = after.and_then(|after| self.written.get(&after)).copied()
                && before.fate != Fate::Undone
            {
                self.edge(before.by, (writer, Dep::Ww, key));
            }
            if !self.lasting.contains(&element) {
                self.wrong(
                    Anomaly::LostUpdate,
                    format!("{element} of transaction {writer} is not in key {key}"),
                );
            }
            let newest = self.history.finals.get(&key).and_then(|list| list.last()).copied();
            // A version without a direct successor was overwritten by the newest version at the latest.
            if let Some(newest) = newest.filter(|newest| *newest != element)
                && !self.later.contains_key(&(key, Some(element)))
                && let Some(by) = self.written.get(&newest).map(|written| written.by)
            {
                self.later.entry((key, Some(element))).or_default().push(newest);
                self.edge(writer, (by, Dep::Ww, key));
            }
        }
    }

    fn reads(&mut self, n: usize, record: &Record) {
        let mut own = Own::new();
        for op in &record.ops {
            match op {
                Op::Read { key, list } => self.read(n, (*key, list, Dep::ItemRw), &own),
                Op::Scan { low, high, found } => self.walk(n, (*low, *high, found), &own),
                Op::Append { .. } | Op::Undo { .. } => {}
            }
            step(&mut own, op);
        }
    }

    fn walk(&mut self, n: usize, (low, high, found): (Key, Key, &[(Key, List)]), own: &Own) {
        let ordered = found.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ordered || found.iter().any(|(key, list)| *key < low || *key >= high || list.is_empty()) {
            self.wrong(
                Anomaly::Unwritten,
                format!("transaction {n} scanned {low}..{high} and found {found:?}"),
            );
        }
        let lists: BTreeMap<Key, &List> = found.iter().map(|(key, list)| (*key, list)).collect();
        for key in low..high {
            match lists.get(&key) {
                Some(list) => self.read(n, (key, list, Dep::ItemRw), own),
                None => self.read(n, (key, &[], Dep::RangeRw), own),
            }
        }
    }

    /// Checks a read of a key by transaction `n`; `rw` is the kind of edge to a transaction that overwrites the key.
    fn read(&mut self, n: usize, (key, list, rw): (Key, &[u64], Dep), own: &Own) {
        let Some(appends) = own.get(&key) else {
            if self.is_sound(n, key, list) {
                self.read_edges(n, (key, list, rw));
            }
            return;
        };
        let expected = appends.iter().map(|(_, element)| element);
        let base = list.len().saturating_sub(appends.len());
        let (before, tail) = list.split_at(base);
        if !expected.eq(tail) || before.last().copied() != appends[0].0 {
            self.wrong(
                Anomaly::Internal,
                format!("transaction {n} appended {appends:?} to key {key} and read {list:?}"),
            );
        }
    }

    /// Checks that a list that was read was written and may be visible. Returns true if edges can be derived from it.
    fn is_sound(&mut self, n: usize, key: Key, list: &[u64]) -> bool {
        let mut before = None;
        for element in list {
            let Some(written) =
                self.written.get(element).copied().filter(|w| w.key == key && w.after == before)
            else {
                self.wrong(unwritten(list), format!("transaction {n} read {list:?} of key {key}"));
                return false;
            };
            if written.by == n {
                let text = format!(
                    "transaction {n} read {element} of key {key}, which is not, or no longer, its own append"
                );
                self.wrong(Anomaly::Internal, text);
                return false;
            }
            if written.fate == Fate::Undone {
                let text = format!(
                    "transaction {n} read {element} of key {key}: transaction {} undid it",
                    written.by
                );
                self.wrong(Anomaly::G1a, text);
            }
            before = Some(*element);
        }
        let Some(last) = before else { return true };
        if self.written[&last].fate == Fate::Intermediate {
            let text =
                format!("transaction {n} read {list:?} of key {key}, a version that its writer overwrote");
            self.wrong(Anomaly::G1b, text);
        }
        if self.written[&last].fate == Fate::Installed
            && !self.lasting.contains(&last)
            && self.forked.insert(last)
        {
            let text =
                format!("transaction {n} read {list:?} of key {key}, which is no prefix of the final list");
            self.wrong(Anomaly::IncompatibleOrder, text);
        }
        true
    }

    fn read_edges(&mut self, n: usize, (key, list, rw): (Key, &[u64], Dep)) {
        let last = list.last().copied();
        if let Some(written) = last.map(|last| self.written[&last])
            && written.fate != Fate::Undone
        {
            self.edge(written.by, (n, Dep::Wr, key));
        }
        for next in self.later.get(&(key, last)).cloned().unwrap_or_default() {
            let writer = self.written[&next].by;
            self.edge(n, (writer, rw, key));
            let (reader, earlier) = (&self.history.records[n], &self.history.records[writer]);
            if earlier.ended < reader.begun {
                let text = format!(
                    "transaction {n} read {list:?} of key {key}: {next} had been committed before the transaction began"
                );
                self.wrong(Anomaly::RealTime, text);
            }
        }
    }

    /// Adds edges from each transaction to those that began after its end. The edges pass through time nodes: there is
    /// one for each series of ends without a beginning between them, so the number of edges stays linear.
    fn time(&mut self) {
        let mut events: Vec<(u64, bool, usize)> = Vec::new();
        for (n, record) in self.history.records.iter().enumerate() {
            events.extend([(record.begun, false, n), (record.ended, true, n)]);
        }
        events.sort_unstable();
        let (mut past, mut present) = (None, None);
        for (_, is_end, n) in events {
            if is_end {
                let moment = *present.get_or_insert_with(|| self.graph.add_node());
                self.edge(n, (moment, Dep::Time, 0));
                continue;
            }
            if let Some(moment) = present.take() {
                if let Some(past) = past {
                    self.edge(past, (moment, Dep::Time, 0));
                }
                past = Some(moment);
            }
            if let Some(past) = past {
                self.edge(past, (n, Dep::Time, 0));
            }
        }
    }
}

/// Classifies a list that was never written.
fn unwritten(list: &[u64]) -> Anomaly {
    let mut seen = HashSet::new();
    if list.iter().all(|element| seen.insert(element)) { Anomaly::Unwritten } else { Anomaly::Duplicate }
}
