//! Tests of the planner.

use std::time::Duration;

use echo_core::model::detector_output::Severity;

use super::plan;
use crate::notice::{Blame, Candidate, Phase};
use crate::policy::{Mode, Policy};
use crate::queue::{begin_due, complete};
use crate::record::{Outcome, Record};
use crate::refusal::Refusal;
use crate::sample::{at, candidate, policy, snapshot};
use crate::selection::Snapshot;
use crate::state::{MAX_QUEUED, State};

mod properties;

/// A state, a policy and a time in seconds.
struct Lab {
    state: State,
    policy: Policy,
    seconds: u64,
}

impl Lab {
    fn new(mode: Mode) -> Self {
        Self {
            state: State::default(),
            policy: policy(mode),
            seconds: 0,
        }
    }

    /// Passes with these incidents now and after two minutes.
    fn lasting(&mut self, candidates: &[Candidate]) -> Vec<Record> {
        let mut records = self.pass(&snapshot(candidates.to_vec()));
        self.seconds += 120;
        records.extend(self.pass(&snapshot(candidates.to_vec())));
        records
    }

    fn pass(&mut self, snapshot: &Snapshot) -> Vec<Record> {
        plan(&mut self.state, &self.policy, snapshot, at(self.seconds))
    }

    /// Makes all deliveries, and returns consumer and phase of each.
    fn deliver(&mut self) -> Vec<(String, Phase)> {
        let mut made = Vec::new();
        loop {
            let begun = begin_due(&mut self.state, at(self.seconds));
            if begun.is_empty() {
                return made;
            }
            for one in begun {
                let now = at(self.seconds);
                complete(
                    &mut self.state,
                    &one.key,
                    Ok(String::new()),
                    Duration::ZERO,
                    now,
                );
                made.push((one.consumer, one.phase));
            }
        }
    }
}

fn outcomes(records: &[Record]) -> Vec<(&str, Outcome)> {
    let pairs = records
        .iter()
        .map(|one| (one.consumer.as_str(), one.outcome));
    pairs.collect()
}

fn refusals(records: &[Record]) -> Vec<Refusal> {
    let refusal = |record: &Record| match record.outcome {
        Outcome::Refused(refusal) => Some(refusal),
        _ => None,
    };
    records.iter().filter_map(refusal).collect()
}

#[test]
fn an_incident_is_reported_once_it_has_lasted_and_again_when_it_clears() {
    let mut lab = Lab::new(Mode::Act);
    assert!(lab.pass(&snapshot(vec![candidate("node-1", 1)])).is_empty());
    assert!(lab.state.queue.is_empty());
    lab.lasting(&[candidate("node-1", 1)]);
    let both = |phase| [("pager".to_owned(), phase), ("slurm".to_owned(), phase)];
    assert_eq!(lab.deliver(), both(Phase::Raised));
    lab.lasting(&[candidate("node-1", 1)]);
    assert!(lab.deliver().is_empty());
    lab.pass(&snapshot(vec![]));
    assert_eq!(lab.deliver(), both(Phase::Cleared));
    assert!(lab.state.open.is_empty() && lab.state.seen.is_empty());
}

#[test]
fn in_shadow_mode_beginning_and_end_are_recorded_and_nothing_is_queued() {
    let mut lab = Lab::new(Mode::Shadow);
    let began = lab.lasting(&[candidate("node-1", 1)]);
    let shadow = [("pager", Outcome::Shadow), ("slurm", Outcome::Shadow)];
    assert_eq!(outcomes(&began), shadow);
    let ended = lab.pass(&snapshot(vec![]));
    assert_eq!(outcomes(&ended), shadow);
    assert!(ended.iter().all(|one| one.phase == Phase::Cleared));
    assert!(lab.state.queue.is_empty());
}

#[test]
fn a_shadow_becomes_an_action_when_its_consumer_acts() {
    let mut lab = Lab::new(Mode::Shadow);
    lab.lasting(&[candidate("node-1", 1)]);
    lab.policy = policy(Mode::Act);
    lab.pass(&snapshot(vec![candidate("node-1", 1)]));
    assert_eq!(lab.deliver().len(), 2);
    lab.policy = policy(Mode::Shadow);
    lab.pass(&snapshot(vec![]));
    let ends = lab.deliver();
    assert_eq!(ends.len(), 2, "what was done is undone: {ends:?}");
}

