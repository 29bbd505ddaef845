//! Each call, and what the address of a store means.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidesdb::ObjectStore;
use tidesdb::store::{Body, Condition};

use super::proxy::{Fault, Proxy};
use super::{bytes_of, given, new_prefix, new_store, noise, options, options_in};
use crate::{Encryption, s3};

fn names(store: &dyn ObjectStore) -> Vec<String> {
    let mut names: Vec<String> = store.list().unwrap().into_iter().map(|object| object.name).collect();
    names.sort();
    names
}

#[test]
#[ignore = "needs a server"]
fn a_store_sees_its_prefix_only() {
    let endpoint = given("TIDESDB_S3_ENDPOINT");
    let prefix = new_prefix();
    let [below, beside, inside] = [prefix.clone(), format!("{prefix}x"), format!("{prefix}/deeper")]
        .map(|p| s3(options(&endpoint, &p)).unwrap());
    below.put("CURRENT", &Body::bytes(b"below")).unwrap();
    beside.put("CURRENT", &Body::bytes(b"beside")).unwrap();
    inside.put("CURRENT", &Body::bytes(b"inside")).unwrap();
    assert_eq!(names(&below), ["CURRENT"]);
    assert_eq!(names(&beside), ["CURRENT"]);
    assert_eq!(bytes_of(&below, "CURRENT").unwrap(), b"below");
    below.delete("CURRENT").unwrap();
    assert_eq!(bytes_of(&beside, "CURRENT").unwrap(), b"beside");
    assert_eq!(names(&inside), ["CURRENT"]);
}

/// Regression test: a delete of an object without a name deleted the bucket.
#[test]
#[ignore = "needs a server"]
fn a_name_that_is_no_name_reaches_nothing() {
    let requests = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&requests);
    let proxy = Proxy::new(move |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        Fault::None
    });
    let store = s3(options(&proxy.endpoint(), &new_prefix())).unwrap();
    let all = s3(options(&proxy.endpoint(), "")).unwrap();
    store.put("CURRENT", &Body::bytes(b"x")).unwrap();
    assert_eq!(requests.load(Ordering::Relaxed), 1);
    for store in [&store, &all] {
        for name in ["", "/", "//", "a/b", "/a", "a/", ".", "..", "a\n"] {
            let done = [
                store.delete(name),
                store.put(name, &Body::bytes(b"x")),
                bytes_of(store, name).map(drop),
                store.get_range(name, 0..1, &mut |_| Ok(())),
                store.get_tagged(name, &mut |_| Ok(())).map(drop),
                store.head(name).map(drop),
                store.put_if(name, &Body::bytes(b"x"), Condition::Absent).map(drop),
            ];
            let kinds = done.map(|done| done.map_err(|e| e.kind()));
            assert_eq!(kinds, [Err(io::ErrorKind::InvalidInput); 7], "{name:?}");
        }
    }
    assert_eq!(requests.load(Ordering::Relaxed), 1, "the server was asked");
    assert_eq!(bytes_of(&store, "CURRENT").unwrap(), b"x");
}

/// Regression test: one key that the client would not give to an object, anywhere below the prefix, made each list fail.
#[test]
#[ignore = "needs a server"]
fn objects_of_others_do_not_disturb_a_list() {
    let store = new_store();
    store.put("CURRENT", &Body::bytes(b"x")).unwrap();
    store.put_foreign("x//y");
    assert_eq!(names(&store), ["CURRENT"]);
    store.remove_unfinished().unwrap_or_else(|e| assert_eq!(e.kind(), io::ErrorKind::Unsupported, "{e}"));
}

/// As above, with keys that not every server takes, and a list of several pages.
#[test]
#[ignore = "needs a server"]
fn a_list_leaves_out_what_is_no_name() {
    let page = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>a/b&amp;c=</NextContinuationToken>\
        <Contents><Key>at/p/</Key><Size>0</Size></Contents><Contents><Key>at/p/.</Key><Size>1</Size></Contents>\
        <Contents><Key>at/p/..</Key><Size>1</Size></Contents><Contents><Key>at/p/1\u{1}</Key><Size>1</Size></Contents>\
        <Contents><Key>at/p/&#x1;</Key><Size>1</Size></Contents><Contents><Key>at/q</Key><Size>1</Size></Contents>\
        <Contents><Key>at/p/one</Key><Size>7</Size></Contents></ListBucketResult>";
    let last = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>at/p/two</Key><Size>8</Size></Contents>\
        <CommonPrefixes><Prefix>at/p//</Prefix></CommonPrefixes></ListBucketResult>";
    let proxy = Proxy::new(move |request| {
        let is_below = request.path.contains("delimiter=%2F") && request.path.contains("prefix=at%2Fp%2F");
        match request.path.contains("continuation-token=a%2Fb%26c%3D") {
            _ if !is_below => Fault::Echo,
            true => Fault::Answer(last),
            false => Fault::Answer(page),
        }
    });
    let store = s3(options(&proxy.endpoint(), "at/p")).unwrap();
    assert_eq!(names(&store), ["one", "two"]);
}

/// More than one page of a list.
#[test]
#[ignore = "needs a server"]
fn a_list_has_all_objects() {
    let store = new_store();
    let wanted: Vec<String> = (0..1100).map(|n| format!("{n:06}.klog")).collect();
    std::thread::scope(|scope| {
        for part in wanted.chunks(275) {
            let store = &store;
            scope.spawn(move || part.iter().for_each(|name| store.put(name, &Body::bytes(b"x")).unwrap()));
        }
    });
    assert_eq!(names(&store), wanted);
}

