use std::sync::Arc;

use echo_analysis::simulated::device::{Gpu, Gpus};
use echo_analysis::simulated::{Job, Measured, instant};
use echo_core::clock::ManualClock;
use echo_core::error::{Code, Coded};
use echo_core::ids::{CommId, IncidentId, Rank, RoleId};
use echo_core::model::detector_output::{
    Baseline, Condition, ConditionKind, DetectorOutput, Finding, Incident,
};
use echo_core::model::event::{BatchKey, Event, EventBatch, Reading, StoredEvent};
use echo_core::model::inputs::{Inputs, RankWaiting};
use fleet_proto::metric;

use super::{ExplainRank, Explanation};
use crate::tool::Tool;
use crate::{ToolContext, ToolError, fixture};

/// Rank 2 is 8 ms late from block 3 on.
pub(super) fn late(block: u64, rank: u32) -> Measured {
    let is_late = rank == 2 && block >= 3;
    Measured {
        gap_ms: f64::from(rank).mul_add(0.05, if is_late { 12.0 } else { 4.0 }),
        blocked_ms: if is_late { 22.0 } else { 30.0 },
        period_ms: if block >= 3 { 58.0 } else { 50.0 },
        ..Measured::HEALTHY
    }
}

fn batch(events: impl IntoIterator<Item = Event>, number: u128) -> EventBatch {
    EventBatch {
        key: BatchKey::Content(number),
        received: instant(0.0),
        events: events.into_iter().collect(),
    }
}

/// A context with the events, at the end of the simulated job.
pub(super) async fn context_over(events: Vec<StoredEvent>) -> ToolContext {
    let context = fixture::empty();
    let events = events.into_iter().map(|stored| stored.event);
    context.store.append(batch(events, 1)).await.unwrap();
    ToolContext {
        clock: Arc::new(ManualClock::at(instant(1e6))),
        ..context
    }
}

fn request(rank: u32) -> ExplainRank {
    ExplainRank {
        cluster: "test".to_owned(),
        rank,
        job: None,
        from: None,
        to: None,
        window: Some("all".parse().unwrap()),
        plot: None,
    }
}

pub(super) async fn explain(context: &ToolContext, rank: u32) -> Explanation {
    request(rank).run(context).await.unwrap()
}

/// Host evidence of every block of `0..n_blocks`, four iterations each.
fn preempted(job: &[StoredEvent], per_iteration: fn(u32) -> f64) -> EventBatch {
    let arrivals = job
        .iter()
        .filter(|stored| stored.event.metric.as_str() == metric::ARRIVAL);
    let events = arrivals.map(|stored| {
        let rank = stored.event.origin.rank.unwrap().rank().value();
        Event {
            metric: metric::PREEMPTED.parse().unwrap(),
            reading: Reading::Double(per_iteration(rank) * 4.0),
            ..stored.event.clone()
        }
    });
    batch(events, 2)
}

/// Incident that the detector would raise for rank 2, judged on blocks 3 to 5.
pub(super) fn incident() -> Incident {
    let mut incident = fixture::culprit();
    incident.id = IncidentId::new(7);
    incident.cluster = "test".parse().unwrap();
    incident.job = Some("job".parse().unwrap());
    incident.cohort = Arc::from(format!("job/{}", RoleId::new(7)));
    incident.first_seen = instant(600.0);
    incident.raised_at = instant(1_000.0);
    incident.last_seen = instant(1_199.0);
    incident.baseline = Baseline::History { period_ms: 50.0 };
    incident.period_ms = 58.0;
    incident.effect_ratio = 0.16;
    incident.reason = "rank 2 comes 8.0 ms later".to_owned();
    if let Finding::Culprit(culprit) = &mut incident.finding {
        culprit.node = "node-2".parse().unwrap();
        culprit.lag_ms = 8.0;
    }
    incident.inputs = Some(Arc::new(Inputs {
        center: 4.05,
        sigma: Some(0.125),
        limit: 24.05,
        n_ranks: 4,
        ranks: vec![RankWaiting {
            rank: Rank::new(2),
            caused: 138.0,
            usual: Some(4.0),
            z: Some(23.4),
        }],
    }));
    incident
}

