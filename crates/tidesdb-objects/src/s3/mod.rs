//! Amazon S3, and servers that speak its protocol.
//!
//! ```text
//! options   where the bucket is          profile   keys of the shared files
//! failure   errors without credentials   runtime   async calls for threads that block
//! lists     of objects, and of unfinished uploads
//! ```
//!
//! A request that fails in a way that may pass is repeated by the client of the `object_store` crate, except for a conditional put: if the
//! answer to one is lost, a repeated request is refused because of the first. So this module repeats it, and looks at the object.

mod failure;
mod lists;
mod options;
mod profile;
mod runtime;

use std::fmt::{self, Debug};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, S3ConditionalPut};
use object_store::client::{HttpClient, HttpConnector, ReqwestConnector};
use object_store::path::Path;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, GetOptions, GetRange, ObjectStore as _, ObjectStoreExt,
    PutMode, PutPayload, RetryConfig, StaticCredentialProvider, UpdateVersion,
};
use tidesdb::ObjectStore;
use tidesdb::store::{Body, Condition, Object, Tag};
use tokio::time::Instant;

use failure::{Failed, Secrets, Watched};
pub use options::{Encryption, S3Options};
use options::{PARTS_MAX, is_plain, wrong};
use profile::{Get, Profile};
use runtime::Blocking;

/// First pause before a request is repeated; the longest one; how much longer each is.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// No request is repeated later than this after its first try: its signature expires.
const RETRY_TIME: Duration = Duration::from_secs(180);
/// Times that a read is taken up again without a byte between them.
const STUCK_MAX: u32 = 3;
/// Times that an upload in parts is tried.
const UPLOADS_MAX: u32 = 5;

/// A bucket, or what is below a prefix of it. Clones share connections.
///
/// Calls block and may be made in any thread, also in one that runs async tasks. The tag of an object is its `ETag`: most servers give equal
/// bytes equal tags.
#[derive(Clone)]
pub struct S3Store {
    shared: Arc<Shared>,
}

/// The clients come before the runtime, so that they are dropped first.
struct Shared {
    /// Repeats requests.
    store: AmazonS3,
    /// Does not.
    once: AmazonS3,
    /// For the requests that the client lacks.
    http: HttpClient,
    secrets: Secrets,
    prefix: Path,
    place: String,
    options: S3Options,
    /// Set once a list has shown objects of others.
    has_foreign: AtomicBool,
    /// The process that has the threads.
    process: u32,
    blocking: Blocking,
}

impl Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3Store").field(&self.shared.place).finish()
    }
}

/// Connects to a bucket. No request is made before the first call.
///
/// ```no_run
/// use std::sync::Arc;
/// use tidesdb::backup::Backups;
/// use tidesdb_objects::{S3Options, s3};
///
/// let options = S3Options::from_url("s3://my-bucket/backups/shop")?.environment()?;
/// let backups = Backups::new(Arc::new(s3(options)?));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// `InvalidInput` for options that contradict each other, or if there are no credentials; `Io` if the file of certificates cannot be read.
pub fn s3(options: S3Options) -> io::Result<S3Store> {
    connect(options, &|name| std::env::var(name).ok())
}

