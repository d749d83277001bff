//! Lines of a rank's own program at which it is more often than its peers.

use std::collections::{BTreeMap, VecDeque};

use crate::event::Frame;
use crate::explain::cause::Cause;
use crate::explain::observation::Observation;
use crate::explain::place::{has_gpu_library, program_samples, waits_for_thread};
use crate::statistics::{median, ratio};

/// Number of periods whose samples are added up: one alone has too few for a tenth of the time.
const POOLED: usize = 3;
/// Smallest number of samples of a process in these periods.
const MIN_SAMPLES: u64 = 50;
/// Smallest difference to the peers, as a share of the samples.
const FLOOR: f64 = 0.06;
/// Smallest ratio to the peers.
const MULTIPLE: f64 = 2.0;
/// Smallest difference to the peers in standard deviations of the difference of two shares.
const SIGMAS: f64 = 5.0;
/// Smallest share in the last period, as a part of the share in all of them: a line that the rank
/// has left is no cause any more.
const STILL: f64 = 0.5;

/// Samples of the last periods of a process.
#[derive(Debug, Clone, Default)]
pub(super) struct LineHistory(VecDeque<LineShares>);

impl LineHistory {
    /// Adds a period. Without one that is like the others, such as that of a delayed rank, the
    /// history begins anew.
    pub(super) fn add(&mut self, period: LineShares, is_delayed: bool) {
        if is_delayed {
            self.0.clear();
            return;
        }
        if self.0.len() == POOLED - 1 {
            self.0.pop_front();
        }
        self.0.push_back(period);
    }

    /// Returns the shares in these periods and the present one.
    pub(super) fn pooled(&self, present: &LineShares) -> LineShares {
        let mut pooled = present.clone();
        self.0.iter().for_each(|earlier| pooled.add(earlier));
        pooled
    }
}

/// Shares of the samples at the innermost Python lines, outside of GPU library calls.
#[derive(Debug, Clone, Default)]
pub(super) struct LineShares {
    samples: u64,
    lines: BTreeMap<Frame, Line>,
    /// Samples in copies of GPU memory, by the innermost line.
    copies: BTreeMap<Frame, u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    samples: u64,
    /// Samples of which it is known that the process was in no GPU library.
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
            ..Self::default()
        };
        // Of threads that run no Python themselves.
        let mut in_gpu_library: u64 = 0;
        let mut waits: BTreeMap<&Frame, u64> = BTreeMap::new();
        for ((call, stack), samples) in &seen.stacks {
            let is_in_gpu_library = call.is_some() || has_gpu_library(stack);
            let Some(line) = stack.python_line() else {
                let samples = if is_in_gpu_library { *samples } else { 0 };
                in_gpu_library = in_gpu_library.saturating_add(samples);
                continue;
            };
            if is_in_gpu_library {
                let call = call.as_deref().unwrap_or_default();
                if Cause::Copies.has_function(call) {
                    *shares.copies.entry(line.clone()).or_default() += samples;
                }
                continue;
            }
            if waits_for_thread(stack) {
                *waits.entry(line).or_default() += samples;
            }
            let own = shares.lines.entry(line.clone()).or_default();
            own.samples = own.samples.saturating_add(*samples);
        }
        for (line, samples) in &seen.outside {
            if let Some(own) = shares.lines.get_mut(line) {
                // A thread that waits may wait for one that is in a GPU library, as the first thread of a
                // PyTorch program does during the backward pass.
                let waits = waits.get(line).copied().unwrap_or(0);
                own.certain = samples.saturating_sub(waits.min(in_gpu_library));
            }
        }
        shares
    }

    fn add(&mut self, earlier: &Self) {
        self.samples = self.samples.saturating_add(earlier.samples);
        for (line, own) in &earlier.lines {
            let sum = self.lines.entry(line.clone()).or_default();
            sum.samples = sum.samples.saturating_add(own.samples);
            sum.certain = sum.certain.saturating_add(own.certain);
        }
        for (line, samples) in &earlier.copies {
            *self.copies.entry(line.clone()).or_default() += samples;
        }
    }

    /// Returns the share of the samples in copies at a line, if it is much larger than that of each peer.
    pub(super) fn copies(&self, line: &Frame, peers: &[&Self]) -> Option<f64> {
        let share = |shares: &Self| {
            let at_line = shares.copies.get(line).copied().unwrap_or(0);
            ratio(at_line, shares.samples)
        };
        let own = share(self);
        let mut peers = peers.iter().map(|peer| share(peer));
        peers.all(|peer| own >= MULTIPLE * peer).then_some(own)
    }

    /// Returns the line at which the process is most often beyond its peers, by the samples of some
    /// periods, of which `present` is the last one. A rank that waits for another one in a call that
    /// is not recognised is more often at its line than that one, so a single peer is enough only if
    /// it is known that the rank was in no such call.
    pub(super) fn compare(&self, present: &Self, peers: &[&Self]) -> Option<OwnLine> {
        let is_sampled = |shares: &&&Self| shares.samples >= MIN_SAMPLES;
        let peers: Vec<&&Self> = peers.iter().filter(is_sampled).collect();
        if self.samples < MIN_SAMPLES || peers.is_empty() {
            return None;
        }
        let own = self.lines.iter().filter(|(_, own)| {
            let is_certain = own.certain.saturating_mul(2) > own.samples;
            peers.len() >= if is_certain { 1 } else { 2 }
        });
        let own = own.filter_map(|(line, own)| {
            let all = Counts::of_all(line, &peers);
            let usual = median(peers.iter().map(|peer| peer.share(line)))?.max(all.share());
            let counts = Counts {
                at_line: own.samples,
                samples: self.samples,
            };
            let share = counts.share();
            let is_still = present.share(line) >= STILL * share;
            Some(OwnLine {
                line: line.clone(),
                share,
                usual,
                stands_out: is_still && counts.stand_out(usual, all),
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

/// Samples at a line, and all samples.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    at_line: u64,
    samples: u64,
}

impl Counts {
    /// Adds up the samples of some processes.
    fn of_all(line: &Frame, processes: &[&&LineShares]) -> Self {
        let at_line = |shares: &&&LineShares| shares.lines.get(line).map_or(0, |own| own.samples);
        Self {
            at_line: processes.iter().map(at_line).sum(),
            samples: processes.iter().map(|shares| shares.samples).sum(),
        }
    }

    fn share(self) -> f64 {
        ratio(self.at_line, self.samples)
    }

    /// Compares the share with that of the peers: the standard deviation of their difference is that
    /// of two binomial distributions with the pooled share.
    fn stand_out(self, usual: f64, peers: Self) -> bool {
        let pooled = ratio(
            self.at_line.saturating_add(peers.at_line),
            self.samples.saturating_add(peers.samples),
        );
        let samples = ratio(1, self.samples) + ratio(1, peers.samples);
        let deviation = (pooled * (1.0 - pooled) * samples).sqrt();
        let share = self.share();
        share - usual >= FLOOR.max(SIGMAS * deviation) && share >= MULTIPLE * usual
    }
}
