//! The reads of a history; each one is compared with the model.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidesdb::{Cursor, Error, Iter};

use super::ops::{Bounds, Move, Op, Reader, key};
use super::run::{KeptCursor, Live, Runner};
use super::store::{ReadTimestamp, Rows, same_rows, show};

/// What a read uses: a family, the snapshot if there is one, and the read timestamp.
struct View {
    family: Live,
    snapshot: Option<usize>,
    at: ReadTimestamp,
}

impl Runner<'_> {
    /// Returns what `reader` reads when it selects the `n`-th family. Returns `None` if that family was dropped, after
    /// checking the error.
    fn view(&mut self, reader: Reader, n: u64) -> Result<Option<View>, String> {
        let Some(snapshot) = reader.filter(|_| !self.snapshots.is_empty()) else {
            return Ok(Some(View { family: self.live(n).clone(), snapshot: None, at: self.store.moment() }));
        };
        let index = snapshot as usize % self.snapshots.len();
        let pinned = &self.snapshots[index];
        // Include families created after the snapshot; clones among them are empty to the snapshot.
        let later = self.families.iter().filter(|f| pinned.families.iter().all(|old| old.no != f.no));
        let readable: Vec<&Live> = pinned.families.iter().chain(later).collect();
        let at = n as usize % readable.len();
        let family = readable[at].clone();
        if at >= pinned.families.len() {
            let view = View { at: pinned.at, family, snapshot: Some(index) };
            self.count("snapshot", "newer family");
            return Ok(Some(view));
        }
        if self.families.iter().any(|f| f.no == family.no) {
            return Ok(Some(View { at: pinned.at, family, snapshot: Some(index) }));
        }
        let answer = pinned.snapshot.get(&family.handle, b"k");
        self.count("snapshot", "family dropped");
        match answer {
            Err(Error::NotFound { .. }) => Ok(None),
            other => Err(format!("a snapshot of a dropped family returned {other:?}")),
        }
    }

    fn rows(&self, view: &View) -> Rows {
        self.store.rows(view.family.no, view.at, self.wall())
    }

    pub(super) fn read(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::WalkOn(n, moves) => self.walk_on(*n, moves),
            Op::Get(reader, family, ..)
            | Op::Contains(reader, family, ..)
            | Op::MultiGet(reader, family, _)
            | Op::Walk(reader, family, ..)
            | Op::Range(reader, family, ..)
            | Op::Prefix(reader, family, ..)
            | Op::KeysOnly(reader, family) => {
                let Some(view) = self.view(*reader, *family)? else { return Ok(()) };
                match op {
                    Op::Get(_, _, n) => self.get(&view, *n),
                    Op::Contains(_, _, n) => self.contains(&view, *n),
                    Op::MultiGet(_, _, keys) => self.multi_get(&view, keys),
                    Op::Walk(_, _, moves, kept) => self.walk(&view, moves, *kept),
                    Op::Range(_, _, bounds, pulls) => self.range(&view, bounds, pulls),
                    Op::Prefix(_, _, n, len, back) => self.prefix(&view, *n, *len, *back),
                    _ => self.keys_only(&view),
                }
            }
            _ => Ok(()),
        }
    }

    fn get(&mut self, view: &View, n: u64) -> Result<(), String> {
        let key = key(n);
        let expected = self.store.get(view.family.no, &key, view.at, self.wall());
        let got = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.get(&view.family.handle, &key),
            None => view.family.handle.get(&key),
        };
        if got.map_err(|e| e.to_string())?.as_deref() != expected.as_deref() {
            return Err(format!("get of {}, expected {:?} bytes", show(&key), expected.map(|v| v.len())));
        }
        let expired = expected.is_none() && self.store.get(view.family.no, &key, view.at, 0).is_some();
        if view.snapshot.is_none() {
            let len = view.family.handle.get_map(&key, <[u8]>::len).map_err(|e| e.to_string())?;
            if len != expected.as_ref().map(Vec::len) {
                return Err(format!("get_map of {}", show(&key)));
            }
            self.count("get_map", if expected.is_some() { "found" } else { "none" });
        } else {
            self.count("get", "snapshot");
        }
        self.count(
            "get",
            if expected.is_some() {
                "found"
            } else if expired {
                "expired"
            } else {
                "none"
            },
        );
        Ok(())
    }

    fn contains(&mut self, view: &View, n: u64) -> Result<(), String> {
        let key = key(n);
        let expected = self.store.get(view.family.no, &key, view.at, self.wall()).is_some();
        let got = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.contains(&view.family.handle, &key),
            None => view.family.handle.contains(&key),
        };
        self.count("contains", if expected { "found" } else { "none" });
        match got {
            Ok(got) if got == expected => Ok(()),
            other => Err(format!("contains {}: {other:?}", show(&key))),
        }
    }

    fn multi_get(&mut self, view: &View, keys: &[u64]) -> Result<(), String> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|n| key(*n)).collect();
        let got = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.multi_get(&view.family.handle, &keys),
            None => view.family.handle.multi_get(&keys),
        };
        let got = got.map_err(|e| e.to_string())?;
        self.count("multi_get", if view.snapshot.is_some() { "snapshot" } else { "ok" });
        if got.len() != keys.len() {
            return Err(format!("multi_get: {} answers to {} keys", got.len(), keys.len()));
        }
        for (key, got) in keys.iter().zip(got) {
            if got.as_deref() != self.store.get(view.family.no, key, view.at, self.wall()).as_deref() {
                return Err(format!("multi_get of {}", show(key)));
            }
        }
        Ok(())
    }

    fn cursor(&self, view: &View) -> Result<Cursor, String> {
        let cursor = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.cursor(&view.family.handle),
            None => view.family.handle.cursor(),
        };
        cursor.map_err(|e| e.to_string())
    }

    fn walk(&mut self, view: &View, moves: &[Move], kept: bool) -> Result<(), String> {
        let rows = self.rows(view);
        let (cursor, family, at) = (self.cursor(view)?, view.family.no, view.at);
        let mut held = KeptCursor { cursor, rows, position: None, family, at, later: BTreeMap::new() };
        self.make_moves(&mut held, moves)?;
        if view.snapshot.is_some() {
            self.count("cursor", "snapshot");
        }
        if kept {
            self.count("cursor", "kept");
            if self.cursors.len() >= 4 {
                self.cursors.remove(0);
            }
            self.cursors.push(held);
        }
        Ok(())
    }

    fn walk_on(&mut self, n: u64, moves: &[Move]) -> Result<(), String> {
        if self.cursors.is_empty() {
            return Ok(());
        }
        let at = n as usize % self.cursors.len();
        let mut held = self.cursors.swap_remove(at);
        let gone = self.families.iter().all(|f| f.no != held.family);
        self.count("cursor", if gone { "family dropped" } else { "moved later" });
        if !gone {
            // The cursor of a dropped family stays as it is.
            let now = self.store.rows(held.family, held.at, self.wall());
            for (key, value) in &held.rows {
                let found = now.binary_search_by(|(k, _)| k.cmp(key)).ok().map(|at| now[at].1.clone());
                if found.as_ref() != Some(value) {
                    held.later.insert(key.clone(), found);
                }
            }
        }
        self.make_moves(&mut held, moves)?;
        self.cursors.push(held);
        Ok(())
    }

    fn make_moves(&mut self, held: &mut KeptCursor, moves: &[Move]) -> Result<(), String> {
        for (i, one) in moves.iter().enumerate() {
            make_move(held, one).map_err(|e| format!("move {i}: {e}"))?;
            self.count("cursor", if held.position.is_some() { "valid" } else { "past an end" });
        }
        Ok(())
    }

    fn range(&mut self, view: &View, bounds: &Bounds, pulls: &[bool]) -> Result<(), String> {
        let own = |b: &Bound<u64>| b.map(key);
        let bounds = (own(&bounds.0), own(&bounds.1));
        let mut rows: Rows = self.rows(view);
        rows.retain(|(k, _)| inside(&bounds, k));
        if upside_down(&bounds) {
            self.count("range", "upside down");
        }
        if rows.is_empty() {
            self.count("range", "empty");
        }
        let mut iter: Iter = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.range(&view.family.handle, bounds),
            None => view.family.handle.range(bounds),
        }
        .map_err(|e| e.to_string())?;
        if view.snapshot.is_some() {
            self.count("range", "snapshot");
        }
        if pulls.contains(&true) && pulls.contains(&false) {
            self.count("range", "both ends");
        }
        let mut expected = rows.iter();
        for (i, front) in pulls.iter().enumerate() {
            let (got, want) = if *front {
                (iter.next(), expected.next())
            } else {
                (iter.next_back(), expected.next_back())
            };
            let got = got.transpose().map_err(|e| e.to_string())?;
            match (&got, want) {
                (None, None) => self.count("range", "exhausted"),
                (Some((k, v)), Some((key, value))) if **k == **key && **v == **value => {}
                _ => {
                    let got = got.map(|(k, _)| show(&k));
                    return Err(format!("pull {i}: {got:?} instead of {:?}", want.map(|(k, _)| show(k))));
                }
            }
        }
        Ok(())
    }

    fn prefix(&mut self, view: &View, n: u64, len: u64, back: bool) -> Result<(), String> {
        let key = key(n);
        let prefix = &key[..key.len().min(len as usize)];
        let mut rows = self.rows(view);
        rows.retain(|(k, _)| k.starts_with(prefix));
        let iter = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.prefix(&view.family.handle, prefix),
            None => view.family.handle.prefix(prefix),
        };
        let iter = match iter {
            Err(Error::InvalidArgument { .. })
                if !prefix.is_empty() && !view.family.handle.current_options().comparator.is_bytewise() =>
            {
                self.count("prefix", "refused");
                return Ok(());
            }
            iter => iter.map_err(|e| e.to_string())?,
        };
        if !rows.is_empty() {
            self.count("prefix", if back { "reversed" } else { "found" });
        }
        if back {
            rows.reverse();
            same_rows(iter.rev(), &rows)
        } else {
            same_rows(iter, &rows)
        }
    }

    fn keys_only(&mut self, view: &View) -> Result<(), String> {
        let rows = self.rows(view);
        let iter = match view.snapshot {
            Some(i) => self.snapshots[i].snapshot.iter(&view.family.handle),
            None => view.family.handle.iter(),
        }
        .map_err(|e| e.to_string())?;
        self.count("keys_only", "ok");
        let mut expected = rows.iter().map(|(key, _)| key);
        for got in iter.keys() {
            let (got, want) = (got.map_err(|e| e.to_string())?, expected.next());
            if want.is_none_or(|key| *got != **key) {
                return Err(format!("key {} instead of {:?}", show(&got), want.map(|key| show(key))));
            }
        }
        expected.next().map_or(Ok(()), |key| Err(format!("key {} is missing", show(key))))
    }
}

