//! Iterators.

use std::ffi::c_int;

use crate::abi::Code;
use crate::failure::{Failure, answer, answer_or, invalid};
use crate::handle::Handle;
use crate::pointer::{In, Out, tell};
use crate::state::{self, ITERATORS, Iterator, To};

const NO_KEY: Failure = invalid!("the place for the key is NULL");
const NO_KEY_SIZE: Failure = invalid!("the place for the size of the key is NULL");
const NO_VALUE: Failure = invalid!("the place for the value is NULL");
const NO_VALUE_SIZE: Failure = invalid!("the place for the size of the value is NULL");

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
    answer(|| {
        let key = key.key(key_size)?;
        ITERATORS.with(iter, |iter| iter.go(To::AtOrAfter(key)))
    })
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
    answer(|| ITERATORS.with(iter, Iterator::next))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_prev(iter: Handle) -> Code {
    answer(|| ITERATORS.with(iter, Iterator::prev))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_valid(iter: Handle) -> c_int {
    answer_or(0, || Ok(c_int::from(ITERATORS.lend(iter)?.valid())))
}

/// What the pointer shows stays until the iterator moves or is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_key(iter: Handle, key: Out<*const u8>, key_size: Out<usize>) -> Code {
    answer(|| {
        key.check_for(NO_KEY)?;
        key_size.check_for(NO_KEY_SIZE)?;
        ITERATORS.with(iter, |iter| {
            tell(key, key_size, iter.key()?);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_value(iter: Handle, value: Out<*const u8>, value_size: Out<usize>) -> Code {
    answer(|| {
        value.check_for(NO_VALUE)?;
        value_size.check_for(NO_VALUE_SIZE)?;
        ITERATORS.with(iter, |iter| {
            tell(value, value_size, iter.value()?);
            Ok(())
        })
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
        key.check_for(NO_KEY)?;
        key_size.check_for(NO_KEY_SIZE)?;
        value.check_for(NO_VALUE)?;
        value_size.check_for(NO_VALUE_SIZE)?;
        ITERATORS.with(iter, |iter| {
            let (k, v) = iter.entry()?;
            tell(key, key_size, k);
            tell(value, value_size, v);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_free(iter: Handle) {
    if iter != Handle::NULL {
        answer(|| ITERATORS.remove(iter).map(drop));
    }
}
