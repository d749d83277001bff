//! Unix socket that notifies remediation hooks when a process of this host becomes or ceases to be
//! a straggler by its own verdict.
//!
//! Every connected client gets one line of JSON per event; a new client first gets the events that
//! are still active. The agent never waits for a client: each has a bounded queue, and a client
//! that falls behind is disconnected and can reconnect.

mod events;

use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet_agent_core::batch::VerdictBatch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::hooks::events::ActiveEvents;
use crate::socket::{Socket, SocketError};

/// Lines queued per client. A host has about sixteen processes, whose verdicts change rarely.
const QUEUE: usize = 256;

/// Maximum number of clients at the same time; one or two hooks are usual.
const MAX_CLIENTS: usize = 32;

/// Timeout of a write to a client.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for clients to read their queued lines at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after `accept` has failed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Counters of the socket's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookCounts {
    /// Clients connected now.
    pub connected: u64,
    /// Clients disconnected because they fell behind.
    pub dropped: u64,
    /// Clients refused because there were too many.
    pub refused: u64,
}

/// Publishes verdicts to the clients. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hooks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Locked while the lines are published as well, so that a new client gets each line exactly
    /// once.
    active: Mutex<ActiveEvents>,
    lines: Sender<Arc<str>>,
    connected: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

impl Hooks {
    /// Publishes verdicts.
    pub fn publish(&self, batch: &VerdictBatch) {
        self.broadcast_lines(|active| active.record(batch));
    }

    /// Publishes that a process has ended, at `time_ns` in Unix nanoseconds, if it was a straggler.
    pub fn process_ended(&self, pid: u32, time_ns: u64) {
        self.broadcast_lines(|active| active.remove(pid, time_ns).into_iter().collect());
    }

    /// Returns the counters of the clients.
    pub fn counts(&self) -> HookCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HookCounts {
            connected: count(&self.0.connected),
            dropped: count(&self.0.dropped),
            refused: count(&self.0.refused),
        }
    }

    fn new() -> Self {
        Self(Arc::new(Shared {
            active: Mutex::default(),
            lines: Sender::new(QUEUE),
            connected: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    fn broadcast_lines(&self, change: impl FnOnce(&mut ActiveEvents) -> Vec<String>) {
        let mut active = self.0.active.lock().unwrap_or_else(PoisonError::into_inner);
        for line in change(&mut active) {
            // Fails when no client is connected.
            let _no_clients = self.0.lines.send(line.into());
        }
        drop(active);
    }

    /// Returns the lines of active events, and a receiver of all later lines.
    fn subscribe(&self) -> (String, Receiver<Arc<str>>) {
        let active = self.0.active.lock().unwrap_or_else(PoisonError::into_inner);
        let both = (active.lines(), self.0.lines.subscribe());
        drop(active);
        both
    }
}

/// Listening socket. Its file is removed on drop.
#[derive(Debug)]
pub struct HookServer {
    socket: Socket,
    hooks: Hooks,
}

impl HookServer {
    /// Creates the socket, for its owner and group. A stale socket of an earlier agent is replaced.
    pub async fn bind(path: &Path) -> Result<Self, SocketError> {
        Ok(Self {
            socket: Socket::bind(path, "--hook-socket").await?,
            hooks: Hooks::new(),
        })
    }

    /// Returns the publisher of verdicts.
    pub fn hooks(&self) -> Hooks {
        self.hooks.clone()
    }

    /// Serves until `stop` resolves, then lets clients read their queued lines.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let (stopping, stopped) = watch::channel(());
        let mut clients = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.socket.accept() => match accepted {
                    Ok(stream) if clients.len() < MAX_CLIENTS => {
                        clients.spawn(serve_client(stream, self.hooks.clone(), stopped.clone()));
                    }
                    Ok(_over_limit) => {
                        self.hooks.0.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => {
                        tracing::warn!("hook socket cannot accept a connection: {error}");
                        sleep(ACCEPT_RETRY_DELAY).await;
                    }
                },
                // Reaps the tasks of disconnected clients.
                Some(_closed) = clients.join_next() => {}
            }
        }
        stopping.send_replace(());
        let all_gone = async { while clients.join_next().await.is_some() {} };
        let _timed_out = timeout(SHUTDOWN_TIMEOUT, all_gone).await;
    }
}

/// Serves one client until it disconnects or falls behind.
async fn serve_client(stream: UnixStream, hooks: Hooks, stopped: watch::Receiver<()>) {
    hooks.0.connected.fetch_add(1, Ordering::Relaxed);
    if matches!(write_lines(stream, &hooks, stopped).await, Err(TooSlow)) {
        hooks.0.dropped.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("hook socket client fell behind and was disconnected");
    }
    hooks.0.connected.fetch_sub(1, Ordering::Relaxed);
}

/// The client did not read its lines in time.
struct TooSlow;

async fn write_lines(
    stream: UnixStream,
    hooks: &Hooks,
    mut stopped: watch::Receiver<()>,
) -> Result<(), TooSlow> {
    let (mut reader, mut client) = stream.into_split();
    let (active, mut lines) = hooks.subscribe();
    let mut is_connected = write(&mut client, &active).await?;
    let mut ignored = [0; 256];
    while is_connected {
        tokio::select! {
            biased;
            line = lines.recv() => is_connected = match line {
                Ok(line) => write(&mut client, &line).await?,
                Err(broadcast::error::RecvError::Lagged(_)) => return Err(TooSlow),
                Err(broadcast::error::RecvError::Closed) => false,
            },
            // Clients send nothing; the read only detects that they have disconnected.
            read = reader.read(&mut ignored) => is_connected = read.is_ok_and(|n| n > 0),
            _stop = stopped.changed() => is_connected = false,
        }
    }
    Ok(())
}

/// Writes to the client; false when it has disconnected.
async fn write(client: &mut OwnedWriteHalf, text: &str) -> Result<bool, TooSlow> {
    match timeout(WRITE_TIMEOUT, client.write_all(text.as_bytes())).await {
        Ok(written) => Ok(written.is_ok()),
        Err(_elapsed) => Err(TooSlow),
    }
}

#[cfg(test)]
mod tests;
