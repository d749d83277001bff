//! Socket files for programs of this host: each is created for its owner and group, and removed when
//! it is no longer served.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};

/// Owner and group can connect, which requires write permission.
const MODE: u32 = 0o660;

/// Error of a socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Another process listens there.
    #[error("{path} is in use by another agent; stop that agent or choose another {flag}")]
    InUse {
        /// The socket.
        path: String,
        /// Flag that names it.
        flag: &'static str,
    },
    /// The path exists and is not a socket.
    #[error("{path} exists and is not a socket; remove it or choose another {flag}")]
    NotASocket {
        /// The path.
        path: String,
        /// Flag that names it.
        flag: &'static str,
    },
    /// The socket cannot be created.
    #[error("cannot listen on {path}: {source}")]
    Io {
        /// The socket.
        path: String,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
}

/// Listening socket and its file.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

impl Socket {
    /// Listens on the `path` that `flag` names, unless another process does or the path is not a
    /// socket. The file is for its owner and group; a stale one of an earlier agent is replaced.
    pub(crate) async fn bind(path: &Path, flag: &'static str) -> Result<Self, SocketError> {
        remove_stale(path, flag).await?;
        let bound = || {
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(MODE))?;
            let file = identity(&fs::symlink_metadata(path)?);
            Ok((listener, file))
        };
        let (listener, file) = bound().map_err(|source| io_error(path, source))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file,
        })
    }

    /// Accepts the next client.
    pub(crate) async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _nameless) = self.listener.accept().await?;
        Ok(stream)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // Another process may have replaced the file.
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.file);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Removes a socket on which no process listens any more.
async fn remove_stale(path: &Path, flag: &'static str) -> Result<(), SocketError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error(path, source)),
    };
    let in_use = || SocketError::InUse {
        path: path.display().to_string(),
        flag,
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket {
            path: path.display().to_string(),
            flag,
        });
    }
    match UnixStream::connect(path).await {
        Ok(_answers) => Err(in_use()),
        Err(error) => match error.kind() {
            // The listener exists, but its backlog is full.
            ErrorKind::WouldBlock => Err(in_use()),
            ErrorKind::NotFound => Ok(()),
            ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|source| io_error(path, source))
            }
            _ => Err(io_error(path, error)),
        },
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn io_error(path: &Path, source: io::Error) -> SocketError {
    SocketError::Io {
        path: path.display().to_string(),
        source,
    }
}
