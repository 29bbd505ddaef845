//! The handle of a column family.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::Result;
use crate::context::WriteCtx;
use crate::family::FamilyCore;
use crate::options::FamilyOptions;
use crate::types::{EXPIRY_MAX, FamilyId, moment_of};

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
    /// The id, which is never reused.
    pub fn id(&self) -> FamilyId {
        self.core.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.core.name().to_string()
    }

    /// Returns the moment at which a row expires that is put now without an expiry: the end of the family's default TTL, or `None`
    /// if it has none. At the latest in the year 10889.
    ///
    /// # Errors
    /// `None` if the default would end after that year: then it ends in that year.
    pub fn default_expiry(&self) -> Result<Option<SystemTime>> {
        self.stored_default_expiry().map(moment_of)
    }

    /// As [`Family::default_expiry`], as it is stored.
    #[inline]
    pub(crate) fn stored_default_expiry(&self) -> Result<u64> {
        match self.core.options.default_ttl_millis() {
            0 => Ok(0),
            // A default that ends after the last moment that a row can store ends there: its puts did not ask for it.
            millis => Ok(self.stored_expiry_after(Duration::from_millis(millis)).unwrap_or(EXPIRY_MAX)),
        }
    }

    #[cold]
    fn stored_expiry_after(&self, ttl: Duration) -> Result<u64> {
        self.ctx.reads.expiry_after(ttl)
    }

    /// Returns the moment at which a row expires that is put with `ttl` now, in whole milliseconds, rounded up. Rows that are put with the
    /// same expiry ([`Family::put_expiring`]) expire together.
    ///
    /// # Errors
    /// `InvalidArgument` if `ttl` ends after the year 10889.
    pub fn expiry_after(&self, ttl: Duration) -> Result<SystemTime> {
        self.stored_expiry_after(ttl).map(|expiry| moment_of(expiry).unwrap_or(SystemTime::UNIX_EPOCH))
    }

    /// Returns the current settings.
    pub fn current_options(&self) -> FamilyOptions {
        self.core.options.now()
    }
}
