//! Determines which anomalies a history shows, and which of them its level forbids.
//!
//! The search for forbidden cycles is complete: a knot under a forbidden rule is one. Of the cycles that the level allows only a
//! sample is counted, to verify that they occur.

use std::collections::BTreeMap;

use tidesdb::Isolation;

use super::graph::{Cycle, Dep, Graph, Knot, Rule, node};
use super::infer::infer;
use super::{Anomaly, End, History};

use Dep::{ItemRw, RangeRw, Wr, Ww};

/// Starts of a search for the shortest cycle of a knot.
const TRIES_MAX: usize = 64;
/// Maximum number of anti-dependencies whose cycles are classified.
const SAMPLE_MAX: usize = 100;
/// Maximum number of anomalies with an explanation.
const REPORTS_MAX: usize = 10;

/// Results for one history, or for many.
#[derive(Debug, Default)]
pub struct Findings {
    /// Transactions.
    pub transactions: u64,
    /// Committed transactions.
    pub committed: u64,
    /// Transactions that conflicted.
    pub refused: u64,
    /// Edges between transactions, except those of time.
    pub edges: u64,
    /// Cycles examined.
    pub cycles: u64,
    /// Anomalies by kind.
    pub seen: BTreeMap<Anomaly, u64>,
    /// Number of anomalies that the level forbids.
    pub forbidden: u64,
    /// Descriptions of the first forbidden anomalies.
    pub reports: Vec<String>,
}

impl Findings {
    /// Returns how often `anomaly` was found.
    pub fn count(&self, anomaly: Anomaly) -> u64 {
        self.seen.get(&anomaly).copied().unwrap_or(0)
    }

    /// Adds the results of another history of the same level.
    pub fn add(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.committed += other.committed;
        self.refused += other.refused;
        self.edges += other.edges;
        self.cycles += other.cycles;
        self.forbidden += other.forbidden;
        other.seen.into_iter().for_each(|(anomaly, n)| *self.seen.entry(anomaly).or_default() += n);
        self.reports.extend(other.reports);
        self.reports.truncate(REPORTS_MAX);
    }

    fn note(&mut self, level: Isolation, anomaly: Anomaly, text: impl FnOnce() -> String) {
        *self.seen.entry(anomaly).or_default() += 1;
        if !anomaly.is_allowed(level) {
            self.forbidden += 1;
            if self.reports.len() < REPORTS_MAX {
                self.reports.push(format!("{}: {}", anomaly.name(), text()));
            }
        }
    }
}

const ALL: &[Dep] = &[Ww, Wr, ItemRw, RangeRw];

/// The kinds of cycle, the worst first.
const KINDS: [(Anomaly, &[Dep], bool); 5] = [
    (Anomaly::G0, &[Ww], false),
    (Anomaly::G1c, &[Ww, Wr], false),
    (Anomaly::GNonadjacent, ALL, true),
    (Anomaly::G2Item, &[Ww, Wr, ItemRw], false),
    (Anomaly::G2, ALL, false),
];

/// Checks a history against its level.
pub fn check(history: &History) -> Findings {
    let inferred = infer(history);
    let graph = &inferred.graph;
    let ends = |end| history.records.iter().filter(|record| record.end == end).count() as u64;
    let mut found = Findings {
        transactions: history.records.len() as u64,
        committed: ends(End::Committed),
        refused: ends(End::Refused),
        edges: graph.edges().filter(|(_, edge)| edge.dep != Dep::Time).count() as u64,
        ..Findings::default()
    };
    for (anomaly, text) in inferred.direct {
        found.note(history.level, anomaly, || text);
    }
    if forbidden_cycles(history, graph, false, &mut found) == 0 {
        forbidden_cycles(history, graph, true, &mut found);
    }
    sample(history, graph, &mut found);
    found
}

