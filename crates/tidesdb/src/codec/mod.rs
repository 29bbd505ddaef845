//! Encoding and decoding of values stored on disk. All integers are little-endian. Decoders check every byte they read
//! and return an error for bad input.

mod checksum;
mod compress;
mod cursor;
mod varint;
mod fields;
mod sums;

pub use checksum::{Salt, bound_crc, hex, key_hash};
pub use compress::{
    Compression, compress, compress_bound, compress_to, decompress, decompress_into, decompress_prefix,
    longest_raw,
};
pub use cursor::Decoder;
pub use fields::{FieldClass, FieldWriter, UnknownFields, read_fields};
pub use sums::PartSums;
pub use varint::{Sink, VARINT_BYTES_MAX, put_bytes, put_varint};
