use std::collections::BTreeMap;
use std::sync::Arc;

use echo_core::ids::IncidentId;
use echo_core::model::detector_output::{DetectorOutput, Incident, LostTime};
use echo_core::model::event::{BatchKey, EventBatch, Origin};
use echo_core::units::{GpuTime, Window};
use echo_store::{Activity, Coverage};
use proptest::prelude::{Strategy, prop_assert_eq, proptest};
use rust_decimal::Decimal;

use super::Chargeback;
use crate::ToolContext;
use crate::fixture::{at, batch, context, culprit, empty, lost, origin};
use crate::get_cost::GetCost;
use crate::get_cost::answer::{Cost, JobCost};
use crate::get_cost::bill::Bill;
use crate::quality::Presence;
use crate::rates::Rates;
use crate::tool::Tool;

/// Rank, its job and its namespace.
type RankLabels<'a> = (u32, Option<&'a str>, Option<&'a str>);

/// Origin of a rank with another job and namespace.
fn labelled((rank, job, namespace): RankLabels<'_>) -> Arc<Origin> {
    Arc::new(Origin {
        job: job.map(|job| job.parse().unwrap()),
        namespace: namespace.map(Arc::from),
        ..(*origin(rank)).clone()
    })
}

fn incident(id: u64, job: Option<&str>) -> Incident {
    Incident {
        id: IncidentId::new(id),
        job: job.map(|job| job.parse().unwrap()),
        ..culprit()
    }
}

/// Context in which ranks report from other jobs and namespaces.
async fn context_of(ranks: &[RankLabels<'_>], output: DetectorOutput) -> ToolContext {
    let context = empty();
    for (number, rank) in (0..).zip(ranks) {
        let events = batch(rank.0..rank.0 + 1, 0..=600).events.into_iter();
        let labelled_events = events.map(|mut event| {
            event.origin = labelled(*rank);
            event
        });
        let events = EventBatch {
            key: BatchKey::Content(number),
            received: at(600),
            events: labelled_events.collect(),
        };
        context.store.append(events).await.unwrap();
    }
    context.store.store_verdicts(output).await.unwrap();
    context
}

async fn answer(context: &ToolContext, limit: Option<usize>) -> Cost {
    let tool = GetCost {
        limit,
        ..GetCost::default()
    };
    tool.run(context).await.unwrap()
}

fn names(rows: &[JobCost]) -> Vec<(Option<&str>, Option<&str>)> {
    rows.iter()
        .map(|row| (row.job.as_deref(), row.namespace.as_deref()))
        .collect()
}

/// Losses of an incident on nodes, in GPU-seconds.
fn losses(incident: &Incident, nodes: &[(&str, f64)]) -> Vec<LostTime> {
    let of_node = |(node, seconds): &(&str, f64)| LostTime {
        lost_gpu_ms: seconds * 1_000.0,
        ..lost(incident, node, Some("NVIDIA H200"), 400)
    };
    nodes.iter().map(of_node).collect()
}

/// Losses of 3 GPU-seconds of the job `llama` on node-0, and of 5 of `bert` on node-1.
fn two_jobs() -> DetectorOutput {
    let (llama, bert) = (incident(1, Some("llama")), incident(2, Some("bert")));
    let lost = [
        losses(&llama, &[("node-0", 3.0)]),
        losses(&bert, &[("node-1", 5.0)]),
    ];
    DetectorOutput {
        lost: lost.concat(),
        incidents: vec![llama, bert],
        ..DetectorOutput::default()
    }
}

#[tokio::test]
async fn lost_time_is_charged_to_the_job_of_its_incident_and_the_namespace_of_its_ranks() {
    let ranks = [
        (0, Some("llama"), Some("research")),
        (2, Some("bert"), Some("search")),
    ];
    let answer = answer(&context_of(&ranks, two_jobs()).await, None).await;
    let expected = [
        (Some("bert"), Some("search")),
        (Some("llama"), Some("research")),
    ];
    assert_eq!(names(&answer.by_job), expected);
    assert_eq!(answer.by_job[0].cluster, "prod");
    assert_eq!(answer.by_job[0].amount, answer.by_node[0].amount);
    assert!(!answer.truncated);
}

#[tokio::test]
async fn of_one_job_only_what_its_ranks_used_and_lost_is_counted() {
    let ranks = [(0, Some("llama"), None), (2, Some("bert"), None)];
    let context = context_of(&ranks, two_jobs()).await;
    let of_job = async |job: &str| {
        let tool = GetCost {
            job: Some(job.to_owned()),
            ..GetCost::default()
        };
        tool.run(&context).await
    };
    let (all, llama) = (answer(&context, None).await, of_job("llama").await.unwrap());
    let bert = of_job("bert").await.unwrap();
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(llama.lost_gpu_hours, 3.0 / 3600.0));
    assert!(near(bert.lost_gpu_hours, 5.0 / 3600.0));
    assert!(near(
        llama.lost_gpu_hours + bert.lost_gpu_hours,
        all.lost_gpu_hours
    ));
    assert!(near(
        llama.allocated_gpu_hours,
        all.allocated_gpu_hours / 2.0
    ));
    assert_eq!(llama.contributors.len(), 1);
    assert_eq!(names(&llama.by_job), [(Some("llama"), None)]);
    let unknown = of_job("other").await.unwrap_err().to_string();
    assert!(unknown.contains("of job bert, llama"), "{unknown}");
    assert_eq!(llama.job.as_deref(), Some("llama"));
    assert_eq!(
        (
            llama.data_quality.ranks_reporting,
            all.data_quality.ranks_reporting
        ),
        (1, 2)
    );
}

