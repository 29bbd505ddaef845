//! The oracle: all commits with their places in the order, and what was read. After a run each read is compared with what the commits say, and
//! each recovered disk with a prefix of them.
//!
//! The order is that of the sequence numbers that commits return. A read happened between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::model::{FamilyNo, SEPARATOR};

/// Rows of a family with their expiry in milliseconds since the UNIX epoch; 0 = never.
pub type Rows = BTreeMap<Vec<u8>, Row>;

/// Milliseconds by which the engine may be late to see that a row has expired: its timekeeper may not get a turn.
const LATE: u64 = 100_000;
/// Milliseconds by which it may be early: a time that is read, then compared.
const EARLY: u64 = 2;
/// Commits that are tried to be left out: one for each thread that commits.
const OPTIONAL_MAX: usize = 7;
/// Bytes of a key or value that a message shows. Texts are also made for states that are only tried.
const SHOWN: usize = 256;

/// A value with its expiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The value.
    pub value: Arc<[u8]>,
    /// Milliseconds since the UNIX epoch; 0 = never.
    pub expiry: u64,
}

/// What an operation does to its key.
#[derive(Clone, Debug)]
pub enum Change {
    /// The key has this row.
    Put(Row),
    /// The key has no row.
    Delete,
    /// The key, which was put at most once since its last delete, has no row.
    SingleDelete,
    /// The operand is appended.
    Merge(Arc<[u8]>),
    /// All keys from that of the operation to this one, exclusive, have no rows.
    DeleteRange(Vec<u8>),
}

/// An operation of a commit.
#[derive(Clone, Debug)]
pub struct Op {
    /// The family.
    pub family: FamilyNo,
    /// The key.
    pub key: Vec<u8>,
    /// The change.
    pub change: Change,
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of family {}: {}", text(&self.key), self.family, named(&self.change))
    }
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has not returned.
    Flying,
    /// It was acknowledged with this sequence number.
    Acked(u64),
    /// It had no effect.
    Refused,
    /// It has this sequence number and may be lost.
    Unknown(u64),
}

#[derive(Clone, Debug)]
struct Commit {
    ops: Vec<Op>,
    fate: Fate,
}

/// Something that was read, to be judged when all commits are known.
#[derive(Clone, Debug)]
pub struct Read {
    /// Who read it.
    pub who: String,
    /// The family.
    pub family: FamilyNo,
    /// Sequence numbers that were visible before and after it. Equal for a snapshot.
    pub between: (u64, u64),
    /// Wall times before and after it, the second one at most, in milliseconds.
    pub time: (u64, u64),
    /// What was found.
    pub found: Found,
}

/// What a read found.
#[derive(Clone, Debug)]
pub enum Found {
    /// A key and its value.
    Key(Vec<u8>, Option<Vec<u8>>),
    /// All rows from the first key to the second one, inclusive. `None`: no bound.
    Range(Option<Vec<u8>>, Option<Vec<u8>>, BTreeMap<Vec<u8>, Vec<u8>>),
    /// All rows at one moment.
    All(BTreeMap<Vec<u8>, Vec<u8>>),
}

/// All that happened to a database since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    commits: Vec<Commit>,
    reads: Vec<Read>,
    base: BTreeMap<FamilyNo, Rows>,
    /// Families that were made as clones.
    clones: BTreeSet<FamilyNo>,
    /// Acknowledged commits with the time of their return, since the begin of the simulation.
    returned: Vec<(Duration, u64)>,
    /// The highest sequence number of an acknowledged commit.
    pub acked: u64,
    /// Commits up to this sequence number are durable.
    pub durable: u64,
}

impl Ledger {
    /// Adds a family that holds `rows`.
    pub fn add_family(&mut self, family: FamilyNo, rows: Rows) {
        self.base.insert(family, rows);
    }

    /// Records that a family was made as a clone.
    pub fn note_clone(&mut self, family: FamilyNo) {
        self.clones.insert(family);
    }

