//! Judge: one evaluation after another, in order, nothing from the future.

mod learning;
mod recovery;

use echo_core::model::event::Source;

use crate::straggler::alone::Alone;
use crate::straggler::bill::{Bill, Entry, PAUSE_S};
use crate::straggler::class::{self, Class};
use crate::straggler::culprits::{Explanation, most_named};
use crate::straggler::dry::Leads;
use crate::straggler::evidence::{Evidence, REST_S, Recent, Subject, explain, subjects};
use crate::straggler::history::History;
use crate::straggler::lateness::Lateness;
use crate::straggler::measure::Measured;
use crate::straggler::open_incidents::OpenIncidents;
use crate::straggler::queues::{Episode, LEAST_AHEAD, Queues, run_ahead};
use crate::straggler::rule::Rule;
use crate::straggler::usual::{Loss, Usual, UsualFlows};

use recovery::Recovery;

/// Least share of an evaluation's loss that the waiting for a rank must explain, for the loss to be
/// added to the incident of that rank.
const LEAST_WEIGHT: f64 = 0.1;

/// Share of the operations below which the waiting in an evaluation is not known: what was known
/// before is taken to last. A rank without time for its job loses the times of its operations, too.
const LEAST_COMPARED: f64 = 0.34;

/// Judge of one job.
#[derive(Debug)]
pub(super) struct Judge {
    rule: Rule,
    source: Source,
    history: History,
    usual: Option<Usual>,
    flows: Option<UsualFlows>,
    /// Healthy time since they were taken, seconds.
    flows_age_s: f64,
    evidence: Evidence,
    lateness: Lateness,
    recent: Recent,
    /// Latest losses that are in no incident. They belong to the subject that is found right after them.
    unbilled: Bill,
    /// Rank for which almost all waiting is.
    alone: Option<Alone>,
    episode: Episode,
    recovery: Recovery,
    pub(super) incidents: OpenIncidents,
}

