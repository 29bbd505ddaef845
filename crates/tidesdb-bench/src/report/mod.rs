//! What is made of [`Results`]: a table for the terminal, CSV, JSON. Each maker takes the results as data and returns
//! text; another one is another file.

mod columns;
mod table;

#[cfg(test)]
mod tests;

pub use columns::{COLUMNS, csv};
pub(crate) use table::rate as table_rate;
pub use table::{Line, Spread, lines, table};

use crate::run::{FORMAT, Results};

/// The results as JSON, to keep and to compare.
///
/// # Errors
/// If the writer fails, which it does not for these types.
pub fn json(results: &Results) -> Result<String, String> {
    serde_json::to_string_pretty(results).map_err(|e| e.to_string())
}

/// Results that [`json`] wrote.
///
/// # Errors
/// If it is something else, or from another version of the benchmark.
pub fn from_json(text: &str) -> Result<Results, String> {
    let results: Results =
        serde_json::from_str(text).map_err(|e| format!("not results of this benchmark: {e}"))?;
    if results.format != FORMAT {
        return Err(format!("results of format {}, this program knows {FORMAT}", results.format));
    }
    Ok(results)
}
