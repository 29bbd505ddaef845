//! Faults between the store and the server.

#![expect(clippy::disallowed_methods, reason = "pauses are measured")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidesdb::backup::{Backups, PrunePolicy};
use tidesdb::store::{Body, Condition, Tag};
use tidesdb::{Db, ObjectStore, SyncMode};

use super::proxy::{Fault, Proxy, Request};
use super::{bytes_of, given, new_prefix, noise, options};
use crate::{S3Store, s3};

/// A number that depends on the seed and the request only.
fn chance(seed: u64, n: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.wrapping_mul(0xd1b5_4a32_d192_ed03);
    for _ in 0..3 {
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    x ^ (x >> 32)
}

/// A fault for one request in `every`.
pub(super) fn often(request: &Request, seed: u64, every: u64) -> Fault {
    let x = chance(seed, request.n);
    if !x.is_multiple_of(every) {
        return Fault::None;
    }
    let n = (x >> 16) as usize % 100_000;
    match (x / every) % 7 {
        0 => Fault::Delay(Duration::from_millis(n as u64 % 60)),
        1 => Fault::SlowDown,
        2 => Fault::CutRequest(n),
        3 => Fault::CutAnswer(n),
        4 => Fault::CutAnswer(n % 300),
        5 => Fault::LateError,
        _ => Fault::Drop,
    }
}

/// A store behind a proxy, and the same store without it.
fn behind(proxy: &Proxy) -> (S3Store, S3Store) {
    let prefix = new_prefix();
    let at = |endpoint: &str| s3(options(endpoint, &prefix).multipart(1 << 20, 0)).unwrap();
    (at(&proxy.endpoint()), at(&given("TIDESDB_S3_ENDPOINT")))
}

/// A third of all requests fail. No call does, and all results are those of a store that never fails.
#[test]
#[ignore = "needs a server"]
fn calls_go_through_faults_that_pass() {
    for seed in 1..=4 {
        let proxy = Proxy::new(move |request| often(request, seed, 3));
        let (store, direct) = behind(&proxy);
        let mut model: BTreeMap<String, (Vec<u8>, Option<Tag>)> = BTreeMap::new();
        for step in 0..120 {
            let x = chance(seed + 100, step);
            let name = format!("{}.klog", x % 5);
            let at = format!("seed {seed}, step {step}, {name}");
            let len = if x >> 8 & 15 == 0 { 7 << 20 } else { (x >> 12) as usize % 200_000 };
            match (x >> 32) % 6 {
                0 => {
                    let body = noise(x, len);
                    store.put(&name, &Body::bytes(&body)).unwrap_or_else(|e| panic!("{at}: put: {e}"));
                    model.insert(name, (body, None));
                }
                1 => {
                    store.delete(&name).unwrap_or_else(|e| panic!("{at}: delete: {e}"));
                    model.remove(&name);
                }
                2 => {
                    let found: BTreeMap<String, u64> = store
                        .list()
                        .unwrap_or_else(|e| panic!("{at}: list: {e}"))
                        .into_iter()
                        .map(|o| (o.name, o.bytes))
                        .collect();
                    let wanted =
                        model.iter().map(|(name, (body, _))| (name.clone(), body.len() as u64)).collect();
                    assert_eq!(found, wanted, "{at}");
                }
                3 => {
                    let body = noise(x, len.min(300_000));
                    let (old, condition) = match model.get(&name) {
                        Some((_, Some(tag))) => (true, Condition::Tagged(tag)),
                        other => (other.is_some(), Condition::Absent),
                    };
                    let holds = old == matches!(condition, Condition::Tagged(_));
                    let put = match store.put_if(&name, &Body::bytes(&body), condition) {
                        // Only the words of the refusal were lost.
                        Err(e) if !holds => {
                            assert!(e.to_string().contains("the answer was lost"), "{at}: {e}");
                            continue;
                        }
                        put => put.unwrap_or_else(|e| panic!("{at}: {e}")),
                    };
                    assert_eq!(put.is_some(), holds, "{at}");
                    if holds {
                        model.insert(name, (body, put));
                    }
                }
                _ => match (bytes_of(&store, &name), model.get_mut(&name)) {
                    (Ok(bytes), Some((body, tag))) => {
                        assert!(bytes == *body, "{at}");
                        *tag = Some(store.get_tagged(&name, &mut |_| Ok(())).unwrap());
                    }
                    (Err(e), None) => assert_eq!(e.kind(), io::ErrorKind::NotFound, "{at}: {e}"),
                    (got, wanted) => panic!("{at}: {:?}, {}", got.map(|b| b.len()), wanted.is_some()),
                },
            }
        }
        assert!(proxy.seen().faults.load(Ordering::Relaxed) > 40);
        for (name, (body, _)) in model {
            assert!(bytes_of(&direct, &name).unwrap() == body, "seed {seed}: {name}");
        }
    }
}

/// Makes the conditional put with the number `wanted` fail, counted from now.
fn at_put(proxy: &Proxy, wanted: u64, fault: Fault) {
    let count = AtomicU64::new(0);
    proxy.set(move |request| match request.is_conditional_put() {
        true if count.fetch_add(1, Ordering::Relaxed) == wanted => fault,
        _ => Fault::None,
    });
}

#[test]
#[ignore = "needs a server"]
fn a_lost_answer_of_a_conditional_put_is_no_conflict() {
    let proxy = Proxy::new(|_| Fault::None);
    let (store, _) = behind(&proxy);
    for (n, fault) in [
        Fault::CutAnswer(0),
        Fault::CutAnswer(40),
        Fault::LateError,
        Fault::Drop,
        Fault::SlowDown,
        Fault::CutRequest(3),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("index.{n}");
        let put = |bytes: &[u8], condition: Condition<'_>| {
            at_put(&proxy, 0, fault);
            store.put_if(&name, &Body::bytes(bytes), condition).unwrap_or_else(|e| panic!("{fault:?}: {e}"))
        };
        let first =
            put(b"first", Condition::Absent).unwrap_or_else(|| panic!("{fault:?}: it is this put's own"));
        let second =
            put(b"second", Condition::Tagged(&first)).unwrap_or_else(|| panic!("{fault:?}: its own"));
        assert_eq!(store.get_tagged(&name, &mut |_| Ok(())).unwrap(), second);
        proxy.set(|_| Fault::None);
        assert!(store.put_if(&name, &Body::bytes(b"third"), Condition::Tagged(&first)).unwrap().is_none());
        assert!(store.put_if(&name, &Body::bytes(b"third"), Condition::Absent).unwrap().is_none());
        assert_eq!(bytes_of(&store, &name).unwrap(), b"second", "{fault:?}");
    }
}

