//! Plots over time: small charts, one per row, with a line for each engine and one for the limit of the device.

use super::super::lines::Line;
use super::super::svg::canvas::At;
use super::super::svg::{Canvas, Scale};
use super::super::words::{Unit, clipped, counted};
use super::contest::Contest;
use super::dots::{NARROW, WIDE, legend};
use super::{Cast, Chart, Drawn, Stage};
use crate::timeline::{Part, Second};

/// A drawing: its name, title and unit, and how its figure is taken from a line of the timeline.
struct Measure {
    slug: &'static str,
    title: &'static str,
    unit: Unit,
    pick: fn(&Line, &Second) -> Option<f64>,
    /// If set, each kind of operation has its own chart; otherwise each row has one.
    by_operation: bool,
    /// If set, the axis starts at 0, so that a second without operations is at the bottom.
    from_zero: bool,
}

/// Minimum length in seconds of a timeline line whose rate is drawn.
const SHORTEST: f64 = 0.2;

const MEASURES: [Measure; 8] = [
    Measure {
        slug: "throughput",
        title: "Operations per second; dashed: limit of the device in random reads of 4 KiB",
        unit: Unit::Rate,
        pick: |line, second| second.rate(&line.operation).filter(|_| second.part == Part::Run),
        by_operation: true,
        from_zero: true,
    },
    Measure {
        slug: "slowest",
        title: "The slowest operation of each second",
        unit: Unit::Micros,
        pick: |line, second| {
            let beat = second.beats.iter().find(|b| b.operation == line.operation)?;
            (beat.slowest > 0.0).then_some(beat.slowest)
        },
        by_operation: true,
        from_zero: false,
    },
    Measure {
        slug: "read",
        title: "Bytes read from the device per operation",
        unit: Unit::Bytes,
        pick: |_, second| per(second.read, second),
        by_operation: false,
        from_zero: true,
    },
    Measure {
        slug: "written",
        title: "Bytes written to the device per second",
        unit: Unit::Flow,
        pick: |_, second| (second.length > SHORTEST).then(|| second.written as f64 / second.length),
        by_operation: false,
        from_zero: true,
    },
    Measure {
        slug: "resident",
        title: "Resident memory",
        unit: Unit::Bytes,
        pick: |_, second| Some(second.resident as f64),
        by_operation: false,
        from_zero: true,
    },
    Measure {
        slug: "files",
        title: "Size of the files",
        unit: Unit::Bytes,
        pick: |_, second| Some(second.files as f64),
        by_operation: false,
        from_zero: true,
    },
    Measure {
        slug: "space",
        title: "Bytes on disk per byte of the keys and values that exist",
        unit: Unit::Times,
        pick: |_, second| (second.live > 0).then(|| second.allocated as f64 / second.live as f64),
        by_operation: false,
        from_zero: true,
    },
    Measure {
        slug: "debt",
        title: "Bytes that background work must still flush or merge, as each engine counts them",
        unit: Unit::Bytes,
        pick: |_, second| Some(second.debt as f64),
        by_operation: false,
        from_zero: true,
    },
];

fn per(bytes: u64, second: &Second) -> Option<f64> {
    (second.ops() > 0 && second.part == Part::Run).then(|| bytes as f64 / second.ops() as f64)
}

/// One chart.
struct Panel<'a> {
    title: String,
    /// Index of each engine, and its line of the results.
    lines: Vec<(usize, &'a Line)>,
}

/// Draws all measures; `None` if no row was watched.
pub(super) fn seconds(stage: &Stage<'_>) -> Option<Drawn> {
    let lines: Vec<&Line> = stage.lines.iter().copied().filter(|l| !l.seconds.is_empty()).collect();
    if lines.is_empty() {
        return None;
    }
    let draw = |measure: &Measure| {
        let panels = measure.panels(&lines, &stage.cast);
        let draw = |width| measure.draw(&panels, &stage.cast, width);
        let chart =
            || Chart { slug: measure.slug, title: measure.title, wide: draw(WIDE), narrow: draw(NARROW) };
        (!panels.is_empty()).then(chart)
    };
    let mut rows: Vec<&str> = lines.iter().map(|l| l.row.as_str()).collect();
    rows.dedup();
    let finding =
        format!("{} over time, background work after the operations included.", counted(rows.len(), "row"));
    Some((finding, MEASURES.iter().filter_map(draw).collect()))
}

