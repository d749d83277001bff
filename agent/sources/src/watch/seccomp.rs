//! Protection of processes that a return probe would kill.
//!
//! From Linux 6.11 on, a probed function returns through the system call `uretprobe`. Before 6.14
//! exempted it, a seccomp filter that does not know its number killed the process.

use std::fs;
use std::path::Path;

/// First release whose return probes use a system call.
const FIRST: (u32, u32) = (6, 11);
/// First release that exempts it from filters.
const FIXED: (u32, u32) = (6, 14);

/// Guard for processes under a seccomp filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard {
    is_needed: bool,
}

impl Guard {
    /// Returns the guard for a kernel release such as `6.12.4-amd64`.
    pub fn for_release(release: &str) -> Self {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        let version = (numbers.next(), numbers.next());
        let is_needed = match version {
            (Some(Ok(major)), Some(Ok(minor))) => (FIRST..FIXED).contains(&(major, minor)),
            _ => false,
        };
        Self { is_needed }
    }

    /// Returns whether it is needed on this kernel.
    pub fn is_needed(self) -> bool {
        self.is_needed
    }

    /// Returns whether return probes are forbidden in a process.
    pub(super) fn forbids(self, proc: &Path, pid: u32) -> bool {
        self.is_needed
            && fs::read_to_string(proc.join(pid.to_string()).join("status"))
                .is_ok_and(|status| is_filtered(&status))
    }
}

/// Returns whether `/proc/PID/status` shows an active filter.
fn is_filtered(status: &str) -> bool {
    status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() == "2")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_releases_between_need_it() {
        let needed = |release: &str| Guard::for_release(release).is_needed();
        assert!(needed("6.11.0-29-generic") && needed("6.12.4-amd64") && needed("6.13"));
        assert!(
            !needed("6.10.9") && !needed("6.14.0") && !needed("6.18.44") && !needed("5.15.0-91")
        );
        assert!(!needed("unknown"));
    }

    #[test]
    fn a_filter_is_mode_two() {
        assert!(is_filtered(
            "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n"
        ));
        assert!(!is_filtered("Name:\tSeccomp:\t2\nSeccomp:\t0\n"));
    }
}
