//! An object store whose panics are errors: a failing store must not stop the engine.

use std::io;
use std::sync::Arc;

use super::{Body, Object, ObjectStore};
use crate::callback::contained;

/// Passes all calls on.
#[derive(Debug)]
struct Contained(Arc<dyn ObjectStore>);

/// Returns a store that passes all calls to `store` and fails with an error where that one panics.
pub(crate) fn contain(store: &Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
    Arc::new(Contained(Arc::clone(store)))
}

fn call<R>(body: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    contained(body).unwrap_or_else(|| Err(io::Error::other("the object store panicked")))
}

impl ObjectStore for Contained {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        call(|| self.0.put(name, body))
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        call(|| self.0.get(name, sink))
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        call(|| self.0.list())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        call(|| self.0.delete(name))
    }
}
