//! What went wrong, in words that hold no credentials.

use std::error::Error as _;
use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::StatusCode;
use object_store::aws::{AwsCredential, AwsCredentialProvider};
use object_store::{CredentialProvider, Error};

use super::options::is_plain;

/// How an answer with an error begins in the words of the client.
const STATUS: &str = "Server returned non-2xx status code: ";
/// An answer that says an error although its status is that of success.
const RESPONSE: &str = "Server returned error response: ";

/// A failed request.
#[derive(Debug)]
pub(super) struct Failed {
    /// Status of the answer, if there was one.
    pub(super) status: Option<u16>,
    /// The code in its body, such as `NoSuchBucket`.
    pub(super) code: Option<String>,
    text: String,
    is_timeout: bool,
    /// Set if the client has repeated the request as often as it may.
    is_exhausted: bool,
    /// Set if the next try would fail in the same way.
    is_refused: bool,
    /// Set if the body of the answer is not that of an object store, but of something between.
    is_foreign: bool,
}

impl Failed {
    pub(super) fn new(e: &Error, secrets: &Secrets) -> Self {
        let mut chain: Vec<String> = vec![e.to_string()];
        let mut next = e.source();
        while let Some(inner) = next {
            chain.push(inner.to_string());
            next = inner.source();
        }
        let answer =
            chain.iter().find_map(|text| text.strip_prefix(STATUS).or_else(|| text.strip_prefix(RESPONSE)));
        let status = answer.and_then(|answer| answer.get(..3)?.parse().ok());
        let code = answer.and_then(|answer| tagged(answer, "Code")).map(str::to_owned);
        let mut text = match (answer, e) {
            // Only what is known of the body: a server may repeat the request in it.
            (Some(answer), _) => {
                let line = answer.lines().next().unwrap_or_default();
                let mut text = match status {
                    Some(_) => line.split_once(": ").map_or(line, |(status, _)| status).to_owned(),
                    None => "an error".to_owned(),
                };
                let _ = write!(text, " {}", code.as_deref().unwrap_or_default());
                if let Some(message) = tagged(answer, "Message") {
                    let _ = write!(text, ": {message}");
                }
                text
            }
            // The last one says most; those before it have the addresses of requests.
            (None, _) => chain.last().cloned().unwrap_or_default(),
        };
        secrets.hide(&mut text);
        let is_exhausted = chain.iter().any(|text| is_exhausted(text));
        // A redirection to nowhere: another region.
        let is_refused = chain.iter().any(|text| text.contains("without LOCATION"))
            || text == UNPLAIN
            || text.starts_with(NO_CREDENTIALS);
        let is_timeout = !is_refused && chain.iter().chain([&text]).any(|text| text.contains("timed out"));
        let rest = answer.and_then(|answer| answer.split_once(": ")).map_or("", |(_, rest)| rest.trim());
        let is_foreign = status.is_some() && code.is_none() && !rest.is_empty();
        Self { status, code, text, is_timeout, is_exhausted, is_refused, is_foreign }
    }

    /// A request of this module that was answered with this status.
    pub(super) fn answered(status: StatusCode, body: &str, secrets: &Secrets) -> Self {
        let text = format!("{STATUS}{status}: {body}");
        Self::new(&Error::Generic { store: "S3", source: text.into() }, secrets)
    }

    /// What went wrong.
    pub(super) fn text(&self) -> &str {
        self.text.trim_end()
    }

    /// Returns true if the same request may succeed later.
    pub(super) fn may_pass(&self) -> bool {
        match self.status {
            // 501: the server does not know the request.
            Some(status) => matches!(status, 200 | 408 | 409 | 429 | 500 | 502..),
            None => !self.is_refused,
        }
    }

    /// Returns true if an answer was cut after its head, which the client does not repeat.
    pub(super) fn is_cut(&self) -> bool {
        self.status.is_none() && !self.is_exhausted && !self.is_timeout && !self.is_refused
    }

    /// Returns true if there is no object, in a bucket that exists.
    pub(super) fn is_missing_object(&self) -> bool {
        self.status == Some(404) && !self.is_foreign && self.code.as_deref() != Some("NoSuchBucket")
    }

    /// The error of a call for an object.
    pub(super) fn into_io(self, call: &str, name: &str) -> io::Error {
        let kind = match self.status {
            Some(404) if self.is_missing_object() => io::ErrorKind::NotFound,
            Some(401 | 403) => io::ErrorKind::PermissionDenied,
            None if self.text.starts_with(NO_CREDENTIALS) => io::ErrorKind::PermissionDenied,
            Some(416) => io::ErrorKind::UnexpectedEof,
            Some(501) => io::ErrorKind::Unsupported,
            _ if self.is_timeout => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, format!("S3: {call} {name}: {}", self.text()))
    }
}

/// The service of the credentials was asked again and again already, and what it answers says nothing of the bucket.
const NO_CREDENTIALS: &str = "no credentials could be obtained";

