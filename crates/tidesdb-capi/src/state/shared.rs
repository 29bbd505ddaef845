//! What several databases share: memory, a cache, threads.

use tidesdb::Resources;

use super::SHARED;
use super::snapshot::Shared;
use crate::abi::extended::ResourcesOptions;
use crate::failure::{Answer, invalid};
use crate::handle::{Handle, STALE};

/// Makes resources.
///
/// # Errors
/// `ERR_INVALID_ARGS` for a number out of its domain.
pub(crate) fn new(options: &ResourcesOptions) -> Answer<Handle> {
    let number = |n: u64| usize::try_from(n).map_err(|_| invalid!("a number of resources is too large"));
    let mut builder = Resources::builder()
        .memory_limit(options.memory_limit)
        .compaction_bytes_per_second(options.compaction_bytes_per_second);
    if options.cache_bytes > 0 {
        builder = builder.cache_bytes(options.cache_bytes);
    }
    if options.descriptors > 0 {
        builder = builder.descriptors(number(options.descriptors)?);
    }
    if options.threads > 0 {
        builder = builder.background_threads(number(options.threads)?);
    }
    SHARED.insert(Shared::Resources(builder.build()?), Handle::NULL)
}

/// Returns resources.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle.
pub(crate) fn get(handle: Handle) -> Answer<Resources> {
    let Shared::Resources(resources) = SHARED.share(handle)? else { return Err(STALE) };
    Ok(resources)
}

/// Frees the handle.
///
/// # Errors
/// `ERR_INVALID_ARGS` for an invalid handle.
pub(crate) fn free(handle: Handle) -> Answer {
    let Shared::Resources(_) = SHARED.share(handle)? else { return Err(STALE) };
    drop(SHARED.retire(handle));
    Ok(())
}
