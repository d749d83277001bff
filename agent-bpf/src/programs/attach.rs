//! Attachment of the two programs of the calls object to functions of a file.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::path::Path;

use libbpf_rs::{ErrorKind, Link, Object, ProgramMut, UprobeMultiOpts, UprobeOpts};
use thiserror::Error;

use crate::layout::Cookie;

/// All processes.
const ANY_PROCESS: i32 = -1;

/// Probe mechanism of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// One link for all functions of a file; Linux 6.6 and later, without `CAP_SYS_ADMIN`.
    UprobeMulti,
    /// One perf event per function.
    PerfEvent,
}

impl Mechanism {
    /// Returns the names of the entry and return programs.
    pub(super) fn programs(self) -> [&'static str; 2] {
        match self {
            Self::UprobeMulti => ["enter_multi", "leave_multi"],
            Self::PerfEvent => ["enter_perf", "leave_perf"],
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UprobeMulti => "uprobe_multi",
            Self::PerfEvent => "perf-event uprobes",
        })
    }
}

/// Probe of one function of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Offset of the function in the file, bytes.
    pub offset: u64,
    /// Attach cookie.
    pub cookie: Cookie,
    /// Set if its return is probed, too.
    pub returns: bool,
}

/// Probes of one file; dropping them detaches them, which may block in the kernel for half a
/// second.
#[derive(Debug)]
pub struct Probes {
    links: Vec<Link>,
}

impl Probes {
    /// Opens probes that an earlier agent left in a BPF file system.
    pub fn open(pins: &[impl AsRef<Path>]) -> Result<Self, AttachError> {
        let links = pins.iter().map(Link::open).collect::<Result<_, _>>();
        links
            .map(|links| Self { links })
            .map_err(AttachError::Refused)
    }

    /// Returns the number of kernel links.
    pub fn n_links(&self) -> usize {
        self.links.len()
    }

    /// Pins the probes so that they outlive the agent: link `n` at `name(n)`.
    pub fn pin(&mut self, name: impl Fn(usize) -> std::path::PathBuf) -> Result<(), AttachError> {
        for (n, link) in self.links.iter_mut().enumerate() {
            link.pin(name(n)).map_err(AttachError::Refused)?;
        }
        Ok(())
    }

    /// Unpins the probes, so that they end with this agent.
    pub fn unpin(&mut self) {
        for link in &mut self.links {
            // A link that is not pinned, or was removed by others, is already unpinned.
            let _gone = link.unpin();
        }
    }
}

/// Error of probing functions.
#[derive(Debug, Error)]
pub enum AttachError {
    /// Permission denied.
    #[error(
        "{0:#}: probing needs CAP_BPF and CAP_PERFMON, on kernels before 6.6 also CAP_SYS_ADMIN"
    )]
    Forbidden(#[source] libbpf_rs::Error),
    /// File not found.
    #[error("{0:#}")]
    Gone(#[source] libbpf_rs::Error),
    /// Other errors.
    #[error("{0:#}")]
    Refused(#[source] libbpf_rs::Error),
}

impl From<libbpf_rs::Error> for AttachError {
    fn from(error: libbpf_rs::Error) -> Self {
        match error.kind() {
            ErrorKind::PermissionDenied => Self::Forbidden(error),
            ErrorKind::NotFound => Self::Gone(error),
            _ => Self::Refused(error),
        }
    }
}

/// Returns whether the kernel supports `uprobe_multi`: one that does complains about the file, not
/// about the request.
pub(super) fn has_uprobe_multi(calls: &Object) -> bool {
    let Ok(program) = program(calls, "enter_multi") else {
        return false;
    };
    let options = UprobeMultiOpts {
        offsets: vec![1],
        ..UprobeMultiOpts::default()
    };
    let Err(error) = program.attach_uprobe_multi_with_opts(ANY_PROCESS, "/", "", options) else {
        return true;
    };
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text.contains(&io::Error::from_raw_os_error(rustix::io::Errno::BADF.raw_os_error()).to_string())
}

/// Returns the number of kernel links for these probes.
pub(super) fn n_links(mechanism: Mechanism, probes: &[Probe]) -> usize {
    let returning = probes.iter().filter(|probe| probe.returns).count();
    match mechanism {
        Mechanism::UprobeMulti => 1 + usize::from(returning > 0),
        Mechanism::PerfEvent => probes.len() + returning,
    }
}

pub(super) fn attach(
    calls: &Object,
    mechanism: Mechanism,
    file: &Path,
    probes: &[Probe],
) -> Result<Probes, AttachError> {
    let [enter, leave] = mechanism.programs();
    let (enter, leave) = (program(calls, enter)?, program(calls, leave)?);
    let returning: Vec<Probe> = probes
        .iter()
        .filter(|probe| probe.returns)
        .copied()
        .collect();
    // Return probes first: a call whose entry is seen must be seen returning.
    let mut links = Vec::new();
    match mechanism {
        Mechanism::UprobeMulti => {
            if !returning.is_empty() {
                links.push(attach_multi(&leave, file, &returning, true)?);
            }
            links.push(attach_multi(&enter, file, probes, false)?);
        }
        Mechanism::PerfEvent => {
            for probe in &returning {
                links.push(attach_perf(&leave, file, probe, true)?);
            }
            for probe in probes {
                links.push(attach_perf(&enter, file, probe, false)?);
            }
        }
    }
    Ok(Probes { links })
}

fn attach_multi(
    program: &ProgramMut<'_>,
    file: &Path,
    probes: &[Probe],
    retprobe: bool,
) -> Result<Link, libbpf_rs::Error> {
    let options = UprobeMultiOpts {
        offsets: probes.iter().map(|probe| to_usize(probe.offset)).collect(),
        cookies: probes.iter().map(|probe| probe.cookie.to_bits()).collect(),
        retprobe,
        ..UprobeMultiOpts::default()
    };
    program.attach_uprobe_multi_with_opts(ANY_PROCESS, file, "", options)
}

fn attach_perf(
    program: &ProgramMut<'_>,
    file: &Path,
    probe: &Probe,
    retprobe: bool,
) -> Result<Link, libbpf_rs::Error> {
    let options = UprobeOpts {
        cookie: probe.cookie.to_bits(),
        retprobe,
        ..UprobeOpts::default()
    };
    program.attach_uprobe_with_opts(ANY_PROCESS, file, to_usize(probe.offset), options)
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, libbpf_rs::Error> {
    let mut programs = object.progs_mut();
    programs
        .find(|program| program.name() == name)
        .ok_or_else(|| missing(name))
}

fn to_usize(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

/// Returns the error for a missing part of the embedded objects, which only a broken build causes.
pub(super) fn missing(name: &str) -> libbpf_rs::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the BPF object lacks {name}"),
    )
    .into()
}
