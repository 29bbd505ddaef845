//! Scores: ratios of this engine to each rival, and their geometric means.
//!
//! A ratio is above 1 where this engine is better. A mean never mixes durability classes. Rows that failed on either side
//! are excluded from all means and listed with the reason.

use crate::spec::Durability;

use super::lines::{Line, OPENINGS, OURS, Spread, YARDSTICK};

/// Ratios closer to 1 than this are ties.
pub const TIE: f64 = 0.03;

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

/// Result of a comparison for this engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Better by more than the noise.
    Win,
    /// The ranges overlap, or the medians differ by less than 3 %.
    Tie,
    /// Worse by more than the noise.
    Loss,
}

impl Mark {
    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Win => "win",
            Self::Tie => "tie",
            Self::Loss => "loss",
        }
    }

    /// Returns the sign for it.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Win => "\u{25b2}",
            Self::Tie => "=",
            Self::Loss => "\u{25bc}",
        }
    }
}

/// One figure divided by another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// How many times better the first figure is; below 1 if it is worse.
    pub value: f64,
    /// The verdict.
    pub mark: Mark,
}

/// Compares two figures; `None` if one is missing.
pub fn ratio(ours: &Spread, rival: &Spread, better: Better) -> Option<Ratio> {
    if !ours.is_there() || !rival.is_there() {
        return None;
    }
    let value = match better {
        Better::Higher => ours.median / rival.median,
        Better::Lower => rival.median / ours.median,
    };
    let apart = ours.low > rival.high || rival.low > ours.high;
    let mark = match (apart, value) {
        (true, value) if value >= 1.0 + TIE => Mark::Win,
        (true, value) if value <= 1.0 / (1.0 + TIE) => Mark::Loss,
        _ => Mark::Tie,
    };
    Some(Ratio { value, mark })
}

/// Returns the geometric mean; `None` without figures.
pub fn geometric_mean(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = figures.into_iter().fold((0.0, 0u32), |(sum, n), figure| (sum + figure.ln(), n + 1));
    (n > 0).then(|| (sum / f64::from(n)).exp())
}

/// One operation of one row against one rival.
#[derive(Clone, Debug, PartialEq)]
pub struct Duel {
    /// The row.
    pub row: String,
    /// The operation.
    pub operation: String,
    /// The rival.
    pub rival: String,
    /// Durability class of the row.
    pub class: Durability,
    /// Ratio of the rates.
    pub ratio: Ratio,
}

/// A row that is excluded from all means.
#[derive(Clone, Debug, PartialEq)]
pub struct LeftOut {
    /// The row.
    pub row: String,
    /// The rival.
    pub rival: String,
    /// The reason.
    pub reason: String,
}

/// Numbers of wins, ties and losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Wins.
    pub wins: usize,
    /// Ties.
    pub ties: usize,
    /// Losses.
    pub losses: usize,
}

impl Tally {
    /// Counts these marks.
    pub fn of(marks: impl Iterator<Item = Mark>) -> Self {
        let mut tally = Self::default();
        for mark in marks {
            *match mark {
                Mark::Win => &mut tally.wins,
                Mark::Tie => &mut tally.ties,
                Mark::Loss => &mut tally.losses,
            } += 1;
        }
        tally
    }

    /// Returns the sum.
    pub fn total(&self) -> usize {
        self.wins + self.ties + self.losses
    }
}

/// All comparisons of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// The rivals by name.
    pub rivals: Vec<String>,
    /// The comparisons, in the order of the suite.
    pub duels: Vec<Duel>,
    /// The rows that could not be compared.
    pub left_out: Vec<LeftOut>,
}

impl Score {
    /// Compares these lines.
    pub fn of(lines: &[Line]) -> Self {
        let mut score = Self::default();
        for line in lines {
            if line.engine != OURS && line.engine != YARDSTICK && !score.rivals.contains(&line.engine) {
                score.rivals.push(line.engine.clone());
            }
        }
        score.rivals.sort();
        let mut rows: Vec<&str> = Vec::new();
        for line in lines {
            if !rows.contains(&line.row.as_str()) {
                rows.push(&line.row);
            }
        }
        for row in rows {
            let of = |engine: &str| {
                lines.iter().filter(|l| l.row == row && l.engine == engine).collect::<Vec<_>>()
            };
            for rival in score.rivals.clone() {
                score.pair(&of(OURS), &of(&rival));
            }
        }
        score
    }

