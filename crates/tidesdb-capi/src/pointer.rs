//! Pointers from C callers: the only module that dereferences them.
//!
//! These types hold pointers that C callers passed to the symbols; no other code may create one. By the
//! headers, the caller guarantees that a pointer is null or valid as its parameter requires, for the duration
//! of the call. Null is checked here.

use std::ffi::{CStr, c_char};
use std::path::Path;
use std::slice;

use tidesdb::KEY_BYTES_MAX;
use tidesdb_io::program;

use crate::abi::extended::Growing;
use crate::failure::{Answer, Failure, invalid};

/// A pointer to read from.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct In<T>(*const T);

/// A pointer to write to.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Out<T>(*mut T);

const NULL: Failure = invalid!("an argument is NULL");
const NO_TEXT: Failure = invalid!("a name is not UTF-8");
const NO_PATH: Failure = invalid!("a path is not UTF-8");

impl<T> In<T> {
    /// Wraps a pointer that a caller passed inside a structure, or to a function of a fixed type, under the
    /// same guarantee.
    pub(crate) fn from_caller(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// Returns the value it points to.
    ///
    /// # Errors
    /// If it is null.
    pub(crate) fn get<'call>(self) -> Answer<&'call T> {
        // SAFETY: null, or readable during the call: guaranteed by all callers, see above.
        unsafe { self.0.as_ref() }.ok_or(NULL)
    }

    /// Returns true if it is null.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the pointer, to store it in a structure.
    pub(crate) fn pointer(self) -> *const T {
        self.0
    }
}

#[cfg(feature = "fuzzing")]
impl<T> Out<T> {
    /// Wraps a pointer to memory that outlives the call.
    pub(crate) fn to(at: *mut T) -> Self {
        Self(at)
    }

    /// Returns a null pointer.
    pub(crate) fn none() -> Self {
        Self(std::ptr::null_mut())
    }
}

impl In<u8> {
    /// Returns `n` bytes. Null is allowed if `n` is 0.
    ///
    /// # Errors
    /// If it is null, or if no object can have this length.
    #[inline]
    pub(crate) fn bytes<'call>(self, n: usize) -> Answer<&'call [u8]> {
        if n == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(NULL);
        }
        if n > isize::MAX as usize {
            return Err(invalid!("a length is larger than any object in memory"));
        }
        // SAFETY: not null, and `n` bytes are readable during the call: guaranteed by all callers, see above.
        Ok(unsafe { slice::from_raw_parts(self.0, n) })
    }

    /// Returns a key of `n` bytes. An impossible length is refused before anything is read, because it may be
    /// garbage.
    ///
    /// # Errors
    /// If it is null, empty, or longer than the longest key.
    #[inline]
    pub(crate) fn key<'call>(self, n: usize) -> Answer<&'call [u8]> {
        if self.0.is_null() || n == 0 {
            return Err(invalid!("a key is NULL or empty"));
        }
        if n > KEY_BYTES_MAX {
            return Err(invalid!("a key is longer than 64 KiB"));
        }
        self.bytes(n)
    }

    /// Returns `n` bytes; `None` if it is null.
    ///
    /// # Errors
    /// If no object can have this length, or if it is null with a length.
    pub(crate) fn optional<'call>(self, n: usize) -> Answer<Option<&'call [u8]>> {
        if self.0.is_null() && n == 0 { Ok(None) } else { self.bytes(n).map(Some) }
    }

    /// Returns one end of a range; `None` if `n` is 0, which means unbounded.
    ///
    /// # Errors
    /// If it is null with a length.
    pub(crate) fn end<'call>(self, n: usize) -> Answer<Option<&'call [u8]>> {
        if n == 0 { Ok(None) } else { self.key(n).map(Some) }
    }
}

/// Longest key that [`with_copy`] copies without an allocation.
const SHORT_KEY: usize = 64;

/// Calls `seek` with a copy of `key`. The key may be one that the iterator has lent, which its move frees.
#[inline]
pub(crate) fn with_copy<R>(key: &[u8], seek: impl FnOnce(&[u8]) -> R) -> R {
    let (mut short, long);
    let copy = if key.len() <= SHORT_KEY {
        short = [0; SHORT_KEY];
        short[..key.len()].copy_from_slice(key);
        &short[..key.len()]
    } else {
        long = key.to_vec();
        &long
    };
    seek(copy)
}

impl In<c_char> {
    /// Returns a zero-terminated string.
    ///
    /// # Errors
    /// If it is null.
    pub(crate) fn c_str<'call>(self) -> Answer<&'call CStr> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: not null, and a terminated string, readable during the call: guaranteed by all callers, see
        // above.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// Returns a path: any bytes on Unix, UTF-8 on Windows.
    ///
    /// # Errors
    /// If it is null, or not UTF-8 on Windows.
    pub(crate) fn path<'call>(self) -> Answer<&'call Path> {
        program::path_of(self.c_str()?.to_bytes()).ok_or(NO_PATH)
    }

    /// Returns a UTF-8 text.
    ///
    /// # Errors
    /// If it is null or not UTF-8.
    pub(crate) fn text<'call>(self) -> Answer<&'call str> {
        self.c_str()?.to_str().map_err(|_| NO_TEXT)
    }
}

