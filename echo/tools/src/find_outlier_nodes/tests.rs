use std::sync::Arc;

use echo_core::clock::ManualClock;
use echo_core::ids::{IncidentId, Rank};
use echo_core::model::detector_output::{
    Condition, ConditionKind, DetectorOutput, Finding, Incident, IncidentState,
};
use echo_core::model::event::{BatchKey, Event, Origin};
use echo_store::EventStore;
use echo_store::duckdb::{DuckDbConfig, DuckDbStore};
use echo_store::limits::Limits;
use fleet_proto::metric;

use super::{FindOutlierNodes, Outliers};
use crate::ToolContext;
use crate::fixture::{
    at, batch, context, context_over, culprit, empty, host_evidence, origin, uniform,
};
use crate::tool::Tool;

mod limits;
mod unhealthy_nodes;

async fn run_tool(context: &ToolContext, cluster: Option<&str>, from: &str, to: &str) -> Outliers {
    let tool = FindOutlierNodes {
        cluster: cluster.map(str::to_owned),
        from: Some(from.parse().unwrap()),
        to: Some(to.parse().unwrap()),
        ..FindOutlierNodes::default()
    };
    tool.run(context).await.unwrap()
}

async fn store_incident(context: &ToolContext, incident: Incident) {
    let output = DetectorOutput {
        incidents: vec![incident],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
}

/// Stores one event of `origin`.
async fn store_reports(context: &ToolContext, origin: Origin, second: i64) {
    let mut reports = batch(0..1, 0..=0);
    reports.key = BatchKey::Content(7);
    for event in &mut reports.events {
        event.origin = Arc::new(origin.clone());
        event.timestamp = at(second);
    }
    context.store.append(reports).await.unwrap();
}

#[tokio::test]
async fn culprits_and_conditions_are_listed_separately() {
    let answer = run_tool(&context().await, Some("prod"), "now-10m", "now").await;
    insta::assert_json_snapshot!(answer);
}

#[tokio::test]
async fn only_incidents_that_were_open_in_the_window_are_listed() {
    let answer = run_tool(&context().await, None, "now-5m", "now").await;
    assert_eq!((answer.outliers.len(), answer.conditions.len()), (1, 0));
    let answer = run_tool(&context().await, None, "now-10m", "now-7m").await;
    assert_eq!((answer.outliers.len(), answer.conditions.len()), (0, 1));
}

#[tokio::test]
async fn host_evidence_explains_a_culprit() {
    let context = context().await;
    context.store.append(host_evidence()).await.unwrap();
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let sentences: Vec<_> = answer.outliers[0]
        .evidence
        .iter()
        .map(|evidence| evidence.sentence.as_str())
        .collect();
    assert_eq!(
        sentences,
        [
            "11.0 ms per step later than its peers (from its synchronisation to its next collective)",
            "preempted 14.8 ms per step, peers 5.0",
        ]
    );
    let host = &answer.outliers[0].evidence[1];
    assert_eq!((host.own, host.peers), (Some(14.75), Some(5.0)));
    assert_eq!(host.signal, "fleet.host.preempted_ms");
}

#[tokio::test]
async fn each_culprit_has_its_own_host_evidence() {
    let context = context().await;
    context.store.append(host_evidence()).await.unwrap();
    let mut other = culprit();
    other.id = IncidentId::new(0x18);
    if let Finding::Culprit(culprit) = &mut other.finding {
        culprit.rank = Rank::new(0);
    }
    store_incident(&context, other).await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let evidence = answer.outliers.iter().map(|outlier| {
        let own = outlier.evidence.get(1).and_then(|evidence| evidence.own);
        (outlier.rank, own)
    });
    assert_eq!(
        evidence.collect::<Vec<_>>(),
        [(Some(2), Some(14.75)), (Some(0), None)],
        "rank 0 is preempted as its peers are"
    );
}

#[tokio::test]
async fn the_task_that_preempts_a_culprit_is_named() {
    let context = context().await;
    let mut batch = host_evidence();
    let preempted = batch.events.iter().find(|event| {
        let rank = event.origin.rank.map(|rank| rank.rank().value());
        event.metric.as_str() == metric::PREEMPTED && rank == Some(2)
    });
    let hog = Event {
        metric: metric::PREEMPTED_BY.parse().unwrap(),
        attrs: r#"{"fleet.cpu":12,"fleet.task":"cpu-\u001bhog"}"#.into(),
        ..preempted.unwrap().clone()
    };
    batch.events.push(hog);
    context.store.append(batch).await.unwrap();
    let answer = run_tool(&context, None, "now-5m", "now").await;
    assert_eq!(
        answer.outliers[0].evidence[1].sentence,
        "preempted 14.8 ms per step by cpu-?hog on cpu 12, peers 5.0"
    );
}

#[tokio::test]
async fn an_outlier_has_the_gpu_and_the_pod_of_its_rank() {
    let context = context().await;
    let seen = |gpu: &str| Origin {
        gpu_uuid: Some(Arc::from(gpu)),
        namespace: Some(Arc::from("ml")),
        pod: Some(Arc::from("llama-1")),
        ..(*origin(2)).clone()
    };
    store_reports(&context, seen("GPU-3f2a"), 596).await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let found = &answer.outliers[0];
    let names = [
        &found.gpu_uuid,
        &found.gpu_model,
        &found.namespace,
        &found.pod,
    ];
    assert_eq!(
        names.map(Option::as_deref),
        ["GPU-3f2a", "NVIDIA H200", "ml", "llama-1"].map(Some)
    );
    // The job has restarted and its rank runs on another GPU: nothing of that is reported.
    let mut late = culprit();
    if let Finding::Culprit(culprit) = &mut late.finding {
        culprit.gpu_uuid = Some(Arc::from("GPU-0000"));
    }
    store_incident(&context, late).await;
    let answer = run_tool(&context, None, "now-5m", "now").await;
    let found = &answer.outliers[0];
    let names = [&found.gpu_uuid, &found.gpu_model, &found.pod];
    assert_eq!(names.map(Option::as_deref), [Some("GPU-0000"), None, None]);
}

#[tokio::test]
async fn a_past_window_shows_the_state_at_its_end() {
    let context = context().await;
    let mut late = culprit();
    late.state = IncidentState::Cleared;
    late.cleared_at = Some(at(500));
    late.cleared_iteration = Some(5_000.0);
    late.last_seen = at(480);
    store_incident(&context, late).await;
    // Raised at second 300, cleared at second 500.
    let seen = async |from: &str, to: &str| {
        let answer = run_tool(&context, None, from, to).await;
        let course = answer.outliers.into_iter().next()?.lifecycle;
        Some((course.state, course.cleared_iteration, course.last_seen))
    };
    assert_eq!(seen("now-10m", "now-300s").await, None, "not raised yet");
    let open = seen("now-10m", "now-100s").await.unwrap();
    assert_eq!(open, ("open", None, at(480).to_string()));
    let early = seen("now-10m", "now-299s").await.unwrap();
    assert_eq!(early, ("open", None, at(301).to_string()));
    let cleared = ("cleared", Some(5_000.0), at(480).to_string());
    for (from, to) in [("now-10m", "now-99s"), ("now-110s", "now")] {
        assert_eq!(seen(from, to).await, Some(cleared.clone()), "{from} {to}");
    }
    let latest = seen("now-105s", "now-101s").await.unwrap();
    assert_eq!(latest.0, "open", "not cleared by then");
    assert_eq!(seen("now-90s", "now").await, None, "long over");
}

#[tokio::test]
async fn a_condition_lists_the_affected_ranks() {
    let context = context().await;
    let mut hang = uniform();
    hang.finding = Finding::Condition(Condition {
        ranks: vec![Rank::new(1), Rank::new(3)],
        detail: "operation 17 of communicator 1".to_owned(),
        ..Condition::new(ConditionKind::Hang)
    });
    store_incident(&context, hang).await;
    let answer = run_tool(&context, None, "now-10m", "now").await;
    let condition = &answer.conditions[0];
    assert_eq!(
        (condition.kind, &condition.ranks[..]),
        ("hang", &[1, 3][..])
    );
    assert_eq!(condition.detail, "operation 17 of communicator 1");
}

#[tokio::test]
async fn a_missing_rank_prevents_a_quorum() {
    let context = empty();
    context.store.append(batch(0..3, 0..=600)).await.unwrap();
    let quality = run_tool(&context, None, "now-10m", "now")
        .await
        .data_quality;
    assert_eq!((quality.ranks_reporting, quality.ranks_expected), (3, 4));
    assert_eq!(quality.coverage, Some(0.75));
    assert!(!quality.quorum_met);
    assert!(quality.note.unwrap().contains("too few ranks"));
}

#[tokio::test]
async fn an_empty_window_is_not_reported_as_a_healthy_cluster() {
    let quality = run_tool(&context().await, None, "now-50m", "now-40m")
        .await
        .data_quality;
    assert_eq!((quality.coverage, quality.last_event_age_s), (None, None));
    assert!(!quality.quorum_met);
    let note = quality.note.unwrap();
    assert!(
        note.contains("2026-06-01T00:00:00.000Z") && note.contains("window=all"),
        "{note}"
    );
    let empty = empty();
    let note = run_tool(&empty, None, "now-50m", "now-40m")
        .await
        .data_quality
        .note;
    let note = note.unwrap();
    assert!(note.starts_with("no events are stored yet: "), "{note}");
    assert!(note.contains("fleet-agent run --cluster NAME"), "{note}");
}

/// Stores two batches, deletes the first, and returns the note about both.
async fn note_after_deletion(store: &Arc<DuckDbStore>) -> (ToolContext, String) {
    store.append(batch(0..4, 0..=295)).await.unwrap();
    store.append(batch(0..4, 300..=595)).await.unwrap();
    let context = context_over(Arc::<DuckDbStore>::clone(store));
    let covered = run_tool(&context, None, "now-10m", "now").await;
    assert_eq!(covered.data_quality.note, None);
    store.drop_before(at(300)).await;
    let answer = run_tool(&context, None, "now-10m", "now").await;
    (context, answer.data_quality.note.unwrap())
}

#[tokio::test]
async fn a_window_that_starts_before_the_retention_has_a_note() {
    let store = Arc::new(DuckDbStore::scratch());
    let (context, note) = note_after_deletion(&store).await;
    assert!(note.contains("deleted by retention"), "{note}");
    let later = run_tool(&context, None, "now-4m", "now").await;
    assert!(
        !later
            .data_quality
            .note
            .unwrap_or_default()
            .contains("deleted")
    );
}

#[tokio::test]
async fn a_note_about_deleted_events_names_the_lake_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckDbConfig {
        keep_until_copied: true,
        limits: Limits::default().without_retention(),
        ..DuckDbConfig::new(folder.path().join("echo.db"))
    };
    let clock = Arc::new(ManualClock::at(at(600)));
    let store = Arc::new(DuckDbStore::open(&config, clock).unwrap());
    let (context, note) = note_after_deletion(&store).await;
    assert!(note.ends_with("started with --read-only"), "{note}");
    let everything = FindOutlierNodes {
        window: Some("all".parse().unwrap()),
        ..FindOutlierNodes::default()
    };
    let answer = everything.run(&context).await.unwrap();
    let note = answer.data_quality.note.unwrap();
    assert!(note.contains("deleted by retention"), "{note}");
}
