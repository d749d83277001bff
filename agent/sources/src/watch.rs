//! Watches the GPU jobs of this host: which processes have which libraries, and what they call.

mod bpffs;
mod failure;
mod ignore_cache;
mod libraries;
mod library;
mod mapping;
mod memory;
mod process_access;
mod rate_limit;
mod report;
pub mod seccomp;
mod socket;
mod stale_probes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fleet_agent_bpf::layout::{CallRecord, CallSum, CommRecord, HostSum, Losses};
use fleet_agent_bpf::lifecycle::{Change, Lifecycle};
use fleet_agent_bpf::programs::{HostMaps, Mechanism, Programs, Settings};
use fleet_agent_core::event::CommState;
use rustix::time::{ClockId, clock_gettime};

use crate::process::{ProcessError, Processes};
use crate::watch::bpffs::PinFolder;
pub use crate::watch::failure::WatchError;
use crate::watch::libraries::{Files, Libraries};
pub use crate::watch::library::CountOptions;
use crate::watch::memory::CommMemory;
pub use crate::watch::report::{Health, PollResult, Watched};
use crate::watch::seccomp::Guard;
use crate::watch::socket::Socket;

/// Longest pause between two looks.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);
/// Usual pause between two looks at all processes.
pub const RESCAN: Duration = Duration::from_secs(30);
/// An entry program may be about to note a call that it has stamped already, nanoseconds.
const SETTLE_NS: u64 = 1_000_000;

/// How to watch.
#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// What is counted besides collectives and waits.
    pub count_options: CountOptions,
    /// Waits for the GPU that are shorter are not told, nanoseconds.
    pub min_wait_ns: u64,
    /// How to probe; none takes the best that the kernel has.
    pub mechanism: Option<Mechanism>,
    /// Leave out what the kernel does to the processes.
    pub without_host: bool,
    /// Pause between two looks at all processes and libraries, for what no event told of.
    pub rescan: Duration,
    /// Folder of a BPF file system where probes stay when the agent dies; none lets them go with it.
    pub pins: Option<PathBuf>,
    /// Socket that NCCL profiler plugins send to where no probe can stand in them.
    pub nccl_socket: Option<PathBuf>,
}

/// Watches this host.
#[derive(Debug)]
pub struct Watch {
    programs: Programs,
    lifecycle: Result<Lifecycle, String>,
    libraries: Libraries,
    proc: PathBuf,
    pins: Option<PinFolder>,
    socket: Option<Socket>,
    found: Vec<u32>,
    /// For the first look: who was gone before it, and what the ring held by then.
    exited: Vec<u32>,
    returned: Vec<CallRecord>,
    /// When the processes that are watched were started, in ticks: their numbers are used again.
    started: BTreeMap<u32, u64>,
    /// The processes that were there at the last scan.
    scanned: BTreeSet<u32>,
    rescan: Duration,
    rescanned_ns: u64,
}

