//! Simulated agents against a collector over real connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::Parser;
use fleet_agent::config::{Cli, Command, SimulateArgs};
use fleet_agent::simulate::summary::Summary;
use fleet_agent::simulate::{SimulateError, simulate};
use fleet_agent_export::otlp::Otlp;
use fleet_proto::{attribute, metric};
use indicatif::ProgressBar;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;

use crate::collector::{Collector, Key, Logs, serve};

/// 64 nodes of one rank each, which send as fast as possible.
const NODES: &str = "--nodes 64 --ranks-per-node 1 --step 500ms --duration 40s";

fn args(flags: &str) -> SimulateArgs {
    let fixed = "fleet-agent simulate --endpoint none --cluster c --interval 5s --speed max";
    match Cli::parse_from(fixed.split(' ').chain(flags.split(' '))).command {
        Command::Simulate(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn run(collector: &Collector, flags: &str) -> (Summary, Result<(), SimulateError>) {
    let args = args(flags);
    let layout = args.layout().unwrap();
    serve(collector, async |endpoint: String| {
        let mut instance = 0;
        let exporter = |_: &str, connections: &Arc<AtomicU64>| {
            instance += 1;
            Otlp::with_counter(&endpoint, instance, connections).unwrap()
        };
        let forever = std::future::pending();
        simulate(&args, layout, exporter, forever, &ProgressBar::hidden()).await
    })
}

/// Point as received by the collector.
#[derive(Debug, Clone)]
struct ReceivedPoint {
    rank: i64,
    metric: String,
    comm: String,
    start_ns: u64,
    seq_last: i64,
    value: f64,
    count: u32,
}

fn int(attributes: &[KeyValue], key: &str) -> i64 {
    match value(attributes, key) {
        Any::IntValue(value) => value,
        other => panic!("{key}: {other:?}"),
    }
}

fn value(attributes: &[KeyValue], key: &str) -> Any {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    found.unwrap().value.clone().unwrap().value.unwrap()
}

fn number(value: Option<number_data_point::Value>) -> f64 {
    match value.unwrap() {
        number_data_point::Value::AsDouble(value) => value,
        number_data_point::Value::AsInt(value) => f64::from(u32::try_from(value).unwrap()),
    }
}

fn points(collector: &Collector) -> Vec<ReceivedPoint> {
    let stored = collector.stored.lock().unwrap().clone();
    let mut points = Vec::new();
    for resource in stored
        .values()
        .flat_map(|request| &request.resource_metrics)
    {
        let rank = int(
            &resource.resource.as_ref().unwrap().attributes,
            attribute::FLEET_RANK,
        );
        for metric in resource
            .scope_metrics
            .iter()
            .flat_map(|scope| &scope.metrics)
        {
            let mut got = |attributes: &[KeyValue], start_ns, value, count| {
                let Any::StringValue(comm) = self::value(attributes, attribute::COMM_ID) else {
                    panic!("{attributes:?}");
                };
                points.push(ReceivedPoint {
                    rank,
                    metric: metric.name.clone(),
                    comm,
                    start_ns,
                    seq_last: int(attributes, attribute::SEQ_LAST),
                    value,
                    count,
                });
            };
            match metric.data.as_ref().unwrap() {
                Data::Histogram(histogram) => histogram.data_points.iter().for_each(|point| {
                    let start_ns = point.start_time_unix_nano;
                    let count = u32::try_from(point.count).unwrap();
                    got(&point.attributes, start_ns, point.sum.unwrap(), count);
                }),
                Data::Gauge(gauge) => gauge.data_points.iter().for_each(|point| {
                    let start_ns = point.start_time_unix_nano;
                    got(&point.attributes, start_ns, number(point.value), 1);
                }),
                Data::Sum(sum) => sum.data_points.iter().for_each(|point| {
                    let start_ns = point.start_time_unix_nano;
                    got(&point.attributes, start_ns, number(point.value), 1);
                }),
                other => panic!("{other:?}"),
            }
        }
    }
    points
}

/// Returns the mean of a metric's samples by rank, over the blocks from operation `from` to before
/// `until`.
fn means(points: &[ReceivedPoint], metric: &str, from: i64, until: i64) -> BTreeMap<i64, f64> {
    let mut sums: BTreeMap<i64, (f64, u32)> = BTreeMap::new();
    let of_metric = points.iter().filter(|point| point.metric == metric);
    for point in of_metric.filter(|point| (from..until).contains(&point.seq_last)) {
        let sum = sums.entry(point.rank).or_default();
        *sum = (sum.0 + point.value, sum.1 + point.count);
    }
    let mean = |(rank, (sum, count)): (i64, (f64, u32))| (rank, sum / f64::from(count));
    sums.into_iter().map(mean).collect()
}

#[test]
fn every_point_of_64_nodes_arrives_exactly_once_whatever_the_collector_refuses() {
    let collector = Collector {
        refuses: true,
        ..Collector::default()
    };
    let (summary, result) = run(&collector, NODES);
    assert!(result.is_ok(), "{result:?}");
    assert_eq!((summary.agents, summary.ranks), (64, 64));
    let n_points = points(&collector).len() as u64;
    assert!(n_points > 500, "{n_points}");
    assert_eq!(summary.points_created, n_points);
    assert_eq!(summary.delivery.points_sent, n_points);
    assert_eq!((summary.points_lost(), summary.reconnects), (0, 0));
    assert!(summary.delivery.retries > 0 && summary.acks.is_some());
    let by_code: u64 = summary.failures.values().sum();
    assert_eq!(by_code, summary.delivery.retries);
    // Every batch number of every agent was stored, as points or as verdicts.
    let mut numbers: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let keys: Vec<Key> = collector.stored.lock().unwrap().keys().cloned().collect();
    let of_logs: Vec<Key> = collector
        .stored_logs
        .lock()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    for (instance, number) in keys.iter().chain(&of_logs) {
        let own = numbers.entry(instance.clone()).or_default();
        own.push(number.parse().unwrap());
    }
    assert_eq!(numbers.len(), 64);
    for mut own in numbers.into_values() {
        own.sort_unstable();
        assert_eq!(own, (1..=own.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_late_host_shows_in_its_gap_its_peers_waits_and_all_periods() {
    let collector = Collector::default();
    let fault = "--noise 0.1% --fault host:rank=17,after=30s,severity=40%";
    let flags = format!("{NODES} {fault}").replace("40s", "55s");
    let (_, result) = run(&collector, &flags);
    assert!(result.is_ok(), "{result:?}");
    let points = points(&collector);
    // The busiest communicator has four operations per step; the fault begins with the 60th step
    // or, because the last of 64 ranks is slightly late in every step, one or two before.
    let (before, after) = ((0, 4 * 57), (4 * 68, i64::MAX));
    let mean = |metric, (from, until)| means(&points, metric, from, until);
    let (gaps, slow_gaps) = (
        mean(metric::HOST_GAP, before),
        mean(metric::HOST_GAP, after),
    );
    let (waits, slow_waits) = (mean(metric::BLOCKED, before), mean(metric::BLOCKED, after));
    let periods = mean(metric::PERIOD, after);
    assert_eq!((gaps.len(), slow_gaps.len()), (64, 64));
    for rank in 0..64 {
        let expected = if rank == 17 { 200.0 } else { 0.0 };
        let longer = slow_gaps[&rank] - gaps[&rank];
        assert!((longer - expected).abs() < 5.0, "{rank}: {longer}");
        let waited = slow_waits[&rank] - waits[&rank];
        assert!(
            (waited - (200.0 - expected)).abs() < 5.0,
            "{rank}: {waited}"
        );
        assert!(
            (690.0..730.0).contains(&periods[&rank]),
            "{rank}: {}",
            periods[&rank]
        );
    }
}

/// Sixteen ranks in four stages of two replicas.
const PIPELINE: &str = "--nodes 8 --ranks-per-node 2 --mesh 2x4x2 --step 500ms --duration 30s";

#[test]
fn blocks_of_all_ranks_cover_the_same_operations() {
    let collector = Collector::default();
    let (summary, _) = run(&collector, PIPELINE);
    assert!(summary.blocks > 0);
    let points = points(&collector);
    let arrivals = points
        .iter()
        .filter(|point| point.metric == metric::ARRIVAL);
    let mut cuts: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for point in arrivals {
        cuts.entry(point.rank).or_default().push(point.seq_last);
    }
    assert_eq!(cuts.len(), 16);
    // Agents poll at different moments, so the last block of the run can be closed on some ranks
    // only.
    let n_common = cuts.values().map(Vec::len).min().unwrap();
    assert!(n_common >= 5, "{cuts:?}");
    assert!(
        cuts.values()
            .all(|own| own[..n_common] == cuts[&0][..n_common])
    );
}

#[test]
fn a_rank_that_hangs_stays_one_step_behind_and_no_further_block_ends() {
    let collector = Collector::default();
    let (_, result) = run(
        &collector,
        &format!("{PIPELINE} --fault hang:rank=5,after=20s"),
    );
    assert!(result.is_ok(), "{result:?}");
    let mut issued: BTreeMap<(i64, &str), f64> = BTreeMap::new();
    let points = points(&collector);
    for point in points.iter().filter(|point| point.metric == metric::ISSUED) {
        let last = issued.entry((point.rank, &point.comm)).or_default();
        *last = last.max(point.value);
    }
    let all_issued = |rank| -> f64 {
        let own = issued.iter().filter(|((of, _), _)| *of == rank);
        own.map(|(_, last)| last).sum()
    };
    // Eight, four and one operations of the step that it never began.
    let short = all_issued(4) - all_issued(5);
    assert!((short - 13.0).abs() < 1e-9, "{short}");
    let peers = (0..16).filter(|rank| *rank != 5);
    let counts: BTreeSet<u64> = peers.map(|rank| all_issued(rank).to_bits()).collect();
    assert_eq!(counts.len(), 1, "{counts:?}");
    let blocks = points
        .iter()
        .filter(|point| point.metric == metric::ARRIVAL);
    let last_ns = blocks.map(|point| point.start_ns).max().unwrap();
    let first_ns = points.iter().map(|point| point.start_ns).min().unwrap();
    assert!(Duration::from_nanos(last_ns - first_ns) < Duration::from_secs(21));
}

#[test]
fn agents_of_one_node_share_its_ranks() {
    let collector = Collector::default();
    let (summary, result) = run(
        &collector,
        &format!("{PIPELINE} --connections-per-node 2 --burst"),
    );
    assert!(result.is_ok(), "{result:?}");
    assert_eq!(summary.agents, 16);
    let stored = collector.stored.lock().unwrap().clone();
    let mut ranks: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
    for ((instance, _), request) in &stored {
        for resource in &request.resource_metrics {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let rank = int(attributes, attribute::FLEET_RANK);
            ranks.entry(instance).or_default().insert(rank);
        }
    }
    assert_eq!(ranks.len(), 16);
    assert!(ranks.values().all(|own| own.len() == 1));
}

#[test]
fn rejected_points_are_lost_and_the_error_has_their_number_and_reason() {
    let collector = Collector {
        rejects: true,
        ..Collector::default()
    };
    let (summary, result) = run(&collector, "--nodes 2 --duration 40s");
    let rejected = summary.delivery.points_rejected;
    assert!(rejected > 0 && summary.points_lost() == rejected);
    let delivery = &summary.delivery;
    assert_eq!(delivery.batches_rejected, delivery.batches_acked);
    let message = result.unwrap_err().to_string();
    let expected = format!("{rejected} points were lost or refused (point without a node)");
    assert!(message.contains(&expected), "{message}");
}

/// A rank late enough to raise a self-verdict before the collector sends a policy.
const WITH_VERDICTS: &str = "--nodes 2 --ranks-per-node 2 --step 500ms --duration 120s --noise 0.1% \
                       --fault host:rank=1,after=60s,severity=60%";

#[test]
fn rejected_verdicts_are_counted_and_in_the_error() {
    let collector = Collector {
        logs: Logs::Rejects,
        ..Collector::default()
    };
    let (summary, result) = run(&collector, WITH_VERDICTS);
    let verdicts = &summary.delivery.verdicts;
    assert!(verdicts.rejected > 0, "{verdicts:?}");
    assert_eq!(summary.points_lost(), 0);
    assert_eq!(summary.verdicts_lost(), verdicts.rejected);
    let message = result.unwrap_err().to_string();
    let expected = format!(
        "{} verdicts were lost or refused (not ours)",
        verdicts.rejected
    );
    assert!(message.contains(&expected), "{message}");
}

#[test]
fn verdicts_that_the_collector_does_not_accept_are_lost() {
    let collector = Collector {
        logs: Logs::Unknown,
        ..Collector::default()
    };
    let (summary, result) = run(&collector, WITH_VERDICTS);
    let dropped = summary.delivery.verdicts.dropped;
    assert!(dropped > 0 && summary.verdicts_lost() == dropped);
    let message = result.unwrap_err().to_string();
    assert!(message.contains("Unimplemented"), "{message}");
}
