//! Queues of the GPUs: how far their hosts run ahead, compared with the past.

use echo_core::stats::median;

use crate::straggler::culprits::Explanation;
use crate::straggler::history::UsualFlow;

/// Share of the expected growth from which on a queue has filled. The leads of the recorded and
/// generated jobs with one late rank reach 0.75 of it within seconds, those of jobs in which all
/// hosts became slow 0.5.
const FILLED: f64 = 0.7;

/// Leads below so many usual times between operations say nothing: the hosts synchronise with their
/// GPUs too often to run ahead.
const LEAST_AHEAD: f64 = 2.0;

/// Growth of the leads of all ranks.
#[derive(Debug)]
pub(super) struct Queues {
    /// By rank: whether the queue filled as that of a rank that only waits; `None` if unknown.
    filled: Vec<Option<bool>>,
}

impl Queues {
    /// Compares leads (seconds, NaN if unknown) with the usual ones. A host that can run ahead by a
    /// number of steps has them queued for longer when steps take longer: its lead grows by
    /// `1 / (1 - loss)` at least. The lead of a host that is slow itself does not.
    pub(super) fn new(leads: &[f64], usual: &[UsualFlow], loss: f64, step: f64) -> Self {
        let known: Vec<f64> = usual.iter().map(|usual| usual.lead).collect();
        let known: Vec<f64> = known.into_iter().filter(|lead| lead.is_finite()).collect();
        let run_ahead = median(&known).is_some_and(|lead| lead >= LEAST_AHEAD * step);
        let growth = FILLED / (1.0 - loss).max(f64::MIN_POSITIVE);
        let filled = leads.iter().zip(usual).map(|(lead, usual)| {
            let is_known = run_ahead && lead.is_finite() && usual.lead.is_finite();
            is_known.then(|| *lead >= growth * usual.lead)
        });
        Self {
            filled: filled.collect(),
        }
    }

    /// Corrects an explanation by the queues of those who wait: of a rank that is late alone, all
    /// others have more and more queued. If theirs did not fill, they are slow as well: the whole
    /// node, or everybody.
    pub(super) fn correct(
        &self,
        explanation: Explanation,
        episode: &Episode,
        node_of: &[u32],
    ) -> Explanation {
        let Explanation::Ranks(ranks) = &explanation else {
            return explanation;
        };
        let named: Vec<usize> = ranks.iter().map(|(rank, _)| *rank).collect();
        if let Some(node) = self.slow_node(&named, node_of) {
            Explanation::Node(node)
        } else if episode.is_shared() {
            Explanation::Nobody
        } else {
            explanation
        }
    }

    /// Returns whether the queues of at least half of the ranks filled; `None` if that is unknown.
    fn have_filled(&self) -> Option<bool> {
        let known: Vec<bool> = self.filled.iter().copied().flatten().collect();
        let filled = known.iter().filter(|filled| **filled).count();
        (!known.is_empty()).then_some(2 * filled >= known.len())
    }

    /// The node of the named ranks, if the queues of most of its ranks did not fill while those of
    /// most ranks of other nodes did.
    fn slow_node(&self, named: &[usize], node_of: &[u32]) -> Option<usize> {
        let node = *node_of.get(*named.first()?)?;
        let count = |inside: bool, filled: bool| {
            let ranks = self.filled.iter().zip(node_of);
            let ranks = ranks.filter(|(_, of)| (**of == node) == inside);
            ranks.filter(|(own, _)| **own == Some(filled)).count()
        };
        let is_one_node = named
            .iter()
            .all(|rank| node_of.get(*rank) == Some(&node));
        let is_slow = count(true, false) >= 2 && count(true, false) > count(true, true);
        let are_others_fast = count(false, true) > 3 * count(false, false);
        (is_one_node && is_slow && are_others_fast).then_some(node as usize)
    }
}

/// Lossy time without a longer pause, and whether everybody is slow in it.
///
/// Where hosts run ahead and all of them become slow, the slowest one is late alone for as long as it
/// is the slowest, and the queues of the others fill by and by. Only the beginning shows the
/// difference, so it decides for the whole episode.
#[derive(Debug, Default)]
pub(super) struct Episode {
    slow_s: f64,
    filled_s: f64,
    decided: Option<bool>,
    /// End of the last loss, job time, seconds.
    last: f64,
}

impl Episode {
    /// Adds a lossy evaluation that ends at `now`.
    pub(super) fn add(&mut self, queues: &Queues, seconds: f64, now: f64) {
        match queues.have_filled() {
            Some(true) => self.filled_s += seconds,
            Some(false) => self.slow_s += seconds,
            None => {}
        }
        self.last = now;
    }

    /// Returns true if everybody is slow.
    pub(super) fn is_shared(&self) -> bool {
        let is_shared = self.slow_s > self.filled_s;
        self.decided.unwrap_or(is_shared)
    }

    /// Keeps the answer until the end of the episode.
    pub(super) fn decide(&mut self) {
        self.decided = Some(self.is_shared());
    }

    /// Returns true if the episode ended: no loss for `quiet_s` before `now`.
    pub(super) fn has_ended(&self, now: f64, quiet_s: f64) -> bool {
        now - self.last > quiet_s
    }
}
