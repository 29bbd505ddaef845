//! Transactions.

use std::ffi::{c_char, c_int};

use tidesdb::Isolation;

use crate::abi::Code;
use crate::callback;
use crate::failure::{Answer, Failure, answer};
use crate::handle::Handle;
use crate::memory;
use crate::pointer::{In, Out};
use crate::state::{self, TRANSACTIONS, Tracking, Transaction};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_begin(db: Handle, txn: Out<Handle>) -> Code {
    answer(|| {
        txn.check()?;
        txn.set(state::begin(db, Isolation::ReadCommitted)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_begin_with_isolation(db: Handle, isolation: c_int, txn: Out<Handle>) -> Code {
    answer(|| {
        txn.check()?;
        txn.set(state::begin(db, Transaction::level(isolation)?)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_put(
    txn: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: In<u8>,
    value_size: usize,
    ttl: i64,
) -> Code {
    answer(|| {
        callback::not_in_order()?;
        let (key, value) = (key.key(key_size)?, value.bytes(value_size)?);
        TRANSACTIONS.with(txn, |txn| txn.put(cf, key, value, ttl))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_delete(txn: Handle, cf: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| {
        callback::not_in_order()?;
        let key = key.key(key_size)?;
        TRANSACTIONS.with(txn, |txn| txn.delete(cf, key, false))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_single_delete(txn: Handle, cf: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| {
        callback::not_in_order()?;
        TRANSACTIONS.lend(txn)?.delete(cf, key.key(key_size)?, true)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_get(
    txn: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: Out<*mut u8>,
    value_size: Out<usize>,
) -> Code {
    answer(|| get(txn, cf, key.key(key_size)?, Tracking::Tracked, (value, value_size)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_get_notrack(
    txn: Handle,
    cf: Handle,
    key: In<u8>,
    key_size: usize,
    value: Out<*mut u8>,
    value_size: Out<usize>,
) -> Code {
    answer(|| get(txn, cf, key.key(key_size)?, Tracking::Untracked, (value, value_size)))
}

/// Copies the value once, from the engine's memory into the caller's.
#[inline]
fn get(
    txn: Handle,
    cf: Handle,
    key: &[u8],
    tracking: Tracking,
    (value, value_size): (Out<*mut u8>, Out<usize>),
) -> Answer {
    value.check()?;
    value_size.check()?;
    let copied = |bytes: &[u8]| Ok::<_, Failure>((memory::copy(bytes)?, bytes.len()));
    TRANSACTIONS.with(txn, |txn| {
        let (copy, size) = txn.get(cf, key, tracking, copied)??;
        value.set(copy);
        value_size.set(size);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_contains(txn: Handle, cf: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| TRANSACTIONS.lend(txn)?.contains(cf, key.key(key_size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_commit(txn: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        TRANSACTIONS.lend(txn)?.commit()
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_rollback(txn: Handle) -> Code {
    answer(|| TRANSACTIONS.lend(txn)?.rollback())
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_reset(txn: Handle, isolation: c_int) -> Code {
    answer(|| TRANSACTIONS.lend(txn)?.reset(Transaction::level(isolation)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_free(txn: Handle) {
    if txn != Handle::NULL {
        answer(|| state::end(txn));
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_savepoint(txn: Handle, name: In<c_char>) -> Code {
    answer(|| TRANSACTIONS.lend(txn)?.savepoint(name.c_str()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_rollback_to_savepoint(txn: Handle, name: In<c_char>) -> Code {
    answer(|| TRANSACTIONS.lend(txn)?.rollback_to(name.c_str()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_txn_release_savepoint(txn: Handle, name: In<c_char>) -> Code {
    answer(|| TRANSACTIONS.lend(txn)?.release(name.c_str()?))
}
