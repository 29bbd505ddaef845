//! Column families: create, drop, rename, clone, find, list, set the commit hook.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;

use crate::abi::{Code, FamilyConfig, HookFn};
use crate::callback::{self, Context};
use crate::failure::{Answer, answer, answer_or};
use crate::handle::Handle;
use crate::memory;
use crate::pointer::{In, Out};
use crate::state;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_create_column_family(
    db: Handle,
    name: In<c_char>,
    config: In<FamilyConfig>,
) -> Code {
    answer(|| state::database(db)?.create(name.text()?, config.get()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_drop_column_family(db: Handle, name: In<c_char>) -> Code {
    answer(|| state::database(db)?.drop_family(name.text()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_delete_column_family(db: Handle, cf: Handle) -> Code {
    answer(|| state::database(db)?.delete_family(cf))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_rename_column_family(db: Handle, old: In<c_char>, new: In<c_char>) -> Code {
    answer(|| state::database(db)?.rename(old.text()?, new.text()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_clone_column_family(db: Handle, source: In<c_char>, new: In<c_char>) -> Code {
    answer(|| state::database(db)?.clone_family(source.text()?, new.text()?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_get_column_family(db: Handle, name: In<c_char>) -> Handle {
    answer_or(Handle::NULL, || Ok(state::database(db)?.family(name.text()?)?.0))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_list_column_families(
    db: Handle,
    names: Out<*mut *mut c_char>,
    count: Out<c_int>,
) -> Code {
    answer(|| {
        names.check()?;
        count.check()?;
        let listed = state::database(db)?.names()?;
        let copies = copy_names(&listed)?;
        names.set(copies);
        count.set(c_int::try_from(listed.len()).unwrap_or(c_int::MAX));
        Ok(())
    })
}

/// Copies names into an array of strings, all of which the caller frees. Returns null if there are none.
fn copy_names(names: &[String]) -> Answer<*mut *mut c_char> {
    let mut copies = Vec::with_capacity(names.len());
    let copied = names.iter().try_for_each(|name| {
        // A name created through Rust may contain a zero byte, which ends a C string: the name is cut there.
        let text = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
        copies.push(memory::copy_text(&text)?);
        Ok(())
    });
    let array = copied.and_then(|()| memory::copy_all(&copies));
    if array.is_err() {
        copies.into_iter().for_each(memory::free);
    }
    array
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_cf_set_commit_hook(
    cf: Handle,
    function: Option<HookFn>,
    context: *mut c_void,
) -> Code {
    answer(|| {
        callback::not_in_order()?;
        let context = if function.is_some() { context } else { null_mut() };
        state::family(cf)?.set_hook(function, Context::new(context));
        Ok(())
    })
}
