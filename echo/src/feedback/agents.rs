//! Reports to agents: the culprits of each node, encoded.

use std::collections::BTreeMap;

use bytes::Bytes;
use echo_actions::agents::AgentNotices;
use echo_actions::notice::Notice;
use echo_core::ids::{ClusterId, NodeId};
use echo_core::policy_table::AgentReport;
use fleet_proto::metadata;
use fleet_proto::policy::{Culprit, HostCulprits};
use prost::Message;

/// Encodes the culprits of each node.
pub fn agent_report(notices: AgentNotices) -> AgentReport {
    let mut nodes: BTreeMap<(ClusterId, NodeId), HostCulprits> = BTreeMap::new();
    for notice in notices.notices {
        // Both were names when the incident was raised.
        if let (Ok(cluster), Ok(node)) = (notice.cluster.parse(), notice.node.parse()) {
            let own = nodes.entry((cluster, node)).or_default();
            own.culprits.push(culprit(notice));
        }
    }
    let encoded = |(node, culprits)| (node, encode_within_limit(culprits));
    AgentReport {
        clusters: notices.clusters,
        nodes: nodes.into_iter().map(encoded).collect(),
    }
}

fn culprit(notice: Notice) -> Culprit {
    Culprit {
        incident_id: notice.incident_id,
        node_id: notice.node,
        job: notice.job.unwrap_or_default(),
        rank: notice.rank,
        gpu_uuid: notice.gpu_uuid.unwrap_or_default(),
        class: notice.class,
        severity: notice.severity,
        lag_ms: notice.lag_ms,
    }
}

/// Leaves out the least severe culprits of a node that has more than fit the wire contract.
fn encode_within_limit(mut culprits: HostCulprits) -> Bytes {
    while culprits.encoded_len() > metadata::CULPRITS_MAX_BYTES {
        culprits.culprits.pop();
    }
    Bytes::from(culprits.encode_to_vec())
}

#[cfg(test)]
mod tests {
    use echo_actions::agents::AgentNotices;
    use echo_actions::notice::Notice;
    use fleet_proto::metadata;
    use fleet_proto::policy::HostCulprits;
    use prost::Message;

    use super::agent_report;

    fn notice(node: &str, rank: u32) -> Notice {
        Notice {
            incident_id: format!("{rank:016x}"),
            cluster: "prod".to_owned(),
            node: node.to_owned(),
            rank,
            severity: "critical".to_owned(),
            gpu_uuid: Some(format!("GPU-{rank:036}")),
            ..Notice::default()
        }
    }

    fn ranks(notices: Vec<Notice>, node: &str) -> Option<Vec<u32>> {
        let report = agent_report(AgentNotices {
            clusters: Vec::new(),
            notices,
        });
        let node = ("prod".parse().unwrap(), node.parse().unwrap());
        let encoded = report.nodes.get(&node)?;
        assert!(encoded.len() <= metadata::CULPRITS_MAX_BYTES);
        let culprits = HostCulprits::decode(encoded.as_ref()).unwrap().culprits;
        Some(culprits.iter().map(|one| one.rank).collect())
    }

    #[test]
    fn each_node_gets_its_own_culprits() {
        let notices = vec![notice("n1", 3), notice("n2", 5), notice("n1", 1)];
        assert_eq!(ranks(notices.clone(), "n1"), Some(vec![3, 1]));
        assert_eq!(ranks(notices.clone(), "n2"), Some(vec![5]));
        assert_eq!(ranks(notices, "n3"), None);
    }

    #[test]
    fn what_does_not_fit_the_metadata_is_left_out_at_the_end() {
        let all = (0..100).map(|rank| notice("n1", rank)).collect();
        let kept = ranks(all, "n1").unwrap();
        assert!((8..100).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept[..3], [0, 1, 2]);
    }
}