pub(super) async fn context_with_incident(incident: Incident) -> ToolContext {
    let events = Job::with_ranks(4).events(6, late);
    let evidence = preempted(&events, |rank| if rank == 2 { 14.7 } else { 5.0 });
    let context = context_over(events).await;
    context.store.append(evidence).await.unwrap();
    let output = DetectorOutput {
        incidents: vec![incident],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    context
}

#[tokio::test]
async fn a_culprit_is_explained_by_its_judgement_its_host_and_its_lags() {
    let context = context_with_incident(incident()).await;
    insta::assert_json_snapshot!(explain(&context, 2).await);
}

#[tokio::test]
async fn a_rank_that_is_held_back_is_not_named() {
    let context = context_with_incident(incident()).await;
    let healthy = explain(&context, 0).await;
    assert_eq!(healthy.incidents, []);
    assert!(
        healthy.summary.contains("No incident names it"),
        "{}",
        healthy.summary
    );
}

/// The job in a hang in which all ranks wait for rank 2.
async fn context_with_hang(is_explained: bool) -> ToolContext {
    let hang = Condition {
        ranks: vec![Rank::new(2)],
        is_explained,
        ..Condition::new(ConditionKind::Hang)
    };
    context_with_incident(Incident {
        finding: Finding::Condition(hang),
        reason: "ranks 0, 1, 3 entered operation 17, rank 2 did not".to_owned(),
        ..incident()
    })
    .await
}

#[tokio::test]
async fn a_hang_names_the_rank_that_keeps_its_job_waiting_with_the_evidence_of_its_host() {
    let answer = explain(&context_with_hang(true).await, 2).await;
    let expected = "It keeps its job waiting since 2026-";
    assert!(answer.summary.contains(expected), "{}", answer.summary);
    assert!(!answer.summary.contains("No incident names it"));
    let basis = answer.evidence_basis.unwrap();
    assert_eq!(basis.incident_id.unwrap(), answer.conditions[0].incident_id);
}

#[tokio::test]
async fn a_rank_that_waits_in_a_hang_is_told_for_which_one() {
    let expected = "It is part of a job that does not progress since 2026-";
    let answer = explain(&context_with_hang(true).await, 1).await;
    assert!(answer.summary.contains(expected), "{}", answer.summary);
    assert!(answer.summary.contains("rank 2 did not"));
    // It does not wait itself, but may have entered the operation.
    let unexplained = explain(&context_with_hang(false).await, 2).await;
    assert!(
        unexplained.summary.contains(expected),
        "{}",
        unexplained.summary
    );
}

#[tokio::test]
async fn without_an_incident_the_evidence_is_about_the_whole_window() {
    let events = Job::with_ranks(4).events(6, |_, _| Measured::HEALTHY);
    let evidence = preempted(&events, |rank| if rank == 1 { 9.0 } else { 5.0 });
    let context = context_over(events).await;
    assert_eq!(explain(&context, 1).await.evidence_basis, None);
    context.store.append(evidence).await.unwrap();
    let answer = explain(&context, 1).await;
    assert_eq!(
        answer.evidence[0].sentence,
        "preempted 9.0 ms per step, peers 5.0"
    );
    let basis = answer.evidence_basis.unwrap();
    assert_eq!(basis.incident_id, None);
    assert!(basis.from < basis.to, "{basis:?}");
    assert_eq!(answer.incidents, [], "evidence raises no incident");
}

#[tokio::test]
async fn a_long_series_is_downsampled_evenly_with_a_note() {
    let context = context_over(Job::with_ranks(3).events(300, late)).await;
    let series = explain(&context, 2).await.lag_series;
    assert_eq!((series.blocks, series.points.len()), (300, 120));
    let firsts: Vec<u64> = series
        .points
        .iter()
        .map(|point| point.seq_first / 40)
        .collect();
    assert_eq!((firsts[0], firsts[1], firsts[119]), (0, 2, 299));
    assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] <= 3));
    assert!(series.note.unwrap().contains("120 of 300 blocks"));
    let late_ones = series.points.iter().skip(2);
    assert!(
        late_ones
            .filter_map(|point| point.lag_ms)
            .all(|lag| lag > 7.9)
    );
}

