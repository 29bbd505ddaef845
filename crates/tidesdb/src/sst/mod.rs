//! Tables: sorted, immutable files (`.klog`), written once from front to back and read at random.
//!
//! ```text
//! writer.rs ---> block/builder.rs   entries -> a block: columns of keys, then frames of values
//!    |     `---> index/builder.rs   a fence per block, and where the block lies
//!    |     `---> filter.rs          a blocked Bloom filter of the keys
//!    |     `---> props.rs           TableMeta: what the manifest knows of a table
//!    |     `---> layout.rs          sections, the footer, the numbers of the format
//!    v
//! reader.rs <--- index/search.rs    key -> block        cursor.rs   walks entries both ways
//!    |     <---- block/search.rs    key -> entry        verify.rs   reads and checks everything
//!    |     <---- block/reader.rs    entry -> fields     source.rs   map or file -> bytes
//!    `---------- load.rs            bytes -> block      describe.rs shows blocks one by one
//!    `---------- values.rs          entry -> value
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
mod index;
mod layout;
mod load;
mod props;
mod reader;
mod source;
#[cfg(test)]
mod tests;
mod values;
mod verify;
mod writer;

pub use block::CachedBlock;
pub use cursor::TableCursor;
pub use describe::{BlockContent, BlockInfo};
pub use props::{TableMeta, VlogRef};
pub use reader::{BlockReads, CachedPart, Found, Table, TableContext};
pub use values::TableValue;
pub use writer::{TableOptions, TableWriter};
