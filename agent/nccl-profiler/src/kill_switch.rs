//! Kill switch for a running job: while a file exists, the plugin requests no further events.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::system::{self, ShortPath};

/// Default file. It is in memory, so checking for it never waits for a disk.
pub(crate) const OFF_FILE: &str = "/dev/shm/fleet-nccl-off";

/// Time between two checks, nanoseconds.
const CHECK_INTERVAL_NS: u64 = 1_000_000_000;

/// Kill switch.
#[derive(Debug)]
pub(crate) struct KillSwitch {
    file: OnceLock<Option<ShortPath>>,
    checked_ns: AtomicU64,
    is_off: AtomicBool,
}

impl KillSwitch {
    pub(crate) const fn new() -> Self {
        Self {
            file: OnceLock::new(),
            checked_ns: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
        }
    }

    /// Sets the file that disables the plugin. Only the first call counts.
    pub(crate) fn set_file(&self, file: &[u8]) {
        self.file.get_or_init(|| ShortPath::new(file));
    }

    /// Returns whether the plugin is disabled. Checks the file at most once a second.
    pub(crate) fn is_off(&self, now_ns: u64) -> bool {
        let checked_ns = self.checked_ns.load(Ordering::Relaxed);
        if checked_ns > 0 && now_ns.saturating_sub(checked_ns) < CHECK_INTERVAL_NS {
            return self.is_off.load(Ordering::Relaxed);
        }
        let is_mine = self.checked_ns.compare_exchange(
            checked_ns,
            now_ns.max(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if is_mine.is_ok()
            && let Some(Some(file)) = self.file.get()
        {
            let is_there = system::exists(file);
            self.is_off.store(is_there, Ordering::Relaxed);
        }
        self.is_off.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn the_file_disables_the_plugin_and_is_checked_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("off");
        let kill_switch = KillSwitch::new();
        kill_switch.set_file(file.as_os_str().as_bytes());
        assert!(!kill_switch.is_off(1));
        std::fs::write(&file, "").unwrap();
        assert!(!kill_switch.is_off(2));
        assert!(kill_switch.is_off(CHECK_INTERVAL_NS + 1));
        std::fs::remove_file(&file).unwrap();
        assert!(kill_switch.is_off(CHECK_INTERVAL_NS + 2));
        assert!(!kill_switch.is_off(3 * CHECK_INTERVAL_NS));
    }
}
