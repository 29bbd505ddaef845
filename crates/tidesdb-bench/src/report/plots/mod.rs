//! The plots of a report: eighteen kinds, each drawn if the results have the data, each with a sentence on what is better
//! and one on which engine wins where.

mod contest;
mod dots;
mod facets;
mod scaling;
mod seconds;

#[cfg(test)]
mod tests;

use super::lines::{Line, OURS, Spread, YARDSTICK};
use super::score::{Better, Mark, Score};
use super::svg::Canvas;
use super::words::{Unit, counted};

pub(crate) use contest::{Cast, Contest};
use contest::{contests, finding};
pub(crate) use dots::{Dots, NARROW, WIDE, ratio_spread};
use facets::{Facet, Facets};

/// A plot with one or several drawings.
#[derive(Clone)]
pub(crate) struct Plot {
    /// Its number, from 1.
    pub(crate) number: usize,
    /// Its name in files and links.
    pub(crate) slug: &'static str,
    /// Its title.
    pub(crate) title: &'static str,
    /// What is shown and what is better.
    pub(crate) caption: &'static str,
    /// Sentence on which engine wins where.
    pub(crate) finding: String,
    /// What is drawn.
    pub(crate) charts: Vec<Chart>,
}

/// A drawing in both widths.
#[derive(Clone)]
pub(crate) struct Chart {
    /// Suffix of the file name; empty if it is the only drawing.
    pub(crate) slug: &'static str,
    /// Title above the drawing; empty if it is the only one.
    pub(crate) title: &'static str,
    /// For screens.
    pub(crate) wide: Canvas,
    /// For phones.
    pub(crate) narrow: Canvas,
}

/// The finding, and the drawings.
type Drawn = (String, Vec<Chart>);

/// Selects a figure of a line.
type Pick = fn(&Line) -> Spread;

/// A kind of plot.
struct Kind {
    slug: &'static str,
    title: &'static str,
    caption: &'static str,
    make: fn(&Stage<'_>) -> Option<Drawn>,
}

/// Input of plots.
struct Stage<'a> {
    /// Lines that did not fail.
    lines: Vec<&'a Line>,
    cast: Cast<'a>,
    score: &'a Score,
}

const KINDS: [Kind; 18] = [
    Kind {
        slug: "speedup",
        title: "Speedup over each rival",
        caption: "How many times as fast as each rival tidesdb is in each row; right of 1\u{d7} is better. A hollow sign is a tie.",
        make: speedup,
    },
    Kind {
        slug: "writes",
        title: "Throughput of writes",
        caption: "Operations per second; higher is better. Signs are medians, bars are the ranges of the repetitions. TX counts whole transactions.",
        make: |s| s.rates(&["PUT", "UPDATE", "INSERT", "MODIFY", "APPEND", "CHURN", "TX"]),
    },
    Kind {
        slug: "reads",
        title: "Throughput of reads",
        caption: "Operations per second; higher is better.",
        make: |s| s.rates(&["GET", "MULTIGET"]),
    },
    Kind {
        slug: "deletes",
        title: "Throughput of deletes",
        caption: "Operations per second; higher is better. TAKE finds the front of a queue by a scan and deletes it.",
        make: |s| s.rates(&["DELETE", "TAKE"]),
    },
    Kind {
        slug: "seeks",
        title: "Throughput of seeks",
        caption: "Seeks per second with a long-lived cursor; higher is better.",
        make: |s| s.rates(&["SEEK"]),
    },
    Kind {
        slug: "ranges",
        title: "Throughput of ranges and iteration",
        caption: "Ranges per second, and rows per second of ITER, which reads everything in order after each row; higher is better.",
        make: ranges,
    },
    Kind {
        slug: "batches",
        title: "Batch sizes",
        caption: "Operations per second by the number of operations per commit, with all other settings equal; higher is better.",
        make: scaling::batches,
    },
    Kind {
        slug: "values",
        title: "Value sizes",
        caption: "Bytes of keys and values per second by the size of a value, with all other settings equal; higher is better.",
        make: scaling::values,
    },
    Kind {
        slug: "latencies",
        title: "Latency percentiles",
        caption: "Latency of a commit or a read at the percentiles 50, 95, 99 and 99.9; lower is better, and flatter is steadier.",
        make: latencies,
    },
    Kind {
        slug: "tails",
        title: "Latency tails",
        caption: "99th percentile divided by the median latency; lower is better.",
        make: |s| s.figures(true, Unit::Times, |l| l.p99.over(&l.p50)),
    },
    Kind {
        slug: "variability",
        title: "Latency variability",
        caption: "Standard deviation of the latency in percent of its mean; lower is better.",
        make: |s| s.figures(true, Unit::Percent, |l| l.variation),
    },
    Kind {
        slug: "write-amplification",
        title: "Write amplification",
        caption: "Bytes written to the device per byte of keys and values, including all background work; lower is better.",
        make: |s| s.figures(false, Unit::Times, |l| l.write_amp),
    },
    Kind {
        slug: "space-amplification",
        title: "Space amplification",
        caption: "Bytes of the files per byte of existing keys and values; lower is better.",
        make: |s| s.figures(false, Unit::Times, |l| l.space_amp),
    },
    Kind {
        slug: "sizes",
        title: "Size of the database",
        caption: "Bytes of all files after the close; lower is better.",
        make: |s| s.figures(false, Unit::Bytes, |l| l.size),
    },
    Kind {
        slug: "resources",
        title: "Resources",
        caption: "Processor time per million operations, including background threads, and peak memory; lower is better.",
        make: resources,
    },
    Kind {
        slug: "durations",
        title: "Durations",
        caption: "Time from the open until the operations are done and all rows were read; lower is better.",
        make: durations,
    },
    Kind {
        slug: "threads",
        title: "Durable commits over threads",
        caption: "Operations per second by the number of threads, every commit durable; higher is better.",
        make: scaling::threads,
    },
    Kind {
        slug: "seconds",
        title: "Second by second",
        caption: "Rows with a line per second, in seconds since their operations began. Steadier is better; a dashed line is the device's own limit.",
        make: seconds::seconds,
    },
];