#[tokio::test]
async fn the_summary_of_a_culprit_counts_how_often_it_was_last() {
    let context = context_over(Job::with_ranks(4).events(20, late)).await;
    let last = explain(&context, 2).await.lag_series.last.unwrap();
    assert_eq!((last.last, last.of, last.ranks), (17, 20, 4));
    assert!(last.probability < 1e-4);
    let sentence = "It was last in 17 of 20 blocks";
    let not_named = explain(&context, 2).await.summary;
    assert!(!not_named.contains(sentence), "{not_named}");
    let output = DetectorOutput {
        incidents: vec![incident()],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    let named = explain(&context, 2).await.summary;
    assert!(named.contains(sentence), "{named}");
    // In the first three blocks rank 3 was a little later than the others.
    let other = explain(&context, 3).await.lag_series.last.unwrap();
    assert_eq!(other.last, 3);
}

#[tokio::test]
async fn a_rank_that_stops_reporting_does_not_delay_the_series() {
    let mut events = Job::with_ranks(4).events(6, late);
    events.retain(|stored| {
        let block = stored.event.block.as_ref().unwrap().seqs.unwrap().last() / 40;
        stored.event.origin.rank.unwrap().rank() != Rank::new(0) || block < 2
    });
    let context = context_over(events).await;
    let series = explain(&context, 2).await.lag_series;
    let ranks: Vec<u64> = series.points.iter().map(|point| point.ranks).collect();
    assert_eq!(ranks, [4, 4, 3, 3, 3, 3]);
    assert_eq!(series.note, None);
    let silent = explain(&context, 0).await.lag_series;
    assert_eq!(silent.points.len(), 2);
}

#[tokio::test]
async fn clock_skew_does_not_change_the_series() {
    let mut skewed = Job::with_ranks(4);
    skewed.clock_skew = |rank| (i64::from(rank) - 2) * 10_000_000_000;
    let lags = async |job: Job| {
        let context = context_over(job.events(6, late)).await;
        let points = explain(&context, 2).await.lag_series.points;
        points.iter().map(|point| point.lag_ms).collect::<Vec<_>>()
    };
    assert_eq!(lags(skewed).await, lags(Job::with_ranks(4)).await);
}

#[tokio::test]
async fn gpu_lags_are_listed_per_communicator_largest_first() {
    // Rank 2 shares communicator 20 with ranks 0 and 4, and 31 with rank 3. It is late only in 31.
    let gpu = |_, rank| Gpu {
        elsewhere_ms: if rank == 2 { 2.5 } else { 3.0 },
        ..Gpu::HEALTHY
    };
    let context = context_over(Gpus::pairs(3).events(50, gpu)).await;
    let summarize = |answer: Explanation| -> Vec<_> {
        let series = answer.lag_series.communicators.into_iter();
        series
            .map(|one| {
                let ranks = one.points[0].ranks;
                let lag_ms = (one.lag_ms * 100.0).round() / 100.0;
                (
                    one.communicator,
                    ranks,
                    one.blocks,
                    one.points.len(),
                    lag_ms,
                )
            })
            .collect()
    };
    let of = |comm: u64| CommId::new(comm).to_string();
    assert_eq!(
        summarize(explain(&context, 2).await),
        [(of(31), 2, 50, 40, 5.0), (of(20), 3, 50, 40, 0.0)]
    );
    let host_only = context_over(Job::with_ranks(4).events(6, late)).await;
    assert_eq!(summarize(explain(&host_only, 2).await), []);
}

#[tokio::test]
async fn a_communicator_that_spans_roles_is_omitted() {
    let mut job = Gpus::pairs(2);
    job.roles = vec![7, 8, 7, 8];
    let context = context_over(job.events(6, |_, _| Gpu::HEALTHY)).await;
    let series = explain(&context, 2).await.lag_series.communicators;
    let shown: Vec<&str> = series.iter().map(|one| one.communicator.as_str()).collect();
    assert_eq!(shown, [CommId::new(20).to_string()]);
}

#[tokio::test]
async fn verdicts_of_its_own_agent_are_listed_latest_first() {
    let events = Job::with_ranks(2).events(3, |_, _| Measured::HEALTHY);
    let verdict = |state: &str, ms: f64| Event {
        timestamp: instant(ms),
        metric: metric::STRAGGLER.parse().unwrap(),
        reading: Reading::Double(7.5),
        attrs: Arc::from(format!(
            r#"{{"fleet.straggler.state":"{state}","fleet.straggler.mode":"policy","fleet.z":9.5}}"#
        )),
        ..events[0].event.clone()
    };
    let verdicts = [verdict("raised", 100.0), verdict("cleared", 300.0)];
    let context = context_over(events).await;
    context.store.append(batch(verdicts, 3)).await.unwrap();
    let verdicts_found: Vec<_> = explain(&context, 0)
        .await
        .self_verdicts
        .into_iter()
        .map(|one| (one.state.unwrap(), one.mode.unwrap(), one.lag_ms, one.z))
        .collect();
    let expected = ["cleared", "raised"]
        .map(|state| (state.to_owned(), "policy".to_owned(), Some(7.5), Some(9.5)));
    assert_eq!(verdicts_found, expected);
    assert_eq!(explain(&context, 1).await.self_verdicts, []);
}

#[tokio::test]
async fn a_rank_of_several_jobs_needs_its_job_named() {
    let mut events = Job::with_ranks(2).events(2, |_, _| Measured::HEALTHY);
    let mut other = events[0].clone();
    let mut origin = other.event.origin.as_ref().clone();
    origin.job = Some("other".parse().unwrap());
    other.event.origin = Arc::new(origin);
    events.push(other);
    let context = context_over(events).await;
    let refused = request(0).run(&context).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "job: rank 0 reported in several jobs; set job to one of: job, other"
    );
    for job in ["job", "other"] {
        let named = ExplainRank {
            job: Some(job.to_owned()),
            ..request(0)
        };
        let who = named.run(&context).await.unwrap().who;
        assert_eq!(who.job.as_deref(), Some(job));
    }
}

#[tokio::test]
async fn a_rank_that_did_not_report_is_an_error_that_lists_those_that_did() {
    let context = context_over(Job::with_ranks(4).events(2, |_, _| Measured::HEALTHY)).await;
    let refused: ToolError = request(4).run(&context).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(
        refused.to_string(),
        "rank 4 did not report in this window; ranks 0 to 3 did, of job job"
    );
}