#[tokio::test]
async fn jobs_of_one_name_in_two_namespaces_are_charged_separately() {
    let train = incident(1, Some("train"));
    let output = DetectorOutput {
        lost: losses(&train, &[("node-0", 5.0), ("node-1", 3.0)]),
        incidents: vec![train],
        ..DetectorOutput::default()
    };
    let ranks = [
        (0, Some("train"), Some("research")),
        (2, Some("train"), Some("search")),
    ];
    let answer = answer(&context_of(&ranks, output).await, None).await;
    let expected = [
        (Some("train"), Some("research")),
        (Some("train"), Some("search")),
    ];
    assert_eq!(names(&answer.by_job), expected);
}

#[tokio::test]
async fn a_node_that_reports_no_namespace_has_that_of_the_job_on_other_nodes() {
    let train = incident(1, Some("train"));
    let output = DetectorOutput {
        lost: losses(&train, &[("node-0", 5.0), ("node-1", 3.0)]),
        incidents: vec![train],
        ..DetectorOutput::default()
    };
    let ranks = [
        (0, Some("train"), Some("research")),
        (2, Some("train"), None),
    ];
    let answer = answer(&context_of(&ranks, output).await, None).await;
    assert_eq!(names(&answer.by_job), [(Some("train"), Some("research"))]);
}

#[tokio::test]
async fn a_namespace_that_is_not_unique_on_a_node_is_unknown() {
    let train = incident(1, Some("train"));
    let output = DetectorOutput {
        lost: losses(&train, &[("node-0", 5.0)]),
        incidents: vec![train],
        ..DetectorOutput::default()
    };
    let ranks = [
        (0, Some("train"), Some("research")),
        (1, Some("train"), Some("search")),
    ];
    let answer = answer(&context_of(&ranks, output).await, None).await;
    assert_eq!(names(&answer.by_job), [(Some("train"), None)]);
}

#[tokio::test]
async fn a_loss_without_a_job_has_the_namespace_of_the_ranks_without_a_job_on_its_node() {
    let unnamed = incident(1, None);
    let output = DetectorOutput {
        lost: losses(&unnamed, &[("node-0", 5.0), ("node-1", 3.0)]),
        incidents: vec![unnamed],
        ..DetectorOutput::default()
    };
    let ranks = [(0, None, Some("research")), (2, Some("bert"), Some("b"))];
    let answer = answer(&context_of(&ranks, output).await, None).await;
    assert_eq!(
        names(&answer.by_job),
        [(None, Some("research")), (None, None)]
    );
}

#[tokio::test]
async fn the_namespace_of_an_agent_is_not_that_of_a_job() {
    let unnamed = incident(1, None);
    let output = DetectorOutput {
        lost: losses(&unnamed, &[("node-0", 5.0)]),
        incidents: vec![unnamed],
        ..DetectorOutput::default()
    };
    let context = context_of(&[(1, None, None)], output).await;
    let mut of_agent = batch(0..1, 0..=600);
    of_agent.key = BatchKey::Content(17);
    for event in &mut of_agent.events {
        event.origin = Arc::new(Origin {
            rank: None,
            ..(*labelled((0, None, Some("monitoring")))).clone()
        });
    }
    context.store.append(of_agent).await.unwrap();
    let answer = answer(&context, None).await;
    assert_eq!(names(&answer.by_job), [(None, None)]);
}