impl<T> Out<T> {
    /// Wraps a pointer that a caller passed to a function of a fixed type, under the same guarantee.
    pub(crate) fn from_caller(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Returns true if it is null.
    #[inline(always)]
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Fails if it is null. Called before the call does anything, because a call that cannot return its result
    /// must have no effect.
    ///
    /// # Errors
    /// If it is null.
    #[inline]
    pub(crate) fn check(self) -> Answer {
        if self.is_null() { Err(NULL) } else { Ok(()) }
    }

    /// Writes the result; does nothing if it is null.
    #[inline]
    pub(crate) fn set(self, value: T) {
        if !self.is_null() {
            // SAFETY: writable during the call: guaranteed by all callers, see above. The old content is not a
            // Rust value, so nothing is dropped.
            unsafe { self.0.write(value) };
        }
    }

    /// Returns the value it points to, in order to free it.
    ///
    /// # Errors
    /// If it is null.
    pub(crate) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: readable during the call: guaranteed by all callers, see above.
        Ok(unsafe { self.0.read() })
    }

    /// Returns the address.
    pub(crate) fn address(self) -> *mut T {
        self.0
    }
}

/// Maximum size of a structure that grows, so that garbage in its size is refused before the rest is read.
const GROWING_BYTES_MAX: usize = 4096;
const NO_SIZE: Failure = invalid!("the size of a structure is wrong: set `size` to its sizeof");

impl<T: Growing> In<T> {
    /// Copies the structure; null means that all fields are 0.
    ///
    /// # Errors
    /// If the size is wrong, or a field that this version does not have is not 0.
    pub(crate) fn growing(self) -> Answer<T> {
        let mut value = T::default();
        if self.is_null() {
            return Ok(value);
        }
        let size = *In::from_caller(self.0.cast::<usize>()).get()?;
        if !(T::FIRST_BYTES..=GROWING_BYTES_MAX).contains(&size) {
            return Err(NO_SIZE);
        }
        let bytes = In::from_caller(self.0.cast::<u8>()).bytes(size)?;
        let (known, unknown) = bytes.split_at(size.min(size_of::<T>()));
        if unknown.iter().any(|byte| *byte != 0) {
            return Err(invalid!("a structure has a field that this version of the library does not know"));
        }
        // SAFETY: all bytes are valid in a `Growing`, and `known` is at most as long as one.
        unsafe { (&raw mut value).cast::<u8>().copy_from_nonoverlapping(known.as_ptr(), known.len()) };
        Ok(value)
    }
}

impl<T: Growing> In<T> {
    /// Copies an array of structures, each of the size that the first has.
    ///
    /// # Errors
    /// As [`In::growing`]; if the sizes differ.
    pub(crate) fn growing_items(self, n: usize) -> Answer<Vec<T>> {
        if n == 0 {
            return Ok(Vec::new());
        }
        let size = *In::from_caller(self.0.cast::<usize>()).get()?;
        if !(T::FIRST_BYTES..=GROWING_BYTES_MAX).contains(&size) || !size.is_multiple_of(align_of::<T>()) {
            return Err(NO_SIZE);
        }
        let bytes = In::from_caller(self.0.cast::<u8>()).bytes(n.saturating_mul(size))?;
        let one = |item: &[u8]| {
            let item = Self(item.as_ptr().cast());
            if *In::from_caller(item.0.cast::<usize>()).get()? == size {
                item.growing()
            } else {
                Err(NO_SIZE)
            }
        };
        bytes.chunks_exact(size).map(one).collect()
    }
}

impl<T: Growing> Out<T> {
    /// Checks the size that the caller has set.
    ///
    /// # Errors
    /// If it is null or its size is wrong.
    pub(crate) fn check_growing(self) -> Answer<usize> {
        let size = *In::from_caller(self.0.cast_const().cast::<usize>()).get()?;
        if (T::FIRST_BYTES..=GROWING_BYTES_MAX).contains(&size) { Ok(size) } else { Err(NO_SIZE) }
    }

    /// Writes the fields that the caller has. The size stays.
    ///
    /// # Errors
    /// As [`Out::check_growing`].
    pub(crate) fn set_growing(self, value: &T) -> Answer {
        let known = self.check_growing()?.min(size_of::<T>()) - size_of::<usize>();
        let from = (&raw const *value).cast::<u8>();
        // SAFETY: the caller guarantees that as many bytes are writable as the size says; `value` has as many. The first field stays.
        unsafe {
            let to = self.0.cast::<u8>().add(size_of::<usize>());
            to.copy_from_nonoverlapping(from.add(size_of::<usize>()), known);
        }
        Ok(())
    }
}

/// A caller's buffer. It may be uninitialised, so it is only written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    at: *mut u8,
    bytes: usize,
}

impl Room {
    /// Bytes of the buffer.
    pub(crate) fn len(self) -> usize {
        self.bytes
    }

