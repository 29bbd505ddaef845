//! The connections between nodes: a proxy on loopback for each pair, which can be cut or slowed down.

use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a connection lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Open,
    /// Connections break, and new ones are closed at once.
    Cut,
    /// Nothing arrives, and nobody is told.
    Silent,
    /// Each piece takes so much longer.
    Slow(Duration),
}

/// The way from one node to another one.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) address: String,
    link: Arc<watch::Sender<Link>>,
}

impl Proxy {
    /// Starts the way to `target`.
    pub(crate) async fn start(target: String) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let link = Arc::new(watch::channel(Link::Open).0);
        let changes = Arc::clone(&link);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if *changes.borrow() != Link::Cut {
                    tokio::spawn(carry(stream, target.clone(), changes.subscribe()));
                }
            }
        });
        Ok(Self { address, link })
    }

    pub(crate) fn set(&self, link: Link) {
        self.link.send_replace(link);
    }
}

/// Carries one connection until an end closes it or it is cut.
async fn carry(from: TcpStream, target: String, mut link: watch::Receiver<Link>) {
    let Ok(to) = TcpStream::connect(target).await else { return };
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    tokio::select! {
        _ = pump(from_read, to_write, link.clone()) => {}
        _ = pump(to_read, from_write, link.clone()) => {}
        _ = link.wait_for(|link| *link == Link::Cut) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut link: watch::Receiver<Link>,
) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        let now = *link.borrow_and_update();
        match now {
            Link::Slow(delay) => tokio::time::sleep(delay).await,
            Link::Silent if link.wait_for(|link| *link != Link::Silent).await.is_err() => return Ok(()),
            _ => {}
        }
        to.write_all(&buffer[..read]).await?;
    }
}
