//! Cache of programs without relevant functions, so that not every start of a shell has to be
//! inspected.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use crate::watch::library::is_of_interest;

/// Time for which a file without relevant functions is not inspected again, nanoseconds: inodes are
/// reused.
const LIFETIME_NS: u64 = 600_000_000_000;
/// Maximum number of cached programs.
const MAX_PROGRAMS: usize = 4096;

/// Programs by path.
#[derive(Debug, Default)]
pub(super) struct IgnoreCache {
    paths: HashSet<OsString>,
    since_ns: u64,
}

impl IgnoreCache {
    /// Returns whether a mapping of this path, as the mapping process sees it, is a reason to
    /// inspect the process.
    pub(super) fn should_inspect(&self, path: &OsStr) -> bool {
        let text = path.to_string_lossy();
        // `//anon` and `[vdso]` are not files, and in-memory files have no name to go by.
        let is_file =
            text.starts_with('/') && !text.starts_with("//") && !text.starts_with("/memfd:");
        let is_library = text.contains(".so");
        is_file && (is_of_interest(path) || !is_library && !self.paths.contains(path))
    }

    /// Adds a program.
    pub(super) fn add(&mut self, path: &OsStr) {
        if self.paths.len() < MAX_PROGRAMS {
            self.paths.insert(path.to_owned());
        }
    }

    /// Clears the cache if it has expired, and returns whether it has.
    pub(super) fn expire(&mut self, now_ns: u64) -> bool {
        let is_stale = now_ns.saturating_sub(self.since_ns) >= LIFETIME_NS;
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
    fn programs_are_inspected_once_and_libraries_by_name() {
        let mut ignore_cache = IgnoreCache::default();
        assert!(ignore_cache.should_inspect(OsStr::new("/usr/bin/sh")));
        ignore_cache.add(OsStr::new("/usr/bin/sh"));
        assert!(!ignore_cache.should_inspect(OsStr::new("/usr/bin/sh")));
        assert!(ignore_cache.should_inspect(OsStr::new("/opt/libnccl.so.2")));
        assert!(!ignore_cache.should_inspect(OsStr::new("/usr/lib/libc.so.6")));
        assert!(
            ignore_cache.expire(LIFETIME_NS)
                && ignore_cache.should_inspect(OsStr::new("/usr/bin/sh"))
        );
    }

    #[test]
    fn mappings_without_a_file_are_not_inspected() {
        for none in ["[vdso]", "//anon", "/memfd:jit (deleted)", ""] {
            assert!(
                !IgnoreCache::default().should_inspect(OsStr::new(none)),
                "{none}"
            );
        }
    }
}
