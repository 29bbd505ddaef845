//! Pointers from C callers: the only place that follows them.
//!
//! Values of these types are what C callers passed to the symbols; nothing else may be made one. A caller promises, in the headers, that a pointer is null or good for what its parameter says, for as long as the call lasts. Null is checked here.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use tidesdb::types::KEY_BYTES_MAX;

use crate::failure::{Answer, Failure, invalid};

/// Something to read.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct In<T>(*const T);

/// Somewhere to write to.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Out<T>(*mut T);

const NULL: Failure = invalid!("an argument is NULL");
const NO_TEXT: Failure = invalid!("a name is not UTF-8");

impl<T> In<T> {
    /// A pointer that a caller passed inside of a structure, or to a function whose type is fixed: under the same promise.
    pub(crate) fn from_caller(pointer: *const T) -> Self {
        Self(pointer)
    }

    /// What it points to.
    ///
    /// # Errors
    /// For null.
    pub(crate) fn get<'call>(self) -> Answer<&'call T> {
        // SAFETY: null, or good for reading during the call: the promise of all callers, see above.
        unsafe { self.0.as_ref() }.ok_or(NULL)
    }

    /// Whether it is null.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

#[cfg(feature = "fuzzing")]
impl<T> In<T> {
    /// The pointer, to put it into a structure.
    pub(crate) fn pointer(self) -> *const T {
        self.0
    }
}

#[cfg(feature = "fuzzing")]
impl<T> Out<T> {
    /// Somewhere to write to, which outlives the call.
    pub(crate) fn to(at: *mut T) -> Self {
        Self(at)
    }

    /// Nowhere.
    pub(crate) fn none() -> Self {
        Self(std::ptr::null_mut())
    }
}

impl In<u8> {
    /// `n` bytes; null is fine for none.
    ///
    /// # Errors
    /// For null, and for lengths that no object can have.
    #[inline]
    pub(crate) fn bytes<'call>(self, n: usize) -> Answer<&'call [u8]> {
        if n == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(NULL);
        }
        if n > isize::MAX as usize {
            return Err(invalid!("a length is beyond all memory"));
        }
        // SAFETY: not null, and good for reading `n` bytes during the call: the promise of all callers, see above.
        Ok(unsafe { slice::from_raw_parts(self.0, n) })
    }

    /// A key of `n` bytes. A length that no key has is refused before anything is read: it may be no length at all.
    ///
    /// # Errors
    /// For null, for none, and for more than a key can have.
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

    /// One end of a range: `None` if it is open, null and of no bytes.
    ///
    /// # Errors
    /// For null with a length.
    pub(crate) fn end<'call>(self, n: usize) -> Answer<Option<&'call [u8]>> {
        if n == 0 { Ok(None) } else { self.key(n).map(Some) }
    }
}

impl In<c_char> {
    /// A text up to its end.
    ///
    /// # Errors
    /// For null.
    pub(crate) fn c_str<'call>(self) -> Answer<&'call CStr> {
        if self.0.is_null() {
            return Err(NULL);
        }
        // SAFETY: not null, and a text that ends, good for reading during the call: the promise of all callers, see above.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }

    /// A path, in whatever bytes the system takes.
    ///
    /// # Errors
    /// For null.
    pub(crate) fn path<'call>(self) -> Answer<&'call Path> {
        Ok(Path::new(OsStr::from_bytes(self.c_str()?.to_bytes())))
    }

    /// A text in UTF-8.
    ///
    /// # Errors
    /// For null and for anything else.
    pub(crate) fn text<'call>(self) -> Answer<&'call str> {
        self.c_str()?.to_str().map_err(|_| NO_TEXT)
    }
}

impl<T> Out<T> {
    /// A pointer that a caller passed to a function whose type is fixed: under the same promise.
    pub(crate) fn from_caller(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// Whether it is null.
    #[inline(always)]
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Checked before anything is done: a call that cannot answer must not have done anything.
    ///
    /// # Errors
    /// For null.
    #[inline]
    pub(crate) fn check(self) -> Answer {
        if self.is_null() { Err(NULL) } else { Ok(()) }
    }

    /// Writes the answer; nothing for null.
    #[inline]
    pub(crate) fn set(self, value: T) {
        if !self.is_null() {
            // SAFETY: good for writing during the call: the promise of all callers, see above. What is there is no value of
            // Rust's, so nothing is dropped.
            unsafe { self.0.write(value) };
        }
    }

    /// What is there, to free it.
    ///
    /// # Errors
    /// For null.
    pub(crate) fn get(self) -> Answer<T>
    where
        T: Copy,
    {
        self.check()?;
        // SAFETY: good for reading during the call: the promise of all callers, see above.
        Ok(unsafe { self.0.read() })
    }

    /// The address itself.
    pub(crate) fn address(self) -> *mut T {
        self.0
    }
}

/// Tells a caller where bytes lie, and how many they are.
#[inline]
pub(crate) fn tell(at: Out<*const u8>, size: Out<usize>, bytes: &[u8]) {
    at.set(bytes.as_ptr());
    size.set(bytes.len());
}

/// The bytes of the text in an array of a structure: up to its end, or all of it.
pub(crate) fn bytes_of(array: &[c_char]) -> Vec<u8> {
    array.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect()
}

/// The text in an array of a structure: up to its end, or all of it.
///
/// # Errors
/// If it is not UTF-8.
pub(crate) fn text_of(array: &[c_char]) -> Answer<String> {
    String::from_utf8(bytes_of(array)).map_err(|_| NO_TEXT)
}

/// Writes a text into an array of a structure, cut to its size less the end.
pub(crate) fn put_text(array: &mut [c_char], text: impl AsRef<[u8]>) {
    array.fill(0);
    let room = array.len() - 1;
    for (place, byte) in array[..room].iter_mut().zip(text.as_ref()) {
        *place = byte.cast_signed();
    }
}
