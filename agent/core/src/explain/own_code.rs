//! Lines of a rank's own program at which it is more often than its peers.

use std::collections::BTreeMap;

use crate::event::{Frame, Stack};
use crate::explain::observation::{Observation, ratio};
use crate::statistics::median;

/// Smallest number of samples of a process in a period.
const MIN_SAMPLES: u64 = 50;
/// Smallest difference to the peers, as a share of the samples.
const FLOOR: f64 = 0.1;
/// Smallest ratio to the peers.
const MULTIPLE: f64 = 2.0;
/// Difference to the peers in standard deviations of two sampled shares, each at most
/// `0.5 / sqrt(samples)`.
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
}

impl LineShares {
    pub(super) fn from_observation(seen: &Observation) -> Self {
        let mut shares = Self::default();
        for ((call, stack), samples) in &seen.stacks {
            shares.samples = shares.samples.saturating_add(*samples);
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
    pub(super) fn standing_out(&self, peers: &[&Self]) -> Option<OwnLine> {
        let is_sampled = |shares: &&&Self| shares.samples >= MIN_SAMPLES;
        let peers: Vec<&&Self> = peers.iter().filter(is_sampled).collect();
        let fewest = peers.iter().map(|peer| peer.samples).min()?;
        if self.samples < MIN_SAMPLES {
            return None;
        }
        let deviation = 0.5 * (ratio(1, self.samples) + ratio(1, fewest)).sqrt();
        let floor = FLOOR.max(SIGMAS * deviation);
        let own = self.lines.iter().filter(|(_, own)| {
            let is_certain = own.certain.saturating_mul(2) > own.samples;
            peers.len() >= if is_certain { 1 } else { 2 }
        });
        let own = own.filter_map(|(line, own)| {
            let share = ratio(own.samples, self.samples);
            let usual = median(peers.iter().map(|peer| peer.share(line)))?;
            let line = line.clone();
            Some(OwnLine { line, share, usual })
        });
        own.filter(|own| own.share - own.usual >= floor && own.share >= MULTIPLE * own.usual)
            .max_by(|a, b| (a.share - a.usual).total_cmp(&(b.share - b.usual)))
    }

    fn share(&self, line: &Frame) -> f64 {
        let own = self.lines.get(line).copied().unwrap_or_default();
        ratio(own.samples, self.samples)
    }
}

impl OwnLine {
    /// Returns the most frequent stack at this line, with its share of all samples.
    pub(super) fn stack<'s>(&self, seen: &'s Observation) -> Option<(&'s Stack, f64)> {
        let all = seen.stacks.values().copied().sum();
        let at_line = seen
            .stacks
            .iter()
            .filter(|((call, stack), _)| call.is_none() && stack.python_line() == Some(&self.line));
        let ((_, stack), samples) = at_line.max_by_key(|(_, samples)| **samples)?;
        Some((stack, ratio(*samples, all)))
    }
}

/// Returns whether the thread was in a library of the GPU stack, even in a function without a
/// symbol.
fn has_gpu_library(stack: &Stack) -> bool {
    let innermost = stack.frames.iter().take_while(|frame| !frame.is_python());
    let mut modules = innermost.filter_map(|frame| match frame {
        Frame::Native { module, .. } => module.as_deref(),
        Frame::Python { .. } => None,
    });
    modules.any(|path| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_gpu = |part| name.starts_with(part);
        [
            "libcuda",
            "libnccl",
            "librccl",
            "libamdhip",
            "libhsa-runtime",
            "libnvidia",
        ]
        .into_iter()
        .any(is_gpu)
    })
}
