//! Maps figures to positions on an axis, and chooses round figures for ticks.

/// A part of an axis: figures from `from` to `to` are drawn between `start` and `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    log: bool,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

/// Logarithmic axes show only figures above this.
const LEAST: f64 = 1e-12;

impl Scale {
    /// Creates an axis from 0 to slightly more than the largest figure.
    pub(crate) fn linear(figures: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Self {
        let most = figures.filter(|n| n.is_finite()).fold(0.0, f64::max);
        let to = if most > 0.0 { most * 1.04 } else { 1.0 };
        Self { log: false, from: 0.0, to, start, end }
    }

    /// Creates a logarithmic axis around all figures.
    pub(crate) fn log(figures: impl Iterator<Item = f64>, (start, end): (f64, f64)) -> Self {
        let (least, most) = figures
            .filter(|n| n.is_finite() && *n > LEAST)
            .fold((f64::INFINITY, 0.0f64), |(low, high), n| (low.min(n), high.max(n)));
        let (least, most) = if most > 0.0 { (least, most) } else { (1.0, 10.0) };
        // Margin at both sides, larger if all figures are nearly the same.
        let room = ((most / least).ln() * 0.05).max(0.08);
        Self { log: true, from: least * (-room).exp(), to: most * room.exp(), start, end }
    }

    /// Creates a logarithmic axis if the figures span more than a factor of ten, otherwise an axis from 0.
    pub(crate) fn fitting(figures: &[f64], range: (f64, f64)) -> Self {
        let there = || figures.iter().copied().filter(|n| *n > LEAST && n.is_finite());
        let (least, most) = (there().fold(f64::INFINITY, f64::min), there().fold(0.0, f64::max));
        if most > 10.0 * least { Self::log(there(), range) } else { Self::linear(there(), range) }
    }

    /// Returns the position of a figure; figures beyond the ends are at the end.
    pub(crate) fn at(&self, n: f64) -> f64 {
        let part = match self.log {
            true => (n.max(LEAST) / self.from).ln() / (self.to / self.from).ln(),
            false => (n - self.from) / (self.to - self.from),
        };
        let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
        self.start + part * (self.end - self.start)
    }

    /// Returns round figures on the axis, about `most` of them.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if !self.log {
            return self.even(most);
        }
        let inside = |n: &f64| *n >= self.from * (1.0 - 1e-9) && *n <= self.to * (1.0 + 1e-9);
        let decades = (self.from.log10().floor() as i32)..=(self.to.log10().ceil() as i32);
        let of = |digits: &[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|d| digits.iter().map(move |n| n * 10f64.powi(d)));
            all.filter(inside).collect()
        };
        let fine = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0];
        for digits in [&fine[..], &[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]] {
            let ticks = of(digits);
            if ticks.len() <= most && ticks.len() >= 2 {
                return ticks;
            }
        }
        let ticks = of(&[1.0]);
        match ticks.len() {
            0 | 1 => self.even(most),
            n => ticks.into_iter().step_by(n.div_ceil(most)).collect(),
        }
    }

    fn even(&self, most: usize) -> Vec<f64> {
        let span = self.to - self.from;
        let rough = span / most as f64;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|n| n * unit).find(|n| *n >= rough);
        let step = step.unwrap_or(span);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_proportional() {
        let scale = Scale::linear([50.0, 100.0].into_iter(), (0.0, 104.0));
        assert!((scale.at(50.0) - 50.0).abs() < 1e-9 && scale.at(0.0) == 0.0);
        let scale = Scale::log([1.0, 100.0].into_iter(), (0.0, 100.0));
        assert!((scale.at(10.0) - 50.0).abs() < 1e-9, "{}", scale.at(10.0));
        assert!(scale.at(1.0) > 0.0 && scale.at(100.0) < 100.0, "there is a margin at the ends");
        assert_eq!((scale.at(f64::NAN), scale.at(1e300), scale.at(-1.0)), (0.0, 100.0, 0.0));
        let turned = Scale::log([1.0, 100.0].into_iter(), (200.0, 0.0));
        assert!(turned.at(1.0) > turned.at(100.0));
    }

    #[test]
    fn ticks_are_round_inside_and_not_too_many() {
        for (low, high) in [(1.0, 1e9), (0.8, 1.3), (0.02, 50.0), (3.0, 3.0), (120.0, 970.0), (1e-7, 2e-7)] {
            for most in [3, 5, 8] {
                let scale = Scale::log([low, high].into_iter(), (0.0, 100.0));
                let ticks = scale.ticks(most);
                assert!((1..=most + 2).contains(&ticks.len()), "{low}..{high}: {ticks:?}");
                assert!(ticks.windows(2).all(|w| w[0] < w[1]), "{ticks:?}");
                assert!(
                    ticks.iter().all(|t| *t >= scale.from * 0.999 && *t <= scale.to * 1.001),
                    "{ticks:?}"
                );
            }
        }
        assert_eq!(Scale::log([1.0, 1000.0].into_iter(), (0.0, 1.0)).ticks(4), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(Scale::linear([96.0].into_iter(), (0.0, 1.0)).ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0]);
    }

    #[test]
    fn an_axis_without_figures_works() {
        for scale in [Scale::linear([].into_iter(), (0.0, 1.0)), Scale::log([].into_iter(), (0.0, 1.0))] {
            assert!(scale.at(5.0).is_finite() && scale.ticks(5).len() < 20);
        }
        assert!(!Scale::fitting(&[1.0, 9.0], (0.0, 1.0)).log && Scale::fitting(&[1.0, 11.0], (0.0, 1.0)).log);
    }
}
