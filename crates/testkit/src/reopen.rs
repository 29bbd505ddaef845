//! T41: a child process loads a real directory and is killed while it writes. A new process opens the database, reads
//! one key and reports how long that took and what it read and wrote.
//!
//! Thread `t` of the loader writes the keys `t:0`, `t:1`, ... and reports how far it got. So the opener knows keys that
//! must exist, and each value follows from its key.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidesdb::{Compression, Db, Family, FamilyOptions, SyncMode, WriteBatch};
use tidesdb_io::{Clock, RealClock};

use crate::process;
use crate::rng::Rng;

/// Threads of the loader.
pub const THREADS: usize = 2;
/// Bytes that all values are cut from; they do not compress.
const POOL_BYTES: usize = 3 << 20;
const VALUE_BYTES_MAX: u64 = 1 << 20;
/// Families of the case `rows`.
const ROW_FAMILIES: usize = 4;
/// Keys compared after the first read, per thread: the last acknowledged ones, and as many random ones.
const CHECKED: u64 = 500;

/// What the loader writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Values of 4 KiB to 1 MiB: much value log, little log.
    Values,
    /// Rows of 100 bytes in four families: full memtables, much log.
    Rows,
    /// Rows in very many small tables.
    Tables,
    /// Rows and values of all sizes, synced every 200 ms.
    Tail,
}

impl Case {
    /// All cases, by name.
    pub const ALL: [(&str, Self); 4] =
        [("values", Self::Values), ("rows", Self::Rows), ("tables", Self::Tables), ("tail", Self::Tail)];

    /// Finds a case by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, case)| *case)
    }

    fn sync_mode(self) -> SyncMode {
        match self {
            Self::Tail => SyncMode::Interval(Duration::from_millis(200)),
            _ => SyncMode::None,
        }
    }

    fn families(self) -> usize {
        if self == Self::Rows { ROW_FAMILIES } else { 1 }
    }

    fn options(self) -> FamilyOptions {
        let options = FamilyOptions::default().compression(Compression::None);
        match self {
            Self::Tables => options.table_bytes(64 << 10).write_buffer_bytes(4 << 20),
            _ => options,
        }
    }

    fn value_bytes(self, rng: &mut Rng) -> u64 {
        match self {
            Self::Values => (4 << 10 << rng.below(9)).min(VALUE_BYTES_MAX),
            Self::Rows | Self::Tables => 100,
            Self::Tail => 20 << rng.below(12),
        }
    }

    /// Rows in one commit.
    fn batch_rows(self) -> u64 {
        if matches!(self, Self::Rows | Self::Tables) { 50 } else { 1 }
    }
}

/// What a test of one case needs.
struct World {
    case: Case,
    db: Db,
    families: Vec<Family>,
    pool: Vec<u8>,
}

impl World {
    fn open(case: Case, path: &Path) -> Result<Self, String> {
        let db = Db::options(path)
            .sync(case.sync_mode())
            .default_family(case.options())
            .with(|o| o.disk_free_min = 0)
            .open()
            .map_err(|e| format!("open: {e}"))?;
        let mut families = vec![db.default_family().clone()];
        for n in 1..case.families() {
            let family = db.family_or_create(&format!("family{n}"), case.options());
            families.push(family.map_err(|e| format!("family: {e}"))?);
        }
        let mut rng = Rng::new(41);
        let pool = (0..POOL_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        Ok(Self { case, db, families, pool })
    }

    /// The key, family and value number `n` of `thread`. Keys are spread, so that tables overlap.
    fn row(&self, thread: usize, n: u64) -> (Vec<u8>, &Family, &[u8]) {
        let mut rng = Rng::new(n * THREADS as u64 + thread as u64);
        let mut key = rng.next_u64().to_le_bytes().to_vec();
        key.extend_from_slice(&((n << 8) | thread as u64).to_le_bytes());
        let len = self.case.value_bytes(&mut rng) as usize;
        let at = rng.below((POOL_BYTES - len) as u64) as usize;
        let family = rng.pick(&self.families);
        (key, family, &self.pool[at..at + len])
    }

    fn check(&self, thread: usize, n: u64) -> Result<(), String> {
        let (key, family, value) = self.row(thread, n);
        match family.get(&key) {
            Ok(Some(found)) if &found[..] == value => Ok(()),
            Ok(Some(_)) => Err(format!("row {n} of thread {thread} has another value")),
            Ok(None) => Err(format!("row {n} of thread {thread} was acknowledged and is gone")),
            Err(e) => Err(format!("row {n} of thread {thread}: {e}")),
        }
    }
}

/// Writes rows until the process is killed. Prints `ready` after `mib` MiB and `THREAD COUNT` after commits.
///
/// # Errors
/// Returns an unexpected error.
pub fn load(case: Case, path: &Path, mib: u64) -> Result<(), String> {
    let world = World::open(case, path)?;
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (world, written) = (&world, &written);
                scope.spawn(move || load_for_ever(world, t, written, mib << 20))
            })
            .collect();
        let results = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a panic".into())));
        results.collect::<Result<Vec<()>, String>>().map(drop)
    })
}

