//! What handles of families and transactions ask of the open database.

use std::path::PathBuf;
use std::sync::Arc;

use super::{catalog, ingest};
use crate::context::OpenDatabase;
use crate::engine::Engine;
use crate::family::FamilyCore;
use crate::ingest::Ingested;
use crate::options::{FamilyOptions, WriteOptions};
use crate::types::KeySpan;
use crate::{Result, background, collect, compact, flush};

impl OpenDatabase for Engine {
    fn run_queued(self: Arc<Self>) {
        let _ = background::run_queued(&self);
    }

    fn flush(&self, family: &Arc<FamilyCore>) -> Result<()> {
        flush::all(&self.maintenance, std::slice::from_ref(family))
    }

    fn compact(&self, family: &Arc<FamilyCore>, range: Option<KeySpan<'_>>) -> Result<()> {
        self.flush(family)?;
        match range {
            None => compact::everything(&self.maintenance, family)?,
            Some(range) => compact::within(&self.maintenance, family, &range)?,
        }
        collect::all(&self.maintenance, family, self.log_store())?;
        self.maintenance.remove_obsolete();
        Ok(())
    }

    fn name_value_logs(&self, family: &FamilyCore, begun: bool) -> Result<()> {
        match begun {
            true => collect::name_begun(&self.maintenance, family),
            false => collect::name(&self.maintenance, family),
        }
    }

    fn stored_options(&self, family: &FamilyCore) -> Result<FamilyOptions> {
        catalog::stored(self, family)
    }

    fn change_options(&self, family: &Arc<FamilyCore>, options: FamilyOptions, keep: bool) -> Result<()> {
        catalog::change_options(self, family, options, keep)
    }

    fn take_tables(
        &self,
        family: &Arc<FamilyCore>,
        paths: Vec<PathBuf>,
        options: WriteOptions,
    ) -> Result<Ingested> {
        ingest::take_built(self, family, paths, options)
    }
}
