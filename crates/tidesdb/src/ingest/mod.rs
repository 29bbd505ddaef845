//! Tables that are built outside of a database from sorted rows, and the record of the log by which a commit takes them.
//!
//! ```text
//! TableBuilder  builder.rs   rows in the order of their keys -> table files, each with a value log beside it
//! check         check.rs     a table from elsewhere is read and checked as a whole before it is taken
//! record        record.rs    which tables and range tombstones a commit takes: the body of its record in the log
//! ```
//!
//! `db/ingest.rs` takes tables into an open database. `docs/design/0043-ingest.md` says why it is done this way.

mod builder;
mod check;
mod record;

pub(crate) use builder::Room;
pub use builder::TableBuilder;
pub(crate) use check::{Foreign, check, name_of_values};
pub(crate) use record::{IngestRecord, Taking};

use crate::types::SeqNo;

/// What [`Db::ingest`](crate::Db::ingest) and [`Family::ingest_sorted`](crate::Family::ingest_sorted) have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ingested {
    /// Sequence number of the commit; 0 if there was nothing to take.
    pub seq: SeqNo,
    /// Number of tables.
    pub tables: u64,
    /// Number of their rows, deletes included.
    pub rows: u64,
    /// Length of their files and of their value logs, in bytes.
    pub bytes: u64,
}
