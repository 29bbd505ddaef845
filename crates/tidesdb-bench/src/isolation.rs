//! Levels of isolation, and how often transactions meet: names for settings of a row.

use serde::{Deserialize, Serialize};

/// How far transactions are kept apart, from the weakest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Reads may see what is not committed.
    ReadUncommitted,
    /// Each read sees what is committed.
    ReadCommitted,
    /// The commit is refused if a key that was read has been written since.
    RepeatableRead,
    /// The commit is refused if a key that it writes has been written since.
    Snapshot,
    /// As if transactions ran one after the other.
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

    /// Its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read-uncommitted",
            Self::ReadCommitted => "read-committed",
            Self::RepeatableRead => "repeatable-read",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        }
    }

    /// Its name in names of rows.
    pub fn short(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "ru",
            Self::ReadCommitted => "rc",
            Self::RepeatableRead => "rr",
            Self::Snapshot => "si",
            Self::Serializable => "ser",
        }
    }

    /// The level of that name, long or short.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| [level.name(), level.short()].contains(&name))
    }

    /// Whether of two transactions that read a key and write it back one is refused.
    pub fn keeps_updates(self) -> bool {
        self >= Self::RepeatableRead
    }
}

/// Whether transactions get in each other's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Contention {
    /// Each thread has keys of its own.
    #[default]
    Low,
    /// All threads share [`HOT`] keys, or as many as a transaction has operations.
    High,
}

/// Keys that everybody writes, at least.
pub const HOT: u64 = 100;

impl Contention {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Low, Self::High];

    /// Its name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
        }
    }

    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        assert!(Contention::ALL.iter().all(|c| Contention::named(c.name()) == Some(*c)));
        for level in Isolation::ALL {
            assert_eq!([level.name(), level.short()].map(Isolation::named), [Some(level); 2]);
        }
        let kept = Isolation::ALL.map(Isolation::keeps_updates);
        assert_eq!(kept, [false, false, true, true, true]);
    }
}