fn no_credentials(e: &Error) -> Error {
    let mut last: &dyn std::error::Error = e;
    while let Some(inner) = last.source() {
        last = inner;
    }
    Error::Generic { store: "S3", source: format!("{NO_CREDENTIALS}: {last}").into() }
}

/// Keys that cannot be a part of a request.
const UNPLAIN: &str = "the credentials have a space, a line end or another character that no key has";

/// Looks for `after 10 retries, max_retries: 10`.
fn is_exhausted(text: &str) -> bool {
    let counts = text.split_once(" after ").and_then(|(_, rest)| rest.split_once(" retries, max_retries: "));
    counts.is_some_and(|(made, rest)| rest.split(',').next() == Some(made))
}

/// Returns what an element of a body has.
pub(super) fn tagged<'a>(body: &'a str, tag: &str) -> Option<&'a str> {
    let from = body.find(&format!("<{tag}>"))? + tag.len() + 2;
    let rest = &body[from..];
    rest.find(&format!("</{tag}>")).map(|end| &rest[..end])
}

/// The credentials in use, which no text may have.
#[derive(Clone, Default)]
pub(super) struct Secrets(Arc<Mutex<Option<Arc<AwsCredential>>>>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    pub(super) fn hide(&self, text: &mut String) {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(known) = known else { return };
        for secret in
            [Some(&known.secret_key), known.token.as_ref(), Some(&known.key_id)].into_iter().flatten()
        {
            if !secret.is_empty() && text.contains(secret.as_str()) {
                *text = text.replace(secret.as_str(), "***");
            }
        }
    }
}

/// Passes credentials on, and notes them as secrets.
pub(super) struct Watched {
    pub(super) inner: AwsCredentialProvider,
    pub(super) secrets: Secrets,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watched")
    }
}

#[async_trait]
impl CredentialProvider for Watched {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let found = self.inner.get_credential().await.map_err(|e| no_credentials(&e))?;
        if !is_plain(&found.key_id) || !found.token.as_deref().is_none_or(is_plain) {
            return Err(Error::Generic { store: "S3", source: UNPLAIN.into() });
        }
        *self.secrets.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(text: &str) -> Failed {
        Failed::new(&Error::Generic { store: "S3", source: text.into() }, &Secrets::default())
    }

    /// The answer of the service of the credentials was taken for one of the bucket: a missing object, or one worth another try.
    #[test]
    fn a_failure_to_get_credentials_is_none_of_the_bucket() {
        for text in [format!("{STATUS}404 Not Found: "), "operation timed out".to_owned()] {
            let e =
                no_credentials(&Error::Generic { store: "InstanceMetadata", source: text.clone().into() });
            let failed = Failed::new(&e, &Secrets::default());
            assert_eq!(failed.status, None);
            assert!(!failed.may_pass() && !failed.is_missing_object() && !failed.is_cut());
            let e = failed.into_io("get of", "backup.index");
            assert_eq!(e.kind(), io::ErrorKind::PermissionDenied);
            assert!(e.to_string().contains(NO_CREDENTIALS), "{e}");
        }
    }

    #[test]
    fn an_answer_is_read_and_the_rest_of_it_is_not_passed_on() {
        let body = "<Error><Code>NoSuchBucket</Code><Message>None</Message><AWSAccessKeyId>ID</AWSAccessKeyId></Error>";
        let answer = failed(&format!("{STATUS}404 Not Found: {body}"));
        assert_eq!((answer.status, answer.code.as_deref()), (Some(404), Some("NoSuchBucket")));
        assert_eq!(answer.text(), "404 Not Found NoSuchBucket: None");
        assert!(!answer.may_pass() && !answer.is_missing_object());
        assert!(failed(&format!("{STATUS}404 Not Found: ")).is_missing_object());
        assert!(!failed(&format!("{STATUS}404 Not Found: <html>no such host</html>")).is_missing_object());
        let secret = failed(&format!("{RESPONSE}<Error><Code>InternalError</Code><Key>hush</Key></Error>"));
        assert_eq!(secret.text(), "an error InternalError");
        assert!(failed(&format!("{STATUS}503 Service Unavailable: ")).may_pass());
        assert!(!failed(&format!("{STATUS}501 Not Implemented: ")).may_pass());
    }

    #[test]
    fn only_an_answer_that_was_cut_is_asked_for_again() {
        let text = |made: u32| {
            format!(
                "Error performing GET http://h/ in 1s, after {made} retries, max_retries: 10, retry_timeout: 180s  - x"
            )
        };
        assert!(failed(&text(3)).is_cut() && !failed(&text(10)).is_cut());
        assert!(!failed(&(text(2) + "operation timed out")).is_cut(), "it has waited long enough");
        let moved = failed(
            "Received redirect without LOCATION, this normally indicates an incorrectly configured region",
        );
        assert!(!moved.is_cut() && !moved.may_pass());
        assert!(failed("error decoding response body").is_cut());
        assert!(!failed(&format!("{STATUS}404 Not Found: ")).is_cut());
    }
}
