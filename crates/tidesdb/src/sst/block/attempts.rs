//! Decides whether a section of a block is worth an attempt to compress it.
//!
//! An attempt on bytes that do not shrink costs as much as one on bytes that do: a fifth of the processor time of a merge. So after
//! some attempts in vain, most sections are stored as they are, until one that is tried shrinks again.

/// Number of failed attempts in a row after which sections are skipped.
const VAIN_MAX: u32 = 8;
/// From then on one section of this many is tried.
const TRY_EVERY: u32 = 64;

/// The attempts so far on one kind of section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    /// Sections since the last one that shrank, tried or not.
    since: u32,
}

impl Attempts {
    /// Whether to try the next section.
    pub(super) fn is_due(&self) -> bool {
        self.since < VAIN_MAX || self.since.is_multiple_of(TRY_EVERY)
    }

    /// Records whether a section was stored compressed.
    pub(super) fn note(&mut self, shrank: bool) {
        self.since = if shrank { 0 } else { self.since.wrapping_add(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_shrinks_is_tried_rarely_and_what_shrinks_again_always() {
        let mut attempts = Attempts::default();
        let mut tried = |sections: u32, shrinks: bool| {
            let mut tried = 0;
            for _ in 0..sections {
                let due = attempts.is_due();
                tried += u32::from(due);
                attempts.note(due && shrinks);
            }
            tried
        };
        assert_eq!(tried(100, true), 100);
        assert_eq!(tried(8 + 6400, false), 8 + 100);
        // At most 64 sections are skipped before one is tried; if it shrinks, all later ones are tried.
        assert!(tried(164, true) >= 101);
        assert_eq!(tried(7, false), 7);
        assert_eq!(tried(100, true), 100);
    }
}
