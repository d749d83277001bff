use crate::ToolContext;
use crate::explain_rank::{ExplainRank, Explanation};
use crate::find_outlier_nodes::{FindOutlierNodes, Outliers};
use crate::fixture::{context, host_evidence};
use crate::tool::Tool;

const CONTENTION: &str = "give it CPUs of its own: taskset -apc CPUS PID, or a cpuset";

async fn outliers(context: &ToolContext, from: &str, to: &str) -> Outliers {
    let tool = FindOutlierNodes {
        from: Some(from.parse().unwrap()),
        to: Some(to.parse().unwrap()),
        ..FindOutlierNodes::default()
    };
    tool.run(context).await.unwrap()
}

async fn explanation(context: &ToolContext) -> Explanation {
    let arguments = serde_json::json!({"cluster": "prod", "rank": 2, "from": "now-5m"});
    let tool: ExplainRank = serde_json::from_value(arguments).unwrap();
    tool.run(context).await.unwrap()
}

#[tokio::test]
async fn a_culprit_comes_with_the_advice_for_its_evidence_in_both_tools() {
    let context = context().await;
    let without = outliers(&context, "now-5m", "now").await;
    let unexplained = "find what its processes lose time to: fleet-agent explain, on node-1";
    assert_eq!(without.outliers[0].advice, [unexplained]);
    context.store.append(host_evidence()).await.unwrap();
    let with = outliers(&context, "now-5m", "now").await;
    assert_eq!(with.outliers[0].advice, [CONTENTION]);
    let explained = explanation(&context).await;
    assert_eq!(explained.incidents[0].outlier.advice, [CONTENTION]);
}

#[tokio::test]
async fn a_condition_comes_with_advice() {
    let answer = outliers(&context().await, "now-10m", "now-7m").await;
    assert!(answer.conditions[0].advice[0].starts_with("look at what all ranks share"));
}
