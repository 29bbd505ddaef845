//! Reports about [`Results`]: a table for the terminal, CSV, JSON, and an HTML page with plots. Each format is a
//! function from results to text, in its own file.
//!
//! Names of engines, rows and settings come from files and may be hostile. They are escaped where they are written into
//! HTML or SVG.

mod words;
mod lines;
mod score;
mod columns;
mod table;
mod targets;
mod steady;
mod families;
mod queue;
mod churn;
mod motion;
mod overload;
mod probes;
mod values;
mod watched;
mod svg;
mod plots;
mod html;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod chromium;
#[cfg(test)]
mod browser;
#[cfg(test)]
mod tests;

pub use columns::{COLUMNS, csv};
pub(crate) use html::{TOGGLE, page};
pub use html::{html, plot_files};
pub(crate) use lines::in_order;
pub use lines::{Line, Spread, engines, lines};
pub(crate) use plots::{Cast, Contest, Dots, NARROW, WIDE, ratio_spread};
pub use score::{Better, Duel, LeftOut, Mark, Ratio, Score, TIE, Tally, geometric_mean, ratio};
pub use steady::Steadiness;
pub(crate) use table::rate as table_rate;
pub use targets::Target;
pub use watched::{SECONDS, seconds_csv, table, targets};
pub(crate) use words::{Unit, counted, date, escape};

use crate::run::{FORMAT, Results};

/// Formats the results as JSON, for storage and comparison.
///
/// # Errors
/// Returns an error if the serializer fails, which does not happen for these types.
pub fn json(results: &Results) -> Result<String, String> {
    serde_json::to_string_pretty(results).map_err(|e| e.to_string())
}

/// Parses results written by [`json`].
///
/// # Errors
/// Returns an error for other text, or results of another version of the format.
pub fn from_json(text: &str) -> Result<Results, String> {
    let results: Results =
        serde_json::from_str(text).map_err(|e| format!("not results of this benchmark: {e}"))?;
    if results.format != FORMAT {
        return Err(format!(
            "the results have format {}, but this program reads only format {FORMAT}",
            results.format
        ));
    }
    Ok(results)
}
