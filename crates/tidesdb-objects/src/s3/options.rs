//! Where a bucket is, and how it is reached.

use std::fmt::{self, Debug};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// S3 refuses shorter parts, except for the last one.
pub(super) const PART_MIN: u64 = 5 << 20;
/// S3 refuses uploads in more parts.
pub(super) const PARTS_MAX: u64 = 10_000;
/// S3 refuses longer bodies in one request.
pub(super) const PUT_MAX: u64 = 5 << 30;

/// Who encrypts objects before the server writes them to its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// What the bucket has as its default.
    #[default]
    OfBucket,
    /// The server, with keys of its own (SSE-S3, `AES256`).
    Server,
    /// The server, with a key of its key service (SSE-KMS, `aws:kms`): this one, or the default key of the account.
    Kms(Option<String>),
}

/// A bucket, a prefix in it, and how the server is reached.
///
/// Credentials are taken from the first of these places that has some: [`S3Options::keys`]; `AWS_ACCESS_KEY_ID` and
/// `AWS_SECRET_ACCESS_KEY`, with `AWS_SESSION_TOKEN`; the profile `AWS_PROFILE`, or else `default`, of the files
/// `AWS_SHARED_CREDENTIALS_FILE` (`~/.aws/credentials`) and `AWS_CONFIG_FILE` (`~/.aws/config`), if it has keys; the web identity of
/// `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`; the address of a container's credentials; the metadata of the instance. Neither single
/// sign-on, nor a role or a program that a profile names, is followed.
///
/// ```
/// use tidesdb_objects::S3Options;
///
/// let options = S3Options::new("my-bucket").prefix("backups/shop").region("eu-central-1").keys("AKIA123", "hush", None);
/// assert!(!format!("{options:?}").contains("hush"));
/// ```
#[derive(Clone)]
pub struct S3Options {
    pub(super) bucket: String,
    pub(super) prefix: String,
    pub(super) endpoint: Option<String>,
    pub(super) region: Option<String>,
    pub(super) virtual_host: bool,
    pub(super) allow_http: bool,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) skip_verify: bool,
    pub(super) encryption: Encryption,
    pub(super) keys: Option<Keys>,
    pub(super) connect_timeout: Duration,
    pub(super) timeout: Duration,
    pub(super) retries: u32,
    pub(super) multipart_from: u64,
    pub(super) part_bytes: u64,
}

/// Credentials. Nothing shows them.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) token: Option<String>,
}

impl Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl Debug for S3Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Options")
            .field("bucket", &shown(&self.bucket))
            .field("prefix", &self.prefix)
            .field("endpoint", &self.endpoint.as_deref().map(without_user))
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

/// Returns an address without a user and a password in it.
fn without_user(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

/// Returns whether a text can be a part of the head of a request.
pub(super) fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (0x21..0x7f).contains(&byte))
}

/// A bucket or an address, if it has no place for a password.
fn shown(text: &str) -> &str {
    if text.contains(['@', ':']) { "it" } else { text }
}

/// The error of a setting.
pub(super) fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what.into())
}

impl S3Options {
    /// A bucket of Amazon S3, all of it, with the usual settings.
    pub fn new(bucket: impl Into<String>) -> Self {
        Self {
            bucket: bucket.into(),
            prefix: String::new(),
            endpoint: None,
            region: None,
            virtual_host: false,
            allow_http: false,
            ca_file: None,
            skip_verify: false,
            encryption: Encryption::OfBucket,
            keys: None,
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            retries: 10,
            multipart_from: 8 << 20,
            part_bytes: 8 << 20,
        }
    }

    /// The bucket and the prefix of an address `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// `InvalidInput` for any other text.
    ///
    /// ```
    /// use tidesdb_objects::S3Options;
    ///
    /// assert!(S3Options::from_url("s3://my-bucket/backups/shop").is_ok());
    /// assert!(S3Options::from_url("http://my-bucket").is_err());
    /// ```
    pub fn from_url(url: &str) -> io::Result<Self> {
        let place = url
            .strip_prefix("s3://")
            .ok_or_else(|| wrong("the address of a bucket is s3://BUCKET/PREFIX"))?;
        if place.split('/').next().is_some_and(|bucket| bucket.contains(['@', ':'])) {
            return Err(wrong("the address of a bucket has no keys: they come from the environment"));
        }
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        Ok(Self::new(bucket).prefix(prefix))
    }

