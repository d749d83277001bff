//! Tests of the events of valid requests. Rejections and properties have their own files.

use std::sync::Arc;

use echo_core::ids::Rank;
use echo_core::model::event::{Anchor, Event, OpSample, Reading, SeqRange, Source};
use echo_core::units::Nanos;
use fleet_proto::attribute;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint,
    HistogramDataPoint, Metric, NumberDataPoint, Sum, Summary, SummaryDataPoint, exemplar,
    metric::Data, number_data_point,
};
use prost::Message;

use super::reject::RejectReason;
use super::{Decoded, Payload, decode_body};
use crate::fixture::{
    END, RECEIVED, START, attribute as any, double, gauge, gauges, int, metric, rank_2, request,
    text, wait, waits,
};

pub(super) mod corpus;
pub(super) mod differential;
mod properties;
mod rejections;

fn decode(request: ExportMetricsServiceRequest, received: Nanos) -> Decoded {
    decode_body(Payload::Metrics, &request.encode_to_vec(), received, None).unwrap()
}

fn nanos(unix_nanos: u64) -> Nanos {
    Nanos::plausible(unix_nanos).unwrap()
}

/// Decodes a request with one valid point, and returns its event.
fn only(resource: Vec<KeyValue>, metric: Metric) -> Event {
    let mut decoded = decode(request(resource, vec![metric]), RECEIVED);
    assert_eq!(decoded.rejections.total(), 0, "{}", decoded.rejections);
    assert_eq!(decoded.events.len(), 1);
    decoded.events.remove(0)
}

fn wait_with(extra: Vec<KeyValue>) -> HistogramDataPoint {
    let mut point = wait();
    point.attributes.extend(extra);
    point
}

#[test]
fn a_wait_becomes_an_event_with_its_block() {
    let event = only(rank_2(), waits(vec![wait()]));
    assert_eq!(event.start, Some(nanos(START)));
    assert_eq!(event.timestamp, nanos(END));
    assert_eq!(event.metric.as_str(), "nccl.collective.wait_ms");
    assert_eq!(&*event.unit, "ms");
    let Reading::Histogram(summary) = event.reading else {
        panic!("{:?}", event.reading);
    };
    assert_eq!((summary.count, summary.sum), (32, 64.0));
    assert_eq!((summary.min, summary.max), (Some(0.5), Some(9.0)));
    let block = event.block.unwrap();
    assert_eq!(block.comm.to_string(), "36210ed1bd447fe0");
    assert_eq!(block.op.unwrap().as_str(), "AllReduce");
    assert_eq!(block.seqs, SeqRange::new(32, 63));
    assert_eq!(
        (block.role, block.iterations, block.anchor),
        (None, None, None)
    );
    let rank = event.origin.rank.unwrap();
    assert_eq!((rank.rank(), rank.world_size()), (Rank::new(2), Some(4)));
}