impl Measure {
    /// Builds the charts that have data.
    fn panels<'a>(&self, lines: &[&'a Line], cast: &Cast<'_>) -> Vec<Panel<'a>> {
        let mut panels: Vec<Panel<'_>> = Vec::new();
        for line in lines.iter().filter(|line| !self.run(line).is_empty()) {
            let operation = if self.by_operation { line.operation.as_str() } else { "" };
            let title = format!("{} {operation}", line.row).trim_end().to_owned();
            let point = (cast.place(&line.engine), *line);
            match panels.iter_mut().find(|p| p.title == title) {
                // All kinds of operations of a row share its memory, files and bytes, so one line per engine is enough.
                Some(panel) if panel.lines.iter().any(|(place, _)| *place == point.0) => {}
                Some(panel) => panel.lines.push(point),
                None => panels.push(Panel { title, lines: vec![point] }),
            }
        }
        panels
    }

    fn draw(&self, panels: &[Panel<'_>], cast: &Cast<'_>, width: f64) -> Canvas {
        let mut canvas = Canvas::new(width, 0.0);
        let points = panels.iter().flat_map(|p| &p.lines).map(|(place, line)| (*place, line.rate)).collect();
        let top = legend(&mut canvas, &[Contest { points, ..Contest::default() }], cast, 8.0) + 12.0;
        let columns = if width < 500.0 { 1 } else { 2 };
        let (left, gap, height) = (56.0, 18.0, 130.0);
        let cell = (width - (left + gap) * columns as f64) / columns as f64;
        let block = height + 56.0;
        for (i, panel) in panels.iter().enumerate() {
            let x = left + (i % columns) as f64 * (cell + left + gap);
            let y = top + (i / columns) as f64 * block + 24.0;
            self.panel(&mut canvas, panel, cast, ((x, x + cell), (y + height, y)));
        }
        canvas.height = top + panels.len().div_ceil(columns) as f64 * block;
        canvas
    }

    /// Draws a chart within `x` (left, right) and `y` (bottom, top).
    fn panel(
        &self,
        canvas: &mut Canvas,
        panel: &Panel<'_>,
        cast: &Cast<'_>,
        (x, y): ((f64, f64), (f64, f64)),
    ) {
        let title = clipped(&panel.title, ((x.1 - x.0) / 7.0) as usize + 6);
        canvas.hinted((x.0 - 50.0, y.1 - 10.0), "small bold", (&title, &panel.title));
        let runs: Vec<(usize, Vec<(f64, f64)>)> =
            panel.lines.iter().map(|(place, line)| (*place, self.run(line))).collect();
        let limits: Vec<(usize, f64)> =
            panel.lines.iter().filter_map(|(place, line)| Some((*place, self.limit(line)?))).collect();
        let figures: Vec<f64> = runs
            .iter()
            .flat_map(|(_, run)| run.iter().map(|p| p.1))
            .chain(limits.iter().map(|l| l.1))
            .collect();
        let scale = match self.from_zero {
            true => Scale::linear(figures.iter().copied(), y),
            false => Scale::fitting(&figures, y),
        };
        for tick in scale.ticks(6) {
            canvas.line((x.0, scale.at(tick)), (x.1, scale.at(tick)), "grid");
            canvas.text((x.0 - 6.0, scale.at(tick) + 4.0), "soft small end", &self.unit.tick(tick));
        }
        canvas.line((x.0, y.0), (x.1, y.0), "rule");
        let time = Scale::linear(runs.iter().flat_map(|(_, run)| run.iter().map(|p| p.0)), x);
        for tick in time.ticks(5) {
            canvas.line((time.at(tick), y.0), (time.at(tick), y.0 + 4.0), "rule");
            canvas.text((time.at(tick), y.0 + 17.0), "soft small mid", &Unit::Seconds.tick(tick));
        }
        for (place, limit) in limits {
            let at = scale.at(limit);
            canvas.path(&[(x.0, at), (x.1, at)], &format!("run limit {}", cast.class(place)));
        }
        for (place, run) in runs.iter().rev() {
            let places: Vec<At> = run.iter().map(|(t, n)| (time.at(*t), scale.at(*n))).collect();
            match places[..] {
                // A single point has no line.
                [at] => canvas.mark(*place, at, &format!("{} tiny", cast.class(*place)), &cast.name(*place)),
                _ => canvas.path(&places, &format!("run {}", cast.class(*place))),
            }
        }
    }

    /// Returns time and figure of each timeline line. Lines too short for a rate are left out, unless all are too
    /// short.
    fn run(&self, line: &Line) -> Vec<(f64, f64)> {
        let own = self.by_operation.then(|| line.seconds_of_operation());
        let seconds = own.as_ref().unwrap_or(&line.seconds);
        let of = |shortest: f64| -> Vec<(f64, f64)> {
            let long = seconds.iter().filter(|s| s.length >= shortest);
            long.filter_map(|s| Some((s.at, (self.pick)(line, s)?))).collect()
        };
        let run = of(SHORTEST);
        if run.is_empty() { of(0.0) } else { run }
    }

    fn limit(&self, line: &Line) -> Option<f64> {
        let reads = self.slug == "throughput" && line.operation != "PUT";
        line.device.as_ref().filter(|_| reads).map(|d| d.rate).filter(|rate| *rate > 0.0)
    }
}
