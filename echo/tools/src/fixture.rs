//! Fixture for tests: ten minutes of a job on two nodes, whose rank 2 is late in the second half.

use std::sync::Arc;
use std::time::Duration;

use echo_core::clock::ManualClock;
use echo_core::ids::{CommId, IncidentId, Rank, RankInJob, RoleId};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Condition, ConditionKind, Culprit, DetectorOutput, Finding, Incident,
    IncidentState, LostTime, Severity, Signal,
};
use echo_core::model::event::{
    BatchKey, Block, Event, EventBatch, Origin, Reading, SeqRange, Source, Summary,
};
use echo_core::model::inputs::{Inputs, RankWaiting};
use echo_core::units::{Nanos, Window};
use echo_store::EventStore;
use echo_store::duckdb::DuckDbStore;
use fleet_proto::metric;

use crate::ToolContext;
use crate::query_limit::QueryLimit;
use crate::rates::Rates;

pub mod broken;
mod processes;

pub use processes::{captured_file, process_reports};

/// Instant `seconds` after 2026-06-01T00:00:00Z, the start of the recording.
pub fn at(seconds: i64) -> Nanos {
    Nanos::new(1_780_272_000_000_000_000).offset(seconds * 1_000_000_000)
}

/// Origin of a rank (0 to 3) of the job `llama` in cluster `prod`, two ranks per node.
pub fn origin(rank: u32) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: "prod".parse().unwrap(),
        node: format!("node-{}", rank / 2).parse().unwrap(),
        rank: Some(RankInJob::new(i64::from(rank), Some(4)).unwrap()),
        job: Some("llama".parse().unwrap()),
        gpu_model: Some(Arc::from("NVIDIA H200")),
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

