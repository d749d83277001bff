//! Access to the mapped files and the memory of a process.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use fleet_agent_bpf::programs::Probe;

use crate::watch::mapping::Mapping;

/// Instruction with which a probe replaces the first one.
const BREAKPOINT: u8 = 0xcc;

/// Opens exactly the file that is mapped, whatever its path: in a container, a chroot, or deleted.
pub(super) fn open(proc: &Path, pid: u32, mapping: &Mapping<'_>) -> io::Result<File> {
    let folder = proc.join(pid.to_string());
    let name = format!("{:x}-{:x}", mapping.start, mapping.end);
    if let Ok(file) = File::open(folder.join("map_files").join(name)) {
        return Ok(file);
    }
    // That requires a separate capability; the path does not, but it may lead to another file.
    let path = below_root(mapping.path);
    let file = File::open(folder.join("root").join(path))?;
    if file.metadata()?.ino() == mapping.file.inode {
        Ok(file)
    } else {
        Err(io::Error::other(
            "its path leads to another file, and opening the mapped one needs CAP_CHECKPOINT_RESTORE",
        ))
    }
}

/// Returns whether a process already has a probe in its mapping of a file.
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
