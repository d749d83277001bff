//! Socket file: created for its owner and group, and removed when it is no longer served.

use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::hooks::HookError;

/// Owner and group can connect, which requires write permission.
const MODE: u32 = 0o660;

/// Listening socket and its file.
#[derive(Debug)]
pub(super) struct Socket {
    listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
}

impl Socket {
    /// Listens on `path`, unless another process does or the path is not a socket.
    pub(super) async fn bind(path: &Path) -> Result<Self, HookError> {
        remove_stale(path).await?;
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
    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
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
async fn remove_stale(path: &Path) -> Result<(), HookError> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error(path, source)),
    };
    let name = path.display().to_string();
    if !found.file_type().is_socket() {
        return Err(HookError::NotASocket { path: name });
    }
    match UnixStream::connect(path).await {
        Ok(_answers) => Err(HookError::InUse { path: name }),
        Err(error) => match error.kind() {
            // The listener exists, but its backlog is full.
            ErrorKind::WouldBlock => Err(HookError::InUse { path: name }),
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

fn io_error(path: &Path, source: io::Error) -> HookError {
    HookError::Io {
        path: path.display().to_string(),
        source,
    }
}