fn period(origin: &Arc<Origin>, seconds: i64) -> Event {
    Event {
        timestamp: at(seconds),
        start: None,
        origin: Arc::clone(origin),
        metric: "fleet.rank.period_ms".parse().unwrap(),
        unit: Arc::from("ms"),
        reading: Reading::Double(100.0),
        block: None,
        attrs: Arc::from(r#"{"fleet.note":"sampled"}"#),
        samples: Vec::new(),
    }
}

/// Batch with an event every five seconds from each rank.
pub fn batch(ranks: std::ops::Range<u32>, seconds: std::ops::RangeInclusive<i64>) -> EventBatch {
    let origins: Vec<Arc<Origin>> = ranks.map(origin).collect();
    let times = seconds.clone().filter(|second| second % 5 == 0);
    EventBatch {
        key: BatchKey::Content(u128::from(seconds.start().unsigned_abs())),
        received: at(*seconds.end()),
        events: times
            .flat_map(|second| origins.iter().map(move |origin| period(origin, second)))
            .collect(),
    }
}

/// Ten iterations that end at `second`, in each of which the host was busy for that long between
/// its synchronisation and its next collective.
pub fn iterations(origin: &Arc<Origin>, second: i64, gap_ms: f64) -> Vec<Event> {
    let first = u64::try_from(second).unwrap() * 10;
    let point = |name: &str, sum| Event {
        timestamp: at(second),
        start: None,
        origin: Arc::clone(origin),
        metric: name.parse().unwrap(),
        unit: Arc::from("ms"),
        reading: Reading::Histogram(Summary {
            count: 10,
            sum,
            min: None,
            max: None,
        }),
        block: Some(Block {
            comm: CommId::new(1),
            op: None,
            seqs: SeqRange::new(first, first + 9),
            role: Some(RoleId::new(7)),
            iterations: Some(10.0),
            anchor: None,
            source: Source::Host,
        }),
        attrs: Arc::from("{}"),
        samples: Vec::new(),
    };
    vec![
        point(metric::HOST_GAP, gap_ms * 10.0),
        point(metric::ARRIVAL, 0.0),
    ]
}

fn incident(id: u64, (first, last): (i64, i64), finding: Finding) -> Incident {
    Incident {
        id: IncidentId::new(id),
        cluster: "prod".parse().unwrap(),
        job: Some("llama".parse().unwrap()),
        cohort: Arc::from("llama/36210ed1bd447fe0"),
        finding,
        state: IncidentState::Open,
        first_seen: at(first),
        last_seen: at(last),
        raised_at: at(first + 10),
        first_iteration: 3_000.0,
        raised_iteration: 3_100.0,
        cleared_iteration: None,
        occurrences: 1,
        effect_ratio: 0.11,
        period_ms: 111.0,
        baseline: Baseline::History { period_ms: 100.0 },
        confidence: 0.9,
        reason: "an iteration takes 111.0 ms instead of 100.0 ms".to_owned(),
        cleared_at: None,
        is_provisional: false,
        severity: Severity::Critical,
        stability: 1.0,
        inputs: None,
    }
}

/// Open incident: rank 2 is late from second 290 on.
pub fn culprit() -> Incident {
    let finding = Finding::Culprit(Culprit {
        rank: Rank::new(2),
        node: "node-1".parse().unwrap(),
        gpu_uuid: None,
        class: CauseClass::Host,
        signal: Signal::HostGap,
        lag_ms: 11.0,
        z: 40.0,
        source: Source::Host,
    });
    Incident {
        inputs: Some(Arc::new(inputs())),
        ..incident(0x17, (290, 600), finding)
    }
}

/// Inputs of the judgement of rank 2.
fn inputs() -> Inputs {
    let waiting = |rank, caused: f64| RankWaiting {
        rank: Rank::new(rank),
        caused,
        usual: Some(2.0),
        z: Some(caused / 5.0),
    };
    Inputs {
        center: 4.5,
        sigma: Some(0.25),
        limit: 24.5,
        n_ranks: 4,
        ranks: vec![waiting(2, 105.0), waiting(3, 5.25)],
    }
}

/// Host evidence: rank 2 was preempted three times as long as its peers.
pub fn host_evidence() -> EventBatch {
    let point = |rank: u32, name: &str, per_iteration: f64| Event {
        metric: name.parse().unwrap(),
        reading: Reading::Double(per_iteration * 32.0),
        block: Some(Block {
            comm: CommId::new(1),
            op: None,
            seqs: SeqRange::new(40_000, 40_319),
            role: Some(RoleId::new(0x3621_0ed1_bd44_7fe0)),
            iterations: Some(32.0),
            anchor: None,
            source: Source::Host,
        }),
        ..period(&origin(rank), 400)
    };
    let (preempted, off_cpu) = (metric::PREEMPTED, metric::OFF_CPU);
    EventBatch {
        key: BatchKey::Content(1_000_000),
        received: at(600),
        events: [5.0, 5.25, 14.75, 4.75]
            .into_iter()
            .zip(0..)
            .flat_map(|(ms, rank)| [point(rank, preempted, ms), point(rank, off_cpu, 30.0)])
            .collect(),
    }
}

/// Cleared incident: all ranks were slow from second 100 to 150.
pub fn uniform() -> Incident {
    Incident {
        state: IncidentState::Cleared,
        cleared_iteration: Some(1_500.0),
        cleared_at: Some(at(155)),
        effect_ratio: 0.2,
        ..incident(
            0x99,
            (100, 150),
            Finding::Condition(Condition::new(ConditionKind::UniformSlowdown)),
        )
    }
}

/// Open incident of a node that reports bad health without a rank.
pub fn unhealthy_node() -> Incident {
    let reason = "node node-7 reports health score 0.41, below the threshold 0.88 of its peers";
    let condition = Condition {
        node: Some("node-7".parse().unwrap()),
        detail: reason.to_owned(),
        ..Condition::new(ConditionKind::UnhealthyNode)
    };
    Incident {
        job: None,
        cohort: Arc::from("health/prod"),
        severity: Severity::Critical,
        effect_ratio: 0.0,
        period_ms: 0.0,
        baseline: Baseline::None { period_ms: 0.0 },
        confidence: 0.5,
        reason: reason.to_owned(),
        inputs: None,
        ..incident(0x77, (400, 590), Finding::Condition(condition))
    }
}

/// One second of GPU time lost by a node in the five seconds from `second` on.
pub fn lost(incident: &Incident, node: &str, model: Option<&str>, second: i64) -> LostTime {
    LostTime {
        incident: incident.id,
        cluster: "prod".parse().unwrap(),
        node: node.parse().unwrap(),
        gpu_model: model.map(Arc::from),
        interval: Window::new(at(second), at(second + 5)).unwrap(),
        n_ranks: 2,
        iterations: 45.0,
        lost_gpu_ms: 1_000.0,
        peer_wait_gpu_ms: Some(750.0),
        saved_gpu_ms: 1_000.0,
    }
}

/// Output of the detector: two GPU-minutes lost to rank 2, ten GPU-seconds to the uniform slowdown.
pub fn detector_output() -> DetectorOutput {
    let h200 = Some("NVIDIA H200");
    let (late, slow) = (culprit(), uniform());
    let by_late = (290..600)
        .step_by(5)
        .flat_map(|second| ["node-0", "node-1"].map(|node| lost(&late, node, h200, second)));
    let by_slow = (100..150)
        .step_by(5)
        .map(|second| lost(&slow, "node-0", None, second));
    DetectorOutput {
        lost: by_late.chain(by_slow).collect(),
        incidents: vec![late.clone(), slow.clone()],
        ..DetectorOutput::default()
    }
}

/// Context over a store, with H200 at 3.80 USD, at the end of the recording.
pub fn context_over(store: Arc<dyn EventStore>) -> ToolContext {
    let rates = "rates: [{ gpu_model: H200, rate_class: on_demand, rate: 3.80, currency: USD }]\n\
                 aliases: { NVIDIA H200: H200 }";
    let clock = Arc::new(ManualClock::at(at(600)));
    let mut context = ToolContext::new(store, Rates::parse(rates).unwrap(), clock);
    // On a busy machine, queries of this build take longer than the usual deadline.
    context.limits.deadline = Duration::from_secs(50);
    context
}

/// Context over an empty database.
pub fn empty() -> ToolContext {
    context_over(Arc::new(DuckDbStore::scratch()))
}

/// Same context, in which the culprit has no healthy past.
pub async fn context_without_past() -> ToolContext {
    let context = context().await;
    let incident = Incident {
        baseline: Baseline::None { period_ms: 111.0 },
        ..culprit()
    };
    let output = DetectorOutput {
        incidents: vec![incident],
        ..DetectorOutput::default()
    };
    context.store.store_verdicts(output).await.unwrap();
    context
}

/// Context with the whole recording.
pub async fn context() -> ToolContext {
    let context = empty();
    context.store.append(batch(0..4, 0..=600)).await.unwrap();
    context
        .store
        .store_verdicts(detector_output())
        .await
        .unwrap();
    context
}

/// Query limit whose only permit is never released.
pub async fn exhausted_query_limit() -> QueryLimit {
    let limit = QueryLimit::with_max_wait(1, Duration::ZERO);
    limit.acquire().await.unwrap().forget();
    limit
}