/// Returns the plots that these lines have data for, and number and title of the others.
pub(crate) fn plots(
    lines: &[Line],
    names: &[String],
    score: &Score,
) -> (Vec<Plot>, Vec<(usize, &'static str)>) {
    // In comparisons the null engine would only stretch the axes.
    let shown = |l: &&Line| l.is_measured() && (score.rivals.is_empty() || l.engine != YARDSTICK);
    let stage = Stage { lines: lines.iter().filter(shown).collect(), cast: Cast { names }, score };
    let (mut made, mut missing) = (Vec::new(), Vec::new());
    for (number, kind) in (1..).zip(&KINDS) {
        let Kind { slug, title, caption, make } = *kind;
        match make(&stage) {
            Some((finding, charts)) => {
                made.push(Plot { number, slug, title, caption, finding, charts });
            }
            None => missing.push((number, title)),
        }
    }
    (made, missing)
}

impl Stage<'_> {
    /// Draws the rates of these operations.
    fn rates(&self, operations: &[&str]) -> Option<Drawn> {
        let lines: Vec<&Line> =
            self.lines.iter().copied().filter(|l| operations.contains(&l.operation.as_str())).collect();
        let all = contests(&lines, &self.cast, true, |l| l.rate);
        self.dots(&all, Unit::Rate, Better::Higher)
    }

    /// Draws a figure where lower is better, per operation or per row.
    fn figures(&self, by_operation: bool, unit: Unit, pick: Pick) -> Option<Drawn> {
        let lines: Vec<&Line> =
            self.lines.iter().copied().filter(|l| !by_operation || !l.is_opening()).collect();
        self.dots(&contests(&lines, &self.cast, by_operation, pick), unit, Better::Lower)
    }

    fn dots(&self, all: &[Contest], unit: Unit, better: Better) -> Option<Drawn> {
        if all.is_empty() {
            return None;
        }
        let chart = dots_chart(Dots { unit, better, around_one: None }, all, &self.cast);
        Some((finding(all, &self.cast, better, unit), vec![chart]))
    }

    fn facets(&self, facets: Facets, all: &[Facet]) -> Vec<Chart> {
        let draw = |width| facets.draw(all, &self.cast, width);
        vec![Chart { slug: "", title: "", wide: draw(WIDE), narrow: draw(NARROW) }]
    }
}

/// Draws dots in both widths.
fn dots_chart(dots: Dots, all: &[Contest], cast: &Cast<'_>) -> Chart {
    let draw = |width| dots.draw(all, cast, width);
    Chart { slug: "", title: "", wide: draw(WIDE), narrow: draw(NARROW) }
}

impl Spread {
    /// Returns the figure divided by another, median by median.
    fn over(&self, other: &Self) -> Self {
        let n = if other.is_there() { self.median / other.median } else { 0.0 };
        Self { low: n, median: n, high: n }
    }
}

fn speedup(stage: &Stage<'_>) -> Option<Drawn> {
    let score = stage.score;
    let mut all: Vec<Contest> = Vec::new();
    for duel in &score.duels {
        let line = stage.lines.iter().find(|l| l.row == duel.row && l.operation == duel.operation)?;
        let note = contest::note(line, true);
        let point = (stage.cast.place(&duel.rival), ratio_spread(duel.ratio.value, duel.ratio.mark));
        match all.iter_mut().find(|c| c.label == duel.row && c.note == note) {
            Some(contest) => contest.points.push(point),
            None => all.push(Contest { label: duel.row.clone(), note, points: vec![point] }),
        }
    }
    if all.is_empty() {
        return None;
    }
    let mean = |c: &Contest| super::score::geometric_mean(c.points.iter().map(|(_, s)| s.median));
    all.sort_by(|a, b| mean(b).partial_cmp(&mean(a)).unwrap_or(std::cmp::Ordering::Equal));
    let dots = Dots { unit: Unit::Times, better: Better::Higher, around_one: Some(OURS) };
    Some((speedup_finding(score), vec![dots_chart(dots, &all, &stage.cast)]))
}