fn connect(options: S3Options, variable: Get<'_>) -> io::Result<S3Store> {
    options.check()?;
    let prefix = Path::parse(options.prefix.trim_matches('/')).map_err(|e| wrong(format!("prefix: {e}")))?;
    let blocking = Blocking::start()?;
    let secrets = Secrets::default();
    let client = client_options(&options)?;
    let builder = with_credentials(builder(&options, client.clone())?, &options, variable)?;
    let of_build = |e: object_store::Error| wrong(Failed::new(&e, &secrets).text());
    // Only its credentials are used: a provider may need the runtime to begin.
    let found = blocking.wait(async { builder.clone().build() }).map_err(of_build)?;
    let watched = Watched { inner: Arc::clone(found.credentials()), secrets: secrets.clone() };
    let builder = builder.with_credentials(Arc::new(watched));
    let build = |retries: u32| {
        let builder = builder.clone().with_retry(retry(retries));
        blocking.wait(async { builder.build() }).map_err(of_build)
    };
    let (store, once) = (build(options.retries)?, build(0)?);
    let http = ReqwestConnector::default().connect(&client).map_err(of_build)?;
    let server = options.address()?.unwrap_or_else(|| "Amazon S3".to_owned());
    let place = format!("s3://{}/{prefix} of {server}", options.bucket);
    let process = std::process::id();
    let has_foreign = AtomicBool::new(false);
    let shared =
        Shared { store, once, http, secrets, prefix, place, options, has_foreign, process, blocking };
    Ok(S3Store { shared: Arc::new(shared) })
}

fn retry(retries: u32) -> RetryConfig {
    // Each pause is drawn between the first one and four times the one before: twice as long on average.
    let backoff = BackoffConfig { init_backoff: PAUSE, max_backoff: PAUSE_MAX, base: 4.0 };
    RetryConfig { backoff, max_retries: retries as usize, retry_timeout: RETRY_TIME }
}

fn client_options(options: &S3Options) -> io::Result<ClientOptions> {
    let mut client = ClientOptions::new()
        .with_allow_http(options.allow_http)
        .with_allow_invalid_certificates(options.skip_verify)
        .with_connect_timeout(options.connect_timeout)
        // A long object takes as long as it takes.
        .with_timeout_disabled()
        .with_read_timeout(options.timeout);
    if let Some(path) = &options.ca_file {
        let unread = |e: io::Error| io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display()));
        let all = Certificate::from_pem_bundle(&std::fs::read(path).map_err(unread)?)
            .map_err(|e| wrong(format!("{}: {e}", path.display())))?;
        if all.is_empty() {
            return Err(wrong(format!("{} has no certificate", path.display())));
        }
        for certificate in all {
            client = client.with_root_certificate(certificate);
        }
    }
    Ok(client)
}

fn builder(options: &S3Options, client: ClientOptions) -> io::Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&options.bucket)
        .with_region(options.region.as_deref().unwrap_or("us-east-1"))
        .with_virtual_hosted_style_request(options.virtual_host)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        // Not every server knows how to delete several objects at once.
        .with_disable_bulk_delete(true)
        .with_client_options(client);
    if let Some(address) = options.address()? {
        builder = builder.with_endpoint(address);
    }
    match &options.encryption {
        Encryption::OfBucket => {}
        Encryption::Server => builder = builder.with_config(key("aws_server_side_encryption")?, "AES256"),
        Encryption::Kms(id) => {
            builder = builder.with_config(key("aws_server_side_encryption")?, "aws:kms");
            if let Some(id) = id {
                builder = builder.with_config(key("aws_sse_kms_key_id")?, id);
            }
        }
    }
    Ok(builder)
}

fn key(name: &str) -> io::Result<AmazonS3ConfigKey> {
    name.parse().map_err(|_| wrong(format!("{name} is not known")))
}

/// Variables that the client reads itself where they are set: web identities, containers, instances.
const PLACES: [&str; 8] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
];

