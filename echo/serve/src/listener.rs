//! A TCP listener with a limit on connections, which closes idle ones.
//!
//! A connection over the limit is accepted, closed at once and counted: the client learns
//! immediately that it has to retry, whereas a full backlog would look like an unreachable host and
//! would not be visible in metrics.

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

/// Pause after accept fails, for example because too many files are open.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Limits of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenConfig {
    /// Most concurrent connections; further ones are closed.
    pub max_connections: u32,
    /// Most concurrent streams of one HTTP/2 connection.
    pub max_streams: u32,
    /// Time without traffic after which a connection is closed.
    pub idle: Duration,
    /// Longest time for the headers of an HTTP/1 request, and for the next request on a kept-alive
    /// connection.
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

/// Connection counts of a listener. Clones share them.
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
    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        self.0.open.load(Relaxed)
    }

    /// Returns the number of accepted connections since the start.
    pub fn accepted(&self) -> u64 {
        self.0.accepted.load(Relaxed)
    }

    /// Returns the number of connections closed at the limit since the start.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }

    /// Returns the number of idle connections closed since the start.
    pub fn idle(&self) -> u64 {
        self.0.idle.load(Relaxed)
    }

    /// Returns the number of failed TLS handshakes since the start.
    pub fn failed_handshakes(&self) -> u64 {
        self.0.failed_handshakes.load(Relaxed)
    }

    /// Counts a failed TLS handshake.
    pub(super) fn count_failed_handshake(&self) {
        self.0.failed_handshakes.fetch_add(1, Relaxed);
    }
}

/// A bound listener.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    config: ListenConfig,
    permits: Arc<Semaphore>,
    connections: Connections,
    /// Pause after a failed accept.
    backoff: Option<Pin<Box<Sleep>>>,
}

impl Listener {
    /// Applies the limits of `config` and counts in `connections`.
    pub fn new(listener: TcpListener, config: ListenConfig, connections: Connections) -> Self {
        Self {
            listener,
            config,
            permits: Arc::new(Semaphore::new(config.max_connections as usize)),
            connections,
            backoff: None,
        }
    }

    /// Returns the limits.
    pub const fn config(&self) -> ListenConfig {
        self.config
    }

    /// Waits for the next connection.
    pub async fn accept(&mut self) -> Connection {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<Connection> {
        loop {
            if let Some(backoff) = &mut self.backoff {
                ready!(backoff.as_mut().poll(cx));
                self.backoff = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, address)) => {
                    if let Some(connection) = self.admit(stream, address) {
                        return Poll::Ready(connection);
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    self.backoff = Some(Box::pin(sleep(ACCEPT_BACKOFF)));
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, address: SocketAddr) -> Option<Connection> {
        let counts = &self.connections.0;
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            // Only the first one is logged, the others are counted.
            if counts.refused.fetch_add(1, Relaxed) == 0 {
                let limit = self.config.max_connections;
                tracing::warn!(
                    "connection closed: {limit} are open, the limit of --max-connections"
                );
            }
            return None;
        };
        // Small responses must not wait for an earlier packet's acknowledgement. Failure only makes
        // the connection slower.
        let _slower = stream.set_nodelay(true);
        counts.accepted.fetch_add(1, Relaxed);
        counts.open.fetch_add(1, Relaxed);
        Some(Connection {
            stream,
            peer: Peer(address),
            idle: self.config.idle,
            idle_timer: Box::pin(sleep(self.config.idle)),
            open: OpenGuard(self.connections.clone()),
            _place: permit,
        })
    }
}

/// A connection that is closed when idle.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    peer: Peer,
    idle: Duration,
    idle_timer: Pin<Box<Sleep>>,
    open: OpenGuard,
    _place: OwnedSemaphorePermit,
}

/// Decrements the count of open connections on drop.
#[derive(Debug)]
struct OpenGuard(Connections);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Relaxed);
    }
}

impl Connection {
    /// Returns the address of the client.
    pub const fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the counts of its listener.
    pub const fn connections(&self) -> &Connections {
        &self.open.0
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the runtime's time, which tests can pause"
    )]
    fn reset_idle_timer(&mut self) {
        let until = Instant::now() + self.idle;
        self.idle_timer.as_mut().reset(until);
    }

    /// Returns whether the idle timeout has passed, else registers a wakeup for it.
    fn is_idle(&mut self, cx: &mut Context<'_>) -> bool {
        let is_idle = self.idle_timer.as_mut().poll(cx).is_ready();
        if is_idle {
            self.open.0.0.idle.fetch_add(1, Relaxed);
        }
        is_idle
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
            self.reset_idle_timer();
        } else if self.is_idle(cx) {
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
            self.reset_idle_timer();
        } else if self.is_idle(cx) {
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
            self.reset_idle_timer();
        } else if self.is_idle(cx) {
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
