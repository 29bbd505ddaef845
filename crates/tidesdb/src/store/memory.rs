//! A store in memory, for tests and examples.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tidesdb_io::zeroed;
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
        let len = usize::try_from(body.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut bytes = zeroed(len)?;
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

#[cfg(all(test, target_pointer_width = "32"))]
mod tests {
    use super::*;
    use std::path::Path;

    /// Found on 32 bits: of a longer object, its length less 4 GiB was stored, and no error returned.
    #[test]
    fn an_object_longer_than_the_addresses_is_refused() {
        let (env, ..) = tidesdb_io::sim::env(1);
        let file = env.disk.open_dir(Path::new("db"), true).unwrap().create_new("a", 0).unwrap();
        file.set_len((4 << 30) + 5).unwrap();
        let store = MemoryStore::default();
        let put = |len| store.put("a", &Body::file(&*file, 0, len));
        assert_eq!(put((4 << 30) + 5).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        assert!(store.list().unwrap().is_empty());
        put(5).unwrap();
        assert_eq!(store.list().unwrap(), [Object { name: "a".into(), bytes: 5 }]);
    }
}
