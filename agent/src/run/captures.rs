//! Files about processes that do nothing, made when the policy names their ranks.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use fleet_agent_core::batch::Resource;
use fleet_agent_core::captured_file::CapturedFile;
use fleet_agent_sources::process::Processes;
use tokio::runtime;
use tokio::sync::mpsc;

use crate::capture::Capture;
use crate::config::{RasArgs, RasMode};
use crate::ras::{RasLimits, RasSource, default_address, listen_address};

/// Maximum number of processes that are read at a time: missing ranks and a peer of each.
const MAX_THREADS: usize = 8;
/// Maximum number of messages with files that wait: a process has three.
const MAX_QUEUED: usize = 4 * MAX_THREADS;
/// Time before files about the same process are made again, nanoseconds.
const AGAIN_NS: u64 = 600_000_000_000;
/// Largest answer of NCCL's RAS subsystem that is read, bytes.
const MAX_ANSWER: u64 = 4 << 20;
const PROC: &str = "/proc";

/// Files about one process.
pub(super) type Made = (Resource, Vec<CapturedFile>);

/// Requests, and the files that were made.
#[derive(Debug)]
pub(super) struct Captures {
    maker: Maker,
    made: mpsc::Receiver<Made>,
    requested_ns: BTreeMap<u32, u64>,
    /// Lives as long as a thread that makes files.
    running: Arc<()>,
}

/// Makes the files about one process.
#[derive(Debug, Clone)]
struct Maker {
    made: mpsc::Sender<Made>,
    processes: Processes,
    /// Where NCCL's RAS subsystem listens unless the job says otherwise; `None` where it is not queried.
    ras: Option<SocketAddr>,
}

impl Captures {
    /// Without a request.
    pub(super) fn new(ras: &RasArgs, processes: Processes) -> Self {
        let (sender, made) = mpsc::channel(MAX_QUEUED);
        let maker = Maker {
            made: sender,
            processes,
            ras: match ras.mode {
                RasMode::Off => None,
                RasMode::Auto => Some(default_address()),
                RasMode::At(address) => Some(address),
            },
        };
        Self {
            maker,
            made,
            requested_ns: BTreeMap::new(),
            running: Arc::default(),
        }
    }

    /// Requests files about a process, unless some were requested less than ten minutes ago.
    ///
    /// A process that hangs can block those who read it, so each has a thread of its own, which nothing
    /// waits for.
    pub(super) fn request(&mut self, resource: Resource, now_ns: u64) {
        let pid = resource.pid;
        self.requested_ns
            .retain(|_, since_ns| now_ns.saturating_sub(*since_ns) < AGAIN_NS);
        if self.requested_ns.contains_key(&pid) {
            return;
        }
        if Arc::strong_count(&self.running) > MAX_THREADS {
            tracing::warn!(
                pid,
                "too many processes that do nothing: this one is not read"
            );
            return;
        }
        self.requested_ns.insert(pid, now_ns);
        tracing::info!(
            pid,
            rank = resource.rank,
            "reading the state of a process that does nothing"
        );
        let (maker, running) = (self.maker.clone(), Arc::clone(&self.running));
        let make = move || {
            if let Err(error) = maker.make(&resource) {
                tracing::warn!(pid, "cannot read the state of a process: {error}");
            }
            drop(running);
        };
        if let Err(error) = thread::Builder::new()
            .name("capture".to_owned())
            .spawn(make)
        {
            tracing::warn!(pid, "cannot read the state of a process: {error}");
        }
    }

    /// Returns the files that were made since the last call.
    pub(super) fn take(&mut self) -> Vec<Made> {
        std::iter::from_fn(|| self.made.try_recv().ok()).collect()
    }
}

impl Maker {
    /// Makes the files, and passes each on at once: the next one may take long.
    fn make(&self, resource: &Resource) -> io::Result<()> {
        let (pid, proc) = (resource.pid, Path::new(PROC));
        let mut capture = Capture::default();
        capture.add_threads(proc, pid);
        self.pass_on(resource, &mut capture);
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // Found out now: the process may end while its dump is waited for.
        let ras = self.ras_source(pid);
        runtime.block_on(async {
            capture.add_flight_recorder(proc, pid, resource.rank).await;
            self.pass_on(resource, &mut capture);
            if let Some(ras) = ras {
                let limits = RasLimits {
                    max_bytes: MAX_ANSWER,
                    ..RasLimits::default()
                };
                capture.add_ras(ras.answer(limits, PROC.into()).await);
            }
        });
        capture.finish();
        self.pass_on(resource, &mut capture);
        Ok(())
    }

    fn ras_source(&self, pid: u32) -> Option<RasSource> {
        let default = self.ras?;
        let place = self.processes.placement(pid).unwrap_or_default();
        let named = place.ras_address.as_deref().and_then(listen_address);
        RasSource::of(Path::new(PROC), pid, named.unwrap_or(default))
    }

    fn pass_on(&self, resource: &Resource, capture: &mut Capture) {
        let made = (resource.clone(), capture.take());
        if let Err(error) = self.made.try_send(made) {
            tracing::warn!(
                pid = resource.pid,
                "files about a process are lost: {error}"
            );
        }
    }
}