/// The put may have been carried out, and another writer has replaced the object since: neither success nor "nothing has changed".
#[test]
#[ignore = "needs a server"]
fn a_lost_answer_and_another_writer_are_an_error() {
    let proxy = Proxy::new(|_| Fault::None);
    let (store, direct) = behind(&proxy);
    let first = store.put_if("index", &Body::bytes(b"first"), Condition::Absent).unwrap().unwrap();
    let count = AtomicU64::new(0);
    proxy.set(move |request| {
        if !request.is_conditional_put() {
            return Fault::None;
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => Fault::LateError,
            _ => {
                direct.put("index", &Body::bytes(b"of another")).unwrap();
                Fault::None
            }
        }
    });
    let error = store.put_if("index", &Body::bytes(b"second"), Condition::Tagged(&first)).unwrap_err();
    assert!(error.to_string().contains("the answer was lost"), "{error}");
}

#[test]
#[ignore = "needs a server"]
fn a_read_goes_on_where_it_was_cut() {
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let proxy = Proxy::new(move |request| match &*request.method {
        "GET" if seen.fetch_add(1, Ordering::Relaxed) < 5 => Fault::CutAnswer(1 << 20),
        _ => Fault::None,
    });
    let (store, direct) = behind(&proxy);
    let body = noise(5, 12 << 20);
    direct.put("long", &Body::bytes(&body)).unwrap();
    assert!(bytes_of(&store, "long").unwrap() == body);
    assert_eq!(count.load(Ordering::Relaxed), 6);
    let down = proxy.seen().bytes_down.load(Ordering::Relaxed);
    assert!(down < 13 << 20, "{down} bytes for 12 MiB");
    count.store(0, Ordering::Relaxed);
    let mut bytes = Vec::new();
    store
        .get_range("long", 1_000_000..9_000_000, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .unwrap();
    assert!(bytes == body[1_000_000..9_000_000]);
}

#[test]
#[ignore = "needs a server"]
fn a_read_never_mixes_two_versions() {
    let proxy = Proxy::new(|_| Fault::None);
    let (store, direct) = behind(&proxy);
    let versions = [noise(1, 6 << 20), noise(2, 6 << 20)];
    direct.put("one", &Body::bytes(&versions[0])).unwrap();
    let (count, new) = (AtomicU64::new(0), versions[1].clone());
    proxy.set(move |request| {
        if request.method != "GET" {
            return Fault::None;
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => Fault::CutAnswer(3 << 20),
            _ => {
                direct.put("one", &Body::bytes(&new)).unwrap();
                Fault::None
            }
        }
    });
    let mut bytes = Vec::new();
    let read = store.get("one", &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    assert!(read.is_err(), "{} bytes", bytes.len());
    assert!(bytes[..] == versions[0][..bytes.len()]);
    assert!(bytes_of(&store, "one").unwrap() == versions[1]);
}

#[test]
#[ignore = "needs a server"]
fn a_server_that_is_busy_is_asked_less_and_less_often() {
    let is_busy = Arc::new(AtomicBool::new(true));
    let busy = Arc::clone(&is_busy);
    let proxy = Proxy::new(move |_| if busy.load(Ordering::Relaxed) { Fault::SlowDown } else { Fault::None });
    let store = s3(options(&proxy.endpoint(), &new_prefix()).retries(40)).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| store.put("one", &Body::bytes(b"x")).unwrap());
        std::thread::sleep(Duration::from_secs(3));
        is_busy.store(false, Ordering::Relaxed);
    });
    let asked = proxy.seen().puts.load(Ordering::Relaxed);
    // Without pauses there would be hundreds.
    assert!((3..=25).contains(&asked), "{asked} requests in {:?}", begin.elapsed());
}

