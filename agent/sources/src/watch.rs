//! Monitoring of this host's GPU jobs: the libraries that processes map, and the functions that
//! they call.

mod bpffs;
mod calls;
mod counters;
mod failure;
mod ignore_cache;
mod libraries;
mod library;
mod machine;
mod mapping;
mod memory;
mod process_access;
mod rate_limit;
mod report;
pub mod seccomp;
mod socket;
mod stale_probes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent_bpf::layout;
pub use fleet_agent_bpf::layout::FunctionSum;
use fleet_agent_bpf::lifecycle::{Change, Lifecycle};
use fleet_agent_bpf::programs::{Mechanism, Programs, Settings};
use fleet_agent_core::event::CommState;

use crate::comm_fields::RankAndSize;
use crate::process::{ProcessError, Processes};
use crate::watch::bpffs::PinFolder;
pub use crate::watch::calls::ProbedCalls;
pub use crate::watch::counters::Histograms;
pub use crate::watch::failure::WatchError;
use crate::watch::libraries::Libraries;
use crate::watch::libraries::files::{Files, Inspected};
pub use crate::watch::library::{CountOptions, Detail};
pub use crate::watch::machine::{cpus, now_ns};
use crate::watch::memory::CommMemory;
pub use crate::watch::report::{Health, PollResult, Watched};
use crate::watch::seccomp::Guard;
use crate::watch::socket::Socket;

/// Maximum duration of one poll.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Default interval between scans of all processes.
pub const RESCAN: Duration = Duration::from_secs(30);
/// Time that an entry program may take to record a call that it has already stamped, nanoseconds.
const SETTLE_NS: u64 = 1_000_000;

/// Settings of a watch.
#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// Functions counted besides collectives and waits.
    pub count_options: CountOptions,
    /// Waits for the GPU that are shorter are not reported, nanoseconds.
    pub min_wait_ns: u64,
    /// Probe mechanism; `None` selects the best one of the kernel.
    pub mechanism: Option<Mechanism>,
    /// Omits evidence about what the kernel does to the processes.
    pub without_host: bool,
    /// Interval between scans of all processes and libraries, for changes without an event.
    pub rescan: Duration,
    /// Folder of a BPF file system where probes stay when the agent dies; `None` removes them with
    /// it.
    pub pins: Option<PathBuf>,
    /// Socket for NCCL profiler plugins where they cannot be probed.
    pub nccl_socket: Option<PathBuf>,
}

/// Watch of this host.
#[derive(Debug)]
pub struct Watch {
    programs: Programs,
    lifecycle: Result<Lifecycle, String>,
    libraries: Libraries,
    proc: PathBuf,
    pins: Option<PinFolder>,
    socket: Option<Socket>,
    found: Vec<u32>,
    /// Results for the first poll: processes that exited before it, and calls in the ring by then.
    exited: Vec<u32>,
    returned: Vec<layout::CallRecord>,
    /// Start times of the watched processes, in ticks, since process ids are reused.
    started: BTreeMap<u32, u64>,
    measures_all: bool,
    /// Processes of the last scan.
    scanned: BTreeSet<u32>,
    rescan: Duration,
    rescanned_ns: u64,
}

