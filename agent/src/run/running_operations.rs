//! Operations that the GPUs of processes which do nothing are in: read from the memory of the NCCL profiler
//! plugin until two readings agree, so that they are of no particular moment.

use std::collections::BTreeMap;
use std::io;
use std::thread;

use fleet_agent_sources::live::{InFlight, InFlightTable};
use fleet_agent_sources::process::Processes;
use tokio::sync::mpsc;

/// Least time between two readings of a process, nanoseconds.
const INTERVAL_NS: u64 = 2_000_000_000;
/// The same as a part of the time for which the process has done nothing.
const INTERVAL_PART: u64 = 10;
/// Maximum number of readings that wait.
const MAX_QUEUED: usize = 64;

type Reading = (u32, io::Result<InFlight>);

/// Readings of processes that do nothing.
#[derive(Debug)]
pub(super) struct RunningOperations {
    processes: Processes,
    still: BTreeMap<u32, Still>,
    sender: mpsc::Sender<Reading>,
    readings: mpsc::Receiver<Reading>,
}

/// Process that does nothing.
#[derive(Debug, Default)]
struct Still {
    /// Time of the last reading.
    read_ns: u64,
    /// Set while a thread reads it.
    is_read: bool,
    last: Option<InFlight>,
}

impl RunningOperations {
    /// Without a process.
    pub(super) fn new(processes: Processes) -> Self {
        let (sender, readings) = mpsc::channel(MAX_QUEUED);
        Self {
            processes,
            still: BTreeMap::new(),
            sender,
            readings,
        }
    }

    /// Has the processes read that are due, of those with a plugin that do nothing, given with that time in
    /// nanoseconds.
    ///
    /// A process that hangs can block those who read it, so each reading has a thread, which nothing waits for.
    pub(super) fn request(
        &mut self,
        tables: &[InFlightTable],
        still_ns: &BTreeMap<u32, u64>,
        now_ns: u64,
    ) {
        self.still
            .retain(|pid, still| still.is_read || still_ns.contains_key(pid));
        for table in tables {
            let Some(own_ns) = still_ns.get(&table.pid) else {
                continue;
            };
            let still = self.still.entry(table.pid).or_default();
            let interval_ns = INTERVAL_NS.max(own_ns / INTERVAL_PART);
            if still.is_read || now_ns.saturating_sub(still.read_ns) < interval_ns {
                continue;
            }
            (still.read_ns, still.is_read) = (now_ns, true);
            let (table, processes, sender) = (*table, self.processes.clone(), self.sender.clone());
            let read = move || {
                let reading = (table.pid, table.read(&processes));
                // Fails only after the end of the agent.
                drop(sender.blocking_send(reading));
            };
            let name = "in-flight".to_owned();
            if let Err(error) = thread::Builder::new().name(name).spawn(read) {
                tracing::warn!(
                    pid = table.pid,
                    "cannot read the operations in flight: {error}"
                );
                still.is_read = false;
            }
        }
    }

    /// Returns, for each process that was read since the last call, the number of operations that its GPU has
    /// begun and not ended; `None` if they were others than at the reading before.
    pub(super) fn take(&mut self) -> Vec<(u32, Option<u64>)> {
        let readings = std::iter::from_fn(|| self.readings.try_recv().ok());
        let readings: Vec<Reading> = readings.collect();
        let running = readings.into_iter().map(|(pid, reading)| {
            let still = self.still.entry(pid).or_default();
            still.is_read = false;
            let operations = reading
                .inspect_err(|error| {
                    tracing::debug!(pid, "cannot read the operations in flight: {error}");
                })
                .ok();
            let running = operations
                .as_ref()
                .filter(|operations| still.last.as_ref() == Some(operations))
                .map(|operations| operations.n_running() as u64);
            still.last = operations;
            (pid, running)
        });
        running.collect()
    }
}
