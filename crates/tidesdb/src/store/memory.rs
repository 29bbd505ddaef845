//! A store in memory, for tests and examples.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use tidesdb_io::zeroed;
use tidesdb_sync::Mutex;

use super::{Body, Condition, Object, ObjectStore, Tag};

/// An object store in memory. Clones share their objects.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    held: Arc<Mutex<Held>>,
}

#[derive(Clone, Debug, Default)]
struct Held {
    objects: BTreeMap<String, Stored>,
    /// Number of puts: the version of the newest object.
    puts: u64,
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: Arc<[u8]>,
    version: u64,
}

impl Stored {
    fn tag(&self) -> Tag {
        Tag(self.version.to_string())
    }
}

impl Held {
    fn put(&mut self, name: &str, bytes: Vec<u8>) -> Tag {
        self.puts += 1;
        let stored = Stored { bytes: bytes.into(), version: self.puts };
        let tag = stored.tag();
        self.objects.insert(name.to_owned(), stored);
        tag
    }
}

impl MemoryStore {
    /// A copy with the same objects, independent from now on.
    pub fn fork(&self) -> Self {
        Self { held: Arc::new(Mutex::new(self.held.lock().clone())) }
    }

    fn find(&self, name: &str) -> io::Result<Stored> {
        self.held.lock().objects.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn bytes_of(body: &Body<'_>) -> io::Result<Vec<u8>> {
    let len = usize::try_from(body.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut bytes = zeroed(len)?;
    body.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

impl ObjectStore for MemoryStore {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let bytes = bytes_of(body)?;
        self.held.lock().put(name, bytes);
        Ok(())
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        sink(&self.find(name)?.bytes)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let object = |(name, stored): (&String, &Stored)| Object {
            name: name.clone(),
            bytes: stored.bytes.len() as u64,
        };
        Ok(self.held.lock().objects.iter().map(object).collect())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.held.lock().objects.remove(name);
        Ok(())
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let bytes = self.find(name)?.bytes;
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        sink(bytes.get(at(range.start)..at(range.end)).ok_or(io::ErrorKind::UnexpectedEof)?)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        let stored = self.find(name)?;
        sink(&stored.bytes)?;
        Ok(stored.tag())
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        let bytes = bytes_of(body)?;
        let mut held = self.held.lock();
        let holds = match (held.objects.get(name), condition) {
            (found, Condition::Absent) => found.is_none(),
            (found, Condition::Tagged(tag)) => found.is_some_and(|found| found.tag() == *tag),
        };
        Ok(holds.then(|| held.put(name, bytes)))
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
