//! Values that are longer than memory: written and read piece by piece.

use crate::abi::Code;
use crate::abi::extended::{ReadOptions, WriteOptions};
use crate::failure::{Answer, answer};
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::state::{self, ObjectKind};

use super::reads::reading;
use super::writes::writing;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_writer_new(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<WriteOptions>,
    writer: Out<Handle>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        writer.check()?;
        writer.set(state::new_writer(cf, key, &writing(options)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_writer_write(writer: Handle, bytes: In<u8>, size: usize) -> Code {
    answer(|| state::append(writer, bytes.bytes(size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_writer_commit(writer: Handle, seq: Out<u64>) -> Code {
    answer(|| {
        seq.set(state::commit(writer)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_writer_join(writer: Handle, txn: Handle) -> Code {
    answer(|| state::join(writer, txn))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_writer_free(writer: Handle) {
    if writer != Handle::NULL {
        answer(|| state::free(writer, ObjectKind::Writer));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_reader_new(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<ReadOptions>,
    reader: Out<Handle>,
    value_size: Out<u64>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        reader.check()?;
        let (handle, size) = state::new_reader(cf, key, &reading(options, 0)?)?;
        reader.set(handle);
        value_size.set(size);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_reader_read(
    reader: Handle,
    buffer: Out<u8>,
    capacity: usize,
    size: Out<usize>,
) -> Code {
    answer(|| read(reader, None, buffer, capacity, size))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_reader_read_at(
    reader: Handle,
    offset: u64,
    buffer: Out<u8>,
    capacity: usize,
    size: Out<usize>,
) -> Code {
    answer(|| read(reader, Some(offset), buffer, capacity, size))
}

fn read(reader: Handle, at: Option<u64>, buffer: Out<u8>, capacity: usize, size: Out<usize>) -> Answer {
    let room = buffer.room(capacity)?;
    size.check()?;
    let copied = state::read(reader, at, room.len(), |done, bytes| {
        let n = bytes.len().min(room.len() - done);
        room.put(done, &bytes[..n]);
        n
    })?;
    size.set(copied);
    Ok(())
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_value_reader_free(reader: Handle) {
    if reader != Handle::NULL {
        answer(|| state::free(reader, ObjectKind::Reader));
    }
}
