//! Replays recorded jobs through the agent's own pipeline.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use echo_core::ids::{CommId, RankInJob};
use echo_core::model::event::{
    Anchor, Block, Event, OpSample, Origin, Reading, SeqRange, Source, StoredEvent, Summary,
};
use echo_core::units::Nanos;
use fleet_agent_core::batch::{Batch, Resource};
use fleet_agent_core::event::Event as RecordedEvent;
use fleet_agent_core::host::{Host, Identity, WallClock};
use fleet_agent_core::pipeline::{BlockRule, Ending};
use fleet_agent_core::signal::{Exemplar, Point, Value};
use fleet_agent_sources::recording::Recording;
use fleet_agent_sources::source::EventSource;

use super::delivery::{Delivery, EPOCH};

/// Interval at which an agent closes a batch, nanoseconds of the recording.
const FLUSH_NS: u64 = 1_000_000_000;

/// Target duration of blocks in recordings of steady jobs, nanoseconds.
pub const BLOCK_NS: f64 = 2e8;

/// Reads the recording as deliveries, batch by batch, every rank on a node of its own, in blocks of
/// about `block_ns`.
pub fn read(path: &Path, block_ns: f64) -> anyhow::Result<Vec<Delivery>> {
    let recording = Recording::new(&path.display().to_string(), File::open(path)?)?;
    play(recording, block_ns, |_| true)
}

/// Replays an open recording. The agent sees those events for which `is_seen` is true.
pub fn play(
    mut recording: Recording,
    block_ns: f64,
    mut is_seen: impl FnMut(&RecordedEvent) -> bool,
) -> anyhow::Result<Vec<Delivery>> {
    let processes = recording.processes().to_vec();
    let mut hosts: BTreeMap<u32, Host> = BTreeMap::new();
    let mut deliveries = Vec::new();
    let mut clock = None;
    while let Some(event) = recording.next_event()? {
        if !is_seen(&event) {
            continue;
        }
        let clock = *clock.get_or_insert_with(|| WallClock {
            origin_ns: event.ts_ns(),
            unix_ns: i128::from(EPOCH.value()),
        });
        if hosts.is_empty() {
            hosts.extend(processes.iter().map(|process| {
                let mut host = Host::new(identity(process.rank), FLUSH_NS);
                host.trace(
                    &[*process],
                    clock,
                    BlockRule {
                        target_ns: block_ns,
                        exponent: None,
                    },
                );
                (process.pid, host)
            }));
        }
        for host in hosts.values_mut() {
            let due = [host.on_event(&event), host.tick(event.ts_ns())];
            for batch in due.into_iter().flatten() {
                deliveries.push(delivery(&batch)?);
            }
        }
    }
    for host in hosts.values_mut() {
        if let (Some(batch), _) = host.finish(Ending::Complete) {
            deliveries.push(delivery(&batch)?);
        }
    }
    Ok(deliveries)
}

fn identity(rank: u32) -> Identity {
    Identity {
        cluster: "recording".to_owned(),
        node: format!("node-{rank}"),
        job: None,
        gpu_model: None,
    }
}

/// A batch arrives at the end of its last point.
fn delivery(batch: &Batch) -> anyhow::Result<Delivery> {
    let mut events = Vec::new();
    for resource in &batch.resources {
        let origin = Arc::new(origin(&resource.resource)?);
        let mut points: Vec<&Point> = resource.points.iter().collect();
        // Wire order: by name, then by time.
        points.sort_by_key(|point| point.metric);
        for point in points {
            events.push(event(point, &origin)?);
        }
    }
    let received = events
        .iter()
        .map(|event| event.timestamp)
        .max()
        .unwrap_or(EPOCH);
    let stored = events.into_iter().map(|event| StoredEvent {
        id: 0,
        received,
        event,
    });
    Ok(Delivery {
        step: 0,
        events: stored.collect(),
    })
}

fn origin(resource: &Resource) -> anyhow::Result<Origin> {
    let size = resource.world_size.map(i64::from);
    let rank = resource
        .rank
        .map(|rank| RankInJob::new(rank.into(), size))
        .transpose()?;
    Ok(Origin {
        cluster: resource.cluster.parse()?,
        node: resource.node.parse()?,
        rank,
        job: resource.job.as_deref().map(str::parse).transpose()?,
        gpu_model: None,
        gpu_uuid: None,
        namespace: None,
        pod: None,
    })
}

