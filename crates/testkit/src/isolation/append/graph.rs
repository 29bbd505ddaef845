//! Dependency graph: transactions and the edges between them; strongly connected components ("knots", by Tarjan 1972,
//! without recursion); and a short cycle of a knot for people to read.
//!
//! A search follows a [`Rule`]. To exclude cycles with two successive `rw` edges, it visits states instead of
//! transactions. A transaction reached by an `rw` edge is a different state from the same transaction reached by
//! another edge, and no `rw` edge leaves the former.

use std::collections::{HashMap, VecDeque};

use crate::isolation::Key;

/// Reason why one transaction is ordered before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dep {
    /// It wrote the previous version.
    Ww,
    /// It wrote the version that the other read.
    Wr,
    /// It read, by key or in a scan, the version that the other overwrote.
    ItemRw,
    /// It scanned over an absent key that the other wrote.
    RangeRw,
    /// It ended before the other began.
    Time,
}

impl Dep {
    pub(super) fn is_rw(self) -> bool {
        matches!(self, Self::ItemRw | Self::RangeRw)
    }
}

/// An edge to another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) dep: Dep,
    pub(super) key: Key,
}

/// Edges that a search follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// Kinds of edges to follow.
    pub(super) deps: &'static [Dep],
    /// Whether to follow `Time` edges, too.
    pub(super) time: bool,
    /// Whether to exclude two successive `rw` edges.
    pub(super) apart: bool,
}

/// Twice the transaction's number, plus 1 if an `rw` edge led to it and the rule has `apart`.
type State = usize;

/// A path from a transaction back to itself; each step is the node where it starts and its edge.
pub(super) type Cycle = Vec<(usize, Edge)>;

/// A strongly connected component of at least two states.
pub(super) type Knot = Vec<State>;

/// Transactions, followed by nodes that stand for points in time.
#[derive(Debug, Default)]
pub(super) struct Graph {
    out: Vec<Vec<Edge>>,
}

/// Returns the node of a state.
pub(super) fn node(state: State) -> usize {
    state / 2
}

impl Graph {
    pub(super) fn new(nodes: usize) -> Self {
        Self { out: vec![Vec::new(); nodes] }
    }

    pub(super) fn add_node(&mut self) -> usize {
        self.out.push(Vec::new());
        self.out.len() - 1
    }

    /// Adds an edge unless it exists already or leads to its own start.
    pub(super) fn add(&mut self, from: usize, edge: Edge) {
        if from != edge.to && !self.out[from].contains(&edge) {
            self.out[from].push(edge);
        }
    }

    /// Returns the number of nodes: transactions and points in time.
    pub(super) fn nodes(&self) -> usize {
        self.out.len()
    }

    /// Returns every edge with its start.
    pub(super) fn edges(&self) -> impl Iterator<Item = (usize, Edge)> + '_ {
        self.out.iter().enumerate().flat_map(|(from, out)| out.iter().map(move |edge| (from, *edge)))
    }

    /// Returns the state that an edge leads to, if `rule` allows it from `state`.
    fn follow(&self, state: State, edge: Edge, rule: Rule) -> Option<State> {
        let wanted = rule.deps.contains(&edge.dep) || (rule.time && edge.dep == Dep::Time);
        let rw = rule.apart && edge.dep.is_rw();
        (wanted && !(rw && state % 2 == 1)).then_some(2 * edge.to + usize::from(rw))
    }

    /// Returns all knots.
    pub(super) fn knots(&self, rule: Rule) -> Vec<Knot> {
        let mut search = Search::new(2 * self.out.len());
        for state in 0..2 * self.out.len() {
            if search.order[state] == UNSEEN {
                search.from(self, rule, state);
            }
        }
        search.knots
    }

    /// Returns a shortest path from `from` to `to`, of at least one edge, through `inside` only.
    pub(super) fn way(&self, rule: Rule, (from, to): (State, State), inside: &[bool]) -> Option<Cycle> {
        let mut came: HashMap<State, (State, Edge)> = HashMap::new();
        let mut queue = VecDeque::from([from]);
        while let Some(state) = queue.pop_front() {
            for edge in &self.out[node(state)] {
                let Some(next) = self.follow(state, *edge, rule).filter(|next| inside[*next]) else {
                    continue;
                };
                if came.contains_key(&next) {
                    continue;
                }
                came.insert(next, (state, *edge));
                if next == to {
                    return Some(trace(&came, from, to));
                }
                queue.push_back(next);
            }
        }
        None
    }

    /// Returns the shortest cycle through one of the first `tries` states of a knot.
    pub(super) fn short_cycle(&self, rule: Rule, knot: &Knot, tries: usize) -> Cycle {
        let inside = self.mask(knot);
        let ways = knot.iter().take(tries).filter_map(|state| self.way(rule, (*state, *state), &inside));
        ways.min_by_key(Vec::len).unwrap_or_default()
    }

    /// Returns a mask of the states in `knot`.
    pub(super) fn mask(&self, knot: &[State]) -> Vec<bool> {
        let mut inside = vec![false; 2 * self.out.len()];
        knot.iter().for_each(|state| inside[*state] = true);
        inside
    }
}

/// Returns the steps from `from` to `to`; `came` holds the step by which each state was first reached.
fn trace(came: &HashMap<State, (State, Edge)>, from: State, to: State) -> Cycle {
    let mut steps = Vec::new();
    let mut at = to;
    while let Some((before, edge)) = came.get(&at) {
        steps.push((node(*before), *edge));
        at = *before;
        if at == from {
            break;
        }
    }
    steps.reverse();
    steps
}

const UNSEEN: usize = usize::MAX;

/// State of Tarjan's search.
struct Search {
    order: Vec<usize>,
    low: Vec<usize>,
    on_path: Vec<bool>,
    path: Vec<State>,
    next: usize,
    knots: Vec<Knot>,
}

impl Search {
    fn new(states: usize) -> Self {
        let (order, low) = (vec![UNSEEN; states], vec![0; states]);
        Self { order, low, on_path: vec![false; states], path: Vec::new(), next: 0, knots: Vec::new() }
    }

    fn enter(&mut self, state: State) {
        self.order[state] = self.next;
        self.low[state] = self.next;
        self.next += 1;
        self.path.push(state);
        self.on_path[state] = true;
    }

    fn from(&mut self, graph: &Graph, rule: Rule, root: State) {
        self.enter(root);
        // Stack of the search: states, and how many edges of each are done.
        let mut calls = vec![(root, 0)];
        while let Some((state, done)) = calls.last_mut() {
            let state = *state;
            if let Some(edge) = graph.out[node(state)].get(*done) {
                *done += 1;
                let Some(next) = graph.follow(state, *edge, rule) else { continue };
                if self.order[next] == UNSEEN {
                    self.enter(next);
                    calls.push((next, 0));
                } else if self.on_path[next] {
                    self.low[state] = self.low[state].min(self.order[next]);
                }
                continue;
            }
            calls.pop();
            if let Some((caller, _)) = calls.last() {
                self.low[*caller] = self.low[*caller].min(self.low[state]);
            }
            if self.low[state] == self.order[state] {
                self.close(state);
            }
        }
    }

    /// Closes a component: all states on the path from `root` on.
    fn close(&mut self, root: State) {
        let at = self.path.iter().rposition(|state| *state == root).unwrap_or(0);
        let component = self.path.split_off(at);
        component.iter().for_each(|state| self.on_path[*state] = false);
        if component.len() > 1 {
            self.knots.push(component);
        }
    }
}
