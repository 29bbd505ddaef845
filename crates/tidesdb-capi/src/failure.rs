//! From an error to a code, and the text behind it.
//!
//! Every symbol runs in [`answer`]: a failure becomes its code, its text is kept for this thread, and a panic stops here.

use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tidesdb::Error;

use crate::abi::{
    Code, ERR_BUSY, ERR_CONFLICT, ERR_CORRUPTION, ERR_EXISTS, ERR_INVALID_ARGS, ERR_INVALID_DB, ERR_IO,
    ERR_LOCKED, ERR_MEMORY, ERR_MEMORY_LIMIT, ERR_NOT_FOUND, ERR_READONLY, ERR_UNKNOWN, SUCCESS,
};

/// Why a call failed. Small: every call returns one or none.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A code and its text.
    Told(&'static Told),
    /// The same with a text of this call.
    Text(Box<(Code, String)>),
    /// The engine's error.
    Engine(Box<Error>),
}

/// A code and its text.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) Code, pub(crate) &'static str);

/// A failure with a text that is always the same.
macro_rules! told {
    ($code:expr, $text:expr $(,)?) => {{
        const TOLD: $crate::failure::Told = $crate::failure::Told($code, $text);
        $crate::failure::Failure::Told(&TOLD)
    }};
}

/// A bad argument or handle.
macro_rules! invalid {
    ($text:expr $(,)?) => {
        $crate::failure::told!($crate::abi::ERR_INVALID_ARGS, $text)
    };
}

pub(crate) use {invalid, told};

/// What calls give inside of this crate.
pub(crate) type Answer<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with a text of its own.
    pub(crate) fn text_of(code: Code, text: impl Into<String>) -> Self {
        Self::Text(Box::new((code, text.into())))
    }

    /// The code that C programs know.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Told(Told(code, _)) => *code,
            Self::Text(text) => text.0,
            Self::Engine(e) => code_of(e),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Told(Told(_, text)) => (*text).to_owned(),
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
        Error::Busy { .. } => ERR_BUSY,
        Error::Conflict => ERR_CONFLICT,
        Error::Locked { .. } => ERR_LOCKED,
        Error::ReadOnly => ERR_READONLY,
        Error::Closed | Error::FormatTooNew { .. } => ERR_INVALID_DB,
        Error::NotFound { .. } => ERR_NOT_FOUND,
        Error::Exists { .. } => ERR_EXISTS,
        Error::InvalidArgument { .. } => ERR_INVALID_ARGS,
        Error::MemoryLimit { .. } => ERR_MEMORY_LIMIT,
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => ERR_MEMORY,
        Error::Io { .. } | Error::CommitUnknown { .. } | Error::Poisoned { .. } | Error::NoSpace { .. } => {
            ERR_IO
        }
        _ => ERR_UNKNOWN,
    }
}

/// What is kept of the last failure of a thread; made into text only when asked for.
struct Last {
    failure: Option<Failure>,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { failure: None, text: CString::default() });
}

const PANICKED: Failure = told!(
    ERR_UNKNOWN,
    "internal error: the library panicked; what the call worked on is given up. Please report the message on stderr",
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

/// What a symbol returns for a failure.
#[cold]
#[inline(never)]
pub(crate) extern "C" fn refuse(failure: &'static Told) -> Code {
    keep(Failure::Told(failure))
}

/// Runs the body of a symbol that returns something else, `none` in case of a failure.
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
    // A thread that ends, or a text that is being read, keeps the older one.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.failure = Some(failure);
        }
    });
    code
}

/// The text of this thread's last failure, valid until the next call of this thread.
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
