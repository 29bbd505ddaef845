//! [`SkipListCursor`]: a position in the skip list, moved key by key.
//!
//! Threads: the list may grow meanwhile. A step sees every key whose insert returned before the step that
//! passes its position.

use crate::record::RecordRef;
use crate::walk::KeyCursor;

use super::SkipList;
use super::tower::TowerRef;

/// A position on a key or past an end.
pub(crate) struct SkipListCursor<'a> {
    list: &'a SkipList,
    tower: Option<TowerRef<'a>>,
}

impl<'a> SkipListCursor<'a> {
    pub(crate) fn new(list: &'a SkipList) -> Self {
        SkipListCursor { list, tower: None }
    }
}

impl<'a> KeyCursor<'a> for SkipListCursor<'a> {
    fn first(&mut self) {
        self.tower = self.list.next(None, 0);
    }

    fn last(&mut self) {
        self.tower = self.list.last();
    }

    fn at_or_after(&mut self, key: &[u8]) -> bool {
        let (_, at_or_after, same) = self.list.search(key);
        self.tower = at_or_after;
        same
    }

    fn at_or_before(&mut self, key: &[u8]) -> bool {
        let (before, at_or_after, same) = self.list.search(key);
        self.tower = if same { at_or_after } else { before };
        same
    }

    fn after(&mut self) {
        self.tower = self.tower.and_then(|tower| self.list.next(Some(tower), 0));
    }

    fn before(&mut self) {
        self.tower = self.tower.and_then(|tower| self.list.search(tower.key()).0);
    }

    fn newest(&self) -> Option<RecordRef<'a>> {
        self.tower.map(TowerRef::newest)
    }
}