/// Moves the cursor and its position in the rows, and compares them. It may have passed over rows that expired since it was created.
fn make_move(held: &mut KeptCursor, one: &Move) -> Result<(), String> {
    let (cursor, rows) = (&mut held.cursor, &held.rows);
    let last = rows.len().checked_sub(1);
    let after = |at: usize| Some(at + 1).filter(|at| *at < rows.len());
    let (moved, mut position, forward) = match one {
        Move::First => (cursor.seek_to_first(), last.map(|_| 0), true),
        Move::Last => (cursor.seek_to_last(), last, false),
        Move::Seek(n) => {
            let at = rows.partition_point(|(k, _)| *k < key(*n));
            (cursor.seek(&key(*n)), (at < rows.len()).then_some(at), true)
        }
        Move::SeekForPrev(n) => {
            let after = rows.partition_point(|(k, _)| *k <= key(*n));
            (cursor.seek_for_prev(&key(*n)), after.checked_sub(1), false)
        }
        Move::Next => (cursor.next(), held.position.and_then(after), true),
        Move::Prev => (cursor.prev(), held.position.and_then(|at| at.checked_sub(1)), false),
    };
    moved.map_err(|e| format!("{one:?}: {e}"))?;
    let may_lack = |at: usize| held.later.get(&rows[at].0).is_some_and(Option::is_none);
    let shown = cursor.valid().then(|| cursor.key());
    let is_shown = |at: usize| shown == Some(&rows[at].0);
    while let Some(at) = position.filter(|at| !is_shown(*at) && may_lack(*at)) {
        position = if forward { after(at) } else { at.checked_sub(1) };
    }
    held.position = position;
    match position {
        None if cursor.valid() => Err(format!("{one:?}: on {} instead of past an end", show(cursor.key()))),
        None => Ok(()),
        Some(at) if !cursor.valid() => {
            Err(format!("{one:?}: past an end instead of on {}", show(&rows[at].0)))
        }
        Some(at) if !is_shown(at) => {
            Err(format!("{one:?}: on {} instead of {}", show(cursor.key()), show(&rows[at].0)))
        }
        Some(at) => {
            let (key, value) = &rows[at];
            let later = held.later.get(key).and_then(Option::as_deref);
            match cursor.value() {
                Ok(found) if *found == **value || Some(found) == later => Ok(()),
                Ok(_) => Err(format!("{one:?}: wrong value of {}", show(key))),
                Err(e) => Err(format!("{one:?}: value: {e}")),
            }
        }
    }
}

fn inside(bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>), key: &[u8]) -> bool {
    let low = match &bounds.0 {
        Bound::Unbounded => true,
        Bound::Included(low) => key >= &low[..],
        Bound::Excluded(low) => key > &low[..],
    };
    let high = match &bounds.1 {
        Bound::Unbounded => true,
        Bound::Included(high) => key <= &high[..],
        Bound::Excluded(high) => key < &high[..],
    };
    low && high
}

fn upside_down(bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    match (&bounds.0, &bounds.1) {
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
            low > high
        }
        _ => false,
    }
}
