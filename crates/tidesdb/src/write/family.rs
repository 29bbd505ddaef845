//! The handle of a column family, which batches name. `db/family.rs` has its methods.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Result;
use crate::context::WriteCtx;
use crate::family::FamilyCore;
use crate::types::EXPIRY_MAX;

/// A column family: a cheap handle, cloneable, usable from any thread. It stays valid across a rename; after [`Db::drop_family`] its
/// calls fail with `NotFound`. It does not keep the database open: keep a [`Db`] beside it
/// ([why](crate::Db#what-keeps-a-database-open)).
///
/// [`Db`]: crate::Db
/// [`Db::drop_family`]: crate::Db::drop_family
#[derive(Clone)]
pub struct Family {
    pub(crate) core: Arc<FamilyCore>,
    pub(crate) ctx: Arc<WriteCtx>,
}

impl fmt::Debug for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").field("name", &self.core.name()).finish_non_exhaustive()
    }
}

impl Family {
    /// Returns the end of the family's default TTL for a row that is put now, as it is stored; 0 if it has none.
    #[inline]
    pub(crate) fn stored_default_expiry(&self) -> Result<u64> {
        match self.core.options.default_ttl_millis() {
            0 => Ok(0),
            // A default that ends after the last moment that a row can store ends there: its puts did not ask for it.
            millis => Ok(self.stored_expiry_after(Duration::from_millis(millis)).unwrap_or(EXPIRY_MAX)),
        }
    }

    #[cold]
    pub(crate) fn stored_expiry_after(&self, ttl: Duration) -> Result<u64> {
        self.ctx.reads.expiry_after(ttl)
    }
}
