//! Loads the programs, attaches them, and reads what they have seen.

mod attach;
mod read;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
/// Maps of the calls object that outlive the agent when they are pinned, so that the next one goes on counting.
const LASTING: [&str; 8] = [
    "events",
    "in_flight",
    "comms",
    "traced",
    "threads",
    "sums",
    "losses",
    "losses_told",
];
/// Maps that both objects use.
const SHARED: [&str; 3] = ["traced", "threads", "losses"];

/// A number that changes with the programs: what one version has left in a BPF file system another one cannot read.
pub fn version() -> u64 {
    let bytes = CALLS.iter().chain(HOST);
    // FNV-1a: to tell builds apart, not to withstand anybody.
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// How the programs are loaded.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Waits for the GPU that are shorter make no event, nanoseconds.
    pub min_wait_ns: u64,
    /// How to attach; none takes the best that the kernel has.
    pub mechanism: Option<Mechanism>,
    /// Leave out what the kernel does to the processes.
    pub without_host: bool,
    /// Folder of a BPF file system in which maps and probes stay when the agent dies.
    pub pins: Option<PathBuf>,
}

/// Why the programs cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The kernel does not let this process load programs.
    #[error(
        "the kernel does not let this process load BPF programs ({0:#}): run as root, or with CAP_BPF and CAP_PERFMON"
    )]
    Forbidden(#[source] libbpf_rs::Error),
    /// The kernel refused the programs.
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

/// What the programs do with the kernel at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// How functions are probed.
    pub mechanism: Mechanism,
    /// Why there is no evidence from the kernel; none when there is.
    pub no_host: Option<String>,
}

/// The loaded programs.
pub struct Programs {
    calls: Object,
    maps: Maps,
    host: Option<Host>,
    abilities: Abilities,
    ring: RingBuffer<'static>,
    inbox: Inbox,
}

/// The kernel's half: its maps, and the links that keep it attached.
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
        let maps = Maps::open(&calls)?;
        // The scheduler's half was gone with the agent before this one, so what it knew of threads is stale.
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
            ring,
            inbox,
        })
    }

    /// What the kernel at hand allows.
    pub fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// Probes functions of one file.
    pub fn attach(&self, file: &Path, probes: &[Probe]) -> Result<Probes, AttachError> {
        attach::attach(&self.calls, self.abilities.mechanism, file, probes)
    }

    /// Links to the kernel that [`Programs::attach`] makes for these probes.
    pub fn n_links(&self, probes: &[Probe]) -> usize {
        attach::n_links(self.abilities.mechanism, probes)
    }

    /// Waits until `timeout` has passed, or shorter when the ring fills up.
    pub fn wait(&self, timeout: Duration) {
        // An interrupted wait is a short one.
        let _short = self.ring.poll(timeout);
    }

    /// The calls that have returned since the last time.
    pub fn take_returned(&self) -> Vec<CallRecord> {
        // What could not be read stays in the ring for the next time.
        let _later = self.ring.consume();
        std::mem::take(&mut self.inbox.lock().returned)
    }

    /// What plugins told up to the last call of [`Self::returned`].
    pub fn take_plugin_records(&self) -> Vec<PluginRecord> {
        std::mem::take(&mut self.inbox.lock().plugin_records)
    }

    /// The maps, to read and to clear.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// The kernel's half, where it is loaded.
    pub fn host_maps(&self) -> Option<&HostMaps> {
        self.host.as_ref().map(|host| &host.maps)
    }
}

/// Records on their way out of libbpf's callback.
#[derive(Debug, Clone, Default)]
struct Inbox(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    returned: Vec<CallRecord>,
    plugin_records: Vec<PluginRecord>,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, events: &MapHandle) -> Result<RingBuffer<'static>, libbpf_rs::Error> {
        let inbox = self.clone();
        let mut builder = RingBufferBuilder::new();
        // A panic here would cross C and end the process, so nothing here can.
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

/// Fills in `min_wait_ns` and `follows_threads`, in the order in which `calls.bpf.c` has them.
fn set_constants(constants: &mut [u8], settings: &Settings) {
    if let Some((min_wait_ns, rest)) = constants.split_first_chunk_mut() {
        *min_wait_ns = settings.min_wait_ns.to_ne_bytes();
        if let Some(follows_threads) = rest.first_mut() {
            *follows_threads = u8::from(!settings.without_host);
        }
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
