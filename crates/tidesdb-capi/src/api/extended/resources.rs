//! What several databases share: memory, a cache, threads.

use crate::abi::Code;
use crate::abi::extended::{ResourcesOptions, ResourcesUse};
use crate::failure::answer;
use crate::handle::Handle;
use crate::pointer::{In, Out};
use crate::state::shared;

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_resources_new(options: In<ResourcesOptions>, resources: Out<Handle>) -> Code {
    answer(|| {
        resources.check()?;
        let options = if options.is_null() { ResourcesOptions::default() } else { options.growing()? };
        resources.set(shared::new(&options)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_resources_use(resources: Handle, shown: Out<ResourcesUse>) -> Code {
    answer(|| {
        shown.check_growing()?;
        let resources = shared::get(resources)?;
        shown.set_growing(&ResourcesUse {
            size: 0,
            memory_limit: resources.memory_limit(),
            memory_used: resources.memory_used(),
            cache_used: resources.cache_used(),
            databases: resources.databases(),
            threads: resources.threads() as u64,
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_resources_set_compaction_rate(resources: Handle, bytes_per_second: u64) -> Code {
    answer(|| {
        shared::get(resources)?.set_compaction_rate(bytes_per_second);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn tidesdb_x_resources_free(resources: Handle) {
    if resources != Handle::NULL {
        answer(|| shared::free(resources));
    }
}
