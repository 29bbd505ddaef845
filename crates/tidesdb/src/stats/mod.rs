//! Statistics as tables: `statistics!` makes a struct, its documentation and its table of one list.
//!
//! A new counter of a family is one line in `family/stats.rs` and its use; any other figure is one line that says where it comes
//! from. `Display`, the command line, the C library and exporters follow from the tables.

mod sample;
mod histogram;

use std::fmt;
use std::time::Duration;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatUnit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// A share of a whole, from 0 to 1.
    Share,
    /// A quotient of two figures of the same unit.
    Ratio,
}

/// How a figure behaves over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatKind {
    /// It only grows while the database is open, and begins at 0.
    Counter,
    /// It rises and falls.
    Gauge,
}

/// Describes one figure.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StatInfo {
    /// Its name, as in the struct.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// What it counts.
    pub unit: StatUnit,
    /// How it behaves over time.
    pub kind: StatKind,
    /// The field that shows it in the structs of the C library.
    pub c: Option<&'static str>,
}

/// The value of a figure.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StatValue {
    /// A whole number.
    Number(u64),
    /// Seconds, or a share.
    Real(f64),
    /// One number for each level, level 1 first.
    Levels(Vec<u64>),
}

macro_rules! numbers {
    ($($of:ty)*) => {
        $(impl From<$of> for StatValue {
            fn from(n: $of) -> Self {
                Self::Number(n as u64)
            }
        })*
    };
}

numbers! { u64 usize bool }

impl From<f64> for StatValue {
    fn from(x: f64) -> Self {
        Self::Real(x)
    }
}

impl From<Duration> for StatValue {
    fn from(time: Duration) -> Self {
        Self::Real(time.as_secs_f64())
    }
}

impl From<Vec<u64>> for StatValue {
    fn from(levels: Vec<u64>) -> Self {
        Self::Levels(levels)
    }
}

impl From<Vec<usize>> for StatValue {
    fn from(levels: Vec<usize>) -> Self {
        Self::Levels(levels.into_iter().map(|n| n as u64).collect())
    }
}

/// A type of a figure, as it is taken from a value.
pub(crate) trait FigureType: Sized {
    /// The figure; `None` if the value is of another kind.
    fn take(value: StatValue) -> Option<Self>;
}

macro_rules! figure_types {
    ($($of:ty: $kind:ident($found:ident) => $take:expr;)*) => {
        $(impl FigureType for $of {
            fn take(value: StatValue) -> Option<Self> {
                let StatValue::$kind($found) = value else { return None };
                Some($take)
            }
        })*
    };
}

figure_types! {
    u64: Number(n) => n;
    usize: Number(n) => usize::try_from(n).unwrap_or(usize::MAX);
    bool: Number(n) => n != 0;
    f64: Real(x) => x;
    Duration: Real(x) => Self::try_from_secs_f64(x).unwrap_or_default();
    Vec<u64>: Levels(levels) => levels;
    Vec<usize>: Levels(levels) => levels.into_iter().map(|n| usize::try_from(n).unwrap_or(usize::MAX)).collect();
}

/// Sets a figure, unless the value is of another kind.
pub(crate) fn set<T: FigureType>(figure: &mut T, value: StatValue) {
    if let Some(value) = T::take(value) {
        *figure = value;
    }
}

/// Formats a time in the unit that suits it.
pub(crate) fn time(secs: f64) -> String {
    match secs {
        secs if secs < 1e-3 => format!("{:.1} us", secs * 1e6),
        secs if secs < 1.0 => format!("{:.2} ms", secs * 1e3),
        secs => format!("{secs:.2} s"),
    }
}

