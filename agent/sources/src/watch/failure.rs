//! Why a watch cannot begin.

use std::io;

use fleet_agent_bpf::programs::LoadError;
use thiserror::Error;

/// Why nothing can be watched.
#[derive(Debug, Error)]
pub enum WatchError {
    /// The programs cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Another agent watches.
    #[error(
        "{path}: another agent of this host uses it; stop that one, or give this one a folder of its own with --pin"
    )]
    InUse {
        /// The folder of its probes.
        path: String,
    },
    /// The folder for the probes cannot be used.
    #[error(
        "{path}: probes cannot be kept there ({source}); mount a BPF file system (mount -t bpf bpf /sys/fs/bpf), or give --pin none"
    )]
    PinFolder {
        /// The folder.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The socket for plugins cannot be opened.
    #[error(
        "{path}: no socket for NCCL profiler plugins ({source}); name a path in a folder that this agent may write to, or leave out --nccl-socket"
    )]
    Socket {
        /// The socket.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}
