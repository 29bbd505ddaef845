//! Model that keeps all versions of every key, so that it can answer a reader at any read timestamp.

use std::collections::BTreeMap;

use tidesdb::Slice;

/// Number of a family, in the order of creation.
pub(super) type FamilyNo = usize;
/// Read timestamp: the number of a commit, counted from 1.
pub(super) type ReadTimestamp = u64;
/// Keys and values, in order.
pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// Between a value and an operand that the families' merge operator appends.
pub(super) const SEPARATOR: &str = "|";

#[derive(Clone, Debug)]
struct Version {
    at: ReadTimestamp,
    value: Option<Vec<u8>>,
    expiry: u64,
    /// Whether the value is an operand.
    merge: bool,
}

/// One key.
#[derive(Clone, Debug, Default)]
struct Cell {
    versions: Vec<Version>,
    /// Puts since the last delete, as counted for the precondition of a single delete; 2 means too many, or unknown.
    puts: u8,
}

/// Change of one key, or of a range of keys, by a commit.
#[derive(Clone, Debug)]
pub(super) struct Write {
    /// Family.
    pub family: FamilyNo,
    /// Key.
    pub key: Vec<u8>,
    /// Value, or `None` for a delete.
    pub value: Option<Vec<u8>>,
    /// Expiry in milliseconds; 0 means never.
    pub expiry: u64,
    /// If set, all keys from `key`, inclusive, to this one, exclusive, are deleted.
    pub until: Option<Vec<u8>>,
    /// Whether the value is an operand.
    pub merge: bool,
}

/// All families, including dropped ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    families: BTreeMap<FamilyNo, BTreeMap<Vec<u8>, Cell>>,
    now: ReadTimestamp,
}

impl Store {
    /// Returns the read timestamp of the last commit.
    pub(super) fn moment(&self) -> ReadTimestamp {
        self.now
    }

    /// Creates a family.
    pub(super) fn create(&mut self, family: FamilyNo) {
        self.families.insert(family, BTreeMap::new());
    }

    /// Advances the timestamp without a commit.
    pub(super) fn tick(&mut self) {
        self.now += 1;
    }

    /// Creates a family with the current contents of another. All of its versions have the current timestamp.
    pub(super) fn copy(&mut self, from: FamilyNo, to: FamilyNo, wall: u64) {
        let mut map = BTreeMap::new();
        for (key, cell) in &self.families[&from] {
            if let Some((value, expiry)) = cell.read(self.now, wall) {
                let version = Version { at: self.now, value: Some(value), expiry, merge: false };
                map.insert(key.clone(), Cell { versions: vec![version], puts: 1 });
            }
        }
        self.families.insert(to, map);
    }

    /// Returns true if a single delete of `key` satisfies its precondition.
    pub(super) fn may_single_delete(&self, family: FamilyNo, key: &[u8]) -> bool {
        self.families[&family].get(key).is_none_or(|cell| cell.puts < 2)
    }

    /// Applies one commit. `oldest` is the oldest read timestamp that is still in use.
    pub(super) fn commit(&mut self, writes: Vec<Write>, oldest: ReadTimestamp) {
        self.now += 1;
        for write in writes {
            // A range covers the keys that exist now, including those put earlier in this commit.
            for write in self.singly(write) {
                self.write(write, oldest);
            }
        }
    }

    fn write(&mut self, write: Write, oldest: ReadTimestamp) {
        let Some(map) = self.families.get_mut(&write.family) else { return };
        let cell = map.entry(write.key).or_default();
        let again = cell.versions.last().is_some_and(|v| v.at == self.now);
        cell.puts = match (again, &write.value) {
            (true, _) => 2,
            (false, Some(_)) => (cell.puts + 1).min(2),
            (false, None) => 0,
        };
        if again && !write.merge {
            cell.versions.retain(|v| v.at < self.now);
        }
        let Write { value, expiry, merge, .. } = write;
        cell.versions.push(Version { at: self.now, value, expiry, merge });
        let newest = cell.versions.iter().rposition(|v| v.at <= oldest).unwrap_or(0);
        let keep = cell.versions[..=newest].iter().rposition(|v| !v.merge).unwrap_or(0);
        cell.versions.drain(..keep);
    }

    /// Expands a range delete into deletes of its keys.
    fn singly(&self, write: Write) -> Vec<Write> {
        let Some(until) = write.until.clone() else { return vec![write] };
        let Some(map) = self.families.get(&write.family) else { return Vec::new() };
        let keys = map.keys().filter(|key| **key >= write.key && **key < until);
        keys.map(|key| Write { key: key.clone(), value: None, expiry: 0, until: None, merge: false, ..write })
            .collect()
    }

    /// Returns the value of `key` at read timestamp `at` and wall time `wall`.
    pub(super) fn get(&self, family: FamilyNo, key: &[u8], at: ReadTimestamp, wall: u64) -> Option<Vec<u8>> {
        self.families[&family].get(key)?.read(at, wall).map(|(value, _)| value)
    }

    /// Returns all rows visible at read timestamp `at` and wall time `wall`.
    pub(super) fn rows(&self, family: FamilyNo, at: ReadTimestamp, wall: u64) -> Rows {
        let row = |(key, cell): (&Vec<u8>, &Cell)| Some((key.clone(), cell.read(at, wall)?.0));
        self.families[&family].iter().filter_map(row).collect()
    }
}

impl Cell {
    /// Returns the value and its expiry. An expired value is treated as deleted; the operands after it remain.
    fn read(&self, at: ReadTimestamp, wall: u64) -> Option<(Vec<u8>, u64)> {
        let visible = &self.versions[..self.versions.iter().rposition(|v| v.at <= at)? + 1];
        let base = visible.iter().rposition(|v| !v.merge);
        let live = |v: &&Version| v.value.is_some() && (v.expiry == 0 || v.expiry > wall);
        let live_base = base.map(|base| &visible[base]).filter(live);
        let operands = &visible[base.map_or(0, |base| base + 1)..];
        let expiry = live_base.filter(|_| operands.is_empty()).map_or(0, |v| v.expiry);
        let parts: Vec<_> =
            live_base.into_iter().chain(operands).filter_map(|v| v.value.as_deref()).collect();
        (!parts.is_empty()).then(|| (parts.join(SEPARATOR.as_bytes()), expiry))
    }
}

/// Checks that an iterator yields exactly `rows`.
pub(super) fn same_rows(
    iter: impl Iterator<Item = tidesdb::Result<(Slice, Slice)>>,
    rows: &[(Vec<u8>, Vec<u8>)],
) -> Result<(), String> {
    let mut expected = rows.iter();
    for item in iter {
        let (k, v) = item.map_err(|e| e.to_string())?;
        match expected.next() {
            Some((key, value)) if *k == **key && *v == **value => {}
            Some((key, _)) => return Err(format!("{:?} instead of {:?}, or its value", show(&k), show(key))),
            None => return Err(format!("{:?} instead of the end", show(&k))),
        }
    }
    match expected.next() {
        Some((key, _)) => Err(format!("the end instead of {:?}", show(key))),
        None => Ok(()),
    }
}

pub(super) fn show(key: &[u8]) -> String {
    let text = key[..key.len().min(12)].escape_ascii().to_string();
    format!("{text} ({} bytes)", key.len())
}