/// Writes figures one a line, `indent` before each. Leaves out those that are 0: most are, in most databases.
pub(crate) fn write_lines(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    figures: impl Iterator<Item = (&'static StatInfo, StatValue)>,
) -> fmt::Result {
    for (info, value) in figures {
        let unit = if info.unit == StatUnit::Bytes { " B" } else { "" };
        let label = info.name.replace('_', " ");
        match value {
            StatValue::Number(n) if n > 0 => writeln!(f, "{indent}{label:<25} {n}{unit}")?,
            StatValue::Real(x) if x > 0.0 => match info.unit {
                StatUnit::Seconds => writeln!(f, "{indent}{label:<25} {}", time(x))?,
                _ => writeln!(f, "{indent}{label:<25} {x:.3}")?,
            },
            StatValue::Levels(levels) if levels.iter().any(|n| *n > 0) => {
                writeln!(f, "{indent}{label:<25} {levels:?}{unit}")?
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes a struct of figures: `name of source: type`, then what is no figure (`plain`), what is read from the source (`figures`),
/// and what is counted under a variant of an enum (`counters`, in a family).
macro_rules! statistics {
    (
        $(#[$doc:meta])*
        $name:ident of $source:ident: $of:ty;
        plain { $($plain_help:literal $plain:ident: $plain_ty:ty = $plain_from:expr;)* }
        figures { $($kind:ident $unit:ident $field:ident: $ty:ty = $from:expr, $help:literal $(, c $c:literal)?;)* }
        $(counters $metric:ident {
            $($cunit:ident $cfield:ident $variant:ident, $chelp:literal $(, c $cc:literal)?;)*
        })?
    ) => {
        $(#[$doc])*
        #[non_exhaustive]
        pub struct $name {
            $(#[doc = $plain_help] pub $plain: $plain_ty,)*
            $(#[doc = $help] pub $field: $ty,)*
            $($(#[doc = $chelp] pub $cfield: u64,)*)?
        }

        impl $name {
            /// All figures, in the order of [`Self::figures`].
            pub const TABLE: &[$crate::stats::StatInfo] = &[
                $($crate::stats::StatInfo {
                    name: stringify!($field),
                    help: $help,
                    unit: $crate::stats::StatUnit::$unit,
                    kind: $crate::stats::StatKind::$kind,
                    c: $crate::stats::first(&[$($c)?]),
                },)*
                $($($crate::stats::StatInfo {
                    name: stringify!($cfield),
                    help: $chelp,
                    unit: $crate::stats::StatUnit::$cunit,
                    kind: $crate::stats::StatKind::Counter,
                    c: $crate::stats::first(&[$($cc)?]),
                },)*)?
            ];

            /// Each figure with its value.
            pub fn figures(&self) -> impl Iterator<Item = (&'static $crate::stats::StatInfo, $crate::stats::StatValue)> {
                Self::TABLE.iter().zip([
                    $($crate::stats::StatValue::from(self.$field.clone()),)*
                    $($($crate::stats::StatValue::from(self.$cfield),)*)?
                ])
            }

            /// Sets the figure `name`, if there is one.
            #[allow(dead_code, reason = "some figures never leave their process")]
            pub(crate) fn put(&mut self, name: &str, value: $crate::stats::StatValue) {
                match name {
                    $(stringify!($field) => $crate::stats::set(&mut self.$field, value),)*
                    $($(stringify!($cfield) => $crate::stats::set(&mut self.$cfield, value),)*)?
                    _ => {}
                }
            }

            fn of($source: $of) -> Self {
                Self {
                    $($plain: $plain_from,)*
                    $($field: $from,)*
                    $($($cfield: $source.total($metric::$variant),)*)?
                }
            }
        }

        $(/// What a family counts.
        #[derive(Clone, Copy, Debug)]
        #[repr(usize)]
        pub enum $metric {
            $(#[doc = $chelp] $variant,)*
        }

        impl $metric {
            /// How many there are.
            pub const COUNT: usize = [$($metric::$variant),*].len();
        })?
    };
}

pub mod counts;

pub use counts::{Profile, profile};
pub use histogram::{Durations, Histogram, TimeStats, Timer};
pub use sample::{SAMPLED_ONE_IN, is_chosen, is_recorded};
pub(crate) use statistics;

/// The first of at most one.
pub(crate) const fn first(names: &[&'static str]) -> Option<&'static str> {
    match names {
        [name, ..] => Some(name),
        [] => None,
    }
}
