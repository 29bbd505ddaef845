//! Value logs.

use std::path::Path;
use std::sync::Arc;

use super::{keep_damage, no_such, open};
use crate::codec::hex;
use crate::files::{self, FileKind};
use crate::version;
use crate::vlog::VlogSet;
use crate::{Error, Result};

/// Shows the value log `file` (such as `000002.vlog`) of the database in `path`: its header and its records, all read
/// and checked; with `entries`, each record is shown. Bytes that are not records can be values that were being written
/// during a crash. They are shown, and are reported as damage if fewer values are intact than tables refer to.
/// `Db::verify` follows every reference.
///
/// # Errors
/// `NotFound` if it is not a value log or the manifest does not name it, `Io`, `FormatTooNew`; `Corrupt` only for a
/// damaged manifest.
pub fn vlog(
    path: impl AsRef<Path>,
    file: &str,
    entries: bool,
    show: &mut dyn FnMut(&str),
) -> Result<Vec<Error>> {
    let Some(FileKind::Vlog(id)) = files::parse(file) else { return Err(no_such(file)) };
    let (env, dir) = open(path.as_ref())?;
    let (state, _) = version::inspect(&*dir, &mut |_, _| ())?;
    let found = state.families.values().find_map(|f| f.vlogs.get(&id).map(|info| (f, info)));
    let Some((family, known)) = found else {
        return Err(Error::NotFound { what: format!("value log {file} in the manifest").into() });
    };
    let progress = if known.sealed_at.is_some() { "sealed" } else { "not sealed" };
    show(&format!("{file}: family {:?}, {progress}", family.name));
    show(&format!("  salt       {}", hex(&known.salt)));
    show(&format!("  live       {} values, {} bytes", known.live_count, known.live_bytes));
    let logs = VlogSet::new(Arc::clone(&dir), env.entropy, family.id, u64::MAX, || Err(Error::ReadOnly));
    let mut damage = Vec::new();
    let scanned = logs.scan(id, |record| {
        if entries {
            let pointer = record.pointer;
            let (raw, disk, codec) = (pointer.raw_len, pointer.disk_len, record.codec.name());
            show(&format!("  @{:<10} value of {raw} bytes in {disk}, {codec}", pointer.offset));
        }
    });
    let Some(report) = keep_damage(scanned, &mut damage)? else { return Ok(damage) };
    show(&format!("  {} records in {} of {} bytes", report.records, report.valid_len, report.len));
    let lost = report.records < known.live_count;
    let tail = (report.tail_bytes() > 0).then_some(report.valid_len..report.len);
    for gap in report.gaps.iter().cloned().chain(tail) {
        let what = format!("{} bytes that are not a record", gap.end - gap.start);
        show(&format!("  @{:<10} {what}", gap.start));
        if lost {
            damage.push(Error::corrupt(file, gap.start, what));
        }
    }
    if lost && damage.is_empty() {
        let what = format!("{} intact values, but tables refer to {}", report.records, known.live_count);
        damage.push(Error::corrupt(file, report.valid_len, what));
    }
    Ok(damage)
}
