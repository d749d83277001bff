//! Properties of the planner and the queue, for any course of incidents, failures and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::Lab;
use crate::consumer::DeliveryError;
use crate::notice::{Candidate, Phase};
use crate::policy::Mode;
use crate::queue::{begin_due, complete};
use crate::sample::{at, candidate, snapshot};
use crate::state::State;

/// One minute: which nodes are late, how the consumers answer, and whether Echo restarts.
#[derive(Debug, Clone)]
struct Minute {
    late: BTreeSet<u64>,
    answer: Answer,
    is_restart: bool,
    is_killed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Accepts,
    Refuses,
    /// Accepts, and the answer is lost.
    Silent,
}

fn minutes() -> impl Strategy<Value = Vec<Minute>> {
    let answer = prop_oneof![
        3 => Just(Answer::Accepts),
        1 => Just(Answer::Refuses),
        1 => Just(Answer::Silent)
    ];
    let late = proptest::collection::btree_set(0_u64..5, 0..5);
    let kill = prop_oneof![5 => Just(false), 1 => Just(true)];
    let minute =
        (late, answer, any::<bool>(), kill).prop_map(|(late, answer, is_restart, is_killed)| {
            Minute {
                late,
                answer,
                is_restart,
                is_killed,
            }
        });
    proptest::collection::vec(minute, 1..30)
}

/// What the consumers have: keys that arrived, and the drained nodes.
#[derive(Debug, Default)]
struct World {
    arrived: BTreeMap<String, u32>,
    accepted: BTreeSet<String>,
    drained: BTreeSet<String>,
}

impl World {
    fn minute(&mut self, lab: &mut Lab, minute: &Minute) {
        if minute.is_restart {
            // Only what is saved survives.
            let text = serde_json::to_string(&lab.state).unwrap();
            lab.state = serde_json::from_str::<State>(&text).unwrap();
        }
        let late = minute.late.iter();
        let late: Vec<Candidate> = late.map(|n| candidate(&format!("node-{n}"), *n)).collect();
        let mut now = snapshot(late);
        now.is_killed = minute.is_killed;
        lab.pass(&now);
        for _ in 0..20 {
            if !minute.is_killed {
                self.attempts(lab, minute.answer);
            }
        }
        lab.seconds += 60;
    }

    fn attempts(&mut self, lab: &mut Lab, answer: Answer) {
        for one in begin_due(&mut lab.state, at(lab.seconds)) {
            let result = match answer {
                Answer::Accepts => Ok(String::new()),
                Answer::Refuses | Answer::Silent => Err(DeliveryError::transient("")),
            };
            assert!(!self.accepted.contains(&one.key), "sent twice: {}", one.key);
            if !matches!(answer, Answer::Refuses) {
                *self.arrived.entry(one.key.clone()).or_default() += 1;
                match (one.consumer.as_str(), one.phase) {
                    ("slurm", Phase::Cleared) => self.drained.remove(&one.notice.node),
                    ("slurm", _) => self.drained.insert(one.notice.node.clone()),
                    _ => false,
                };
            }
            if result.is_ok() {
                self.accepted.insert(one.key.clone());
            }
            let now = at(lab.seconds);
            complete(
                &mut lab.state,
                &one.key,
                result,
                Duration::from_secs(30),
                now,
            );
        }
    }
}

proptest! {
    #[test]
    fn never_more_nodes_than_allowed_are_drained_and_all_are_resumed(minutes in minutes()) {
        let mut lab = Lab::new(Mode::Act);
        let mut world = World::default();
        for minute in &minutes {
            world.minute(&mut lab, minute);
            prop_assert!(world.drained.len() <= 3, "{:?}", world.drained);
            prop_assert!(lab.state.open.len() <= 10);
        }
        let healthy = Minute {
            late: BTreeSet::new(),
            answer: Answer::Accepts,
            is_restart: false,
            is_killed: false,
        };
        for _ in 0..20 {
            world.minute(&mut lab, &healthy);
        }
        prop_assert!(world.drained.is_empty(), "{:?}", world.drained);
        prop_assert!(lab.state.queue.is_empty() && lab.state.open.is_empty());
    }
}