fn with_credentials(
    builder: AmazonS3Builder,
    options: &S3Options,
    variable: Get<'_>,
) -> io::Result<AmazonS3Builder> {
    let get = |name: &str| variable(name).filter(|value| !value.is_empty());
    let fixed = |key_id: String, secret_key: String, token: Option<String>| {
        Arc::new(StaticCredentialProvider::new(AwsCredential { key_id, secret_key, token }))
    };
    if let Some(keys) = options.keys.clone() {
        return Ok(builder.with_credentials(fixed(keys.id, keys.secret, keys.token)));
    }
    match (get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => {
            return Ok(builder.with_credentials(fixed(id, secret, get("AWS_SESSION_TOKEN"))));
        }
        (None, None) => {}
        _ => return Err(wrong("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set")),
    }
    if let Some(profile) = Profile::find(&get)? {
        return Ok(builder.with_credentials(Arc::new(profile)));
    }
    let is_elsewhere = PLACES[..7].iter().any(|name| get(name).is_some());
    if !is_elsewhere
        && get("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        return Err(wrong("no credentials: neither AWS_ACCESS_KEY_ID nor a profile with keys is set"));
    }
    let mut builder = builder;
    for name in PLACES {
        if let Some(value) = get(name) {
            builder = builder.with_config(key(&name.to_ascii_lowercase())?, value);
        }
    }
    Ok(builder)
}

/// Pauses between tries, each twice as long as the one before, and each a little different.
struct Tries {
    left: u32,
    pause: Duration,
    /// None begins later.
    until: Option<Instant>,
}

impl Tries {
    /// Waits for the next try; false if there is none.
    async fn again(&mut self) -> bool {
        if self.left == 0 || self.until.is_some_and(|until| Instant::now() >= until) {
            return false;
        }
        self.left -= 1;
        // Half of it is left to chance, so that writers that failed together do not come back together.
        let chance = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), self.left) % 1000;
        tokio::time::sleep(self.pause / 2 + self.pause.mul_f64(chance as f64 / 2000.0)).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}

impl Shared {
    /// Returns the place of an object. A name that is empty, or has a slash, would be that of the bucket or of another store.
    fn path(&self, name: &str) -> io::Result<Path> {
        let path = Path::parse(name).map_err(|e| wrong(e.to_string()))?;
        if name.is_empty() || name.contains('/') || path.as_ref() != name {
            return Err(wrong(format!("{name:?} is no name of an object")));
        }
        Ok(self.prefix.parts().chain(path.parts()).collect())
    }

    fn failed(&self, e: &object_store::Error) -> Failed {
        Failed::new(e, &self.secrets)
    }

    fn tries(&self) -> Tries {
        Tries { left: self.options.retries, pause: PAUSE, until: Some(Instant::now() + RETRY_TIME) }
    }