    /// Compares one row with one rival.
    fn pair(&mut self, ours: &[&Line], theirs: &[&Line]) {
        let (Some(first), Some(other)) = (ours.first(), theirs.first()) else { return };
        let failed = |line: &Line| line.failure.as_ref().map(|why| format!("{}: {why}", line.engine));
        let absent =
            |line: &Line| line.absent.as_ref().map(|why| format!("{} does not offer it: {why}", line.engine));
        let reason =
            failed(first).or_else(|| failed(other)).or_else(|| absent(first)).or_else(|| absent(other));
        let reason = reason.or_else(|| {
            let differ = first.spec.durability != other.spec.durability;
            differ.then(|| "another durability class".to_owned())
        });
        if let Some(reason) = reason {
            self.left_out.push(LeftOut { row: first.row.clone(), rival: other.engine.clone(), reason });
            return;
        }
        for our in ours {
            let rival = theirs.iter().find(|l| l.operation == our.operation);
            // Rows of a database that is empty on both sides.
            if !our.rate.is_there() && rival.is_some_and(|rival| !rival.rate.is_there()) {
                continue;
            }
            let ratio = rival.and_then(|rival| ratio(&our.rate, &rival.rate, Better::Higher));
            let (row, rival) = (our.row.clone(), other.engine.clone());
            match ratio {
                Some(ratio) => self.duels.push(Duel {
                    row,
                    operation: our.operation.clone(),
                    rival,
                    class: our.spec.durability,
                    ratio,
                }),
                None => {
                    let reason = format!("no figures of {}", our.operation);
                    self.left_out.push(LeftOut { row, rival, reason });
                }
            }
        }
    }

    /// Returns the classes in which there are comparisons.
    pub fn classes(&self) -> Vec<Durability> {
        Durability::ALL.into_iter().filter(|class| self.duels.iter().any(|d| d.class == *class)).collect()
    }

    /// Returns the comparisons with a rival in a class.
    pub fn against<'a>(&'a self, class: Durability, rival: &'a str) -> impl Iterator<Item = &'a Duel> {
        self.duels.iter().filter(move |d| d.class == class && d.rival == rival)
    }

    /// Returns the kinds of operations of a class, in the order of the suite, ITER last.
    pub fn kinds(&self, class: Durability) -> Vec<&str> {
        let mut kinds: Vec<&str> = Vec::new();
        for duel in self.duels.iter().filter(|d| d.class == class) {
            if !kinds.contains(&duel.operation.as_str()) {
                kinds.push(&duel.operation);
            }
        }
        kinds.sort_by_key(|kind| *kind == "ITER");
        kinds
    }

    /// Returns the geometric mean of one kind of operation for a rival.
    pub fn mean_of(&self, class: Durability, rival: &str, kind: &str) -> Option<f64> {
        geometric_mean(self.against(class, rival).filter(|d| d.operation == kind).map(|d| d.ratio.value))
    }

    /// Returns the geometric mean of the means of all kinds except opening. Each kind has the same weight, so ITER, which ends every
    /// row, does not dominate the others.
    pub fn mean(&self, class: Durability, rival: &str) -> Option<f64> {
        let kinds = self.kinds(class).into_iter().filter(|kind| !OPENINGS.contains(kind));
        geometric_mean(kinds.filter_map(|kind| self.mean_of(class, rival, kind)))
    }

    /// Returns wins, ties and losses for a rival in a class.
    pub fn tally(&self, class: Durability, rival: &str) -> Tally {
        Tally::of(self.against(class, rival).map(|d| d.ratio.mark))
    }

    /// Returns the comparison of this operation of this row with this rival.
    pub fn duel(&self, row: &str, operation: &str, rival: &str) -> Option<&Duel> {
        self.duels
            .iter()
            .find(|d| (d.row.as_str(), d.operation.as_str(), d.rival.as_str()) == (row, operation, rival))
    }
}
