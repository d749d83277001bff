use std::collections::BTreeMap;

use fleet_agent_core::event::Op;
use fleet_agent_core::signal::{CommId, Role, Summary};
use fleet_proto::metric;

use super::*;

fn block() -> Block {
    Block {
        comm: CommId::new(0xab),
        comm_rank: 1,
        comm_nranks: 2,
        source: Source::Host,
        op: Op::AllReduce,
        seq_first: 32,
        seq_last: 63,
        iterations: Some(3.2),
        role: Some(Role::new(0xcd)),
    }
}

fn point(metric: &'static str, value: Value) -> Point {
    Point {
        metric,
        start_ns: 1000,
        time_ns: 2000,
        block: block(),
        value,
    }
}

fn process() -> Resource {
    Resource {
        cluster: "lab".to_owned(),
        node: "node-3".to_owned(),
        job: Some("job".to_owned()),
        gpu_model: None,
        gpu_uuid: None,
        pod: None,
        namespace: None,
        rank: Some(3),
        world_size: Some(4),
        pid: 77,
    }
}

fn encoded(points: Vec<Point>) -> ResourceMetrics {
    let resource = process();
    let batch = Batch {
        number: 1,
        resources: vec![ResourcePoints { resource, points }],
        reports: Vec::new(),
        agent_counters: None,
    };
    encode(&batch).resource_metrics.remove(0)
}

fn map(attributes: &[KeyValue]) -> BTreeMap<&str, Any> {
    let value = |pair: &KeyValue| pair.value.clone().and_then(|value| value.value);
    attributes
        .iter()
        .map(|pair| (pair.key.as_str(), value(pair).unwrap()))
        .collect()
}

fn string(value: &str) -> Any {
    Any::StringValue(value.to_owned())
}

#[test]
fn the_resource_names_the_process() {
    let encoded = encoded(vec![point(metric::PERIOD, Value::Gauge(1.0))]);
    let resource = encoded.resource.unwrap();
    let expected = BTreeMap::from([
        ("fleet.cluster.id", string("lab")),
        ("fleet.node.id", string("node-3")),
        ("fleet.job.id", string("job")),
        ("fleet.rank", Any::IntValue(3)),
        ("fleet.world_size", Any::IntValue(4)),
        ("process.pid", Any::IntValue(77)),
        ("service.name", string("fleet-agent")),
    ]);
    assert_eq!(map(&resource.attributes), expected);
}

#[test]
fn gpu_and_pod_are_included_if_known() {
    let placed = Resource {
        gpu_model: Some("H100".to_owned()),
        gpu_uuid: Some("GPU-1".to_owned()),
        pod: Some("bert-worker-1".to_owned()),
        namespace: Some("team".to_owned()),
        ..process()
    };
    let (placed, bare) = (resource(&placed), resource(&process()));
    let (mut placed, bare) = (map(&placed.attributes), map(&bare.attributes));
    placed.retain(|key, _| !bare.contains_key(key));
    let expected = BTreeMap::from([
        ("gpu.model", string("H100")),
        ("gpu.uuid", string("GPU-1")),
        ("k8s.pod.name", string("bert-worker-1")),
        ("k8s.namespace.name", string("team")),
    ]);
    assert_eq!(placed, expected);
}

fn histogram_point(value: Value) -> HistogramDataPoint {
    let metric = encoded(vec![point(metric::ARRIVAL, value)]).scope_metrics[0].metrics[0].clone();
    assert_eq!(
        (metric.name.as_str(), metric.unit.as_str()),
        (metric::ARRIVAL, "ms")
    );
    let Some(Data::Histogram(mut histogram)) = metric.data else {
        panic!()
    };
    assert_eq!(
        histogram.aggregation_temporality(),
        AggregationTemporality::Delta
    );
    histogram.data_points.remove(0)
}

#[test]
fn a_summary_is_a_delta_histogram_without_buckets() {
    let summary = Summary {
        count: 2,
        sum_ms: 5.0,
        min_ms: 1.0,
        max_ms: 4.0,
    };
    let exemplars = vec![Exemplar {
        seq: 40,
        time_ns: 1500,
        wait_ms: 4.0,
    }];
    let point = histogram_point(Value::Summary {
        summary,
        exemplars,
        anchor: None,
    });
    let sample = &point.exemplars[0];
    let seq = BTreeMap::from([("nccl.seq", Any::IntValue(40))]);
    assert_eq!(map(&sample.filtered_attributes), seq);
    assert_eq!(sample.value, Some(exemplar::Value::AsDouble(4.0)));
    assert!(point.bucket_counts.is_empty() && point.explicit_bounds.is_empty());
    assert_eq!(
        (point.start_time_unix_nano, point.time_unix_nano),
        (1000, 2000)
    );
    assert_eq!((point.count, point.sum), (2, Some(5.0)));
    assert_eq!((point.min, point.max), (Some(1.0), Some(4.0)));
}

