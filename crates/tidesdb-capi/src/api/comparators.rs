//! Key orders: those that are always there, as functions, and those of the user.

use std::cmp::Ordering;
use std::ffi::{CString, c_char, c_int, c_void};

use tidesdb::Comparator;

use crate::abi::{Code, CompareFn, ERR_NOT_FOUND};
use crate::callback::Context;
use crate::failure::{answer, answer_or, invalid, told};
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::state::{DATABASES, Order};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_register_comparator(
    db: Handle,
    name: In<c_char>,
    function: Option<CompareFn>,
    context_text: In<c_char>,
    context: *mut c_void,
) -> Code {
    answer(|| {
        let database = DATABASES.share(db)?;
        let function = function.ok_or(invalid!("the comparator's function is NULL"))?;
        let name = name.text()?.to_owned();
        let context_text =
            if context_text.is_null() { CString::default() } else { context_text.c_str()?.to_owned() };
        database.register(Order { name, function, context: Context::new(context), context_text })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_get_comparator(
    db: Handle,
    name: In<c_char>,
    function: Out<CompareFn>,
    context: Out<*mut c_void>,
) -> Code {
    answer(|| {
        let database = DATABASES.share(db)?;
        let name = name.text()?;
        let (found, of) = match (built_in(name), database.order(name)) {
            (Some(function), _) => (function, std::ptr::null_mut()),
            (None, Some(order)) => (order.function, order.context.raw()),
            (None, None) => return Err(told!(ERR_NOT_FOUND, "no comparator of this name")),
        };
        function.set(found);
        context.set(of);
        Ok(())
    })
}

fn built_in(name: &str) -> Option<CompareFn> {
    Some(match name {
        "memcmp" => tidesdb_comparator_memcmp,
        "lexicographic" => tidesdb_comparator_lexicographic,
        "uint64" => tidesdb_comparator_uint64,
        "int64" => tidesdb_comparator_int64,
        "reverse" => tidesdb_comparator_reverse_memcmp,
        "case_insensitive" => tidesdb_comparator_case_insensitive,
        _ => return None,
    })
}

/// A key as it comes to a comparator.
type Key = (*const u8, usize);

fn compare(a: Key, b: Key, order: impl FnOnce(&[u8], &[u8]) -> Ordering) -> c_int {
    let bytes = |key: Key| In::from_caller(key.0).bytes(key.1);
    answer_or(0, || Ok(order(bytes(a)?, bytes(b)?) as c_int))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_comparator_memcmp(
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    _: *mut c_void,
) -> c_int {
    compare((a, an), (b, bn), <[u8]>::cmp)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_comparator_lexicographic(
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    _: *mut c_void,
) -> c_int {
    compare((a, an), (b, bn), |a, b| Comparator::lexicographic().compare(a, b))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_comparator_uint64(
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    _: *mut c_void,
) -> c_int {
    compare((a, an), (b, bn), |a, b| Comparator::u64_le().compare(a, b))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_comparator_int64(
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    _: *mut c_void,
) -> c_int {
    compare((a, an), (b, bn), |a, b| Comparator::i64_le().compare(a, b))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_comparator_reverse_memcmp(
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    _: *mut c_void,
) -> c_int {
    compare((a, an), (b, bn), |a, b| b.cmp(a))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_comparator_case_insensitive(
    a: *const u8,
    an: usize,
    b: *const u8,
    bn: usize,
    _: *mut c_void,
) -> c_int {
    compare((a, an), (b, bn), |a, b| Comparator::case_insensitive().compare(a, b))
}