impl Watch {
    /// Starts to watch all existing and future processes.
    pub fn start(settings: &WatchSettings) -> Result<Self, WatchError> {
        let proc = PathBuf::from("/proc");
        let pins = settings
            .pins
            .as_deref()
            .map(|root| PinFolder::acquire(root, settings))
            .transpose()?;
        let folder = pins.as_ref().map(|pins| pins.folder.clone());
        let programs = Programs::load(&Settings {
            min_wait_ns: settings.min_wait_ns,
            launch_sampling: settings.count_options.launch_sampling(),
            measures_all: settings.count_options.all_processes,
            mechanism: settings.mechanism,
            without_host: settings.without_host,
            pins: folder.clone(),
        })?;
        let open = |path: &PathBuf| {
            Socket::open(path).map_err(|source| WatchError::Socket {
                path: path.display().to_string(),
                source,
            })
        };
        let socket = settings.nccl_socket.as_ref().map(open).transpose()?;
        // Before the scan, so that no mapping in between is missed.
        let lifecycle = cpus(Path::new("/sys"))
            .and_then(Lifecycle::open)
            .map_err(|error| error.to_string());
        let guard = Guard::for_release(&rustix::system::uname().release().to_string_lossy());
        let libraries = Libraries::new(&proc, folder, settings.count_options, guard);
        let mut watch = Self {
            programs,
            lifecycle,
            libraries,
            proc,
            pins,
            socket,
            found: Vec::new(),
            exited: Vec::new(),
            returned: Vec::new(),
            started: BTreeMap::new(),
            measures_all: settings.count_options.all_processes,
            scanned: machine::pids(&PathBuf::from("/proc")),
            rescan: settings.rescan,
            rescanned_ns: 0,
        };
        // Their last calls may still be in the ring.
        watch.exited = watch.vanished();
        watch.scan(now_ns());
        watch.restore();
        Ok(watch)
    }

    /// Waits for events, at most for a twentieth of a second, and returns them.
    pub fn poll(&mut self) -> PollResult {
        self.programs.wait(POLL_TIMEOUT);
        let now_ns = now_ns();
        self.libraries.refill(now_ns);
        let mut exited = std::mem::take(&mut self.exited);
        exited.extend(self.changes(now_ns));
        // In this order: a call is in flight, in the ring, or in both.
        let in_flight = self.programs.maps().in_flight();
        let mut returned = std::mem::take(&mut self.returned);
        returned.extend(self.programs.take_returned());
        let mut plugin_records = self.programs.take_plugin_records();
        plugin_records.extend(
            self.socket
                .as_ref()
                .map(Socket::take_records)
                .unwrap_or_default(),
        );
        let mut detached = Vec::new();
        if Duration::from_nanos(now_ns.saturating_sub(self.rescanned_ns)) >= self.rescan {
            for pid in self.vanished() {
                self.libraries.remove_user(pid, now_ns);
                exited.push(pid);
            }
            self.libraries.remove_unused(now_ns);
            // Before they are probed again: calls in between were not counted, so sequence numbers
            // must not continue.
            detached = self.libraries.take_detached();
            for pid in &detached {
                self.forget(*pid);
            }
            self.scan(now_ns);
        }
        detached.extend(self.libraries.take_detached());
        PollResult {
            now_ns,
            until_ns: now_ns.saturating_sub(SETTLE_NS),
            returned,
            in_flight,
            plugin_records,
            found: std::mem::take(&mut self.found),
            exited,
            detached,
        }
    }

    /// Returns rank and size of a communicator from the memory of its process; `None` if its layout
    /// is unknown.
    pub fn comm_rank_and_size(&self, pid: u32, pointer: u64) -> Option<RankAndSize> {
        self.memory_of(pid, pointer)?.rank_and_size()
    }

    /// Returns identity and progress of the communicator at a pointer; `None` if its layout is
    /// unknown.
    pub fn comm_state(&self, pid: u32, pointer: u64) -> Option<CommState> {
        self.memory_of(pid, pointer)?.state(pid)
    }

    fn memory_of(&self, pid: u32, pointer: u64) -> Option<CommMemory> {
        let fields = self.libraries.comm_fields_of(pid)?;
        CommMemory::open(&self.proc.join(pid.to_string()), pointer, fields)
    }

    /// Returns the number of files that were not inspected when they were mapped, because of the
    /// rate limit.
    pub const fn deferred_files(&self) -> u64 {
        self.libraries.deferred_files()
    }

