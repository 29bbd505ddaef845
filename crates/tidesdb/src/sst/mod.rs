//! Tables: sorted, immutable files (`.klog`), written once from front to back and read at random positions.
//!
//! ```text
//! writer.rs ---> block/builder.rs   entries -> a block: columns of keys, then frames of values
//!    |     `---> index/builder.rs   a fence per block and the block's location, in partitions
//!    |     `---> filter.rs          a blocked Bloom filter of the keys, in partitions
//!    |     `---> props.rs           TableMeta: the table's description in the manifest
//!    |     `---> layout.rs          sections, the footer, constants of the format
//!    v
//! open.rs  ---> memory.rs           keeps index and filter in memory, or only their top level
//! reader.rs <--- partitions.rs      key -> block        cursor.rs   iterates over entries in both directions
//!    |     <---- block/search.rs    key -> entry        verify.rs   reads and checks everything
//!    |     <---- block/reader.rs    entry -> fields     source.rs   mapped file or file -> bytes
//!    `---------- load.rs            bytes -> block      describe.rs reports the blocks one by one
//!    `---------- values.rs          entry -> value      gate.rs     decides whether a lookup may wait for a read
//!                                                       window.rs   read-ahead for scans
//! ```
//!
//! `docs/formats/klog.md` describes the file layout. The constants are in `layout.rs` and `block/mod.rs`.
//!
//! Every byte of a file is covered by a checksum that is bound to the file's salt and to the offset of the bytes. The
//! manifest contains the salt and the length of the file. So bytes from another file, another offset or an older file
//! do not verify. Any number of threads may share a table; a writer or a cursor belongs to one thread.

mod block;
mod cursor;
mod describe;
mod filter;
mod gate;
mod index;
mod layout;
mod load;
mod memory;
mod open;
mod partitions;
mod props;
mod reader;
mod source;
#[cfg(test)]
mod tests;
mod value;
mod values;
mod verify;
mod window;
mod writer;

pub use block::CachedBlock;
pub use cursor::TableCursor;
pub use describe::{BlockContent, BlockInfo};
pub use gate::{AllowAllReads, ReadGate, TurnGate};
pub use memory::TableMemory;
pub use partitions::BlocksWithin;
pub use props::{TableMeta, VlogRef};
pub use reader::{BlockReads, CachedPart, FoundVersion, Table, TableContext};
pub use value::TableValue;
pub use writer::{TableOptions, TableWriter, UnsyncedTable};
