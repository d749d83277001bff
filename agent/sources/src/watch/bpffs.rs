//! Folder of a BPF file system in which probes and counters outlive the agent.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, FsWord, flock, fstatfs};

use crate::watch::{WatchError, WatchSettings};

/// Magic number of a BPF file system, from `linux/magic.h`.
const BPF_FS_MAGIC: FsWord = 0xcafe_4a11;

/// Folder of pinned maps and probes, locked against other agents.
#[derive(Debug)]
pub(super) struct PinFolder {
    pub(super) folder: PathBuf,
    _lock: fs::File,
}

impl PinFolder {
    /// Acquires the folder of these settings below `root`. Folders of other settings or versions
    /// are removed.
    pub(super) fn acquire(root: &Path, settings: &WatchSettings) -> Result<Self, WatchError> {
        let path = root.display().to_string();
        let failed = |source| WatchError::PinFolder {
            path: path.clone(),
            source,
        };
        fs::create_dir_all(root).map_err(failed)?;
        let lock = fs::File::open(root).map_err(failed)?;
        let kind = fstatfs(&lock).map_err(|error| failed(error.into()))?.f_type;
        // Other pin folders are removed below; on another file system that could be anything.
        if kind != BPF_FS_MAGIC {
            return Err(failed(io::Error::other("not on a BPF file system")));
        }
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(WatchError::InUse { path });
        }
        let key = format!("{}{settings:?}", env!("CARGO_PKG_VERSION"));
        let name = format!(
            "{:016x}-{:016x}",
            fleet_agent_bpf::programs::version(),
            xxhash_rust::xxh64::xxh64(key.as_bytes(), 0)
        );
        for other in fs::read_dir(root).map_err(failed)?.flatten() {
            if other.file_name() != *name && is_agent_folder(&other.file_name()) {
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

    /// Removes the folder.
    pub(super) fn clear(&self) {
        remove(&self.folder);
    }
}

/// Returns whether a folder name is that of an agent: two numbers of 16 hex digits.
fn is_agent_folder(name: &OsStr) -> bool {
    let is_number =
        |part: &str| part.len() == 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parts = name.to_str().and_then(|name| name.split_once('-'));
    parts.is_some_and(|(version, settings)| is_number(version) && is_number(settings))
}

/// Removes a pin folder; pinned objects end with their last user.
fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        tracing::warn!(
            "{}: cannot be removed, probes may remain there: {error}",
            folder.display()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::CountOptions;

    #[test]
    fn only_folders_with_names_of_agents_are_removed() {
        assert!(is_agent_folder(OsStr::new(
            "0123456789abcdef-fedcba9876543210"
        )));
        for other in [
            "cilium",
            "0123456789abcdef",
            "0123456789abcdef-",
            "0123456789abcdef-fedcba987654321g",
        ] {
            assert!(!is_agent_folder(OsStr::new(other)), "{other}");
        }
    }

    #[test]
    fn a_folder_on_another_file_system_is_refused_and_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("0123456789abcdef-fedcba9876543210");
        fs::create_dir(&other).unwrap();
        let settings = WatchSettings {
            count_options: CountOptions::default(),
            min_wait_ns: 0,
            mechanism: None,
            without_host: false,
            rescan: crate::watch::RESCAN,
            pins: None,
            nccl_socket: None,
        };
        let acquired = PinFolder::acquire(dir.path(), &settings);
        assert!(matches!(acquired, Err(WatchError::PinFolder { .. })) && other.exists());
    }
}
