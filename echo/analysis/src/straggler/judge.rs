//! Judge: one evaluation after another, in order, nothing from the future.

use crate::straggler::bill::{Bill, Entry};
use crate::straggler::culprits::Explanation;
use crate::straggler::evidence::{Evidence, Recent, Subject, dry_rank, explain, subjects};
use crate::straggler::history::{History, Loss, Usual, UsualFlow};
use crate::straggler::measure::Measured;
use crate::straggler::open_incidents::OpenIncidents;
use crate::straggler::rule::Rule;

/// Usual waiting by rank and by node, as of the last change of the past.
#[derive(Debug, Default)]
struct UsualFlows {
    ranks: Vec<UsualFlow>,
    nodes: Vec<UsualFlow>,
}

/// Rank for which almost all waiting is, for how long and in how many evaluations.
#[derive(Debug, Clone, Copy)]
struct Alone {
    rank: usize,
    seconds: f64,
    evaluations: f64,
}

/// Judge of one job.
#[derive(Debug)]
pub(super) struct Judge {
    rule: Rule,
    history: History,
    usual: Option<Usual>,
    flows: Option<UsualFlows>,
    evidence: Evidence,
    recent: Recent,
    /// Latest losses that no rank explained. They belong to a rank that is found right after them.
    unexplained: Bill,
    /// Rank for which almost all waiting is.
    alone: Option<Alone>,
    pub(super) incidents: OpenIncidents,
}

