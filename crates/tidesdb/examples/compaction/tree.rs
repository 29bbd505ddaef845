//! A simulated tree: plans are carried out on densities.

use std::sync::Arc;

use tidesdb::Comparator;
use tidesdb::internals::compact::policy::{Plan, PlanKind, Planner, PolicySettings, Run, TableView, Tree};
use tidesdb::internals::types::TableId;

use crate::content::{Classes, ENTRY_BYTES, Piece, merge};
use crate::workload::Workload;

/// What a run showed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measures {
    /// Levels at the end.
    pub(crate) levels: usize,
    /// Bytes that flushes and merges wrote for each byte of user data.
    pub(crate) write_amplification: f64,
    /// Maximum bytes on disk, with the inputs of the job that runs, for each byte of live data.
    pub(crate) peak_space: f64,
    /// Bytes on disk between jobs, on average, for each byte of live data.
    pub(crate) settled_space: f64,
    /// Maximum number of tables at a time.
    pub(crate) tables: usize,
    /// Bytes of the largest job for each byte of live data.
    pub(crate) largest_job: f64,
}

#[derive(Clone)]
struct SimTable {
    id: u64,
    generation: u32,
    smallest: [u8; 8],
    largest: [u8; 8],
    pieces: Vec<Piece>,
    bytes: f64,
    entries: f64,
    tombstones: f64,
}

impl SimTable {
    fn overlaps(&self, other: &Self) -> bool {
        number(&self.smallest) <= number(&other.largest) && number(&other.smallest) <= number(&self.largest)
    }

    fn view(&self) -> TableView<'_> {
        TableView {
            id: TableId(self.id),
            smallest: &self.smallest,
            largest: &self.largest,
            bytes: self.bytes as u64,
            entries: self.entries as u64,
            tombstones: self.tombstones as u64,
            max_seq: self.id,
            expires: 0,
            taken: false,
        }
    }
}

/// What a tree is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Order and kind of the writes.
    pub(crate) workload: Workload,
    /// Bytes of all data.
    pub(crate) bytes: u64,
    /// Bytes of rows in a memtable, which are less than its size by what the memtable itself needs.
    pub(crate) flush_bytes: u64,
    /// Tables in level 1 when merges start: the trigger, or more if writers are faster than merges.
    pub(crate) l1_tables: usize,
    /// Bytes written before anything is measured, and bytes written after, as shares of all data.
    pub(crate) writes: (f64, f64),
}

/// One tree.
pub(crate) struct Simulation {
    settings: PolicySettings,
    classes: Classes,
    levels: Vec<Vec<Arc<SimTable>>>,
    order: Comparator,
    next_id: u64,
    bytes: f64,
    written: f64,
    peak: f64,
    largest_job: f64,
    tables: usize,
}

impl Simulation {
    /// Runs a load.
    pub(crate) fn run(settings: PolicySettings, load: Load) -> Measures {
        let Load { workload, bytes, flush_bytes, l1_tables, writes: (warm_up, measured) } = load;
        let mut this = Self {
            settings,
            classes: workload.classes(bytes),
            levels: vec![Vec::new(); 2],
            order: Comparator::u64_le(),
            next_id: 1,
            bytes: 0.0,
            written: 0.0,
            peak: 0.0,
            largest_job: 0.0,
            tables: 0,
        };
        if let Some(piece) = workload.initial(&this.classes) {
            let mut tables = this.split(vec![piece], &[], &[], u64::MAX);
            this.add(2, &mut tables);
            this.settle();
        }
        let entries = flush_bytes as f64 / ENTRY_BYTES;
        let (mut ingested, mut spaces) = (0.0, Vec::new());
        while ingested < (warm_up + measured) * bytes as f64 {
            if ingested < warm_up * bytes as f64 {
                (this.written, this.peak, this.largest_job, this.tables) = (0.0, 0.0, 0.0, 0);
                spaces.clear();
            }
            this.flush(workload.memtable(&this.classes, ingested / ENTRY_BYTES, entries));
            // Between two flushes nothing else changes.
            if this.levels[0].len() >= l1_tables {
                this.settle();
            }
            ingested += flush_bytes as f64;
            this.peak = this.peak.max(this.bytes);
            spaces.push(this.bytes);
        }
        let live = this.live();
        Measures {
            levels: this.levels.iter().rposition(|l| !l.is_empty()).map_or(0, |at| at + 1),
            write_amplification: this.written / (measured * bytes as f64),
            peak_space: this.peak / live,
            settled_space: match workload.initial(&this.classes) {
                Some(_) => spaces.iter().sum::<f64>() / spaces.len() as f64 / live,
                None => this.bytes / live,
            },
            tables: this.tables,
            largest_job: this.largest_job / live,
        }
    }

