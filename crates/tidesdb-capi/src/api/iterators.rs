//! Iterators.

use std::ffi::c_int;

use crate::abi::{Code, ERR_INVALID_ARGS, SUCCESS};
use crate::failure::{StaticError, answer, answer_or, refuse};
use crate::handle::{Handle, Window};
use crate::pointer::{In, Out, tell, with_copy};
use crate::state::{self, ITERATORS, Iterator, To, moved, on};

const NO_KEY: [&StaticError; 2] = [
    &StaticError(ERR_INVALID_ARGS, "the pointer for the key is NULL"),
    &StaticError(ERR_INVALID_ARGS, "the pointer for the size of the key is NULL"),
];
const NO_VALUE: [&StaticError; 2] = [
    &StaticError(ERR_INVALID_ARGS, "the pointer for the value is NULL"),
    &StaticError(ERR_INVALID_ARGS, "the pointer for the size of the value is NULL"),
];

/// Returns the failure for the out parameter that is null, if there is one.
#[inline(always)]
fn missing(
    at: Out<*const u8>,
    size: Out<usize>,
    [no_place, no_size]: [&'static StaticError; 2],
) -> Option<&'static StaticError> {
    if at.is_null() {
        return Some(no_place);
    }
    if size.is_null() { Some(no_size) } else { None }
}

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
    answer(|| with_copy(key.key(key_size)?, |key| moved(iter, |iter| iter.go(To::AtOrAfter(key)))))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_for_prev(iter: Handle, key: In<u8>, key_size: usize) -> Code {
    answer(|| with_copy(key.key(key_size)?, |key| moved(iter, |iter| iter.go(To::AtOrBefore(key)))))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_first(iter: Handle) -> Code {
    answer(|| moved(iter, |iter| iter.go(To::First)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_seek_to_last(iter: Handle) -> Code {
    answer(|| moved(iter, |iter| iter.go(To::Last)))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_next(iter: Handle) -> Code {
    if ITERATORS.near_front(iter).is_some_and(Window::step) {
        return SUCCESS;
    }
    next_row(iter)
}

/// Continues [`tidesdb_iter_next`]. `extern`, so that the call compiles to a single jump.
#[inline(never)]
extern "C" fn next_row(iter: Handle) -> Code {
    if ITERATORS.front(iter).is_some_and(Window::step) {
        return SUCCESS;
    }
    answer(|| moved(iter, Iterator::next))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_prev(iter: Handle) -> Code {
    answer(|| moved(iter, Iterator::prev))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_valid(iter: Handle) -> c_int {
    if ITERATORS.front(iter).is_some_and(Window::is_open) {
        return 1;
    }
    answer_or(0, || on(iter, |iter, _| Ok(c_int::from(iter.valid()))))
}

/// The key stays valid until the iterator moves or is freed.
#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_key(iter: Handle, key: Out<*const u8>, key_size: Out<usize>) -> Code {
    if let Some(missing) = missing(key, key_size, NO_KEY) {
        return refuse(missing);
    }
    if let Some(row) = ITERATORS.front(iter).and_then(Window::row) {
        key.set(row.key);
        key_size.set(row.key_size);
        return SUCCESS;
    }
    answer(|| {
        on(iter, |iter, _| {
            tell(key, key_size, iter.key()?);
            Ok(())
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_iter_value(iter: Handle, value: Out<*const u8>, value_size: Out<usize>) -> Code {
    if let Some(missing) = missing(value, value_size, NO_VALUE) {
        return refuse(missing);
    }
    if let Some(row) = ITERATORS.front(iter).and_then(Window::asked_row) {
        value.set(row.value);
        value_size.set(row.value_size);
        return SUCCESS;
    }
    answer(|| {
        on(iter, |iter, window| {
            window.ask();
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
    if let Some(missing) = missing(key, key_size, NO_KEY) {
        return refuse(missing);
    }
    if let Some(missing) = missing(value, value_size, NO_VALUE) {
        return refuse(missing);
    }
    if let Some(row) = ITERATORS.near_front(iter).and_then(Window::asked_row) {
        row.tell(key, key_size, value, value_size);
        return SUCCESS;
    }
    row(iter, key, key_size, value, value_size)
}

/// Continues [`tidesdb_iter_key_value`], which has checked for null.
#[inline(never)]
extern "C" fn row(
    iter: Handle,
    key: Out<*const u8>,
    key_size: Out<usize>,
    value: Out<*const u8>,
    value_size: Out<usize>,
) -> Code {
    if let Some(row) = ITERATORS.front(iter).and_then(Window::asked_row) {
        row.tell(key, key_size, value, value_size);
        return SUCCESS;
    }
    answer(|| {
        on(iter, |iter, window| {
            window.ask();
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
        answer(|| ITERATORS.remove_shut(iter).map(drop));
    }
}