fn load_for_ever(world: &World, thread: usize, written: &AtomicU64, target: u64) -> Result<(), String> {
    let mut batch = WriteBatch::new();
    let (mut n, mut said) = (0, 0);
    loop {
        let mut bytes = 0;
        for _ in 0..world.case.batch_rows() {
            let (key, family, value) = world.row(thread, n);
            if n.is_multiple_of(5) {
                batch.put(family, &key, b"first").map_err(|e| e.to_string())?; // the second write counts
            }
            batch.put(family, &key, value).map_err(|e| e.to_string())?;
            bytes += (key.len() + value.len()) as u64;
            n += 1;
        }
        world.db.write(&mut batch).map_err(|e| format!("commit: {e}"))?;
        let before = written.fetch_add(bytes, Relaxed);
        let ready = before < target && before + bytes >= target;
        if ready || n - said >= 16 {
            said = n;
            let mut line = format!("{thread} {n}\n");
            if ready {
                line.push_str("ready\n");
            }
            std::io::stdout().write_all(line.as_bytes()).map_err(|e| e.to_string())?;
        }
    }
}

/// Figures of the opening process, in the order of [`Opened::NAMES`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened(pub [u64; 12]);

impl Opened {
    /// Names of the figures.
    pub const NAMES: [&str; 12] = [
        "open_us",
        "first_read_us",
        "first_write_us",
        "open_read_kib",
        "open_written_kib",
        "open_calls",
        "later_written_kib",
        "log_kib",
        "commits",
        "rss_mib",
        "checked",
        "open_cpu_ms",
    ];

    fn line(&self) -> String {
        self.0.map(|n| n.to_string()).join(" ")
    }

    fn parse(line: &str) -> Option<Self> {
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        numbers.try_into().ok().map(Self)
    }
}

/// Fields of `/proc/self/io`: bytes read, bytes written, calls.
fn io_so_far() -> [u64; 3] {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    [field("rchar"), field("wchar"), field("syscr") + field("syscw")]
}

/// Processor time of all threads of this process, in steps of 10 ms. On a busy machine it says more than the clock.
fn processor_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10
}

/// Peak memory of this process in KiB.
fn peak_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Opens the database, reads and writes one key, compares keys that were acknowledged, and prints the figures.
///
/// # Errors
/// Returns an unexpected error or a lost row.
pub fn open(case: Case, path: &Path, acked: [u64; THREADS]) -> Result<(), String> {
    let clock = RealClock::new();
    let (started, before) = (clock.mono(), io_so_far());
    let world = World::open(case, path)?;
    let (opened, after) = (clock.mono(), io_so_far());
    let (rss, processor) = (peak_kib(), processor_ms());
    if acked[0] > 0 {
        world.check(0, acked[0] - 1)?;
    }
    let first_read = clock.mono();
    world.db.put(b"first", b"write").map_err(|e| format!("write: {e}"))?;
    let first_write = clock.mono();
    let later = io_so_far();
    let mut rng = Rng::new(acked[0]);
    let mut checked = 0;
    for (thread, acked) in acked.iter().enumerate() {
        for back in 1..=CHECKED.min(*acked) {
            world.check(thread, acked - back)?;
            world.check(thread, rng.below(*acked))?;
            checked += 2;
        }
    }
    let report = world.db.recovery_report().clone();
    let micros = |d: Duration| d.as_micros() as u64;
    let figures = Opened([
        micros(opened - started),
        micros(first_read - started),
        micros(first_write - started),
        (after[0] - before[0]) >> 10,
        (after[1] - before[1]) >> 10,
        after[2] - before[2],
        (later[1] - after[1]) >> 10,
        report.log_bytes >> 10,
        report.commits,
        rss >> 10,
        checked,
        processor,
    ]);
    println!("{}", figures.line());
    world.db.abandon();
    Ok(())
}