#[test]
fn a_point_names_its_operations_and_its_anchor() {
    let anchor = Some(Anchor {
        seq: 31,
        offset_ms: 2.5,
    });
    let summary = Summary::default();
    let point = histogram_point(Value::Summary {
        summary,
        exemplars: Vec::new(),
        anchor,
    });
    let expected = BTreeMap::from([
        ("fleet.anchor_offset_ms", Any::DoubleValue(2.5)),
        ("fleet.anchor_seq", Any::IntValue(31)),
        ("fleet.iterations", Any::DoubleValue(3.2)),
        ("fleet.role", string("00000000000000cd")),
        ("fleet.source", string("host")),
        ("nccl.comm_id_hash", string("00000000000000ab")),
        ("nccl.comm_nranks", Any::IntValue(2)),
        ("nccl.comm_rank", Any::IntValue(1)),
        ("nccl.op_type", string("AllReduce")),
        ("nccl.seq_first", Any::IntValue(32)),
        ("nccl.seq_last", Any::IntValue(63)),
    ]);
    assert_eq!(map(&point.attributes), expected);
}

#[test]
fn points_of_one_metric_share_one_message() {
    let points = vec![
        point(metric::PERIOD, Value::Gauge(1.0)),
        point(metric::HOST_GAP, Value::from(Summary::default())),
        point(metric::PERIOD, Value::Gauge(2.0)),
    ];
    let metrics = &encoded(points).scope_metrics[0].metrics;
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, [metric::HOST_GAP, metric::PERIOD]);
    let Some(Data::Gauge(gauge)) = &metrics[1].data else {
        panic!()
    };
    let values: Vec<_> = gauge.data_points.iter().map(|point| point.value).collect();
    let double = |value| Some(number_data_point::Value::AsDouble(value));
    assert_eq!(values, [double(1.0), double(2.0)]);
}

#[test]
fn evidence_is_a_delta_sum_and_progress_a_cumulative_one() {
    let metrics = encoded(vec![
        point(metric::PREEMPTED, Value::Increase(14.7)),
        point(
            metric::ISSUED,
            Value::Issued {
                total: 64,
                age_ms: Some(7_600.0),
                waiting_ms: 7_500.0,
                is_stopped: true,
                running: Some(1),
                exit: Some(ExitStatus::Signal(9)),
            },
        ),
    ]);
    let [evidence, progress] = &metrics.scope_metrics[0].metrics[..] else {
        panic!()
    };
    let sum = |metric: &Metric| match metric.data.clone() {
        Some(Data::Sum(sum)) => sum,
        other => panic!("{other:?}"),
    };
    let (increase, total) = (sum(evidence), sum(progress));
    assert_eq!(
        (increase.aggregation_temporality(), increase.is_monotonic),
        (AggregationTemporality::Delta, false)
    );
    assert_eq!(
        (total.aggregation_temporality(), total.is_monotonic),
        (AggregationTemporality::Cumulative, true)
    );
    let double = number_data_point::Value::AsDouble(14.7);
    assert_eq!(increase.data_points[0].value, Some(double));
    let int = number_data_point::Value::AsInt(64);
    assert_eq!(total.data_points[0].value, Some(int));
    let waiting = &map(&total.data_points[0].attributes)["fleet.waiting_ms"];
    assert!(format!("{waiting:?}").contains("7500.0"), "{waiting:?}");
    let stopped = &map(&total.data_points[0].attributes)["fleet.stopped"];
    assert!(format!("{stopped:?}").contains("true"), "{stopped:?}");
    let running = &map(&total.data_points[0].attributes)["fleet.running_operations"];
    assert!(format!("{running:?}").contains("(1)"), "{running:?}");
    let signal = &map(&total.data_points[0].attributes)["fleet.exit_signal"];
    assert!(format!("{signal:?}").contains("(9)"), "{signal:?}");
    assert!(map(&increase.data_points[0].attributes).contains_key("fleet.iterations"));
}

#[test]
fn the_time_of_a_task_has_its_name_and_cpu() {
    let value = Value::TaskTime {
        ms: 44.7,
        task: "kworker/3:1H".to_owned(),
        cpu: Some(12),
    };
    let metrics = encoded(vec![point(metric::PREEMPTED_BY, value)]);
    let Some(Data::Sum(sum)) = &metrics.scope_metrics[0].metrics[0].data else {
        panic!("{metrics:?}");
    };
    assert_eq!(sum.aggregation_temporality(), AggregationTemporality::Delta);
    let attributes = map(&sum.data_points[0].attributes);
    let shown = ["fleet.task", "fleet.cpu"].map(|name| format!("{:?}", attributes[name]));
    assert!(shown[0].contains("\"kworker/3:1H\""), "{shown:?}");
    assert!(shown[1].contains("(12)"), "{shown:?}");
}

#[test]
fn units_follow_from_the_metric_names() {
    for (name, unit) in [
        (metric::OFF_CPU, "ms"),
        (metric::MEMCPY, "By"),
        (metric::LAUNCHES, "1"),
        (metric::ISSUED, "1"),
    ] {
        let encoded = encoded(vec![point(name, Value::Increase(1.0))]);
        assert_eq!(encoded.scope_metrics[0].metrics[0].unit, unit);
    }
}

#[test]
fn the_arrival_is_the_last_metric_of_a_block() {
    let metrics = encoded(vec![
        point(metric::ARRIVAL, Value::from(Summary::default())),
        point(metric::WAIT, Value::from(Summary::default())),
        point(metric::LAUNCHES, Value::Increase(1.0)),
    ]);
    let metrics = &metrics.scope_metrics[0].metrics;
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, [metric::LAUNCHES, metric::WAIT, metric::ARRIVAL]);
}
