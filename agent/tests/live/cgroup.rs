//! Control groups with limits, of either version.

use std::fs;
use std::path::{Path, PathBuf};

/// Control group of a test.
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a group with a CPU quota of microseconds in each tenth of a second.
    pub(crate) fn with_quota(quota_us: u32) -> Self {
        let (group, is_unified) = Self::new("cpu");
        if is_unified {
            group.set("cpu.max", &format!("{quota_us} 100000"));
        } else {
            group.set("cpu.cfs_period_us", "100000");
            group.set("cpu.cfs_quota_us", &quota_us.to_string());
        }
        group
    }

    /// Creates a group with a memory limit.
    pub(crate) fn with_memory(bytes: u32) -> Self {
        let (group, is_unified) = Self::new("memory");
        let file = if is_unified {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        group.set(file, &bytes.to_string());
        group
    }

    /// Returns the words before a command that runs in the group.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["sh", "-c", &enter, "sh"].map(str::to_owned).to_vec()
    }

    /// Creates a group with a controller; returns whether groups have version 2.
    fn new(controller: &str) -> (Self, bool) {
        let mount = Path::new("/sys/fs/cgroup");
        let is_unified = mount.join("cgroup.controllers").exists();
        let parent = if is_unified {
            let enable = format!("+{controller}");
            fs::write(mount.join("cgroup.subtree_control"), enable).unwrap();
            mount.to_owned()
        } else {
            mount.join(controller)
        };
        let group = Self(parent.join(format!("fleet-test-{}", std::process::id())));
        fs::create_dir(&group.0).unwrap();
        (group, is_unified)
    }

    fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value).unwrap();
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _removed = fs::remove_dir(&self.0);
    }
}
