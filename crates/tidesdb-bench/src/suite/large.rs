//! The suite `1gb`: values of 1 GiB.

use crate::keys::Pattern::Seq;
use crate::spec::Spec;
use crate::spec::Workload::{Range, Read, Write};

/// Puts, gets and ranges of ten rows, over ten values of 1 GiB.
pub(super) fn gigabyte() -> Vec<Spec> {
    let base = Spec {
        pattern: Seq,
        ops: 10,
        threads: 1,
        key_bytes: 256,
        value_bytes: 1 << 30,
        range: 10,
        cache: 64 << 20,
        ..Spec::default()
    };
    let row = |name: &str, workload| Spec { name: name.to_owned(), workload, ..base.clone() };
    vec![
        row("large_value_1gb_put", Write),
        row("large_value_1gb_get", Read),
        row("large_value_1gb_range_10", Range),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::named;

    #[test]
    fn scaling_changes_the_size_of_values_and_not_their_number() {
        let rows = named("1gb").unwrap().rows(0.001);
        assert!(rows.iter().all(|row| row.ops == 10 && row.value_bytes == 1_073_741));
    }
}
