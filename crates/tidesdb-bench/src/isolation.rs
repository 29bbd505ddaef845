//! Isolation levels, and contention of transactions: names for settings of a row.

use serde::{Deserialize, Serialize};

/// Isolation level, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Reads may see uncommitted data.
    ReadUncommitted,
    /// Each read sees committed data.
    ReadCommitted,
    /// The commit fails if a key that was read has been written since.
    RepeatableRead,
    /// The commit fails if a key that it writes has been written since.
    Snapshot,
    /// As if transactions ran one after another.
    Serializable,
}

impl Isolation {
    /// All levels.
    pub const ALL: [Self; 5] = [
        Self::ReadUncommitted,
        Self::ReadCommitted,
        Self::RepeatableRead,
        Self::Snapshot,
        Self::Serializable,
    ];

    /// Returns its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::RepeatableRead => "repeatable-read",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }

    /// Returns its short name, used in names of rows.
    pub fn short(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "ru",
            Self::ReadCommitted => "rc",
            Self::RepeatableRead => "rr",
            Self::Snapshot => "si",
            Self::Serializable => "ser",
        }
    }

    /// Returns the level with that name, long or short.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| [level.name(), level.short()].contains(&name))
    }

    /// Returns whether one of two transactions that read a key and write it back conflicts.
    pub fn keeps_updates(self) -> bool {
        self >= Self::RepeatableRead
    }
}

/// Contention between transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contention {
    /// Each thread has its own keys.
    #[default]
    Low,
    /// All threads share [`HOT`] keys, or as many as a transaction has operations.
    High,
}

/// Minimum number of shared keys.
pub const HOT: u64 = 100;

impl Contention {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Low, Self::High];

    /// Returns its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
        }
    }

    /// Returns the value with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_back() {
        assert!(Contention::ALL.iter().all(|c| Contention::named(c.name()) == Some(*c)));
        for level in Isolation::ALL {
            assert_eq!([level.name(), level.short()].map(Isolation::named), [Some(level); 2]);
        }
        let kept = Isolation::ALL.map(Isolation::keeps_updates);
        assert_eq!(kept, [false, false, true, true, true]);
    }
}
