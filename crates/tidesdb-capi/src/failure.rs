//! Conversion of errors to codes and messages.
//!
//! Every symbol runs in [`answer`]. It converts a failure to its code, keeps the message for this thread, and
//! stops panics.

use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidesdb::Error;

use crate::abi::extended::ERR_MERGE;
use crate::abi::{
    Code, ERR_BUSY, ERR_CONFLICT, ERR_CORRUPTION, ERR_EXISTS, ERR_INVALID_ARGS, ERR_INVALID_DB, ERR_IO,
    ERR_LOCKED, ERR_MEMORY, ERR_MEMORY_LIMIT, ERR_NOT_FOUND, ERR_READONLY, ERR_UNKNOWN, SUCCESS,
};

/// The reason a call failed. Small, because every internal call returns a result with it.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A code with a static message.
    StaticError(&'static StaticError),
    /// A code with a message of this call.
    Text(Box<(Code, String)>),
    /// The engine's error.
    Engine(Box<Error>),
}

/// A code with its static message.
#[derive(Debug)]
pub(crate) struct StaticError(pub(crate) Code, pub(crate) &'static str);

/// Creates a failure with a static message.
macro_rules! told {
    ($code:expr, $text:expr $(,)?) => {{
        const TOLD: $crate::failure::StaticError = $crate::failure::StaticError($code, $text);
        $crate::failure::Failure::StaticError(&TOLD)
    }};
}

/// Creates a failure for a bad argument or handle.
macro_rules! invalid {
    ($text:expr $(,)?) => {
        $crate::failure::told!($crate::abi::ERR_INVALID_ARGS, $text)
    };
}

pub(crate) use {invalid, told};

/// The result type inside this crate.
pub(crate) type Answer<T = ()> = Result<T, Failure>;

impl Failure {
    /// Creates a failure with its own message.
    pub(crate) fn text_of(code: Code, text: impl Into<String>) -> Self {
        Self::Text(Box::new((code, text.into())))
    }

    /// Returns the code for C programs.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::StaticError(StaticError(code, _)) => *code,
            Self::Text(text) => text.0,
            Self::Engine(e) => code_of(e),
        }
    }

    /// Returns the message.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::StaticError(StaticError(_, text)) => (*text).to_owned(),
            Self::Text(text) => text.1.clone(),
            Self::Engine(e) => e.to_string(),
        }
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(e: Error) -> Self {
        Self::Engine(Box::new(e))
    }
}

fn code_of(e: &Error) -> Code {
    match e {
        Error::Corrupt { .. } => ERR_CORRUPTION,
        Error::Busy { .. } | Error::Closing { .. } => ERR_BUSY,
        Error::Conflict { .. } => ERR_CONFLICT,
        Error::Locked { .. } => ERR_LOCKED,
        Error::ReadOnly => ERR_READONLY,
        Error::Closed | Error::FormatTooNew { .. } | Error::NotBuiltIn { .. } => ERR_INVALID_DB,
        Error::NotFound { .. } => ERR_NOT_FOUND,
        Error::Exists { .. } => ERR_EXISTS,
        Error::InvalidArgument { .. } => ERR_INVALID_ARGS,
        Error::MemoryLimit { .. } => ERR_MEMORY_LIMIT,
        Error::Merge { .. } => ERR_MERGE,
        Error::Io { cause, .. } if cause.kind() == std::io::ErrorKind::OutOfMemory => ERR_MEMORY,
        Error::Io { .. } | Error::CommitUnknown { .. } | Error::Poisoned { .. } | Error::NoSpace { .. } => {
            ERR_IO
        }
        _ => ERR_UNKNOWN,
    }
}

/// The last failure of a thread. Its message is formatted only when it is requested.
struct Last {
    failure: Option<Failure>,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { failure: None, text: CString::default() });
}

const PANICKED: Failure = told!(
    ERR_UNKNOWN,
    "internal error: the library panicked and abandoned the call's object. Please report the message on stderr",
);

/// Runs the body of a symbol that returns a code.
#[inline]
pub(crate) fn answer(body: impl FnOnce() -> Answer) -> Code {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(failure)) => keep(failure),
        Err(_) => keep(PANICKED),
    }
}

/// Records a static failure and returns its code.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn refuse(failure: &'static StaticError) -> Code {
    keep(Failure::StaticError(failure))
}

/// Runs the body of a symbol that returns something else. Returns `none` on failure.
pub(crate) fn answer_or<T>(none: T, body: impl FnOnce() -> Answer<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => {
            keep(failure);
            none
        }
        Err(_) => {
            keep(PANICKED);
            none
        }
    }
}

#[cold]
fn keep(failure: Failure) -> Code {
    let code = failure.code();
    // If the thread is ending or the message is being read, the older failure stays.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.failure = Some(failure);
        }
    });
    code
}

/// Returns the message of this thread's last failure, valid until the next call in this thread.
pub(crate) fn last_text() -> *const std::ffi::c_char {
    let text = LAST.try_with(|last| {
        let mut last = last.borrow_mut();
        if let Some(failure) = last.failure.take() {
            last.text = CString::new(failure.text().replace('\0', " ")).unwrap_or_default();
        }
        last.text.as_ptr()
    });
    text.unwrap_or(c"".as_ptr())
}
