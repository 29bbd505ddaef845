//! An object store whose panics are errors: a failing store must not stop the engine.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{Body, Condition, Object, ObjectStore, Tag};
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
    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        call(|| self.0.get_range(name, range, sink))
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        call(|| self.0.get_tagged(name, sink))
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        call(|| self.0.put_if(name, body, condition))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        call(|| self.0.remove_unfinished())
    }
}
