//! The figures of one moment as they are shown: rates, percentiles and shares of the seconds before it, computed from the published figures and
//! their history. Pure: it knows no disk, no terminal and no clock. What is not known is `None`.

use std::collections::HashMap;

use tidesdb::{StallCause, StatInfo, StatUnit, StatValue, Stats, TreeStats, WriterState};

use super::Look;
use super::track::Track;

/// Rates and percentiles are those of so many milliseconds: ten seconds, the last of which may be late.
pub(crate) const WINDOW_MILLIS: u64 = 10_500;
/// Waits are also shown for so many milliseconds.
pub(crate) const MINUTES_MILLIS: u64 = 300_000;

/// The kinds of operations and of work, in the order of their importance.
const KINDS: [&str; 8] = ["gets", "multi_gets", "seeks", "puts", "commits", "syncs", "flushes", "merges"];

/// The uses of memory that the limit counts, with their figures.
const MEMORY: [(&str, &str); 7] = [
    ("memtables", "memory_memtables_bytes"),
    ("tables and cache", "memory_tables_bytes"),
    ("transactions", "memory_transactions_bytes"),
    ("cursors", "memory_cursors_bytes"),
    ("jobs", "memory_jobs_bytes"),
    ("range deletes", "memory_ranges_bytes"),
    ("fixed", "memory_fixed_bytes"),
];

/// A database at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The moment, in milliseconds since the UNIX epoch.
    pub(crate) millis: u64,
    /// False for a moment of the past, of which the history has fewer figures.
    pub(crate) is_last: bool,
    /// Seconds before the moment of which rates and percentiles are; `None` if the session has only one sample, or none.
    pub(crate) window: Option<f64>,
    /// Healthy, degraded or poisoned.
    pub(crate) health: &'static str,
    pub(crate) operations: Vec<Operation>,
    pub(crate) flow: Flow,
    pub(crate) amplification: Amplification,
    /// By cause: those for which writers have waited since the open.
    pub(crate) waits: Vec<Wait>,
    pub(crate) memory: Memory,
    pub(crate) cache: Cache,
    pub(crate) disk: Disk,
    pub(crate) work: Work,
    pub(crate) families: Vec<Family>,
}

/// Operations, or work, of one kind. Times are in seconds.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) kind: &'static str,
    /// Since the open, estimated from the measured ones.
    pub(crate) total: u64,
    /// A second.
    pub(crate) rate: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p999: Option<f64>,
    pub(crate) longest: Option<f64>,
}

/// Bytes a second.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// Keys and values that users wrote.
    pub(crate) user: Option<f64>,
    pub(crate) log: Option<f64>,
    /// Tables and value logs, written by flushes, merges and commits.
    pub(crate) tables: Option<f64>,
    /// Read by lookups that missed the cache.
    pub(crate) lookups: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Amplification {
    /// Bytes written for each byte of users, in the window.
    pub(crate) write: Option<f64>,
    /// The same since the open.
    pub(crate) write_all: Option<f64>,
    /// Bytes of tables and value logs for each byte of the largest levels and of live values, an estimate of what is live.
    pub(crate) space: Option<f64>,
}

/// Waits of writers for one cause. Times are in seconds, summed over all threads.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    pub(crate) cause: &'static str,
    /// Commits that are delayed at this moment.
    pub(crate) now: Option<u64>,
    /// Time that was waited, for each second.
    pub(crate) rate: Option<f64>,
    /// Time that was waited in the last minutes, and the seconds that these are if there are fewer.
    pub(crate) recent: Option<(f64, f64)>,
    /// Since the open.
    pub(crate) total: f64,
    pub(crate) longest: Option<f64>,
    pub(crate) gave_up: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    pub(crate) limit: Option<f64>,
    /// 0 normal, 1 elevated, 2 high, 3 critical.
    pub(crate) pressure: Option<f64>,
    /// What the limit counts.
    pub(crate) uses: Vec<(&'static str, f64)>,
    /// Kept for later use; the limit does not count it.
    pub(crate) spare: Option<f64>,
}