    fn flush(&mut self, pieces: Vec<Piece>) {
        let mut table = self.split(pieces, &[], &[], u64::MAX);
        // A flush writes one table.
        let mut whole = table.remove(0);
        for rest in table {
            whole.largest = rest.largest;
            whole.bytes += rest.bytes;
            whole.entries += rest.entries;
            whole.tombstones += rest.tombstones;
            whole.pieces.extend(rest.pieces);
        }
        self.written += whole.bytes;
        self.add(1, &mut vec![whole]);
        self.levels[0].sort_by_key(|t| std::cmp::Reverse(t.id));
    }

    /// Runs what is due until nothing is.
    fn settle(&mut self) {
        while let Some(plan) = self.pick() {
            self.carry_out(&plan);
            self.tables = self.tables.max(self.levels.iter().map(Vec::len).sum());
        }
    }

    fn pick(&self) -> Option<Plan> {
        let runs = (1..=self.levels.len() as u8).flat_map(|level| {
            let runs = runs(level, &self.levels[usize::from(level) - 1]).into_iter();
            runs.map(move |run| Run { level, tables: run.into_iter().map(SimTable::view).collect() })
        });
        Planner::new(&Tree::new(&self.order, runs.collect()), &self.settings).next()
    }

    fn carry_out(&mut self, plan: &Plan) {
        let inputs = self.take(plan);
        match plan.kind {
            PlanKind::Drop => {}
            PlanKind::Move => self.add(plan.target, &mut inputs.into_iter().flatten().collect()),
            _ => {
                let read: f64 = inputs.iter().flatten().map(|t| t.bytes).sum();
                let runs: Vec<Vec<&Piece>> =
                    inputs.iter().map(|run| run.iter().flat_map(|t| &t.pieces).collect()).collect();
                let mut tables =
                    self.split(merge(&runs, plan.bottom), &plan.cuts, &plan.guards, plan.table_bytes);
                let out: f64 = tables.iter().map(|t| t.bytes).sum();
                self.written += out;
                self.largest_job = self.largest_job.max(out);
                self.add(plan.target, &mut tables);
                self.peak = self.peak.max(self.bytes + read);
            }
        }
    }

    /// Takes the inputs out of the tree, run by run: each table of level 1 is a run.
    fn take(&mut self, plan: &Plan) -> Vec<Vec<SimTable>> {
        let mut taken: Vec<Vec<SimTable>> = Vec::new();
        for level in 1..=self.levels.len() as u8 {
            let ids: std::collections::HashSet<u64> =
                plan.inputs.iter().filter(|(l, _)| *l == level).map(|(_, id)| id.0).collect();
            if ids.is_empty() {
                continue;
            }
            let tables = std::mem::take(&mut self.levels[usize::from(level) - 1]);
            let (gone, kept): (Vec<_>, Vec<_>) = tables.into_iter().partition(|t| ids.contains(&t.id));
            assert_eq!(gone.len(), ids.len(), "a plan names a table that is not there: {plan}");
            self.levels[usize::from(level) - 1] = kept;
            self.bytes -= gone.iter().map(|t| t.bytes).sum::<f64>();
            match level {
                1 => taken.extend(gone.into_iter().map(|t| vec![SimTable::clone(&t)])),
                _ => {
                    taken.extend(runs(level, &gone).into_iter().map(|run| run.into_iter().cloned().collect()))
                }
            }
        }
        taken
    }

    /// Adds tables to a level, above what they overlap there.
    fn add(&mut self, level: u8, tables: &mut Vec<SimTable>) {
        let at = usize::from(level) - 1;
        if self.levels.len() <= at {
            self.levels.resize_with(at + 1, Vec::new);
        }
        self.bytes += tables.iter().map(|t| t.bytes).sum::<f64>();
        let met = self.levels[at].iter().filter(|old| tables.iter().any(|new| old.overlaps(new)));
        let above = met.map(|old| old.generation + 1).max().unwrap_or(0);
        tables.iter_mut().for_each(|t| t.generation += above);
        self.levels[at].extend(tables.drain(..).map(Arc::new));
        if level > 1 {
            self.levels[at].sort_by_key(|t| (t.generation, number(&t.smallest)));
        }
    }

