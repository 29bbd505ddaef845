//! The state machine of a group.

use crate::GroupTypes;
use crate::codec::{decode, encode};
use crate::failure::{blocking, storage};
use crate::group::{Installing, Member};
use crate::keys::{APPLIED, DATA_PREFIX, Group, MEMBERSHIP};
use crate::snapshot::{SnapshotData, Source, install};
use crate::stores::{Shared, unique};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    Entry, EntryPayload, ErrorSubject, ErrorVerb, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig,
    SnapshotMeta, StorageError, StoredMembership,
};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidesdb::{Error, Family, Isolation, Iter, Result, Slice, SyncMode, Transaction, WriteOptions};

/// Bytes of changes after which the entries that were applied so far are committed.
const COMMIT_BYTES: usize = 4 << 20;

/// What a state machine does with a request: the rules of an application. See the example of the [crate](crate).
///
/// It must do the same on each node: what it answers and writes depends on the request and on the state only. A request that cannot be
/// fulfilled is answered with a value of `C::R` that says so, not with an error or a panic: see [`Application::apply`].
pub trait Application<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Applies `request` to `state`, and returns the answer to who proposed it. Called on a blocking thread.
    ///
    /// An error or a panic ends the node, and nothing of the request is kept. But the entry is committed: openraft applies it again at each
    /// start, on each node. If the cause is the request and not the device, no node of the group can start any more. So
    ///
    /// * check what a client sends before `Raft::client_write`: keys of at most [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) bytes, and requests
    ///   whose encoding and whose changes are far smaller than `memory_limit` of each node. An entry that the log refuses ends the leader, and the
    ///   next leader if the client sends it again;
    /// * check again here, and answer a bad request with a value of `C::R`. Do not pass on an error of `state` that the request has caused, and do
    ///   not panic because of what a request or the state has.
    ///
    /// If such an entry is there already, start the nodes with an `Application` that answers it.
    ///
    /// # Errors
    /// Those of `state`, which a failing or full device causes.
    fn apply(&self, state: &mut State<'_>, request: C::D) -> Result<C::R>;

    /// Returns the answer to entries without a request: those of a new leader, and changes of the membership.
    fn blank(&self) -> C::R;
}

/// The state of a group while an entry is applied. Its keys are the application's own; other groups have others.
#[derive(Debug)]
pub struct State<'a> {
    transaction: &'a mut Transaction,
    family: &'a Family,
    group: Group,
}

impl State<'_> {
    /// Returns the value of `key`, with all changes so far.
    ///
    /// # Errors
    /// Those of [`Transaction::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.transaction.get(self.family, self.group.data(key.as_ref()))
    }

    /// Sets the value of `key`.
    ///
    /// # Errors
    /// Those of [`Transaction::put`]; `InvalidArgument` if `key` is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.put(self.family, self.group.data(key.as_ref()), value)
    }

    /// Deletes `key`, whether it is there or not.
    ///
    /// # Errors
    /// Those of [`Transaction::delete`]; `InvalidArgument` if `key` is longer than [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX).
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.transaction.delete(self.family, self.group.data(key.as_ref()))
    }

    /// Returns the rows whose keys begin with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// Those of [`Transaction::prefix`].
    pub fn rows(&self, prefix: impl AsRef<[u8]>) -> Result<Rows> {
        Ok(Rows(self.transaction.prefix(self.family, self.group.data(prefix.as_ref()))?))
    }
}

/// Rows of a group.
#[derive(Debug)]
pub struct Rows(Iter);

impl Rows {
    /// Moves to the next row and lends its key and its value.
    ///
    /// # Errors
    /// Those of [`Iter::next_ref`].
    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(self.0.next_ref()?.map(|(key, value)| (&key[DATA_PREFIX..], value)))
    }
}

/// Reads the state of a group from outside of the state machine: what this node has applied so far. For a read that must see all writes
/// that were answered before, call `Raft::ensure_linearizable` first.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) shared: Arc<Shared>,
    group: Group,
}

impl Reader {
    /// Returns the value of `key`. May wait for the device.
    ///
    /// # Errors
    /// Those of [`Family::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.shared.state.get(self.group.data(key.as_ref()))
    }

    /// Returns the rows whose keys begin with `prefix`, as they are now. May wait for the device.
    ///
    /// # Errors
    /// Those of [`Family::prefix`].
    pub fn rows(&self, prefix: impl AsRef<[u8]>) -> Result<Rows> {
        Ok(Rows(self.shared.state.prefix(self.group.data(prefix.as_ref()))?))
    }
}

