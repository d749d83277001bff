//! Sample events and detector output for store tests: every optional field is set in some of them
//! and absent in others.

use std::sync::Arc;

use echo_core::ids::{CommId, IncidentId, Rank, RankInJob, RoleId};
use echo_core::model::detector_output::{
    Baseline, CauseClass, Culprit, DetectorOutput, Finding, Incident, IncidentState, LostTime,
    PolicyRecord, Severity, Signal,
};
use echo_core::model::event::{
    Anchor, BatchKey, Block, Event, EventBatch, OpSample, Origin, Reading, SeqRange, Source,
    Summary,
};
use echo_core::model::inputs::{Inputs, RankWaiting};
use echo_core::units::{Nanos, Window};

use crate::EventQuery;

/// 2025-11-21, the origin of the times below.
pub(crate) const START: i64 = 1_763_683_200_000_000_000;

/// The instant `millis` after [`START`].
pub(crate) fn at(millis: i64) -> Nanos {
    Nanos::new(START + millis * 1_000_000)
}

/// Window between two instants after [`START`].
pub(crate) fn window(from_millis: i64, to_millis: i64) -> Window {
    Window::new(at(from_millis), at(to_millis)).unwrap()
}

/// Origin with every attribute set.
pub(crate) fn origin(cluster: &str, node: &str, rank: i64) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: cluster.parse().unwrap(),
        node: node.parse().unwrap(),
        rank: Some(RankInJob::new(rank, Some(64)).unwrap()),
        job: Some("llama".parse().unwrap()),
        gpu_model: Some(Arc::from("H200")),
        gpu_uuid: Some(Arc::from(format!("GPU-{node}-{rank}"))),
        namespace: Some(Arc::from("training")),
        pod: Some(Arc::from(format!("llama-{rank}"))),
    })
}

