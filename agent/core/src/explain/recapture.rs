//! CUDA graphs that are instantiated again and again. A rule of counts: a graph pays off if it is
//! launched many times, and the time in the calls that make it is only a part of what is lost.

use crate::explain::cause::Cause;
use crate::explain::observation::Observation;
use crate::explain::past::Past;
use crate::statistics::{median, ratio};

/// Smallest number of graphs instantiated in a period.
const MIN_GRAPHS: u64 = 5;
/// Smallest ratio to the graphs of the peers, or to those of its own past.
const MULTIPLE: f64 = 10.0;
/// Launches per graph up to which it is made again for each use.
const MAX_USES: u64 = 2;

/// Graphs of a process in one period.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Graphs {
    instantiated: u64,
    launched: u64,
    /// Instantiated per second.
    rate: f64,
}

impl Graphs {
    pub(super) fn new(seen: &Observation, period_ns: u64) -> Self {
        let count = |part: &str| -> u64 {
            let calls = seen.calls.iter();
            let own = calls.filter(|(function, _)| function.contains(part));
            own.map(|(_, calls)| calls.calls()).sum()
        };
        let instantiated = count("GraphInstantiate");
        Self {
            instantiated,
            // Launches are counted, or measured if a flag requests it.
            launched: count("GraphLaunch").max(seen.graph_launches.unwrap_or(0)),
            rate: ratio(instantiated, period_ns) * 1e9,
        }
    }

    /// Returns whether the process makes and uses graphs all the time, which its peers do not do; or
    /// without peers, that it makes one for each use, which itself did not do before. While a program
    /// starts, it makes graphs without launching them.
    pub(super) fn are_made_again(self, peers: &[Self], past: &mut Past) -> bool {
        let of_peers = median(peers.iter().map(|peer| peer.rate));
        let usual = of_peers.or_else(|| past.usual(Cause::GraphCreation));
        let is_more = usual.is_some_and(|usual| self.rate >= MULTIPLE * usual);
        let most_launches = match of_peers {
            Some(_) => u64::MAX,
            None => self.instantiated.saturating_mul(MAX_USES),
        };
        let launches = self.instantiated / 2..=most_launches;
        let are_made_again =
            self.instantiated >= MIN_GRAPHS && is_more && launches.contains(&self.launched);
        if !are_made_again {
            past.add(Cause::GraphCreation, self.rate);
        }
        are_made_again
    }

    /// Describes the counts.
    pub(super) fn link(self) -> String {
        format!(
            "{} graphs were instantiated, {:.1} per second, and graphs were launched {} times",
            self.instantiated, self.rate, self.launched
        )
    }
}
