//! Reads of one key or of many, into buffers of the caller.

use std::ffi::c_uint;

use crate::abi::Code;
use crate::abi::extended::{KEYS_ONLY, NONE, ReadOptions, Row, Span, UNTRACKED};
use crate::callback::unix_millis;
use crate::failure::{Answer, answer, invalid};
use crate::handle::Handle;
use crate::pointer::{In, Out, Room};
use crate::state::{NO_KEY, NO_ROOM, NO_ROW, Reading};

/// Returns the checked options of a function that takes the flags `takes`; null means the newest commits.
pub(super) fn reading(options: In<ReadOptions>, takes: c_uint) -> Answer<Reading> {
    Reading::of(&options.growing()?, takes)
}

/// The value is copied once, from the memory of the engine into that of the caller.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_get(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<ReadOptions>,
    buffer: Out<u8>,
    capacity: usize,
    value_size: Out<usize>,
) -> Code {
    answer(|| {
        let (key, room) = (key.key(key_size)?, buffer.room(capacity)?);
        value_size.check()?;
        let copied = |bytes: &[u8]| (room.put(0, bytes), bytes.len());
        let found = reading(options, UNTRACKED)?.on(cf, |view, _| view.get(key, copied))?;
        let (fits, size) = found.ok_or(NO_KEY)?;
        value_size.set(size);
        if fits { Ok(()) } else { Err(NO_ROOM) }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_contains(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<ReadOptions>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        let found = reading(options, UNTRACKED | KEYS_ONLY)?.on(cf, |view, _| view.contains(key))?;
        if found { Ok(()) } else { Err(NO_KEY) }
    })
}

/// Returns the keys of a list.
fn keys_of<'call>(keys: In<u8>, key_sizes: In<usize>, count: usize) -> Answer<Vec<&'call [u8]>> {
    let keys: Vec<&[u8]> = keys.pieces(key_sizes.items(count)?)?.collect();
    if keys.iter().any(|key| key.is_empty() || key.len() > tidesdb::KEY_BYTES_MAX) {
        return Err(invalid!("a key is empty or longer than 64 KiB"));
    }
    Ok(keys)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_multi_get(
    cf: Handle,
    keys: In<u8>,
    key_sizes: In<usize>,
    count: usize,
    options: In<ReadOptions>,
    buffer: Out<u8>,
    capacity: usize,
    spans: Out<Span>,
    needed: Out<usize>,
) -> Code {
    answer(|| {
        let keys = keys_of(keys, key_sizes, count)?;
        let (room, spans) = (buffer.room(capacity)?, spans.places(count)?);
        needed.check()?;
        let values = reading(options, 0)?.on(cf, |view, _| view.multi_get(&keys))?;
        let sum: usize = values.iter().flatten().map(|value| value.len()).sum();
        needed.set(sum);
        if sum > capacity {
            return Err(NO_ROOM);
        }
        let mut used = 0;
        for (at, value) in values.iter().enumerate() {
            let Some(value) = value else {
                spans.set(at, Span { offset: NONE, size: 0 });
                continue;
            };
            room.put(used, value);
            spans.set(at, Span { offset: used, size: value.len() });
            used += value.len();
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_multi_contains(
    cf: Handle,
    keys: In<u8>,
    key_sizes: In<usize>,
    count: usize,
    options: In<ReadOptions>,
    found: Out<u8>,
) -> Code {
    answer(|| {
        let keys = keys_of(keys, key_sizes, count)?;
        let places = found.places(count)?;
        let found = reading(options, KEYS_ONLY)?.on(cf, |view, _| view.multi_contains(&keys))?;
        found.iter().enumerate().for_each(|(at, found)| places.set(at, u8::from(*found)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_first(
    cf: Handle,
    options: In<ReadOptions>,
    buffer: Out<u8>,
    capacity: usize,
    row: Out<Row>,
) -> Code {
    answer(|| end(cf, options, tidesdb::Cursor::seek_to_first, buffer.room(capacity)?, row))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_last(
    cf: Handle,
    options: In<ReadOptions>,
    buffer: Out<u8>,
    capacity: usize,
    row: Out<Row>,
) -> Code {
    answer(|| end(cf, options, tidesdb::Cursor::seek_to_last, buffer.room(capacity)?, row))
}

/// Copies the row that `seek` moves to.
fn end(
    cf: Handle,
    options: In<ReadOptions>,
    seek: impl FnOnce(&mut tidesdb::Cursor) -> tidesdb::Result<()>,
    room: Room,
    row: Out<Row>,
) -> Answer {
    row.check()?;
    let reading = reading(options, KEYS_ONLY)?;
    let (found, fits) = reading.on(cf, |view, _| {
        let mut cursor = view.cursor(reading.keys_only)?;
        seek(&mut cursor)?;
        if !cursor.valid() {
            return Err(NO_ROW);
        }
        let (key, value) = if reading.keys_only { (cursor.key(), &[][..]) } else { cursor.entry()? };
        let found = Row { offset: 0, key_size: key.len(), value_size: value.len() };
        let fits = key.len() + value.len() <= room.len() && room.put(0, key) && room.put(key.len(), value);
        Ok((found, fits))
    })?;
    row.set(found);
    if fits { Ok(()) } else { Err(NO_ROOM) }
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_expiry(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<ReadOptions>,
    expires_at_ms: Out<u64>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        expires_at_ms.check()?;
        let expiry = reading(options, KEYS_ONLY)?.on(cf, |view, _| {
            let mut cursor = view.cursor(true)?;
            cursor.seek(key)?;
            let order = view.family().current_options().comparator;
            let is_there = cursor.valid() && order.compare(cursor.key(), key).is_eq();
            if is_there { Ok(cursor.expiry()) } else { Err(NO_KEY) }
        })?;
        expires_at_ms.set(expiry.map_or(0, unix_millis));
        Ok(())
    })
}
