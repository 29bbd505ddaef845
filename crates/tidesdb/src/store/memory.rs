//! A store in memory, for tests and examples.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tidesdb_sync::Mutex;

use super::{Body, Object, ObjectStore};

/// An object store in memory. Clones share their objects.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    objects: Arc<Mutex<BTreeMap<String, Arc<[u8]>>>>,
}

impl MemoryStore {
    /// A copy with the same objects, independent from now on.
    pub fn fork(&self) -> Self {
        Self { objects: Arc::new(Mutex::new(self.objects.lock().clone())) }
    }
}

impl ObjectStore for MemoryStore {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let mut bytes = vec![0; body.len() as usize];
        body.read_exact_at(&mut bytes, 0)?;
        self.objects.lock().insert(name.to_owned(), bytes.into());
        Ok(())
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let bytes = self.objects.lock().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        sink(&bytes)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let object =
            |(name, bytes): (&String, &Arc<[u8]>)| Object { name: name.clone(), bytes: bytes.len() as u64 };
        Ok(self.objects.lock().iter().map(object).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.objects.lock().remove(name);
        Ok(())
    }
}