    /// Passes the bytes of an object, or a range of them, on. Returns its tag. All bytes are of one version of the object.
    async fn read(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Tag> {
        let path = self.path(name)?;
        let (mut at, mut end, mut tag, mut stuck) = (0, None, None::<String>, 0);
        let mut tries = self.tries();
        if let Some(range) = range {
            (at, end) = (range.start, Some(range.end));
        }
        let replaced =
            || io::Error::other(format!("S3: get of {name}: the object was replaced while it was read"));
        loop {
            let bounded = end.map(|end| GetRange::Bounded(at..end));
            let options = GetOptions { range: bounded, if_match: tag.clone(), ..GetOptions::default() };
            let got = match self.store.get_opts(&path, options).await {
                Ok(got) => got,
                Err(e) => match self.failed(&e) {
                    failed if tag.is_some() && failed.status == Some(412) => return Err(replaced()),
                    // An answer that was cut: requests are repeated by the client.
                    failed if failed.is_cut() && tries.again().await => continue,
                    failed => return Err(failed.into_io("get of", name)),
                },
            };
            if end.is_some_and(|end| got.range.end != end) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            end = Some(got.range.end);
            let found = got.meta.e_tag.clone().ok_or_else(crate::untagged)?;
            // Not every server heeds the condition of a get.
            if tag.replace(found.clone()).is_some_and(|tag| tag != found) {
                return Err(replaced());
            }
            let (mut pieces, begin) = (got.into_stream(), at);
            let cut = loop {
                match pieces.next().await {
                    Some(Ok(piece)) => {
                        at += piece.len() as u64;
                        sink(&piece)?;
                    }
                    Some(Err(e)) => break Some(self.failed(&e)),
                    None => break None,
                }
            };
            match cut {
                None if end == Some(at) => return Ok(Tag(found)),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(_) if end == Some(at) => return Ok(Tag(found)),
                Some(failed) => {
                    stuck = if at > begin { 0 } else { stuck + 1 };
                    if stuck == STUCK_MAX {
                        return Err(failed.into_io("get of", name));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        let path = self.path(name)?;
        if body.len() <= self.options.multipart_from {
            let put = self.store.put(&path, whole(body)?).await;
            return put.map(drop).map_err(|e| self.failed(&e).into_io("put of", name));
        }
        let mut tries = Tries { left: UPLOADS_MAX - 1, pause: PAUSE, until: None };
        loop {
            let failed = match self.put_parts(&path, body).await {
                Ok(()) => return Ok(()),
                Err(Upload::Unread(e)) => return Err(e),
                // The client has repeated the request.
                Err(Upload::Refused(failed)) if !failed.is_cut() => {
                    return Err(failed.into_io("put of", name));
                }
                // The server may have ended the upload and forgotten it: then the answer was lost.
                Err(Upload::NotEnded(failed)) if !failed.may_pass() && failed.status != Some(404) => {
                    return Err(failed.into_io("put of", name));
                }
                Err(Upload::Refused(failed) | Upload::NotEnded(failed)) => failed,
            };
            if !tries.again().await {
                return Err(failed.into_io("put of", name));
            }
        }
    }

    async fn put_parts(&self, path: &Path, body: &Body<'_>) -> Result<(), Upload> {
        let part_bytes = self.options.part_bytes.max(body.len().div_ceil(PARTS_MAX));
        let upload = self.store.put_multipart(path).await;
        let mut upload = upload.map_err(|e| Upload::Refused(self.failed(&e)))?;
        let mut at = 0;
        let mut result = Ok(());
        while at < body.len() && result.is_ok() {
            result = match part_of(body, at, part_bytes.min(body.len() - at)) {
                Ok(part) => upload.put_part(part).await.map_err(|e| Upload::Refused(self.failed(&e))),
                Err(e) => Err(Upload::Unread(e)),
            };
            at += part_bytes;
        }
        if result.is_ok() {
            result = upload.complete().await.map(drop).map_err(|e| Upload::NotEnded(self.failed(&e)));
        }
        if result.is_err()
            && let Err(e) = upload.abort().await
        {
            let why = self.failed(&e);
            tracing::debug!(why = why.text(), "an upload in parts has failed, and could not be removed");
        }
        result
    }

    /// See [`ObjectStore::put_if`]. After an answer was lost, a refusal says nothing: the object itself does.
    async fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        let path = self.path(name)?;
        let payload = whole(body)?;
        let (mut tries, mut may_be_stored) = (self.tries(), false);
        loop {
            let mode = match condition {
                Condition::Absent => PutMode::Create,
                Condition::Tagged(tag) if !is_plain(&tag.0) => return Ok(None), // no object has such a tag
                Condition::Tagged(tag) => {
                    PutMode::Update(UpdateVersion { e_tag: Some(tag.0.clone()), version: None })
                }
            };
            let failed = match self.once.put_opts(&path, payload.clone(), mode.into()).await {
                Ok(put) => return put.e_tag.map(Tag).ok_or_else(crate::untagged).map(Some),
                Err(e) => self.failed(&e),
            };
            let is_gone = matches!(condition, Condition::Tagged(_)) && failed.is_missing_object();
            if is_gone || matches!(failed.status, Some(304 | 412)) {
                return if may_be_stored { self.whose(name, &payload).await } else { Ok(None) };
            }
            // A server that answers 409 has done nothing: it had two such puts at once.
            may_be_stored |= failed.status != Some(409);
            if !failed.may_pass() || !tries.again().await {
                return Err(failed.into_io("conditional put of", name));
            }
        }
    }

    /// Finds out whether the object is the one that was put.
    async fn whose(&self, name: &str, payload: &PutPayload) -> io::Result<Option<Tag>> {
        let mut found = Vec::new();
        let mut collect = |piece: &[u8]| {
            found.extend_from_slice(piece);
            if found.len() <= payload.content_length() {
                Ok(())
            } else {
                Err(io::ErrorKind::InvalidData.into())
            }
        };
        let read = self.read(name, None, &mut collect).await;
        let is_ours = found.len() == payload.content_length() && payload.iter().flatten().eq(found.iter());
        match read {
            Ok(tag) if is_ours => Ok(Some(tag)),
            _ => Err(io::Error::other(format!(
                "S3: conditional put of {name}: the answer was lost, and the object is another one now"
            ))),
        }
    }

    async fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.path(name)?;
        let mut tries = self.tries();
        loop {
            let failed = match self.once.delete(&path).await {
                Ok(()) => return Ok(()),
                Err(e) => self.failed(&e),
            };
            if failed.is_missing_object() {
                return Ok(());
            }
            if !failed.may_pass() || !tries.again().await {
                return Err(failed.into_io("delete of", name));
            }
        }
    }

    async fn head(&self, name: &str) -> io::Result<(u64, Tag)> {
        let found = self.store.head(&self.path(name)?).await; // has no body that could be cut
        let found = found.map_err(|e| self.failed(&e).into_io("head of", name))?;
        Ok((found.size, Tag(found.e_tag.ok_or_else(crate::untagged)?)))
    }
}

/// How an upload in parts has failed.
enum Upload {
    /// The body cannot be read.
    Unread(io::Error),
    Refused(Failed),
    /// Its last request. If the answer to it was lost, the server does not know the upload any more when it is repeated.
    NotEnded(Failed),
}

fn whole(body: &Body<'_>) -> io::Result<PutPayload> {
    part_of(body, 0, body.len())
}

fn part_of(body: &Body<'_>, at: u64, len: u64) -> io::Result<PutPayload> {
    let mut bytes = Vec::new();
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    bytes.resize(len, 0);
    body.read_exact_at(&mut bytes, at)?;
    Ok(PutPayload::from(bytes))
}

impl S3Store {
    /// Returns the length and the tag of an object.
    ///
    /// # Errors
    /// `NotFound` if there is no such object; any other.
    ///
    /// ```no_run
    /// let store = tidesdb_objects::s3(tidesdb_objects::S3Options::new("my-bucket").environment()?)?;
    /// println!("{} bytes", store.head("CURRENT")?.0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn head(&self, name: &str) -> io::Result<(u64, Tag)> {
        self.wait(self.shared.head(name))
    }

    fn wait<R>(&self, future: impl Future<Output = io::Result<R>>) -> io::Result<R> {
        if std::process::id() != self.shared.process {
            return Err(io::Error::other(
                "S3: the store was opened before a fork, and the threads that it needs are in the parent",
            ));
        }
        self.shared.blocking.wait(future)
    }
}

impl ObjectStore for S3Store {
    fn put(&self, name: &str, body: &Body<'_>) -> io::Result<()> {
        self.wait(self.shared.put(name, body))
    }

    fn get(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.wait(self.shared.read(name, None, sink)).map(drop)
    }

    fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.wait(self.shared.read(name, Some(range), sink)).map(drop)
    }

    fn get_tagged(&self, name: &str, sink: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Tag> {
        self.wait(self.shared.read(name, None, sink))
    }

    fn put_if(&self, name: &str, body: &Body<'_>, condition: Condition<'_>) -> io::Result<Option<Tag>> {
        self.wait(self.shared.put_if(name, body, condition))
    }

    fn remove_unfinished(&self) -> io::Result<()> {
        self.wait(self.shared.remove_unfinished())
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        self.wait(self.shared.list())
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.wait(self.shared.delete(name))
    }
}