impl Memory {
    /// Bytes that the limit counts.
    pub(crate) fn used(&self) -> f64 {
        self.uses.iter().map(|(_, bytes)| bytes).sum()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    pub(crate) bytes: Option<f64>,
    /// Share of lookups that hit, in the window.
    pub(crate) share: Option<f64>,
    /// The same since the open.
    pub(crate) share_all: Option<f64>,
    /// Lookups a second.
    pub(crate) rate: Option<f64>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// Tables, value logs and log.
    pub(crate) database: Option<f64>,
    /// The log alone: what an open after a crash would replay.
    pub(crate) log: Option<f64>,
    pub(crate) free: Option<f64>,
    pub(crate) total: Option<f64>,
}

/// What runs, and what is due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) flushes: Option<f64>,
    pub(crate) merges: Option<f64>,
    /// Bytes that wait for a flush, and the time it would take.
    pub(crate) flush_debt: Option<(f64, f64)>,
    pub(crate) merge_debt: Option<(f64, f64)>,
    /// Time that the running sync has taken so far.
    pub(crate) sync_runs: Option<f64>,
    /// `None` in the past: only their number is recorded.
    pub(crate) jobs: Option<Vec<Job>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: &'static str,
    pub(crate) family: String,
    pub(crate) target: usize,
    pub(crate) bytes: u64,
    pub(crate) done: u64,
    pub(crate) seconds: f64,
}

impl Job {
    /// Bytes a second since it began.
    pub(crate) fn speed(&self) -> Option<f64> {
        (self.seconds > 0.0 && self.done > 0).then(|| self.done as f64 / self.seconds)
    }

    /// Seconds until its end, at this speed.
    pub(crate) fn left(&self) -> Option<f64> {
        Some(self.bytes.saturating_sub(self.done) as f64 / self.speed()?)
    }

    /// How much of it is done, from 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        share(self.done as f64, self.bytes as f64).unwrap_or(0.0).min(1.0)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Family {
    pub(crate) name: String,
    /// Bytes a second that users write; `None` if it is not among the ten busiest.
    pub(crate) rate: Option<f64>,
    pub(crate) memtables: Option<f64>,
    /// Tables and value logs; of the past not known.
    pub(crate) bytes: Option<f64>,
    pub(crate) value_logs: Option<f64>,
    pub(crate) tables: Option<u64>,
    pub(crate) debt: Option<f64>,
    /// Empty in the past.
    pub(crate) levels: Vec<Level>,
}

impl Family {
    /// The fill of its fullest level.
    pub(crate) fn fill(&self) -> f64 {
        self.levels.iter().map(|level| level.fill).fold(0.0, f64::max)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) level: usize,
    pub(crate) tables: usize,
    pub(crate) runs: usize,
    pub(crate) bytes: u64,
    pub(crate) capacity: u64,
    pub(crate) fill: f64,
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// Bytes of the tables and the value logs of a family.
fn on_disk(family: &tidesdb::FamilyStats) -> u64 {
    family.level_bytes.iter().copied().fold(family.value_log_file_bytes, u64::saturating_add)
}

/// Figures by name, in seconds, shares and bytes.
struct Values(HashMap<String, f64>);

impl Values {
    /// The figures of now. `disk_bytes` is that of the last sample if it has it: a writer with many families does not publish all of them.
    fn of_now(stats: &Stats, track: &Track) -> Self {
        let number = |value: StatValue| match value {
            StatValue::Number(n) => Some(n as f64),
            StatValue::Real(x) => Some(x),
            _ => None,
        };
        let mut all: HashMap<String, f64> = stats
            .figures()
            .filter_map(|(info, value)| Some((info.name.to_owned(), number(value)?)))
            .collect();
        let sampled = track.len().checked_sub(1).and_then(|last| track.value(last, "disk_bytes"));
        let summed = || stats.families.iter().map(on_disk).fold(stats.wal_live_bytes, u64::saturating_add);
        let disk = sampled.and_then(|n| u64::try_from(n).ok()).unwrap_or_else(summed);
        all.insert("disk_bytes".into(), disk as f64);
        let (flushes, merges): (Vec<_>, Vec<_>) = stats.jobs.iter().partition(|job| job.kind == "flush");
        all.insert("jobs.flushes".into(), flushes.len() as f64);
        all.insert("jobs.merges".into(), merges.len() as f64);
        Self(all)
    }

    fn of_past(track: &Track, at: usize) -> Self {
        let unit = |name: &str| {
            let unit_of = |info: &&StatInfo| info.name == name;
            Stats::TABLE.iter().find(unit_of).map_or(StatUnit::Count, |info| info.unit)
        };
        let scale = |name: &str| match unit(name) {
            StatUnit::Seconds => 1e9,
            StatUnit::Share | StatUnit::Ratio => 1e3,
            _ => 1.0,
        };
        Self(track.values(at, "").map(|(name, n)| (name.to_owned(), n as f64 / scale(name))).collect())
    }

    fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// What a model is made of.
struct Source<'a> {
    stats: &'a Stats,
    values: Values,
    track: &'a Track,
    /// The sample of the moment; `None` without history.
    at: Option<usize>,
    /// The first sample of the window.
    from: Option<usize>,
    is_last: bool,
    /// Nothing has happened since the last sample.
    is_idle: bool,
}

impl Model {
    /// The moment of the last figures.
    pub(crate) fn last(look: &Look) -> Self {
        let at = look.seconds.len().checked_sub(1);
        Self::of(look, at, true)
    }

    /// The moment of sample `at` of the history.
    #[cfg(any(feature = "top", test))]
    pub(crate) fn past(look: &Look, at: usize) -> Self {
        Self::of(look, Some(at), false)
    }

    fn of(look: &Look, at: Option<usize>, is_last: bool) -> Self {
        let (stats, track) = (&look.figures.stats, &look.seconds);
        let from = at.and_then(|at| track.window(at, WINDOW_MILLIS));
        let values = match at {
            Some(at) if !is_last => Values::of_past(track, at),
            _ => Values::of_now(stats, track),
        };
        let is_idle = is_last && look.figures.state == WriterState::Idle;
        let source = Source { stats, values, track, at, from, is_last, is_idle };
        let written =
            look.figures.written.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        let health = match at {
            Some(at) if !is_last => track.value(at, "health").unwrap_or(0),
            _ => look.figures.health.state as i64,
        };
        Self {
            millis: match at {
                Some(at) if !is_last => track.millis(at),
                _ => written.as_millis() as u64,
            },
            is_last,
            window: from.zip(at).and_then(|(from, at)| track.seconds(from, at)),
            health: ["healthy", "degraded", "poisoned"][usize::try_from(health).unwrap_or(0).min(2)],
            operations: KINDS.into_iter().filter_map(|kind| source.operation(kind)).collect(),
            flow: source.flow(),
            amplification: source.amplification(),
            waits: StallCause::ALL.into_iter().filter_map(|cause| source.wait(cause)).collect(),
            memory: source.memory(),
            cache: source.cache(),
            disk: Disk {
                database: source.values.get("disk_bytes"),
                log: source.values.get("wal_live_bytes"),
                free: look.space.filter(|_| is_last).map(|(free, _)| free as f64),
                total: look.space.filter(|_| is_last).map(|(_, total)| total as f64),
            },
            work: source.work(),
            families: source.families(),
        }
    }
}

impl Source<'_> {
    /// How fast a counter of the history grew within the window.
    fn rate(&self, name: &str) -> Option<f64> {
        if self.is_idle {
            return Some(0.0);
        }
        self.track.rate(self.from?, self.at?, name)
    }

    fn operation(&self, kind: &'static str) -> Option<Operation> {
        let count = format!("{kind}.count");
        let times = self.stats.times().into_iter().find(|(name, _)| *name == kind)?.1;
        let one_in = times.sampled_one_in.max(1);
        let measured = match self.is_last {
            true => times.count,
            false => u64::try_from(self.track.value(self.at?, &count)?).unwrap_or(0),
        };
        (measured > 0).then_some(())?;
        let window = self.from.zip(self.at).filter(|_| !self.is_idle);
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        let middle = |figure: &str| {
            let (from, at) = window?;
            self.track.middle(from, at, &format!("{kind}.{figure}"), &count).map(seconds)
        };
        let longest =
            |(from, at)| self.track.largest(from, at, &format!("{kind}.longest"), &count).map(seconds);
        Some(Operation {
            kind,
            total: measured.saturating_mul(one_in),
            rate: self.rate(&count).map(|rate| rate * one_in as f64),
            p50: middle("p50"),
            p99: middle("p99"),
            p999: middle("p999"),
            longest: window.and_then(longest),
        })
    }

    /// Bytes a second that users wrote to one family.
    fn of_users(&self, family: &str) -> Option<f64> {
        self.rate(&format!("family.{family}.user_bytes"))
    }

    /// The families of the history at this moment.
    fn recorded(&self) -> Vec<String> {
        let Some(at) = self.at else { return Vec::new() };
        let named = self.track.values(at, "family.").filter_map(|(rest, _)| rest.strip_suffix(".user_bytes"));
        let mut names: Vec<String> = named.map(str::to_owned).collect();
        names.sort_unstable();
        names
    }

