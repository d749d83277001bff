//! Alignment of the clocks of several hosts.
//!
//! A collective completes on all its ranks at about the same time, although they enter it at different times. So the
//! difference of two clocks is the median difference of the completions of common collectives.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_core::signal::CommId;

use crate::trace::timeline::RankTimeline;

/// Result of an alignment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Hosts that share no completed collective with an aligned one.
    pub(super) unaligned: Vec<usize>,
}

/// Shifts the times of all ranks to the clock of the first host.
pub(super) fn align(ranks: &mut [RankTimeline]) -> Alignment {
    let mut waiting: BTreeSet<usize> = ranks.iter().map(|rank| rank.host).collect();
    let mut known = BTreeMap::new();
    if let Some(first) = waiting.pop_first() {
        known.extend(completions(ranks, first));
    }
    loop {
        let mut shifts = waiting.iter().map(|host| {
            let own = completions(ranks, *host);
            (*host, shift(&known, &own))
        });
        let Some((host, by_ns)) = shifts.find_map(|(host, shift)| Some((host, shift?))) else {
            break;
        };
        for rank in ranks.iter_mut().filter(|rank| rank.host == host) {
            rank.shift(by_ns);
        }
        known.extend(completions(ranks, host));
        waiting.remove(&host);
    }
    Alignment {
        unaligned: waiting.into_iter().collect(),
    }
}

/// Returns the completions of the last collective before each wait: only those were waited for.
fn completions(ranks: &[RankTimeline], host: usize) -> BTreeMap<(CommId, u64), u64> {
    let mut completions = BTreeMap::new();
    for rank in ranks.iter().filter(|rank| rank.host == host) {
        let mut later = rank.collectives.iter().skip(1);
        for collective in &rank.collectives {
            let next_ns = later.next().and_then(|next| next.completed_ns);
            if let Some(completed_ns) = collective.completed_ns
                && next_ns != Some(completed_ns)
            {
                completions.insert(
                    (collective.operation.comm, collective.operation.seq),
                    completed_ns,
                );
            }
        }
    }
    completions
}

fn shift(known: &BTreeMap<(CommId, u64), u64>, own: &BTreeMap<(CommId, u64), u64>) -> Option<i64> {
    let common = own.iter().filter_map(|(operation, completed_ns)| {
        let reference_ns = known.get(operation)?;
        i64::try_from(i128::from(*reference_ns) - i128::from(*completed_ns)).ok()
    });
    let mut differences: Vec<i64> = common.collect();
    differences.sort_unstable();
    differences.get(differences.len() / 2).copied()
}
