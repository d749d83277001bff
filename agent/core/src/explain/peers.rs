//! Comparison of a process with the other ranks of its job on this host.

use std::collections::BTreeMap;

use crate::explain::cause::Cause;
use crate::explain::own_code::LineShares;
use crate::explain::recapture::Graphs;
use crate::explain::worker_lines::WorkerLines;
use crate::statistics::median;

/// Job of a process, by which it has peers; `None` for a process without a rank.
pub(super) type PeerKey = Option<(u32, Option<String>)>;

/// What is compared between processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Shares {
    pub(super) key: PeerKey,
    /// Shares of its time that the process lost to each cause.
    pub(super) shares: BTreeMap<Cause, f64>,
    /// Lines in this period.
    pub(super) present: LineShares,
    /// Lines in the last periods.
    pub(super) lines: LineShares,
    pub(super) graphs: Graphs,
    /// Lines of its worker processes.
    pub(super) workers: WorkerLines,
}

/// Other ranks of a process's job on this host.
pub(super) struct Peers<'a>(Vec<&'a Shares>);

impl<'a> Peers<'a> {
    /// Finds the peers of a process.
    pub(super) fn new(key: &PeerKey, pid: u32, shares: &'a BTreeMap<u32, Shares>) -> Self {
        let is_peer = |(other, own): &(&u32, &Shares)| **other != pid && own.key == *key;
        let others = shares.iter().filter(is_peer).map(|(_, own)| own);
        Self(others.filter(|_| key.is_some()).collect())
    }

    pub(super) fn lines(&self) -> Vec<&'a LineShares> {
        self.0.iter().map(|own| &own.lines).collect()
    }

    pub(super) fn workers(&self) -> Vec<&'a WorkerLines> {
        self.0.iter().map(|own| &own.workers).collect()
    }

    pub(super) fn graphs(&self) -> Vec<Graphs> {
        self.0.iter().map(|own| own.graphs).collect()
    }

    /// Median share of the peers; `None` if they are too few. A rank that waits for a late one
    /// spends more time on what is usual, so two of them are needed there.
    pub(super) fn usual(&self, cause: Cause) -> Option<f64> {
        let shares = self.0.iter();
        let shares: Vec<f64> = shares
            .filter_map(|own| own.shares.get(&cause).copied())
            .collect();
        let enough = if cause.is_usual() { 2 } else { 1 };
        (shares.len() >= enough).then(|| median(shares))?
    }
}