    fn flow(&self) -> Flow {
        let (log, written) = (self.rate("wal_bytes"), self.rate("written_bytes"));
        // Earlier versions recorded only the busiest families.
        let of_busiest =
            || self.recorded().iter().filter_map(|name| self.of_users(name)).fold(0.0, |sum, n| sum + n);
        Flow {
            user: written.map(|_| self.rate("user_bytes").unwrap_or_else(of_busiest)),
            log,
            tables: log.zip(written).map(|(log, written)| (written - log).max(0.0)),
            lookups: self.rate("lookup_read_bytes"),
        }
    }

    fn amplification(&self) -> Amplification {
        let Flow { user, log, tables, .. } = self.flow();
        let written = log.zip(tables).map(|(log, tables)| log + tables);
        let sum = |all: &mut dyn Iterator<Item = u64>| all.fold(0, u64::saturating_add) as f64;
        let largest = |tree: &TreeStats| tree.levels.iter().rev().map(|level| level.bytes).find(|n| *n > 0);
        let families = &self.stats.families;
        let live = sum(&mut self.stats.trees.iter().filter_map(largest));
        let live_values = sum(&mut families.iter().map(|family| family.value_log_live_bytes));
        let all = sum(&mut families.iter().map(on_disk));
        Amplification {
            write: user.zip(written).and_then(|(user, written)| share(written, user)),
            write_all: self.values.get("write_amplification").filter(|x| *x > 0.0),
            space: share(all, live + live_values).filter(|_| self.is_last && live > 0.0),
        }
    }

    fn wait(&self, cause: StallCause) -> Option<Wait> {
        let name = |figure: &str| format!("stall.{}.{figure}", cause.name());
        let stall = self.stats.stalled_by(cause);
        let (total, gave_up) = match self.is_last {
            true => (stall.time.as_secs_f64(), stall.gave_up),
            false => {
                let of = |figure: &str| self.track.value(self.at?, &name(figure));
                (of("time").unwrap_or(0) as f64 / 1e9, u64::try_from(of("gave_up").unwrap_or(0)).unwrap_or(0))
            }
        };
        (total > 0.0 || (self.is_last && stall.delayed_now > 0)).then_some(())?;
        let minutes = self.at.and_then(|at| self.track.window(at, MINUTES_MILLIS));
        let recent = minutes.zip(self.at).and_then(|(from, at)| {
            let waited = self.track.grown(from, at, &name("time"))? as f64 / 1e9;
            Some((waited, self.track.seconds(from, at)?))
        });
        Some(Wait {
            cause: cause.name(),
            now: self.is_last.then_some(stall.delayed_now),
            rate: self.rate(&name("time")).map(|rate| rate / 1e9),
            recent,
            total,
            longest: self.is_last.then_some(stall.longest.as_secs_f64()),
            gave_up,
        })
    }

    fn memory(&self) -> Memory {
        Memory {
            limit: self.values.get("memory_limit_bytes").filter(|limit| *limit > 0.0),
            pressure: self.values.get("memory_pressure"),
            uses: MEMORY
                .into_iter()
                .filter_map(|(name, figure)| Some((name, self.values.get(figure)?)))
                .collect(),
            spare: self.values.get("memory_spare_bytes").filter(|bytes| *bytes > 0.0),
        }
    }

    fn cache(&self) -> Cache {
        let (hits, misses) = (self.rate("cache_hits"), self.rate("cache_misses"));
        let all = |name| self.values.get(name).unwrap_or(0.0);
        Cache {
            bytes: self.values.get("cache_bytes"),
            share: hits.zip(misses).and_then(|(hits, misses)| share(hits, hits + misses)),
            share_all: share(all("cache_hits"), all("cache_hits") + all("cache_misses")),
            rate: hits.zip(misses).map(|(hits, misses)| hits + misses),
        }
    }

    fn work(&self) -> Work {
        let debt = |bytes, secs| self.values.get(bytes).zip(self.values.get(secs));
        let job = |job: &tidesdb::JobStats| Job {
            kind: job.kind,
            family: job.family.clone(),
            target: job.target,
            bytes: job.bytes,
            done: job.bytes_done,
            seconds: job.time.as_secs_f64(),
        };
        Work {
            flushes: self.values.get("jobs.flushes"),
            merges: self.values.get("jobs.merges"),
            flush_debt: debt("flush_debt_bytes", "flush_debt_seconds"),
            merge_debt: debt("merge_debt_bytes", "merge_debt_seconds"),
            sync_runs: self.values.get("sync_running_seconds").filter(|secs| *secs > 0.0),
            jobs: self.is_last.then(|| self.stats.jobs.iter().map(job).collect()),
        }
    }

