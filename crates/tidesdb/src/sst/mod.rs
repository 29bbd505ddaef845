//! Tables: sorted, immutable files (`.klog`), written once from front to back and read at random.
//!
//! ```text
//! writer.rs ---> block/builder.rs   entries -> a block: columns of keys, then frames of values
//!    |     `---> index/builder.rs   a fence per block, and where the block lies, in partitions
//!    |     `---> filter.rs          a blocked Bloom filter of the keys, in partitions
//!    |     `---> props.rs           TableMeta: what the manifest knows of a table
//!    |     `---> layout.rs          sections, the footer, the numbers of the format
//!    v
//! open.rs  ---> memory.rs           keeps index and filter in memory, or their top level
//! reader.rs <--- partitions.rs      key -> block        cursor.rs   walks entries both ways
//!    |     <---- block/search.rs    key -> entry        verify.rs   reads and checks everything
//!    |     <---- block/reader.rs    entry -> fields     source.rs   map or file -> bytes
//!    `---------- load.rs            bytes -> block      describe.rs shows blocks one by one
//!    `---------- values.rs          entry -> value     gate.rs     whether a lookup may wait for a read
//!                                                       window.rs   reads ahead of walks
//! ```
//!
//! The bytes are described in `docs/formats/klog.md`; the constants are in `layout.rs` and `block/mod.rs`.
//!
//! Every byte of a file is under a checksum that is bound to the file's salt and to the place of the bytes, and
//! the salt and the length of the file are in the manifest: bytes of another file, another place or
//! another time do not pass. A table is shared by any number of threads; writers and cursors belong to one.

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
pub use gate::{OpenGate, ReadGate, TurnGate};
pub use memory::TableMemory;
pub use props::{TableMeta, VlogRef};
pub use reader::{BlockReads, CachedPart, Found, Table, TableContext};
pub use value::TableValue;
pub use writer::{TableOptions, TableWriter};
