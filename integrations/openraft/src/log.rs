//! The log of a group: entries, vote, committed index and purged index.
//!
//! All writes go through the committer, which keeps their order and syncs once for all that wait, of all groups.

use crate::GroupTypes;
use crate::codec::{decode, encode};
use crate::failure::{blocking, storage};
use crate::group::Member;
use crate::keys::{APPLIED, COMMITTED, PURGED, VOTE};
use crate::stores::Shared;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    Entry, ErrorSubject, ErrorVerb, LogId, LogState, OptionalSend, RaftLogReader, StorageError, Vote,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidesdb::{Error, Family, Result, WriteBatch};

/// Bytes of entries in one commit of an append; a longer append has several, in their order.
const COMMIT_BYTES: usize = 4 << 20;

/// Bytes of entries after which a read for a follower ends.
const READ_BYTES: usize = 8 << 20;

/// Most bytes of entries from the end that are read without a blocking thread. They were written just now, so the read mostly finds them in
/// memory; if not, it is a short one.
const RECENT_BYTES: usize = 1 << 20;

/// The entries at the end that are read without a blocking thread.
#[derive(Debug, Default)]
struct Recent {
    /// Index of the first one.
    from: u64,
    /// Index after the newest entry that was appended since the open; 0 if there is none.
    end: u64,
    bytes: usize,
}

impl Recent {
    /// Takes the entries with an index from `from` up to `end`, which were appended.
    fn append(&mut self, from: u64, end: u64, bytes: usize) {
        if bytes > RECENT_BYTES {
            *self = Self { from: end, end, bytes: 0 };
        } else if from != self.end || self.bytes + bytes > RECENT_BYTES {
            *self = Self { from, end, bytes };
        } else {
            (self.end, self.bytes) = (end, self.bytes + bytes);
        }
    }

    /// Returns true if these are all entries from `from` on.
    fn covers(&self, from: u64) -> bool {
        self.end > 0 && from >= self.from
    }
}

/// The log of a Raft group: `RaftLogStorage` of openraft. A clone is another reader.
///
/// An append returns, and calls back, when its entries are durable. Appends of all groups of the database that wait at the same time share
/// one sync. A failing device is a `StorageError`, after which openraft ends the node.
pub struct LogStore<C> {
    pub(crate) shared: Arc<Shared>,
    member: Member,
    recent: Arc<Mutex<Recent>>,
    types: PhantomData<fn() -> C>,
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            member: self.member.clone(),
            recent: Arc::clone(&self.recent),
            types: PhantomData,
        }
    }
}

impl<C> Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").field("group", &self.member.group.0).finish_non_exhaustive()
    }
}

impl<C: GroupTypes> LogStore<C> {
    pub(crate) fn new(shared: Arc<Shared>, member: Member) -> Self {
        Self { shared, member, recent: Arc::default(), types: PhantomData }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits what `fill` puts into a batch, durably, after all earlier calls. It is handed over at once, before the future is polled.
    fn commit<F>(&self, fill: F) -> impl Future<Output = Result<()>> + Send + use<C, F>
    where
        F: FnOnce(&mut WriteBatch, &Family) -> Result<()> + Send + 'static,
    {
        let (log, member) = (self.shared.log.clone(), self.member.clone());
        let filled = move |batch: &mut WriteBatch| {
            member.check()?;
            fill(batch, &log)
        };
        let committed = self.shared.committer.commit_with(filled);
        async move { committed.await.map(drop) }
    }

    /// Makes durable what can be read. A process that ended may have left entries, and a vote, that were not synced: openraft takes what it finds
    /// at its start for durable, and answers as if it were.
    async fn settle(&self) -> Result<()> {
        self.commit(|_, _| Ok(())).await
    }

    async fn save_note<T: Serialize>(&self, note: u8, what: &str, value: &T) -> Result<()> {
        let (key, value) = (self.member.group.note(note), encode(what, value)?);
        self.commit(move |batch, log| batch.put(log, key, value)).await
    }

    async fn note<T: DeserializeOwned + Send + 'static>(
        &self,
        note: u8,
        what: &'static str,
    ) -> Result<Option<T>> {
        let (shared, key) = (Arc::clone(&self.shared), self.member.group.note(note));
        blocking(move || shared.log.get(key)?.map(|bytes| decode(what, &bytes)).transpose()).await
    }