/// Loads `path`, kills the loader and opens the database in a new process.
///
/// # Errors
/// Returns the first broken promise.
pub fn trial(path: &Path, case: &str, mib: u64, rng: &mut Rng) -> Result<Opened, String> {
    let acked = load_and_kill(path, case, mib, rng)?;
    let mut command = process::itself()?;
    command.arg("--open").arg(case).arg(path).args(acked.map(|n| n.to_string()));
    let out = command.stderr(Stdio::inherit()).output().map_err(|e| format!("spawn: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let figures = text.lines().last().and_then(Opened::parse);
    match figures {
        Some(figures) if out.status.success() => Ok(figures),
        _ => Err(format!("the opener ended with {}", out.status)),
    }
}

fn load_and_kill(path: &Path, case: &str, mib: u64, rng: &mut Rng) -> Result<[u64; THREADS], String> {
    let mut command = process::itself()?;
    command.arg("--load").arg(case).arg(path).arg(mib.to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("spawn: {e}"))?;
    let pipe = child.stdout.take().ok_or("no pipe")?;
    let (ready, pause) = (AtomicU64::new(0), Duration::from_millis(rng.below(1500)));
    std::thread::scope(|scope| {
        let listener = scope.spawn(|| listen(BufReader::new(pipe), &ready));
        let clock = RealClock::new();
        while ready.load(Relaxed) == 0 && matches!(child.try_wait(), Ok(None)) {
            clock.sleep(Duration::from_millis(5));
        }
        clock.sleep(pause);
        let ended = child.try_wait();
        let killed = child.kill().and_then(|()| child.wait());
        let acked = listener.join().map_err(|_| "the listener panicked")?;
        match (ended, killed) {
            (Ok(None), Ok(_)) => Ok(acked),
            other => Err(format!("the loader ended before it was killed: {other:?}")),
        }
    })
}

fn listen(pipe: impl BufRead, ready: &AtomicU64) -> [u64; THREADS] {
    let mut acked = [0; THREADS];
    for line in pipe.lines().map_while(Result::ok) {
        if line == "ready" {
            ready.store(1, Relaxed);
        } else if let Some((thread, n)) = line.split_once(' ')
            && let (Ok(thread), Ok(n)) = (thread.parse::<usize>(), n.parse())
            && let Some(place) = acked.get_mut(thread)
        {
            *place = n;
        }
    }
    acked
}

/// The directory of a trial, which is emptied first.
///
/// # Errors
/// Returns the error of the system.
pub fn empty(path: &Path) -> Result<PathBuf, String> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e.to_string()),
        _ => Ok(path.to_owned()),
    }
}

/// Columns of the table: title, figure, and divisor.
const COLUMNS: [(&str, &str, f64); 7] = [
    ("first read, ms", "first_read_us", 1e3),
    ("open, ms", "open_us", 1e3),
    ("read, MiB", "open_read_kib", 1024.0),
    ("written, MiB", "open_written_kib", 1024.0),
    ("log, MiB", "log_kib", 1024.0),
    ("RSS, MiB", "rss_mib", 1.0),
    ("processor, ms", "open_cpu_ms", 1.0),
];

/// Formats a file of figures as a table in Markdown, with the slowest trial of each case and size.
pub fn table(csv: &str) -> String {
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap_or_default();
    let place = |name: &str| head.iter().position(|n| *n == name);
    let figure = |row: &[&str], name| -> f64 {
        place(name).and_then(|at| row.get(at)).and_then(|n| n.parse().ok()).unwrap_or(0.0)
    };
    let mut worst: Vec<Vec<&str>> = Vec::new();
    for row in lines {
        match worst.iter_mut().find(|w| w[..2.min(w.len())] == row[..2.min(row.len())]) {
            Some(known) if figure(known, "first_read_us") >= figure(&row, "first_read_us") => {}
            Some(known) => *known = row,
            None => worst.push(row),
        }
    }
    let titles = COLUMNS.map(|(title, ..)| title).join(" | ");
    let mut out = format!("| case | loaded, MiB | {titles} |\n|{}\n", " --- |".repeat(2 + COLUMNS.len()));
    for row in &worst {
        let cells = COLUMNS.map(|(_, name, by)| format!("{:.1}", figure(row, name) / by));
        let (case, mib) = (row.first().unwrap_or(&""), row.get(1).unwrap_or(&""));
        out.push_str(&format!("| {case} | {mib} | {} |\n", cells.join(" | ")));
    }
    out
}

