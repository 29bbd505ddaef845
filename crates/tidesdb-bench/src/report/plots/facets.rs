//! Small adjacent charts, each with its own scale, because engines are compared within one chart. Each shows lines of engines over a few
//! positions, such as batch sizes, threads or percentiles.

use super::super::lines::Spread;
use super::super::svg::canvas::{At, CHARACTER};
use super::super::svg::{Canvas, Scale};
use super::super::words::{Unit, clipped};
use super::contest::{Cast, Contest};
use super::dots::legend;

/// One chart: a contest at each position of its axis, whose label is the tick.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facet {
    /// Title of the chart.
    pub(crate) title: String,
    /// The positions, with distances proportional to the first number.
    pub(crate) stops: Vec<(f64, Contest)>,
}

/// Settings of the drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facets {
    /// Unit of the figures.
    pub(crate) unit: Unit,
    /// True if there are many small charts.
    pub(crate) small: bool,
}

/// Frame of one chart.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Facets {
    /// Draws the charts.
    pub(crate) fn draw(&self, facets: &[Facet], cast: &Cast<'_>, width: f64) -> Canvas {
        let mut canvas = Canvas::new(width, 0.0);
        let contests: Vec<Contest> =
            facets.iter().flat_map(|f| f.stops.iter().map(|(_, c)| c.clone())).collect();
        let top = legend(&mut canvas, &contests, cast, 8.0) + 12.0;
        let columns = self.columns(facets.len(), width);
        let (gap, left) = (14.0, 52.0);
        let cell = (width - (left + gap) * columns as f64 + gap) / columns as f64;
        let height = if self.small { 120.0 } else { 210.0 };
        let block = height + 52.0;
        for (i, facet) in facets.iter().enumerate() {
            let (column, line) = (i % columns, i / columns);
            let x = left + column as f64 * (cell + left + gap);
            let y = top + line as f64 * block + 22.0;
            let frame = Frame { x: (x, x + cell), y: (y + height, y) };
            self.facet(&mut canvas, &frame, facet, cast);
        }
        canvas.height = top + facets.len().div_ceil(columns) as f64 * block;
        canvas
    }

    fn columns(&self, facets: usize, width: f64) -> usize {
        let most = match (self.small, width < 500.0) {
            (true, true) => 2,
            (true, false) => 3,
            (false, true) => 1,
            (false, false) => 2,
        };
        facets.clamp(1, most)
    }

    fn facet(&self, canvas: &mut Canvas, frame: &Frame, facet: &Facet, cast: &Cast<'_>) {
        let points = facet.stops.iter().flat_map(|(_, c)| &c.points);
        let figures: Vec<f64> = points.flat_map(|(_, s)| [s.low, s.high]).collect();
        let scale = &Scale::fitting(&figures, frame.y);
        let letters = ((frame.x.1 - frame.x.0 + 52.0) / (CHARACTER * 1.02)) as usize;
        let title = clipped(&facet.title, letters);
        canvas.hinted((frame.x.0 - 52.0, frame.y.1 - 10.0), "small bold", (&title, &facet.title));
        for tick in scale.ticks(if self.small { 5 } else { 7 }) {
            let y = scale.at(tick);
            canvas.line((frame.x.0, y), (frame.x.1, y), "grid");
            canvas.text((frame.x.0 - 6.0, y + 4.0), "soft small end", &self.unit.tick(tick));
        }
        canvas.line((frame.x.0, frame.y.0), (frame.x.1, frame.y.0), "rule");
        // Names of engines follow the last position.
        let names = self.names(facet, cast);
        let widest = names.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or(0);
        let room = if self.small { 17.0 } else { 18.0 + widest as f64 * CHARACTER };
        let ends = (frame.x.0 + if self.small { 12.0 } else { 16.0 }, frame.x.1 - room);
        let xs = places(facet, ends);
        for ((_, stop), x) in facet.stops.iter().zip(&xs) {
            canvas.line((*x, frame.y.0), (*x, frame.y.0 + 4.0), "rule");
            canvas.text((*x, frame.y.0 + 17.0), "soft small mid", &stop.label);
        }
        for place in engines(facet).into_iter().rev() {
            self.run(canvas, &xs, scale, (facet, place), cast);
        }
        let last = xs.last().copied().unwrap_or(ends.1);
        let mut ys: Vec<f64> = names.iter().map(|(_, _, n)| scale.at(*n) + 4.0).collect();
        spread_out(&mut ys, 13.0, frame.y.0);
        for ((place, name, _), y) in names.iter().zip(ys) {
            canvas.text((last + 11.0, y), &format!("small bold halo {}", cast.class(*place)), name);
        }
    }

    /// Returns the engines that reach the last position, ordered by their figures there from the top; none in small charts.
    fn names(&self, facet: &Facet, cast: &Cast<'_>) -> Vec<(usize, String, f64)> {
        let last = facet.stops.last().filter(|_| !self.small);
        let mut names: Vec<(usize, String, f64)> = last
            .map(|(_, contest)| contest.points.iter().map(|(p, s)| (*p, cast.name(*p), s.median)).collect())
            .unwrap_or_default();
        names.sort_by(|a, b| b.2.total_cmp(&a.2));
        names
    }

    /// Draws the line of one engine.
    fn run(
        &self,
        canvas: &mut Canvas,
        xs: &[f64],
        scale: &Scale,
        (facet, place): (&Facet, usize),
        cast: &Cast<'_>,
    ) {
        let class = cast.class(place);
        let points: Vec<(At, &Contest, Spread)> = facet
            .stops
            .iter()
            .zip(xs)
            .filter_map(|((_, contest), x)| {
                let (_, spread) = contest.points.iter().find(|(p, _)| *p == place)?;
                Some(((*x, scale.at(spread.median)), contest, *spread))
            })
            .collect();
        let line: Vec<At> = points.iter().map(|(at, _, _)| *at).collect();
        canvas.path(&line, &format!("run {class}"));
        for (at, contest, spread) in points {
            if spread.high > spread.low {
                let (low, high) = (scale.at(spread.low), scale.at(spread.high));
                canvas.line((at.0, low), (at.0, high), &format!("range {class}"));
            }
            let hint = format!(
                "{}, {}, {}: {}",
                facet.title,
                contest.label,
                cast.name(place),
                self.unit.show(spread.median)
            );
            let size = if self.small { " tiny" } else { "" };
            canvas.mark(place, at, &format!("{class}{size}"), &hint);
        }
    }
}

