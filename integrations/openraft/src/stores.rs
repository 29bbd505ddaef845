//! What all groups of a database share: the database, its two families, the thread that makes commits durable, and the folder for
//! snapshots that are received.

use crate::failure::blocking;
use crate::group::{Life, Member, Part};
use crate::keys::Group;
use crate::machine::Application;
use crate::{GroupTypes, LogStore, StateMachine};
use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tidesdb::{Db, Error, Family, FamilyOptions, Result};
use tidesdb_tokio::Committer;

/// Family with the entries and votes of all groups.
pub const LOG_FAMILY: &str = "raft-log";

/// Family with the state machines of all groups.
pub const STATE_FAMILY: &str = "raft-state";

/// How the names of the files in the folder begin and end.
const FILES: (&str, &str) = ("raft-", ".received");

/// The Raft stores of a database. Cheap to clone.
///
/// All calls of all groups are commits of one log. So what one of them makes durable includes everything before it, in any group: an
/// append, a truncation, an applied entry and a purge can be lost in a power failure only from the end.
#[derive(Clone, Debug)]
pub struct Stores {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) db: Db,
    pub(crate) log: Family,
    pub(crate) state: Family,
    pub(crate) committer: Committer,
    folder: PathBuf,
    /// Number of the next file in the folder.
    next: AtomicU64,
    groups: Mutex<HashMap<u64, Arc<Life>>>,
}

impl Stores {
    /// Opens the stores of a database and creates their families if they are missing. Snapshots that other nodes send are written to
    /// `folder`, which is created, before they are installed. What an earlier process has left there is removed, so two open `Stores` need
    /// two folders.
    ///
    /// # Errors
    /// Those of [`Db::create_family`]; `Io` if the folder cannot be used.
    pub fn open(db: &Db, folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_owned();
        clear(&folder).map_err(|e| failed("clear", &folder, e))?;
        let shared = Shared {
            db: db.clone(),
            log: db.family_or_create(LOG_FAMILY, FamilyOptions::default())?,
            state: db.family_or_create(STATE_FAMILY, FamilyOptions::default())?,
            committer: Committer::new(db)?,
            folder,
            next: AtomicU64::new(0),
            groups: Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the log of a group. A group has one number in its log and its state machine. For one `Raft` call each of the two functions once
    /// and clone what they return: from then on the writes of what an earlier call has returned fail, so a `Raft` that is started again is not
    /// disturbed by what the one before has left behind. `Raft::shutdown` does not wait for the state machine.
    pub fn log_store<C: GroupTypes>(&self, group: u64) -> LogStore<C> {
        LogStore::new(Arc::clone(&self.shared), self.shared.member(Group(group), Part::Log))
    }

    /// Returns the state machine of a group, with its rules. The current snapshot is kept in it and its clones: a second call for the same group
    /// does not have it, and ends the writes of what the first one has returned, as for the [log](Self::log_store).
    pub fn state_machine<C: GroupTypes, A: Application<C>>(
        &self,
        group: u64,
        application: A,
    ) -> StateMachine<C, A> {
        StateMachine::new(
            Arc::clone(&self.shared),
            self.shared.member(Group(group), Part::Machine),
            application,
        )
    }

    /// Removes everything that a group has stored, durably. Its `Raft` must have been shut down.
    ///
    /// `Raft::shutdown` does not wait for the state machine, so this call does: first it waits until a running `apply` or install has ended, which
    /// is as long as that takes. From its first poll on all writes of stores that were made before it fail, also if the future is dropped; then
    /// call it again. The group may be used again with stores that are made after it has returned.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tidesdb::Db::open(dir.path().join("db"))?;
    /// # let stores = tidesdb_openraft::Stores::open(&db, dir.path().join("receiving"))?;
    /// stores.remove_group(7).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`].
    pub async fn remove_group(&self, group: u64) -> Result<()> {
        let life = self.shared.life(Group(group));
        blocking(move || {
            life.end();
            Ok(())
        })
        .await?;
        // Behind all appends that were handed over before. Later ones are refused when their batch is filled.
        let families = [self.shared.log.clone(), self.shared.state.clone()];
        let removed = self.shared.committer.commit_with(move |batch| {
            families.iter().try_for_each(|family| batch.delete_range(family, Group(group).all()))
        });
        removed.await.map(drop)
    }
}

impl Shared {
    fn life(&self, group: Group) -> Arc<Life> {
        let mut all = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(group.0).or_insert_with(|| Arc::new(Life::new())))
    }

    /// Returns a group for a new store.
    fn member(&self, group: Group, part: Part) -> Member {
        Member::new(group, self.life(group), part)
    }

    /// Returns a path in the folder that nothing else uses.
    pub(crate) fn file(&self, group: Group) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.folder.join(format!("{}{}-{number}{}", FILES.0, group.0, FILES.1))
    }
}

/// Returns a number that no other call on any machine returns, as far as chance goes.
pub(crate) fn unique() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Makes `folder`, and removes what an earlier process has left in it.
fn clear(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let name = file.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(FILES.0) && name.ends_with(FILES.1) {
            std::fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

/// Returns the error of a call of the system.
pub(crate) fn failed(op: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::Io { op, file: path.to_string_lossy().into(), offset: None, cause: Arc::new(error) }
}
