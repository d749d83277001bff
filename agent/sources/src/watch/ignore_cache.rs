//! Programs that have nothing of interest, so that each start of a shell need not be looked at.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use crate::watch::library::is_of_interest;

/// How long a file that has nothing of interest is not looked at again, nanoseconds: inodes are used again.
const BORING_NS: u64 = 600_000_000_000;
/// Programs that are remembered.
const MAX_BORING: usize = 4096;

/// The programs, by path.
#[derive(Debug, Default)]
pub(super) struct IgnoreCache {
    paths: HashSet<OsString>,
    since_ns: u64,
}

impl IgnoreCache {
    /// Whether a mapping of this path, as the mapping process sees it, is worth a look at the process.
    pub(super) fn should_inspect(&self, path: &OsStr) -> bool {
        let text = path.to_string_lossy();
        // `//anon` and `[vdso]` are no files, and what was made in memory has no name to go by.
        let is_file =
            text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/memfd:");
        let is_library = text.contains(".so");
        is_file && (is_of_interest(path) || !is_library && !self.paths.contains(path))
    }

    /// Remembers a program.
    pub(super) fn add(&mut self, path: &OsStr) {
        if self.paths.len() < MAX_BORING {
            self.paths.insert(path.to_owned());
        }
    }

    /// Forgets all of them when it is time to; whether it is.
    pub(super) fn expire(&mut self, now_ns: u64) -> bool {
        let is_stale = now_ns.saturating_sub(self.since_ns) >= BORING_NS;
        if is_stale {
            self.since_ns = now_ns;
            self.paths.clear();
        }
        is_stale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_at_once_and_libraries_by_their_names() {
        let mut ignore_cache = IgnoreCache::default();
        assert!(ignore_cache.should_inspect(OsStr::new("/usr/bin/sh")));
        ignore_cache.add(OsStr::new("/usr/bin/sh"));
        assert!(!ignore_cache.should_inspect(OsStr::new("/usr/bin/sh")));
        assert!(ignore_cache.should_inspect(OsStr::new("/opt/libnccl.so.2")));
        assert!(!ignore_cache.should_inspect(OsStr::new("/usr/lib/libc.so.6")));
        assert!(
            ignore_cache.expire(BORING_NS)
                && ignore_cache.should_inspect(OsStr::new("/usr/bin/sh"))
        );
    }

    #[test]
    fn what_is_no_file_is_not_looked_at() {
        for none in ["[vdso]", "//anon", "/memfd:jit (deleted)", ""] {
            assert!(
                !IgnoreCache::default().should_inspect(OsStr::new(none)),
                "{none}"
            );
        }
    }
}
