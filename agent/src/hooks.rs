//! A local socket that tells remediation hooks when a process of this host begins or ceases to hold itself to be a straggler.
//!
//! Every connected client gets one line of JSON for each event; a new one first gets the events that still hold. The agent
//! never waits for a client: each has a bounded queue, and whoever falls behind is cut off, to connect and begin anew.

mod events;
mod socket;

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fleet_agent_core::batch::VerdictBatch;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::hooks::events::Board;
use crate::hooks::socket::Socket;

/// Lines that may wait for a client. A host has some sixteen processes, and each changes its mind once in a while.
const QUEUE: usize = 256;

/// Clients at the same time; a hook or two are usual.
const MAX_CLIENTS: usize = 32;

/// How long a client may take for what it is given.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long clients have at the end to take what waits for them.
const GRACE: Duration = Duration::from_secs(1);

/// How long nobody is let in after the system has refused to.
const PAUSE: Duration = Duration::from_millis(100);

/// Why the socket cannot be served.
#[derive(Debug, Error)]
pub enum HookError {
    /// Somebody answers there.
    #[error(
        "{path} is served by another agent; stop that one or give this one another --hook-socket"
    )]
    InUse {
        /// The socket.
        path: String,
    },
    /// There is something else in its place.
    #[error("{path} is no socket; remove it or choose another --hook-socket")]
    NotASocket {
        /// What is there.
        path: String,
    },
    /// The system refused.
    #[error("cannot listen on {path}: {source}")]
    Refused {
        /// The socket.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// How the clients of the socket fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HookCounts {
    /// Clients that are connected.
    pub connected: u64,
    /// Clients that were cut off because they fell behind.
    pub dropped: u64,
    /// Clients that were turned away because there were too many.
    pub refused: u64,
}

/// Where verdicts are told to the clients. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hooks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Locked while its lines are passed on, too, so that a new client misses none and gets none twice.
    board: Mutex<Board>,
    lines: Sender<Arc<str>>,
    connected: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

impl Hooks {
    /// Tells what processes hold of themselves.
    pub fn tell(&self, batch: &VerdictBatch) {
        self.pass_on(|board| board.tell(batch));
    }

    /// Tells that a process has ended, at `time_ns` in Unix nanoseconds: it no longer holds anybody up.
    pub fn gone(&self, pid: u32, time_ns: u64) {
        self.pass_on(|board| board.gone(pid, time_ns).into_iter().collect());
    }

    /// How the clients fare.
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
            board: Mutex::default(),
            lines: Sender::new(QUEUE),
            connected: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }))
    }

    fn pass_on(&self, change: impl FnOnce(&mut Board) -> Vec<String>) {
        let mut board = self.0.board.lock().unwrap_or_else(PoisonError::into_inner);
        for line in change(&mut board) {
            // Without clients nobody takes it.
            let _nobody = self.0.lines.send(line.into());
        }
        drop(board);
    }

    /// What holds now, and all that comes after it.
    fn subscribe(&self) -> (String, Receiver<Arc<str>>) {
        let board = self.0.board.lock().unwrap_or_else(PoisonError::into_inner);
        let both = (board.held(), self.0.lines.subscribe());
        drop(board);
        both
    }
}

/// The socket, before and while it is served. It is removed when this is dropped.
#[derive(Debug)]
pub struct HookServer {
    socket: Socket,
    hooks: Hooks,
}

impl HookServer {
    /// Makes the socket, for its owner and group. One that a dead agent has left is replaced.
    pub async fn bind(path: &Path) -> Result<Self, HookError> {
        Ok(Self {
            socket: Socket::bind(path).await?,
            hooks: Hooks::new(),
        })
    }

    /// Where verdicts are to be told.
    pub fn hooks(&self) -> Hooks {
        self.hooks.clone()
    }

    /// Serves until `stop` ends, then lets clients take what waits for them.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let (stopping, stopped) = watch::channel(());
        let mut clients = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.socket.accept() => match accepted {
                    Ok(stream) if clients.len() < MAX_CLIENTS => {
                        clients.spawn(one(stream, self.hooks.clone(), stopped.clone()));
                    }
                    Ok(_one_too_many) => {
                        self.hooks.0.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => {
                        tracing::warn!("the hook socket lets nobody in: {error}");
                        sleep(PAUSE).await;
                    }
                },
                // Clients that have gone are forgotten.
                Some(_gone) = clients.join_next() => {}
            }
        }
        stopping.send_replace(());
        let all_gone = async { while clients.join_next().await.is_some() {} };
        let _impatient = timeout(GRACE, all_gone).await;
    }
}

/// One client, until it goes or is cut off.
async fn one(stream: UnixStream, hooks: Hooks, stopped: watch::Receiver<()>) {
    hooks.0.connected.fetch_add(1, Ordering::Relaxed);
    if matches!(served(stream, &hooks, stopped).await, Err(TooSlow)) {
        hooks.0.dropped.fetch_add(1, Ordering::Relaxed);
        tracing::warn!("a client of the hook socket fell behind and was cut off");
    }
    hooks.0.connected.fetch_sub(1, Ordering::Relaxed);
}

/// The client did not take its lines in time.
struct TooSlow;

async fn served(
    stream: UnixStream,
    hooks: &Hooks,
    mut stopped: watch::Receiver<()>,
) -> Result<(), TooSlow> {
    let (mut silence, mut client) = stream.into_split();
    let (held, mut lines) = hooks.subscribe();
    let mut is_there = write(&mut client, &held).await?;
    let mut ignored = [0; 256];
    while is_there {
        tokio::select! {
            biased;
            line = lines.recv() => is_there = match line {
                Ok(line) => write(&mut client, &line).await?,
                Err(broadcast::error::RecvError::Lagged(_)) => return Err(TooSlow),
                Err(broadcast::error::RecvError::Closed) => false,
            },
            // Clients have nothing to say, but this is how their going shows.
            read = silence.read(&mut ignored) => is_there = read.is_ok_and(|n| n > 0),
            _stop = stopped.changed() => is_there = false,
        }
    }
    Ok(())
}

/// Whether the client is still there.
async fn write(client: &mut OwnedWriteHalf, text: &str) -> Result<bool, TooSlow> {
    match timeout(PATIENCE, client.write_all(text.as_bytes())).await {
        Ok(written) => Ok(written.is_ok()),
        Err(_elapsed) => Err(TooSlow),
    }
}

#[cfg(test)]
mod tests;
