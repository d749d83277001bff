//! What there is to say of the files that were looked at.

use std::collections::BTreeMap;

use crate::watch::Watched;
use crate::watch::libraries::{Known, Libraries};
use crate::watch::library::Library;

impl Libraries {
    /// Files that were not looked into when they were mapped, because too many were.
    pub(in crate::watch) const fn deferred_files(&self) -> u64 {
        self.rate_limiter.deferred_files()
    }

    /// Paths of the files that are probed, as one of their processes sees them.
    pub(in crate::watch) fn paths(&self) -> Vec<String> {
        self.probed()
            .map(|(_, library)| library.path.clone())
            .collect()
    }

    /// The files that are probed.
    pub(in crate::watch) fn watched(&self) -> Vec<Watched> {
        let watched = self.probed().map(|(_, library)| library.watched());
        watched.collect()
    }

    /// Functions that are left alone because a probe there would be slow, by file.
    pub(in crate::watch) fn refused(&self) -> BTreeMap<String, Vec<&'static str>> {
        let refused = |library: &Library| (library.path.clone(), library.functions.refused.clone());
        let all = self.probed().map(|(_, library)| refused(library));
        all.filter(|(_, names)| !names.is_empty()).collect()
    }

    /// Files that cannot be probed, and why.
    pub(in crate::watch) fn unprobeable(&self) -> Vec<&str> {
        let reasons = self.known.values().filter_map(|known| match known {
            Known::Unprobeable(reason) => Some(reason.as_str()),
            _ => None,
        });
        reasons.collect()
    }
}
