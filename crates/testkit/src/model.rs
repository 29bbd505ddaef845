//! The model: ordered maps and all commits, small enough to be verified by reading.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidesdb::Comparator;
use tidesdb_io::Clock;

/// Contents of all families, by name.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Number of a family, in the order of creation. Names may be reused, numbers are not.
pub type FamilyNo = usize;

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// Family.
    pub family: FamilyNo,
    /// Key.
    pub key: Vec<u8>,
    /// New value, or `None` for a delete.
    pub value: Option<Vec<u8>>,
    /// Expiry in milliseconds since the UNIX epoch; 0 means never.
    pub expiry: u64,
    /// Whether a delete is a single delete.
    pub single: bool,
    /// If set, all keys from `key`, inclusive, to this one, exclusive, are deleted.
    pub until: Option<Vec<u8>>,
    /// Whether the value is an operand, which the merge operator appends.
    pub merge: bool,
}

/// Between a value and an operand that the families' merge operator appends.
pub const SEPARATOR: &str = "|";

/// Byte by byte, as the model sorts, but an order of the user's for the engine: memtables keep such keys in a skip list.
#[must_use]
pub fn listed() -> Comparator {
    Comparator::custom("testkit.bytes", |a: &[u8], b: &[u8]| a.cmp(b))
}

/// Returns the moment of an expiry in milliseconds; 0 means never.
pub fn moment(expiry: u64) -> Option<SystemTime> {
    (expiry > 0).then(|| UNIX_EPOCH + Duration::from_millis(expiry))
}

/// Returns the wall time in milliseconds.
pub fn wall_millis(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX)
}

/// A value with its expiry, if there is one, and the operands after it.
#[derive(Debug, Default)]
struct Row<'m> {
    value: Option<(&'m [u8], u64)>,
    operands: Vec<&'m [u8]>,
}

impl Row<'_> {
    /// Returns the combined value at wall time `now`.
    fn at(&self, now: u64) -> Option<Vec<u8>> {
        let value = self.value.filter(|(_, expiry)| *expiry == 0 || *expiry > now).map(|(value, _)| value);
        let parts: Vec<&[u8]> = value.into_iter().chain(self.operands.iter().copied()).collect();
        (!parts.is_empty()).then(|| parts.join(SEPARATOR.as_bytes()))
    }
}

/// Keys with their values.
type Rows<'m> = BTreeMap<&'m [u8], Row<'m>>;

/// Commits and families of one database, since its creation.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Every attempted commit, in order.
    pub commits: Vec<Vec<Op>>,
    /// Names of the existing families, by number.
    pub families: BTreeMap<FamilyNo, String>,
    /// Number of families ever created.
    pub families_made: usize,
}

impl Model {
    /// Returns the contents of all families after the first `commits` commits, at wall time `now`.
    pub fn contents(&self, families: &BTreeMap<FamilyNo, String>, commits: usize, now: u64) -> Contents {
        let mut maps: BTreeMap<FamilyNo, Rows<'_>> =
            families.keys().map(|no| (*no, BTreeMap::new())).collect();
        for op in self.commits.iter().take(commits).flatten() {
            let Some(map) = maps.get_mut(&op.family) else {
                continue; // dropped
            };
            if let Some(until) = &op.until {
                map.retain(|key, _| *key < &*op.key || *key >= &**until);
                continue;
            }
            match &op.value {
                Some(value) if op.merge => map.entry(&op.key).or_default().operands.push(value),
                Some(value) => {
                    map.insert(&op.key, Row { value: Some((value, op.expiry)), operands: Vec::new() });
                }
                None => {
                    map.remove(op.key.as_slice());
                }
            }
        }
        let own = |(key, row): (&[u8], Row<'_>)| Some((key.to_vec(), row.at(now)?));
        maps.into_iter()
            .map(|(no, map)| (families[&no].clone(), map.into_iter().filter_map(own).collect()))
            .collect()
    }
}
