//! Reports to the agents of the hosts: the actions in force of the consumers of this kind.

use echo_core::pattern::Pattern;

use crate::notice::Notice;
use crate::policy::{Destination, Mode, Policy};
use crate::state::State;

/// Culprits that are reported to agents.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentNotices {
    /// Clusters whose agents get a statement, if only that they have no culprit.
    pub clusters: Vec<Pattern>,
    /// Facts about each culprit, most severe first.
    pub notices: Vec<Notice>,
}

/// Returns the report of a policy whose kill switch is off.
pub fn agent_notices(policy: &Policy, state: &State) -> AgentNotices {
    let acts = |name: &String| {
        policy.consumers.get(name).is_some_and(|consumer| {
            consumer.mode == Mode::Act && matches!(consumer.destination, Destination::Agents(_))
        })
    };
    let rules = policy.rules.iter();
    let rules = rules.filter(|rule| rule.consumers.iter().any(acts));
    let clusters = rules.flat_map(|rule| rule.clusters.clone()).collect();
    let open = state.open.iter();
    let open = open.filter(|action| action.mode == Mode::Act && acts(&action.consumer));
    let mut notices: Vec<Notice> = open.map(|action| action.notice.clone()).collect();
    // Several consumers may have selected the same incident.
    notices.sort_by(|a, b| (&a.incident_id, &a.node).cmp(&(&b.incident_id, &b.node)));
    notices.dedup_by(|a, b| (&a.incident_id, &a.node) == (&b.incident_id, &b.node));
    notices.sort_by(|a, b| b.effect_ratio.total_cmp(&a.effect_ratio));
    AgentNotices { clusters, notices }
}

#[cfg(test)]
mod tests {
    use super::agent_notices;
    use crate::notice::Notice;
    use crate::policy::{Mode, Policy};
    use crate::sample::{notice, open_action};
    use crate::state::State;

    fn policy(mode: Mode) -> Policy {
        let mode = mode.name();
        let text = format!(
            "consumers:
  hosts: {{ mode: {mode}, agents: {{}} }}
  sentinels: {{ mode: {mode}, agents: {{}} }}
  pager: {{ mode: act, webhook: {{ url: 'http://127.0.0.1:1/', secret_file: key }} }}
rules:
  - {{ consumers: [hosts, sentinels], clusters: [lab] }}
  - {{ consumers: [pager] }}
"
        );
        Policy::parse(&text, "/etc".as_ref()).unwrap()
    }

    #[test]
    fn agents_get_what_their_consumers_have_in_force_once_for_each_incident() {
        let worst = Notice {
            effect_ratio: 0.9,
            ..notice("n2", 2)
        };
        let mut shadow = open_action("hosts", &notice("n3", 3));
        shadow.mode = Mode::Shadow;
        let state = State {
            open: vec![
                open_action("hosts", &notice("n1", 1)),
                open_action("sentinels", &notice("n1", 1)),
                open_action("hosts", &worst),
                open_action("pager", &notice("n4", 4)),
                shadow,
            ],
            ..State::default()
        };
        let report = agent_notices(&policy(Mode::Act), &state);
        assert_eq!(report.notices, [worst, notice("n1", 1)]);
        assert_eq!(report.clusters, ["lab".parse().unwrap()]);
    }

    #[test]
    fn in_shadow_mode_agents_get_no_statement() {
        let state = State {
            open: vec![open_action("hosts", &notice("n1", 1))],
            ..State::default()
        };
        let report = agent_notices(&policy(Mode::Shadow), &state);
        assert!(report.clusters.is_empty() && report.notices.is_empty());
    }
}
