//! Opening a database with merge operators and other settings that the base interface lacks; families, their settings, functions and upkeep.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::time::Duration;

use crate::abi::extended::{
    FamilyOptions, FilterFn, HookFn, MUST_BE_NEW, MUST_EXIST, MergeOperator, OpenOptions, OrderOf, READ_ONLY,
};
use crate::abi::{Code, FamilyConfig};
use crate::api::lifecycle::{self, More};
use crate::callback::{self, Context, Filter};
use crate::failure::{Answer, answer, invalid};
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::state::{self, Bounds, Order};

/// Maximum length of the name of a merge operator in bytes.
const OPERATOR_NAME_MAX: usize = 255;
/// Names of built-in operators begin with this.
const BUILT_IN: &str = "tidesdb.";

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_open(options: In<OpenOptions>, db: Out<Handle>) -> Code {
    answer(|| {
        db.check()?;
        let options = options.growing()?;
        let config = In::from_caller(options.config).get()?;
        let handle = lifecycle::open_with(config, more(&options)?)?;
        db.set(handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_destroy(path: In<c_char>) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(tidesdb::Db::destroy(path.path()?)?)
    })
}

/// Checks the settings that the base interface lacks.
pub(super) fn more(options: &OpenOptions) -> Answer<More> {
    if options.flags & !(READ_ONLY | MUST_EXIST | MUST_BE_NEW) != 0 {
        return Err(invalid!("the flags of an open are unknown"));
    }
    let orders = In::from_caller(options.comparators).growing_items(options.comparator_count)?;
    let operators = In::from_caller(options.merge_operators).growing_items(options.merge_operator_count)?;
    Ok(More {
        orders: orders.iter().map(order).collect::<Answer<_>>()?,
        operators: named(operators.iter().map(operator).collect::<Answer<_>>()?)?,
        history_bytes: options.history_bytes,
        read_only: options.flags & READ_ONLY != 0,
        must_exist: options.flags & MUST_EXIST != 0,
        resources: match Handle::of_word(options.resources) {
            Handle::NULL => None,
            resources => Some(state::shared::get(resources)?),
        },
        must_be_new: options.flags & MUST_BE_NEW != 0,
    })
}

fn order(order: &OrderOf) -> Answer<Order> {
    Ok(Order {
        name: In::from_caller(order.name).text()?.to_owned(),
        function: order.compare.ok_or(invalid!("the comparator's function is NULL"))?,
        context: Context::new(order.ctx),
        context_text: Default::default(),
    })
}

fn operator(operator: &MergeOperator) -> Answer<tidesdb::MergeOperator> {
    let name = In::from_caller(operator.name).text()?;
    if name.is_empty() || name.len() > OPERATOR_NAME_MAX || name.starts_with(BUILT_IN) {
        return Err(invalid!(
            "a merge operator's name has 1 to 255 bytes and does not begin with \"tidesdb.\""
        ));
    }
    let merge = operator.merge.ok_or(invalid!("the merge operator's function is NULL"))?;
    Ok(callback::operator(name, merge, operator.check, Context::new(operator.ctx)))
}

/// Refuses operators with one name.
fn named(operators: Vec<tidesdb::MergeOperator>) -> Answer<Vec<tidesdb::MergeOperator>> {
    let mut names: Vec<&str> = operators.iter().map(tidesdb::MergeOperator::name).collect();
    if std::iter::from_fn(|| names.pop().map(|name| names.contains(&name))).any(|is_twice| is_twice) {
        return Err(invalid!("two merge operators have one name"));
    }
    Ok(operators)
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_create_family(
    db: Handle,
    name: In<c_char>,
    options: In<FamilyOptions>,
    cf: Out<Handle>,
) -> Code {
    answer(|| {
        let (name, options) = (name.text()?, options.growing()?);
        let config = In::from_caller(options.config);
        let config = if config.is_null() { FamilyConfig::default() } else { *config.get()? };
        let operator = In::from_caller(options.merge_operator);
        let operator = if operator.is_null() { None } else { Some(operator.text()?) };
        let ttl = Duration::from_millis(options.default_ttl_ms);
        cf.set(state::database(db)?.create_more(name, &config, operator, ttl)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_family_get(cf: Handle, name: In<c_char>, value: Out<u64>) -> Code {
    answer(|| {
        let name = name.text()?;
        value.check()?;
        let options = state::family(cf)?.engine().current_options();
        value.set(options.get(name).ok_or(invalid!("no such setting: see docs/reference/options.md"))?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_family_set(cf: Handle, name: In<c_char>, value: u64, persist: c_int) -> Code {
    answer(|| {
        let name = name.text()?;
        callback::not_in_order()?;
        state::family(cf)?.change(name, value, persist != 0)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_set_commit_hook(cf: Handle, function: Option<HookFn>, ctx: *mut c_void) -> Code {
    answer(|| {
        callback::not_in_order()?;
        let family = state::family(cf)?;
        match function {
            Some(function) => family.set_extended_hook(function, Context::new(ctx)),
            None => family.set_hook(None, Context::new(null_mut())),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_set_filter(cf: Handle, function: Option<FilterFn>, ctx: *mut c_void) -> Code {
    answer(|| {
        let family = state::family(cf)?;
        family.set_filter(function.map(|function| Filter::new(function, Context::new(ctx))));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_result_append(bytes: In<u8>, size: usize) -> Code {
    answer(|| callback::append_to_result(bytes.bytes(size)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_set_compaction_rate(db: Handle, bytes_per_second: u64) -> Code {
    answer(|| {
        state::database(db)?.engine()?.set_compaction_rate(bytes_per_second);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_flush(cf: Handle) -> Code {
    answer(|| {
        callback::not_in_order()?;
        Ok(state::family(cf)?.engine().flush()?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_compact_range(
    cf: Handle,
    start: In<u8>,
    start_size: usize,
    end: In<u8>,
    end_size: usize,
) -> Code {
    answer(|| {
        let range = Bounds::Range(start.end(start_size)?, end.end(end_size)?);
        callback::not_in_order()?;
        let family = state::family(cf)?;
        Ok(family.engine().compact_range(range.of(family.engine())?)?)
    })
}
