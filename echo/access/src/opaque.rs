//! Opaque tokens, stored as hashes in the access file.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use echo_core::units::Nanos;

use crate::mint::{self, Hash};
use crate::{Principal, Rejected};

/// All opaque tokens of the access file.
#[derive(Debug, Default)]
pub(super) struct OpaqueTokens(Vec<OpaqueToken>);

/// An entry of the access file.
#[derive(Debug)]
pub(super) struct OpaqueToken {
    pub(super) hash: Hash,
    pub(super) not_before: Option<Nanos>,
    pub(super) principal: Arc<Principal>,
}

impl OpaqueTokens {
    /// Collects the entries, each with its position in the file, and reports duplicate tokens.
    pub(super) fn new(entries: Vec<(String, OpaqueToken)>, mistakes: &mut Vec<String>) -> Self {
        let mut places = BTreeMap::new();
        for (place, token) in &entries {
            if let Some(earlier) = places.insert(token.hash, place) {
                mistakes.push(format!("{place}.sha256: is the same token as {earlier}"));
            }
        }
        Self(entries.into_iter().map(|(_, token)| token).collect())
    }

    pub(super) fn identify(&self, token: &str, now: Nanos) -> Result<Arc<Principal>, Rejected> {
        if !mint::is_well_formed(token) {
            return Err(Rejected::Malformed);
        }
        let hash = mint::hash(token);
        // All entries are compared in full, so that timing does not reveal a near match.
        let found = self.0.iter().fold(None, |found, entry| {
            let is_equal = verify_slices_are_equal(&entry.hash, &hash).is_ok();
            if is_equal { Some(entry) } else { found }
        });
        let entry = found.ok_or(Rejected::Unknown)?;
        if entry.not_before.is_some_and(|begin| now < begin) {
            return Err(Rejected::NotYetValid);
        }
        if entry.principal.not_after.is_some_and(|end| end <= now) {
            return Err(Rejected::Expired);
        }
        Ok(Arc::clone(&entry.principal))
    }
}
