//! What several databases share.

use pyo3::prelude::*;
use tidesdb::Resources as Shared;

use crate::failure;
use crate::handle::{Owned, of_parent};

/// What several databases of a process share: one limit for their memory, one block cache and one set of threads: `open(path, resources=...)`.
/// For these databases it replaces `memory_limit`, `cache_bytes` and `background_threads`.
///
/// memory_limit: bytes that all may use, of all kinds; 0 (default): half of what the process may use
/// cache_bytes: bytes of decoded blocks in memory
/// background_threads: 2 to 256 that flush and merge, fewer are taken as 2; None (default): by the number of cores
/// descriptors: files open for reading; None (default): the budget of the process
/// compaction_bytes_per_second: what all merges together may write; 0 (default): no limit
#[pyclass(frozen, module = "tidesdb")]
pub(crate) struct Resources {
    shared: Owned<Shared>,
}

impl Resources {
    /// Returns what is shared.
    ///
    /// # Errors
    /// In a child of the process that made it.
    pub(crate) fn shared(&self, py: Python<'_>) -> PyResult<&Shared> {
        if self.shared.is_ours() { Ok(&self.shared) } else { Err(of_parent(py)) }
    }
}

#[pymethods]
impl Resources {
    #[new]
    #[pyo3(signature = (*, memory_limit=0, cache_bytes=67_108_864, background_threads=None, descriptors=None, compaction_bytes_per_second=0))]
    fn new(
        py: Python<'_>,
        memory_limit: u64,
        cache_bytes: u64,
        background_threads: Option<usize>,
        descriptors: Option<usize>,
        compaction_bytes_per_second: u64,
    ) -> PyResult<Self> {
        let builder = Shared::builder()
            .memory_limit(memory_limit)
            .cache_bytes(cache_bytes)
            .compaction_bytes_per_second(compaction_bytes_per_second);
        let builder =
            background_threads.into_iter().fold(builder, |builder, n| builder.background_threads(n));
        let builder = descriptors.into_iter().fold(builder, |builder, n| builder.descriptors(n));
        let shared = builder.build().map_err(|e| failure::raise(py, &e))?;
        Ok(Self { shared: Owned::new(shared) })
    }

    /// Bytes of memory that all databases together may use.
    #[getter]
    fn memory_limit(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared(py)?.memory_limit())
    }

    /// Bytes of memory that they use.
    #[getter]
    fn memory_used(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared(py)?.memory_used())
    }

    /// Of these, bytes of the block cache and of open tables.
    #[getter]
    fn cache_used(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared(py)?.cache_used())
    }

    /// How scarce memory is: "normal", "elevated", "high" or "critical".
    #[getter]
    fn memory_pressure(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.shared(py)?.memory_pressure())
    }

    /// Number of databases that are open.
    #[getter]
    fn databases(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.shared(py)?.databases())
    }

    /// Number of threads that have started.
    #[getter]
    fn threads(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.shared(py)?.threads())
    }

    /// Sets what the merges of all databases together may write per second; 0: no limit.
    fn set_compaction_rate(&self, py: Python<'_>, bytes_per_second: u64) -> PyResult<()> {
        self.shared(py)?.set_compaction_rate(bytes_per_second);
        Ok(())
    }
}