#[test]
#[ignore = "needs a server"]
fn a_head_has_the_length_and_the_tag() {
    let store = new_store();
    store.put("one", &Body::bytes(b"0123456789")).unwrap();
    let (bytes, tag) = store.head("one").unwrap();
    assert_eq!(bytes, 10);
    assert_eq!(store.get_tagged("one", &mut |_| Ok(())).unwrap(), tag);
    assert!(store.put_if("one", &Body::bytes(b"two"), Condition::Tagged(&tag)).unwrap().is_some());
    assert_eq!(store.head("none").unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// A name that is not there must not look like an empty store.
#[test]
#[ignore = "needs a server"]
fn a_bucket_that_does_not_exist_is_not_an_empty_one() {
    let endpoint = given("TIDESDB_S3_ENDPOINT");
    let options = options_in("nothing-here", &endpoint, "p");
    let store = s3(options.retries(1)).unwrap();
    let error = store.put("one", &Body::bytes(b"x")).unwrap_err();
    assert_ne!(error.kind(), io::ErrorKind::NotFound, "{error}");
    assert!(store.list().is_err());
    assert!(store.put_if("one", &Body::bytes(b"x"), Condition::Absent).is_err());
}

#[test]
#[ignore = "needs a server"]
fn calls_may_be_made_inside_of_other_runtimes() {
    let store = new_store();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let inner = store.clone();
    runtime.block_on(async move {
        inner.put("one", &Body::bytes(b"within")).unwrap();
        // More polls than the budget of a task allows.
        for _ in 0..200 {
            assert_eq!(bytes_of(&inner, "one").unwrap(), b"within");
        }
        drop(inner);
        drop(new_store()); // the last handle of a store, inside
    });
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let inner = store.clone();
    threads.block_on(async { tokio::spawn(async move { inner.delete("one").unwrap() }).await.unwrap() });
    futures::executor::block_on(async { store.put("two", &Body::bytes(b"x")).unwrap() });
    assert_eq!(names(&store), ["two"]);
}

#[test]
#[ignore = "needs a server"]
fn a_sink_that_fails_ends_the_call_with_its_error() {
    let store = new_store();
    store.put("one", &Body::bytes(&noise(1, 3 << 20))).unwrap();
    let mut pieces = 0;
    let stopped = store.get("one", &mut |_| {
        pieces += 1;
        Err(io::Error::new(io::ErrorKind::StorageFull, "no more"))
    });
    assert_eq!((stopped.unwrap_err().kind(), pieces), (io::ErrorKind::StorageFull, 1));
}

#[test]
#[ignore = "needs a server"]
fn settings_reach_the_server() {
    let kms = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&kms);
    let proxy = Proxy::new(move |request| {
        let asks = request.head.contains("x-amz-server-side-encryption: aws:kms")
            && request.head.contains("x-amz-server-side-encryption-aws-kms-key-id: the-key");
        seen.fetch_add(u64::from(asks), Ordering::Relaxed);
        Fault::None
    });
    let with = options(&proxy.endpoint(), &new_prefix());
    let store = s3(with.clone().encryption(Encryption::Kms(Some("the-key".into())))).unwrap();
    let _ = store.put("one", &Body::bytes(b"x")); // the server may have no keys
    assert_eq!(kms.load(Ordering::Relaxed), 1);

    // Parts of the length that was asked for: 5 MiB, and one more.
    let parts = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&parts);
    proxy.set(move |request| {
        seen.fetch_add(u64::from(request.path.contains("partNumber=")), Ordering::Relaxed);
        Fault::None
    });
    let body = noise(7, (5 << 20) + 1);
    let store = s3(with.clone().multipart(6 << 20, 0)).unwrap();
    store.put("whole", &Body::bytes(&body)).unwrap();
    assert_eq!(parts.load(Ordering::Relaxed), 0);
    let store = s3(with.multipart(1 << 20, 0)).unwrap();
    store.put("parts", &Body::bytes(&body)).unwrap();
    assert_eq!(parts.load(Ordering::Relaxed), 2);
    assert!(bytes_of(&store, "parts").unwrap() == body);
}

#[test]
#[ignore = "needs a server"]
fn a_server_that_does_not_answer_is_given_up() {
    let proxy = Proxy::new(|_| Fault::Delay(Duration::from_secs(5)));
    let options = options(&proxy.endpoint(), &new_prefix()).timeout(Duration::from_millis(200)).retries(1);
    let error = s3(options).unwrap().put("one", &Body::bytes(b"x")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

/// Uploads that a process left when it ended.
#[test]
#[ignore = "needs a server that lists uploads"]
fn unfinished_uploads_are_removed_below_the_prefix_only() {
    let (store, other) = (new_store(), new_store());
    for n in 0..3 {
        store.begin_upload(&format!("{n}.klog"));
    }
    other.begin_upload("1.klog");
    assert_eq!((store.unfinished(), other.unfinished()), (3, 1));
    store.remove_unfinished().unwrap();
    assert_eq!((store.unfinished(), other.unfinished()), (0, 1));
    other.remove_unfinished().unwrap();
}