fn engines(facet: &Facet) -> Vec<usize> {
    let mut places: Vec<usize> =
        facet.stops.iter().flat_map(|(_, c)| c.points.iter().map(|(p, _)| *p)).collect();
    places.sort_unstable();
    places.dedup();
    places
}

/// Returns positions along the axis.
fn places(facet: &Facet, (start, end): (f64, f64)) -> Vec<f64> {
    let at = || facet.stops.iter().map(|(at, _)| *at);
    let (least, most) = (at().fold(f64::INFINITY, f64::min), at().fold(f64::NEG_INFINITY, f64::max));
    let span = (most - least).max(f64::MIN_POSITIVE);
    at().map(|n| start + (n - least) / span * (end - start)).collect()
}

/// Moves sorted positions apart until their distance is at least `least`, none below `bottom`.
fn spread_out(ys: &mut [f64], least: f64, bottom: f64) {
    for i in 1..ys.len() {
        ys[i] = ys[i].max(ys[i - 1] + least);
    }
    let mut floor = bottom;
    for y in ys.iter_mut().rev() {
        *y = y.min(floor);
        floor = *y - least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_overlap() {
        let mut ys = [10.0, 11.0, 12.0, 99.0, 100.0];
        spread_out(&mut ys, 13.0, 100.0);
        assert!(ys.windows(2).all(|w| w[1] - w[0] >= 13.0 - 1e-9), "{ys:?}");
        assert!(ys[4] <= 100.0 && ys[0] == 10.0, "{ys:?}");
    }

    #[test]
    fn positions_are_proportional() {
        let stop = |at| (at, Contest::default());
        let facet = Facet { title: String::new(), stops: vec![stop(0.0), stop(1.0), stop(3.0)] };
        assert_eq!(places(&facet, (0.0, 30.0)), [0.0, 10.0, 30.0]);
        let one = Facet { title: String::new(), stops: vec![stop(2.0)] };
        assert_eq!(places(&one, (5.0, 30.0)), [5.0]);
    }
}
