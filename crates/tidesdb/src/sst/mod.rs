//! Tables: sorted, immutable files (`.klog`), written once from front to back and read at random positions.
//!
//! ```text
//! Table            table.rs    get; bounds            TableCursor  cursor.rs  iterates over entries in both directions
//!  |- Filter       filter.rs   rejects absent keys    Window       window.rs  read-ahead for scans
//!  `- Blocks       blocks.rs   keys and values        ReadGate     gate.rs    decides whether a lookup may wait for a read
//!      |- Index    index/      key -> block           (verify)     verify.rs  reads and checks everything
//!      `- Parts    parts.rs    the cache, counted reads
//!          `- TableFile  file.rs   the bytes; checksums of sections
//!
//! bytes of a block -> decode.rs -> Block (block/reader.rs): entry -> fields (block/search.rs: key -> entry)
//! end of a file    -> open.rs   -> Sections: footer (layout.rs), top level of the index, shape of the filter
//! memory.rs shares one limit between the tables and the cache
//!
//! TableWriter      writer.rs   entries -> block/builder.rs, index/builder.rs, filter.rs, TableMeta (props.rs), footer
//! ```
//!
//! `docs/formats/klog.md` describes the file layout. The constants are in `layout.rs` and `block/mod.rs`.
//!
//! Every byte of a file is covered by a checksum that is bound to the file's salt and to the offset of the bytes. The
//! manifest contains the salt and the length of the file. So bytes from another file, another offset or an older file
//! do not verify. Any number of threads may share a table; a writer or a cursor belongs to one thread.

mod block;
mod blocks;
mod cursor;
mod decode;
mod file;
mod filter;
mod gate;
mod index;
mod layout;
mod memory;
mod open;
mod parts;
mod props;
mod steps;
mod table;
mod trace;
#[cfg(test)]
mod tests;
mod verify;
mod window;
mod writer;

pub use block::CachedBlock;
pub use cursor::TableCursor;
pub use gate::{AllowAllReads, ReadGate, TurnGate};
pub use index::BlocksWithin;
pub use memory::{CacheMemory, TableMemory};
pub use open::{PROPS_BYTES_MAX, describe};
pub use parts::{BlockReads, CachedPart, TableContext};
pub use props::{BUILT_RANGES_MAX, Built, TableMeta, Taken, VlogRef};
pub use steps::{ReadOrigin, ReadStep};
pub use table::{FoundVersion, Table};
pub use trace::WatchingGate;
pub use verify::{BlockContent, BlockInfo};
pub use writer::{TableOptions, TableWriter, UnsyncedTable};
