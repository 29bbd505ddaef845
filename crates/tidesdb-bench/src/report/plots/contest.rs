//! Contests: comparable figures of several engines, and sentences about which engine wins.

use crate::spec::Durability;

use super::super::lines::{Line, OURS, Spread, YARDSTICK};
use super::super::score::{Better, Mark, Ratio, Tally, ratio};
use super::super::words::{Unit, clipped};

/// The engines of a report; the index of an engine determines its colour and shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cast<'a> {
    /// Their names.
    pub(crate) names: &'a [String],
}

impl Cast<'_> {
    /// Returns the index of an engine.
    pub(crate) fn place(&self, name: &str) -> usize {
        self.names.iter().position(|n| n == name).unwrap_or(0)
    }

    /// Returns the name at an index, shortened if necessary.
    pub(crate) fn name(&self, place: usize) -> String {
        self.names.get(place).map_or_else(String::new, |name| clipped(name, 22))
    }

    /// Returns whether this engine only shows the cost of the benchmark itself.
    pub(crate) fn is_yardstick(&self, place: usize) -> bool {
        self.names.get(place).is_some_and(|name| name == YARDSTICK)
    }

    /// Returns the CSS class of an engine in drawings.
    pub(crate) fn class(&self, place: usize) -> String {
        super::super::svg::theme::engine(place, self.is_yardstick(place))
    }

    fn ours(&self) -> Option<usize> {
        self.names.iter().position(|name| name == OURS)
    }
}

/// One figure of several engines.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Contest {
    /// The row.
    pub(crate) label: String,
    /// The operation, and the durability class if it is not the default one.
    pub(crate) note: String,
    /// The figure of each engine by its index.
    pub(crate) points: Vec<(usize, Spread)>,
}

impl Contest {
    /// Compares this engine with the best rival: the ratio, and the index of that rival.
    pub(crate) fn verdict(&self, cast: &Cast<'_>, better: Better) -> Option<(Ratio, usize)> {
        let ours = cast.ours()?;
        let figure = self.figure(ours)?;
        let rivals = self.points.iter().filter(|(place, _)| *place != ours && !cast.is_yardstick(*place));
        let ratios = rivals.filter_map(|(place, rival)| Some((ratio(figure, rival, better)?, *place)));
        ratios.min_by(|a, b| a.0.value.total_cmp(&b.0.value))
    }

    /// Returns the figure of this engine.
    pub(crate) fn ours(&self, cast: &Cast<'_>) -> Option<&Spread> {
        self.figure(cast.ours()?)
    }

    fn figure(&self, place: usize) -> Option<&Spread> {
        self.points.iter().find(|(p, _)| *p == place).map(|(_, spread)| spread)
    }

    /// Returns row and operation as text.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.label, self.note).trim().to_owned()
    }
}

/// Returns the operation of a line, with its class if that is not the default one.
pub(crate) fn note(line: &Line, with_operation: bool) -> String {
    let operation = if with_operation { line.operation.as_str() } else { "" };
    match line.spec.durability {
        Durability::Os => operation.to_owned(),
        class => format!("{operation} {}", class.name()).trim().to_owned(),
    }
}

/// Returns the contests of one figure, one per row or operation; without those that no engine has a figure for.
pub(crate) fn contests(
    lines: &[&Line],
    cast: &Cast<'_>,
    by_operation: bool,
    pick: impl Fn(&Line) -> Spread,
) -> Vec<Contest> {
    let mut all: Vec<Contest> = Vec::new();
    for line in lines {
        let spread = pick(line);
        if !spread.is_there() {
            continue;
        }
        let (label, note, place) = (&line.row, note(line, by_operation), cast.place(&line.engine));
        match all.iter_mut().find(|c| c.label == *label && c.note == note) {
            Some(contest) if contest.points.iter().any(|(p, _)| *p == place) => {}
            Some(contest) => contest.points.push((place, spread)),
            None => {
                all.push(Contest { label: label.clone(), note, points: vec![(place, spread)] });
            }
        }
    }
    all
}

/// Returns one or two sentences about which engine wins where.
pub(crate) fn finding(contests: &[Contest], cast: &Cast<'_>, better: Better, unit: Unit) -> String {
    let verdicts: Vec<(&Contest, Ratio, usize)> = contests
        .iter()
        .filter_map(|c| c.verdict(cast, better).map(|(ratio, rival)| (c, ratio, rival)))
        .collect();
    if verdicts.is_empty() {
        return alone(contests, cast, unit);
    }
    let tally = Tally::of(verdicts.iter().map(|(_, ratio, _)| ratio.mark));
    let mut out =
        format!("Against the best rival of each row, {OURS} wins {} of {}", tally.wins, tally.total());
    if tally.ties > 0 {
        out += &format!(", ties {}", tally.ties);
    }
    if tally.losses > 0 {
        out += &format!(", loses {} ({})", tally.losses, losers(&verdicts, cast));
    }
    out += ".";
    let most = verdicts.iter().max_by(|a, b| a.1.value.total_cmp(&b.1.value));
    if let Some((contest, ratio, rival)) = most.filter(|(_, ratio, _)| ratio.mark == Mark::Win) {
        let times = Unit::Times.show(ratio.value);
        out += &format!(" Its widest lead is {times} over {} in {}.", cast.name(*rival), contest.name());
    }
    let least = verdicts.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value));
    if let Some((contest, ratio, rival)) = least.filter(|(_, ratio, _)| ratio.mark == Mark::Loss) {
        let times = Unit::Times.show(1.0 / ratio.value);
        out += &format!(" Furthest ahead of it is {}: {times} in {}.", cast.name(*rival), contest.name());
    }
    out
}

/// Returns which engines won the rows that this engine lost, and how many.
fn losers(verdicts: &[(&Contest, Ratio, usize)], cast: &Cast<'_>) -> String {
    let lost: Vec<usize> = verdicts
        .iter()
        .filter(|(_, ratio, _)| ratio.mark == Mark::Loss)
        .map(|(_, _, rival)| *rival)
        .collect();
    let mut rivals = lost.clone();
    rivals.sort_unstable();
    rivals.dedup();
    let count = |rival: usize| lost.iter().filter(|r| **r == rival).count();
    rivals.sort_by_key(|rival| std::cmp::Reverse(count(*rival)));
    match rivals[..] {
        [only] if lost.len() == 1 => format!("to {}", cast.name(only)),
        [only] => format!("all to {}", cast.name(only)),
        _ => {
            let named = rivals.iter().map(|rival| format!("{} to {}", count(*rival), cast.name(*rival)));
            named.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns a sentence about a single engine.
fn alone(contests: &[Contest], cast: &Cast<'_>, unit: Unit) -> String {
    let figures = || {
        contests.iter().filter_map(|c| {
            let own = c.ours(cast).or_else(|| c.points.first().map(|(_, spread)| spread))?;
            Some((c, own.median))
        })
    };
    let least = figures().min_by(|a, b| a.1.total_cmp(&b.1));
    let most = figures().max_by(|a, b| a.1.total_cmp(&b.1));
    match (least, most) {
        (Some((low, _)), Some((high, n))) if low == high => {
            format!("No rival to compare with; {} has {}.", low.name(), unit.show(n))
        }
        (Some((low, least)), Some((high, most))) => format!(
            "No rival to compare with: from {} in {} to {} in {}.",
            unit.show(least),
            low.name(),
            unit.show(most),
            high.name()
        ),
        _ => String::new(),
    }
}