impl Judge {
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            rule,
            history: History::default(),
            usual: None,
            flows: None,
            evidence: Evidence::default(),
            recent: Recent::default(),
            unexplained: Bill::default(),
            alone: None,
            incidents: OpenIncidents::default(),
        }
    }

    /// What the past says; `None` while it is too short.
    pub(super) const fn usual(&self) -> Option<&Usual> {
        self.usual.as_ref()
    }

    /// Usual waiting of each of `n` ranks, as a share per peer; `None` while the past is too short.
    pub(super) fn usual_peers(&self, n: usize) -> Option<Vec<f64>> {
        self.usual.as_ref()?;
        let ranks = self.history.ranks(n);
        Some(ranks.iter().map(|usual| usual.peer).collect())
    }

    /// Judges one evaluation.
    pub(super) fn judge(&mut self, measured: &Measured, has_transfers: bool) {
        let seconds = measured.seconds;
        self.judge_alone(measured, seconds);
        if let Some(usual) = self.usual.take() {
            if let Some(mut loss) = usual.loss(&measured.paces) {
                loss.seconds = seconds;
                self.judge_loss(measured, loss, &usual, has_transfers);
            }
            self.usual = Some(usual);
        }
        let closed = self
            .incidents
            .close_quiet(measured.until, self.rule.quiet_s);
        for subject in closed {
            self.evidence.forget(subject);
        }
        self.learn(measured, seconds);
    }

    /// Forgets the evidence: the evaluation with the end of a stall is no measure of the pace.
    pub(super) fn skip(&mut self) {
        self.evidence.clear();
        self.recent.clear();
        self.alone = None;
    }

    /// Appends the evaluation to the past if nothing speaks against it.
    fn learn(&mut self, measured: &Measured, seconds: f64) {
        let enough = self
            .usual
            .as_ref()
            .map_or(self.rule.enough_s, |usual| usual.enough_s);
        let is_healthy = self.evidence.largest() < enough / 2.0
            && self.alone.is_none()
            && self.incidents.is_empty();
        if is_healthy && seconds > 0.0 {
            self.history.push(measured, seconds);
            self.usual = self.history.usual(&self.rule);
            self.flows = None;
        }
    }

    /// Without a past: everything waits for one rank only.
    fn judge_alone(&mut self, measured: &Measured, seconds: f64) {
        if self.history.seconds() > 2.0 * self.rule.need_s {
            self.alone = None;
            return;
        }
        let all: f64 = measured.ranks.iter().map(|flow| flow.caused).sum();
        let flows = measured.ranks.iter().enumerate();
        let top = flows.max_by(|a, b| a.1.caused.total_cmp(&b.1.caused));
        let single = top.filter(|(_, flow)| {
            flow.caused >= self.rule.alone * all && flow.peer >= self.rule.idle
        });
        self.alone = single.map(|(rank, _)| {
            let before = self.alone.filter(|alone| alone.rank == rank);
            Alone {
                rank,
                seconds: seconds + before.map_or(0.0, |alone| alone.seconds),
                evaluations: 1.0 + before.map_or(0.0, |alone| alone.evaluations),
            }
        });
        let evaluations = self.rule.long_s / self.rule.window_s;
        if let (Some(alone), Some((_, flow))) = (self.alone, single)
            && alone.seconds >= self.rule.long_s
            && alone.evaluations >= evaluations
        {
            let entry = Entry {
                from: measured.until - seconds,
                to: measured.until,
                loss: (flow.peer - self.rule.healthy_wait).max(0.0),
                gpu_s: measured.lost_gpu_s(seconds, flow.peer - self.rule.healthy_wait),
                waited: flow.peer,
            };
            let since = measured.until - alone.seconds;
            self.incidents
                .late_without_past(Subject::Rank(alone.rank), since, entry);
        }
    }

    /// Against the past: the pace gives the loss, the law gives the root.
    fn judge_loss(&mut self, measured: &Measured, loss: Loss, usual: &Usual, transfers: bool) {
        let mut found = Vec::new();
        if loss.share > usual.allowance {
            let explanation = self.explain(measured, loss, usual, transfers);
            for (subject, share) in subjects(&explanation) {
                found.push((subject, self.entry(measured, loss, (subject, share))));
            }
        }
        self.evidence.count(&found, loss.seconds, usual);
        for (subject, entry) in &found {
            if *subject == Subject::Nobody {
                self.unexplained.push_recent(*entry);
            }
            self.incidents.add(*subject, *entry);
        }
        for subject in self.evidence.sufficient(usual.enough_s) {
            let mut bill = self.evidence.take_bill(subject);
            if !self.incidents.is_open(subject) {
                if subject != Subject::Nobody {
                    bill.absorb_before(&self.unexplained);
                    self.evidence.forget(Subject::Nobody);
                }
                self.incidents.open(subject, measured.until, bill);
            }
        }
        if !found.is_empty() {
            let leads = self.recent.leads();
            self.incidents.classify(&leads, loss, self.rule.explain);
        }
        self.evidence.forget_spent();
    }

    fn explain(
        &mut self,
        measured: &Measured,
        loss: Loss,
        usual: &Usual,
        has_transfers: bool,
    ) -> Explanation {
        let history = &self.history;
        let flows = self.flows.get_or_insert_with(|| UsualFlows {
            ranks: history.ranks(measured.ranks.len()),
            nodes: history.nodes(measured.nodes.len()),
        });
        let sides = (flows.ranks.as_slice(), flows.nodes.as_slice());
        self.recent.add(measured, loss, sides, &self.rule);
        self.recent.set_sigmas(sides, usual.entry_s);
        let recent = &self.recent;
        let explanation = explain(recent, &measured.node_of, has_transfers, &self.rule);
        if explanation == Explanation::Nobody
            && has_transfers
            && let Some(rank) = dry_rank(&recent.leads(), &flows.ranks, &self.rule)
        {
            return Explanation::Ranks(vec![(rank, 1.0)]);
        }
        explanation
    }

    fn entry(&self, measured: &Measured, loss: Loss, (subject, share): (Subject, f64)) -> Entry {
        let rise = match subject {
            Subject::Rank(rank) => self.recent.ranks.get(rank),
            Subject::Node(node) => self.recent.nodes.get(node),
            Subject::Nobody => None,
        };
        let waited = rise.map_or(0.0, |rise| rise.whole / self.recent.loss * loss.share);
        Entry {
            from: measured.until - loss.seconds,
            to: measured.until,
            loss: loss.share,
            gpu_s: share * measured.lost_gpu_s(loss.seconds, loss.share),
            waited,
        }
    }
}