    /// A commit begins. Returns its number.
    pub fn begin(&mut self, ops: Vec<Op>) -> usize {
        self.commits.push(Commit { ops, fate: Fate::Flying });
        self.commits.len() - 1
    }

    /// A commit has ended. If it was durable, all commits before it are.
    pub fn end(&mut self, commit: usize, fate: Fate, durable: bool) {
        self.commits[commit].fate = fate;
        if let Fate::Acked(seq) = fate {
            self.acked = self.acked.max(seq);
            self.durable = self.durable.max(if durable { seq } else { 0 });
        }
    }

    /// The commit `seq` has returned at the time `now`.
    pub fn note_return(&mut self, now: Duration, seq: u64) {
        self.returned.push((now, seq));
    }

    /// The highest sequence number of a commit that had returned at the time `by`.
    pub fn returned_by(&self, by: Duration) -> u64 {
        let before = self.returned.iter().filter(|(at, _)| *at <= by);
        before.map(|(_, seq)| *seq).max().unwrap_or(0)
    }

    /// Records a read.
    pub fn read(&mut self, read: Read) {
        self.reads.push(read);
    }

    /// Number of acknowledged commits, and of reads.
    pub fn counts(&self) -> (u64, u64) {
        let acked = self.commits.iter().filter(|commit| matches!(commit.fate, Fate::Acked(_))).count();
        (acked as u64, self.reads.len() as u64)
    }

    /// Judges all reads.
    ///
    /// # Errors
    /// The first read that no order of the commits explains.
    pub fn judge(&self) -> Result<(), String> {
        let history = History::of(self);
        self.reads.iter().try_for_each(|read| history.judge(read))
    }

    /// Commits that have not returned.
    pub fn flying(&self) -> Vec<usize> {
        (0..self.commits.len()).filter(|n| self.commits[*n].fate == Fate::Flying).collect()
    }

    /// Finds the prefix of the commits that explains `found`, the rows of some families at a wall time within `time`. It has all commits
    /// up to `least`. Those with the numbers `optional` had not returned when the process was killed, and may be missing, each by itself.
    ///
    /// # Errors
    /// There is none.
    pub fn explain(
        &self,
        found: &BTreeMap<FamilyNo, Rows>,
        least: u64,
        time: (u64, u64),
        optional: &[usize],
    ) -> Result<u64, String> {
        let optional = &optional[..optional.len().min(OPTIONAL_MAX)];
        let mut first = Ok(0);
        for left_out in 0..1usize << optional.len() {
            let mut without = self.clone();
            for (_, commit) in (0..).zip(optional).filter(|(n, _)| left_out >> n & 1 == 1) {
                without.commits[*commit].fate = Fate::Refused;
            }
            match without.explain_all(found, least, time) {
                Ok(end) => return Ok(end),
                Err(e) if left_out == 0 => first = Err(e),
                Err(_) => {}
            }
        }
        first
    }

    fn explain_all(
        &self,
        found: &BTreeMap<FamilyNo, Rows>,
        least: u64,
        time: (u64, u64),
    ) -> Result<u64, String> {
        let history = History::of(self);
        let mut ends: Vec<u64> = self.commits.iter().filter_map(|commit| seq_of(commit.fate)).collect();
        ends.push(0);
        ends.sort_unstable();
        // A snapshot may have a sequence number between those of the commits.
        let least = ends.iter().copied().filter(|end| *end <= least).max().unwrap_or(0);
        let mut nearest = (u64::MAX, Vec::new());
        for end in ends.iter().copied().filter(|end| *end >= least) {
            let wrong = history.differences(found, end, time);
            if wrong.is_empty() {
                return Ok(end);
            }
            if nearest.1.is_empty() || wrong.len() < nearest.1.len() {
                nearest = (end, wrong);
            }
        }
        let (last, wrong) = (ends.last().copied().unwrap_or(0), nearest.1.len());
        let shown: Vec<String> = nearest.1.into_iter().take(4).collect();
        Err(format!(
            "no prefix of the commits between {least} and {last} explains it; at {} {wrong} keys are wrong: {}",
            nearest.0,
            shown.join("; ")
        ))
    }
}

