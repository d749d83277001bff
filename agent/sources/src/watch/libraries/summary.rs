//! Summary of the inspected files.

use std::collections::BTreeMap;

use crate::watch::Watched;
use crate::watch::libraries::Libraries;
use crate::watch::libraries::files::Known;
use crate::watch::library::Library;

impl Libraries {
    /// Returns the number of files that were not inspected when they were mapped, because of the
    /// rate limit.
    pub(in crate::watch) const fn deferred_files(&self) -> u64 {
        self.rate_limiter.deferred_files()
    }

    /// Returns the paths of the probed files, as one of their processes sees them.
    pub(in crate::watch) fn paths(&self) -> Vec<String> {
        self.probed()
            .map(|(_, library)| library.path.clone())
            .collect()
    }

    /// Returns the probed files.
    pub(in crate::watch) fn watched(&self) -> Vec<Watched> {
        let watched = self.probed().map(|(_, library)| library.watched());
        watched.collect()
    }

    /// Returns the functions that were skipped because a probe would be slow, by file.
    pub(in crate::watch) fn refused(&self) -> BTreeMap<String, Vec<&'static str>> {
        let refused = |library: &Library| (library.path.clone(), library.functions.refused.clone());
        let all = self.probed().map(|(_, library)| refused(library));
        all.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// Returns the files that cannot be probed, with the reason.
    pub(in crate::watch) fn unprobeable(&self) -> Vec<&str> {
        let reasons = self.known.values().filter_map(|known| match known {
            Known::Unprobeable(reason) => Some(reason.as_str()),
            _ => None,
        });
        reasons.collect()
    }
}
