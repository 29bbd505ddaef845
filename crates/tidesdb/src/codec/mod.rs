//! Bytes to words and back. Little-endian everywhere; whatever comes from disk is decoded with checks and may fail.

mod checksum;
mod compress;
mod cursor;
mod varint;
mod fields;

pub use checksum::{Salt, bound_crc, key_hash};
pub use compress::{Compression, compress, decompress, decompress_into, decompress_prefix, longest_raw};
pub use cursor::Decoder;
pub use fields::{FieldClass, FieldWriter, UnknownFields, read_fields};
pub use varint::{VARINT_BYTES_MAX, put_bytes, put_varint};
