//! Checks of a table that comes from elsewhere: no byte and no number of it is believed.

use std::sync::Arc;

use tidesdb_io::Dir;

use super::builder::VALUES_SUFFIX;
use crate::options::FamilyOptions;
use crate::sst::{Built, Table, TableContext, TableMeta, Taken, describe};
use crate::types::{EntryRef, KEY_BYTES_MAX, Kind, TableId, VlogId};
use crate::vlog::{FILE_HEADER_BYTES, ValuePlace, VlogSet};
use crate::{Error, Result, files};

/// A table that was built outside of the database, and what it states of itself.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// Its description as the database will have it, but for its sequence number.
    pub(crate) meta: Arc<TableMeta>,
    /// What it states of itself.
    pub(crate) built: Arc<Built>,
}

/// The name of the value log of the table file `name`.
pub(crate) fn name_of_values(name: &str) -> String {
    format!("{name}{VALUES_SUFFIX}")
}

impl Foreign {
    /// Reads what the table file `name` of `dir` states of itself, and gives it the numbers that `number` draws for a table with values or
    /// without.
    ///
    /// # Errors
    /// `Corrupt` for another file; `InvalidArgument` for a key order or a merge operator that a family with `options` does not have; `Io`.
    pub(crate) fn read(
        dir: &dyn Dir,
        name: &str,
        options: &FamilyOptions,
        number: impl FnOnce(bool) -> Result<(TableId, Option<VlogId>)>,
    ) -> Result<Self> {
        let meta = describe(dir, name)?;
        let built = meta.built.clone().unwrap_or_default();
        check_settings(name, &built, options)?;
        let names_values = meta.vlog_refs.iter().map(|r| r.vlog).eq(built.values.map(|_| VlogId(1)));
        if !names_values {
            return Err(Error::corrupt(name, 0, "the table and what it says of its value log differ"));
        }
        let (id, vlog) = number(built.values.is_some())?;
        let mut vlog_refs = meta.vlog_refs.clone();
        vlog_refs.iter_mut().zip(vlog).for_each(|(r, vlog)| r.vlog = vlog);
        let meta = TableMeta { id, vlog_refs, taken: Some(Taken { vlog }), built: None, ..meta };
        Ok(Self { meta: Arc::new(meta), built })
    }
}

fn check_settings(name: &str, built: &Built, options: &FamilyOptions) -> Result<()> {
    let order = options.comparator.name();
    if built.comparator != order {
        return Err(Error::invalid(format!(
            "the table {name} has the key order {:?}, and the family {order:?}",
            built.comparator
        )));
    }
    let operator = options.merge_operator.as_ref().map_or("", |operator| operator.name());
    if !built.operator.is_empty() && built.operator != operator {
        return Err(Error::invalid(format!(
            "the table {name} has operands of the merge operator {:?}, and the family has {}",
            built.operator,
            if operator.is_empty() { "none".to_owned() } else { format!("{operator:?}") }
        )));
    }
    Ok(())
}

/// Reads and checks every byte of the table `foreign`, which has its name in the database already, and of its values in `vlogs`. `go_on`
/// is asked now and then.
///
/// # Errors
/// `Corrupt`; `Io`; errors of `go_on`.
pub(crate) fn check(
    context: &TableContext,
    options: &FamilyOptions,
    foreign: &Foreign,
    vlogs: &VlogSet,
    go_on: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let name = files::table(foreign.meta.id);
    let corrupt = |what: &str| Error::corrupt(&name, 0, what);
    let order = &options.comparator;
    for (start, end) in &foreign.built.ranges {
        let is_upright = start.is_empty() || end.is_empty() || order.compare(start, end).is_lt();
        if !is_upright || start.len().max(end.len()) > KEY_BYTES_MAX + 1 {
            return Err(corrupt("a range delete of the table ends before it begins"));
        }
    }
    let table = Table::open(context, order, Arc::clone(&foreign.meta))?;
    let (mut used, mut entries) = (FILE_HEADER_BYTES as u64, 0u64);
    table.verify_each(&mut |entry| {
        entries += 1;
        if entries.is_multiple_of(ENTRIES_BETWEEN) {
            go_on()?;
        }
        if entry.key.is_empty() {
            return Err(corrupt("a row of the table has no key"));
        }
        check_entry(options, foreign, entry, vlogs, &mut used)
    })?;
    if let (Some(vlog), Some((salt, bytes))) = (foreign.meta.taken.and_then(|t| t.vlog), foreign.built.values)
    {
        let info = vlogs.info(vlog)?;
        // Each value has one row, so bytes that no row refers to would stay unread.
        if (info.salt, info.bytes, used) != (salt, bytes, bytes) {
            return Err(Error::corrupt(
                &files::vlog(vlog),
                used.min(bytes),
                "the values are not those of the table",
            ));
        }
    }
    Ok(())
}

/// Rows between two calls of `go_on`.
const ENTRIES_BETWEEN: u64 = 4096;

/// Checks a row, and the value that it refers to; adds to `used` what the value takes in its log.
fn check_entry(
    options: &FamilyOptions,
    foreign: &Foreign,
    entry: &EntryRef<'_>,
    vlogs: &VlogSet,
    used: &mut u64,
) -> Result<()> {
    let corrupt = |what: String| Err(Error::corrupt(&files::table(foreign.meta.id), 0, what));
    match entry.kind {
        Kind::Put | Kind::Delete | Kind::SingleDelete => Ok(()),
        Kind::RangeDelete => corrupt("a range delete among the rows".to_owned()),
        Kind::Merge => match &options.merge_operator {
            Some(_) if foreign.built.operator.is_empty() => {
                corrupt("the table does not say which merge operator its operands are for".to_owned())
            }
            Some(operator) => match operator.check(entry.value) {
                Ok(()) => Ok(()),
                Err(what) => corrupt(format!("the merge operator refuses an operand: {what}")),
            },
            None => corrupt("an operand for a family without a merge operator".to_owned()),
        },
        Kind::PutPointer => match ValuePlace::decode(entry.value) {
            None => corrupt("a malformed pointer into a value log".to_owned()),
            Some(place) => {
                *used = used.saturating_add(place.stored_bytes());
                match &place {
                    ValuePlace::Record(pointer) => vlogs.check(pointer, true),
                    ValuePlace::Chunks(place) => vlogs.check_chunks(place, true, |_| ()),
                }
            }
        },
    }
}
