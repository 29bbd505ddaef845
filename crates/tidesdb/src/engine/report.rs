//! The figures and the health of an open database as bytes, for the file `FIGURES`.
//!
//! The bytes describe themselves: each figure has its name, so a program of another version reads those that it knows and says which it
//! misses. `docs/formats/figures.md` has the layout.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidesdb_io::ProcessId;

use super::stats::Stats;
use crate::Result;
use crate::codec::{Decoder, FieldClass, FieldWriter, UnknownFields, put_bytes, put_varint, read_fields};
use crate::compact::{LevelStats, TreeStats};
use crate::family::FamilyStats;
use crate::figures::MILLIS_MAX;
use crate::health::{HealthReport, HealthState};
use crate::jobs::JobStats;
use crate::options::ChangedSetting;
use crate::order::{self, Gather};
use crate::remote::RemoteStats;
use crate::stats::{Durations, StatInfo, StatValue, TimeStats};
use crate::waits::{StallCause, StallStats};

/// What the writer does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// It works.
    #[default]
    Open,
    /// It had nothing to do since.
    Idle,
    /// It has closed the database.
    Closed,
}

/// What a writer says of itself, and when.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Version of the engine that wrote it.
    pub version: String,
    /// The process.
    pub process: ProcessId,
    /// When it was written, since the UNIX epoch.
    pub written: Duration,
    /// How long the database was open then.
    pub open_for: Duration,
    /// What the writer did.
    pub phase: Phase,
    /// The health.
    pub health: HealthReport,
    /// The figures.
    pub stats: Stats,
    /// The settings of the database and of families that differ from their defaults.
    pub settings: Vec<ChangedSetting>,
    /// Families for which there was no room.
    pub left_out: u64,
    /// Figures of this version that the writer does not know: they are 0 in `stats`.
    pub missing: Vec<String>,
}

/// Causes of bad health that are written; for many families there may be thousands.
const CAUSES_MAX: usize = 100;

/// Fields of a report.
mod field {
    pub(super) const VERSION: u64 = 1;
    pub(super) const PROCESS: u64 = 2;
    pub(super) const TIMES: u64 = 3;
    pub(super) const PHASE: u64 = 4;
    pub(super) const HEALTH: u64 = 5;
    pub(super) const LEFT_OUT: u64 = 6;
    pub(super) const TABLES: u64 = 7;
    pub(super) const SETTINGS: u64 = 8;
}

/// The tables of a report, in their order: each of them has a column for each figure.
mod table {
    pub(super) const DATABASE: &str = "database";
    pub(super) const TIMES: &str = "times";
    pub(super) const STALLS: &str = "stalls";
    pub(super) const JOBS: &str = "jobs";
    pub(super) const REMOTE: &str = "remote";
    pub(super) const FAMILIES: &str = "families";
    pub(super) const TREES: &str = "trees";
    pub(super) const LEVELS: &str = "levels";
}

/// Figures with their values.
type Figures = Vec<(&'static StatInfo, StatValue)>;

/// A row of a table: its labels, its figures, and the durations that it counts.
struct Row<'a> {
    labels: Vec<&'a str>,
    figures: Figures,
    durations: Option<&'a Durations>,
}

impl<'a> Row<'a> {
    fn new(labels: &[&'a str], figures: impl Iterator<Item = (&'static StatInfo, StatValue)>) -> Self {
        Self { labels: labels.to_vec(), figures: figures.collect(), durations: None }
    }

    fn with(self, durations: &'a Durations) -> Self {
        Self { durations: Some(durations), ..self }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.labels.len() as u64);
        self.labels.iter().for_each(|label| put_bytes(&mut out, label.as_bytes()));
        self.figures.iter().for_each(|(_, value)| put_value(&mut out, value));
        match self.durations {
            Some(durations) => durations.encode(&mut out),
            None => put_varint(&mut out, 0),
        }
        out
    }
}