/// The state machine of a Raft group: `RaftStateMachine` of openraft.
///
/// The changes of an entry and its index are in one commit. It needs no sync: what it was made from is durable in the log, and openraft applies
/// it again. Answers are not stored. A snapshot costs nothing until it is sent. Received ones replace the state as a whole, or not at all.
pub struct StateMachine<C: GroupTypes, A> {
    inner: Arc<Inner<C, A>>,
}

impl<C: GroupTypes, A> Clone for StateMachine<C, A> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: GroupTypes, A> Debug for StateMachine<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("group", &self.inner.member.group.0).finish_non_exhaustive()
    }
}

struct Inner<C: GroupTypes, A> {
    shared: Arc<Shared>,
    member: Member,
    application: A,
    current: Mutex<Option<Current<C>>>,
}

/// The newest snapshot.
struct Current<C: GroupTypes> {
    meta: SnapshotMeta<C::NodeId, C::Node>,
    source: Arc<Source>,
}

/// The last applied entry, and the last applied membership.
type Applied<C> = (
    Option<LogId<<C as RaftTypeConfig>::NodeId>>,
    StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>,
);

impl<C: GroupTypes, A: Application<C>> StateMachine<C, A> {
    pub(crate) fn new(shared: Arc<Shared>, member: Member, application: A) -> Self {
        Self { inner: Arc::new(Inner { shared, member, application, current: Mutex::new(None) }) }
    }

    /// Returns what reads the state.
    pub fn reader(&self) -> Reader {
        Reader { shared: Arc::clone(&self.inner.shared), group: self.inner.member.group }
    }
}

impl<C: GroupTypes, A: Application<C>> Inner<C, A> {
    fn current(&self) -> MutexGuard<'_, Option<Current<C>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn applied(&self, view: &tidesdb::Snapshot) -> Result<Applied<C>> {
        let note = |note| view.get(&self.shared.state, self.member.group.note(note));
        let applied = note(APPLIED)?.map(|bytes| decode("the applied index", &bytes)).transpose()?;
        let membership = note(MEMBERSHIP)?.map(|bytes| decode("the membership", &bytes)).transpose()?;
        Ok((applied, membership.unwrap_or_default()))
    }

    fn apply(&self, entries: Vec<Entry<C>>) -> Result<Vec<C::R>> {
        let _writing = self.member.writing()?;
        let family = &self.shared.state;
        let mut answers = Vec::with_capacity(entries.len());
        let mut transaction = self.shared.db.begin(Isolation::ReadCommitted);
        let mut open = None;
        for Entry { log_id, payload } in entries {
            answers.push(match payload {
                EntryPayload::Blank => self.application.blank(),
                EntryPayload::Normal(request) => {
                    let mut state = State { transaction: &mut transaction, family, group: self.member.group };
                    self.application.apply(&mut state, request)?
                }
                EntryPayload::Membership(membership) => {
                    let stored = StoredMembership::new(Some(log_id.clone()), membership);
                    transaction.put(
                        family,
                        self.member.group.note(MEMBERSHIP),
                        encode("the membership", &stored)?,
                    )?;
                    self.application.blank()
                }
            });
            open = Some(log_id);
            if transaction.bytes() >= COMMIT_BYTES {
                self.commit(&mut transaction, open.take())?;
                transaction.reset();
            }
        }
        self.commit(&mut transaction, open)?;
        Ok(answers)
    }

    /// Commits what was applied up to `last`.
    fn commit(&self, transaction: &mut Transaction, last: Option<LogId<C::NodeId>>) -> Result<()> {
        let Some(last) = last else { return Ok(()) };
        let applied = encode("the applied index", &last)?;
        transaction.put(&self.shared.state, self.member.group.note(APPLIED), applied)?;
        transaction.commit_with(&WriteOptions::default().sync(SyncMode::None)).map(drop)
    }

    /// Makes the state in `view` the current snapshot, unless there is a newer one.
    fn build(&self, view: tidesdb::Snapshot) -> Result<Snapshot<C>> {
        let (last_log_id, last_membership) = self.applied(&view)?;
        let index = last_log_id.as_ref().map_or(0, |last| last.index);
        // Two nodes may be at the same entry with other bytes.
        let snapshot_id = format!("{index}-{:016x}", unique());
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        let source = self.source(view, &meta)?;
        let mut current = self.current();
        if current.as_ref().is_none_or(|current| current.meta.last_log_id <= meta.last_log_id) {
            *current = Some(Current { meta: meta.clone(), source: Arc::clone(&source) });
        }
        Ok(Snapshot { meta, snapshot: Box::new(SnapshotData::sent(source)) })
    }

    fn source(
        &self,
        view: tidesdb::Snapshot,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
    ) -> Result<Arc<Source>> {
        let head = encode("a snapshot", &(&meta.last_log_id, &meta.last_membership))?;
        Source::new(view, self.shared.state.clone(), self.member.group, &head).map(Arc::new)
    }

    fn install(
        &self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        source: impl std::io::Read,
        installing: Installing,
    ) -> Result<()> {
        let _writing = self.member.writing()?;
        install(&self.shared, self.member.group, source, |head| {
            let (applied, membership): Applied<C> = decode("the head of a snapshot", head)?;
            if applied != meta.last_log_id || membership != meta.last_membership {
                let what = format!("snapshot {} has the bytes of another one", meta.snapshot_id);
                return Err(crate::codec::damaged(&what));
            }
            let note = |note, value| (self.member.group.note(note), value);
            let applied = applied.map(|applied| encode("the applied index", &applied)).transpose()?;
            let membership = note(MEMBERSHIP, encode("the membership", &membership)?);
            Ok(applied.map(|applied| note(APPLIED, applied)).into_iter().chain([membership]).collect())
        })?;
        installing.done();
        let source = self.source(self.shared.db.snapshot(), meta)?;
        *self.current() = Some(Current { meta: meta.clone(), source });
        Ok(())
    }
}

