//! The read path in short.
//!
//! ```text
//! get     pin -> read view -> sequence number (in this order) -> active -> immutables, newest first
//!         -> level 1, newest first -> one table of each run -> the value log if a pointer was found
//!         the first version at or below the sequence number decides, also if it is a tombstone or expired
//! cursor  the same sources as one merged stream; of each key only the version visible to the reader
//! ```

mod row_buffer;
mod stored;
mod cursor;
mod get;
mod newest;
mod explain;
mod iter;
mod spans;
#[cfg(test)]
mod tests;
mod track;
mod value;

pub use cursor::{Cursor, OwnReads, ReadTimestamp, show_keys};
pub use explain::{
    ExplainedLevel, ExplainedRangeTombstone, ExplainedSource, ExplainedVersion, Explanation, FilterAnswer,
    Outcome, RangeExplanation, ReadWork, ScannedSource, SourceName, Verdict, VersionKind, explain_key,
    explain_range,
};
pub use get::{Located, contains, get, get_map, locate, multi_contains, multi_get, resolve, sees};
pub use iter::{Iter, Keys};
pub use newest::{newest_range, newest_version};
pub use spans::{Span, Spans, is_before, merge_spans};
pub(crate) use track::Track;
pub use value::ValueReader;
