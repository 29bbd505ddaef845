//! The model: ordered maps that remember every commit, small enough to be verified by reading.

use std::collections::BTreeMap;

/// Contents of all families, by name.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Number of a family in the order of creation; names may be reused, numbers are not.
pub type FamilyNo = usize;

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The family.
    pub family: FamilyNo,
    /// The key.
    pub key: Vec<u8>,
    /// The new value, or `None` for a delete.
    pub value: Option<Vec<u8>>,
    /// Expiry of the value in UNIX seconds; 0 = never.
    pub expiry: u32,
    /// True if a delete is a single delete.
    pub single: bool,
    /// If set, a range delete from `key` up to this key, excluded.
    pub until: Option<Vec<u8>>,
}

/// Keys with value and expiry.
type Rows<'m> = BTreeMap<&'m [u8], (&'m [u8], u32)>;

/// Commits and families of one database, from its creation on.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Every commit that was attempted, in order.
    pub commits: Vec<Vec<Op>>,
    /// Names of existing families, by number.
    pub families: BTreeMap<FamilyNo, String>,
    /// Number of families ever created.
    pub families_made: usize,
}

impl Model {
    /// Returns the contents of every family after the first `commits` commits, for a reader at wall time `now`.
    pub fn contents(&self, families: &BTreeMap<FamilyNo, String>, commits: usize, now: u32) -> Contents {
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
                Some(value) => map.insert(&op.key, (value, op.expiry)),
                None => map.remove(op.key.as_slice()),
            };
        }
        let live = |(_, (_, expiry)): &(&[u8], (&[u8], u32))| *expiry == 0 || *expiry > now;
        let own = |(key, (value, _)): (&[u8], (&[u8], u32))| (key.to_vec(), value.to_vec());
        maps.into_iter()
            .map(|(no, map)| (families[&no].clone(), map.into_iter().filter(live).map(own).collect()))
            .collect()
    }
}
