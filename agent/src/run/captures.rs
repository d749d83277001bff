//! Files about processes that do nothing, made by a task of its own when the policy names their ranks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use fleet_agent_core::captured_file::CapturedFile;
use fleet_agent_sources::process::Processes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

use crate::capture::Capture;
use crate::config::{RasArgs, RasMode};
use crate::ras::{RasLimits, answer_of, default_address, listen_address};

/// Maximum number of processes that wait for their turn: a missing rank and a peer, of a few jobs.
const MAX_QUEUED: usize = 8;
/// Time before files about the same process are made again, nanoseconds.
const AGAIN_NS: u64 = 600_000_000_000;
/// Largest answer of NCCL's RAS subsystem that is read, bytes.
const MAX_ANSWER: u64 = 4 << 20;
const PROC: &str = "/proc";

/// Process to make files about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    pid: u32,
    rank: u32,
}

/// Requests, and the files that were made.
#[derive(Debug)]
pub(super) struct Captures {
    requests: mpsc::Sender<Request>,
    made: mpsc::Receiver<(u32, Vec<CapturedFile>)>,
    requested_ns: BTreeMap<u32, u64>,
}

/// Task that makes the files, one process after the other.
#[derive(Debug)]
pub(super) struct CaptureTask {
    requests: mpsc::Receiver<Request>,
    made: mpsc::Sender<(u32, Vec<CapturedFile>)>,
    processes: Processes,
    /// Where NCCL's RAS subsystem listens unless the job says otherwise; `None` where it is not queried.
    ras: Option<SocketAddr>,
}

/// Creates both sides.
pub(super) fn captures(ras: &RasArgs, processes: Processes) -> (Captures, CaptureTask) {
    let (requests, requested) = mpsc::channel(MAX_QUEUED);
    let (maker, made) = mpsc::channel(MAX_QUEUED);
    let captures = Captures {
        requests,
        made,
        requested_ns: BTreeMap::new(),
    };
    let task = CaptureTask {
        requests: requested,
        made: maker,
        processes,
        ras: match ras.mode {
            RasMode::Off => None,
            RasMode::Auto => Some(default_address()),
            RasMode::At(address) => Some(address),
        },
    };
    (captures, task)
}

impl Captures {
    /// Requests files about the process of a rank, unless some were requested less than ten minutes ago.
    pub(super) fn request(&mut self, (pid, rank): (u32, u32), now_ns: u64) {
        self.requested_ns
            .retain(|_, since_ns| now_ns.saturating_sub(*since_ns) < AGAIN_NS);
        // The policy names the rank again where too many wait.
        if !self.requested_ns.contains_key(&pid)
            && self.requests.try_send(Request { pid, rank }).is_ok()
        {
            tracing::info!(
                pid,
                rank,
                "reading the state of a process that does nothing"
            );
            self.requested_ns.insert(pid, now_ns);
        }
    }

    /// Returns the files that were made since the last call, by process.
    pub(super) fn take(&mut self) -> Vec<(u32, Vec<CapturedFile>)> {
        std::iter::from_fn(|| self.made.try_recv().ok()).collect()
    }
}

impl CaptureTask {
    /// Makes what is requested, until the other side is gone.
    pub(super) async fn run(mut self) {
        while let Some(Request { pid, rank }) = self.requests.recv().await {
            let made = self.make(pid, rank).await;
            let files = made.unwrap_or_else(|error| {
                tracing::error!(pid, "cannot read the state of a process: {error}");
                Vec::new()
            });
            if self.made.send((pid, files)).await.is_err() {
                break;
            }
        }
    }

    async fn make(&self, pid: u32, rank: u32) -> Result<Vec<CapturedFile>, JoinError> {
        // Reading a process that hangs can take long.
        let mut capture = spawn_blocking(move || {
            let mut capture = Capture::default();
            capture.add_threads(Path::new(PROC), pid);
            Handle::current().block_on(capture.add_flight_recorder(Path::new(PROC), pid, rank));
            capture
        })
        .await?;
        if let Some(address) = self.ras {
            let limits = RasLimits {
                max_bytes: MAX_ANSWER,
                ..RasLimits::default()
            };
            let place = self.processes.placement(pid).unwrap_or_default();
            let address = place
                .ras_address
                .as_deref()
                .and_then(listen_address)
                .unwrap_or(address);
            capture.add_ras(answer_of(pid, address, limits, PROC.into()).await);
        }
        Ok(capture.finish())
    }
}