/// Builds a snapshot of the state at one moment. Reads nothing until it is sent.
pub struct SnapshotBuilder<C: GroupTypes, A> {
    inner: Arc<Inner<C, A>>,
    view: tidesdb::Snapshot,
}

impl<C: GroupTypes, A> Debug for SnapshotBuilder<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotBuilder").field("group", &self.inner.member.group.0).finish_non_exhaustive()
    }
}

impl<C: GroupTypes, A: Application<C>> RaftSnapshotBuilder<C> for SnapshotBuilder<C, A> {
    async fn build_snapshot(&mut self) -> Result<Snapshot<C>, StorageError<C::NodeId>> {
        let (inner, view) = (Arc::clone(&self.inner), self.view.clone());
        let built = blocking(move || inner.build(view)).await;
        built.map_err(|e| storage(ErrorSubject::Snapshot(None), ErrorVerb::Write, &e))
    }
}

impl<C: GroupTypes, A: Application<C>> RaftStateMachine<C> for StateMachine<C, A> {
    type SnapshotBuilder = SnapshotBuilder<C, A>;

    async fn applied_state(&mut self) -> Result<Applied<C>, StorageError<C::NodeId>> {
        let inner = Arc::clone(&self.inner);
        let read = move || {
            inner.member.wait_for_earlier(); // one that was shut down may still apply
            inner.applied(&inner.shared.db.snapshot())
        };
        let read = blocking(read).await;
        read.map_err(|e| storage(ErrorSubject::StateMachine, ErrorVerb::Read, &e))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = Entry<C>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (inner, entries) = (Arc::clone(&self.inner), entries.into_iter().collect());
        let applied = match self.inner.member.committed().await {
            Ok(()) => blocking(move || inner.apply(entries)).await,
            Err(e) => Err(e),
        };
        if applied.is_err() {
            self.inner.member.failed();
        }
        applied.map_err(|e| storage(ErrorSubject::StateMachine, ErrorVerb::Write, &e))
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        SnapshotBuilder { inner: Arc::clone(&self.inner), view: self.inner.shared.db.snapshot() }
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<SnapshotData>, StorageError<C::NodeId>> {
        let Inner { shared, member, .. } = &*self.inner;
        let created = SnapshotData::received(shared.file(member.group), member.receive()).await;
        if created.is_err() {
            member.failed();
        }
        created.map(Box::new).map_err(|e| storage(ErrorSubject::Snapshot(None), ErrorVerb::Write, &e))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<C::NodeId, C::Node>,
        snapshot: Box<SnapshotData>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let failed = |e: &Error| storage(ErrorSubject::Snapshot(Some(meta.signature())), ErrorVerb::Write, e);
        let installing = self.inner.member.install();
        let reader = snapshot.into_reader().await.map_err(|e| failed(&e))?;
        let (inner, meta) = (Arc::clone(&self.inner), meta.clone());
        let installed = blocking(move || inner.install(&meta, reader, installing)).await;
        installed.map_err(|e| failed(&e))
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        let current = self.inner.current();
        Ok(current.as_ref().map(|current| Snapshot {
            meta: current.meta.clone(),
            snapshot: Box::new(SnapshotData::sent(Arc::clone(&current.source))),
        }))
    }
}
