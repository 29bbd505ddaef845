//! Settings of a family as numbers; the code generated from the table in `family.rs` uses them.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::codec::Compression;
use crate::types::millis_up;

/// A setting that fits in a word: in an atomic of an open family, in a field on disk, and on the command line.
pub(super) trait Setting: Copy + PartialEq {
    /// The setting as a number.
    fn to_word(self) -> u64;
    /// Converts a number to the setting, if it is valid.
    fn from_word(word: u64) -> Option<Self>;
}

/// Describes one setting of a family.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SettingInfo {
    /// Its name, as in [`FamilyOptions`](super::FamilyOptions).
    pub name: &'static str,
    /// What it does, its unit and default.
    pub help: &'static str,
    /// Its default as a number.
    pub default: u64,
    /// The smallest and the largest allowed number.
    pub domain: (u64, u64),
}

macro_rules! numbers {
    ($($of:ty)*) => {
        $(impl Setting for $of {
            fn to_word(self) -> u64 {
                self as u64
            }

            fn from_word(word: u64) -> Option<Self> {
                word.try_into().ok()
            }
        })*
    };
}

numbers! { u32 u64 }

/// The largest number, for "no limit", is the same in files on each machine. One that exceeds addresses of 32 bits is taken for the largest.
impl Setting for usize {
    fn to_word(self) -> u64 {
        if self == Self::MAX { u64::MAX } else { self as u64 }
    }

    fn from_word(word: u64) -> Option<Self> {
        Some(Self::try_from(word).unwrap_or(Self::MAX))
    }
}

/// Milliseconds, rounded up.
impl Setting for Duration {
    fn to_word(self) -> u64 {
        millis_up(self)
    }

    fn from_word(word: u64) -> Option<Self> {
        Some(Self::from_millis(word))
    }
}

impl Setting for Compression {
    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Option<Self> {
        u8::try_from(word).ok().and_then(Self::from_u8)
    }
}

/// Says why `word` is outside the domain of the setting `name`, if it is.
pub(super) fn outside(name: &str, word: u64, domain: RangeInclusive<u64>) -> Option<String> {
    if domain.contains(&word) {
        return None;
    }
    Some(format!("{name} is {word}, outside {} to {}", domain.start(), domain.end()))
}
