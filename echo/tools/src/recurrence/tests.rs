use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{
    Culprit, DetectorOutput, Finding, Incident, IncidentState,
};

use crate::ToolContext;
use crate::explain_rank::ExplainRank;
use crate::find_outlier_nodes::FindOutlierNodes;
use crate::fixture::{at, context, culprit as late};
use crate::recurrence::{Recurrence, ordinal};
use crate::tool::Tool;

const HOUR: i64 = 3_600;

/// Incident of a rank of `node-1` with this GPU, that began some hours before rank 2 was late, and
/// lasted for a minute.
fn earlier(id: u64, hours: i64, job: &str, gpu_uuid: &str) -> Incident {
    let begin = 290 - hours * HOUR;
    let mut incident = Incident {
        id: IncidentId::new(id),
        job: Some(job.parse().unwrap()),
        first_seen: at(begin),
        raised_at: at(begin + 10),
        last_seen: at(begin + 60),
        cleared_at: Some(at(begin + 70)),
        state: IncidentState::Cleared,
        ..late()
    };
    named(&mut incident).gpu_uuid = Some(gpu_uuid.into());
    incident
}

fn named(incident: &mut Incident) -> &mut Culprit {
    match &mut incident.finding {
        Finding::Culprit(culprit) => culprit,
        Finding::Condition(_) => panic!("no culprit"),
    }
}

/// The fixture, whose late rank has a GPU, after earlier incidents.
async fn after(earlier: &[Incident]) -> ToolContext {
    let context = context().await;
    let mut now = late();
    named(&mut now).gpu_uuid = Some("GPU-2".into());
    let output = DetectorOutput {
        incidents: earlier.iter().cloned().chain([now]).collect(),
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    context
}

async fn recurrence(context: &ToolContext) -> Recurrence {
    let tool = FindOutlierNodes {
        from: Some("now-5m".parse().unwrap()),
        ..FindOutlierNodes::default()
    };
    let answer = tool.run(context).await.unwrap();
    answer.outliers[0].recurrence.clone().unwrap()
}

#[tokio::test]
async fn the_third_incident_of_a_gpu_in_three_jobs_is_reported_by_both_tools() {
    let context = after(&[
        earlier(1, 100, "bert", "GPU-2"),
        earlier(2, 50, "resnet", "GPU-2"),
    ])
    .await;
    let found = recurrence(&context).await;
    let sentence = "third incident of this GPU in 7 days, in 3 jobs";
    assert_eq!(found.sentence.as_deref(), Some(sentence));
    assert_eq!((found.gpu_incidents, found.gpu_jobs), (Some(3), Some(3)));
    let arguments = serde_json::json!({"cluster": "prod", "rank": 2, "from": "now-5m"});
    let tool: ExplainRank = serde_json::from_value(arguments).unwrap();
    let explained = tool.run(&context).await.unwrap();
    assert_eq!(explained.incidents[0].outlier.recurrence, Some(found));
}

#[tokio::test]
async fn other_gpus_of_the_node_count_for_the_node_only() {
    let context = after(&[
        earlier(1, 100, "llama", "GPU-3"),
        earlier(2, 50, "llama", "GPU-2"),
    ])
    .await;
    let found = recurrence(&context).await;
    assert_eq!(
        found.sentence.as_deref(),
        Some(
            "second incident of this GPU in 7 days, in one job; third incident of this node in 7 days, in one job"
        )
    );
}

#[tokio::test]
async fn the_first_incident_has_no_sentence_and_older_ones_and_those_of_others_do_not_count() {
    let mut same_name = earlier(1, 5, "llama", "GPU-7");
    same_name.cluster = "lab".parse().unwrap();
    let mut other_node = earlier(2, 5, "llama", "GPU-9");
    named(&mut other_node).node = "node-9".parse().unwrap();
    let context = after(&[
        same_name,
        other_node,
        earlier(3, 7 * 24 + 1, "llama", "GPU-2"),
    ])
    .await;
    let found = recurrence(&context).await;
    assert_eq!(found.sentence, None);
    assert_eq!((found.gpu_incidents, found.node_incidents), (Some(1), 1));
}

#[tokio::test]
async fn a_gpu_that_moved_counts_in_both_clusters() {
    let mut elsewhere = earlier(1, 50, "llama", "GPU-2");
    elsewhere.cluster = "lab".parse().unwrap();
    named(&mut elsewhere).node = "node-9".parse().unwrap();
    let found = recurrence(&after(&[elsewhere]).await).await;
    let sentence = "second incident of this GPU in 7 days, in 2 jobs of 2 clusters";
    assert_eq!(found.sentence.as_deref(), Some(sentence));
    assert_eq!((found.gpu_jobs, found.node_incidents), (Some(2), 1));
}

#[tokio::test]
async fn incidents_of_several_cohorts_at_a_time_count_once() {
    let mut second_cohort = earlier(2, 50, "bert", "GPU-2");
    second_cohort.first_seen = second_cohort.first_seen.offset(20_000_000_000);
    second_cohort.raised_at = second_cohort.raised_at.offset(20_000_000_000);
    let context = after(&[earlier(1, 50, "bert", "GPU-2"), second_cohort]).await;
    assert_eq!(recurrence(&context).await.gpu_incidents, Some(2));
}

#[test]
fn ordinals_are_english() {
    let words = [1, 3, 10, 11, 12, 13, 21, 22, 23, 111].map(ordinal);
    let expected = [
        "first", "third", "10th", "11th", "12th", "13th", "21st", "22nd", "23rd", "111th",
    ];
    assert_eq!(words, expected);
}
