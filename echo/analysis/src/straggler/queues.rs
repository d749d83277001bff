//! Queues of the GPUs: how far their hosts run ahead, compared with the past.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use echo_core::model::event::Source;
use echo_core::stats::median;

use crate::straggler::bill::RIPPLE;
use crate::straggler::culprits::Explanation;
use crate::straggler::evidence::Recent;
use crate::straggler::rule::Rule;
use crate::straggler::usual::{Loss, Usual, UsualFlow};

/// Growth of a lead within which it stayed the same.
const SAME: f64 = 0.15;

/// Smallest share of the lost time in which most queues fell, for everybody to be slow. Some queues fall
/// while little is lost, and say nothing of the loss that follows.
const LEAST_SHARED: f64 = 0.1;

/// Smallest share of the lost time that a node as a whole explains, for a loss that follows to be its own, too:
/// the others of its ranks wait for the slowest one by then.
const MOSTLY: f64 = 0.5;

/// Leads below so many usual times between operations say nothing: the hosts synchronise with their
/// GPUs too often to run ahead.
pub(super) const LEAST_AHEAD: f64 = 2.0;

/// Returns true if the hosts usually run ahead of their GPUs, so that leads tell something.
pub(super) fn run_ahead(usual: &[UsualFlow], step: f64) -> bool {
    let known = usual.iter().map(|usual| usual.lead);
    let known: Vec<f64> = known.filter(|lead| lead.is_finite()).collect();
    median(&known).is_some_and(|lead| lead >= LEAST_AHEAD * step)
}

/// Change of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Grew,
    Fell,
    Unknown,
}

/// Changes of the queues of all ranks; none where GPUs are not timed.
#[derive(Debug, Default)]
pub(super) struct Queues {
    changes: Vec<Change>,
}

impl Queues {
    /// Compares leads (seconds, NaN if unknown) with the usual ones. The lead of a host that only
    /// waits grows; that of a host which is slow itself falls.
    pub(super) fn new(source: Source, leads: &[f64], flows: &[UsualFlow], usual: &Usual) -> Self {
        if source == Source::Host {
            return Self::default();
        }
        let run_ahead = run_ahead(flows, usual.shortest_step());
        let changes = leads.iter().zip(flows).map(|(lead, usual)| {
            let growth = lead / usual.lead - 1.0;
            if !run_ahead || !growth.is_finite() || growth.abs() <= SAME {
                Change::Unknown
            } else if growth > 0.0 {
                Change::Grew
            } else {
                Change::Fell
            }
        });
        Self {
            changes: changes.collect(),
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
        let named = explanation.ranks();
        if named.is_empty() {
            return explanation;
        }
        if let Some(node) = self.slow_node(&named, node_of) {
            Explanation::Node(node)
        } else if episode.is_shared() {
            Explanation::Unexplained
        } else {
            explanation
        }
    }

    /// The change of most queues, except those of ranks that the waiting names: theirs fall in any
    /// case.
    fn common(&self, named: &[usize]) -> Change {
        let others = || {
            let changes = self.changes.iter().enumerate();
            changes.filter(|(rank, _)| !named.contains(rank))
        };
        let count = |change: Change| others().filter(|(_, own)| **own == change).count();
        match count(Change::Grew).cmp(&count(Change::Fell)) {
            Ordering::Greater => Change::Grew,
            Ordering::Less => Change::Fell,
            Ordering::Equal => Change::Unknown,
        }
    }

    /// The node of the named ranks, if the queues of most of its ranks did not fill while those of
    /// most ranks of other nodes did.
    fn slow_node(&self, named: &[usize], node_of: &[u32]) -> Option<usize> {
        let node = *node_of.get(*named.first()?)?;
        let count = |inside: bool, change: Change| {
            let ranks = self.changes.iter().zip(node_of);
            let ranks = ranks.filter(|(_, of)| (**of == node) == inside);
            ranks.filter(|(own, _)| **own == change).count()
        };
        let is_one_node = named.iter().all(|rank| node_of.get(*rank) == Some(&node));
        let fell = count(true, Change::Fell);
        let is_slow = fell >= 2 && fell > count(true, Change::Grew);
        let are_others_fast = count(false, Change::Grew) > 3 * count(false, Change::Fell);
        (is_one_node && is_slow && are_others_fast).then_some(node as usize)
    }
}

/// Lossy time without a longer pause, and whether everybody is slow in it.
///
/// Where hosts run ahead and all of them become slow, the slowest one is late alone for as long as
/// it is the slowest, and the queues of the others fill by and by. Only the beginning shows the
/// difference, so it decides for the whole episode.
#[derive(Debug, Default)]
pub(super) struct Episode {
    /// Time that was lost while most queues fell, while most grew, and in all, seconds. They decay while nothing
    /// is lost.
    lost_slow_s: f64,
    lost_filled_s: f64,
    lost_seen_s: f64,
    decided: Option<bool>,
    /// Time that was lost since the last pause, by the nodes that explained it as a whole, seconds.
    nodes: BTreeMap<usize, f64>,
    /// Lossy time, seconds.
    lossy_s: f64,
    /// Begin of the first loss, begin of the first one since the last pause, and end of the last one,
    /// job time, seconds.
    first: Option<f64>,
    resumed: Option<f64>,
    last: f64,
    /// Time and lost time since the last pause, seconds, and end of the last loss that is no ripple.
    since_pause_s: f64,
    lost_s: f64,
    last_large: f64,
}

impl Episode {
    /// Adds an evaluation that ends at `now` and in which this share was lost.
    pub(super) fn add(&mut self, queues: &Queues, found: &Explanation, loss: Loss, now: f64) {
        let seconds = loss.seconds;
        match queues.common(&found.ranks()) {
            Change::Grew => self.lost_filled_s += loss.share * seconds,
            Change::Fell => self.lost_slow_s += loss.share * seconds,
            Change::Unknown => {}
        }
        self.lost_seen_s += loss.share * seconds;
        if let Explanation::Node(node) = found {
            *self.nodes.entry(*node).or_default() += loss.share * seconds;
        }
        self.lossy_s += seconds;
        self.first.get_or_insert(now - seconds);
        self.resumed.get_or_insert(now - seconds);
        self.last = now;
        self.since_pause_s += seconds;
        self.lost_s += loss.share * seconds;
        if loss.share * self.since_pause_s >= RIPPLE * self.lost_s {
            self.last_large = now;
        }
    }

