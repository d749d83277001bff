//! Facts about this host, read from `/proc`, `/sys`, the GPU driver and a trial watch.

use std::fs;
use std::io;
use std::path::Path;

use fleet_agent_sources::process::Processes;
use fleet_agent_sources::watch::seccomp::Guard;
use fleet_agent_sources::watch::{Health, Watch, Watched};
use rustix::fs::{Access, access, statfs};

use crate::gpu::Gpu;
use crate::rdma::{Port, Rdma};

/// `f_type` of a BPF file system in `statfs`.
const BPF_FS_MAGIC: u32 = 0xcafe_4a11;

/// Facts about this host. Errors are those of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// Kernel release.
    pub(super) release: String,
    /// Access to the kernel's BTF types.
    pub(super) btf: Result<(), String>,
    /// Effective capabilities of this process; none when unknown.
    pub(super) capabilities: Option<u64>,
    /// Access to a mounted and writable BPF file system.
    pub(super) bpf_fs: Result<(), String>,
    /// Inode of this process's pid namespace; none when unknown.
    pub(super) pid_namespace: Option<u64>,
    /// Lockdown mode of the kernel; none when it does not support lockdown.
    pub(super) lockdown: Option<String>,
    /// True if return probes kill processes that have a seccomp filter.
    pub(super) needs_seccomp_guard: bool,
    /// GPUs; none when the driver does not respond.
    pub(super) gpus: Option<Vec<Gpu>>,
    /// RDMA ports.
    pub(super) ports: Vec<Port>,
    /// Result of a trial watch, or why it cannot start.
    pub(super) watch: Result<WatchFacts, String>,
}

/// Result of a trial watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WatchFacts {
    /// Health of the watch.
    pub(super) health: Health,
    /// Files that it probed.
    pub(super) libraries: Vec<Watched>,
    /// Processes that have loaded NCCL or RCCL.
    pub(super) ranks: Vec<Rank>,
}

/// Process that has loaded NCCL or RCCL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rank {
    /// Process id.
    pub(super) pid: u32,
    /// Command name.
    pub(super) command: String,
    /// Rank and world size, or why the environment cannot be read. None when the environment does
    /// not set them.
    pub(super) place: Result<Option<(u32, u32)>, String>,
}

impl Facts {
    /// Reads the facts in files. GPUs and watch are still unknown.
    pub(super) fn read(proc: &Path, sys: &Path) -> Self {
        let release = fs::read_to_string(proc.join("sys/kernel/osrelease"));
        let release = release.unwrap_or_default().trim().to_owned();
        Self {
            btf: fs::File::open(sys.join("kernel/btf/vmlinux")).map_or_else(to_message, |_| Ok(())),
            capabilities: capabilities(proc),
            bpf_fs: bpf_fs(&sys.join("fs/bpf")),
            pid_namespace: pid_namespace(proc),
            lockdown: fs::read_to_string(sys.join("kernel/security/lockdown"))
                .ok()
                .and_then(|modes| active_mode(&modes)),
            needs_seccomp_guard: Guard::for_release(&release).is_needed(),
            gpus: None,
            ports: Rdma::new(sys).ports(),
            watch: Err("not started".to_owned()),
            release,
        }
    }
}

/// Reads the facts of a watch.
pub(super) fn from_watch(watch: &Watch, proc: &Path) -> WatchFacts {
    let libraries = watch.watched();
    let with_collectives = libraries.iter().filter(|library| library.has_collectives);
    let mut pids: Vec<u32> = with_collectives
        .flat_map(|library| library.users.iter().copied())
        .collect();
    pids.sort_unstable();
    pids.dedup();
    let processes = Processes::new(proc);
    WatchFacts {
        health: watch.health(),
        ranks: pids.iter().map(|pid| rank(&processes, *pid)).collect(),
        libraries,
    }
}

fn rank(processes: &Processes, pid: u32) -> Rank {
    let place = processes.placement(pid).map_err(|error| error.to_string());
    Rank {
        pid,
        command: processes
            .identity(pid)
            .map(|seen| seen.command)
            .unwrap_or_default(),
        place: place.map(|place| place.rank.zip(place.world_size)),
    }
}

fn to_message<T>(error: io::Error) -> Result<T, String> {
    Err(error.to_string())
}

fn capabilities(proc: &Path) -> Option<u64> {
    let status = fs::read_to_string(proc.join("self/status")).ok()?;
    let bits = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

fn bpf_fs(path: &Path) -> Result<(), String> {
    let kind = statfs(path).map_err(|error| error.to_string())?.f_type;
    // The width of the type depends on the architecture; the magic number always has 32 bits.
    let [a, b, c, d, ..] = kind.to_le_bytes();
    if u32::from_le_bytes([a, b, c, d]) != BPF_FS_MAGIC {
        return Err("no BPF file system is mounted".to_owned());
    }
    access(path, Access::WRITE_OK).map_err(|error| error.to_string())
}

/// `pid:[4026531836]`.
fn pid_namespace(proc: &Path) -> Option<u64> {
    let link = fs::read_link(proc.join("self/ns/pid")).ok()?;
    let inode = link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?;
    inode.parse().ok()
}

/// `none [integrity] confidentiality`.
fn active_mode(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn host(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn read(root: &TempDir) -> Facts {
        Facts::read(&root.path().join("proc"), &root.path().join("sys"))
    }

    #[test]
    fn facts_are_read_from_files() {
        let root = host(&[
            ("proc/sys/kernel/osrelease", "6.12.4-amd64\n"),
            (
                "proc/self/status",
                "Name:\tagent\nCapEff:\t000001ffffffffff\n",
            ),
            ("sys/kernel/btf/vmlinux", "types"),
            (
                "sys/kernel/security/lockdown",
                "none [integrity] confidentiality\n",
            ),
            (
                "sys/class/infiniband/mlx5_0/ports/1/counters/link_downed",
                "0\n",
            ),
        ]);
        fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        symlink("pid:[4026531836]", root.path().join("proc/self/ns/pid")).unwrap();
        let facts = read(&root);
        assert_eq!(
            (facts.release.as_str(), facts.needs_seccomp_guard),
            ("6.12.4-amd64", true)
        );
        assert_eq!(facts.capabilities, Some(0x1ff_ffff_ffff));
        assert_eq!(
            (facts.btf, facts.pid_namespace),
            (Ok(()), Some(4_026_531_836))
        );
        assert_eq!(facts.lockdown.as_deref(), Some("integrity"));
        assert_eq!(facts.ports.len(), 1);
    }

    #[test]
    fn missing_files_are_not_an_error() {
        let facts = read(&host(&[]));
        assert_eq!(
            (facts.capabilities, facts.pid_namespace, facts.lockdown),
            (None, None, None)
        );
        assert!(facts.btf.is_err() && facts.bpf_fs.is_err() && facts.ports.is_empty());
    }

    #[test]
    fn a_plain_directory_is_not_a_bpf_file_system() {
        let root = host(&[("sys/fs/bpf/file", "")]);
        assert_eq!(
            read(&root).bpf_fs,
            Err("no BPF file system is mounted".to_owned())
        );
    }
}
