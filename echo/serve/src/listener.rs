//! A listener that takes a bounded number of connections, and lets go of those on which nothing happens.
//!
//! A connection over the bound is accepted and closed at once, and counted: its sender learns immediately that it has to
//! come back, where a full backlog would look to it like a host that is gone, and nobody would know of it here.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use echo_ingest::memory_account::Peer;

/// Pause after the system refused a connection, as it does when the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// What a listener lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenConfig {
    /// Most connections at the same time; further ones are closed.
    pub max_connections: u32,
    /// Most requests that one HTTP/2 connection may have open.
    pub max_streams: u32,
    /// A connection on which no byte has come or gone for so long is closed.
    pub idle: Duration,
    /// Longest time for the headers of a request over HTTP/1, and until they begin on a connection that is kept open.
    pub headers: Duration,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            max_connections: 8_192,
            max_streams: 128,
            idle: Duration::from_mins(2),
            headers: Duration::from_secs(30),
        }
    }
}

/// What a listener has seen. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Connections(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    open: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
    idle: AtomicU64,
    failed_handshakes: AtomicU64,
}

impl Connections {
    /// Open at the moment.
    pub fn open(&self) -> u64 {
        self.0.open.load(Relaxed)
    }

    /// Let in since the start.
    pub fn accepted(&self) -> u64 {
        self.0.accepted.load(Relaxed)
    }

    /// Closed at once because there were too many, since the start.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// Closed because nothing happened on them, since the start.
    pub fn idle(&self) -> u64 {
        self.0.idle.load(Relaxed)
    }

    /// Closed because no encryption was agreed on, since the start.
    pub fn failed_handshakes(&self) -> u64 {
        self.0.failed_handshakes.load(Relaxed)
    }

    /// Counts one of them.
    pub(super) fn saw_failed_handshake(&self) {
        self.0.failed_handshakes.fetch_add(1, Relaxed);
    }
}

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    config: ListenConfig,
    places: Arc<Semaphore>,
    connections: Connections,
    /// After the system refused a connection.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Listener {
    /// Lets in what `config` allows and counts in `connections`.
    pub fn new(listener: TcpListener, config: ListenConfig, connections: Connections) -> Self {
        Self {
            listener,
            config,
            places: Arc::new(Semaphore::new(config.max_connections as usize)),
            connections,
            pause: None,
        }
    }

    /// What it lets in.
    pub const fn config(&self) -> ListenConfig {
        self.config
    }

    /// Waits for the next connection.
    pub async fn accept(&mut self) -> Connection {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Connection> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, address)) => {
                    if let Some(connection) = self.admit(stream, address) {
                        return Poll::Ready(connection);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    self.pause = Some(Box::pin(sleep(PAUSE)));
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, address: SocketAddr) -> Option<Connection> {
        let counts = &self.connections.0;
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            // The first of a storm is news, the others are counted.
            if counts.refused.fetch_add(1, Relaxed) == 0 {
                let most = self.config.max_connections;
                tracing::warn!(
                    "a connection was closed: {most} are open, which is --max-connections"
                );
            }
            return None;
        };
        // An answer of a few bytes must not wait for the acknowledgement of the packet before. Without it the
        // connection works all the same.
        let _slower = stream.set_nodelay(true);
        counts.accepted.fetch_add(1, Relaxed);
        counts.open.fetch_add(1, Relaxed);
        Some(Connection {
            stream,
            peer: Peer(address),
            idle: self.config.idle,
            silence: Box::pin(sleep(self.config.idle)),
            open: Open(self.connections.clone()),
            _place: place,
        })
    }
}

/// A connection that ends when nothing happens on it.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    peer: Peer,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    open: Open,
    _place: OwnedSemaphorePermit,
}

/// Counts down when it is dropped.
#[derive(Debug)]
struct Open(Connections);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}

impl Connection {
    /// The other end.
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// What its listener has seen.
    pub const fn connections(&self) -> &Connections {
        &self.open.0
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause"
    )]
    fn heard(&mut self) {
        let until = Instant::now() + self.idle;
        self.silence.as_mut().reset(until);
    }

    /// Whether it has been silent for too long; wakes the task when it will have been.
    fn is_silent(&mut self, cx: &mut Context<'_>) -> bool {
        let is_silent = self.silence.as_mut().poll(cx).is_ready();
        if is_silent {
            self.open.0.0.idle.fetch_add(1, Relaxed);
        }
        is_silent
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            self.heard();
        } else if self.is_silent(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        if written.is_ready() {
            self.heard();
        } else if self.is_silent(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        if written.is_ready() {
            self.heard();
        } else if self.is_silent(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
