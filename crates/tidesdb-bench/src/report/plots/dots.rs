//! A plot of one figure: a row of dots for each contest, one dot per engine at its median with the range of its
//! repetitions. At the side are this engine's figure and the comparison with the best rival.

use super::super::lines::Spread;
use super::super::score::{Better, Mark};
use super::super::svg::canvas::CHARACTER;
use super::super::svg::{Canvas, Scale};
use super::super::words::{Unit, clipped};
use super::contest::{Cast, Contest};

/// Settings of the drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dots {
    /// Unit of the figures.
    pub(crate) unit: Unit,
    /// Which direction is better.
    pub(crate) better: Better,
    /// If the figures are ratios around 1: the engine that is better above 1.
    pub(crate) around_one: Option<&'static str>,
}

/// Width of a drawing for a screen.
pub(crate) const WIDE: f64 = 780.0;
/// Width of a drawing for a phone.
pub(crate) const NARROW: f64 = 350.0;

/// Positions of the parts of the drawing.
struct Layout {
    narrow: bool,
    width: f64,
    /// Left and right end of the axis.
    axis: (f64, f64),
    /// Top of the first row.
    top: f64,
    /// Height of a row.
    row: f64,
    /// Maximum number of characters of a label.
    letters: usize,
    /// True if there is a column for the comparison with the best rival.
    versus: bool,
}

/// Widths of the two columns at the right.
const FIGURE: f64 = 58.0;

impl Layout {
    fn new(contests: &[Contest], width: f64, top: f64, versus: bool) -> Self {
        let longest = contests.iter().map(|c| c.name().chars().count()).max().unwrap_or(0);
        if width < 500.0 {
            let letters = ((width - 150.0) / CHARACTER) as usize;
            return Self { narrow: true, width, axis: (8.0, width - 8.0), top, row: 42.0, letters, versus };
        }
        let label = (longest as f64 * CHARACTER + 14.0).clamp(90.0, 325.0);
        let letters = ((label - 12.0) / CHARACTER) as usize;
        let axis = (label, width - if versus { 2.0 * FIGURE + 26.0 } else { FIGURE + 18.0 });
        Self { narrow: false, width, axis, top, row: 25.0, letters, versus }
    }

    /// Returns the right end of the column of figures.
    fn figure(&self) -> f64 {
        self.width - if self.versus { FIGURE + 8.0 } else { 0.0 }
    }

    /// Returns the vertical centre of the dots of a row.
    fn y(&self, row: usize) -> f64 {
        let inside = if self.narrow { 28.0 } else { self.row / 2.0 };
        self.top + row as f64 * self.row + inside
    }

    /// Returns where grid lines are drawn: everywhere, except through names above their dots.
    fn lanes(&self, rows: usize) -> Vec<(f64, f64)> {
        match self.narrow {
            true => (0..rows).map(|row| (self.y(row) - 9.0, self.y(row) + 9.0)).collect(),
            false => vec![(self.top, self.bottom(rows))],
        }
    }

    fn bottom(&self, rows: usize) -> f64 {
        self.top + rows as f64 * self.row
    }
}

impl Dots {
    /// Draws the plot.
    pub(crate) fn draw(&self, contests: &[Contest], cast: &Cast<'_>, width: f64) -> Canvas {
        let mut canvas = Canvas::new(width, 0.0);
        let legend = legend(&mut canvas, contests, cast, 8.0);
        let top = legend + if self.around_one.is_some() { 44.0 } else { 30.0 };
        let versus = contests.iter().any(|c| self.side(c, cast).1.is_some());
        let layout = Layout::new(contests, width, top, versus);
        let figures: Vec<f64> =
            contests.iter().flat_map(|c| &c.points).flat_map(|(_, s)| [s.low, s.high]).collect();
        let scale = match self.around_one.is_some() {
            true => Scale::log(figures.into_iter().chain([0.8, 1.25]), layout.axis),
            false => Scale::fitting(&figures, layout.axis),
        };
        self.axis(&mut canvas, &layout, &scale, contests.len());
        for (i, contest) in contests.iter().enumerate() {
            self.label(&mut canvas, &layout, i, contest, cast);
            self.points(&mut canvas, layout.y(i), &scale, contest, cast);
        }
        canvas.height = layout.bottom(contests.len()) + if contests.len() > 12 { 22.0 } else { 6.0 };
        canvas
    }

