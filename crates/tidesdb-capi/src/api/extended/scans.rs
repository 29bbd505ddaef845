//! Iterators: many rows a call.

use crate::abi::Code;
use crate::abi::extended::{KEYS_ONLY, ReadOptions, Row};
use crate::failure::{Answer, answer, invalid};
use crate::handle::Handle;
use crate::pointer::{In, Out, with_copy};
use crate::state::{self, Bounds, Buffers, Sink, Way};

use super::reads::reading;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_new(
    cf: Handle,
    options: In<ReadOptions>,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
    iter: Out<Handle>,
) -> Code {
    answer(|| {
        let bounds = Bounds::Range(start.end(start_size)?, end.end(end_size)?);
        iter.check()?;
        iter.set(state::scan(cf, &reading(options, KEYS_ONLY)?, bounds)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_new_prefix(
    cf: Handle,
    options: In<ReadOptions>,
    prefix: In<u8>,
    prefix_size: usize,
    iter: Out<Handle>,
) -> Code {
    answer(|| {
        let prefix = prefix.key(prefix_size)?;
        iter.check()?;
        iter.set(state::scan(cf, &reading(options, KEYS_ONLY)?, Bounds::Prefix(prefix))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_seek(iter: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| match key.end(key_size)? {
        Some(key) => with_copy(key, |key| state::on_scan(iter, |scan| scan.seek(Some(key)))),
        None => state::on_scan(iter, |scan| scan.seek(None)),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_seek_for_prev(iter: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| match key.end(key_size)? {
        Some(key) => with_copy(key, |key| state::on_scan(iter, |scan| scan.seek_for_prev(Some(key)))),
        None => state::on_scan(iter, |scan| scan.seek_for_prev(None)),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_next(
    iter: Handle,
    buffer: Out<u8>,
    capacity: usize,
    rows: Out<Row>,
    rows_max: usize,
    count: Out<usize>,
    needed: Out<usize>,
) -> Code {
    answer(|| copy(iter, Way::Forwards, (buffer, capacity), (rows, rows_max), (count, needed)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_prev(
    iter: Handle,
    buffer: Out<u8>,
    capacity: usize,
    rows: Out<Row>,
    rows_max: usize,
    count: Out<usize>,
    needed: Out<usize>,
) -> Code {
    answer(|| copy(iter, Way::Backwards, (buffer, capacity), (rows, rows_max), (count, needed)))
}

fn copy(
    iter: Handle,
    way: Way,
    (buffer, capacity): (Out<u8>, usize),
    (rows, rows_max): (Out<Row>, usize),
    (count, needed): (Out<usize>, Out<usize>),
) -> Answer {
    let mut to = Buffers::new(buffer.room(capacity)?, rows.places(rows_max)?);
    check_rows(rows_max)?;
    count.check()?;
    let copied = state::on_scan(iter, |scan| scan.copy(way, &mut to));
    if to.needed > 0 && copied.is_err() {
        needed.set(to.needed);
    }
    copied?;
    count.set(to.count());
    needed.set(to.needed);
    Ok(())
}

fn check_rows(rows_max: usize) -> Answer {
    if rows_max == 0 { Err(invalid!("there is no room for a row: rows_max is 0")) } else { Ok(()) }
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_lend_next(
    iter: Handle,
    rows_max: usize,
    bytes_max: usize,
    bytes: Out<*const u8>,
    rows: Out<*const Row>,
    count: Out<usize>,
) -> Code {
    answer(|| lend(iter, Way::Forwards, (rows_max, bytes_max), (bytes, rows, count)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_lend_prev(
    iter: Handle,
    rows_max: usize,
    bytes_max: usize,
    bytes: Out<*const u8>,
    rows: Out<*const Row>,
    count: Out<usize>,
) -> Code {
    answer(|| lend(iter, Way::Backwards, (rows_max, bytes_max), (bytes, rows, count)))
}

fn lend(
    iter: Handle,
    way: Way,
    (rows_max, bytes_max): (usize, usize),
    (bytes, rows, count): (Out<*const u8>, Out<*const Row>, Out<usize>),
) -> Answer {
    check_rows(rows_max)?;
    bytes.check()?;
    rows.check()?;
    count.check()?;
    state::on_scan(iter, |scan| {
        let (lent, spans) = scan.lend(way, rows_max, bytes_max)?;
        bytes.set(lent.as_ptr());
        rows.set(spans.as_ptr());
        count.set(spans.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_iter_free(iter: Handle) {
    if iter != Handle::NULL {
        answer(|| state::free_scan(iter));
    }
}
