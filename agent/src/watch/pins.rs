//! Where probes and what they count stay when the agent dies.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::watch::{WatchError, WatchSettings};

/// A folder of pinned maps and probes, held against other agents.
#[derive(Debug)]
pub(super) struct Pins {
    pub(super) folder: PathBuf,
    _lock: fs::File,
}

impl Pins {
    /// Takes the folder of these settings below `root`. Probes of other settings or another version go.
    pub(super) fn take(root: &Path, settings: &WatchSettings) -> Result<Self, WatchError> {
        let path = root.display().to_string();
        let failed = |source| WatchError::Pins {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(root).map_err(failed)?;
        let lock = fs::File::open(root).map_err(failed)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(WatchError::Taken { path });
        }
        let key = format!("{}{settings:?}", env!("CARGO_PKG_VERSION"));
        let name = format!(
            "{:016x}-{:016x}",
            fleet_agent_bpf::programs::version(),
            xxhash_rust::xxh64::xxh64(key.as_bytes(), 0)
        );
        for other in fs::read_dir(root).map_err(failed)?.flatten() {
            if other.file_name() != *name {
                remove(&other.path());
            }
        }
        let folder = root.join(name);
        fs::create_dir_all(&folder).map_err(failed)?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Leaves nothing there.
    pub(super) fn clear(&self) {
        remove(&self.folder);
    }
}

/// Removes a folder of pins; what is pinned there ends with its last user.
fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        tracing::warn!(
            "{}: probes may have been left there: {error}",
            folder.display()
        );
    }
}