    /// Copies `bytes` to the position `at`. Returns false, and writes nothing, if they do not fit.
    #[inline]
    pub(crate) fn put(self, at: usize, bytes: &[u8]) -> bool {
        if at > self.bytes || bytes.len() > self.bytes - at {
            return false;
        }
        if !bytes.is_empty() {
            // SAFETY: the buffer has room for them there, and it is writable during the call and no memory of the library: guaranteed by
            // all callers, see above.
            unsafe { self.at.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        true
    }
}

impl Out<u8> {
    /// Returns a buffer of `n` bytes. Null is allowed if `n` is 0.
    ///
    /// # Errors
    /// If it is null, or if no object can have this length.
    #[inline]
    pub(crate) fn room(self, n: usize) -> Answer<Room> {
        In::from_caller(self.0.cast_const()).check_items(n)?;
        Ok(Room { at: self.0, bytes: n })
    }
}

/// A caller's array, which is only written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<T> {
    at: *mut T,
    count: usize,
}

impl<T: Copy> Places<T> {
    /// Number of elements.
    pub(crate) fn count(self) -> usize {
        self.count
    }

    /// Sets element `at`, if the array has it.
    #[inline]
    pub(crate) fn set(self, at: usize, value: T) {
        if at < self.count {
            // SAFETY: the array has this element and is writable during the call: guaranteed by all callers, see above.
            unsafe { self.at.add(at).write(value) };
        }
    }
}

impl<T: Copy> Out<T> {
    /// Returns an array of `n` elements. Null is allowed if `n` is 0.
    ///
    /// # Errors
    /// If it is null, or if no object can have this length.
    pub(crate) fn places(self, n: usize) -> Answer<Places<T>> {
        In::from_caller(self.0.cast_const()).check_items(n)?;
        Ok(Places { at: self.0, count: n })
    }
}

impl<T: Copy> In<T> {
    #[inline]
    fn check_items(&self, n: usize) -> Answer {
        if n > 0 && self.0.is_null() {
            return Err(NULL);
        }
        if n > isize::MAX as usize / size_of::<T>().max(1) {
            return Err(invalid!("a length is larger than any object in memory"));
        }
        Ok(())
    }

    /// Returns an array of `n` elements. Null is allowed if `n` is 0.
    ///
    /// # Errors
    /// If it is null, or if no object can have this length.
    pub(crate) fn items<'call>(self, n: usize) -> Answer<&'call [T]> {
        if n == 0 {
            return Ok(&[]);
        }
        self.check_items(n)?;
        // SAFETY: not null, and `n` elements are readable during the call: guaranteed by all callers, see above.
        Ok(unsafe { slice::from_raw_parts(self.0, n) })
    }
}

impl In<u8> {
    /// Splits bytes into consecutive pieces of these sizes.
    ///
    /// # Errors
    /// If it is null, or if the sizes exceed any object.
    pub(crate) fn pieces<'call>(self, sizes: &[usize]) -> Answer<impl Iterator<Item = &'call [u8]>> {
        let sum = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size));
        let mut rest = self.bytes(sum.unwrap_or(usize::MAX))?;
        let sizes = sizes.to_vec();
        Ok(sizes.into_iter().map(move |size| {
            let (piece, after) = rest.split_at(size);
            rest = after;
            piece
        }))
    }
}

/// Writes the address and the length of `bytes` to the caller.
#[inline]
pub(crate) fn tell(at: Out<*const u8>, size: Out<usize>, bytes: &[u8]) {
    at.set(bytes.as_ptr());
    size.set(bytes.len());
}

/// Returns the bytes of the text in an array of a structure, up to its terminating zero or the end of the
/// array.
pub(crate) fn bytes_of(array: &[c_char]) -> Vec<u8> {
    array.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect()
}

/// Returns the text in an array of a structure, up to its terminating zero or the end of the array.
///
/// # Errors
/// If it is not UTF-8.
pub(crate) fn text_of(array: &[c_char]) -> Answer<String> {
    String::from_utf8(bytes_of(array)).map_err(|_| NO_TEXT)
}

/// Writes a text into an array of a structure, truncated if needed, always with a terminating zero.
pub(crate) fn put_text(array: &mut [c_char], text: impl AsRef<[u8]>) {
    array.fill(0);
    let room = array.len() - 1;
    for (place, byte) in array[..room].iter_mut().zip(text.as_ref()) {
        *place = *byte as c_char;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_the_system_takes() {
        let path = |text: &CStr| In::from_caller(text.as_ptr()).path().map(Path::to_owned);
        assert_eq!(path(c"g\u{fc}n/db").ok().as_deref(), Some(Path::new("g\u{fc}n/db")));
        assert_eq!(path(c"\xff").is_ok(), cfg!(unix));
        assert!(In::<c_char>::from_caller(std::ptr::null()).path().is_err());
    }

    #[test]
    fn a_text_fills_an_array_and_comes_back() {
        let mut array = [1; 5];
        put_text(&mut array, "\u{fc}x");
        assert_eq!((bytes_of(&array), array[3]), ("\u{fc}x".as_bytes().to_vec(), 0));
        put_text(&mut array, [0xff; 9]);
        assert_eq!(bytes_of(&array), [0xff; 4]);
        assert!(text_of(&array).is_err());
    }
}
