//! Lines of a rank's own program at which it is more often than its peers.

use std::collections::BTreeMap;

use crate::event::Frame;
use crate::explain::observation::Observation;
use crate::explain::place::{has_gpu_library, program_samples};
use crate::statistics::{median, ratio};

/// Smallest number of samples of a process in a period.
const MIN_SAMPLES: u64 = 50;
/// Smallest difference to the peers, as a share of the samples.
const FLOOR: f64 = 0.1;
/// Smallest ratio to the peers.
const MULTIPLE: f64 = 2.0;
/// Smallest difference to the peers in standard deviations of the difference of two shares.
const SIGMAS: f64 = 3.0;

/// Shares of the samples at the innermost Python lines, outside of GPU library calls.
#[derive(Debug, Clone, Default)]
pub(super) struct LineShares {
    samples: u64,
    lines: BTreeMap<Frame, Line>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    samples: u64,
    /// Samples of which it is known that the thread was in no GPU library.
    certain: u64,
}

/// Line at which a rank is more often than its peers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnLine {
    pub(super) line: Frame,
    pub(super) share: f64,
    pub(super) usual: f64,
    /// Whether the difference is more than chance and matters.
    pub(super) stands_out: bool,
}

impl LineShares {
    pub(super) fn from_observation(seen: &Observation) -> Self {
        let mut shares = Self {
            samples: program_samples(seen),
            lines: BTreeMap::new(),
        };
        for ((call, stack), samples) in &seen.stacks {
            let Some(line) = stack.python_line().filter(|_| call.is_none()) else {
                continue;
            };
            if has_gpu_library(stack) {
                continue;
            }
            let own = shares.lines.entry(line.clone()).or_default();
            own.samples = own.samples.saturating_add(*samples);
            if !stack.frames.first().is_none_or(Frame::is_python) {
                own.certain = own.certain.saturating_add(*samples);
            }
        }
        shares
    }

    /// Returns the line at which the process is most often beyond its peers. A rank that waits for
    /// another one in a call that is not recognised is more often at its line than that one, so a
    /// single peer is enough only if it is known that the rank was in no such call.
    pub(super) fn compare(&self, peers: &[&Self]) -> Option<OwnLine> {
        let is_sampled = |shares: &&&Self| shares.samples >= MIN_SAMPLES;
        let peers: Vec<&&Self> = peers.iter().filter(is_sampled).collect();
        let fewest = peers.iter().map(|peer| peer.samples).min()?;
        if self.samples < MIN_SAMPLES {
            return None;
        }
        let own = self.lines.iter().filter(|(_, own)| {
            let is_certain = own.certain.saturating_mul(2) > own.samples;
            peers.len() >= if is_certain { 1 } else { 2 }
        });
        let own = own.filter_map(|(line, own)| {
            let share = ratio(own.samples, self.samples);
            let usual = median(peers.iter().map(|peer| peer.share(line)))?;
            Some(OwnLine {
                line: line.clone(),
                share,
                usual,
                stands_out: stands_out((share, self.samples), (usual, fewest)),
            })
        });
        own.filter(|own| own.share > own.usual)
            .max_by(|a, b| (a.share - a.usual).total_cmp(&(b.share - b.usual)))
    }

    fn share(&self, line: &Frame) -> f64 {
        let own = self.lines.get(line).copied().unwrap_or_default();
        ratio(own.samples, self.samples)
    }
}

/// Compares two shares, each with its number of samples: the standard deviation of their difference
/// is that of two binomial distributions with the pooled share.
fn stands_out((share, samples): (f64, u64), (usual, of_peer): (f64, u64)) -> bool {
    let pooled = f64::midpoint(share, usual);
    let variance = pooled * (1.0 - pooled) * (ratio(1, samples) + ratio(1, of_peer));
    let floor = FLOOR.max(SIGMAS * variance.sqrt());
    share - usual >= floor && share >= MULTIPLE * usual
}