    fn axis(&self, canvas: &mut Canvas, layout: &Layout, scale: &Scale, rows: usize) {
        let (top, bottom) = (layout.top, layout.bottom(rows));
        if self.around_one.is_some() {
            let one = scale.at(1.0);
            for (top, bottom) in layout.lanes(rows) {
                canvas.rect((layout.axis.0, top), (one - layout.axis.0, bottom - top), "lossside");
                canvas.rect((one, top), (layout.axis.1 - one, bottom - top), "winside");
            }
            canvas.text((one - 8.0, top - 24.0), "small end loss", "\u{25bc} slower");
            canvas.text((one + 8.0, top - 24.0), "small win", "faster \u{25b2}");
        }
        for row in 1..rows {
            let y = top + row as f64 * layout.row;
            canvas.line((0.0, y), (layout.width, y), "grid");
        }
        for tick in scale.ticks(if layout.narrow { 5 } else { 7 }) {
            let x = scale.at(tick);
            for (top, bottom) in layout.lanes(rows) {
                canvas.line((x, top), (x, bottom), "grid");
            }
            let place = match x {
                x if x < 16.0 => "",
                x if x > layout.width - 16.0 => " end",
                _ => " mid",
            };
            canvas.text((x, top - 7.0), &format!("soft small{place}"), &self.unit.tick(tick));
            if rows > 12 {
                canvas.text((x, bottom + 15.0), &format!("soft small{place}"), &self.unit.tick(tick));
            }
        }
        canvas.line((layout.axis.0, top), (layout.axis.1, top), "rule");
        if self.around_one.is_some() {
            for (top, bottom) in layout.lanes(rows) {
                canvas.line((scale.at(1.0), top), (scale.at(1.0), bottom), "one");
            }
        }
        if !layout.narrow {
            let (first, second) =
                if self.around_one.is_some() { ("mean", "worst") } else { ("tidesdb", "vs best") };
            canvas.text((layout.figure(), top - 7.0), "soft small end", first);
            if layout.versus {
                canvas.text((layout.width, top - 7.0), "soft small end", second);
            }
        }
    }

    fn label(&self, canvas: &mut Canvas, layout: &Layout, i: usize, contest: &Contest, cast: &Cast<'_>) {
        let y = if layout.narrow { layout.top + i as f64 * layout.row + 14.0 } else { layout.y(i) + 4.0 };
        let left = layout.letters.saturating_sub(contest.note.chars().count() + 1).max(6);
        canvas.label((0.0, y), (&clipped(&contest.label, left), &contest.note), &contest.name());
        let (figure, end) = self.side(contest, cast);
        let end_text = end.as_ref().map_or("", |(_, text)| text.as_str());
        if let Some((mark, _)) = &end {
            canvas.text((layout.width, y), &format!("end bold {}", mark.word()), end_text);
        }
        canvas.text((layout.figure(), y), "end soft", &figure);
    }

