//! Iteration of a process: its busiest communicator, the pattern of that communicator, and the role
//! derived from all operations of an iteration.

use std::collections::{BTreeMap, VecDeque, vec_deque};

use crate::correlate::Issued;
use crate::discover::{Comm, CommIndex};
use crate::iteration::{Pattern, PatternTracker};
use crate::signal::Role;

const MAX_HISTORY: usize = 16_384;

/// Number of recent operations among which the busiest communicator is determined.
const RECENT: usize = 1024;

/// Number of iterations whose operations determine the role.
const MAX_COUNTED_ITERATIONS: usize = 12;

/// Number of iteration starts that are kept, for operations that run later.
const MAX_BEGINNINGS: usize = 1024;

/// Number of operations without a pattern after which a process counts as one without iterations.
const NO_PATTERN_OPS: u64 = 4096;

/// Lower limits for a process that issues few operations: number of operations and elapsed time,
/// nanoseconds.
const SLOW_NO_PATTERN_OPS: u64 = 256;
const SLOW_NO_PATTERN_NS: u64 = 15_000_000_000;

/// Tracks all collectives of one process.
#[derive(Debug, Default)]
pub struct IterationPattern {
    history: VecDeque<Issued>,
    tracker: PatternTracker,
    primary: Option<CommIndex>,
    profile: Option<Profile>,
    /// Signature of the first operation of iterations.
    anchor: Option<u64>,
    /// Sequence numbers of the latest operations that began an iteration.
    beginnings: VecDeque<u64>,
    observed: u64,
    /// Entry of the first observed operation and of the latest one, nanoseconds.
    first_ns: Option<u64>,
    latest_ns: u64,
}

/// Iteration of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Hash of its operations, without the identities of the communicators.
    pub role: Role,
    /// Operations per iteration on each communicator.
    pub ops: BTreeMap<CommIndex, f64>,
}

impl IterationPattern {
    /// Records the next collective of the process.
    pub fn observe(&mut self, issued: Issued, comms: &[Comm]) {
        self.observed += 1;
        self.first_ns.get_or_insert(issued.entry_ns);
        self.latest_ns = issued.entry_ns;
        self.history.push_back(issued);
        self.trim_history();
        if self.primary.is_none() {
            self.follow(issued.at.comm);
        } else if self.primary == Some(issued.at.comm) {
            if self.anchor == Some(issued.signature) {
                self.begin(issued.at.seq);
            }
            if self.push(&issued) {
                self.count_iterations();
                self.prefer_busiest_of_iteration(comms);
            }
        }
    }

    /// Switches to the busiest communicator of the recent past if it is clearly another one.
    ///
    /// "Clearly" means twice as many operations: ranks cut the recent past at different places, and
    /// must not decide a near tie differently.
    pub fn reconsider(&mut self) -> bool {
        let mut ops: BTreeMap<CommIndex, usize> = BTreeMap::new();
        for issued in self.history.iter().rev().take(RECENT) {
            *ops.entry(issued.at.comm).or_default() += 1;
        }
        let of_primary = self
            .primary
            .and_then(|primary| ops.get(&primary))
            .copied()
            .unwrap_or(0);
        let busiest = ops
            .iter()
            .max_by_key(|(_, ops)| **ops)
            .map(|(comm, ops)| (*comm, *ops));
        match busiest {
            Some((comm, ops)) if ops > 2 * of_primary && Some(comm) != self.primary => {
                self.follow(comm);
                true
            }
            _ => false,
        }
    }

    /// Returns the busiest communicator.
    pub fn primary(&self) -> Option<CommIndex> {
        self.primary
    }

    /// Returns the iteration on the busiest communicator, once one complete iteration was counted.
    /// Before that, operations are the unit of progress.
    pub fn pattern(&self) -> Option<&Pattern> {
        self.profile.as_ref().and_then(|_| self.tracker.pattern())
    }

    /// Returns whether an iteration begins with this operation of the busiest communicator.
    pub fn begins_at(&self, seq: u64) -> bool {
        self.beginnings.binary_search(&seq).is_ok()
    }

    /// Returns the latest known iteration.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// Returns the role of the process's iteration, or that of all processes without iterations.
    pub fn role(&self) -> Option<Role> {
        let known = self.profile.as_ref().map(|profile| profile.role);
        known.or_else(|| self.repeats_nothing().then_some(Role::WITHOUT_ITERATIONS))
    }

    /// Returns whether no iteration was found although one should have been visible.
    pub fn repeats_nothing(&self) -> bool {
        let lasted_ns = self
            .latest_ns
            .saturating_sub(self.first_ns.unwrap_or(self.latest_ns));
        let is_enough = self.observed >= NO_PATTERN_OPS
            || self.observed >= SLOW_NO_PATTERN_OPS && lasted_ns >= SLOW_NO_PATTERN_NS;
        self.profile.is_none() && is_enough
    }

