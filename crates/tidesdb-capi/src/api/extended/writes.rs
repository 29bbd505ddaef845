//! Writes without a transaction, batches, and writes of transactions that the base interface lacks.

use std::ffi::{c_int, c_void};
use std::time::SystemTime;

use tidesdb::{Family, Slice, Transaction};

use crate::abi::Code;
use crate::abi::extended::{CommittedFn, ERR_TOO_LARGE, NONE, Row, Span, WriteOptions};
use crate::callback::{self, Context, Receiver};
use crate::failure::{Answer, answer, invalid};
use crate::handle::Handle;
use crate::pointer::{In, Out, Room};
use crate::state::{self, NO_KEY, NO_ROOM, NO_ROW, ObjectKind, Op, TRANSACTIONS, Writing, bounds};

/// Returns the checked options; null means the defaults.
pub(super) fn writing(options: In<WriteOptions>) -> Answer<Writing> {
    Writing::of(&options.growing()?)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_put(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: In<u8>,
    value_size: usize,
    options: In<WriteOptions>,
    seq: Out<u64>,
) -> Code {
    answer(|| {
        let (key, value) = (key.key(key_size)?, value.bytes(value_size)?);
        seq.set(writing(options)?.put(cf, key, value)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_delete(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<WriteOptions>,
    seq: Out<u64>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        seq.set(writing(options)?.one(cf, |family, how| family.delete_with(key, how))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_single_delete(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<WriteOptions>,
    seq: Out<u64>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        seq.set(writing(options)?.one(cf, |family, how| family.single_delete_with(key, how))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_merge(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    operand: In<u8>,
    operand_size: usize,
    options: In<WriteOptions>,
    seq: Out<u64>,
) -> Code {
    answer(|| {
        let (key, operand) = (key.key(key_size)?, operand.bytes(operand_size)?);
        seq.set(writing(options)?.one(cf, |family, how| family.merge_with(key, operand, how))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_delete_range(
    cf: Handle,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
    options: In<WriteOptions>,
    seq: Out<u64>,
) -> Code {
    answer(|| {
        let range = bounds(start.end(start_size)?, end.end(end_size)?);
        seq.set(writing(options)?.one(cf, |family, how| family.delete_range_with(range, how))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_delete_prefix(
    cf: Handle,
    prefix: In<u8>,
    prefix_size: usize,
    options: In<WriteOptions>,
    seq: Out<u64>,
) -> Code {
    answer(|| {
        let prefix = prefix.key(prefix_size)?;
        seq.set(writing(options)?.one(cf, |family, how| family.delete_prefix_with(prefix, how))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_compare_and_swap(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    expected: In<u8>,
    expected_size: usize,
    new: In<u8>,
    new_size: usize,
    options: In<WriteOptions>,
    swapped: Out<c_int>,
) -> Code {
    answer(|| {
        let key = key.key(key_size)?;
        let (expected, new) = (expected.optional(expected_size)?, new.optional(new_size)?);
        swapped.check()?;
        let mut is_expected = false;
        writing(options)?.alone(cf, &mut |txn, family, expiry| {
            let found = txn.get_map(family, key, |value| Some(value) == expected)?;
            is_expected = found.unwrap_or(expected.is_none());
            if is_expected { set(txn, family, key, new, expiry) } else { Ok(()) }
        })?;
        swapped.set(c_int::from(is_expected));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_replace(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: In<u8>,
    value_size: usize,
    options: In<WriteOptions>,
    buffer: Out<u8>,
    capacity: usize,
    old: Out<Span>,
) -> Code {
    answer(|| {
        let (key, value, room) = (key.key(key_size)?, value.bytes(value_size)?, buffer.room(capacity)?);
        old.check()?;
        let (size, done) = exchange(&writing(options)?, cf, key, Some(value), &room);
        let span = size.map_or(Span { offset: NONE, size: 0 }, |size| Span { offset: 0, size });
        set_if_known(old, span, done)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_take(
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    options: In<WriteOptions>,
    buffer: Out<u8>,
    capacity: usize,
    value_size: Out<usize>,
) -> Code {
    answer(|| {
        let (key, room) = (key.key(key_size)?, buffer.room(capacity)?);
        value_size.check()?;
        let (size, done) = exchange(&writing(options)?.without_expiry()?, cf, key, None, &room);
        set_if_known(value_size, size.unwrap_or(0), done)
    })
}

/// Copies the value of `key` to `room` and then makes `new` its value; `None` removes the row, which must be there. Does nothing if the old
/// value does not fit. Returns its size, which is known in that case too.
fn exchange(
    writing: &Writing,
    cf: Handle,
    key: &[u8],
    new: Option<&[u8]>,
    room: &Room,
) -> (Option<usize>, Answer) {
    let mut size = None;
    let done = writing.alone(cf, &mut |txn, family, expiry| {
        let found = txn.get_map(family, key, |value| (room.put(0, value), value.len()))?;
        size = found.map(|(_, size)| size);
        match (found, new) {
            (Some((false, _)), _) => Err(NO_ROOM),
            (None, None) => Err(NO_KEY),
            _ => set(txn, family, key, new, expiry),
        }
    });
    (size, done)
}

/// Makes `new` the value of `key`; `None` deletes it.
fn set(
    txn: &mut Transaction,
    family: &Family,
    key: &[u8],
    new: Option<&[u8]>,
    expiry: Option<SystemTime>,
) -> Answer {
    match new {
        Some(value) => Ok(txn.put_expiring(family, key, value, expiry)?),
        None => Ok(txn.delete(family, key)?),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_pop_first(
    cf: Handle,
    options: In<WriteOptions>,
    buffer: Out<u8>,
    capacity: usize,
    row: Out<Row>,
) -> Code {
    answer(|| pop(cf, options, |txn, family| txn.first(family), buffer.room(capacity)?, row))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_pop_last(
    cf: Handle,
    options: In<WriteOptions>,
    buffer: Out<u8>,
    capacity: usize,
    row: Out<Row>,
) -> Code {
    answer(|| pop(cf, options, |txn, family| txn.last(family), buffer.room(capacity)?, row))
}

/// Finds the first or the last row.
type End = fn(&Transaction, &Family) -> tidesdb::Result<Option<(Slice, Slice)>>;

/// Removes the row that `end` finds, if it fits into the buffer.
fn pop(cf: Handle, options: In<WriteOptions>, end: End, room: Room, row: Out<Row>) -> Answer {
    row.check()?;
    let mut found = Row::default();
    let done = writing(options)?.without_expiry()?.alone(cf, &mut |txn, family, _| {
        let (key, value) = end(txn, family)?.ok_or(NO_ROW)?;
        found = Row { offset: 0, key_size: key.len(), value_size: value.len() };
        if key.len() + value.len() > room.len() {
            return Err(NO_ROOM);
        }
        room.put(0, &key);
        room.put(key.len(), &value);
        Ok(txn.delete(family, &key)?)
    });
    set_if_known(row, found, done)
}

/// Writes the sizes of what was read, after success and if the buffer was too short.
fn set_if_known<T>(to: Out<T>, sizes: T, done: Answer) -> Answer {
    if done.as_ref().err().is_none_or(|failure| failure.code() == ERR_TOO_LARGE) {
        to.set(sizes);
    }
    done
}

// ---- transactions ----

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_txn_put(
    txn: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: In<u8>,
    value_size: usize,
    options: In<WriteOptions>,
) -> Code {
    answer(|| {
        let how = writing(options)?.without_sync()?;
        state::add(txn, cf, Op::Put(key.key(key_size)?, value.bytes(value_size)?), &how)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_txn_merge(
    txn: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    operand: In<u8>,
    operand_size: usize,
) -> Code {
    answer(|| add_plain(txn, cf, Op::Merge(key.key(key_size)?, operand.bytes(operand_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_txn_delete_range(
    txn: Handle,
    cf: Handle,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
) -> Code {
    answer(|| add_plain(txn, cf, Op::DeleteRange(start.end(start_size)?, end.end(end_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_txn_delete_prefix(
    txn: Handle,
    cf: Handle,
    prefix: In<u8>,
    prefix_size: usize,
) -> Code {
    answer(|| add_plain(txn, cf, Op::DeletePrefix(prefix.key(prefix_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_txn_commit(txn: Handle, options: In<WriteOptions>, seq: Out<u64>) -> Code {
    answer(|| {
        let how = writing(options)?.without_expiry()?;
        callback::not_in_order()?;
        seq.set(TRANSACTIONS.lend(txn)?.commit_at(how.sync)?);
        Ok(())
    })
}

fn add_plain(txn: Handle, cf: Handle, op: Op<'_>) -> Answer {
    state::add(txn, cf, op, &Writing::DEFAULT)
}

// ---- batches ----

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_new(db: Handle, batch: Out<Handle>) -> Code {
    answer(|| {
        batch.check()?;
        batch.set(state::new_batch(db)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_put(
    batch: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: In<u8>,
    value_size: usize,
    options: In<WriteOptions>,
) -> Code {
    answer(|| {
        let op = Op::Put(key.key(key_size)?, value.bytes(value_size)?);
        let how = writing(options)?.without_sync()?;
        state::batch(batch, |batch| batch.add(cf, op, &how))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_delete(batch: Handle, cf: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| batch_add(batch, cf, Op::Delete(key.key(key_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_merge(
    batch: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    operand: In<u8>,
    operand_size: usize,
) -> Code {
    answer(|| batch_add(batch, cf, Op::Merge(key.key(key_size)?, operand.bytes(operand_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_delete_range(
    batch: Handle,
    cf: Handle,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
) -> Code {
    answer(|| batch_add(batch, cf, Op::DeleteRange(start.end(start_size)?, end.end(end_size)?)))
}

fn batch_add(batch: Handle, cf: Handle, op: Op<'_>) -> Answer {
    state::batch(batch, |batch| batch.add(cf, op, &Writing::DEFAULT))
}

/// Returns a list of operations; all are puts if `kinds` is null.
pub(super) fn operations<'call>(
    kinds: In<u8>,
    bytes: In<u8>,
    sizes: In<usize>,
    count: usize,
) -> Answer<impl Iterator<Item = Answer<Op<'call>>>> {
    let sizes = sizes.items(count.saturating_mul(2))?;
    let kinds = if kinds.is_null() { None } else { Some(kinds.items(count)?) };
    let mut pieces = bytes.pieces(sizes)?;
    Ok((0..count).map(move |at| {
        let (key, value) = (pieces.next().unwrap_or_default(), pieces.next().unwrap_or_default());
        Op::of(kinds.map_or(0, |kinds| kinds[at]), key, value)
    }))
}

/// Operation `i` is of the kind `kinds[i]`; its key and its value have the sizes `sizes[2 * i]` and `sizes[2 * i + 1]`.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_add(
    batch: Handle,
    cf: Handle,
    kinds: In<u8>,
    bytes: In<u8>,
    sizes: In<usize>,
    count: usize,
    options: In<WriteOptions>,
) -> Code {
    answer(|| {
        let ops = operations(kinds, bytes, sizes, count)?;
        let how = writing(options)?.without_sync()?;
        state::batch(batch, |batch| batch.add_all(cf, ops, &how))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_size(batch: Handle, count: Out<usize>, bytes: Out<usize>) -> Code {
    answer(|| {
        let (n, size) = state::batch(batch, |batch| Ok(batch.size()))?;
        count.set(n);
        bytes.set(size);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_clear(batch: Handle) -> Code {
    answer(|| {
        state::batch(batch, |batch| {
            batch.clear();
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_write(batch: Handle, options: In<WriteOptions>, seq: Out<u64>) -> Code {
    answer(|| {
        let how = writing(options)?.without_expiry()?;
        seq.set(state::batch(batch, |batch| batch.write(&how))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_write_async(
    batch: Handle,
    options: In<WriteOptions>,
    committed: Option<CommittedFn>,
    ctx: *mut c_void,
) -> Code {
    answer(|| {
        let function = committed.ok_or(invalid!("the function that receives the result is NULL"))?;
        let how = writing(options)?.without_expiry()?;
        state::commit_in_background(batch, &how, Receiver::new(function, Context::new(ctx)))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_batch_free(batch: Handle) {
    if batch != Handle::NULL {
        answer(|| state::free(batch, ObjectKind::Batch));
    }
}