#[test]
#[ignore = "needs a server"]
fn a_server_that_is_not_there_is_named() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let store = s3(options(&format!("http://{free}"), "p").retries(1)).unwrap();
    let error = store.put("one", &Body::bytes(b"x")).unwrap_err().to_string();
    assert!(error.contains("put of one") && error.contains("refused"), "{error}");
}

#[test]
#[ignore = "needs a server"]
fn a_server_that_ignores_conditions_is_refused() {
    let proxy = Proxy::new(|_| Fault::Lie);
    let (store, direct) = behind(&proxy);
    let temp = tempfile::tempdir().unwrap();
    let db = Db::open(temp.path()).unwrap();
    db.put("k", "v").unwrap();
    let error = Backups::new(Arc::new(store)).create(&db).unwrap_err().to_string();
    assert!(error.contains("ignores the condition"), "{error}");
    assert!(direct.list().unwrap().iter().all(|object| object.name == "backup.probe"));
}

/// A fifth of all requests fail. No generation is made by halves.
#[test]
#[ignore = "needs a server"]
fn generations_are_made_through_faults() {
    let temp = tempfile::tempdir().unwrap();
    let proxy = Proxy::new(|request| often(request, 9, 5));
    let (store, direct) = behind(&proxy);
    let db = Db::options(temp.path().join("db")).sync(SyncMode::None).open().unwrap();
    let (backups, reader) = (Backups::new(Arc::new(store)), Backups::new(Arc::new(direct)));
    let mut made = Vec::new();
    for round in 0..8u64 {
        for n in 0..200u64 {
            db.put(n.to_le_bytes(), noise(round << 32 | n, 8000)).unwrap();
        }
        made.push(backups.create(&db).unwrap().number);
        assert_eq!(reader.list().unwrap().iter().map(|one| one.number).collect::<Vec<_>>(), made);
    }
    backups.prune(&PrunePolicy::default().keep_last(3)).unwrap();
    let kept: Vec<u64> = reader.list().unwrap().iter().map(|one| one.number).collect();
    assert_eq!(kept, made[5..]);
    for (round, number) in (5u64..).zip(kept) {
        assert!(reader.verify(number).unwrap().is_ok());
        let path = temp.path().join(number.to_string());
        backups.restore(number, &path).unwrap();
        let restored = Db::open(path).unwrap();
        for n in 0..200u64 {
            assert!(*restored.get(n.to_le_bytes()).unwrap().unwrap() == noise(round << 32 | n, 8000)[..]);
        }
    }
}

/// Two writers take the store away from each other while answers are lost: each generation that counts is whole, and only one writer
/// has made it.
#[test]
#[ignore = "needs a server"]
fn lost_answers_make_no_second_writer() {
    for seed in 1..=6 {
        let temp = tempfile::tempdir().unwrap();
        let proxy = Proxy::new(move |request| {
            match request.is_conditional_put() && request.path.contains("backup.index") {
                true => [Fault::None, Fault::LateError, Fault::CutAnswer(0), Fault::None]
                    [chance(seed, request.n) as usize % 4],
                false => Fault::None,
            }
        });
        let (store, direct) = behind(&proxy);
        let db = |name: &str| {
            let db = Db::options(temp.path().join(name)).sync(SyncMode::None).open().unwrap();
            db.put("name", name).unwrap();
            db
        };
        let (one, two) = (db("one"), db("two"));
        let [first, second] = [(); 2].map(|()| Backups::new(Arc::new(store.clone())));
        assert_eq!(first.create(&one).unwrap().number, 1);
        assert_eq!(second.create(&two).unwrap().number, 2);
        // The first has lost the store, whatever it may think.
        assert!(matches!(first.create(&one), Err(tidesdb::Error::Locked { .. })), "seed {seed}");
        assert_eq!(second.create(&two).unwrap().number, 3);
        let reader = Backups::new(Arc::new(direct));
        for made in reader.list().unwrap() {
            assert!(reader.verify(made.number).unwrap().is_ok(), "seed {seed}: {}", made.number);
        }
    }
}
