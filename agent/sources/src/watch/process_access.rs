//! Opens what a process has mapped, and looks into its memory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use fleet_agent_bpf::programs::Probe;

use crate::watch::mapping::Mapping;

/// The instruction that a probe puts in the place of the first one.
const BREAKPOINT: u8 = 0xcc;

/// Opens the very file that is mapped, whatever its path says: in a container, a chroot, or deleted.
pub(super) fn open(proc: &Path, pid: u32, mapping: &Mapping<'_>) -> io::Result<File> {
    let folder = proc.join(pid.to_string());
    let name = format!("{:x}-{:x}", mapping.start, mapping.end);
    if let Ok(file) = File::open(folder.join("map_files").join(name)) {
        return Ok(file);
    }
    // That takes a right of its own; the path does not, but it may lead elsewhere.
    let path = below_root(mapping.path);
    let file = File::open(folder.join("root").join(path))?;
    if file.metadata()?.ino() == mapping.file.inode {
        Ok(file)
    } else {
        Err(io::Error::other(
            "its path leads to another file, and CAP_CHECKPOINT_RESTORE to open the mapped one is missing",
        ))
    }
}

/// Whether a probe stands already in what a process has mapped of a file.
pub(super) fn has_probe(proc: &Path, pid: u32, mapping: &Mapping<'_>, probes: &[Probe]) -> bool {
    let mut addresses = probes
        .iter()
        .filter_map(|probe| mapping.address_of(probe.offset));
    addresses
        .next()
        .is_some_and(|address| has_breakpoint(proc, pid, address))
}

fn has_breakpoint(proc: &Path, pid: u32, address: u64) -> bool {
    let mut code = [0; 1];
    let memory = File::open(proc.join(pid.to_string()).join("mem"));
    memory.is_ok_and(|memory| memory.read_exact_at(&mut code, address).is_ok())
        && code == [BREAKPOINT]
}

fn below_root(path: &OsStr) -> &Path {
    let path = Path::new(path);
    path.strip_prefix("/").unwrap_or(path)
}