#[tokio::test]
async fn jobs_beyond_the_limit_truncate_the_answer() {
    let incidents: Vec<Incident> = (1..=3_u32)
        .map(|id| incident(u64::from(id), Some(&format!("job-{id}"))))
        .collect();
    let output = DetectorOutput {
        lost: incidents
            .iter()
            .zip([1.0, 2.0, 3.0])
            .flat_map(|(one, seconds)| losses(one, &[("node-0", seconds)]))
            .collect(),
        incidents,
        ..DetectorOutput::default()
    };
    let context = context_of(&[(0, Some("job-1"), None)], output).await;
    let shortened = answer(&context, Some(2)).await;
    let expected = [(Some("job-3"), None), (Some("job-2"), None)];
    assert_eq!(names(&shortened.by_job), expected);
    assert!(shortened.truncated);
    let complete = answer(&context, Some(3)).await;
    assert_eq!((complete.by_job.len(), complete.truncated), (3, false));
}

#[tokio::test]
async fn the_rows_of_jobs_add_up_to_those_of_nodes() {
    let answer = answer(&context().await, None).await;
    let hours_of_jobs: f64 = answer.by_job.iter().map(|r| r.amount.lost_gpu_hours).sum();
    let hours_of_nodes: f64 = answer.by_node.iter().map(|r| r.amount.lost_gpu_hours).sum();
    assert!((hours_of_jobs - hours_of_nodes).abs() < 1e-12);
    // One row with a price, one without.
    assert_eq!(names(&answer.by_job), [(Some("llama"), None); 2]);
}

fn rates() -> Rates {
    let text = "
rates:
  - { gpu_model: H200, rate_class: on_demand, rate: 3.333333, currency: USD }
  - { gpu_model: H100, rate_class: reserved, rate: 2.1, currency: EUR }
";
    Rates::parse(text).unwrap()
}

proptest! {
    #[test]
    fn jobs_add_up_to_nodes_to_the_microsecond(
        rows in proptest::collection::vec(
            (0..5_u64, 0..3_usize, 0..4_usize, 0..24_i64, -1e6..1e8_f64),
            0..80,
        ),
        jobs in proptest::collection::btree_map(
            0..5_u64,
            (0..3_usize).prop_map(|job| [None, Some("llama"), Some("bert")][job]),
            0..5,
        ),
        ranks in proptest::collection::vec((0..4_u32, 0..3_usize, 0..3_usize), 0..12),
    ) {
        let window = Window::new(at(0), at(24 * 3_600)).unwrap();
        let rows: Vec<LostTime> = rows
            .into_iter()
            .map(|(id, node, model, hour, lost_gpu_ms)| LostTime {
                lost_gpu_ms,
                ..lost(
                    &incident(id, None),
                    ["node-0", "node-1", "node-2"][node],
                    [Some("H200"), Some("H100"), Some("Z"), None][model],
                    hour * 3_600,
                )
            })
            .collect();
        // Incidents without an entry are no longer stored.
        let incidents: BTreeMap<IncidentId, Incident> = jobs
            .into_iter()
            .map(|(id, job)| (IncidentId::new(id), incident(id, job)))
            .collect();
        let reports = ranks.into_iter().map(|(rank, job, namespace)| {
            let job = [None, Some("llama"), Some("bert")][job];
            Coverage {
                origin: labelled((rank, job, [None, Some("a"), Some("b")][namespace])),
                first: at(0),
                last: at(600),
                has_host_evidence: false,
                activity: Activity::default(),
            }
        });
        let presence = Presence::from_rows(reports.collect());
        let rates = rates();
        let bill = Bill::new(&rows, window, &rates);
        let chargeback = Chargeback::new(&incidents, &presence);
        let by_job = bill.sum_by(|item| chargeback.charged(&item.loss));
        let by_node = bill.sum_by(|item| item.loss.node.clone());
        for currency in bill.by_currency().into_keys() {
            let of_jobs = by_job.iter().filter(|(key, _)| key.1 == currency).map(|(_, sum)| sum);
            let of_nodes = by_node.iter().filter(|(key, _)| key.1 == currency).map(|(_, sum)| sum);
            prop_assert_eq!(
                of_jobs.clone().map(|sum| sum.time).sum::<GpuTime>(),
                of_nodes.clone().map(|sum| sum.time).sum::<GpuTime>()
            );
            prop_assert_eq!(
                of_jobs.map(|sum| sum.cost).sum::<Decimal>(),
                of_nodes.map(|sum| sum.cost).sum::<Decimal>()
            );
        }
        prop_assert_eq!(chargeback.by_job(&bill).len(), by_job.len());
    }
}