    /// Returns true if less than half of the time since it began was lossy. The median of the past
    /// stays what it is if such time is learned, and recurring work becomes known.
    pub(super) fn is_mostly_healthy(&self, now: f64) -> bool {
        self.first
            .is_none_or(|first| self.lossy_s < 0.5 * (now - first))
    }

    /// Returns true if everybody is slow.
    pub(super) fn is_shared(&self) -> bool {
        let least_s = self.lost_filled_s.max(LEAST_SHARED * self.lost_seen_s);
        let is_shared = self.lost_slow_s > least_s;
        self.decided.unwrap_or(is_shared)
    }

    /// Explains a loss by the node that was late as a whole in most of the time lost before, if only some ranks of
    /// it are late by now, or no rank alone explains the loss, and its peers still wait for it.
    pub(super) fn by_node(
        &self,
        explanation: Explanation,
        recent: &Recent,
        node_of: &[u32],
        rule: &Rule,
    ) -> Explanation {
        let mut nodes = self.nodes.iter();
        let most = nodes.find(|(_, lost_s)| **lost_s >= MOSTLY * self.lost_s);
        let Some((&node, _)) = most.filter(|_| !self.is_shared()) else {
            return explanation;
        };
        let is_inside = |rank: &usize| node_of.get(*rank).is_some_and(|of| *of as usize == node);
        let is_possible = match &explanation {
            Explanation::Ranks(_) => explanation.ranks().iter().all(is_inside),
            Explanation::Unexplained => true,
            Explanation::Dry(_) | Explanation::Node(_) => false,
        };
        let rise = recent.nodes.get(node);
        let explains = rise.is_some_and(|rise| rise.peer >= rule.explain * recent.loss);
        if is_possible && explains {
            Explanation::Node(node)
        } else {
            explanation
        }
    }

    /// Keeps a share of what was seen of the queues where nothing is lost: the next loss may have another
    /// cause.
    pub(super) fn rest(&mut self, kept: f64) {
        self.lost_slow_s *= kept;
        self.lost_filled_s *= kept;
        self.lost_seen_s *= kept;
    }

    /// Ends what was seen of the queues, and returns true, if nothing but ripples was lost for `pause_s`
    /// before `now`: the queues are as usual again, and the next loss may have another cause.
    pub(super) fn pause(&mut self, now: f64, pause_s: f64) -> bool {
        let is_pause = self.resumed.is_some() && now - self.last_large > pause_s;
        if is_pause {
            self.resumed = None;
            self.decided = None;
            (self.lost_slow_s, self.lost_filled_s, self.lost_seen_s) = (0.0, 0.0, 0.0);
            self.nodes.clear();
            (self.since_pause_s, self.lost_s) = (0.0, 0.0);
        }
        is_pause
    }