/// Finds the cycles that the level forbids; with `time`, those that include time edges. Returns their number.
fn forbidden_cycles(history: &History, graph: &Graph, time: bool, found: &mut Findings) -> usize {
    let mut told = vec![false; graph.nodes()];
    let mut count = 0;
    for (kind, deps, apart) in KINDS.into_iter().filter(|(kind, ..)| !kind.is_allowed(history.level)) {
        let rule = Rule { deps, time, apart };
        for knot in graph.knots(rule) {
            // A worse kind of cycle among the same transactions was already reported.
            if knot.iter().any(|state| told[node(*state)]) {
                continue;
            }
            knot.iter().for_each(|state| told[node(*state)] = true);
            count += 1;
            found.cycles += 1;
            let cycle = graph.short_cycle(rule, &knot, TRIES_MAX);
            let kind = if time { Anomaly::RealTime } else { named(kind, &cycle) };
            found.note(history.level, kind, || explain(history, &cycle));
        }
    }
    count
}

/// Returns the anomaly of a cycle; a cycle with one `rw` has its own name.
fn named(kind: Anomaly, cycle: &Cycle) -> Anomaly {
    let single = cycle.iter().filter(|(_, edge)| edge.dep.is_rw()).count() == 1;
    if kind == Anomaly::GNonadjacent && single { Anomaly::GSingle } else { kind }
}

/// Counts cycles that the level allows, by classifying some anti-dependencies by the worst cycle that contains them.
fn sample(history: &History, graph: &Graph, found: &mut Findings) {
    let all = Rule { deps: ALL, time: false, apart: false };
    let knots = graph.knots(all);
    let mut of = vec![usize::MAX; 2 * graph.nodes()];
    for (n, knot) in knots.iter().enumerate() {
        knot.iter().for_each(|state| of[*state] = n);
    }
    let inside = |(from, edge): &(usize, super::graph::Edge)| {
        edge.dep.is_rw() && of[2 * from] != usize::MAX && of[2 * from] == of[2 * edge.to]
    };
    let edges: Vec<_> = graph.edges().filter(inside).collect();
    let stride = edges.len().div_ceil(SAMPLE_MAX).max(1);
    for (from, edge) in edges.into_iter().step_by(stride) {
        let Some(kind) = worst(graph, &knots[of[2 * from]], (from, edge)) else { continue };
        if kind.is_allowed(history.level) {
            found.cycles += 1;
            found.note(history.level, kind, String::new);
        }
    }
}

/// Returns the worst kind of cycle through an `rw` inside `knot`.
fn worst(graph: &Graph, knot: &Knot, (from, edge): (usize, super::graph::Edge)) -> Option<Anomaly> {
    // The states of this knot, and those of the same transactions after an `rw`.
    let both: Vec<usize> = knot.iter().flat_map(|state| [2 * node(*state), 2 * node(*state) + 1]).collect();
    let inside = graph.mask(&both);
    let back = |deps, apart| {
        let ends = (2 * edge.to + usize::from(apart), 2 * from);
        graph.way(Rule { deps, time: false, apart }, ends, &inside).is_some()
    };
    if back(&[Ww, Wr], false) {
        Some(Anomaly::GSingle)
    } else if back(ALL, true) {
        Some(Anomaly::GNonadjacent)
    } else if edge.dep == ItemRw && back(&[Ww, Wr, ItemRw], false) {
        Some(Anomaly::G2Item)
    } else {
        back(ALL, false).then_some(Anomaly::G2)
    }
}

/// Describes a cycle, without points in time.
fn explain(history: &History, cycle: &Cycle) -> String {
    let is_transaction = |n: &usize| *n < history.records.len();
    let mut text = String::new();
    for (from, edge) in cycle {
        if !is_transaction(from) {
            continue;
        }
        text += &match edge.dep {
            Dep::Time => format!("{from} -time-> "),
            dep => format!("{from} -{dep:?} of key {}-> ", edge.key),
        };
    }
    let mut members: Vec<usize> = cycle.iter().map(|(from, _)| *from).filter(is_transaction).collect();
    text += "and again;";
    members.sort_unstable();
    members.dedup();
    for n in members {
        text += &format!("\n  {n}: {:?}", history.records[n]);
    }
    text
}
