//! Planner: compares the open incidents with the actions in force, and queues what is missing.
//!
//! It works on levels, not on edges: each pass sees all open incidents, so that what was refused or
//! found no place in the queue is planned later, while the incident is open. What has been started
//! is always ended, in the mode in which it was started.

use std::collections::BTreeSet;

use echo_core::units::Nanos;

use crate::breaker::refusal;
use crate::consumer::is_safe_node_name;
use crate::notice::Phase;
use crate::policy::{ConsumerPolicy, Mode, Policy};
use crate::queue::withdraw_overtaken;
use crate::record::{Outcome, Record};
use crate::refusal::Refusal;
use crate::selection::{Match, Matches, Snapshot, latest, matches, occurrence};
use crate::state::{Delivery, OpenAction, State, target};

/// One pass.
struct Pass<'a> {
    state: &'a mut State,
    policy: &'a Policy,
    snapshot: &'a Snapshot,
    now: Nanos,
    records: Vec<Record>,
}

/// Plans what is missing, and returns what was decided.
pub fn plan(state: &mut State, policy: &Policy, snapshot: &Snapshot, now: Nanos) -> Vec<Record> {
    let mut pass = Pass {
        state,
        policy,
        snapshot,
        now,
        records: Vec::new(),
    };
    pass.run();
    pass.records
}

