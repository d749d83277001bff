//! Errors of starting a watch.

use std::io;

use fleet_agent_bpf::programs::LoadError;
use thiserror::Error;

/// Error of starting a watch.
#[derive(Debug, Error)]
pub enum WatchError {
    /// BPF programs cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Another agent is running.
    #[error(
        "{path}: in use by another agent on this host; stop that agent, or set another folder with --pin"
    )]
    InUse {
        /// Pin folder.
        path: String,
    },
    /// Pin folder cannot be used.
    #[error(
        "{path}: probes cannot be pinned there ({source}); mount a BPF file system (mount -t bpf bpf /sys/fs/bpf), or set --pin none"
    )]
    PinFolder {
        /// Pin folder.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Plugin socket cannot be opened.
    #[error(
        "{path}: cannot open the socket for NCCL profiler plugins ({source}); set a path in a folder that this agent may write to, or omit --nccl-socket"
    )]
    Socket {
        /// Socket path.
        path: String,
        /// Error of the system.
        source: io::Error,
    },
}
