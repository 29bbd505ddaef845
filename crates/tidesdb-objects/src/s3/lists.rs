//! Lists of the server, page by page: of objects, and of uploads that were begun and not ended.
//!
//! The client has no call for the second one. Its call for the first one fails if there is an object whose name it would not give to one,
//! such as `x//y`, anywhere below the prefix.

use std::io;
use std::sync::atomic::Ordering;

use http::StatusCode;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use object_store::multipart::MultipartStore;
use tidesdb::store::Object;

use super::Shared;
use super::failure::{Failed, tagged};

/// Encodes a value of a query.
fn encoded(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A page of a list of objects.
#[derive(Debug, PartialEq, Eq)]
struct Objects {
    /// Keys and lengths. A key that cannot be read is `None`.
    all: Vec<(Option<String>, u64)>,
    next: Option<String>,
}

impl Objects {
    fn read(body: &str) -> Option<Self> {
        let end = body.rfind("</ListBucketResult>")?;
        let one = |text: &str| Some((text_of(tagged(text, "Key")?), tagged(text, "Size")?.parse().ok()?));
        let all: Option<Vec<_>> = body[..end].split("<Contents>").skip(1).map(one).collect();
        let next = match tagged(body, "IsTruncated") == Some("true") {
            true => Some(text_of(tagged(body, "NextContinuationToken")?)?),
            false => None,
        };
        Some(Self { all: all?, next })
    }
}

/// A page of a list of uploads.
pub(super) struct Uploads {
    /// Objects and identifiers of uploads, without those that cannot be read.
    pub(super) all: Vec<(String, String)>,
    next: Option<(String, String)>,
}

impl Uploads {
    fn read(body: &str) -> Option<Self> {
        let of = |text: &str, tag: &str| tagged(text, tag).and_then(text_of);
        let end = body.rfind("</ListMultipartUploadsResult>")?;
        let uploads = body[..end].split("<Upload>").skip(1);
        let all = uploads.filter_map(|text| Some((of(text, "Key")?, of(text, "UploadId")?))).collect();
        let next = match tagged(body, "IsTruncated") == Some("true") {
            true => Some((of(body, "NextKeyMarker")?, of(body, "NextUploadIdMarker")?)),
            false => None,
        };
        Some(Self { all, next })
    }
}

/// Returns the text that is written with references in XML; `None` if there are others than those of its five characters.
fn text_of(written: &str) -> Option<String> {
    let mut pieces = written.split('&');
    let mut text = pieces.next()?.to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(';')?;
        text.push(match name {
            "lt" => '<',
            "gt" => '>',
            "quot" | "#34" | "#x22" => '"',
            "apos" | "#39" | "#x27" => '\'',
            "amp" | "#38" | "#x26" => '&',
            _ => return None,
        });
        text.push_str(rest);
    }
    Some(text)
}

