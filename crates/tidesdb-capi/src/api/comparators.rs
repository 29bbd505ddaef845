//! Comparators: the built-in ones, as functions, and user-defined ones.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::LazyLock;

use tidesdb::Comparator;

use crate::abi::{Code, CompareFn, ERR_NOT_FOUND};
use crate::callback::Context;
use crate::failure::{answer, answer_or, invalid, told};
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::state::{self, Order};

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_register_comparator(
    db: Handle,
    name: In<c_char>,
    function: Option<CompareFn>,
    context_text: In<c_char>,
    context: *mut c_void,
) -> Code {
    answer(|| {
        let database = state::database(db)?;
        let function = function.ok_or(invalid!("the comparator's function is NULL"))?;
        let name =
            name.text().inspect_err(|_| tracing::warn!("refused a comparator whose name is not UTF-8"))?;
        let name = name.to_owned();
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
        let database = state::database(db)?;
        let name = name.text()?;
        let (found, of) = match (built_in(name), database.order(name)) {
            (Some(function), _) => (function, std::ptr::null_mut()),
            (None, Some(order)) => (order.function, order.context.raw()),
            (None, None) => return Err(told!(ERR_NOT_FOUND, "no comparator has this name")),
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

/// Exports the built-in comparators as functions. Each creates the engine's comparator once, because callers
/// may compare often.
macro_rules! comparators {
    ($($symbol:ident: $order:ident,)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol(a: *const u8, an: usize, b: *const u8, bn: usize, _: *mut c_void) -> c_int {
            static ORDER: LazyLock<Comparator> = LazyLock::new(Comparator::$order);
            answer_or(0, || {
                let (a, b) = (In::from_caller(a).bytes(an)?, In::from_caller(b).bytes(bn)?);
                Ok(ORDER.compare(a, b) as c_int)
            })
        }
    )*};
}

comparators! {
    tidesdb_comparator_memcmp: bytewise,
    tidesdb_comparator_lexicographic: c_string,
    tidesdb_comparator_uint64: u64_le,
    tidesdb_comparator_int64: i64_le,
    tidesdb_comparator_reverse_memcmp: reverse_bytewise,
    tidesdb_comparator_case_insensitive: case_insensitive,
}