    /// Appends durably. After an error a part of `entries` from the first one on may be appended, without a hole.
    async fn append_all(&self, entries: impl IntoIterator<Item = Entry<C>>) -> Result<()> {
        let mut commits = Vec::new();
        let (mut rows, mut bytes, mut all_bytes) = (Vec::new(), 0, 0);
        let mut indices: Option<(u64, u64)> = None;
        for entry in entries {
            let (index, value) = (entry.log_id.index, encode("an entry", &entry)?);
            bytes += value.len();
            all_bytes += value.len();
            let end = index.saturating_add(1);
            indices = Some((indices.map_or(index, |(from, _)| from), end));
            rows.push((self.member.group.entry(index), value));
            if bytes >= COMMIT_BYTES {
                commits.push(std::mem::take(&mut rows));
                bytes = 0;
            }
        }
        commits.push(rows);
        // One after the other: a refused commit must not be followed by one that passes. The log would have a hole, which openraft does not
        // look for: it would take part in elections, and acknowledge, as if it had the missing entries.
        for rows in commits {
            let put = move |batch: &mut WriteBatch, log: &Family| {
                rows.iter().try_for_each(|(key, value)| batch.put(log, key, value))
            };
            self.commit(put).await?;
        }
        if let Some((from, end)) = indices {
            self.recent().append(from, end, all_bytes);
        }
        Ok(())
    }

    /// Reads entries in their order, from `from` up to `end`, at least one if there is one, and no more after `bytes_max` bytes.
    async fn read(&self, from: u64, end: Option<u64>, bytes_max: usize) -> Result<Vec<Entry<C>>> {
        if end.is_some_and(|end| end <= from) {
            return Ok(Vec::new());
        }
        let recent = self.recent().covers(from);
        let (log, keys) = (self.shared.log.clone(), self.member.group.entries(from, end));
        let read = move || {
            let (mut rows, mut entries, mut bytes) = (log.range(keys)?, Vec::new(), 0);
            while let Some((_, value)) = rows.next_ref()? {
                entries.push(decode("an entry", value)?);
                bytes += value.len();
                if bytes >= bytes_max {
                    break;
                }
            }
            Ok(entries)
        };
        if recent { read() } else { blocking(read).await }
    }

    async fn state(&self) -> Result<LogState<C>> {
        self.settle().await?;
        let (shared, group) = (Arc::clone(&self.shared), self.member.group);
        blocking(move || {
            let view = shared.db.snapshot();
            let purged = view.get(&shared.log, group.note(PURGED))?;
            let purged: Option<LogId<C::NodeId>> =
                purged.map(|bytes| decode("the purged index", &bytes)).transpose()?;
            let mut rows = view.range(&shared.log, group.entries(0, None))?;
            let last = rows.next_back_ref()?.map(|(_, value)| decode::<Entry<C>>("an entry", value));
            let last = last.transpose()?.map(|entry| entry.log_id);
            Ok(LogState { last_log_id: last.or_else(|| purged.clone()), last_purged_log_id: purged })
        })
        .await
    }

    /// Waits while a snapshot is received, until the entry at `index` is applied. openraft purges what a snapshot covers without waiting for its
    /// install: a kill between the two would leave a log that begins behind what is applied, with which openraft does not start. After a
    /// failed install the log must stay as well.
    async fn wait_until_applied(&self, index: u64) -> Result<()> {
        let mut installs = self.member.installs();
        loop {
            let now = *installs.borrow_and_update();
            let (shared, note) = (Arc::clone(&self.shared), self.member.group.note(APPLIED));
            let read = move || -> Result<Option<LogId<C::NodeId>>> {
                shared.state.get(note)?.map(|bytes| decode("the applied index", &bytes)).transpose()
            };
            let applied = blocking(read).await?.map(|applied| applied.index);
            if applied.is_some_and(|applied| applied >= index) {
                return Ok(());
            }
            let idle = now.running == 0;
            if now.failed || (idle && (now.any || applied.is_some())) {
                let at = applied.map_or("nothing is applied".to_owned(), |at| format!("{at} is applied"));
                let what = format!("a purge up to entry {index}, but {at}: a snapshot was not installed");
                return Err(Error::InvalidArgument { what: what.into() });
            }
            if idle {
                return Ok(()); // a group that has applied nothing yet
            }
            let _ = installs.changed().await; // the sender lives as long as this store
        }
    }