impl Judge {
    pub(super) fn new(rule: Rule, source: Source) -> Self {
        Self {
            rule,
            source,
            history: History::default(),
            usual: None,
            flows: None,
            flows_age_s: 0.0,
            evidence: Evidence::default(),
            lateness: Lateness::default(),
            recent: Recent::default(),
            unbilled: Bill::default(),
            alone: None,
            episode: Episode::default(),
            recovery: Recovery::default(),
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
        self.judge_alone(measured);
        if let Some(usual) = self.usual.take() {
            if let Some(mut loss) = usual.loss(&measured.paces) {
                loss.seconds = seconds;
                self.judge_lateness(measured, &usual, has_transfers);
                self.judge_loss(measured, loss, &usual, has_transfers);
            }
            self.usual = Some(usual);
        }
        // Before a rank that was late without a past is closed, so that it is priced.
        let has_recovered = self.judge_recovery(measured, has_transfers);
        let closed = self
            .incidents
            .close_quiet(measured.until, self.rule.quiet_s);
        for subject in closed {
            self.evidence.forget(subject);
            if let Subject::Rank(rank) = subject {
                self.lateness.forget(rank);
            }
        }
        let was_shared = self.episode.is_shared();
        if self.episode.pause(measured.until, PAUSE_S) {
            self.recent.clear();
            if was_shared {
                // While all ranks are slow, the waiting does not tell the culprit.
                self.lateness.forget_unnamed();
            }
        }
        if self.episode.has_ended(measured.until, self.rule.quiet_s) {
            self.episode = Episode::default();
        }
        if !has_recovered {
            self.learn(measured, seconds);
        }
    }

    /// Forgets the evidence: the evaluation with the end of a stall is no measure of the pace.
    pub(super) fn skip(&mut self) {
        self.evidence.clear();
        self.lateness.clear();
        self.recent.clear();
        self.alone = None;
    }

    /// Without a past: all ranks wait for one rank, which waits for none.
    fn judge_alone(&mut self, measured: &Measured) {
        let rule = &self.rule;
        let past_s = self.history.seconds();
        self.alone = Alone::take(self.alone, measured, past_s, rule);
        // Where the pace fell as well, the past gives the loss.
        let has_past = self.evidence.largest() != (0.0, 0.0);
        let Some(alone) = self.alone.as_mut() else {
            return;
        };
        if has_past {
            alone.settle();
            return;
        }
        let subject = Subject::Rank(alone.rank);
        let is_late = alone.is_late(rule) || self.incidents.is_late(subject);
        if alone.has_no_past(rule) && is_late {
            let entry = alone.bill(measured, rule);
            self.incidents.late_without_past(subject, entry);
            if self.history.len() > 0 {
                // What was learned so far was the late rank's time.
                let past = std::mem::take(&mut self.history);
                self.recovery.late.join(past);
                self.usual = None;
            }
        }
    }

    /// Where the pace varies: the waiting for a rank names it, and the mean pace confirms it.
    fn judge_lateness(&mut self, measured: &Measured, usual: &Usual, has_transfers: bool) {
        if self.history.seconds() < self.rule.short_s {
            return;
        }
        let Some(loss) = usual.signed_loss(&measured.paces) else {
            return;
        };
        let history = &self.history;
        let take = || history.flows(measured);
        let flows = self.flows.get_or_insert_with(take);
        self.lateness.set_transfers(has_transfers);
        self.lateness
            .count(measured, &flows.ranks, (loss, usual.sigma), &self.rule);
        let queues = Queues::new(self.source, &measured.leads, &flows.ranks, usual);
        if let Some((rank, entry)) = self.lateness.latest(measured, &self.rule) {
            self.incidents.add(Subject::Rank(rank), entry);
        } else if let Some((rank, bill)) = self.lateness.sufficient(usual.sigma, &self.rule) {
            let subject = Subject::Rank(rank);
            let named = Explanation::Ranks(vec![(rank, 1.0)]);
            let explanation = queues.correct(named.clone(), &self.episode, &measured.node_of);
            let is_source = self.recent.source(&flows.ranks, &self.rule).allows(rank);
            if explanation == named && is_source && self.incidents.may_name(subject) {
                self.incidents.open(subject, measured.until, bill);
                self.evidence.forget(Subject::Unexplained);
                self.lateness.name(rank);
            }
        }
    }

    /// Against the past: the pace gives the loss, the law gives the root.
    fn judge_loss(&mut self, measured: &Measured, loss: Loss, usual: &Usual, transfers: bool) {
        let mut found = Vec::new();
        if loss.share > usual.allowance {
            let explanation = self.explain(measured, loss, usual, transfers);
            let named = subjects(&explanation);
            let weight = match explanation {
                Explanation::Dry(rank) => self.leads(measured, usual).weight(rank),
                _ if measured.compared < LEAST_COMPARED => 1.0,
                _ => self.recent.weight(&named, loss.share, &self.rule),
            };
            let n = named.len() as f64;
            for (subject, share) in named {
                let subject = self.incidents.by_node(subject, &measured.node_of);
                let mut entry = self.entry(measured, loss, (subject, share));
                entry.weight = weight * (n * share).min(1.0);
                if let Explanation::Dry(rank) = explanation {
                    // The GPUs of the others have work queued, and wait as long as time is lost.
                    entry.waited = loss.share;
                    entry.late = self.leads(measured, usual).late(rank);
                }
                found.push((subject, entry));
            }
        }
        self.recent.rest(loss, usual.allowance);
        if loss.share <= usual.allowance {
            self.episode.rest((-loss.seconds / REST_S).exp());
        }
        if self.lateness.latest(measured, &self.rule).is_some() {
            // Where the pace varies, it does not always show that the named rank explains it.
            found.retain(|(subject, _)| *subject != Subject::Unexplained);
        }
        self.evidence.count(&found, loss.seconds, usual);
        self.bill(&found);
        for subject in self.evidence.sufficient(usual) {
            // A rank that was just found explains an earlier unexplained loss.
            if !self.evidence.has(subject) {
                continue;
            }
            let mut bill = self.evidence.take_bill(subject);
            if !self.incidents.is_open(subject) {
                bill.absorb_before(&self.unbilled);
                if subject != Subject::Unexplained {
                    self.evidence.forget(Subject::Unexplained);
                }
                let subject = self.incidents.roll_up(subject, &measured.node_of);
                self.incidents.open(subject, measured.until, bill);
                self.episode.decide();
                let most = most_named(measured.ranks.len());
                let resumed = self.episode.resumed();
                if self.incidents.withdraw(resumed, most, self.rule.explain) {
                    self.episode.decide_shared();
                    self.evidence.clear();
                    self.lateness.clear();
                    break;
                }
            }
        }
        for (subject, _) in &found {
            let class = self.class(*subject, (measured, transfers), loss, usual);
            let lost_s = loss.seconds * loss.share;
            self.incidents.classify(*subject, class, lost_s);
        }
        self.evidence.forget_spent();
    }

    /// Adds the losses of one evaluation to the open incidents.
    fn bill(&mut self, found: &[(Subject, Entry)]) {
        for (subject, entry) in found {
            let is_theirs = entry.weight >= LEAST_WEIGHT;
            if !is_theirs || !self.incidents.is_open(*subject) {
                self.unbilled.push_recent(*entry);
            }
            let is_counted =
                matches!(subject, Subject::Rank(rank) if self.lateness.named() == Some(*rank));
            if is_theirs && !is_counted {
                self.incidents.add(*subject, *entry);
            }
        }
    }

    /// Class of the latest loss of a subject.
    fn class(
        &self,
        subject: Subject,
        (measured, has_transfers): (&Measured, bool),
        loss: Loss,
        usual: &Usual,
    ) -> Class {
        let leads = self.leads(measured, usual);
        match subject {
            Subject::Rank(rank) if has_transfers && leads.runs_dry() == Some(rank) => Class::Host,
            Subject::Rank(_) if self.source == Source::Host => Class::Unknown,
            Subject::Rank(rank) => {
                let usual: Vec<f64> = leads.usual.iter().map(|flow| flow.lead).collect();
                if run_ahead(leads.usual, leads.step) {
                    class::of_rank(rank, &leads.recent, &usual)
                } else {
                    let ahead = LEAST_AHEAD * leads.step;
                    class::of_synchronised(rank, &leads.recent, &usual, ahead)
                }
            }
            Subject::Node(_) => Class::Unknown,
            Subject::Unexplained => class::of_uniform(loss, self.rule.explain),
        }
    }

    fn explain(
        &mut self,
        measured: &Measured,
        loss: Loss,
        usual: &Usual,
        has_transfers: bool,
    ) -> Explanation {
        let history = &self.history;
        let take = || history.flows(measured);
        let flows = self.flows.get_or_insert_with(take);
        let sides = (flows.ranks.as_slice(), flows.nodes.as_slice());
        if measured.compared >= LEAST_COMPARED {
            self.recent.add(measured, loss, sides, &self.rule);
            self.recent.set_sigmas(sides, usual.entry_s);
        }
        let recent = &self.recent;
        let queues = Queues::new(self.source, &measured.leads, &flows.ranks, usual);
        let past = (measured.node_of.as_slice(), sides.0);
        let explanation = explain(recent, past, has_transfers, &self.rule);
        self.episode
            .add(&queues, &explanation, loss, measured.until);
        let node_of = measured.node_of.as_slice();
        let explanation = self
            .episode
            .by_node(explanation, recent, node_of, &self.rule);
        let explanation = queues.correct(explanation, &self.episode, &measured.node_of);
        if explanation != Explanation::Unexplained {
            return explanation;
        }
        let leads = self.leads(measured, usual);
        let are_seen = !has_transfers && !self.episode.is_shared();
        let are_ahead = run_ahead(leads.usual, usual.shortest_step());
        let dry = leads.dry((has_transfers, are_seen && are_ahead), &self.rule);
        let dry = dry.filter(|rank| leads.weight(*rank) > 0.0);
        dry.map_or(Explanation::Unexplained, Explanation::Dry)
    }

    /// Leads of all ranks in an evaluation, and what is remembered and usual.
    fn leads<'a>(&'a self, measured: &'a Measured, usual: &Usual) -> Leads<'a> {
        Leads {
            source: self.source,
            latest: &measured.leads,
            recent: self.recent.leads(),
            lows: self.recent.lows(),
            step: usual.shortest_step(),
            transfers: self.recent.transfers(),
            usual: self.flows.as_ref().map_or(&[][..], |flows| &flows.ranks),
            loss: self.recent.share(),
        }
    }

    fn entry(&self, measured: &Measured, loss: Loss, (subject, share): (Subject, f64)) -> Entry {
        let rise = match subject {
            Subject::Rank(rank) => self.recent.ranks.get(rank),
            Subject::Node(node) => self.recent.nodes.get(node),
            Subject::Unexplained => None,
        };
        let waited = rise.map_or(0.0, |rise| rise.whole / self.recent.loss * loss.share);
        Entry {
            from: measured.until - loss.seconds,
            to: measured.until,
            loss: loss.share,
            weight: 1.0,
            gpu_s: share * measured.lost_gpu_s(loss.seconds, loss.share),
            waited,
            late: 0.0,
        }
    }
}