    /// Begin of the first loss since the last pause, job time, seconds.
    pub(super) fn resumed(&self) -> f64 {
        self.resumed.unwrap_or(f64::NEG_INFINITY)
    }

    /// Everybody is slow, until the end of the episode.
    pub(super) fn decide_shared(&mut self) {
        self.decided = Some(true);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::straggler::culprits::Rise;

    /// Begin of the losses since the last pause of 4 s, after evaluations of one second with these
    /// losses.
    fn resumed(losses: &[f64]) -> f64 {
        let (mut episode, mut now) = (Episode::default(), 0.0);
        for share in losses {
            now += 1.0;
            let loss = Loss {
                seconds: 1.0,
                share: *share,
                ..Loss::default()
            };
            if *share > 0.0 {
                episode.add(&Queues::default(), &Explanation::Unexplained, loss, now);
            }
            episode.pause(now, 4.0);
        }
        episode.resumed()
    }

    fn loss(share: f64) -> Loss {
        Loss {
            seconds: 1.0,
            share,
            ..Loss::default()
        }
    }

    /// An episode of evaluations one second long, whose losses no rank explains. `fell` and `unknown` are the
    /// shares of lost time: first while most queues fell, then while nothing is known of the queues.
    fn episode(fell: &[f64], unknown: &[f64]) -> Episode {
        let of = |change| Queues {
            changes: vec![change; 4],
        };
        let mut episode = Episode::default();
        let fell = fell.iter().map(|share| (Change::Fell, *share));
        let unknown = unknown.iter().map(|share| (Change::Unknown, *share));
        for (now, (change, share)) in (1_u32..).zip(fell.chain(unknown)) {
            let (queues, loss) = (of(change), loss(share));
            episode.add(&queues, &Explanation::Unexplained, loss, f64::from(now));
        }
        episode
    }

    #[test]
    fn everybody_is_slow_if_queues_fell_while_much_was_lost_and_not_if_little_was() {
        assert!(episode(&[0.4, 0.4], &[0.4; 4]).is_shared());
        assert!(!episode(&[0.02, 0.02], &[0.4; 4]).is_shared());
    }

    #[test]
    fn what_the_queues_showed_of_a_loss_is_forgotten_while_nothing_is_lost() {
        let mut later = episode(&[0.2], &[]);
        later.rest(0.1);
        let filled = Queues {
            changes: vec![Change::Grew; 4],
        };
        later.add(&filled, &Explanation::Unexplained, loss(0.1), 9.0);
        assert!(!later.is_shared());
    }

    #[test]
    fn a_node_that_explained_most_of_the_loss_explains_what_follows_while_it_is_waited_for() {
        let node_of = [0, 0, 1, 1];
        let mut episode = Episode::default();
        episode.add(&Queues::default(), &Explanation::Node(1), loss(0.5), 1.0);
        let recent = |peer| {
            let rise = Rise {
                peer,
                ..Rise::default()
            };
            let mut recent = Recent::default();
            recent.loss = 1.0;
            recent.nodes = vec![Rise::default(), rise];
            recent
        };
        let by_node = |named: Explanation, peer| {
            episode.by_node(named, &recent(peer), &node_of, &Rule::default())
        };
        let rank = |rank| Explanation::Ranks(vec![(rank, 1.0)]);
        assert_eq!(by_node(rank(3), 0.9), Explanation::Node(1));
        assert_eq!(by_node(Explanation::Unexplained, 0.9), Explanation::Node(1));
        assert_eq!(by_node(rank(0), 0.9), rank(0));
        assert_eq!(by_node(rank(3), 0.5), rank(3));
    }

    #[test]
    fn a_pause_ends_an_episode_though_a_small_part_of_the_loss_goes_on() {
        let fault = [0.4; 10];
        let healthy = resumed(&[&fault[..], &[0.0; 6], &fault].concat());
        assert!((healthy - 16.0).abs() < 1e-9, "{healthy}");
        // It resumes with the ripples that follow the pause, after the loss of the fault.
        let ripples = resumed(&[&fault[..], &[0.07; 8], &fault].concat());
        assert!((10.0..18.0).contains(&ripples), "{ripples}");
        let lasting = resumed(&[&fault[..], &[0.2; 8], &fault].concat());
        assert!(lasting.abs() < 1e-9, "{lasting}");
    }
}