impl Pass<'_> {
    fn run(&mut self) {
        let (policy, snapshot) = (self.policy, self.snapshot);
        let matches = matches(policy, &snapshot.candidates);
        self.remember();
        self.abandon();
        self.withdraw_unsent();
        self.state.refused.retain(|(consumer, target), _| {
            matches.contains_key(&(consumer.as_str(), target.clone()))
        });
        if !snapshot.is_killed {
            self.end_cleared(&matches);
            self.continue_open(&matches);
        }
        self.raise(&matches);
        let withdrawn = withdraw_overtaken(self.state, policy);
        self.records.extend(withdrawn);
    }

    /// Notes when each open incident was first seen.
    fn remember(&mut self) {
        let now = self.now.value();
        let open = self.snapshot.candidates.iter();
        let open: BTreeSet<String> = open.map(|one| occurrence(&one.notice)).collect();
        self.state.seen.retain(|known, _| open.contains(known));
        for incident in open {
            self.state.seen.entry(incident).or_insert(now);
        }
    }

    /// Drops actions whose consumer is gone, and shadows of consumers that act now.
    fn abandon(&mut self) {
        let policy = self.policy;
        let (kept, gone): (Vec<_>, Vec<_>) = std::mem::take(&mut self.state.open)
            .into_iter()
            .partition(|action| {
                let known = policy.consumers.get(&action.consumer);
                known.is_some_and(|known| action.mode == Mode::Act || known.mode == Mode::Shadow)
            });
        self.state.open = kept;
        self.state
            .queue
            .retain(|one| policy.consumers.contains_key(&one.consumer));
        for action in gone.into_iter().filter(|action| action.mode == Mode::Act) {
            self.records.push(Record {
                consumer: action.consumer,
                phase: Phase::Cleared,
                mode: action.mode,
                outcome: Outcome::Abandoned,
                delivery: None,
                notice: action.notice,
                detail: "its consumer is no longer in the policy; undo it by hand".to_owned(),
            });
        }
    }

    /// Withdraws beginnings that were never attempted, where nothing may begin any more.
    fn withdraw_unsent(&mut self) {
        let is_stopped = |delivery: &Delivery| {
            let consumer = self.policy.consumers.get(&delivery.consumer);
            self.snapshot.is_killed || consumer.is_some_and(|one| one.mode == Mode::Shadow)
        };
        let is_withdrawn = |delivery: &Delivery| {
            delivery.phase == Phase::Raised && delivery.attempts == 0 && is_stopped(delivery)
        };
        let (withdrawn, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.state.queue)
            .into_iter()
            .partition(is_withdrawn);
        self.state.queue = kept;
        for delivery in withdrawn {
            self.state.open.retain(|action| {
                action.consumer != delivery.consumer || action.target != delivery.target
            });
            let why = "the kill switch is on, or the consumer is in shadow mode";
            let record = Record::of_delivery(&delivery, Mode::Act, Outcome::Cancelled, why);
            self.records.push(record);
        }
    }

    /// Ends the actions whose incidents are cleared.
    fn end_cleared(&mut self, matches: &Matches<'_>) {
        let open = std::mem::take(&mut self.state.open);
        for action in open {
            if self.is_still_open(&action, matches) || !self.end(action.clone()) {
                self.state.open.push(action);
            }
        }
    }

    fn is_still_open(&self, action: &OpenAction, matches: &Matches<'_>) -> bool {
        let Some(consumer) = self.policy.consumers.get(&action.consumer) else {
            return false;
        };
        let mut candidates = self.snapshot.candidates.iter();
        matches.contains_key(&(action.consumer.as_str(), action.target.clone()))
            || candidates.any(|one| {
                one.notice.incident_id == action.notice.incident_id
                    && target(&consumer.destination, &one.notice) == action.target
            })
    }

    /// Ends an action. Returns false if the queue has no place for it yet.
    fn end(&mut self, mut action: OpenAction) -> bool {
        if !action.is_applied {
            return true;
        }
        if action.mode == Mode::Act && self.withdraw_whole(&action) {
            return true;
        }
        if action.mode == Mode::Act && self.state.is_full(&action.consumer) {
            return false;
        }
        let delivery = action.next_delivery(Phase::Cleared, self.now);
        self.submit(delivery, action.mode);
        true
    }

    /// Withdraws an action on a node that was never attempted. Returns false if there is none.
    fn withdraw_whole(&mut self, action: &OpenAction) -> bool {
        let is_own =
            |one: &Delivery| one.consumer == action.consumer && one.target == action.target;
        let is_unsent =
            |one: &Delivery| is_own(one) && one.phase == Phase::Raised && one.attempts == 0;
        let consumer = self.policy.consumers.get(&action.consumer);
        let is_per_node = consumer.is_some_and(|one| one.destination.is_per_node());
        let Some(index) = self
            .state
            .queue
            .iter()
            .position(is_unsent)
            .filter(|_| is_per_node)
        else {
            return false;
        };
        let delivery = self.state.queue.remove(index);
        let why = "the incident was cleared before it was sent";
        let record = Record::of_delivery(&delivery, action.mode, Outcome::Cancelled, why);
        self.records.push(record);
        let mut position = 0;
        self.state.queue.retain(|one| {
            position += 1;
            position <= index || !is_own(one)
        });
        true
    }

    /// Reports changes of open actions, and repeats those that consumers would forget.
    fn continue_open(&mut self, matches: &Matches<'_>) {
        let mut open = std::mem::take(&mut self.state.open);
        for action in &mut open {
            let Some(consumer) = self.policy.consumers.get(&action.consumer) else {
                continue;
            };
            let group = matches.get(&(action.consumer.as_str(), action.target.clone()));
            let Some(latest) = latest(group, action, &self.snapshot.candidates) else {
                continue;
            };
            let previous = std::mem::replace(&mut action.notice, latest);
            if !action.is_applied {
                continue;
            }
            let is_changed = consumer.destination.takes_changes()
                && previous.fingerprint() != action.notice.fingerprint();
            if is_changed && self.state.is_full(&action.consumer) {
                // Found again by the next pass.
                action.notice = previous;
            } else if is_changed {
                let mut delivery = action.next_delivery(Phase::Changed, self.now);
                delivery.previous = Some(previous);
                self.submit(delivery, action.mode);
            } else if self.is_refresh_due(action, consumer) {
                let delivery = action.next_delivery(Phase::Refreshed, self.now);
                self.submit(delivery, action.mode);
            }
        }
        self.state.open = open;
    }

    fn is_refresh_due(&self, action: &OpenAction, consumer: &ConsumerPolicy) -> bool {
        let Some(every) = consumer.destination.refresh_every() else {
            return false;
        };
        let is_queued = self
            .state
            .queue
            .iter()
            .any(|one| one.consumer == action.consumer && one.target == action.target);
        let age_ms = self.now.millis_since(Nanos::new(action.reported_at));
        action.mode == Mode::Act
            && !is_queued
            && age_ms >= every.as_secs_f64() * 1e3
            && !self.state.is_full(&action.consumer)
    }

    /// Starts actions for what qualifies and is permitted.
    fn raise(&mut self, matches: &Matches<'_>) {
        for ((name, target), group) in matches {
            if self.state.action(name, target).is_some() {
                continue;
            }
            let Some(consumer) = self.policy.consumers.get(*name) else {
                continue;
            };
            let Some(chosen) = group.iter().find(|one| self.has_lasted(one)) else {
                continue;
            };
            let confident = group
                .iter()
                .find(|one| self.has_lasted(one) && self.is_confident(one));
            let chosen = confident.unwrap_or(chosen);
            match self.refusal(name, consumer, chosen, matches) {
                Some((refusal, why)) => self.refuse((name, target), chosen, refusal, why),
                None => self.start((name, target), consumer.mode, chosen),
            }
        }
    }

    fn start(&mut self, (name, target): (&str, &str), mode: Mode, chosen: &Match<'_>) {
        self.state
            .refused
            .remove(&(name.to_owned(), target.to_owned()));
        let mut action = OpenAction {
            consumer: name.to_owned(),
            target: target.to_owned(),
            mode,
            is_applied: true,
            opened_at: self.now.value(),
            reported_at: self.now.value(),
            sequence: 0,
            notice: chosen.candidate.notice.clone(),
        };
        let delivery = action.next_delivery(Phase::Raised, self.now);
        self.state.open.push(action);
        self.submit(delivery, mode);
    }

    fn submit(&mut self, delivery: Delivery, mode: Mode) {
        match mode {
            Mode::Act => self.state.queue.push(delivery),
            Mode::Shadow => {
                let record = Record::of_delivery(&delivery, mode, Outcome::Shadow, "");
                self.records.push(record);
            }
        }
    }

    /// Records a refusal, once for each reason.
    fn refuse(
        &mut self,
        (name, target): (&str, &str),
        chosen: &Match<'_>,
        refusal: Refusal,
        detail: String,
    ) {
        let key = (name.to_owned(), target.to_owned());
        if self.state.refused.insert(key, refusal) == Some(refusal) {
            return;
        }
        let mode = self.policy.consumers.get(name).map(|one| one.mode);
        self.records.push(Record {
            consumer: name.to_owned(),
            phase: Phase::Raised,
            mode: mode.unwrap_or_default(),
            outcome: Outcome::Refused(refusal),
            delivery: None,
            notice: chosen.candidate.notice.clone(),
            detail,
        });
    }

    fn refusal(
        &self,
        name: &str,
        consumer: &ConsumerPolicy,
        chosen: &Match<'_>,
        matches: &Matches<'_>,
    ) -> Option<(Refusal, String)> {
        let notice = &chosen.candidate.notice;
        let limits = &self.policy.limits;
        if self.snapshot.is_killed {
            return Some((Refusal::KillSwitch, String::new()));
        }
        if !self.is_confident(chosen) {
            let (is, least) = (notice.confidence, limits.min_confidence);
            let why = format!("the confidence is {is:.2}, at least {least} is required");
            return Some((Refusal::LowConfidence, why));
        }
        if consumer.destination.is_per_node() && !is_safe_node_name(&notice.node) {
            return Some((Refusal::UnsafeName, String::new()));
        }
        if self.snapshot.is_behind {
            let why = "the detector is behind the events".to_owned();
            return Some((Refusal::Behind, why));
        }
        let health = self.snapshot.clusters.get(&notice.cluster);
        let qualifying = self.qualifying(name, &notice.cluster, matches);
        let health = health.copied().unwrap_or_default();
        if let Some(refused) = refusal(limits, consumer.nodes, health, &qualifying) {
            return Some(refused);
        }
        let is_full = consumer.mode == Mode::Act && self.state.is_full(name);
        is_full.then(|| (Refusal::QueueFull, String::new()))
    }

    /// Nodes of a cluster that a consumer acts on, or would without limits.
    fn qualifying<'s>(
        &'s self,
        name: &str,
        cluster: &str,
        matches: &'s Matches<'_>,
    ) -> BTreeSet<&'s str> {
        let open = self.state.open.iter();
        let open = open.filter(|one| one.consumer == name);
        // A node whose end is queued is still acted on.
        let queued = self.state.queue.iter();
        let queued = queued.filter(|one| one.consumer == name);
        let known = open
            .map(|one| &one.notice)
            .chain(queued.map(|one| &one.notice));
        let wanted = matches
            .iter()
            .filter(|((consumer, _), _)| *consumer == name)
            .flat_map(|(_, group)| group)
            .filter(|one| self.is_confident(one))
            .map(|one| &one.candidate.notice);
        let all = known.chain(wanted).filter(|one| one.cluster == cluster);
        all.map(|one| one.node.as_str()).collect()
    }

    fn is_confident(&self, one: &Match<'_>) -> bool {
        one.candidate.notice.confidence >= self.policy.limits.min_confidence
    }

    fn has_lasted(&self, one: &Match<'_>) -> bool {
        let seen = self.state.seen.get(&occurrence(&one.candidate.notice));
        seen.is_some_and(|seen| {
            let open_ms = self.now.millis_since(Nanos::new(*seen));
            open_ms >= one.rule.open_for.as_secs_f64() * 1e3
        })
    }
}

#[cfg(test)]
mod tests;
