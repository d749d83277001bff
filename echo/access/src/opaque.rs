//! Opaque tokens, of which the file has the hashes.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use echo_core::units::Nanos;

use crate::mint::{self, Hash};
use crate::{Principal, Rejected};

/// All opaque tokens of the file.
#[derive(Debug, Default)]
pub(super) struct OpaqueTokens(Vec<OpaqueToken>);

/// An entry of the file.
#[derive(Debug)]
pub(super) struct OpaqueToken {
    pub(super) hash: Hash,
    pub(super) not_before: Option<Nanos>,
    pub(super) principal: Arc<Principal>,
}

impl OpaqueTokens {
    /// Takes the entries, each with its place in the file, and reports tokens that are there twice.
    pub(super) fn new(entries: Vec<(String, OpaqueToken)>, mistakes: &mut Vec<String>) -> Self {
        let mut places = BTreeMap::new();
        for (place, token) in &entries {
            if let Some(earlier) = places.insert(token.hash, place) {
                mistakes.push(format!("{place}.sha256: is the token of {earlier}, too"));
            }
        }
        Self(entries.into_iter().map(|(_, token)| token).collect())
    }

    pub(super) fn identify(&self, token: &str, now: Nanos) -> Result<Arc<Principal>, Rejected> {
        if !mint::has_form(token) {
            return Err(Rejected::Malformed);
        }
        let hash = mint::hash(token);
        // Every entry is compared to its end, so that the time says nothing about how near a guess was.
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
