//! Counts the operations that each GPU has begun and not ended, for processes that issue nothing, from the memory
//! of the NCCL profiler plugin. One reading may fall into a moment of change, so two must agree.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::thread;

use fleet_agent_sources::live::{InFlight, InFlightTable};
use fleet_agent_sources::process::Processes;
use tokio::sync::mpsc;

/// Least time between two readings of a process, nanoseconds.
const INTERVAL_NS: u64 = 2_000_000_000;
/// The same as a part of the time for which the process has issued nothing.
const INTERVAL_PART: u64 = 10;
/// Time after which a reading is late, nanoseconds.
const LATE_NS: u64 = 10_000_000_000;
/// Maximum number of readings at a time.
const MAX_THREADS: usize = 16;

/// Reading of a process that was requested at a time.
type Reading = (u32, u64, io::Result<InFlight>);

/// Readings of processes that issue nothing.
#[derive(Debug)]
pub(super) struct RunningOperations {
    processes: Processes,
    still: BTreeMap<u32, Still>,
    sender: mpsc::Sender<Reading>,
    readings: mpsc::Receiver<Reading>,
    /// Lives as long as a thread that reads.
    reading: Arc<()>,
}

/// Process that issues nothing.
#[derive(Debug, Default)]
struct Still {
    /// Time at which the latest reading was requested.
    read_ns: u64,
    is_read: bool,
    /// The last reading, and when it was requested.
    last: Option<(u64, InFlight)>,
}

/// Operations of a process that its GPU has begun and not ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Running {
    /// Process.
    pub(super) pid: u32,
    /// Their number; `None` if it is unknown.
    pub(super) operations: Option<u64>,
    /// Time since which the operations in flight are the same, nanoseconds.
    pub(super) since_ns: u64,
}

impl RunningOperations {
    /// Without a process.
    pub(super) fn new(processes: Processes) -> Self {
        let (sender, readings) = mpsc::channel(MAX_THREADS);
        Self {
            processes,
            still: BTreeMap::new(),
            sender,
            readings,
            reading: Arc::default(),
        }
    }

    /// Has the processes read that are due, of those that issue nothing, given with that time in nanoseconds.
    ///
    /// A process that hangs can block those who read it, so each reading has a thread, which nothing waits for.
    pub(super) fn request(
        &mut self,
        tables: &[InFlightTable],
        still_ns: &BTreeMap<u32, u64>,
        now_ns: u64,
    ) {
        self.still.retain(|pid, _| still_ns.contains_key(pid));
        for table in tables {
            let Some(own_ns) = still_ns.get(&table.pid) else {
                continue;
            };
            let still = self.still.entry(table.pid).or_default();
            let is_due = !still.is_read
                && now_ns.saturating_sub(still.read_ns) >= INTERVAL_NS.max(own_ns / INTERVAL_PART);
            if !is_due || Arc::strong_count(&self.reading) > MAX_THREADS {
                continue;
            }
            (still.read_ns, still.is_read) = (now_ns, true);
            let (table, processes) = (*table, self.processes.clone());
            let (sender, reading) = (self.sender.clone(), Arc::clone(&self.reading));
            let read = move || {
                let operations = table.read(&processes);
                // Fails only after the end of the agent.
                drop(sender.blocking_send((table.pid, now_ns, operations)));
                drop(reading);
            };
            let name = "in-flight".to_owned();
            if let Err(error) = thread::Builder::new().name(name).spawn(read) {
                let pid = table.pid;
                tracing::warn!(pid, "cannot read the operations in flight: {error}");
                still.is_read = false;
            }
        }
    }

    /// Returns what is known of each process that was read since the last call, or whose reading is late.
    pub(super) fn take(&mut self, now_ns: u64) -> Vec<Running> {
        let mut running = Vec::new();
        while let Ok((pid, read_ns, operations)) = self.readings.try_recv() {
            let still = self.still.get_mut(&pid);
            if let Some(still) = still.filter(|still| still.read_ns == read_ns) {
                still.is_read = false;
                running.push(still.observe(pid, operations));
            }
        }
        let is_late =
            |still: &Still| still.is_read && now_ns.saturating_sub(still.read_ns) > LATE_NS;
        let late = self.still.iter().filter(|(_, still)| is_late(still));
        running.extend(late.map(|(pid, _)| Running::unknown(*pid)));
        running
    }
}

impl Running {
    const fn unknown(pid: u32) -> Self {
        Self {
            pid,
            operations: None,
            since_ns: 0,
        }
    }
}

impl Still {
    /// Takes in the next reading.
    fn observe(&mut self, pid: u32, operations: io::Result<InFlight>) -> Running {
        let operations = match operations {
            Ok(operations) => operations,
            Err(error) => {
                tracing::debug!(pid, "cannot read the operations in flight: {error}");
                self.last = None;
                return Running::unknown(pid);
            }
        };
        let last = self.last.replace((self.read_ns, operations));
        let now = self.last.as_ref().map(|(_, now)| now);
        match last.zip(now).filter(|((_, last), now)| last == *now) {
            Some(((since_ns, _), now)) => Running {
                pid,
                operations: now.n_running().map(|n| n as u64),
                since_ns,
            },
            None => Running::unknown(pid),
        }
    }
}
