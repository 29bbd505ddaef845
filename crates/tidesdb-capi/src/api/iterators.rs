//! Iterators.

use std::ffi::c_int;

use crate::abi::Code;
use crate::failure::{answer, answer_or};
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::state::{self, ITERATORS, To};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_new(txn: Handle, cf: Handle, iter: Out<Handle>) -> Code {
    answer(|| {
        iter.check()?;
        iter.set(state::iterate(txn, cf)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek(iter: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| ITERATORS.lend(iter)?.go(To::AtOrAfter(key.key(key_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_for_prev(iter: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| ITERATORS.lend(iter)?.go(To::AtOrBefore(key.key(key_size)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_first(iter: Handle) -> Code {
    answer(|| ITERATORS.lend(iter)?.go(To::First))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_last(iter: Handle) -> Code {
    answer(|| ITERATORS.lend(iter)?.go(To::Last))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_next(iter: Handle) -> Code {
    answer(|| ITERATORS.lend(iter)?.next())
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_prev(iter: Handle) -> Code {
    answer(|| ITERATORS.lend(iter)?.prev())
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_valid(iter: Handle) -> c_int {
    answer_or(0, || Ok(c_int::from(ITERATORS.lend(iter)?.valid())))
}

/// What the pointer shows stays until the iterator moves or is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_key(iter: Handle, key: Out<*const u8>, key_size: Out<usize>) -> Code {
    answer(|| {
        key.check()?;
        key_size.check()?;
        let lent = ITERATORS.lend(iter)?;
        let bytes = lent.key()?;
        key.set(bytes.as_ptr());
        key_size.set(bytes.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_value(iter: Handle, value: Out<*const u8>, value_size: Out<usize>) -> Code {
    answer(|| {
        value.check()?;
        value_size.check()?;
        let mut lent = ITERATORS.lend(iter)?;
        let bytes = lent.value()?;
        value.set(bytes.as_ptr());
        value_size.set(bytes.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_key_value(
    iter: Handle,
    key: Out<*const u8>,
    key_size: Out<usize>,
    value: Out<*const u8>,
    value_size: Out<usize>,
) -> Code {
    answer(|| {
        key.check()?;
        key_size.check()?;
        value.check()?;
        value_size.check()?;
        let mut lent = ITERATORS.lend(iter)?;
        let bytes = lent.value()?;
        value.set(bytes.as_ptr());
        value_size.set(bytes.len());
        let bytes = lent.key()?;
        key.set(bytes.as_ptr());
        key_size.set(bytes.len());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_free(iter: Handle) {
    if iter != Handle::NULL {
        answer(|| ITERATORS.remove(iter).map(drop));
    }
}