impl Watch {
    /// Begins to watch: every process that is there, and those to come.
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
        // Before the scan: what is mapped meanwhile is seen by either.
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
            scanned: pids(&PathBuf::from("/proc")),
            rescan: settings.rescan,
            rescanned_ns: 0,
        };
        // What they did last may be in the ring still.
        watch.exited = watch.vanished();
        watch.scan(now_ns());
        watch.restore();
        Ok(watch)
    }

    /// Waits for something to happen, at most for a twentieth of a second, and says what did.
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
            // Before they are probed anew: what was called meanwhile was not counted, and no number may go on from before.
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

    /// Rank and size of a communicator, as its process has them in memory; none where nobody knows how to read it.
    pub fn comm_rank_and_size(&self, pid: u32, pointer: u64) -> Option<(u32, u32)> {
        self.memory_of(pid, pointer)?.rank_and_size()
    }

    /// Which communicator lies at a pointer and how far it has come; none where nobody knows how to read it.
    pub fn comm_state(&self, pid: u32, pointer: u64) -> Option<CommState> {
        self.memory_of(pid, pointer)?.state(pid)
    }

    fn memory_of(&self, pid: u32, pointer: u64) -> Option<CommMemory> {
        let fields = self.libraries.comm_fields_of(pid)?;
        CommMemory::open(&self.proc.join(pid.to_string()), pointer, fields)
    }

    /// The communicators that an agent before this one saw being made.
    pub fn comms(&self) -> Vec<CommRecord> {
        self.programs.maps().comms()
    }

    /// What was called, by process and function; the second byte has the direction of a copy, or the type of an RDMA event.
    pub fn sums(&self) -> Vec<(u32, u32, CallSum)> {
        self.programs.maps().sums()
    }

    /// What the kernel did to each process; none where that cannot be seen.
    pub fn host_sums(&self) -> Option<Vec<(u32, HostSum)>> {
        self.programs.host_maps().map(HostMaps::sums)
    }

    /// TCP segments that this host has sent again; none where that cannot be seen.
    pub fn tcp_retransmits(&self) -> Option<u64> {
        self.programs.host_maps().map(HostMaps::tcp_retransmits)
    }

    /// What could not be told since the programs were loaded, maybe by an agent before this one.
    pub fn losses(&self) -> Losses {
        self.programs.maps().losses()
    }

    /// What of that was told.
    pub fn reported_losses(&self) -> Losses {
        self.programs.maps().reported_losses()
    }

    /// Notes that all this was told.
    pub fn mark_losses_reported(&self, losses: &Losses) {
        self.programs.maps().mark_losses_reported(losses);
    }

    /// Files that were not looked into when they were mapped, because too many were.
    pub const fn deferred_files(&self) -> u64 {
        self.libraries.deferred_files()
    }

    /// Whether the programs hold anything of a process.
    pub fn is_traced(&self, pid: u32) -> bool {
        self.programs.maps().is_traced(pid)
    }

    /// Clears what the programs hold of a process that has ended and been told of.
    pub fn forget(&self, pid: u32) {
        self.programs.maps().forget(pid);
        if let Some(maps) = self.programs.host_maps() {
            maps.forget(pid);
        }
    }

    /// How the watch is doing.
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

    /// The files that are probed, by path, and who maps them.
    pub fn watched(&self) -> Vec<Watched> {
        let mut all = self.libraries.watched();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// Leaves nothing behind in the kernel.
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
                    // A program that starts maps several files in a row, and one look sees them all.
                    if inspected != Some(pid) && self.libraries.should_inspect(&path) {
                        let has_collectives =
                            self.libraries
                                .inspect((pid, false), Files::All, &self.programs);
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

    /// Processes that are watched and have ended without anybody telling, though another one may have their number by now.
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
        let pids = pids(&self.proc);
        // What is quick first: a job may be about to begin.
        for files in [Files::Libraries, Files::All] {
            for pid in &pids {
                let process = (*pid, self.scanned.contains(pid));
                let has_collectives = self.libraries.inspect(process, files, &self.programs);
                self.found.extend(has_collectives.then_some(*pid));
            }
        }
        self.scanned = pids;
    }

    /// Goes on where an agent before this one was, as far as its probes counted on without it.
    fn restore(&mut self) {
        self.libraries.clear_stale_probes();
        let is_over = |comm: &CommRecord| self.exited.contains(&comm.tgid);
        let has_gap =
            |comm: &CommRecord| !is_over(comm) && !self.libraries.was_probed_throughout(comm.tgid);
        let unseen: BTreeSet<u32> = self
            .comms()
            .into_iter()
            .filter(has_gap)
            .map(|comm| comm.tgid)
            .collect();
        for pid in &unseen {
            self.forget(*pid);
        }
        // The probes that this agent has set told numbers that are off until then.
        let returned = self.programs.take_returned();
        let is_right = |record: &CallRecord| !unseen.contains(&record.tgid);
        self.returned = returned.into_iter().filter(is_right).collect();
    }
}

/// The processes of the host.
fn pids(proc: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The CPUs that are on, from a list such as `0-3,8`.
pub fn cpus(sys: &Path) -> io::Result<Vec<usize>> {
    let list = fs::read_to_string(sys.join("devices/system/cpu/online"))?;
    let parts = list.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    });
    Ok(parts.flatten().collect())
}

/// The clock of the programs, nanoseconds.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}
