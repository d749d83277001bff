//! Kill switch for a running job: while a file exists, NCCL is asked for no further events.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::system::{self, ShortPath};

/// Default file. It is in memory, so checking for it never waits for a disk.
pub(crate) const OFF_FILE: &str = "/dev/shm/fleet-nccl-off";

/// Time between two checks, nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;

/// Kill switch.
#[derive(Debug)]
pub(crate) struct Switch {
    file: OnceLock<Option<ShortPath>>,
    looked_ns: AtomicU64,
    is_off: AtomicBool,
}

impl Switch {
    pub(crate) const fn new() -> Self {
        Self {
            file: OnceLock::new(),
            looked_ns: AtomicU64::new(0),
            is_off: AtomicBool::new(false),
        }
    }

    /// Sets the file that disables the plugin. Only the first call counts.
    pub(crate) fn watch(&self, file: &[u8]) {
        self.file.get_or_init(|| ShortPath::of(file));
    }

    /// Returns whether the plugin is disabled. Checks the file at most once a second.
    pub(crate) fn is_off(&self, now_ns: u64) -> bool {
        let looked_ns = self.looked_ns.load(Ordering::Relaxed);
        if looked_ns > 0 && now_ns.saturating_sub(looked_ns) < LOOK_NS {
            return self.is_off.load(Ordering::Relaxed);
        }
        let is_mine = self.looked_ns.compare_exchange(
            looked_ns,
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
        let switch = Switch::new();
        switch.watch(file.as_os_str().as_bytes());
        assert!(!switch.is_off(1));
        std::fs::write(&file, "").unwrap();
        assert!(!switch.is_off(2));
        assert!(switch.is_off(LOOK_NS + 1));
        std::fs::remove_file(&file).unwrap();
        assert!(switch.is_off(LOOK_NS + 2));
        assert!(!switch.is_off(3 * LOOK_NS));
    }
}
