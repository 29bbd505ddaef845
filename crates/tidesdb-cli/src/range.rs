//! The key range of a command, and scans over it in key order.

use std::ffi::OsString;
use std::ops::Bound;

use tidesdb::{Cursor, Family, ReadOptions};

use crate::failure::{Failure, Outcome};
use crate::format;
use crate::session::Session;

/// A range of keys as arguments, in key order.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Range")]
pub(crate) struct KeysArgs {
    /// Only keys that begin with KEY
    #[arg(short, long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    prefix: Option<OsString>,
    /// Begin at KEY
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// End before KEY
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// Stop after this many rows
    #[arg(short = 'n', long, value_name = "ROWS")]
    limit: Option<u64>,
}

/// A range of keys as arguments, in either direction.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Range")]
pub(crate) struct RangeArgs {
    #[command(flatten)]
    keys: KeysArgs,
    /// From the last key to the first
    #[arg(short, long)]
    reverse: bool,
}

/// A range of keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Range {
    prefix: Vec<u8>,
    low: Option<Vec<u8>>,
    high: Option<Vec<u8>>,
    limit: Option<u64>,
    reverse: bool,
}

impl RangeArgs {
    /// Resolves the arguments to a range.
    pub(crate) fn resolve(&self, session: &Session) -> Outcome<Range> {
        Ok(Range { reverse: self.reverse, ..self.keys.resolve(session)? })
    }
}

impl KeysArgs {
    /// Resolves the arguments to a range.
    pub(crate) fn resolve(&self, session: &Session) -> Outcome<Range> {
        let bytes = |arg: &Option<OsString>| {
            arg.as_deref().map(|a| session.bytes(a).map(|b| b.into_owned())).transpose()
        };
        let prefix = bytes(&self.prefix)?.unwrap_or_default();
        if !prefix.is_empty() && !session.family()?.current_options().comparator.is_bytewise() {
            return Err(Failure::usage("--prefix needs a family in byte order").next("use --from and --to"));
        }
        Ok(Range {
            prefix,
            low: bytes(&self.from)?,
            high: bytes(&self.to)?,
            limit: self.limit,
            reverse: false,
        })
    }
}

impl Range {
    /// Returns the range of all keys that begin with `prefix`, in byte order.
    pub(crate) fn prefix(prefix: &[u8]) -> Self {
        Self { prefix: prefix.to_vec(), ..Self::default() }
    }

    /// Calls `visit` with each row and its expiry (milliseconds since 1970; 0 = never) until `visit` returns `false`. Values are empty and
    /// not read unless `values` is set. Returns the number of rows.
    pub(crate) fn walk(
        &self,
        family: &Family,
        values: bool,
        mut visit: impl FnMut(&[u8], &[u8], u64) -> Outcome<bool>,
    ) -> Outcome<u64> {
        let mut cursor = family.cursor_with(&ReadOptions::default().keys_only(!values))?;
        self.seek(&mut cursor)?;
        let mut rows = 0;
        while cursor.valid() && self.limit.is_none_or(|limit| rows < limit) {
            rows += 1;
            let expiry = cursor.expiry().map_or(0, format::millis_of);
            let more = if values {
                let (key, value) = cursor.entry()?;
                visit(key, value, expiry)?
            } else {
                visit(cursor.key(), &[], expiry)?
            };
            if !more {
                break;
            }
            if self.reverse { cursor.prev()? } else { cursor.next()? }
        }
        Ok(rows)
    }

    /// Moves `cursor` to the first row of the range, which becomes the range of the cursor.
    pub(crate) fn seek(&self, cursor: &mut Cursor) -> Outcome<()> {
        cursor.set_range(self.bounds());
        if self.reverse {
            cursor.seek_to_last()?
        } else {
            cursor.seek_to_first()?
        }
        Ok(())
    }

    /// Returns how many rows are wanted at most.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }

    fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let low = self.low.as_ref().unwrap_or(&self.prefix);
        let high = self.high.clone().or_else(|| after(&self.prefix));
        let low = if low.is_empty() { Bound::Unbounded } else { Bound::Included(low.clone()) };
        (low, high.map_or(Bound::Unbounded, Bound::Excluded))
    }
}

/// Returns the first key in byte order after all keys that begin with `prefix`.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidesdb::{Comparator, Db, FamilyOptions};

    fn keys(family: &Family, range: &Range) -> Vec<String> {
        let mut out = Vec::new();
        let keep = |k: &[u8], v: &[u8], _| {
            assert_eq!(k, v);
            out.push(String::from_utf8_lossy(k).into_owned());
            Ok(true)
        };
        range.walk(family, true, keep).unwrap();
        let mut keys_only = 0;
        range
            .walk(family, false, |_, v, _| {
                Ok(v.is_empty() && {
                    keys_only += 1;
                    true
                })
            })
            .unwrap();
        assert_eq!(keys_only, out.len());
        out
    }

    fn range(
        prefix: &str,
        low: Option<&str>,
        high: Option<&str>,
        limit: Option<u64>,
        reverse: bool,
    ) -> Range {
        let own = |s: Option<&str>| s.map(|s| s.as_bytes().to_vec());
        Range { prefix: prefix.into(), low: own(low), high: own(high), limit, reverse }
    }

    #[test]
    fn both_directions_see_the_same_rows() {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path()).unwrap();
        let names = ["a", "aa", "ab", "b", "ba", "c"];
        let turned = db
            .create_family("turned", FamilyOptions::default().comparator(Comparator::reverse_bytewise()))
            .unwrap();
        for family in [db.default_family(), &turned] {
            for name in names {
                family.put(name.as_bytes(), name.as_bytes()).unwrap();
            }
        }
        let plain = db.default_family();
        for (prefix, low, high, expected) in [
            ("", None, None, &names[..]),
            ("a", None, None, &names[..3]),
            ("", Some("aa"), Some("b"), &names[1..3]),
            ("", Some("ac"), None, &names[3..]),
            ("", None, Some("bz"), &names[..5]),
            ("x", None, None, &[]),
        ] {
            assert_eq!(keys(plain, &range(prefix, low, high, None, false)), expected);
            let mut back = keys(plain, &range(prefix, low, high, None, true));
            assert_eq!(back.len(), expected.len());
            back.reverse();
            assert_eq!(back, expected);
        }
        assert_eq!(keys(plain, &range("", None, None, Some(2), true)), ["c", "ba"]);
        assert_eq!(keys(&turned, &range("", Some("ba"), Some("aa"), None, false)), ["ba", "b", "ab"]);
        assert_eq!(keys(&turned, &range("", Some("ba"), Some("aa"), None, true)), ["ab", "b", "ba"]);
    }

    #[test]
    fn the_end_of_a_prefix() {
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after(b"\xff"), None);
    }
}
