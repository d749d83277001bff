//! Loading and attaching of the programs, and access to their data.

mod attach;
mod read;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use libbpf_rs::{
    ErrorKind, Link, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, RingBuffer,
    RingBufferBuilder,
};
use thiserror::Error;

use crate::layout::{CallRecord, PLUGIN_EVENT_BYTES, PluginRecord};
pub use crate::programs::attach::{AttachError, Mechanism, Probe, Probes};
pub use crate::programs::read::{HostMaps, Maps};

const CALLS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.bpf.o"));
const HOST: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/host.bpf.o"));
/// Maps of the calls object that outlive the agent when they are pinned, so that the next agent
/// continues counting.
const LASTING: [&str; 11] = [
    "events",
    "in_flight",
    "comms",
    "traced",
    "measured",
    "threads",
    "sums",
    "durations",
    "launch_sizes",
    "losses",
    "losses_reported",
];
/// Interval at which the ring buffer is read during other work: it holds 9,000 events.
const READ_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of events that are kept during other work, about 30 MB.
const MAX_KEPT: usize = 1 << 18;
/// Maps shared by both objects.
const SHARED: [&str; 3] = ["traced", "threads", "losses"];

/// Returns a number that changes with the programs: pins of one version in a BPF file system cannot
/// be read by another.
pub fn version() -> u64 {
    let bytes = CALLS.iter().chain(HOST);
    // FNV-1a: it distinguishes builds and does not have to withstand attacks.
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Settings for loading the programs.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Waits for the GPU that are shorter produce no event, nanoseconds.
    pub min_wait_ns: u64,
    /// Attach mechanism; `None` selects the best one of the kernel.
    pub mechanism: Option<Mechanism>,
    /// Omits the evidence about what the kernel does to the processes.
    pub without_host: bool,
    /// One in so many kernel launches is measured for its size; 0 measures none.
    pub launch_sampling: u32,
    /// Measures calls of processes that call CUDA or HIP and not NCCL.
    pub measures_all: bool,
    /// Folder of a BPF file system in which maps and probes stay when the agent dies.
    pub pins: Option<PathBuf>,
}

/// Error of loading the programs.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Permission denied.
    #[error(
        "the kernel does not let this process load BPF programs ({0:#}): run as root, or with CAP_BPF and CAP_PERFMON"
    )]
    Forbidden(#[source] libbpf_rs::Error),
    /// Programs rejected by the kernel.
    #[error("the kernel refused the BPF programs ({0:#}): they need Linux 5.15 or later")]
    Refused(#[source] libbpf_rs::Error),
}

impl From<libbpf_rs::Error> for LoadError {
    fn from(error: libbpf_rs::Error) -> Self {
        match error.kind() {
            ErrorKind::PermissionDenied => Self::Forbidden(error),
            _ => Self::Refused(error),
        }
    }
}

/// Abilities of the programs on this kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// Probe mechanism.
    pub mechanism: Mechanism,
    /// Reason why there is no evidence from the kernel; `None` when there is.
    pub no_host: Option<String>,
}

/// Loaded programs.
pub struct Programs {
    calls: Object,
    maps: Arc<Maps>,
    host: Option<Host>,
    abilities: Abilities,
    ring: Mutex<RingBuffer<'static>>,
    inbox: Inbox,
}

/// Host object: its maps, and the links that keep it attached.
struct Host {
    maps: HostMaps,
    _links: Vec<Link>,
    _object: Object,
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs")
            .field("abilities", &self.abilities)
            .finish_non_exhaustive()
    }
}

impl Programs {
    /// Loads the programs. Nothing is probed until [`Programs::attach`].
    pub fn load(settings: &Settings) -> Result<Self, LoadError> {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |level, text| {
            tracing::debug!(?level, "{}", text.trim_end());
        })));
        let (calls, mechanism) = load_calls(settings)?;
        let maps = Arc::new(Maps::open(&calls)?);
        // The host object ended with the earlier agent, so the state of threads is stale.
        maps.forget_threads();
        let (host, no_host) = match load_host(settings, &calls) {
            Ok(host) => (
                host,
                settings
                    .without_host
                    .then(|| "disabled by configuration".to_owned()),
            ),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let inbox = Inbox::default();
        let ring = inbox.ring(&maps.events)?;
        Ok(Self {
            calls,
            maps,
            host,
            abilities: Abilities { mechanism, no_host },
            ring: Mutex::new(ring),
            inbox,
        })
    }

    /// Returns the abilities on this kernel.
    pub fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// Attaches probes to functions of one file.
    pub fn attach(&self, file: &Path, probes: &[Probe]) -> Result<Probes, AttachError> {
        attach::attach(&self.calls, self.abilities.mechanism, file, probes)
    }

    /// Returns the number of kernel links that [`Programs::attach`] creates for these probes.
    pub fn n_links(&self, probes: &[Probe]) -> usize {
        attach::n_links(self.abilities.mechanism, probes)
    }

    /// Waits until `timeout` has passed or the ring buffer fills up.
    pub fn wait(&self, timeout: Duration) {
        // An interrupted wait is merely shorter.
        let _short = lock(&self.ring).poll(timeout);
    }

    /// Does `work`, which can take seconds, while another thread reads the ring buffer. The events
    /// are those of the next [`Self::take_returned`]; beyond 260,000 of them they stay in the ring.
    pub fn read_during<T>(&self, work: impl FnOnce() -> T) -> T {
        let (ring, inbox) = (&self.ring, &self.inbox);
        let (working, work_ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while work_ended.recv_timeout(READ_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if inbox.lock().len() < MAX_KEPT {
                        // Unread records stay in the ring buffer until the next time.
                        let _later = lock(ring).consume();
                    }
                }
            });
            // Dropped after the work, also if it panics.
            let _working = working;
            work()
        })
    }

    /// Returns the calls that have returned since the last call.
    pub fn take_returned(&self) -> Vec<CallRecord> {
        // Unread records stay in the ring buffer until the next call.
        let _later = lock(&self.ring).consume();
        std::mem::take(&mut self.inbox.lock().returned)
    }

    /// Returns the plugin records up to the last call of [`Self::take_returned`].
    pub fn take_plugin_records(&self) -> Vec<PluginRecord> {
        std::mem::take(&mut self.inbox.lock().plugin_records)
    }

    /// Returns the maps.
    pub fn maps(&self) -> &Arc<Maps> {
        &self.maps
    }

    /// Returns the maps of the host object, if it is loaded.
    pub fn host_maps(&self) -> Option<&HostMaps> {
        self.host.as_ref().map(|host| &host.maps)
    }
}