fn speedup_finding(score: &Score) -> String {
    let marks = |mark| score.duels.iter().filter(|d| d.ratio.mark == mark).count();
    let mut out = format!(
        "Of {}, {OURS} wins {}, ties {} and loses {}.",
        counted(score.duels.len(), "comparison"),
        marks(Mark::Win),
        marks(Mark::Tie),
        marks(Mark::Loss)
    );
    for class in score.classes() {
        let of = |rival: &String| Some((rival.clone(), score.mean(class, rival)?));
        let means: Vec<String> = score
            .rivals
            .iter()
            .filter_map(of)
            .map(|(rival, mean)| format!("{} over {rival}", Unit::Times.show(mean)))
            .collect();
        out += &format!(" Geometric mean in class {}: {}.", class.name(), means.join(", "));
    }
    out
}

fn latencies(stage: &Stage<'_>) -> Option<Drawn> {
    let stops: [(f64, &str, Pick); 4] = [
        (0.0, "p50", |l| l.p50),
        (1.0, "p95", |l| l.p95),
        (2.0, "p99", |l| l.p99),
        (3.0, "p99.9", |l| l.p999),
    ];
    let mut all: Vec<Facet> = Vec::new();
    let lines: Vec<&Line> = stage.lines.iter().copied().filter(|l| !l.is_opening()).collect();
    for (at, label, pick) in stops {
        for contest in contests(&lines, &stage.cast, true, pick) {
            let title = contest.name();
            let stop = (at, Contest { label: label.to_owned(), ..contest });
            match all.iter_mut().find(|f| f.title == title) {
                Some(facet) => facet.stops.push(stop),
                None => all.push(Facet { title, stops: vec![stop] }),
            }
        }
    }
    if all.is_empty() {
        return None;
    }
    let at_99 = contests(&lines, &stage.cast, true, |l| l.p99);
    let finding = finding(&at_99, &stage.cast, Better::Lower, Unit::Micros);
    let finding = format!("At the 99th percentile: {finding}");
    Some((finding, stage.facets(Facets { unit: Unit::Micros, small: true }, &all)))
}

/// A part of a plot of several drawings.
struct Part {
    slug: &'static str,
    title: &'static str,
    word: &'static str,
    unit: Unit,
    better: Better,
    all: Vec<Contest>,
}

/// Draws each part that has figures.
fn parts(stage: &Stage<'_>, parts: Vec<Part>) -> Option<Drawn> {
    let (mut findings, mut charts) = (Vec::new(), Vec::new());
    for Part { slug, title, word, unit, better, all } in parts {
        if all.is_empty() {
            continue;
        }
        let dots = Dots { unit, better, around_one: None };
        charts.push(Chart { slug, title, ..dots_chart(dots, &all, &stage.cast) });
        findings.push(format!("{word}: {}", finding(&all, &stage.cast, better, unit)));
    }
    (!charts.is_empty()).then(|| (findings.join(" "), charts))
}

fn ranges(stage: &Stage<'_>) -> Option<Drawn> {
    let rates = |names: &[&str]| {
        let wanted = |l: &&Line| names.contains(&l.operation.as_str());
        let lines: Vec<&Line> = stage.lines.iter().copied().filter(wanted).collect();
        contests(&lines, &stage.cast, true, |l| l.rate)
    };
    let part =
        |slug, title, word, all| Part { slug, title, word, unit: Unit::Rate, better: Better::Higher, all };
    let all = vec![
        part("ranges", "Ranges and scans", "Ranges", rates(&["RANGE", "SCAN"])),
        part("iteration", "Rows of ITER", "Iteration", rates(&["ITER"])),
    ];
    parts(stage, all)
}

fn resources(stage: &Stage<'_>) -> Option<Drawn> {
    let of = |pick: Pick| contests(&stage.lines, &stage.cast, false, pick);
    let part = |slug, title, word, unit, all| Part { slug, title, word, unit, better: Better::Lower, all };
    let all = vec![
        part(
            "processor",
            "Processor time per million operations",
            "Processor",
            Unit::Seconds,
            of(|l| l.processor),
        ),
        part("memory", "Peak memory", "Memory", Unit::Bytes, of(|l| l.memory)),
    ];
    parts(stage, all)
}

fn durations(stage: &Stage<'_>) -> Option<Drawn> {
    let of = |wanted: fn(&Line) -> bool, by_operation, pick: Pick| {
        let lines: Vec<&Line> = stage.lines.iter().copied().filter(|l| wanted(l)).collect();
        contests(&lines, &stage.cast, by_operation, pick)
    };
    let part =
        |slug, title, word, all| Part { slug, title, word, unit: Unit::Seconds, better: Better::Lower, all };
    let all = vec![
        part("rows", "Whole rows", "Rows", of(|l| l.spec.seconds <= 0.0, false, |l| l.wall)),
        part(
            "opening",
            "Opening, after a clean close (OPEN) and after a kill (REOPEN)",
            "Opening",
            of(Line::is_opening, true, |l| l.p50.map(|micros| micros / 1e6)),
        ),
    ];
    parts(stage, all)
}
