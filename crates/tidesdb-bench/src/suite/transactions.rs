//! Transactions of three sizes at every level, with and without conflicts. Then the same puts in plain batches and in
//! transactions of a level without conflicts.

use crate::spec::{Contention, Isolation, Spec, Workload};

/// Operations per transaction, and transactions per row.
const SIZES: [(u64, u64); 3] = [(1, 100_000), (10, 20_000), (1000, 240)];
/// Rows with conflicts have fewer transactions by this factor: some engines abort nearly every attempt.
const CROWDED: u64 = 5;
/// Number of existing keys.
const KEYS: u64 = 100_000;

pub(super) fn all() -> Vec<Spec> {
    let mut rows = Vec::new();
    for contention in Contention::ALL {
        for (tx_ops, ops) in SIZES {
            let ops = if contention == Contention::High { ops / CROWDED } else { ops };
            rows.extend(Isolation::ALL.map(|level| Spec {
                name: format!("tx_{tx_ops}_{}_{}", level.short(), contention.name()),
                workload: Workload::Transaction,
                isolation: Some(level),
                contention,
                tx_ops,
                ops,
                keys: KEYS,
                ..Spec::default()
            }));
        }
    }
    let puts = |name: &str, isolation| Spec {
        name: name.to_owned(),
        workload: Workload::Write,
        isolation,
        batch: 1000,
        ops: 2_000_000,
        ..Spec::default()
    };
    rows.push(puts("put_b1000_batch", None));
    rows.push(puts("put_b1000_tx_rc", Some(Isolation::ReadCommitted)));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_and_level_is_there_with_conflicts_and_without() {
        let rows = all();
        assert_eq!(rows.len(), 3 * 5 * 2 + 2);
        let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
        let one = row("tx_1000_ser_high");
        assert_eq!((one.level(), one.hot_keys()), (Some(Isolation::Serializable), Some(1000)));
        assert_eq!((row("tx_1_ru_high").hot_keys(), row("tx_10_si_low").hot_keys()), (Some(100), None));
        let (batch, transaction) = (row("put_b1000_batch").clone(), row("put_b1000_tx_rc"));
        let alike = Spec { name: transaction.name.clone(), isolation: transaction.isolation, ..batch };
        assert_eq!(alike, *transaction);
    }
}
