//! Isolation levels and contention classes: names for settings of a row.

use serde::{Deserialize, Serialize};

/// Isolation level of transactions, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Reads may see uncommitted data.
    ReadUncommitted,
    /// Each read sees the data committed by then.
    ReadCommitted,
    /// The commit is refused if a key that the transaction read has been written since.
    RepeatableRead,
    /// The commit is refused if a key that the transaction writes has been written since.
    Snapshot,
    /// The result is as if transactions ran one after the other.
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

    /// Returns the name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::RepeatableRead => "repeatable-read",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }

    /// Returns the short name used in row names.
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

    /// Returns true if the level prevents lost updates: of two transactions that read a key and write it back, one is
    /// refused.
    pub fn keeps_updates(self) -> bool {
        self >= Self::RepeatableRead
    }
}

/// How much the transactions of different threads conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contention {
    /// Each thread has its own keys.
    #[default]
    Low,
    /// All threads share [`HOT`] keys, or the number of operations of a transaction if that is more.
    High,
}

/// Minimum number of keys shared by all threads.
pub const HOT: u64 = 100;

impl Contention {
    /// Both classes.
    pub const ALL: [Self; 2] = [Self::Low, Self::High];

    /// Returns the name used on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
        }
    }

    /// Returns the class with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_their_values() {
        assert!(Contention::ALL.iter().all(|c| Contention::named(c.name()) == Some(*c)));
        for level in Isolation::ALL {
            assert_eq!([level.name(), level.short()].map(Isolation::named), [Some(level); 2]);
        }
        let kept = Isolation::ALL.map(Isolation::keeps_updates);
        assert_eq!(kept, [false, false, true, true, true]);
    }
}