#[test]
fn extracted_attributes_are_removed() {
    let event = only(rank_2(), waits(vec![wait()]));
    assert_eq!(&*event.attrs, r#"{"service.name":"trainer"}"#);
}

#[test]
fn role_iterations_and_anchor_belong_to_the_block() {
    let point = wait_with(vec![
        text(attribute::ROLE, "00000000000000ff"),
        double(attribute::ITERATIONS, 2.5),
        int(attribute::ANCHOR_SEQ, 31),
        double(attribute::ANCHOR_OFFSET_MS, 0.25),
    ]);
    let block = only(rank_2(), waits(vec![point])).block.unwrap();
    assert_eq!(block.role.unwrap().value(), 255);
    assert_eq!(block.iterations, Some(2.5));
    let anchor = Anchor {
        seq: 31,
        offset_ms: 0.25,
    };
    assert_eq!(block.anchor, Some(anchor));
}

#[test]
fn the_source_of_a_block_is_host_or_device() {
    for (sent, source) in [
        (Some(attribute::SOURCE_HOST), Source::Host),
        (Some(attribute::SOURCE_DEVICE), Source::Device),
        (None, Source::Host),
    ] {
        let mut point = wait();
        point.attributes.retain(|kv| kv.key != attribute::SOURCE);
        point
            .attributes
            .extend(sent.map(|sent| text(attribute::SOURCE, sent)));
        let block = only(rank_2(), waits(vec![point])).block.unwrap();
        assert_eq!(block.source, source, "{sent:?}");
    }
}

#[test]
fn an_incomplete_anchor_stays_in_the_attributes() {
    let point = wait_with(vec![int(attribute::ANCHOR_SEQ, 31)]);
    let event = only(rank_2(), waits(vec![point]));
    assert_eq!(event.block.unwrap().anchor, None);
    assert!(event.attrs.contains(r#""fleet.anchor_seq":31"#));
}

#[test]
fn without_a_communicator_there_is_no_block_and_all_attributes_stay() {
    let mut point = wait();
    point.attributes.retain(|kv| kv.key != attribute::COMM_ID);
    let event = only(rank_2(), waits(vec![point]));
    assert_eq!(event.block, None);
    assert!(event.attrs.contains(r#""nccl.seq_first":32"#));
    assert!(event.attrs.contains(r#""nccl.op_type":"AllReduce""#));
}

#[test]
fn the_resource_takes_precedence_over_the_point_and_the_first_name_over_others() {
    let mut resource = rank_2();
    resource.insert(0, text("k8s.cluster.name", "k8s"));
    let point = wait_with(vec![text("fleet.cluster.id", "from-point")]);
    let event = only(resource, waits(vec![point]));
    assert_eq!(event.origin.cluster.as_str(), "prod");
    assert!(event.attrs.contains(r#""k8s.cluster.name":"k8s""#));
    assert!(event.attrs.contains(r#""fleet.cluster.id":"from-point""#));
}

#[test]
fn a_rank_on_the_resource_leaves_the_rank_on_the_point_an_attribute() {
    let point = wait_with(vec![int("nccl.rank", 7), int("nccl.nranks", 2)]);
    let event = only(rank_2(), waits(vec![point]));
    assert_eq!(event.origin.rank.unwrap().rank(), Rank::new(2));
    assert!(event.attrs.contains(r#""nccl.nranks":2,"nccl.rank":7"#));
}

#[test]
fn an_identity_may_be_on_the_point() {
    let point = wait_with(vec![
        text("ingero.cluster.id", "prod"),
        text("host.name", "gpu-17"),
        text("nccl.rank", "3"),
        double("nccl.nranks", 4.0),
        text("ingero.gpu_model", "H200"),
    ]);
    let origin = only(Vec::new(), waits(vec![point])).origin;
    assert_eq!(origin.node.as_str(), "gpu-17");
    assert_eq!(origin.rank.unwrap().rank(), Rank::new(3));
    assert_eq!(origin.gpu_model.as_deref(), Some("H200"));
}

#[test]
fn an_empty_name_counts_as_absent() {
    let mut resource = rank_2();
    resource.retain(|kv| kv.key != "fleet.cluster.id");
    resource.push(text("fleet.cluster.id", ""));
    resource.push(text("k8s.cluster.name", "k8s"));
    let event = only(resource, waits(vec![wait()]));
    assert_eq!(event.origin.cluster.as_str(), "k8s");
}

#[test]
fn points_of_one_request_share_their_origin_and_texts() {
    let metrics = || vec![waits(vec![wait(), wait()])];
    let mut two = request(rank_2(), metrics());
    two.resource_metrics
        .extend(request(rank_2(), metrics()).resource_metrics);
    let events = decode(two, RECEIVED).events;
    let (first, last) = (events.first().unwrap(), events.last().unwrap());
    assert!(Arc::ptr_eq(&first.origin, &last.origin));
    assert!(Arc::ptr_eq(&first.unit, &last.unit));
    assert!(Arc::ptr_eq(&events[0].attrs, &events[1].attrs));
}

#[test]
fn neighbouring_points_with_different_attributes_keep_their_own() {
    let point = |source| wait_with(vec![text("note", source)]);
    let metrics = vec![waits(vec![point("a"), point("b"), point("a")])];
    let events = decode(request(rank_2(), metrics), RECEIVED).events;
    let notes: Vec<_> = events
        .iter()
        .map(|e| e.attrs.contains(r#""note":"a""#))
        .collect();
    assert_eq!(notes, [true, false, true]);
}

#[test]
fn an_attribute_of_the_point_overrides_one_of_the_resource_of_any_size() {
    let mut resource = rank_2();
    for (key, value) in [("a", "1"), ("m", "1"), ("z", "1")] {
        resource.push(text(key, value));
    }
    resource.push(text("note", &"x".repeat(17_000)));
    let overriding = |key| wait_with(vec![text("note", "2"), text(key, "2")]);
    let plain = wait_with(vec![text("m", "2")]);
    let metrics = vec![waits(vec![
        overriding("a"),
        overriding("n"),
        plain,
        overriding("z"),
    ])];
    let decoded = decode(request(resource, metrics), RECEIVED);
    let attrs: Vec<&str> = decoded.events.iter().map(|event| &*event.attrs).collect();
    assert_eq!(
        attrs,
        [
            r#"{"a":"2","m":"1","note":"2","service.name":"trainer","z":"1"}"#,
            r#"{"a":"1","m":"1","n":"2","note":"2","service.name":"trainer","z":"1"}"#,
            r#"{"a":"1","m":"1","note":"2","service.name":"trainer","z":"2"}"#,
        ]
    );
    let too_large = decoded.rejections.count(RejectReason::AttributesTooLarge);
    assert_eq!(too_large, 1, "where it is not overridden");
}

#[test]
fn neighbouring_points_of_different_ranks_keep_their_origins() {
    let point = |rank| wait_with(vec![int("nccl.rank", rank)]);
    let resource = vec![text("fleet.cluster.id", "c"), text("fleet.node.id", "n")];
    let metrics = vec![waits(vec![point(0), point(1), point(1), point(0)])];
    let events = decode(request(resource, metrics), RECEIVED).events;
    let ranks: Vec<_> = events
        .iter()
        .map(|event| event.origin.rank.unwrap().rank().value())
        .collect();
    assert_eq!(ranks, [0, 1, 1, 0]);
}

#[test]
fn exemplars_with_a_sequence_number_are_samples_and_others_are_ignored() {
    let exemplar = |attributes| Exemplar {
        filtered_attributes: attributes,
        time_unix_nano: END,
        value: Some(exemplar::Value::AsDouble(9.0)),
        ..Exemplar::default()
    };
    let mut point = wait();
    point.exemplars = vec![
        exemplar(vec![int(attribute::SEQ, 40)]),
        exemplar(vec![text("trace", "x")]),
    ];
    let sample = OpSample {
        seq: 40,
        value: 9.0,
        timestamp: nanos(END),
    };
    assert_eq!(only(rank_2(), waits(vec![point])).samples, [sample]);
}

#[test]
fn integers_stay_integers() {
    let point = NumberDataPoint {
        value: Some(number_data_point::Value::AsInt(i64::MAX)),
        ..gauge(0.0)
    };
    let event = only(rank_2(), gauges("fleet.host.switches", "1", vec![point]));
    assert_eq!(event.reading, Reading::Int(i64::MAX));
    assert_eq!(event.start, None);
}

#[test]
fn a_cumulative_sum_is_marked_in_the_attributes() {
    let sum = |temporality| {
        let data = Data::Sum(Sum {
            data_points: vec![gauge(3.0)],
            aggregation_temporality: temporality as i32,
            is_monotonic: true,
        });
        only(rank_2(), metric("fleet.host.faults", "1", data))
    };
    let cumulative = sum(AggregationTemporality::Cumulative);
    assert!(
        cumulative
            .attrs
            .contains(r#""otel.temporality":"cumulative""#)
    );
    let delta = sum(AggregationTemporality::Delta);
    assert!(!delta.attrs.contains("otel.temporality"));
}

#[test]
fn every_distribution_becomes_count_sum_min_and_max() {
    let exponential = ExponentialHistogramDataPoint {
        time_unix_nano: END,
        count: 2,
        sum: Some(3.0),
        min: Some(1.0),
        max: Some(2.0),
        ..ExponentialHistogramDataPoint::default()
    };
    let exponential = Data::ExponentialHistogram(ExponentialHistogram {
        data_points: vec![exponential],
        aggregation_temporality: 1,
    });
    let summary = Data::Summary(Summary {
        data_points: vec![SummaryDataPoint {
            time_unix_nano: END,
            count: 2,
            sum: 3.0,
            ..SummaryDataPoint::default()
        }],
    });
    for data in [exponential, summary] {
        let event = only(rank_2(), metric("latency", "s", data));
        let Reading::Histogram(summary) = event.reading else {
            panic!("{:?}", event.reading);
        };
        assert_eq!((summary.count, summary.sum), (2, 3.0));
    }
}

#[test]
fn an_empty_histogram_has_no_min_and_max_even_if_sent_as_infinite() {
    let point = HistogramDataPoint {
        count: 0,
        sum: None,
        min: Some(f64::INFINITY),
        max: Some(f64::NEG_INFINITY),
        ..wait()
    };
    let event = only(rank_2(), waits(vec![point]));
    let Reading::Histogram(summary) = event.reading else {
        panic!("{:?}", event.reading);
    };
    assert_eq!((summary.count, summary.min, summary.max), (0, None, None));
}

#[test]
fn any_attribute_becomes_json() {
    let list = |value| AnyValue { value: Some(value) };
    let point = NumberDataPoint {
        attributes: vec![
            any("z", Value::BoolValue(true)),
            double("nan", f64::NAN),
            any("bytes", Value::BytesValue(vec![0, 255])),
            any(
                "list",
                Value::ArrayValue(ArrayValue {
                    values: vec![list(Value::IntValue(1)), AnyValue { value: None }],
                }),
            ),
            any(
                "map",
                Value::KvlistValue(KeyValueList {
                    values: vec![text("b", "\"quoted\""), int("a", 1)],
                }),
            ),
            text("service.name", "of-the-point"),
        ],
        ..gauge(1.0)
    };
    let mut request = request(rank_2(), vec![gauges("m", "", vec![point])]);
    request.resource_metrics[0].scope_metrics[0].scope = Some(InstrumentationScope {
        name: "agent".to_owned(),
        ..InstrumentationScope::default()
    });
    let decoded = decode(request, RECEIVED);
    insta::assert_snapshot!(decoded.events[0].attrs, @r#"{"bytes":"00ff","list":[1,null],"map":{"a":1,"b":"\"quoted\""},"nan":null,"otel.scope.name":"agent","service.name":"of-the-point","z":true}"#);
}