#[test]
fn a_node_with_several_incidents_is_drained_once_and_resumed_after_the_last() {
    let mut lab = Lab::new(Mode::Act);
    let [first, second] = [candidate("node-1", 1), candidate("node-1", 2)];
    lab.lasting(&[first, second.clone()]);
    let slurm = |made: Vec<(String, Phase)>| -> Vec<Phase> {
        let own = made.into_iter().filter(|(name, _)| name == "slurm");
        own.map(|(_, phase)| phase).collect()
    };
    assert_eq!(slurm(lab.deliver()), [Phase::Raised]);
    lab.pass(&snapshot(vec![second]));
    assert!(slurm(lab.deliver()).is_empty());
    lab.pass(&snapshot(vec![]));
    assert_eq!(slurm(lab.deliver()), [Phase::Cleared]);
}

#[test]
fn a_change_of_severity_is_reported_where_it_matters() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-1", 1)]);
    lab.deliver();
    let mut worse = candidate("node-1", 1);
    worse.severity = Severity::Critical;
    "critical".clone_into(&mut worse.notice.severity);
    lab.pass(&snapshot(vec![worse.clone()]));
    let change = &lab.state.queue[0];
    assert_eq!(change.previous.as_ref().unwrap().severity, "warn");
    assert_eq!(lab.deliver(), [("pager".to_owned(), Phase::Changed)]);
    lab.pass(&snapshot(vec![worse]));
    assert!(lab.deliver().is_empty());
}

#[test]
fn a_rank_that_moves_frees_its_old_node() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-1", 1)]);
    lab.deliver();
    lab.lasting(&[candidate("node-2", 1)]);
    let slurm: Vec<_> = lab
        .state
        .queue
        .iter()
        .filter(|one| one.consumer == "slurm")
        .collect();
    let nodes: Vec<_> = slurm
        .iter()
        .map(|one| (one.phase, one.notice.node.as_str()))
        .collect();
    assert!(nodes.contains(&(Phase::Cleared, "node-1")), "{nodes:?}");
    assert!(nodes.contains(&(Phase::Raised, "node-2")), "{nodes:?}");
}

#[test]
fn two_hundred_nodes_at_once_are_not_acted_on_at_all() {
    let mut lab = Lab::new(Mode::Act);
    let all: Vec<Candidate> = (0..200)
        .map(|n| candidate(&format!("node-{n}"), n))
        .collect();
    let records = lab.lasting(&all);
    assert!(lab.state.open.is_empty() && lab.state.queue.is_empty());
    assert_eq!(records.len(), 400);
    let refused = refusals(&records);
    assert!(refused.iter().all(|one| *one == Refusal::NodeLimit));
    assert_eq!(refused.len(), 400);
    assert!(
        lab.lasting(&all).is_empty(),
        "each refusal is recorded once"
    );
    lab.lasting(&all[..3]);
    assert_eq!(
        lab.state.open.len(),
        6,
        "within the limit they are reported"
    );
}

#[test]
fn a_flood_stops_new_actions_and_keeps_the_ones_in_force() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-0", 0)]);
    lab.deliver();
    let all: Vec<Candidate> = (0..9).map(|n| candidate(&format!("node-{n}"), n)).collect();
    // Those that have not lasted yet count as well.
    let records = lab.pass(&snapshot(all.clone()));
    assert!(records.is_empty());
    lab.seconds += 120;
    assert_eq!(refusals(&lab.pass(&snapshot(all))).len(), 16);
    assert_eq!(lab.state.open.len(), 2);
    lab.pass(&snapshot(vec![]));
    assert_eq!(lab.deliver().len(), 2);
}

#[test]
fn nothing_begins_on_thin_ground() {
    let lasting = |change: fn(&mut Snapshot)| {
        let mut lab = Lab::new(Mode::Act);
        let mut now = snapshot(vec![candidate("node-1", 1)]);
        change(&mut now);
        lab.pass(&now);
        lab.seconds += 120;
        let records = lab.pass(&now);
        assert!(lab.state.queue.is_empty());
        refusals(&records)
    };
    let coverage = lasting(|now| {
        for health in now.clusters.values_mut() {
            health.coverage = Some(0.5);
        }
    });
    assert_eq!(coverage, [Refusal::LowCoverage; 2]);
    let unknown = lasting(|now| now.clusters.clear());
    assert_eq!(unknown, [Refusal::LowCoverage; 2]);
    let behind = lasting(|now| now.is_behind = true);
    assert_eq!(behind, [Refusal::Behind; 2]);
    let unsure = lasting(|now| now.candidates[0].notice.confidence = 0.79);
    assert_eq!(unsure, [Refusal::LowConfidence; 2]);
}