/// Records collected by libbpf's callback.
#[derive(Debug, Clone, Default)]
struct Inbox(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    returned: Vec<CallRecord>,
    plugin_records: Vec<PluginRecord>,
}

impl Records {
    const fn len(&self) -> usize {
        self.returned.len() + self.plugin_records.len()
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Records> {
        lock(&self.0)
    }

    fn ring(&self, events: &MapHandle) -> Result<RingBuffer<'static>, libbpf_rs::Error> {
        let inbox = self.clone();
        let mut builder = RingBufferBuilder::new();
        // A panic here would unwind into C and abort the process, so nothing here can panic.
        builder.add(events, move |bytes: &[u8]| {
            let mut records = inbox.lock();
            // The two kinds of events differ in size.
            if bytes.len() == PLUGIN_EVENT_BYTES {
                records
                    .plugin_records
                    .extend(PluginRecord::from_event(bytes));
            } else {
                records.returned.extend(CallRecord::from_event(bytes));
            }
            0
        })?;
        builder.build()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load_calls(settings: &Settings) -> Result<(Object, Mechanism), LoadError> {
    if let Some(mechanism) = settings.mechanism {
        return Ok((open_calls(settings, mechanism)?.load()?, mechanism));
    }
    if let Ok(object) = open_calls(settings, Mechanism::UprobeMulti)?.load()
        && attach::has_uprobe_multi(&object)
    {
        return Ok((object, Mechanism::UprobeMulti));
    }
    Ok((
        open_calls(settings, Mechanism::PerfEvent)?.load()?,
        Mechanism::PerfEvent,
    ))
}

fn open_calls(settings: &Settings, mechanism: Mechanism) -> Result<OpenObject, libbpf_rs::Error> {
    let mut object = ObjectBuilder::default()
        .name("fleet_calls")?
        .open_memory(CALLS)?;
    for mut program in object.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        program.set_autoload(mechanism.programs().contains(&name.as_str()));
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name.ends_with(".rodata")
            && let Some(constants) = map.initial_value_mut()
        {
            set_constants(constants, settings);
        }
        if let Some(pins) = &settings.pins
            && LASTING.contains(&name.as_str())
        {
            map.set_pin_path(pins.join(&name))?;
        }
    }
    Ok(object)
}

/// Sets the constants in the order of `calls.bpf.c`.
fn set_constants(constants: &mut [u8], settings: &Settings) {
    let mut bytes = settings.min_wait_ns.to_ne_bytes().to_vec();
    bytes.extend(settings.launch_sampling.to_ne_bytes());
    bytes.extend([!settings.without_host, settings.measures_all].map(u8::from));
    for (constant, byte) in constants.iter_mut().zip(bytes) {
        *constant = byte;
    }
}

fn load_host(settings: &Settings, calls: &Object) -> Result<Option<Host>, libbpf_rs::Error> {
    if settings.without_host {
        return Ok(None);
    }
    let mut object = ObjectBuilder::default()
        .name("fleet_host")?
        .open_memory(HOST)?;
    let shared: Vec<(String, MapHandle)> = SHARED
        .iter()
        .map(|name| Ok(((*name).to_owned(), read::map(calls, name)?)))
        .collect::<Result<_, libbpf_rs::Error>>()?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some((_, theirs)) = shared.iter().find(|(shared, _)| *shared == name) {
            map.reuse_fd(std::os::fd::AsFd::as_fd(theirs))?;
        }
        if name == "cpus" {
            let cpus = u32::try_from(libbpf_rs::num_possible_cpus()?).unwrap_or(u32::MAX);
            map.set_max_entries(cpus)?;
        }
    }
    let object = object.load()?;
    let links = object
        .progs_mut()
        .map(|program| program.attach())
        .collect::<Result<_, _>>()?;
    let maps = HostMaps::open(&object)?;
    Ok(Some(Host {
        maps,
        _links: links,
        _object: object,
    }))
}