    /// Returns the health of the watch.
    pub fn health(&self) -> Health {
        Health {
            abilities: self.programs.abilities().clone(),
            no_lifecycle: self.lifecycle.as_ref().err().cloned(),
            probed: self.libraries.paths(),
            refused: self.libraries.refused(),
            unprobeable: self
                .libraries
                .unprobeable()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            losses: self.losses(),
        }
    }

    /// Returns the probed files by path, and the processes that map them.
    pub fn watched(&self) -> Vec<Watched> {
        let mut all = self.libraries.watched();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Removes all state from the kernel.
    pub fn clear(mut self) {
        self.libraries.unpin();
        if let Some(pins) = &self.pins {
            pins.clear();
        }
    }

    fn changes(&mut self, now_ns: u64) -> Vec<u32> {
        let Ok(lifecycle) = &mut self.lifecycle else {
            let vanished = self.vanished();
            for pid in &vanished {
                self.libraries.remove_user(*pid, now_ns);
            }
            return vanished;
        };
        let mut exited = Vec::new();
        let mut inspected = None;
        for change in lifecycle.changes() {
            match change {
                Change::Mapped { pid, path } => {
                    // A starting program maps several files in a row, and one inspection sees them
                    // all.
                    if inspected != Some(pid) && self.libraries.should_inspect(&path) {
                        let process = Inspected {
                            pid,
                            has_lasted: false,
                        };
                        let has_collectives =
                            self.libraries.inspect(process, Files::All, &self.programs);
                        self.found.extend(has_collectives.then_some(pid));
                        inspected = Some(pid);
                    }
                }
                Change::Exited { pid } => {
                    self.started.remove(&pid);
                    self.libraries.remove_user(pid, now_ns);
                    exited.push(pid);
                }
                Change::Lost => self.rescanned_ns = 0,
            }
        }
        exited
    }

    /// Returns the watched processes that have exited without an event, even if their ids were
    /// reused.
    fn vanished(&mut self) -> Vec<u32> {
        let processes = Processes::new(&self.proc);
        let mut watched = self.libraries.users();
        watched.extend(self.programs.maps().traced());
        self.started.retain(|pid, _| watched.contains(pid));
        let mut vanished = Vec::new();
        for pid in watched {
            let is_gone = match processes.start_ticks(pid) {
                Ok(ticks) => *self.started.entry(pid).or_insert(ticks) != ticks,
                Err(error) => matches!(error, ProcessError::Gone { .. }),
            };
            if is_gone {
                self.started.remove(&pid);
                vanished.push(pid);
            }
        }
        vanished
    }

    fn scan(&mut self, now_ns: u64) {
        self.rescanned_ns = now_ns;
        let pids = machine::pids(&self.proc);
        // Quick checks first: a job may be about to begin.
        for files in [Files::Libraries, Files::All] {
            for pid in &pids {
                let process = Inspected {
                    pid: *pid,
                    has_lasted: self.scanned.contains(pid),
                };
                let has_collectives = self.libraries.inspect(process, files, &self.programs);
                self.found.extend(has_collectives.then_some(*pid));
            }
        }
        self.scanned = pids;
    }

    /// Restores the state of an earlier agent, as far as its probes kept counting without it.
    fn restore(&mut self) {
        self.libraries.clear_stale_probes();
        let is_over = |comm: &layout::CommRecord| self.exited.contains(&comm.tgid);
        let has_gap = |comm: &layout::CommRecord| {
            !is_over(comm) && !self.libraries.was_probed_throughout(comm.tgid)
        };
        let unseen: BTreeSet<u32> = self
            .comms()
            .into_iter()
            .filter(has_gap)
            .map(|comm| comm.tgid)
            .collect();
        for pid in &unseen {
            self.forget(*pid);
        }
        // The probes of this agent reported wrong numbers until then.
        let returned = self.programs.take_returned();
        let is_right = |record: &layout::CallRecord| !unseen.contains(&record.tgid);
        self.returned = returned.into_iter().filter(is_right).collect();
    }
}
