//! Chooses the keys at which a merge is divided.

use super::plan::CompactionPlan;
use crate::order;
use crate::types::Comparator;

/// Number of stretches of a table that are compared when a merge is divided. A part is wrong by at most one stretch of each
/// input.
const STRETCHES: usize = 64;
/// Parts begin at cuts of the plan if there are this many cuts for each part.
const CUTS_PER_PART: usize = 4;

/// Divides `plan` into at most `parts` key ranges with inputs of about the same length, but not into more than it makes tables of
/// `table_bytes`. Returns the first keys of the parts after the first one, ascending, and the most bytes of an output table.
pub(super) fn divide(
    order: &Comparator,
    plan: &CompactionPlan,
    parts: usize,
    table_bytes: u64,
) -> (Vec<Vec<u8>>, u64) {
    let bytes: u64 = plan.inputs.iter().map(|(_, table)| table.meta().file_bytes).sum();
    let tables = bytes.div_ceil(table_bytes.max(1));
    let parts = u64::try_from(parts).unwrap_or(u64::MAX).min(tables);
    if parts < 2 {
        return (Vec::new(), table_bytes);
    }
    let tables = plan.inputs.iter().map(|(_, table)| table.table());
    let mut stretches: Vec<_> = tables.flat_map(|table| table.stretches(STRETCHES)).collect();
    order::sort_by(&mut stretches, |a, b| order.compare(&a.0, &b.0));
    let mut starts = borders(order, stretches, parts);
    if plan.cuts.len() as u64 >= CUTS_PER_PART as u64 * parts {
        starts = starts.iter().filter_map(|key| cut_from(order, &plan.cuts, key)).cloned().collect();
        starts.dedup();
    }
    let table_bytes = longer(table_bytes, bytes / (starts.len() as u64 + 1));
    (starts, table_bytes)
}

/// The keys of `stretches`, in order, that divide their bytes into `parts` about equal shares.
fn borders(order: &Comparator, stretches: Vec<(Vec<u8>, u64)>, parts: u64) -> Vec<Vec<u8>> {
    let all: u64 = stretches.iter().map(|(_, bytes)| bytes).sum();
    let first = stretches.first().map(|(key, _)| key.clone());
    let (mut before, mut starts): (u64, Vec<Vec<u8>>) = (0, Vec::new());
    for (key, bytes) in stretches {
        let due = all / parts * (starts.len() as u64 + 1);
        let last = starts.last().or(first.as_ref());
        if before >= due
            && (starts.len() as u64) < parts - 1
            && last.is_some_and(|last| order.compare(last, &key).is_lt())
        {
            starts.push(key);
        }
        before += bytes;
    }
    starts
}

/// The first of `cuts` at or after `key`.
fn cut_from<'c>(order: &Comparator, cuts: &'c [Vec<u8>], key: &[u8]) -> Option<&'c Vec<u8>> {
    cuts.get(cuts.partition_point(|cut| order.compare(cut, key).is_lt()))
}

/// Returns the length of tables, up to a quarter above `table_bytes`, with which a part of `part_bytes` does not end with a short
/// table.
fn longer(table_bytes: u64, part_bytes: u64) -> u64 {
    let whole = (part_bytes / table_bytes.max(1)).max(1);
    let each = part_bytes / whole;
    match each <= table_bytes.saturating_add(table_bytes / 4) {
        true => table_bytes.max(each.saturating_add(each / 32)),
        false => table_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretches(of: &[(&str, u64)]) -> Vec<(Vec<u8>, u64)> {
        of.iter().map(|(key, bytes)| (key.as_bytes().to_vec(), *bytes)).collect()
    }

    fn starts(of: &[(&str, u64)], parts: u64) -> Vec<String> {
        let keys = borders(&Comparator::bytewise(), stretches(of), parts);
        keys.into_iter().map(|key| String::from_utf8(key).unwrap()).collect()
    }

    #[test]
    fn parts_have_about_equal_bytes() {
        let even = [("a", 10), ("b", 10), ("c", 10), ("d", 10)];
        assert_eq!(starts(&even, 2), ["c"]);
        assert_eq!(starts(&even, 4), ["b", "c", "d"]);
        assert_eq!(starts(&[("a", 70), ("b", 10), ("c", 10), ("d", 10)], 2), ["b"]);
        assert_eq!(
            starts(&[("a", 40), ("b", 10), ("c", 60), ("d", 10)], 2),
            ["d"],
            "a stretch is not divided"
        );
    }

    #[test]
    fn a_part_holds_all_versions_of_its_keys() {
        assert_eq!(starts(&[("a", 10), ("a", 10), ("a", 10)], 3), [""; 0]);
        assert_eq!(starts(&[("a", 10), ("b", 10), ("b", 10), ("b", 10), ("c", 10)], 5), ["b", "c"]);
        assert_eq!(starts(&[], 2), [""; 0]);
    }

    #[test]
    fn tables_grow_by_a_quarter_to_spare_a_short_one() {
        assert_eq!([50, 100, 130, 260].map(|bytes| longer(100, bytes)), [100, 103, 100, 100]);
        assert_eq!([110, 240, 500].map(|bytes| longer(100, bytes)), [113, 123, 103]);
        assert_eq!(longer(u64::MAX, u64::MAX - 1), u64::MAX);
    }

    #[test]
    fn parts_begin_at_cuts() {
        let cuts = [b"b".to_vec(), b"d".to_vec()];
        let cut = |key: &[u8]| cut_from(&Comparator::bytewise(), &cuts, key);
        assert_eq!((cut(b"a"), cut(b"b"), cut(b"c")), (Some(&cuts[0]), Some(&cuts[0]), Some(&cuts[1])));
        assert_eq!(cut(b"e"), None);
    }
}
