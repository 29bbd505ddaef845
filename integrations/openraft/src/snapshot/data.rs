//! What openraft reads when it sends a snapshot, and writes when it receives one.

use super::source::{Part, Reading, Source};
use crate::group::Receiving;
use crate::stores::failed;
use std::fmt::{self, Debug};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidesdb::Result;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A snapshot of a state machine: the `SnapshotData` of a type configuration.
///
/// One that is sent makes its bytes from the database while it is read, and holds one block of them, 1 MiB or one row, whichever is longer.
/// One that is received is a file, which is removed with this value.
///
/// A network of the program's own must write what it receives to the result of `Raft::begin_receiving_snapshot`. A sent value that is handed to
/// `Raft::install_full_snapshot` of another node as it is may end that node with an error: its purge does not see it arrive.
pub struct SnapshotData {
    content: Content,
}

enum Content {
    Sent(Sent),
    Received(Received),
}

struct Sent {
    source: Arc<Source>,
    part: Part,
    position: u64,
    /// A seek that waits for the length: the offset from the end.
    from_end: Option<i64>,
    work: Option<JoinHandle<Result<Step>>>,
}

/// Result of a call on a blocking thread.
enum Step {
    Part(Part),
    Length(u64),
}

struct Received {
    // Closed before the file is removed.
    file: File,
    path: Removed,
    receiving: Receiving,
}

/// Removes the file at its end.
struct Removed {
    path: PathBuf,
    /// The end is on a blocking thread. Otherwise one removes the file: that of a large one takes its time.
    may_wait: bool,
}

impl Drop for Removed {
    fn drop(&mut self) {
        let path = std::mem::take(&mut self.path);
        let remove = move || {
            let _ = std::fs::remove_file(path); // what is left is removed by the next open
        };
        match Handle::try_current() {
            Ok(runtime) if !self.may_wait => drop(runtime.spawn_blocking(remove)),
            _ => remove(),
        }
    }
}

impl Debug for SnapshotData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.content {
            Content::Sent(_) => "SnapshotData(sent)",
            Content::Received(_) => "SnapshotData(received)",
        })
    }
}

impl SnapshotData {
    pub(crate) fn sent(source: Arc<Source>) -> Self {
        let part = Part { offset: 0, bytes: Vec::new() };
        Self { content: Content::Sent(Sent { source, part, position: 0, from_end: None, work: None }) }
    }

    /// Creates the file at `path`.
    pub(crate) async fn received(path: PathBuf, receiving: Receiving) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(&path).await;
        let file = file.map_err(|e| failed("create", &path, e))?;
        let path = Removed { path, may_wait: false };
        Ok(Self { content: Content::Received(Received { file, path, receiving }) })
    }

    /// Returns what reads it from its beginning on a blocking thread.
    pub(crate) async fn into_reader(self) -> Result<Box<dyn Read + Send>> {
        match self.content {
            Content::Sent(sent) => Ok(Box::new(Reading::new(sent.source))),
            Content::Received(Received { mut file, mut path, receiving }) => {
                let flushed = file.flush().await;
                flushed.map_err(|e| failed("write", &path.path, e))?;
                let mut file = file.into_std().await;
                file.rewind().map_err(|e| failed("read", &path.path, e))?;
                path.may_wait = true;
                let file = BufReader::with_capacity(1 << 18, file);
                Ok(Box::new(ReadFile { file, _path: path, _receiving: receiving }))
            }
        }
    }
}

/// Reads a received snapshot, and removes it at the end.
struct ReadFile {
    file: BufReader<std::fs::File>,
    _path: Removed,
    _receiving: Receiving,
}

impl Read for ReadFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl Sent {
    /// Continues the call on a blocking thread, or starts `next`.
    fn poll_work(
        &mut self,
        cx: &mut Context<'_>,
        next: impl FnOnce(Arc<Source>) -> Result<Step> + Send + 'static,
    ) -> Poll<io::Result<Step>> {
        let source = &self.source;
        let work = self.work.get_or_insert_with(|| {
            let source = Arc::clone(source);
            tokio::task::spawn_blocking(move || next(source))
        });
        let done = ready!(Pin::new(work).poll(cx));
        self.work = None;
        Poll::Ready(match done {
            Ok(step) => step.map_err(io::Error::from),
            Err(e) => Err(io::Error::other(e)),
        })
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // A seek may have come meanwhile, so a part may be another one than is needed now; at the end there is no more.
        for _ in 0..2 {
            let rest = self.part.from(self.position);
            if !rest.is_empty() {
                let read = rest.len().min(buffer.remaining());
                buffer.put_slice(&rest[..read]);
                self.position += read as u64;
                return Poll::Ready(Ok(()));
            }
            let position = self.position;
            if let Step::Part(part) =
                ready!(self.poll_work(cx, move |source| source.part(position).map(Step::Part)))?
            {
                self.part = part;
            }
        }
        let rest = self.part.from(self.position);
        let read = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..read]);
        self.position += read as u64;
        Poll::Ready(Ok(()))
    }

    fn start_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => {
                self.from_end = Some(by);
                return Ok(());
            }
        };
        self.from_end = None;
        self.position = position.ok_or_else(before_the_start)?;
        Ok(())
    }

    fn poll_complete(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        while let Some(by) = self.from_end {
            if let Step::Length(length) =
                ready!(self.poll_work(cx, |source| source.length().map(Step::Length)))?
            {
                self.from_end = None;
                self.position = length.checked_add_signed(by).ok_or_else(before_the_start)?;
            }
        }
        Poll::Ready(Ok(self.position))
    }
}

fn before_the_start() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "a seek before the start")
}

impl AsyncRead for SnapshotData {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.content {
            Content::Sent(sent) => sent.poll_read(cx, buffer),
            Content::Received(received) => Pin::new(&mut received.file).poll_read(cx, buffer),
        }
    }
}

impl AsyncSeek for SnapshotData {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        match &mut self.content {
            Content::Sent(sent) => sent.start_seek(to),
            Content::Received(received) => Pin::new(&mut received.file).start_seek(to),
        }
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        match &mut self.content {
            Content::Sent(sent) => sent.poll_complete(cx),
            Content::Received(received) => Pin::new(&mut received.file).poll_complete(cx),
        }
    }
}

impl AsyncWrite for SnapshotData {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.content {
            Content::Sent(_) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a snapshot that is sent is not written",
            ))),
            Content::Received(received) => Pin::new(&mut received.file).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.content {
            Content::Sent(_) => Poll::Ready(Ok(())),
            Content::Received(received) => Pin::new(&mut received.file).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.content {
            Content::Sent(_) => Poll::Ready(Ok(())),
            Content::Received(received) => Pin::new(&mut received.file).poll_shutdown(cx),
        }
    }
}
