//! Culprits: which rank, node or few ranks explain a loss by the waiting that they cause.

use crate::straggler::rule::Rule;

/// Waiting beyond the usual for one rank or node, summed over lossy time, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Rise {
    /// Per peer, over all communicators, without what comes from waiting elsewhere.
    pub(super) net: f64,
    /// Per peer, where it is largest; of each evaluation at most its loss.
    pub(super) peer: f64,
    /// The same since the beginning of the episode.
    pub(super) total: f64,
    /// The same of the latest evaluation, as a share of its time.
    pub(super) latest: f64,
    /// The sum without that limit.
    pub(super) whole: f64,
    /// Standard deviation of `whole` by the past alone.
    pub(super) sigma: f64,
}

impl Rise {
    /// Keeps a share of all sums.
    pub(super) fn fade(&mut self, kept: f64) {
        for sum in [
            &mut self.net,
            &mut self.peer,
            &mut self.total,
            &mut self.whole,
        ] {
            *sum *= kept;
        }
    }
}

/// Explanation of a loss.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Explanation {
    /// No rank explains it.
    #[default]
    Unexplained,
    /// Ranks, each with its share of the waiting; the shares add up to 1.
    Ranks(Vec<(usize, f64)>),
    /// A rank whose GPU has nothing queued: of a pipeline, or by host waits.
    Dry(usize),
    /// All ranks of a node are late together.
    Node(usize),
}

impl Explanation {
    /// Ranks that the waiting names.
    pub(super) fn ranks(&self) -> Vec<usize> {
        match self {
            Self::Ranks(ranks) => ranks.iter().map(|(rank, _)| *rank).collect(),
            Self::Unexplained | Self::Dry(_) | Self::Node(_) => Vec::new(),
        }
    }
}

/// The one whose peers wait for most of the loss, if no other rank causes nearly as much.
pub(super) fn single(loss_s: f64, all: &[Rise], rule: &Rule) -> Option<usize> {
    let order = by_net(all);
    let first = *order.first()?;
    let rise = all.get(first)?;
    let second = order.get(1).and_then(|next| all.get(*next));
    let next = second.map_or(0.0, |rise| rise.net.max(0.0));
    let is_root = rise.net >= rule.root * next && rise.net > 0.0;
    let explains = rise.peer >= rule.explain * loss_s;
    let is_new = rise.whole >= rule.rise_sigmas * rise.sigma;
    (is_root && explains && is_new).then_some(first)
}

/// At most every eighth rank is named without its node. Of more ranks that are late by turns, it is
/// likelier that all are.
const SET_SHARE: usize = 8;

/// Largest number of ranks that are named at once in a job of `n`.
pub(super) fn most_named(n: usize) -> usize {
    (n / SET_SHARE).max(2).min(n / 2)
}

/// The smallest number of ranks, two or at most an eighth of them, that together explain the loss,
/// while every other one causes much less than each of them.
pub(super) fn several(loss_s: f64, ranks: &[Rise], rule: &Rule) -> Option<Vec<(usize, f64)>> {
    let order = by_net(ranks);
    let net = |at: usize| order.get(at).and_then(|rank| ranks.get(*rank));
    let mut covered = 0.0;
    let mut sum = 0.0;
    for size in 1..=most_named(ranks.len()) {
        let last = net(size - 1)?;
        if last.net <= 0.0 || last.whole < rule.rise_sigmas * last.sigma {
            return None;
        }
        covered += last.peer;
        sum += last.net;
        let next = net(size).map_or(0.0, |rise| rise.net.max(0.0));
        let is_root = last.net >= rule.root * next;
        if size > 1 && is_root && covered >= rule.explain_set * loss_s {
            let named = order.iter().take(size);
            let share = |rank: &usize| ranks.get(*rank).map_or(0.0, |rise| rise.net / sum);
            return Some(named.map(|rank| (*rank, share(rank))).collect());
        }
    }
    None
}

/// Returns true if more than half of a node's ranks cause at least half of the mean over them.
pub(super) fn is_whole(ranks: &[Rise], node_of: &[u32], node: usize) -> bool {
    let own = ranks.iter().zip(node_of);
    let own = own.filter(|(_, of)| **of as usize == node);
    let nets: Vec<f64> = own.map(|(rise, _)| rise.net).collect();
    let mean = nets.iter().sum::<f64>() / nets.len() as f64;
    let late = nets.iter().filter(|net| **net >= mean / 2.0).count();
    nets.len() >= 2 && 2 * late > nets.len()
}

/// Indices, largest net first.
fn by_net(all: &[Rise]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    let net = |at: &usize| all.get(*at).map_or(0.0, |rise| rise.net);
    order.sort_by(|a, b| net(b).total_cmp(&net(a)));
    order
}

#[cfg(test)]
mod tests {
    use super::{Rise, is_whole, several, single};
    use crate::straggler::rule::Rule;

    fn rises(nets: &[f64]) -> Vec<Rise> {
        let rise = |net: &f64| Rise {
            net: *net,
            peer: net.max(0.0),
            whole: *net,
            ..Rise::default()
        };
        nets.iter().map(rise).collect()
    }

    #[test]
    fn one_rank_explains_a_loss_if_its_peers_wait_for_most_of_it() {
        let rule = Rule::default();
        assert_eq!(single(1.0, &rises(&[0.1, 0.8, 0.0]), &rule), Some(1));
        assert_eq!(single(1.0, &rises(&[0.1, 0.6, 0.0]), &rule), None);
        assert_eq!(single(1.0, &rises(&[0.6, 0.8, 0.0]), &rule), None);
    }

    #[test]
    fn a_rank_that_often_waited_so_long_before_explains_nothing() {
        let mut ranks = rises(&[0.0, 0.8]);
        ranks[1].sigma = 0.6;
        assert_eq!(single(1.0, &ranks, &Rule::default()), None);
    }

    #[test]
    fn two_ranks_explain_a_loss_together() {
        let rule = Rule::default();
        let both = several(1.0, &rises(&[0.5, 0.02, 0.4, 0.01]), &rule);
        let both = both.expect("two ranks");
        assert_eq!(
            both.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
            [0, 2]
        );
        let shares: f64 = both.iter().map(|(_, share)| share).sum();
        assert!((shares - 1.0).abs() < 1e-9);
        assert_eq!(several(1.0, &rises(&[0.3, 0.3, 0.3, 0.3]), &rule), None);
        // Of two ranks, one is named or none.
        assert_eq!(several(1.0, &rises(&[0.5, 0.4]), &rule), None);
    }

    #[test]
    fn a_node_is_late_as_a_whole_if_most_of_its_ranks_are() {
        let node_of = [0, 0, 0, 1, 1, 1];
        let all = rises(&[0.0, 0.0, 0.0, 0.3, 0.3, 0.2]);
        let one = rises(&[0.0, 0.0, 0.0, 0.9, 0.0, 0.0]);
        assert!(is_whole(&all, &node_of, 1));
        assert!(!is_whole(&one, &node_of, 1));
    }
}
