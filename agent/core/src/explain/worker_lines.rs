//! Lines at which the worker processes of a process are, such as those that load its data.

use std::collections::BTreeMap;

use crate::event::{Frame, Stack};
use crate::explain::chain::percent;
use crate::explain::observation::Observation;
use crate::explain::place::waits;
use crate::statistics::ratio;

/// Smallest number of samples of the workers of a process.
const MIN_SAMPLES: u64 = 20;
/// Smallest share of their samples at a line.
const FLOOR: f64 = 0.3;
/// Smallest ratio to the share of the peers' workers.
const MULTIPLE: f64 = 2.0;
/// Maximum number of lines of a stack in a link.
const MAX_LINES: usize = 3;

/// Samples of the workers of a process at the innermost lines of their program. Those that wait for work are
/// counted and have no line.
#[derive(Debug, Clone, Default)]
pub(super) struct WorkerLines {
    samples: u64,
    lines: BTreeMap<Frame, (u64, Stack)>,
}

impl WorkerLines {
    pub(super) fn from_observation(seen: &Observation) -> Self {
        let mut workers = Self::default();
        for (stack, samples) in &seen.worker_stacks {
            workers.samples = workers.samples.saturating_add(*samples);
            let Some(line) = stack.python_line().filter(|line| !waits(line)) else {
                continue;
            };
            let at_line = workers.lines.entry(line.clone());
            let (sum, _) = at_line.or_insert_with(|| (0, stack.clone()));
            *sum = sum.saturating_add(*samples);
        }
        workers
    }

    /// Returns whether there are enough samples to say anything.
    pub(super) fn are_sampled(&self) -> bool {
        self.samples >= MIN_SAMPLES
    }

    /// Returns what the workers do instead of waiting for work, if it is much of their time and more than the
    /// workers of the peers do it.
    pub(super) fn link(&self, peers: &[&Self]) -> Option<String> {
        if !self.are_sampled() {
            return None;
        }
        let busiest = self.lines.iter().max_by_key(|(_, (samples, _))| *samples)?;
        let (line, (samples, stack)) = busiest;
        let share = ratio(*samples, self.samples);
        let peers: Vec<&&Self> = peers.iter().filter(|peer| peer.are_sampled()).collect();
        let of_peers = peers.iter().map(|peer| peer.share(line));
        let of_peers = of_peers.fold(0.0, f64::max);
        if share < FLOOR || share < MULTIPLE * of_peers {
            return None;
        }
        let lines: Vec<String> = stack.outline().into_iter().take(MAX_LINES).collect();
        let compared = if peers.is_empty() {
            String::new()
        } else {
            format!(", those of its peers in {}", percent(of_peers))
        };
        Some(format!(
            "its worker processes were at {} in {} of their samples{compared}",
            lines.join(" <- "),
            percent(share)
        ))
    }

    fn share(&self, line: &Frame) -> f64 {
        let samples = self.lines.get(line).map_or(0, |(samples, _)| *samples);
        ratio(samples, self.samples)
    }
}