    /// Takes the settings that the tools of AWS read from the environment, where it has them: `AWS_ENDPOINT_URL_S3` or
    /// `AWS_ENDPOINT_URL`, `AWS_REGION` or `AWS_DEFAULT_REGION`, `AWS_CA_BUNDLE`; and, with the names that other programs use,
    /// `AWS_ALLOW_HTTP` (`true`), `AWS_VIRTUAL_HOSTED_STYLE_REQUEST` (`true`), `AWS_SERVER_SIDE_ENCRYPTION` (`AES256` or `aws:kms`) and
    /// `AWS_SSE_KMS_KEY_ID`.
    ///
    /// # Errors
    /// `InvalidInput` for another kind of encryption, and for a key without `aws:kms`.
    ///
    /// ```
    /// use tidesdb_objects::S3Options;
    ///
    /// let options = S3Options::new("my-bucket").environment()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn environment(self) -> io::Result<Self> {
        self.variables(&|name| std::env::var(name).ok())
    }

    /// [`S3Options::environment`], from any environment.
    pub(super) fn variables(mut self, get: &dyn Fn(&str) -> Option<String>) -> io::Result<Self> {
        let get = |names: &[&str]| names.iter().filter_map(|name| get(name)).find(|value| !value.is_empty());
        let is_set =
            |name: &str| get(&[name]).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
        self.endpoint = get(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).or(self.endpoint);
        self.region = get(&["AWS_REGION", "AWS_DEFAULT_REGION"]).or(self.region);
        self.ca_file = get(&["AWS_CA_BUNDLE"]).map(PathBuf::from).or(self.ca_file);
        self.allow_http |= is_set("AWS_ALLOW_HTTP");
        self.virtual_host |= is_set("AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
        let key = get(&["AWS_SSE_KMS_KEY_ID"]);
        match get(&["AWS_SERVER_SIDE_ENCRYPTION"]).as_deref() {
            Some("AES256") | None if key.is_some() => {
                return Err(wrong("AWS_SSE_KMS_KEY_ID needs AWS_SERVER_SIDE_ENCRYPTION=aws:kms"));
            }
            None => {}
            Some("AES256") => self.encryption = Encryption::Server,
            Some("aws:kms") => self.encryption = Encryption::Kms(key),
            Some(other) => {
                return Err(wrong(format!(
                    "AWS_SERVER_SIDE_ENCRYPTION is {other}; AES256 and aws:kms are possible"
                )));
            }
        }
        Ok(self)
    }

    /// What the names of all objects begin with, followed by a slash. Other prefixes of the bucket are not touched.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Address of the server, such as `https://s3.example.org:9000`. Without one, it is Amazon S3 in the region.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Region of the bucket. Default: `us-east-1`.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = Some(region.into());
        self
    }

    /// If set, the bucket is a part of the host's name. Default: the first part of the path.
    pub fn virtual_host(mut self, virtual_host: bool) -> Self {
        self.virtual_host = virtual_host;
        self
    }

    /// Allows an address that begins with `http://`: data and signatures are not encrypted on their way.
    pub fn allow_http(mut self, allow: bool) -> Self {
        self.allow_http = allow;
        self
    }

    /// A file of PEM certificates that are trusted beside those of the system.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// Trusts any certificate: whoever is between the two can read and change everything. For tests.
    pub fn skip_verify(mut self, skip: bool) -> Self {
        self.skip_verify = skip;
        self
    }

    /// Who encrypts objects on the server. Default: as the bucket says.
    pub fn encryption(mut self, encryption: Encryption) -> Self {
        self.encryption = encryption;
        self
    }

    /// Credentials, instead of those of the environment.
    pub fn keys(mut self, id: impl Into<String>, secret: impl Into<String>, token: Option<String>) -> Self {
        self.keys = Some(Keys { id: id.into(), secret: secret.into(), token });
        self
    }

    /// Longest time to connect. Default: 5 seconds.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// Longest time for a request to be sent and answered, and between two pieces of an answer. Default: 60 seconds.
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// How often a request is repeated after a failure that may pass, with pauses from 0.1 to 15 seconds. Default: 10.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Bodies longer than `from` bytes are uploaded in parts of `part` bytes. Default: 8 MiB both. At least 5 MiB; longer parts are used
    /// where there would be more than 10,000.
    pub fn multipart(mut self, from: u64, part: u64) -> Self {
        self.multipart_from = from.min(PUT_MAX);
        self.part_bytes = part.clamp(PART_MIN, PUT_MAX);
        self
    }

    /// Returns the address of the bucket's server as the client wants it; `None` for Amazon S3.
    pub(super) fn address(&self) -> io::Result<Option<String>> {
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let (scheme, rest) = endpoint.split_once("://").ok_or_else(|| {
            wrong(format!("the endpoint {} needs https:// or http:// before it", without_user(endpoint)))
        })?;
        let rest = rest.trim_end_matches('/');
        match scheme {
            _ if rest.contains('@') => {
                return Err(wrong("the endpoint must not have a user or a password in it"));
            }
            "https" => {}
            "http" if self.allow_http => {}
            "http" => {
                return Err(wrong(format!(
                    "the endpoint {endpoint} is not encrypted, which is not allowed by the options"
                )));
            }
            other => return Err(wrong(format!("{other} is no scheme of an endpoint"))),
        }
        Ok(Some(if self.virtual_host {
            format!("{scheme}://{}.{rest}", self.bucket)
        } else {
            format!("{scheme}://{rest}")
        }))
    }

    /// Checks what the client would take without a word.
    pub(super) fn check(&self) -> io::Result<()> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if self.bucket.is_empty() || !self.bucket.chars().all(is_name) {
            return Err(wrong(format!("{} is no name of a bucket", shown(&self.bucket))));
        }
        let key = match &self.encryption {
            Encryption::Kms(key) => key.as_deref(),
            _ => None,
        };
        for (what, value) in [("region", self.region.as_deref()), ("key for encryption", key)] {
            if value.is_some_and(|value| !is_plain(value)) {
                return Err(wrong(format!("the {what} has a space, or a character that no name has")));
            }
        }
        if let Some(address) = self.address()? {
            let uri = address.parse::<http::Uri>().ok();
            let is_right = |server: &http::uri::Authority| {
                let has_port = server.as_str() != server.host();
                !server.host().is_empty() && (!has_port || server.port_u16().is_some())
            };
            if !uri.as_ref().and_then(http::Uri::authority).is_some_and(is_right) {
                return Err(wrong(format!("{} is no address of a server", without_user(&address))));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(options: S3Options) -> String {
        let refused = options.check().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        refused.to_string()
    }

    #[test]
    fn what_no_request_can_have_is_refused() {
        let with = |endpoint: &str| S3Options::new("b").endpoint(endpoint);
        for wrong in
            ["https://h:99999", "https://h:", "https://[::1", "https://a b", "https://", "h:9000", "ftp://h"]
        {
            refused(with(wrong));
        }
        for right in ["https://h", "https://h:9000", "https://[::1]:9000/", "https://h/path"] {
            with(right).check().unwrap();
        }
        refused(with("http://h"));
        with("http://h").allow_http(true).check().unwrap();
        refused(S3Options::new("b").region("eu\n"));
        refused(S3Options::new("b").encryption(Encryption::Kms(Some("a key".into()))));
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        assert!(!S3Options::from_url("s3://KEY:hush@b/x").unwrap_err().to_string().contains("hush"));
        let options = S3Options::new("KEY:hush@bucket");
        assert!(!format!("{options:?}").contains("hush") && !refused(options).contains("hush"));
        assert!(!S3Options::from_url("https://KEY:hush@h/b").unwrap_err().to_string().contains("hush"));
        let with = S3Options::new("b").endpoint("https://u:hu@sh@h");
        assert!(!format!("{with:?}").contains("sh@") && !refused(with).contains("sh@"));
    }
}