impl Shared {
    /// What the keys of this store begin with.
    fn below(&self) -> String {
        match self.prefix.as_ref() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        }
    }

    /// Lists the objects of the store. What is deeper belongs to another store.
    pub(super) async fn list(&self) -> io::Result<Vec<Object>> {
        const CALL: &str = "list of objects below";
        let below = self.below();
        let (mut all, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("delimiter", "/"), ("list-type", "2"), ("prefix", &*below)];
            if let Some(token) = &next {
                query.push(("continuation-token", token.as_str()));
            }
            let page = self.ask(CALL, &below, query, Objects::read).await?;
            for (key, bytes) in page.all {
                let name = key.as_deref().and_then(|key| key.strip_prefix(&*below));
                match name {
                    Some("") => {} // a folder that a console has made
                    Some(name) if self.path(name).is_ok() => {
                        all.push(Object { name: name.to_owned(), bytes });
                    }
                    _ => self.note_foreign(),
                }
            }
            match page.next {
                Some(token) => next = Some(token),
                None => return Ok(all),
            }
        }
    }

    /// Says once that there are objects whose names no store of this module gives.
    fn note_foreign(&self) {
        if !self.has_foreign.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                place = self.place,
                "objects that are not of this store lie among its own, and are left alone"
            );
        }
    }

    /// Aborts the uploads below the prefix.
    pub(super) async fn remove_unfinished(&self) -> io::Result<()> {
        let below = self.below();
        let mut marker = None;
        loop {
            let page = self.uploads(&below, marker.as_ref()).await?;
            for (key, id) in &page.all {
                // What is deeper belongs to another store.
                let path = key.strip_prefix(&*below).and_then(|name| self.path(name).ok());
                let Some(path) = path else { continue };
                if let Err(e) = self.store.abort_multipart(&path, id).await {
                    let failed = self.failed(&e);
                    // It has ended since.
                    if !failed.is_missing_object() {
                        return Err(failed.into_io("end of the upload of", path.as_ref()));
                    }
                }
            }
            match page.next {
                Some(next) => marker = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Reads one page of the list of uploads.
    pub(super) async fn uploads(
        &self,
        below: &str,
        marker: Option<&(String, String)>,
    ) -> io::Result<Uploads> {
        let mut query = vec![("prefix", below), ("uploads", "")];
        if let Some((key, id)) = marker {
            query.extend([("key-marker", &**key), ("upload-id-marker", &**id)]);
        }
        self.ask("list of unfinished uploads below", below, query, Uploads::read).await
    }

    /// Asks the bucket something, and reads the answer. A request that fails in a way that may pass is repeated.
    async fn ask<R>(
        &self,
        call: &str,
        below: &str,
        mut query: Vec<(&str, &str)>,
        read: impl Fn(&str) -> Option<R>,
    ) -> io::Result<R> {
        query.sort_unstable();
        let query: Vec<String> =
            query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let uri = format!("{}?{}", self.bucket_address()?, query.join("&"));
        let mut tries = self.tries();
        loop {
            let of_client = |e: object_store::Error| self.failed(&e).into_io(call, below);
            let credential = self.store.credentials().get_credential().await.map_err(of_client)?;
            let region = self.options.region.as_deref().unwrap_or("us-east-1");
            let request = http::Request::get(&uri).body(HttpRequestBody::empty());
            let mut request = request.map_err(|e| of_client(generic(e)))?;
            AwsAuthorizer::new(&credential, "s3", region)
                .try_authorize(&mut request, None)
                .map_err(of_client)?;
            let failed = match self.answer(request).await {
                Ok(body) => match read(&body) {
                    Some(page) => return Ok(page),
                    None => Failed::answered(StatusCode::OK, &body, &self.secrets),
                },
                Err(failed) => failed,
            };
            if !failed.may_pass() || !tries.again().await {
                return Err(failed.into_io(call, below));
            }
        }
    }

    /// Sends a request once. Returns the body of the answer.
    async fn answer(&self, request: http::Request<HttpRequestBody>) -> Result<String, Failed> {
        let answer = self.http.execute(request).await.map_err(|e| self.failed(&generic(e)))?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(|e| self.failed(&generic(e)))?;
        let body = String::from_utf8_lossy(&body);
        match status {
            StatusCode::OK => Ok(body.into_owned()),
            status => Err(Failed::answered(status, &body, &self.secrets)),
        }
    }

    fn bucket_address(&self) -> io::Result<String> {
        let options = &self.options;
        let region = options.region.as_deref().unwrap_or("us-east-1");
        Ok(match (options.address()?, options.virtual_host) {
            (Some(address), true) => format!("{address}/"),
            (Some(address), false) => format!("{address}/{}", options.bucket),
            (None, true) => format!("https://{}.s3.{region}.amazonaws.com/", options.bucket),
            (None, false) => format!("https://s3.{region}.amazonaws.com/{}", options.bucket),
        })
    }
}

fn generic(e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: e.into() }
}

/// What tests need beside.
#[cfg(test)]
impl super::S3Store {
    /// Begins an upload in parts, and leaves it.
    pub(crate) fn begin_upload(&self, name: &str) {
        let path = self.shared.path(name).expect("a name");
        self.shared.blocking.wait(self.shared.store.create_multipart(&path)).expect("an upload");
    }

    /// Returns the number of unfinished uploads below the prefix, as far as the first page has them.
    pub(crate) fn unfinished(&self) -> usize {
        self.wait(self.shared.uploads(&self.shared.below(), None)).expect("a list").all.len()
    }

    /// Puts an object whose key the client would not give to one.
    pub(crate) fn put_foreign(&self, key: &str) {
        let shared = &self.shared;
        let uri = format!("{}/{}{key}", shared.bucket_address().expect("an address"), shared.below());
        let put = async {
            let credential = shared.store.credentials().get_credential().await.expect("credentials");
            let mut request = http::Request::put(&uri).body(HttpRequestBody::empty()).expect("a request");
            let region = shared.options.region.as_deref().unwrap_or("us-east-1");
            AwsAuthorizer::new(&credential, "s3", region).try_authorize(&mut request, None).expect("signed");
            shared.answer(request).await
        };
        shared.blocking.wait(put).expect("an object");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name><Prefix>at/</Prefix>\
        <NextContinuationToken>1/&amp;=</NextContinuationToken><IsTruncated>true</IsTruncated>\
        <Contents><Key>at/CURRENT</Key><Size>7</Size></Contents><Contents><Key>at/a&amp;&lt;b&gt;&#34;&apos;</Key>\
        <ETag>&quot;x&quot;</ETag><Size>0</Size></Contents><Contents><Key>at/&#x1;</Key><Size>1</Size></Contents>\
        <CommonPrefixes><Prefix>at//</Prefix></CommonPrefixes></ListBucketResult>";

    #[test]
    fn a_page_of_objects_is_read_whatever_their_names_are() {
        let page = Objects::read(FULL).unwrap();
        let keys = [(Some("at/CURRENT".into()), 7), (Some("at/a&<b>\"'".into()), 0), (None, 1)];
        assert_eq!(page, Objects { all: keys.to_vec(), next: Some("1/&=".into()) });
        let last = Objects::read(&FULL.replace("true", "false")).unwrap();
        assert_eq!(last.next, None);
        let empty =
            Objects::read("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>").unwrap();
        assert!(empty.all.is_empty());
    }

    /// A list that is not whole must not pass for one with fewer objects.
    #[test]
    fn a_page_that_is_not_whole_is_none() {
        for len in 0..FULL.len() {
            assert_eq!(Objects::read(&FULL[..len]), None, "{len}");
        }
        for missing in ["<Key>", "</Key>", "<Size>", "<NextContinuationToken>"] {
            assert_eq!(Objects::read(&FULL.replace(missing, "")), None, "{missing}");
        }
    }
}