    // While the pattern is valid, the counted iterations are enough, so that a process that runs
    // for days takes little memory. When the pattern ends, the next one is searched in the
    // operations from then on.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "operations of an iteration are a small positive number, and the cast saturates"
    )]
    fn trim_history(&mut self) {
        let of_iteration = self
            .profile
            .as_ref()
            .map(|profile| profile.ops.values().sum::<f64>().ceil() as usize);
        let kept = of_iteration.map_or(MAX_HISTORY, |ops| {
            let counted = (MAX_COUNTED_ITERATIONS + 2).saturating_mul(ops);
            counted.clamp(RECENT, MAX_HISTORY)
        });
        if self.history.len() > kept {
            self.history.drain(..self.history.len() - kept);
            self.history.shrink_to(kept + 1);
        }
    }

    fn push(&mut self, issued: &Issued) -> bool {
        self.tracker.skip(issued.missed);
        self.tracker.push(issued.signature)
    }

    fn begin(&mut self, seq: u64) {
        self.beginnings.push_back(seq);
        if self.beginnings.len() > MAX_BEGINNINGS {
            self.beginnings.pop_front();
        }
    }

    fn follow(&mut self, comm: CommIndex) {
        let ops = self.history.iter().filter(|issued| issued.at.comm == comm);
        let first = ops.clone().next().map_or(0, |issued| issued.at.seq);
        let mut tracker = PatternTracker::starting_at(first);
        for issued in ops {
            if issued.at.seq != first {
                tracker.skip(issued.missed);
            }
            tracker.push(issued.signature);
        }
        self.tracker = tracker;
        self.primary = Some(comm);
        self.count_iterations();
    }

    // Counted over complete iterations, so that all ranks decide alike: more operations first, then
    // more ranks, then the communicator that the program created first.
    fn prefer_busiest_of_iteration(&mut self, comms: &[Comm]) {
        let Some(profile) = &self.profile else { return };
        let nranks = |comm: CommIndex| comms.get(comm.position()).map_or(0, |comm| comm.nranks);
        let busiest = profile.ops.iter().max_by(|(a, ops_a), (b, ops_b)| {
            let by_ops = ops_a.total_cmp(ops_b);
            by_ops.then(nranks(**a).cmp(&nranks(**b))).then(b.cmp(a))
        });
        if let Some(comm) = busiest.map(|(comm, _)| *comm)
            && Some(comm) != self.primary
        {
            self.follow(comm);
        }
    }

    /// Counts the operations per iteration over the latest iterations without insertions.
    fn count_iterations(&mut self) {
        (self.profile, self.anchor) = (None, None);
        self.beginnings.clear();
        let Some(pattern) = self.tracker.pattern() else {
            return;
        };
        let of_primary = |(_, issued): &(usize, &Issued)| Some(issued.at.comm) == self.primary;
        let primary: Vec<(usize, &Issued)> =
            self.history.iter().enumerate().filter(of_primary).collect();
        let Some(anchor) = quietest_anchor(&primary, pattern) else {
            return;
        };
        let begins = primary
            .iter()
            .filter(|(_, issued)| issued.signature == anchor);
        let begins: Vec<(usize, u64)> = begins.map(|(at, issued)| (*at, issued.at.seq)).collect();
        let whole = begins.iter().zip(begins.iter().skip(1));
        let whole = whole.filter(|(from, to)| to.1 - from.1 == pattern.period);
        let counted = whole.rev().take(MAX_COUNTED_ITERATIONS);
        let ranges: Vec<(usize, usize)> = counted.map(|(from, to)| (from.0, to.0)).collect();
        let ops = ranges
            .iter()
            .map(|(from, to)| self.history.range(*from..*to));
        self.profile = (!ranges.is_empty()).then(|| profile(ops.collect(), ranges.len() as u64));
        self.anchor = Some(anchor);
        for (_, seq) in begins {
            self.begin(seq);
        }
    }
}

/// Returns the operation of the pattern with the longest pause before it, where an iteration can be
/// cut without splitting concurrent operations on other communicators.
fn quietest_anchor(ops: &[(usize, &Issued)], pattern: &Pattern) -> Option<u64> {
    let mut pauses: BTreeMap<u64, (u64, u64)> =
        pattern.anchors().map(|anchor| (anchor, (0, 0))).collect();
    for ((_, before), (_, issued)) in ops.iter().zip(ops.iter().skip(1)) {
        let pause_ns = issued.entry_ns.saturating_sub(before.entry_ns);
        if let Some((sum, n)) = pauses.get_mut(&issued.signature) {
            (*sum, *n) = (sum.saturating_add(pause_ns), *n + 1);
        }
    }
    let mean = |(sum, n): (u64, u64)| sum / n.max(1);
    let longest = pauses.into_iter().max_by_key(|(_, pauses)| mean(*pauses));
    longest.map(|(anchor, _)| anchor)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts are bounded by the history"
)]
fn profile(ops: Vec<vec_deque::Iter<'_, Issued>>, iterations: u64) -> Profile {
    let (mut by_signature, mut by_comm) = (BTreeMap::new(), BTreeMap::new());
    for issued in ops.into_iter().flatten() {
        *by_signature.entry(issued.signature).or_insert(0_u64) += 1;
        *by_comm.entry(issued.at.comm).or_insert(0.0) += 1.0 / iterations as f64;
    }
    let mut bytes = Vec::new();
    for (signature, count) in by_signature {
        let per_iteration = (count + iterations / 2) / iterations;
        if per_iteration > 0 {
            bytes.extend_from_slice(&u64::to_le_bytes(signature));
            bytes.extend_from_slice(&per_iteration.to_le_bytes());
        }
    }
    Profile {
        role: Role::new(xxhash_rust::xxh64::xxh64(&bytes, 0)),
        ops: by_comm,
    }
}

#[cfg(test)]
mod tests;
