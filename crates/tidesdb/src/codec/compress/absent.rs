//! The place of an algorithm that this build lacks. [`super::Compression::require`] refuses the algorithm before any of these is called.
#![allow(dead_code, reason = "which of them the build uses depends on its features")]

/// This build lacks the algorithm.
pub(super) const BUILT_IN: bool = false;

pub(super) fn bound(_len: usize) -> usize {
    0
}

pub(super) fn compress(_raw: &[u8], _room: &mut [u8], _level: i32) -> Option<usize> {
    None
}

pub(super) fn decompress(_bytes: &[u8], _out: &mut [u8]) -> Option<usize> {
    None
}

pub(super) fn decompress_prefix(_bytes: &[u8], _out: &mut [u8], _want: usize) -> Option<usize> {
    None
}

pub(super) fn len(_bytes: &[u8]) -> Option<usize> {
    None
}

pub(super) fn stream(_bytes: &[u8]) -> Option<Stream> {
    None
}

/// Never made.
pub(super) enum Stream {}

impl Stream {
    pub(super) fn read(&mut self, _out: &mut [u8]) -> Option<usize> {
        match *self {}
    }

    pub(super) fn ends(self) -> bool {
        match self {}
    }
}