#[test]
fn classes_and_severities_that_no_rule_selects_are_not_reported() {
    let mut lab = Lab::new(Mode::Act);
    lab.policy.rules[0].classes = vec![Blame::Host];
    let mut hang = candidate("node-1", 1);
    hang.blame = Blame::Hang;
    let mut unknown = candidate("node-2", 2);
    unknown.blame = Blame::Unknown;
    let mut info = candidate("node-3", 3);
    info.severity = Severity::Info;
    assert!(lab.lasting(&[hang, unknown, info]).is_empty());
    assert!(lab.state.open.is_empty());
}

#[test]
fn a_node_whose_name_means_several_nodes_is_refused() {
    for name in [
        "ALL",
        "node-[1-200]",
        "a,b",
        "../nodes/b",
        "-x",
        "a b",
        "",
        "a/b",
        "a%2fb",
    ] {
        let mut lab = Lab::new(Mode::Act);
        let records = lab.lasting(&[candidate(name, 1)]);
        assert_eq!(refusals(&records), [Refusal::UnsafeName], "{name:?}");
        assert_eq!(lab.state.queue.len(), 1, "the webhook gets it");
    }
}

#[test]
fn the_kill_switch_withdraws_what_was_not_sent_and_holds_the_ends() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-1", 1)]);
    lab.deliver();
    lab.lasting(&[candidate("node-1", 1), candidate("node-2", 2)]);
    let mut killed = snapshot(vec![candidate("node-2", 2)]);
    killed.is_killed = true;
    let records = lab.pass(&killed);
    let cancelled = records
        .iter()
        .filter(|one| one.outcome == Outcome::Cancelled);
    assert_eq!(cancelled.count(), 2);
    assert_eq!(refusals(&records), [Refusal::KillSwitch; 2]);
    assert!(lab.state.queue.is_empty());
    assert_eq!(lab.state.open.len(), 2, "node-1 is still drained");
    lab.pass(&snapshot(vec![]));
    let ends = lab.deliver();
    assert!(ends.iter().all(|(_, phase)| *phase == Phase::Cleared));
    assert_eq!(ends.len(), 2);
}

#[test]
fn an_end_that_finds_no_place_in_the_queue_is_queued_later() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-1", 1)]);
    lab.deliver();
    let filler = {
        let mut action = lab.state.open[0].clone();
        "other".clone_into(&mut action.target);
        action.next_delivery(Phase::Refreshed, at(0))
    };
    for consumer in ["pager", "slurm"] {
        for _ in 0..MAX_QUEUED {
            let mut one = filler.clone();
            consumer.clone_into(&mut one.consumer);
            lab.state.queue.push(one);
        }
    }
    lab.pass(&snapshot(vec![]));
    assert_eq!(lab.state.open.len(), 2);
    assert_eq!(lab.state.queue.len(), 2 * MAX_QUEUED);
    lab.state.queue.clear();
    lab.pass(&snapshot(vec![]));
    assert_eq!(lab.deliver().len(), 2);
}

#[test]
fn an_action_whose_consumer_is_gone_is_abandoned_and_recorded() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-1", 1)]);
    lab.deliver();
    lab.policy.consumers.remove("slurm");
    let records = lab.pass(&snapshot(vec![candidate("node-1", 1)]));
    assert_eq!(outcomes(&records), [("slurm", Outcome::Abandoned)]);
    assert_eq!(lab.state.open.len(), 1);
}

#[test]
fn a_node_that_recovers_before_it_was_drained_is_left_alone() {
    let mut lab = Lab::new(Mode::Act);
    lab.lasting(&[candidate("node-1", 1)]);
    let records = lab.pass(&snapshot(vec![]));
    assert_eq!(outcomes(&records), [("slurm", Outcome::Cancelled)]);
    let made = lab.deliver();
    let pager = |phase| ("pager".to_owned(), phase);
    assert_eq!(made, [pager(Phase::Raised), pager(Phase::Cleared)]);
}

#[test]
fn consumers_that_forget_are_reminded() {
    let mut lab = Lab::new(Mode::Act);
    for rule in &mut lab.policy.rules {
        rule.consumers = vec!["alerts".to_owned(), "nodes".to_owned()];
    }
    lab.lasting(&[candidate("node-1", 1)]);
    lab.deliver();
    lab.seconds += 60;
    lab.pass(&snapshot(vec![candidate("node-1", 1)]));
    assert_eq!(lab.deliver(), [("alerts".to_owned(), Phase::Refreshed)]);
    lab.seconds += 240;
    lab.pass(&snapshot(vec![candidate("node-1", 1)]));
    assert_eq!(lab.deliver().len(), 2);
}