const PLOT: (f64, f64) = (560.0, 300.0);
const COLOURS: [&str; 4] = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e5ea2"];

/// Draws a file of figures: the time to the first read against the bytes that were loaded, with a line at one second.
pub fn plot(csv: &str) -> String {
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let number = |row: &[&str], n: usize| row.get(n).and_then(|x| x.parse::<f64>().ok()).unwrap_or(0.0);
    let x = |mib: f64| 60.0 + mib.max(16.0).log2() / 16.0 * (PLOT.0 - 80.0) - 4.0 / 16.0 * (PLOT.0 - 80.0);
    let y = |micros: f64| {
        PLOT.1 - 40.0 - micros.clamp(1e3, 1e7).log10() / 4.0 * (PLOT.1 - 70.0) + 3.0 / 4.0 * (PLOT.1 - 70.0)
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        PLOT.0, PLOT.1
    );
    let mut text = |x: f64, y: f64, what: &str, fill: &str| {
        out.push_str(&format!("<text x=\"{x:.0}\" y=\"{y:.0}\" fill=\"{fill}\">{what}</text>\n"));
    };
    text(60.0, 16.0, "Time from the start of the open to the first read, after a kill under load", "#000");
    for (micros, name) in [(1e3, "1 ms"), (1e4, "10 ms"), (1e5, "100 ms"), (1e6, "1 s"), (1e7, "10 s")] {
        text(14.0, y(micros) + 4.0, name, "#333");
    }
    for (mib, name) in [(64.0, "64 MiB"), (1024.0, "1 GiB"), (10240.0, "10 GiB"), (40960.0, "40 GiB")] {
        text(x(mib) - 15.0, PLOT.1 - 22.0, name, "#333");
    }
    text(PLOT.0 / 2.0 - 40.0, PLOT.1 - 6.0, "data loaded", "#333");
    for (n, (name, _)) in Case::ALL.iter().enumerate() {
        text(PLOT.0 - 60.0, 50.0 + 14.0 * n as f64, name, COLOURS[n]);
    }
    let second = y(1e6);
    out.push_str(&format!(
        "<path d=\"M60 {second:.0}H{:.0}\" stroke=\"#999\" stroke-dasharray=\"4\"/>\n\
         <path d=\"M60 {:.0}V{:.0}H{:.0}\" stroke=\"#333\" fill=\"none\"/>\n",
        PLOT.0 - 20.0,
        y(1e7),
        y(1e3),
        PLOT.0 - 20.0
    ));
    for row in &rows {
        let case = Case::ALL.iter().position(|(name, _)| row.first() == Some(name)).unwrap_or(0);
        let (cx, cy) = (x(number(row, 1)), y(number(row, 4)));
        out.push_str(&format!(
            "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{}\"/>\n",
            COLOURS[case]
        ));
    }
    out.push_str("</svg>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_the_slowest_trial_of_each_case_and_size() {
        let line = |case: &str, mib: u64, first_read: u64| {
            let mut figures = [0; 12];
            (figures[1], figures[3]) = (first_read, 2048);
            format!("{case},{mib},0,{}\n", figures.map(|n| n.to_string()).join(","))
        };
        let csv = format!("case,mib,trial,{}\n", Opened::NAMES.join(","))
            + &line("rows", 64, 5000)
            + &line("rows", 64, 7500)
            + &line("rows", 1024, 9000)
            + &line("values", 64, 100);
        let table = table(&csv);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), 3, "{table}");
        assert!(rows[0].starts_with("| rows | 64 | 7.5 | 0.0 | 2.0 |"), "{table}");
        assert!(rows[2].starts_with("| values | 64 | 0.1 |"), "{table}");
        let svg = plot(&csv);
        assert_eq!(svg.matches("<circle").count(), 4);
    }
}