fn seq_of(fate: Fate) -> Option<u64> {
    match fate {
        Fate::Acked(seq) | Fate::Unknown(seq) => Some(seq),
        Fate::Flying | Fate::Refused => None,
    }
}

/// Changes of a key, each with the sequence number of its commit.
type Changes<'a> = Vec<(u64, &'a Change)>;

/// All changes of each key in order.
struct History<'a> {
    changes: BTreeMap<(FamilyNo, &'a [u8]), Changes<'a>>,
    base: &'a BTreeMap<FamilyNo, Rows>,
    /// Keys of commits whose effects are not known.
    vague: BTreeSet<(FamilyNo, &'a [u8])>,
    /// Commits that were not acknowledged.
    others: Vec<&'a Commit>,
    clones: &'a BTreeSet<FamilyNo>,
}

impl<'a> History<'a> {
    fn of(ledger: &'a Ledger) -> Self {
        let mut keys: BTreeSet<(FamilyNo, &[u8])> = BTreeSet::new();
        for (family, rows) in &ledger.base {
            keys.extend(rows.keys().map(|key| (*family, key.as_slice())));
        }
        for op in ledger.commits.iter().flat_map(|commit| &commit.ops) {
            keys.insert((op.family, &op.key));
        }
        let mut changes: BTreeMap<_, Vec<(u64, &Change)>> =
            keys.iter().map(|key| (*key, Vec::new())).collect();
        let mut vague = BTreeSet::new();
        let mut ordered: Vec<&Commit> = ledger.commits.iter().collect();
        ordered.sort_by_key(|commit| seq_of(commit.fate)); // stable
        for commit in ordered.into_iter().filter(|commit| commit.fate != Fate::Refused) {
            for op in &commit.ops {
                let from = (op.family, op.key.as_slice());
                let touched: Vec<_> = match &op.change {
                    Change::DeleteRange(until) if op.key >= *until => Vec::new(),
                    Change::DeleteRange(until) => {
                        keys.range(from..(op.family, until.as_slice())).copied().collect()
                    }
                    _ => vec![from],
                };
                for key in touched {
                    match seq_of(commit.fate) {
                        Some(seq) => changes.entry(key).or_default().push((seq, &op.change)),
                        None => {
                            vague.insert(key);
                        }
                    }
                    if matches!(commit.fate, Fate::Unknown(_)) {
                        vague.insert(key);
                    }
                }
            }
        }
        let others = ledger.commits.iter().filter(|commit| !matches!(commit.fate, Fate::Acked(_))).collect();
        Self { changes, base: &ledger.base, vague, others, clones: &ledger.clones }
    }

    fn changes<'s>(&'s self, family: FamilyNo, key: &'s [u8]) -> &'s [(u64, &'a Change)] {
        self.changes.get(&(family, key)).map_or(&[], Vec::as_slice)
    }

    /// The row of a key after all commits up to `end`.
    fn row(&self, family: FamilyNo, key: &[u8], end: u64) -> Option<Row> {
        let mut row = self.base.get(&family).and_then(|rows| rows.get(key)).cloned();
        for (_, change) in self.changes(family, key).iter().take_while(|(seq, _)| *seq <= end) {
            row = match change {
                Change::Put(new) => Some(new.clone()),
                Change::Delete | Change::SingleDelete | Change::DeleteRange(_) => None,
                Change::Merge(operand) => Some(match row {
                    None => Row { value: Arc::clone(operand), expiry: 0 },
                    Some(row) => {
                        Row { value: [&row.value, SEPARATOR.as_bytes(), operand].concat().into(), ..row }
                    }
                }),
            };
        }
        row
    }

    /// The sequence numbers within `between` at which the value of the key may have been read.
    fn moments(&self, family: FamilyNo, key: &[u8], (from, to): (u64, u64)) -> Vec<u64> {
        let within =
            self.changes(family, key).iter().map(|(seq, _)| *seq).filter(|seq| *seq > from && *seq <= to);
        std::iter::once(from).chain(within).collect()
    }

    fn judge(&self, read: &Read) -> Result<(), String> {
        let family = read.family;
        match &read.found {
            Found::Key(key, value) => {
                if self.is_vague(family, key) {
                    return Ok(());
                }
                let moments = self.moments(family, key, read.between);
                let fits = |end: &u64| is_shown(self.row(family, key, *end), value.as_deref(), read.time);
                if moments.iter().any(fits) {
                    return Ok(());
                }
                Err(format!(
                    "{} read {} of key {} in family {family} between {:?} at {:?} ms; commits: {}",
                    read.who,
                    short(value.as_deref()),
                    text(key),
                    read.between,
                    read.time,
                    self.story(family, key)
                ))
            }
            Found::All(rows) => {
                let changes = self.changes.iter().filter(|((f, _), _)| *f == family).flat_map(|(_, all)| all);
                let (from, to) = read.between;
                let within = changes.map(|(seq, _)| *seq).filter(|seq| *seq > from && *seq <= to);
                let mut moments = std::iter::once(from).chain(within);
                let differ = |end| self.compare(family, (None, None), rows, end, read.time);
                if moments.any(|end| differ(end).is_empty()) {
                    return Ok(());
                }
                let (who, wrong) = (&read.who, differ(from).join("; "));
                Err(format!(
                    "{who} of family {family} shows no state between {from} and {to}; at {from}: {wrong}"
                ))
            }
            Found::Range(low, high, rows) => {
                let (at, bounds) = (read.between.0, (low.as_deref(), high.as_deref()));
                let wrong = self.compare(family, bounds, rows, at, read.time);
                if wrong.is_empty() {
                    return Ok(());
                }
                let shown = wrong.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("; ");
                let (who, n) = (&read.who, wrong.len());
                let bounds = format!("{:?} to {:?}", low.as_deref().map(text), high.as_deref().map(text));
                Err(format!("{who} scanned {bounds} of family {family} at {at}, {n} keys are wrong: {shown}"))
            }
        }
    }

    /// Compares all keys of a family within inclusive bounds with `rows`. Returns what differs.
    fn compare(
        &self,
        family: FamilyNo,
        (low, high): (Option<&[u8]>, Option<&[u8]>),
        rows: &BTreeMap<Vec<u8>, Vec<u8>>,
        end: u64,
        time: (u64, u64),
    ) -> Vec<String> {
        let is_within = |key: &[u8]| low.is_none_or(|low| key >= low) && high.is_none_or(|high| key <= high);
        let unknown = rows.keys().filter(|key| !self.changes.contains_key(&(family, key.as_slice())));
        let unknown = unknown.filter(|key| !self.is_vague(family, key));
        let mut wrong: Vec<String> =
            unknown.map(|key| format!("key {} was never written", text(key))).collect();
        for (_, key) in self.changes.keys().filter(|(f, key)| *f == family && is_within(key)) {
            let value = rows.get(*key).map(Vec::as_slice);
            if !self.is_vague(family, key) && !is_shown(self.row(family, key, end), value, time) {
                let story = self.story(family, key);
                wrong.push(format!("key {} is {}; commits: {story}", text(key), short(value)));
            }
        }
        wrong
    }

    /// Compares whole families with their state after all commits up to `end`.
    fn differences(&self, found: &BTreeMap<FamilyNo, Rows>, end: u64, time: (u64, u64)) -> Vec<String> {
        let mut all = Vec::new();
        for (family, rows) in found {
            let wrong = self.compare(*family, (None, None), &values(rows), end, time);
            all.extend(wrong.into_iter().map(|wrong| format!("family {family}: {wrong}")));
        }
        all
    }

    /// Returns whether nothing is known of a key. A clone does not show rows that have expired, and shows them again after an open if
    /// the clock was set back.
    fn is_vague(&self, family: FamilyNo, key: &[u8]) -> bool {
        self.vague.contains(&(family, key)) || (self.clones.contains(&family) && may_expire(key))
    }

    /// The last changes of a key, as text.
    fn story(&self, family: FamilyNo, key: &[u8]) -> String {
        let base = self.base.get(&family).and_then(|rows| rows.get(key)).map(|row| &*row.value);
        let changes = self.changes(family, key);
        let last = changes.iter().skip(changes.len().saturating_sub(8));
        let told = last.map(|(seq, change)| format!("{seq} {}", named(change)));
        let touches = |op: &&Op| op.family == family && op.key == key;
        let others = self.others.iter().flat_map(|commit| {
            let ops = commit.ops.iter().filter(touches);
            ops.map(|op| format!("{:?} {}", commit.fate, named(&op.change)))
        });
        let (told, others) = (told.collect::<Vec<_>>().join(", "), others.collect::<Vec<_>>().join(", "));
        format!("at first {}, {told}; not acknowledged: {others}", short(base))
    }
}

/// Returns whether rows of this key may have an expiry: its number is a multiple of five.
pub(super) fn may_expire(key: &[u8]) -> bool {
    key.last().is_some_and(|digit| (digit - b'0').is_multiple_of(5))
}

/// Returns `rows` without their expiries.
pub(super) fn values(rows: &Rows) -> BTreeMap<Vec<u8>, Vec<u8>> {
    rows.iter().map(|(key, row)| (key.clone(), row.value.to_vec())).collect()
}

/// Returns whether a read at a wall time within `time` may find `value` if the key has `row`.
fn is_shown(row: Option<Row>, value: Option<&[u8]>, time: (u64, u64)) -> bool {
    match (row, value) {
        (None, None) => true,
        (Some(row), Some(value)) => *row.value == *value && (row.expiry == 0 || row.expiry + LATE > time.0),
        (Some(row), None) => row.expiry != 0 && row.expiry <= time.1 + EARLY,
        (None, Some(_)) => false,
    }
}

/// A change as text.
fn named(change: &Change) -> String {
    match change {
        Change::Put(row) if row.expiry > 0 => format!("put {} until {}", short(Some(&row.value)), row.expiry),
        Change::Put(row) => format!("put {}", short(Some(&row.value))),
        Change::Delete => "delete".to_owned(),
        Change::SingleDelete => "single delete".to_owned(),
        Change::Merge(operand) => format!("merge {}", short(Some(operand))),
        Change::DeleteRange(until) => format!("delete range to {}", text(until)),
    }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(SHOWN)]).into_owned()
}