fn event(point: &Point, origin: &Arc<Origin>) -> anyhow::Result<Event> {
    let (reading, samples, anchor) = match &point.value {
        Value::Gauge(value)
        | Value::Increase(value)
        | Value::Elapsed { ms: value, .. }
        | Value::TaskTime { ms: value, .. } => (Reading::Double(*value), Vec::new(), None),
        Value::Issued { total, .. } => {
            let count = i64::try_from(*total).unwrap_or(i64::MAX);
            (Reading::Int(count), Vec::new(), None)
        }
        Value::Summary {
            summary,
            exemplars,
            anchor,
        } => {
            let samples = exemplars.iter().map(sample).collect();
            (Reading::Histogram(stored(summary)), samples, *anchor)
        }
        Value::Durations { summary, .. } => (Reading::Histogram(stored(summary)), Vec::new(), None),
    };
    let about = &point.block;
    Ok(Event {
        timestamp: instant(point.time_ns),
        start: Some(instant(point.start_ns)),
        origin: Arc::clone(origin),
        metric: point.metric.parse()?,
        unit: Arc::from(""),
        reading,
        block: Some(Block {
            comm: CommId::new(about.comm.to_bits()),
            op: Some(about.op.name().parse()?),
            seqs: SeqRange::new(about.seq_first, about.seq_last),
            role: about
                .role
                .map(|role| role.to_string().parse())
                .transpose()?,
            iterations: about.iterations,
            anchor: anchor.map(|anchor| Anchor {
                seq: anchor.seq,
                offset_ms: anchor.offset_ms,
            }),
            source: match about.source {
                fleet_agent_core::signal::Source::Device => Source::Device,
                fleet_agent_core::signal::Source::Host
                | fleet_agent_core::signal::Source::Ras
                | fleet_agent_core::signal::Source::FlightRecorder => Source::Host,
            },
        }),
        attrs: attrs(about, &point.value),
        samples,
    })
}

fn stored(summary: &fleet_agent_core::signal::Summary) -> Summary {
    Summary {
        count: summary.count,
        sum: summary.sum_ms,
        min: Some(summary.min_ms),
        max: Some(summary.max_ms),
    }
}

/// Attributes without a column of their own.
fn attrs(block: &fleet_agent_core::signal::Block, value: &Value) -> Arc<str> {
    match value {
        Value::Elapsed { mix, .. } => {
            let attrs = serde_json::json!({ fleet_proto::attribute::MIX: mix.to_string() });
            Arc::from(attrs.to_string())
        }
        Value::Issued {
            age_ms,
            waiting_ms,
            is_stopped,
            ..
        } => {
            let attrs = serde_json::json!({
                fleet_proto::attribute::AGE_MS: age_ms,
                fleet_proto::attribute::WAITING_MS: waiting_ms,
                fleet_proto::attribute::STOPPED: is_stopped,
            });
            Arc::from(attrs.to_string())
        }
        Value::Durations { lead, .. } => {
            let mut attrs = serde_json::json!({
                fleet_proto::attribute::COMM_RANK: block.comm_rank,
                fleet_proto::attribute::COMM_SIZE: block.comm_nranks,
            });
            if let (Some(lead), Some(attrs)) = (lead, attrs.as_object_mut()) {
                let numbers = [
                    (fleet_proto::attribute::LEAD_SUM_MS, lead.sum_ms),
                    (fleet_proto::attribute::LEAD_MIN_MS, lead.min_ms),
                ];
                attrs.extend(numbers.map(|(name, ms)| (name.to_owned(), ms.into())));
            }
            Arc::from(attrs.to_string())
        }
        _ => Arc::from("{}"),
    }
}

fn sample(exemplar: &Exemplar) -> OpSample {
    OpSample {
        seq: exemplar.seq,
        value: exemplar.wait_ms,
        timestamp: instant(exemplar.time_ns),
    }
}

fn instant(unix_ns: u64) -> Nanos {
    Nanos::new(i64::try_from(unix_ns).unwrap_or(i64::MAX))
}