    /// Makes tables of `pieces`.
    fn split(
        &mut self,
        pieces: Vec<Piece>,
        cuts: &[Vec<u8>],
        guards: &[Vec<u8>],
        table_bytes: u64,
    ) -> Vec<SimTable> {
        let cuts: Vec<u64> = cuts.iter().map(|key| number(key)).collect();
        let guards: Vec<u64> = guards.iter().map(|key| number(key)).collect();
        let limit = self.settings.table_bytes.min(table_bytes) as f64;
        let (mut tables, mut open): (Vec<SimTable>, Vec<Piece>) = (Vec::new(), Vec::new());
        let mut size = 0.0;
        for mut piece in pieces {
            if let Some(last) = open.last() {
                let between =
                    |keys: &[u64]| keys.iter().filter(|k| **k >= last.to && **k <= piece.from).count();
                if between(&cuts) > 0 || between(&guards) > 1 {
                    tables.push(self.table(std::mem::take(&mut open)));
                    size = 0.0;
                }
            }
            loop {
                let cut = cuts[cuts.partition_point(|cut| *cut <= piece.from)..].first();
                let end = cut.map_or(piece.to, |cut| piece.to.min(*cut));
                if cuts.binary_search(&piece.from).is_ok() && !open.is_empty() {
                    tables.push(self.table(std::mem::take(&mut open)));
                    size = 0.0;
                }
                let bytes = self.classes.measure(&piece.densities, 1.0).0;
                let room = ((limit - size) / bytes * crate::content::KEYS as f64).max(1.0) as u64;
                let end = end.min(piece.from.saturating_add(room));
                let part = Piece { from: piece.from, to: end, densities: piece.densities.clone() };
                size += bytes * part.share();
                open.push(part);
                if size >= limit * 0.999 {
                    tables.push(self.table(std::mem::take(&mut open)));
                    size = 0.0;
                }
                if end == piece.to {
                    break;
                }
                piece.from = end;
            }
        }
        if !open.is_empty() {
            tables.push(self.table(open));
        }
        tables
    }

    fn table(&mut self, pieces: Vec<Piece>) -> SimTable {
        let (mut bytes, mut entries, mut tombstones) = (0.0, 0.0, 0.0);
        for piece in &pieces {
            let (b, e, t) = self.classes.measure(&piece.densities, piece.share());
            (bytes, entries, tombstones) = (bytes + b, entries + e, tombstones + t);
        }
        self.next_id += 1;
        let smallest = pieces.first().map_or(0, |p| p.from).to_le_bytes();
        let largest = pieces.last().map_or(0, |p| p.to - 1).to_le_bytes();
        SimTable { id: self.next_id, generation: 0, smallest, largest, pieces, bytes, entries, tombstones }
    }

    /// Bytes of the rows that a reader sees.
    fn live(&self) -> f64 {
        let flushed = self.levels[0].iter().map(|t| t.pieces.iter().collect());
        let deeper = self.levels[1..].iter().flat_map(|level| runs(2, level));
        let deeper = deeper.map(|run| run.into_iter().flat_map(|t| &t.pieces).collect());
        let runs: Vec<Vec<&Piece>> = flushed.chain(deeper).collect();
        merge(&runs, true).iter().map(|p| self.classes.measure(&p.densities, p.share()).0).sum()
    }
}

/// The runs of a level, newest first; level 1 is treated as one run. `tables` are in the order of generations
/// and keys.
fn runs(level: u8, tables: &[Arc<SimTable>]) -> Vec<Vec<&SimTable>> {
    let mut runs: Vec<Vec<&SimTable>> = Vec::new(); // the oldest first
    for table in tables {
        let end = |run: &[&SimTable]| run.partition_point(|t| number(&t.largest) < number(&table.smallest));
        let meets = |run: &Vec<&SimTable>| level > 1 && run.get(end(run)).is_some_and(|t| t.overlaps(table));
        let at = runs.iter().rposition(meets).map_or(0, |below| below + 1);
        runs.resize_with(runs.len().max(at + 1), Vec::new);
        let end = if level > 1 { end(&runs[at]) } else { runs[at].len() };
        runs[at].insert(end, table);
    }
    runs.reverse();
    runs
}

fn number(key: &[u8]) -> u64 {
    u64::from_le_bytes(key.try_into().expect("keys of the simulation have eight bytes"))
}