/// The begin of a value, and of the parts of that.
fn short(value: Option<&[u8]>) -> String {
    let Some(value) = value else { return "nothing".to_owned() };
    let names: Vec<String> = value[..value.len().min(SHOWN)]
        .split(|byte| *byte == SEPARATOR.as_bytes()[0])
        .map(|part| text(&part[..part.len().min(14)]))
        .collect();
    format!("{:?} ({} bytes)", names.join(SEPARATOR), value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Op {
        let row = Row { value: value.as_bytes().into(), expiry: 0 };
        Op { family: 0, key: key.into(), change: Change::Put(row) }
    }

    fn delete_range(from: &str, until: &str) -> Op {
        Op { family: 0, key: from.into(), change: Change::DeleteRange(until.into()) }
    }

    /// A ledger of commits with the sequence numbers 10, 20, ...
    fn ledger(commits: &[&[Op]]) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add_family(0, Rows::new());
        for (n, ops) in (1..).zip(commits) {
            let commit = ledger.begin(ops.to_vec());
            ledger.end(commit, Fate::Acked(n * 10), false);
        }
        ledger
    }

    fn judged(ledger: &Ledger, between: (u64, u64), key: &str, value: Option<&str>) -> bool {
        let found = Found::Key(key.into(), value.map(|value| value.as_bytes().to_vec()));
        let mut ledger = ledger.clone();
        ledger.read(Read { who: String::new(), family: 0, between, time: (0, 0), found });
        ledger.judge().is_ok()
    }

    #[test]
    fn a_read_sees_what_was_visible_at_some_time_during_it() {
        let ledger =
            ledger(&[&[put("a", "1")], &[put("a", "2")], &[delete_range("a", "b")], &[put("a", "3")]]);
        for (between, seen) in [
            ((0, 0), vec![None]),
            ((10, 10), vec![Some("1")]),
            ((15, 25), vec![Some("1"), Some("2")]),
            ((20, 30), vec![Some("2"), None]),
            ((30, 45), vec![None, Some("3")]),
        ] {
            for value in [None, Some("1"), Some("2"), Some("3"), Some("4")] {
                assert_eq!(
                    judged(&ledger, between, "a", value),
                    seen.contains(&value),
                    "{between:?} {value:?}"
                );
            }
        }
        assert!(!judged(&ledger, (40, 40), "b", Some("1")), "the end of a range is exclusive");
    }

    #[test]
    fn a_recovered_disk_has_a_prefix_and_what_was_durable() {
        let ledger = ledger(&[&[put("a", "1"), put("b", "1")], &[put("a", "2")], &[put("b", "3")]]);
        let rows = |pairs: &[(&str, &str)]| {
            let row = |(k, v): &(&str, &str)| {
                (k.as_bytes().to_vec(), Row { value: v.as_bytes().into(), expiry: 0 })
            };
            BTreeMap::from([(0, pairs.iter().map(row).collect::<Rows>())])
        };
        let explain = |pairs: &[(&str, &str)], least| ledger.explain(&rows(pairs), least, (0, 0), &[]).ok();
        assert_eq!(explain(&[], 0), Some(0));
        assert_eq!(explain(&[], 10), None, "a durable commit is lost");
        assert_eq!(explain(&[("a", "1")], 0), None, "half of a commit");
        assert_eq!(explain(&[("a", "1"), ("b", "1")], 0), Some(10));
        assert_eq!(explain(&[("a", "2"), ("b", "1")], 20), Some(20));
        assert_eq!(explain(&[("a", "1"), ("b", "3")], 0), None, "a gap");
        assert_eq!(explain(&[("a", "2"), ("b", "3")], 30), Some(30));
        assert_eq!(explain(&[("a", "2"), ("b", "3"), ("c", "1")], 0), None, "a row that was never written");
        let killed = |pairs: &[(&str, &str)]| ledger.explain(&rows(pairs), 10, (0, 0), &[1, 2]).is_ok();
        assert!(killed(&[("a", "1"), ("b", "3")]), "the second commit had not returned");
        assert!(!killed(&[("a", "2"), ("b", "3"), ("c", "1")]) && !killed(&[("b", "3")]));
    }

    #[test]
    fn a_row_expires_and_operands_are_appended() {
        let row = Row { value: b"v".as_slice().into(), expiry: 1_000_000 };
        let put = Op { family: 0, key: b"t".to_vec(), change: Change::Put(row.clone()) };
        let operand =
            |text: &str| Op { family: 0, key: b"m".to_vec(), change: Change::Merge(text.as_bytes().into()) };
        let ledger = ledger(&[&[put, operand("1")], &[operand("2")]]);
        assert!(judged(&ledger, (20, 20), "m", Some("1|2")) && !judged(&ledger, (20, 20), "m", Some("2")));
        let shown = |value, time| is_shown(Some(row.clone()), value, (time, time));
        assert!(shown(Some(b"v".as_slice()), 999_000) && !shown(None, 999_000));
        assert!(shown(None, 1_000_000) && !shown(Some(b"v".as_slice()), 1_000_000 + LATE));
    }
}
