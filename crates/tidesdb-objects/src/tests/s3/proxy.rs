//! A proxy between the store and the server that delays, cuts, refuses and repeats on request.
//!
//! One request at a time on each connection, and a connection to the server for each. The answer is read whole before any of it is passed on.

#![expect(clippy::disallowed_methods, reason = "the proxy has threads of its own")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing.
    None,
    Delay(Duration),
    /// The answer is 503 `SlowDown`, and the server sees nothing.
    SlowDown,
    /// The server sees so many bytes of the body, then both connections are cut.
    CutRequest(usize),
    /// The server has carried the request out; so many bytes of its answer arrive.
    CutAnswer(usize),
    /// The server has carried the request out; the answer is 500.
    LateError,
    /// The connection is cut before anything was read.
    Drop,
    /// A server that ignores conditions: what it refuses by one is answered as if it were done.
    Lie,
    /// The answer is 403, and repeats the whole request.
    Echo,
    /// The answer is 200 with this body, and the server sees nothing.
    Answer(&'static str),
}

/// A request as the policy sees it.
#[derive(Debug)]
pub(super) struct Request {
    /// Number of the request, from 0.
    pub(super) n: u64,
    pub(super) method: String,
    /// With the query.
    pub(super) path: String,
    /// The whole head, in lower case.
    pub(super) head: String,
}

impl Request {
    /// A put that the server must refuse unless something holds.
    pub(super) fn is_conditional_put(&self) -> bool {
        self.method == "PUT" && (self.head.contains("\nif-match:") || self.head.contains("\nif-none-match:"))
    }
}

type Policy = Arc<dyn Fn(&Request) -> Fault + Send + Sync>;

/// Requests and bytes that went through.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) puts: AtomicU64,
    pub(super) gets: AtomicU64,
    pub(super) others: AtomicU64,
    pub(super) faults: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
}

struct Inner {
    server: SocketAddr,
    policy: Mutex<Policy>,
    is_closed: AtomicBool,
    next: AtomicU64,
    /// Requests on their way.
    running: AtomicU64,
    seen: Seen,
}

/// The proxy; it ends when it is dropped.
pub(super) struct Proxy {
    address: SocketAddr,
    inner: Arc<Inner>,
}

impl Proxy {
    pub(super) fn new(policy: impl Fn(&Request) -> Fault + Send + Sync + 'static) -> Self {
        let server = super::given("TIDESDB_S3_ENDPOINT");
        let server = server.trim_start_matches("http://").parse().unwrap();
        let inner = Arc::new(Inner {
            server,
            policy: Mutex::new(Arc::new(policy)),
            is_closed: AtomicBool::new(false),
            next: AtomicU64::new(0),
            running: AtomicU64::new(0),
            seen: Seen::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_closed.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { continue };
                shared.running.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    let _ = shared.serve(stream); // a connection that was cut
                    shared.running.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address, inner }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until no connection is open: those of a process that was killed may still be carried out.
    pub(super) fn settle(&self) {
        for idle in 1.. {
            thread::sleep(Duration::from_millis(20));
            if self.inner.running.load(Ordering::SeqCst) == 0 && idle > 3 {
                return;
            }
        }
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.inner.seen
    }

    pub(super) fn set(&self, policy: impl Fn(&Request) -> Fault + Send + Sync + 'static) {
        *self.inner.policy.lock().unwrap() = Arc::new(policy);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.inner.is_closed.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the listener
    }
}

const SLOW_DOWN: &str = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>";
const INTERNAL: &str = "<?xml version=\"1.0\"?><Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>";

fn answer(stream: &mut TcpStream, status: &str, body: &str) -> io::Result<()> {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

impl Inner {
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let Some((head, mut body)) = read_head(&mut stream)? else { return Ok(()) };
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        let mut words = head.split_whitespace();
        let mut word = || words.next().unwrap_or_default().to_owned();
        let request = Request { n, method: word(), path: word(), head: head.to_lowercase() };
        let policy = Arc::clone(&self.policy.lock().unwrap());
        let fault = policy(&request);
        self.count(&request, fault);
        match fault {
            Fault::Drop => return Ok(()),
            Fault::Delay(time) => thread::sleep(time),
            _ => {}
        }
        let len = request.head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let len: usize = len.map_or(0, |len| len.trim().parse().unwrap());
        let wanted = if let Fault::CutRequest(n) = fault { n.min(len) } else { len };
        let mut rest = vec![0; wanted.saturating_sub(body.len())];
        stream.read_exact(&mut rest)?;
        body.extend(rest);
        body.truncate(wanted);
        self.seen.bytes_up.fetch_add(body.len() as u64, Ordering::Relaxed);
        if fault == Fault::SlowDown {
            return answer(&mut stream, "503 Slow Down", SLOW_DOWN);
        }
        if let Fault::Answer(body) = fault {
            return answer(&mut stream, "200 OK", body);
        }
        if fault == Fault::Echo {
            let body = format!(
                "<Error><Code>Refused</Code><Message>{head}</Message><StringToSign>{head}</StringToSign></Error>"
            );
            return answer(&mut stream, "403 Forbidden", &body);
        }
        let mut server = TcpStream::connect(self.server)?;
        let (first, rest) = head.split_once("\r\n").unwrap();
        let rest: Vec<&str> =
            rest.split("\r\n").filter(|line| !line.to_lowercase().starts_with("connection:")).collect();
        server
            .write_all(format!("{first}\r\nconnection: close\r\n{}\r\n\r\n", rest.join("\r\n")).as_bytes())?;
        server.write_all(&body)?;
        if let Fault::CutRequest(_) = fault {
            return Ok(());
        }
        let mut found = Vec::new();
        server.read_to_end(&mut found)?;
        if fault == Fault::LateError {
            return answer(&mut stream, "500 Internal Server Error", INTERNAL);
        }
        if fault == Fault::Lie && found.starts_with(b"HTTP/1.1 412") {
            let done = b"HTTP/1.1 200 OK\r\netag: \"0123\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            return stream.write_all(done);
        }
        let keep =
            if let Fault::CutAnswer(n) = fault { n.min(found.len().saturating_sub(1)) } else { found.len() };
        self.seen.bytes_down.fetch_add(keep as u64, Ordering::Relaxed);
        stream.write_all(&found[..keep])?;
        stream.shutdown(Shutdown::Write)
    }

    fn count(&self, request: &Request, fault: Fault) {
        let counter = match &*request.method {
            "PUT" | "POST" => &self.seen.puts,
            "GET" => &self.seen.gets,
            _ => &self.seen.others,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.seen.faults.fetch_add(u64::from(fault != Fault::None), Ordering::Relaxed);
    }
}

/// Reads the head of a request, without the empty line at its end, and what was read beyond it. `None` if the connection ends first.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = all.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = all.split_off(end + 4);
            all.truncate(end);
            return Ok(Some((String::from_utf8_lossy(&all).into_owned(), rest)));
        }
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            n => all.extend_from_slice(&piece[..n]),
        }
    }
}
