//! Network namespaces of containers, whose loopback interface is another than that of the host.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// State of a listening socket in `/proc/PID/net/tcp`.
const LISTENING: &str = "0A";

/// A network namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkNamespace {
    inode: u64,
    /// A process in it.
    pub pid: u32,
}

/// Returns the namespaces of other processes in which something listens on this TCP port, one
/// process of each. `proc` is the `/proc` of the host.
pub fn listening(proc: &Path, port: u16) -> Vec<NetworkNamespace> {
    let Ok(own) = inode(&proc.join("self/ns/net")) else {
        return Vec::new();
    };
    let mut found = BTreeMap::new();
    for pid in pids(proc) {
        match inode(&file(proc, pid)) {
            Ok(inode) if inode != own => found.entry(inode).or_insert(pid),
            // It shares the namespace of the agent, or has ended.
            _ => continue,
        };
    }
    let listens = |(_, pid): &(u64, u32)| {
        let sockets = ["net/tcp", "net/tcp6"].map(|name| proc.join(pid.to_string()).join(name));
        let text = sockets.map(|path| fs::read_to_string(path).unwrap_or_default());
        text.iter().any(|sockets| has_listener(sockets, port))
    };
    let found = found.into_iter().filter(listens);
    found
        .map(|(inode, pid)| NetworkNamespace { inode, pid })
        .collect()
}

impl NetworkNamespace {
    /// Returns the namespace of a process; `None` if it is that of the agent, or the process has
    /// ended.
    pub fn other_than_own(proc: &Path, pid: u32) -> Option<Self> {
        let inode_of = |path: &Path| inode(path).ok();
        let own = inode_of(&proc.join("self/ns/net"))?;
        let inode = inode_of(&file(proc, pid)).filter(|inode| *inode != own)?;
        Some(Self { inode, pid })
    }

    /// Moves the calling thread into the namespace, for the rest of its life. Needs
    /// `CAP_SYS_ADMIN`. Fails if the process has ended and its id belongs to another now.
    pub fn enter(&self, proc: &Path) -> io::Result<()> {
        let namespace = File::open(file(proc, self.pid))?;
        if namespace.metadata()?.ino() != self.inode {
            return Err(io::ErrorKind::NotFound.into());
        }
        let kind = Some(LinkNameSpaceType::Network);
        Ok(move_into_link_name_space(namespace.as_fd(), kind)?)
    }
}

fn file(proc: &Path, pid: u32) -> PathBuf {
    proc.join(pid.to_string()).join("ns/net")
}

fn inode(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

fn pids(proc: &Path) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns whether a table of sockets has one that listens on the port.
fn has_listener(sockets: &str, port: u16) -> bool {
    let port = format!(":{port:04X}");
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().take(4).collect();
        matches!(fields[..], [_, local, _, LISTENING] if local.ends_with(&port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_by_its_port_and_its_state() {
        let sockets = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
             0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000\n   \
             1: 0100007F:1F90 0100007F:6D7D 01 00000000:00000000 00:00000000\n";
        assert!(has_listener(sockets, 28_028));
        for port in [8_080, 28_029] {
            assert!(!has_listener(sockets, port), "{port}");
        }
    }

    #[test]
    fn the_namespace_of_the_agent_is_no_other() {
        let proc = Path::new("/proc");
        assert_eq!(
            NetworkNamespace::other_than_own(proc, std::process::id()),
            None
        );
    }
}