    /// Returns this engine's figure, or the mean of its ratios; and the comparison with the best rival.
    fn side(&self, contest: &Contest, cast: &Cast<'_>) -> (String, Option<(Mark, String)>) {
        let signed = |mark: Mark, n: f64| (mark, format!("{} {}", Unit::Times.show(n), mark.sign()));
        if self.around_one.is_some() {
            let there = contest.points.iter().filter(|(place, _)| !cast.is_yardstick(*place));
            let medians: Vec<f64> = there.map(|(_, s)| s.median).collect();
            let mean = super::super::score::geometric_mean(medians.iter().copied());
            let worst = contest.points.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median));
            return (
                mean.map_or_else(String::new, |mean| Unit::Times.show(mean)),
                worst.map(|(_, s)| signed(mark_of(s), s.median)),
            );
        }
        let own = contest.ours(cast).map_or_else(String::new, |own| self.unit.show(own.median));
        (own, contest.verdict(cast, self.better).map(|(ratio, _)| signed(ratio.mark, ratio.value)))
    }

    fn points(&self, canvas: &mut Canvas, y: f64, scale: &Scale, contest: &Contest, cast: &Cast<'_>) {
        let places = || contest.points.iter().map(|(_, s)| scale.at(s.median));
        let (least, most) = (places().fold(f64::INFINITY, f64::min), places().fold(0.0, f64::max));
        let (least, most) = match self.around_one.is_some() {
            true => (least.min(scale.at(1.0)), most.max(scale.at(1.0))),
            false => (least, most),
        };
        canvas.line((least, y), (most, y), "span");
        // Draws this engine last, so that it is on top.
        for (place, spread) in contest.points.iter().rev() {
            let class = cast.class(*place);
            if self.around_one.is_none() && spread.high > spread.low {
                canvas.line((scale.at(spread.low), y), (scale.at(spread.high), y), &format!("range {class}"));
            }
            let hollow =
                if self.around_one.is_some() && mark_of(spread) == Mark::Tie { " hollow" } else { "" };
            let hint = self.hint(*place, spread, contest, cast);
            canvas.mark(*place, (scale.at(spread.median), y), &format!("{class}{hollow}"), &hint);
        }
    }

    fn hint(&self, place: usize, spread: &Spread, contest: &Contest, cast: &Cast<'_>) -> String {
        let show = |n| self.unit.show(n);
        let figures = match (self.around_one, spread.high > spread.low) {
            (Some(who), _) => format!("{who} is {} as fast, {}", show(spread.median), mark_of(spread).word()),
            (None, true) => {
                format!("{} ({} to {})", show(spread.median), show(spread.low), show(spread.high))
            }
            (None, false) => show(spread.median),
        };
        format!("{}, {}: {figures}", contest.name(), cast.name(place))
    }
}

/// Returns a ratio as a spread: for a tie, 1 is between its ends.
pub(crate) fn ratio_spread(value: f64, mark: Mark) -> Spread {
    match mark {
        Mark::Tie => Spread { low: value.min(1.0), median: value, high: value.max(1.0).max(value) },
        Mark::Win | Mark::Loss => Spread { low: value, median: value, high: value },
    }
}

fn mark_of(ratio: &Spread) -> Mark {
    match ratio.median {
        _ if ratio.low < ratio.high || ratio.median == 1.0 => Mark::Tie,
        n if n > 1.0 => Mark::Win,
        _ => Mark::Loss,
    }
}

/// Draws the names of the engines with their signs, in lines as wide as the drawing; returns the bottom.
pub(crate) fn legend(canvas: &mut Canvas, contests: &[Contest], cast: &Cast<'_>, top: f64) -> f64 {
    let mut places: Vec<usize> = contests.iter().flat_map(|c| c.points.iter().map(|(p, _)| *p)).collect();
    places.sort_unstable();
    places.dedup();
    let (mut x, mut y) = (6.0, top);
    for place in places {
        let name = cast.name(place);
        let width = 30.0 + name.chars().count() as f64 * (CHARACTER + 0.4);
        if x > 6.0 && x + width > canvas.width {
            (x, y) = (6.0, y + 20.0);
        }
        canvas.mark(place, (x, y), &cast.class(place), "");
        canvas.text((x + 10.0, y + 4.0), if place == 0 { "bold" } else { "" }, &name);
        x += width + 6.0;
    }
    y + 8.0
}