    fn families(&self) -> Vec<Family> {
        let recorded = self.recorded();
        if !self.is_last {
            let of = |name: &str, figure: &str| self.values.get(&format!("family.{name}.{figure}"));
            let past = |name: &String| Family {
                name: name.clone(),
                rate: self.of_users(name),
                memtables: of(name, "memtable_bytes"),
                value_logs: of(name, "value_log_file_bytes"),
                ..Family::default()
            };
            return recorded.iter().map(past).collect();
        }
        let trees: HashMap<&str, &TreeStats> =
            self.stats.trees.iter().map(|tree| (tree.family.as_str(), tree)).collect();
        let now = |family: &tidesdb::FamilyStats| {
            let tree = trees.get(family.name.as_str());
            Family {
                rate: self.of_users(&family.name),
                memtables: Some(family.memtable_bytes as f64),
                bytes: Some(on_disk(family) as f64),
                value_logs: Some(family.value_log_file_bytes as f64),
                tables: tree.map(|tree| tree.tables as u64),
                debt: tree.map(|tree| tree.debt_bytes as f64),
                levels: tree.map_or_else(Vec::new, |tree| levels(tree)),
                name: family.name.clone(),
            }
        };
        self.stats.families.iter().map(now).collect()
    }
}

fn levels(tree: &TreeStats) -> Vec<Level> {
    let of = |level: &tidesdb::LevelStats| Level {
        level: level.level,
        tables: level.tables,
        runs: level.runs,
        bytes: level.bytes,
        capacity: level.capacity_bytes,
        fill: level.fill,
    };
    tree.levels.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::look;
    use super::super::track::tests::track;
    use super::*;

    fn operation<'a>(model: &'a Model, kind: &str) -> Option<&'a Operation> {
        model.operations.iter().find(|operation| operation.kind == kind)
    }

    fn near(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() <= wanted.abs() * 1e-9)
    }

    fn busy() -> Track {
        let at = |n: i64| {
            [
                ("puts.count", 10 * n),
                ("puts.p50", 1000 * n),
                ("puts.p999", 7_000_000),
                ("puts.longest", 9_000_000 - n),
                ("wal_bytes", 1000 * n),
                ("written_bytes", 3000 * n),
                ("family.default.user_bytes", 500 * n),
                ("family.quiet.user_bytes", 0),
                ("lookup_read_bytes", 10 * n),
                ("cache_hits", 30 * n),
                ("cache_misses", 10 * n),
                ("stall.tables.time", 2_000_000_000 * n),
                ("stall.tables.gave_up", n),
                ("disk_bytes", 77 + n),
                ("write_amplification", 2500),
                ("merge_debt_bytes", 4096),
                ("merge_debt_seconds", 1_500_000_000),
                ("memory_pressure", 2),
                ("health", 1),
            ]
        };
        let all: Vec<_> = (1..=20_u64).map(|n| (n, at(n as i64))).collect();
        let all: Vec<(u64, &[(&str, i64)])> = all.iter().map(|(n, figures)| (*n, &figures[..])).collect();
        track(&all)
    }

    #[test]
    fn rates_are_those_of_the_last_ten_seconds() {
        let look = look(busy());
        let model = Model::past(&look, 19);
        assert_eq!((model.window, model.health, model.is_last), (Some(10.0), "degraded", false));
        let puts = operation(&model, "puts").unwrap();
        assert_eq!(puts.total, 200 * 256);
        assert!(near(puts.rate, 2560.0), "one in 256 is measured: {puts:?}");
        assert!(near(puts.p50, 15e-6) || near(puts.p50, 16e-6), "{puts:?}");
        assert!(near(puts.longest, 8_999_989e-9), "{puts:?}");
        assert!(operation(&model, "gets").is_none(), "none was measured");
        assert!(
            near(model.flow.user, 500.0) && near(model.flow.log, 1000.0) && near(model.flow.tables, 2000.0)
        );
        assert!(near(model.amplification.write, 6.0) && near(model.amplification.write_all, 2.5));
        assert!(near(model.cache.share, 0.75) && near(model.cache.rate, 40.0));
        let [wait] = &model.waits[..] else { panic!("{:?}", model.waits) };
        assert!(
            wait.cause == "tables"
                && near(wait.rate, 2.0)
                && wait.gave_up == 20
                && near(Some(wait.total), 40.0)
        );
        assert_eq!(wait.recent, Some((38.0, 19.0)), "there are fewer seconds than five minutes");
        assert_eq!(model.work.merge_debt, Some((4096.0, 1.5)));
        assert!(model.work.jobs.is_none() && model.disk.free.is_none() && near(model.disk.database, 97.0));
        let names: Vec<_> = model.families.iter().map(|family| (family.name.as_str(), family.rate)).collect();
        assert_eq!(names, [("default", Some(500.0)), ("quiet", Some(0.0))]);
    }

    /// Of hundred families that are equally busy the history has ten.
    #[test]
    fn what_users_wrote_and_what_is_on_the_disk_are_those_of_all_families() {
        let at = |n: i64| {
            [
                ("wal_bytes", 1000 * n),
                ("written_bytes", 3000 * n),
                ("family.default.user_bytes", 10 * n),
                ("user_bytes", 1000 * n),
                ("disk_bytes", 70 + n),
            ]
        };
        let look = look(track(&[(1, &at(1)), (2, &at(2)), (3, &at(3))]));
        let model = Model::last(&look);
        assert!(near(model.flow.user, 1000.0) && near(model.amplification.write, 3.0), "{model:?}");
        assert!(near(model.disk.database, 73.0), "{:?}", model.disk);
    }

    #[test]
    fn spare_memory_is_not_what_the_limit_counts() {
        let mut look = look(Track::default());
        look.figures.stats.memory_spare_bytes = 0;
        let used = Model::last(&look).memory.used();
        look.figures.stats.memory_spare_bytes = 1 << 30;
        let memory = Model::last(&look).memory;
        assert!(near(Some(memory.used()), used) && near(memory.spare, (1 << 30) as f64), "{memory:?}");
    }

    /// The first second of a session has no rates: those of an earlier session would be shown.
    #[test]
    fn nothing_is_computed_across_sessions() {
        let look = look(track(&[
            (1, &[("puts.count", 500), ("wal_bytes", 70_000)]),
            (2, &[("puts.count", 3), ("wal_bytes", 90)]),
            (3, &[("puts.count", 13), ("wal_bytes", 100)]),
        ]));
        let model = Model::past(&look, 1);
        assert_eq!(
            (model.window, operation(&model, "puts").unwrap().rate, model.flow.log),
            (None, None, None)
        );
        assert!(near(Model::past(&look, 2).flow.log, 10.0));
    }

    #[test]
    fn the_last_figures_come_from_the_writer_and_an_idle_one_has_no_rate() {
        let mut look = look(busy());
        look.figures.stats.puts.count = 205;
        look.figures.stats.puts.sampled_one_in = 256;
        look.figures.stats.jobs = Vec::new();
        let model = Model::last(&look);
        assert!(model.is_last && near(model.disk.free, (25_u64 << 30) as f64));
        assert!(near(operation(&model, "puts").unwrap().rate, 2560.0));
        assert_eq!(model.health, "healthy");
        let [family] = &model.families[..] else { panic!("{:?}", model.families) };
        assert!(family.name == "default" && near(family.rate, 500.0) && family.bytes == Some(0.0));
        look.figures.state = WriterState::Idle;
        let model = Model::last(&look);
        assert_eq!(operation(&model, "puts").unwrap().rate, Some(0.0));
        assert_eq!((operation(&model, "puts").unwrap().p99, model.flow.log), (None, Some(0.0)));
    }

    #[test]
    fn a_database_without_history_has_figures_and_no_rates() {
        let look = look(Track::default());
        let model = Model::last(&look);
        assert_eq!((model.window, model.flow.log, model.families[0].rate), (None, None, None));
        assert!(model.memory.used() > 0.0 && model.amplification.space.is_none());
        let job = |bytes, done, seconds| Job {
            kind: "Full",
            family: String::new(),
            target: 2,
            bytes,
            done,
            seconds,
        };
        assert_eq!((job(100, 25, 5.0).speed(), job(100, 25, 5.0).left()), (Some(5.0), Some(15.0)));
        assert_eq!((job(0, 0, 0.0).speed(), job(0, 0, 0.0).share()), (None, 0.0));
        assert_eq!(job(5, 9, 1.0).left(), Some(0.0), "an estimate above the whole");
    }
}
