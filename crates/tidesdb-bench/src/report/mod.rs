//! Outputs made of [`Results`]: a table for the terminal, CSV, JSON, and a page with plots. Each takes the results
//! as data and returns text; each is a separate file.
//!
//! Names of engines, rows and settings come from files and may be malicious: text is escaped where it is written to HTML or
//! SVG.

mod words;
mod lines;
mod score;
mod columns;
mod targets;
mod table;
mod watched;
mod svg;
mod plots;
mod html;

#[cfg(test)]
mod fixture;
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
pub(crate) use table::rate as table_rate;
pub use targets::{Target, targets};
pub use watched::{SECONDS, seconds_csv, table};
pub(crate) use words::{Unit, counted, date, escape};

use crate::run::{FORMAT, Results};

/// Returns the results as JSON, for storage and comparison.
///
/// # Errors
/// If the writer fails, which it does not for these types.
pub fn json(results: &Results) -> Result<String, String> {
    serde_json::to_string_pretty(results).map_err(|e| e.to_string())
}

/// Parses results that [`json`] wrote.
///
/// # Errors
/// If it is something else, or from another version of the benchmark.
pub fn from_json(text: &str) -> Result<Results, String> {
    let results: Results = serde_json::from_str(text)
        .map_err(|e| format!("this is not a results file of this benchmark: {e}"))?;
    if results.format != FORMAT {
        return Err(format!("results of format {}, but this program reads format {FORMAT}", results.format));
    }
    Ok(results)
}