/// Origin of a node without optional attributes.
pub(crate) fn bare_origin(cluster: &str, node: &str) -> Arc<Origin> {
    Arc::new(Origin {
        cluster: cluster.parse().unwrap(),
        node: node.parse().unwrap(),
        rank: None,
        job: None,
        gpu_model: None,
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

/// Histogram of a block of collectives with every field set.
pub(crate) fn wait(origin: &Arc<Origin>, millis: i64) -> Event {
    Event {
        timestamp: at(millis),
        start: Some(at(millis - 5)),
        origin: Arc::clone(origin),
        metric: "nccl.collective.wait_ms".parse().unwrap(),
        unit: Arc::from("ms"),
        reading: Reading::Histogram(Summary {
            count: 32,
            sum: 176.5,
            min: Some(0.25),
            max: Some(11.75),
        }),
        block: Some(Block {
            comm: CommId::new(0x0621_0ed1_bd44_7fe0),
            op: Some("AllReduce".parse().unwrap()),
            seqs: SeqRange::new(64, 95),
            role: Some(RoleId::new(u64::MAX)),
            iterations: Some(1.5),
            anchor: Some(Anchor {
                seq: 63,
                offset_ms: -0.125,
            }),
            source: Source::Host,
        }),
        attrs: Arc::from(r#"{"fleet.note":"late","note":"Zürich"}"#),
        samples: vec![
            OpSample {
                seq: 70,
                value: 11.75,
                timestamp: at(millis - 3),
            },
            OpSample {
                seq: 66,
                value: 0.25,
                timestamp: at(millis - 4),
            },
        ],
    }
}

/// The same wait measured by a GPU.
pub(crate) fn device_wait(origin: &Arc<Origin>, millis: i64) -> Event {
    let mut event = wait(origin, millis);
    if let Some(block) = &mut event.block {
        block.source = Source::Device;
    }
    event
}

/// Gauge with only the required fields set.
pub(crate) fn gauge(origin: &Arc<Origin>, metric: &str, millis: i64, reading: Reading) -> Event {
    Event {
        timestamp: at(millis),
        start: None,
        origin: Arc::clone(origin),
        metric: metric.parse().unwrap(),
        unit: Arc::from(""),
        reading,
        block: None,
        attrs: Arc::from("{}"),
        samples: Vec::new(),
    }
}

/// Block with only its communicator set.
pub(crate) fn sparse_block(origin: &Arc<Origin>, millis: i64) -> Event {
    Event {
        reading: Reading::Histogram(Summary {
            count: 0,
            sum: 0.0,
            min: None,
            max: None,
        }),
        block: Some(Block {
            comm: CommId::new(0),
            op: None,
            seqs: None,
            role: None,
            iterations: None,
            anchor: None,
            source: Source::Host,
        }),
        ..gauge(origin, "nccl.collective.wait_ms", millis, Reading::Int(0))
    }
}

/// Batch of the agent `agent-1`.
pub(crate) fn batch(number: u64, events: Vec<Event>) -> EventBatch {
    EventBatch {
        key: BatchKey::Numbered {
            agent: "agent-1".parse().unwrap(),
            number,
        },
        received: at(60_000),
        events,
    }
}

/// Query without filters for events between two instants after [`START`].
pub(crate) fn query(from_millis: i64, to_millis: i64) -> EventQuery {
    EventQuery {
        window: window(from_millis, to_millis),
        cluster: None,
        node: None,
        rank: None,
        op: None,
        metric: None,
        limit: 1_000,
        cursor: None,
    }
}

/// Open incident about a rank with every field but the end set.
pub(crate) fn incident(id: u64, cluster: &str, first: i64, last: i64) -> Incident {
    Incident {
        id: IncidentId::new(id),
        cluster: cluster.parse().unwrap(),
        job: Some("llama".parse().unwrap()),
        cohort: Arc::from("llama/36210ed1bd447fe0"),
        finding: Finding::Culprit(Culprit {
            rank: Rank::new(17),
            node: "node-2".parse().unwrap(),
            gpu_uuid: Some(Arc::from("GPU-17")),
            class: CauseClass::Host,
            signal: Signal::HostGap,
            lag_ms: 5.25,
            z: 31.0,
            source: Source::Host,
        }),
        state: IncidentState::Open,
        first_seen: at(first),
        last_seen: at(last),
        raised_at: at(last).offset(-1),
        first_iteration: 100.5,
        raised_iteration: 140.0,
        cleared_iteration: None,
        cleared_at: None,
        is_provisional: false,
        severity: Severity::Info,
        stability: 1.0,
        occurrences: 1,
        effect_ratio: 0.31,
        period_ms: 131.0,
        baseline: Baseline::History { period_ms: 100.0 },
        confidence: 0.9,
        reason: "rank 17 is 5.25 ms late".to_owned(),
        inputs: None,
    }
}

/// Inputs with every field set.
pub(crate) fn inputs() -> Inputs {
    let waiting = |rank, caused, usual| RankWaiting {
        rank: Rank::new(rank),
        caused,
        usual,
        z: Some(caused / 4.0),
    };
    Inputs {
        center: 4.75,
        sigma: Some(0.125),
        limit: 24.75,
        n_ranks: 64,
        ranks: vec![waiting(17, 105.25, Some(4.5)), waiting(3, 5.125, None)],
    }
}

/// Lost time of one node between two instants after [`START`].
pub(crate) fn lost(incident: u64, cluster: &str, node: &str, (from, to): (i64, i64)) -> LostTime {
    LostTime {
        incident: IncidentId::new(incident),
        cluster: cluster.parse().unwrap(),
        node: node.parse().unwrap(),
        gpu_model: Some(Arc::from("H200")),
        interval: window(from, to),
        n_ranks: 8,
        iterations: 10.5,
        lost_gpu_ms: 2_480.25,
        peer_wait_gpu_ms: Some(2_000.5),
        saved_gpu_ms: 1_240.125,
    }
}

/// Policy of the cluster.
pub(crate) fn policy(cluster: &str, version: u64) -> PolicyRecord {
    PolicyRecord {
        cluster: cluster.parse().unwrap(),
        version,
        computed_at: at(0),
        encoded: vec![0, 159, 146, 150],
    }
}

/// Detector output with incidents only.
pub(crate) fn incidents(incidents: impl IntoIterator<Item = Incident>) -> DetectorOutput {
    DetectorOutput {
        incidents: incidents.into_iter().collect(),
        ..DetectorOutput::default()
    }
}

/// Detector output with lost time only.
pub(crate) fn losses(lost: impl IntoIterator<Item = LostTime>) -> DetectorOutput {
    DetectorOutput {
        lost: lost.into_iter().collect(),
        ..DetectorOutput::default()
    }
}

/// Host evidence with the blocks of the sample events: operations 64 to 95 of role `ff...`, 1.5
/// iterations.
pub(crate) fn evidence(origin: &Arc<Origin>, metric: &str, millis: i64, reading: Reading) -> Event {
    Event {
        metric: metric.parse().unwrap(),
        reading,
        samples: Vec::new(),
        ..wait(origin, millis)
    }
}

/// Moves the block of an event to other operations.
pub(crate) fn with_seqs(mut event: Event, first: u64, last: u64) -> Event {
    if let Some(block) = &mut event.block {
        block.seqs = SeqRange::new(first, last);
    }
    event
}
