//! Tables.

use std::path::Path;
use std::sync::Arc;

use super::{keep_damage, no_such, open, shown, shown_expiry};
use crate::codec::hex;
use crate::files::{self, FileKind};
use crate::memory::Memory;
use crate::sst::{Table, TableContext, TableCursor};
use crate::types::EntryCursor;
use crate::version;
use crate::{Error, Result};

/// Shows the table `file` (such as `000003.klog`) of the database in `path`: its properties and its blocks, each read
/// and checked; with `entries`, all entries. Returns the damage.
///
/// # Errors
/// `NotFound` if it is not a table or the manifest does not name it, `InvalidArgument` if the family has a custom key
/// order, `Io`, `FormatTooNew`; `Corrupt` only for a damaged manifest.
pub fn table(
    path: impl AsRef<Path>,
    file: &str,
    entries: bool,
    show: &mut dyn FnMut(&str),
) -> Result<Vec<Error>> {
    let Some(FileKind::Table(id)) = files::parse(file) else { return Err(no_such(file)) };
    let (_, dir) = open(path.as_ref())?;
    let (state, _) = version::inspect(&*dir, &mut |_, _| ())?;
    let found =
        state.families.values().find_map(|f| f.tables.get(id).map(|table| (f, table.level, &table.meta)));
    let Some((family, level, meta)) = found else {
        return Err(Error::NotFound { what: format!("table {file} in the manifest").into() });
    };
    let order = &family.options.comparator;
    if crate::types::Comparator::by_name(order.name()).is_none() {
        return Err(Error::invalid(format!(
            "{file} has the custom key order {:?}, which only its own program knows",
            order.name()
        )));
    }
    show(&format!("{file}: family {:?}, level {level}, {} bytes", family.name, meta.file_bytes));
    show(&format!("  salt         {}", hex(&meta.salt)));
    show(&format!("  entries      {}, of {} keys, {} tombstones", meta.entries, meta.keys, meta.tombstones));
    show(&format!("  keys         {} .. {}", shown(&meta.smallest), shown(&meta.largest)));
    show(&format!("  seqnos       {} .. {}", meta.min_seq, meta.max_seq));
    show(&format!("  compression  {}", meta.compression.name()));
    show(&format!("  raw bytes    {} of keys, {} of values", meta.raw_key_bytes, meta.raw_value_bytes));
    for vlog in &meta.vlog_refs {
        show(&format!(
            "  refers to    {} values, {} bytes of value log {:06}",
            vlog.count, vlog.bytes, vlog.vlog.0
        ));
    }
    let context = TableContext::new(&dir, &Memory::new(0), 0);
    let mut damage = Vec::new();
    let opened = Table::open(&context, order, Arc::clone(meta));
    let Some(table) = keep_damage(opened, &mut damage)? else { return Ok(damage) };
    let walked = table.inspect_blocks(&mut |block| {
        let at = format!("  @{:<10} block {}, {} bytes", block.at, block.number, block.bytes);
        match block.checked {
            Ok(found) => show(&format!(
                "{at}: {} entries from {}, {} bytes of keys, {} frames of values",
                found.entries,
                shown(&found.first_key),
                block.key_bytes,
                found.frames
            )),
            Err(e) => {
                show(&format!("{at}: DAMAGED"));
                damage.push(e);
            }
        }
    });
    keep_damage(walked, &mut damage)?;
    if damage.is_empty() {
        keep_damage(table.verify(), &mut damage)?;
        if entries {
            keep_damage(show_entries(table, show), &mut damage)?;
        }
    }
    Ok(damage)
}

fn show_entries(table: Arc<Table>, show: &mut dyn FnMut(&str)) -> Result<()> {
    let mut cursor = TableCursor::new(table);
    cursor.seek_to_first()?;
    while cursor.valid() {
        let ((seq, kind, expiry), key) = (cursor.entry_meta().parts(), shown(cursor.key()));
        let (bytes, expiry) = (cursor.value()?.len(), shown_expiry(expiry));
        show(&format!("      {key} seqno {seq} {kind:?}, {bytes} bytes{expiry}"));
        cursor.next()?;
    }
    Ok(())
}