    /// Removes the entries up to `log_id`.
    async fn purge_to(&self, log_id: &LogId<C::NodeId>) -> Result<()> {
        let keys = self.member.group.entries(0, log_id.index.checked_add(1));
        let (note, value) = (self.member.group.note(PURGED), encode("the purged index", log_id)?);
        self.commit(move |batch, log| {
            batch.put(log, note, value)?;
            batch.delete_range(log, keys)
        })
        .await
    }
}

impl<C: GroupTypes> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry<C>>, StorageError<C::NodeId>> {
        let from = match range.start_bound() {
            Bound::Included(from) => Some(*from),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let Some(from) = from else { return Ok(Vec::new()) };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1), // no end after the last number
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => None,
        };
        let read = self.read(from, end, usize::MAX).await;
        read.map_err(|e| storage(ErrorSubject::Logs, ErrorVerb::Read, &e))
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<Entry<C>>, StorageError<C::NodeId>> {
        let read = self.read(start, Some(end), READ_BYTES).await;
        read.map_err(|e| storage(ErrorSubject::LogIndex(start), ErrorVerb::Read, &e))
    }
}

impl<C: GroupTypes> RaftLogStorage<C> for LogStore<C> {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        self.state().await.map_err(|e| storage(ErrorSubject::Logs, ErrorVerb::Read, &e))
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let saved = self.save_note(VOTE, "a vote", vote).await;
        saved.map_err(|e| storage(ErrorSubject::Vote, ErrorVerb::Write, &e))
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        let settled = self.settle().await;
        settled.map_err(|e| storage(ErrorSubject::Vote, ErrorVerb::Write, &e))?;
        // A leader that starts again is elected again. openraft would let it go on in its term, with the committed index that it finds: a read
        // by an older one than it gave out before it lost power (`get_read_log_id` does not wait) would miss a write.
        let read = self.note(VOTE, "a vote").await;
        let read =
            read.map(|vote: Option<Vote<C::NodeId>>| vote.map(|vote| Vote { committed: false, ..vote }));
        read.map_err(|e| storage(ErrorSubject::Vote, ErrorVerb::Read, &e))
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        // Durable before anything is applied, so before a client gets an answer: the state machine waits for it. openraft appends meanwhile.
        let save = encode("the committed index", &committed).and_then(|value| {
            let key = self.member.group.note(COMMITTED);
            self.member.save_committed(|| self.commit(move |batch, log| batch.put(log, key, value)))
        });
        save.map_err(|e| storage(ErrorSubject::Logs, ErrorVerb::Write, &e))
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        let settled = self.settle().await;
        settled.map_err(|e| storage(ErrorSubject::Logs, ErrorVerb::Write, &e))?;
        let read = self.note::<Option<LogId<C::NodeId>>>(COMMITTED, "the committed index").await;
        read.map(Option::flatten).map_err(|e| storage(ErrorSubject::Logs, ErrorVerb::Read, &e))
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let appended = self.append_all(entries).await;
        callback.log_io_completed(appended.as_ref().map(|&()| ()).map_err(|e| e.clone().into()));
        appended.map_err(|e| storage(ErrorSubject::Logs, ErrorVerb::Write, &e))
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let keys = self.member.group.entries(log_id.index, None);
        let truncated = self.commit(move |batch, log| batch.delete_range(log, keys)).await;
        truncated.map_err(|e| storage(ErrorSubject::Log(log_id), ErrorVerb::Delete, &e))
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let waited = self.wait_until_applied(log_id.index).await;
        waited.map_err(|e| storage(ErrorSubject::StateMachine, ErrorVerb::Read, &e))?;
        let purged = self.purge_to(&log_id).await;
        purged.map_err(|e| storage(ErrorSubject::Log(log_id), ErrorVerb::Delete, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::{RECENT_BYTES, Recent};

    #[test]
    fn only_a_short_end_is_read_on_the_thread_of_the_runtime() {
        let mut recent = Recent::default();
        assert!(!recent.covers(0) && !recent.covers(9), "nothing is known before the first append");
        recent.append(5, 8, 100);
        recent.append(8, 9, RECENT_BYTES - 100);
        assert!(recent.covers(5) && !recent.covers(4));
        recent.append(9, 10, 1);
        assert!(recent.covers(9) && !recent.covers(8), "more than the limit in all");
        recent.append(10, 12, RECENT_BYTES + 1);
        assert!(recent.covers(12) && !recent.covers(11), "more than the limit at once");
        // After a truncation.
        recent.append(7, 8, 1);
        assert!(recent.covers(7) && !recent.covers(6));
    }
}
