//! A view of the tables that a boundary has left, for a count of what they hold while commits and merges go on.

use std::path::Path;
use std::sync::Arc;

use tidesdb_io::{Dir, Env};

use super::close::Closing;
use super::reader::NoLock;
use super::{Db, Inner, OpenOptions, RecoveryReport, catalog};
use crate::background::Pool;
use crate::engine::Engine;
use crate::flush::Prefix;
use crate::memory::Shares;
use crate::version::VersionSet;
use crate::write::Family;
use crate::{Error, Result};

/// Bytes of the cache of such a view: it reads everything once.
const CACHE_BYTES: u64 = 1 << 20;

impl OpenOptions {
    /// The directory of the database.
    pub(crate) fn folder(&self) -> &Path {
        &self.path
    }

    /// The environment.
    pub(crate) fn environment(&self) -> &Env {
        &self.env
    }

    /// Opens the tables of `prefix`, in `dir`, for reading only. `prefix` keeps their files alive and must outlive the view.
    pub(crate) fn view_of(mut self, dir: Arc<dyn Dir>, engine: &Engine, prefix: &Prefix) -> Result<Db> {
        self.options.read_only = true;
        self.options.cache_bytes = CACHE_BYTES;
        self.share_memory();
        let (memory, tables) = self.memory_and_tables(&dir, Shares::View);
        let (context, identity) =
            (self.version_context(&dir, &tables), engine.maintenance.versions.identity());
        let versions = VersionSet::view(context, identity, prefix.state.clone(), None, |_| false)?;
        let engine = self.assemble(versions, tables, prefix.state.log_start, &memory, None);
        catalog::load(&engine)?;
        for core in engine.write.all_families() {
            let vlogs =
                prefix.state.families.get(&core.id).into_iter().flat_map(|family| family.vlogs.keys());
            vlogs.into_iter().try_for_each(|id| core.vlog.open.open_anew(*id))?;
        }
        let durable = prefix.state.durable_mark.min(prefix.boundary);
        engine.write.log.sequencer().stand_at(prefix.boundary, durable);
        engine.reads.snapshots.begin_at(engine.reads.visible());
        let core = engine.write.all_families().into_iter().next().ok_or_else(|| Error::no_family(""))?;
        Ok(Db {
            inner: Arc::new(Inner {
                path: self.path.clone(),
                default: Family { core, ctx: Arc::clone(&engine.write) },
                pool: Pool::default(),
                engine,
                report: RecoveryReport::default(),
                closing: Closing::new(Some(Box::new(NoLock))),
            }),
        })
    }
}