/// Appends a table of these rows: its name, its columns, then the rows.
fn put_table(out: &mut Vec<u8>, name: &str, rows: &[Row<'_>]) {
    let Some(first) = rows.first() else { return };
    let mut table = Vec::new();
    put_bytes(&mut table, name.as_bytes());
    put_varint(&mut table, first.figures.len() as u64);
    for (info, value) in &first.figures {
        put_bytes(&mut table, info.name.as_bytes());
        table.push(kind(value));
    }
    rows.iter().for_each(|row| table.extend_from_slice(&row.encode()));
    put_bytes(out, &table);
}

/// How values of a column are stored.
fn kind(value: &StatValue) -> u8 {
    match value {
        StatValue::Number(_) => 0,
        StatValue::Real(_) => 1,
        StatValue::Levels(_) => 2,
    }
}

fn put_value(out: &mut Vec<u8>, value: &StatValue) {
    match value {
        StatValue::Number(n) => put_varint(out, *n),
        StatValue::Real(x) => out.extend_from_slice(&x.to_le_bytes()),
        StatValue::Levels(levels) => {
            put_varint(out, levels.len() as u64);
            levels.iter().for_each(|n| put_varint(out, *n));
        }
    }
}

fn value(d: &mut Decoder<'_>, kind: u8) -> Result<StatValue> {
    Ok(match kind {
        0 => StatValue::Number(d.varint()?),
        1 => StatValue::Real(f64::from_bits(d.u64()?)),
        2 => {
            let n = d.length(d.remaining())?;
            StatValue::Levels((0..n).map(|_| d.varint()).collect::<Result<_>>()?)
        }
        _ => return Err(d.corrupt("unknown kind of figure")),
    })
}

fn text(d: &mut Decoder<'_>) -> Result<String> {
    let bytes = d.bytes(d.remaining())?;
    String::from_utf8(bytes.to_vec()).map_err(|_| d.corrupt("a text that is not UTF-8"))
}

impl Report {
    /// Encodes the report in at most `bytes_max` bytes. Leaves out the families that wrote least if there is no room for all, then all of them
    /// and their trees.
    pub fn encode(&self, bytes_max: usize) -> Vec<u8> {
        let whole = self.encode_with(&self.stats.families, 0);
        if whole.len() <= bytes_max {
            return whole;
        }
        let mut families = self.stats.families.clone();
        order::sort_by_key(&mut families, |family| {
            std::cmp::Reverse((family.user_bytes, family.flush_bytes, family.memtable_bytes))
        });
        // Rows have much the same length. The number that fits is found by halving.
        let (mut fits, mut too_many) = (0, families.len());
        while too_many - fits > 1 {
            let tried = fits.midpoint(too_many);
            match self.encode_with(&families[..tried], (families.len() - tried) as u64).len() {
                len if len <= bytes_max => fits = tried,
                _ => too_many = tried,
            }
        }
        self.encode_with(&families[..fits], (families.len() - fits) as u64)
    }

    fn encode_with(&self, families: &[FamilyStats], left_out: u64) -> Vec<u8> {
        use FieldClass::{Optional, Required};
        let mut out = Vec::new();
        let mut fields = FieldWriter::new(&mut out);
        fields.bytes(field::VERSION, Optional, self.version.as_bytes());
        let ProcessId { number, started, boot, namespace } = self.process;
        let process =
            [&number.to_le_bytes()[..], &started.to_le_bytes(), &boot, &namespace.to_le_bytes()].concat();
        fields.bytes(field::PROCESS, Required, &process);
        let times = [self.written, self.open_for].map(|time| (time.as_millis() as u64).to_le_bytes());
        fields.bytes(field::TIMES, Required, &times.concat());
        fields.number(field::PHASE, Required, self.phase as u64);
        let mut health = vec![self.health.state as u8];
        let causes = &self.health.causes;
        causes.iter().take(CAUSES_MAX).for_each(|cause| put_bytes(&mut health, cause.as_bytes()));
        if let Some(more) = causes.len().checked_sub(CAUSES_MAX).filter(|more| *more > 0) {
            put_bytes(&mut health, format!("and {more} more").as_bytes());
        }
        fields.bytes(field::HEALTH, Required, &health);
        fields.number(field::LEFT_OUT, Required, self.left_out.saturating_add(left_out));
        fields.bytes(field::TABLES, Optional, &self.tables(families));
        fields.bytes(field::SETTINGS, Optional, &self.settings_of(families));
        fields.finish(&UnknownFields::default());
        out
    }

    /// Encodes the settings of the database and of `families`.
    fn settings_of(&self, families: &[FamilyStats]) -> Vec<u8> {
        let named: BTreeSet<&str> = families.iter().map(|family| &*family.name).chain([""]).gather();
        let mut out = Vec::new();
        for ChangedSetting { family, name, value } in
            self.settings.iter().filter(|setting| named.contains(&*setting.family))
        {
            [family, name, value].into_iter().for_each(|text| put_bytes(&mut out, text.as_bytes()));
        }
        out
    }

    /// Encodes the tables, with those rows of families that `families` names.
    fn tables(&self, families: &[FamilyStats]) -> Vec<u8> {
        let (mut out, stats) = (Vec::new(), &self.stats);
        put_table(&mut out, table::DATABASE, &[Row::new(&[], stats.figures())]);
        let times = stats.times();
        let times: Vec<Row<'_>> = times
            .iter()
            .map(|(work, times)| Row::new(&[work], times.figures()).with(&times.durations))
            .collect();
        put_table(&mut out, table::TIMES, &times);
        let stalls = stats.stalls_by_cause();
        let stalls: Vec<Row<'_>> = stalls
            .iter()
            .map(|(cause, stall)| Row::new(&[cause.name()], stall.figures()).with(&stall.delays))
            .collect();
        put_table(&mut out, table::STALLS, &stalls);
        let jobs: Vec<Row<'_>> =
            stats.jobs.iter().map(|job| Row::new(&[&job.family, job.kind], job.figures())).collect();
        put_table(&mut out, table::JOBS, &jobs);
        let remote: Vec<Row<'_>> =
            stats.remote.iter().map(|remote| Row::new(&[], remote.figures())).collect();
        put_table(&mut out, table::REMOTE, &remote);
        let rows: Vec<Row<'_>> =
            families.iter().map(|family| Row::new(&[&family.name], family.figures())).collect();
        put_table(&mut out, table::FAMILIES, &rows);
        let named: BTreeSet<&str> = families.iter().map(|family| &*family.name).gather();
        let trees: Vec<&TreeStats> =
            stats.trees.iter().filter(|tree| named.contains(&*tree.family)).collect();
        let rows: Vec<Row<'_>> =
            trees.iter().map(|tree| Row::new(&[&tree.family, &tree.order], tree.figures())).collect();
        put_table(&mut out, table::TREES, &rows);
        let levels = trees.iter().flat_map(|tree| tree.levels.iter().map(|level| (&*tree.family, level)));
        let rows: Vec<Row<'_>> = levels.map(|(family, level)| Row::new(&[family], level.figures())).collect();
        put_table(&mut out, table::LEVELS, &rows);
        out
    }

    /// Decodes what [`Report::encode`] made, which lies at byte `at` of `file`.
    ///
    /// # Errors
    /// `Corrupt` for anything else, `FormatTooNew`.
    pub fn decode(bytes: &[u8], file: &str, at: u64) -> Result<Self> {
        let (mut this, mut read) = (Self::default(), BTreeSet::new());
        read_fields(&mut Decoder::new(bytes, file, at), |id, d| {
            match id {
                field::VERSION => this.version = String::from_utf8_lossy(d.rest()).into_owned(),
                field::PROCESS => {
                    let (number, started, boot, namespace) = (d.u32()?, d.u64()?, d.array()?, d.u64()?);
                    this.process = ProcessId { number, started, boot, namespace };
                }
                field::TIMES => {
                    this.written = Duration::from_millis(d.u64()?.min(MILLIS_MAX));
                    this.open_for = Duration::from_millis(d.u64()?.min(MILLIS_MAX));
                }
                field::PHASE => {
                    this.phase =
                        [Phase::Open, Phase::Idle, Phase::Closed][d.number(0..=2, "the phase")? as usize];
                }
                field::HEALTH => this.health = health(d)?,
                field::LEFT_OUT => this.left_out = d.varint()?,
                field::TABLES => read = this.read_tables(d)?,
                field::SETTINGS => {
                    while d.remaining() > 0 {
                        let (family, name, value) = (text(d)?, text(d)?, text(d)?);
                        this.settings.push(ChangedSetting { family, name, value });
                    }
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let always = [table::DATABASE, table::TIMES, table::STALLS];
        let lacking = always.into_iter().filter(|name| !read.contains(*name));
        this.missing.extend(lacking.map(str::to_owned));
        Ok(this)
    }

    /// Reads all tables. Returns their names.
    fn read_tables(&mut self, d: &mut Decoder<'_>) -> Result<BTreeSet<String>> {
        let (mut read, mut trees) = (BTreeSet::new(), BTreeMap::new());
        while d.remaining() > 0 {
            let mut table = d.sub()?;
            let name = text(&mut table)?;
            if !read.insert(name.clone()) {
                return Err(table.corrupt("a table that is there already"));
            }
            let columns = table.length(table.remaining())?;
            let columns: Vec<(String, u8)> =
                (0..columns).map(|_| Ok((text(&mut table)?, table.u8()?))).collect::<Result<_>>()?;
            self.note_missing(&name, &columns);
            while table.remaining() > 0 {
                let labels = table.length(table.remaining())?;
                let labels: Vec<String> = (0..labels).map(|_| text(&mut table)).collect::<Result<_>>()?;
                let values: Vec<(&str, StatValue)> = columns
                    .iter()
                    .map(|(column, kind)| Ok((&**column, value(&mut table, *kind)?)))
                    .collect::<Result<_>>()?;
                let durations = Durations::decode(&mut table)?;
                self.take_row(&name, labels, values, durations.unwrap_or_default(), &mut trees);
            }
        }
        Ok(read)
    }

    /// Notes the figures that this version has and the table has not.
    fn note_missing(&mut self, table: &str, columns: &[(String, u8)]) {
        let known = match table {
            table::DATABASE => Stats::TABLE,
            table::TIMES => TimeStats::TABLE,
            table::STALLS => StallStats::TABLE,
            table::JOBS => JobStats::TABLE,
            table::REMOTE => RemoteStats::TABLE,
            table::FAMILIES => FamilyStats::TABLE,
            table::TREES => TreeStats::TABLE,
            table::LEVELS => LevelStats::TABLE,
            _ => &[],
        };
        let missing = known.iter().filter(|info| columns.iter().all(|(name, _)| name != info.name));
        self.missing.extend(missing.map(|info| format!("{table}.{}", info.name)));
    }

    /// Puts a row into the figures. A table, a label or a figure that this version does not know is passed over.
    fn take_row(
        &mut self,
        table: &str,
        labels: Vec<String>,
        values: Vec<(&str, StatValue)>,
        durations: Durations,
        trees: &mut BTreeMap<String, usize>,
    ) {
        let stats = &mut self.stats;
        let mut labels = labels.into_iter();
        let mut label = || labels.next().unwrap_or_default();
        match table {
            table::DATABASE => values.into_iter().for_each(|(name, value)| stats.put(name, value)),
            table::TIMES => {
                if let Some(times) = stats.times_of(&label()) {
                    *times = TimeStats::from(durations);
                }
            }
            table::STALLS => {
                let name = label();
                if let Some(cause) = StallCause::ALL.into_iter().find(|cause| cause.name() == name) {
                    let stall = &mut stats.stalled[cause as usize];
                    values.into_iter().for_each(|(name, value)| stall.put(name, value));
                    stall.delays = durations;
                }
            }
            table::JOBS => {
                let mut job =
                    JobStats { family: label(), kind: JobStats::kind_named(&label()), ..JobStats::default() };
                values.into_iter().for_each(|(name, value)| job.put(name, value));
                stats.jobs.push(job);
            }
            table::REMOTE => {
                let remote = stats.remote.get_or_insert_default();
                values.into_iter().for_each(|(name, value)| remote.put(name, value));
            }
            table::FAMILIES => {
                let mut family = FamilyStats { name: label(), ..FamilyStats::default() };
                values.into_iter().for_each(|(name, value)| family.put(name, value));
                stats.families.push(family);
            }
            table::TREES => {
                let mut tree = TreeStats {
                    family: label(),
                    order: label(),
                    order_is_known: true,
                    ..TreeStats::default()
                };
                values.into_iter().for_each(|(name, value)| tree.put(name, value));
                trees.insert(tree.family.clone(), stats.trees.len());
                stats.trees.push(tree);
            }
            table::LEVELS => {
                let mut level = LevelStats::default();
                values.into_iter().for_each(|(name, value)| level.put(name, value));
                if let Some(tree) = trees.get(&label()) {
                    stats.trees[*tree].levels.push(level);
                }
            }
            _ => {}
        }
    }
}

/// Reads the state of the health and its causes.
fn health(d: &mut Decoder<'_>) -> Result<HealthReport> {
    let state = match d.u8()? {
        0 => HealthState::Healthy,
        1 => HealthState::Degraded,
        2 => HealthState::Poisoned,
        _ => return Err(d.corrupt("unknown state of health")),
    };
    let mut causes = Vec::new();
    while d.remaining() > 0 {
        causes.push(text(d)?);
    }
    Ok(HealthReport { state, causes, first_failure: None })
}
