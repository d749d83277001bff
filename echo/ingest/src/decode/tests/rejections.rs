//! Tests of every reason for rejection, and that neighbouring points are not affected.

use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, HistogramDataPoint, Metric, NumberDataPoint, exemplar, number_data_point,
};
use prost::Message;

use super::decode;
use crate::decode::reject::RejectReason;
use crate::decode::{Payload, decode_body};
use crate::fixture::{
    END, RECEIVED, double, gauge, gauges, int, rank_2, request, text, wait, waits,
};

mod names;

const DAY: u64 = 86_400_000_000_000;

/// Decodes the metrics and one valid point after them. Returns the reasons for the rejections.
fn reasons(resource: Vec<KeyValue>, metrics: Vec<Metric>) -> Vec<RejectReason> {
    let mut sent = request(resource, metrics);
    let neighbour = request(rank_2(), vec![waits(vec![wait()])]);
    sent.resource_metrics.extend(neighbour.resource_metrics);
    let decoded = decode(sent, RECEIVED);
    assert_eq!(decoded.events.len(), 1, "the neighbour was rejected too");
    let counts = decoded.rejections.iter();
    counts.map(|(reason, _count)| reason).collect()
}

fn wait_reason(change: impl Fn(&mut HistogramDataPoint)) -> RejectReason {
    let mut point = wait();
    change(&mut point);
    let reasons = reasons(rank_2(), vec![waits(vec![point])]);
    assert_eq!(reasons.len(), 1);
    reasons[0]
}

fn set(point: &mut HistogramDataPoint, attribute: KeyValue) {
    point.attributes.retain(|kv| kv.key != attribute.key);
    point.attributes.push(attribute);
}

fn attribute_reason(attribute: KeyValue) -> RejectReason {
    wait_reason(|point| set(point, attribute.clone()))
}

fn gauge_reason(change: impl Fn(&mut NumberDataPoint)) -> RejectReason {
    let mut point = gauge(1.0);
    change(&mut point);
    reasons(rank_2(), vec![gauges("g", "", vec![point])])[0]
}

fn resource_reason(change: impl Fn(&mut Vec<KeyValue>)) -> RejectReason {
    let mut resource = rank_2();
    change(&mut resource);
    reasons(resource, vec![waits(vec![wait()])])[0]
}

#[test]
fn a_point_without_cluster_or_node_is_rejected() {
    let without = |key| resource_reason(|resource| resource.retain(|kv| kv.key != key));
    assert_eq!(without("fleet.cluster.id"), RejectReason::MissingCluster);
    assert_eq!(without("fleet.node.id"), RejectReason::MissingNode);
}

#[test]
fn a_point_that_names_no_cluster_is_of_the_default_cluster() {
    let named = |resource: Vec<KeyValue>| {
        let body = request(resource, vec![waits(vec![wait()])]).encode_to_vec();
        let lab = Some("lab".parse().unwrap());
        let decoded = decode_body(Payload::Metrics, &body, RECEIVED, lab).unwrap();
        decoded.events[0].origin.cluster.to_string()
    };
    assert_eq!(named(rank_2()), "prod");
    let mut resource = rank_2();
    resource.retain(|kv| kv.key != "fleet.cluster.id");
    assert_eq!(named(resource), "lab");
}

#[test]
fn a_rank_must_be_below_the_world_size() {
    let ranked = |rank: KeyValue| {
        resource_reason(|resource| {
            resource.retain(|kv| kv.key != "fleet.rank");
            resource.push(rank.clone());
        })
    };
    for rank in [
        int("fleet.rank", 4),
        int("fleet.rank", -1),
        int("fleet.rank", 1 << 40),
        double("fleet.rank", 1.5),
        text("fleet.rank", "two"),
    ] {
        assert_eq!(ranked(rank), RejectReason::RankOutsideWorld);
    }
}

#[test]
fn an_invalid_rank_of_one_point_does_not_affect_the_others() {
    let resource = vec![text("fleet.cluster.id", "c"), text("fleet.node.id", "n")];
    let ranked = |rank| {
        let mut point = wait();
        point
            .attributes
            .extend([int("nccl.rank", rank), int("nccl.nranks", 4)]);
        point
    };
    let metrics = vec![waits(vec![ranked(3), ranked(4), ranked(0)])];
    let decoded = decode(request(resource, metrics), RECEIVED);
    assert_eq!(decoded.events.len(), 2);
    let outside = decoded.rejections.count(RejectReason::RankOutsideWorld);
    assert_eq!((decoded.rejections.points(), outside), (3, 1));
}

#[test]
fn a_metric_without_name_is_rejected() {
    let reasons = reasons(rank_2(), vec![gauges("", "", vec![gauge(1.0)])]);
    assert_eq!(reasons, [RejectReason::EmptyMetricName]);
}

#[test]
fn a_metric_of_an_unknown_kind_is_rejected() {
    let metric = Metric {
        name: "m".to_owned(),
        ..Metric::default()
    };
    assert_eq!(
        reasons(rank_2(), vec![metric]),
        [RejectReason::UnsupportedKind]
    );
}

#[test]
fn a_point_without_value_is_rejected() {
    assert_eq!(gauge_reason(|p| p.value = None), RejectReason::NoValue);
    assert_eq!(gauge_reason(|p| p.flags = 1), RejectReason::NoValue);
    assert_eq!(wait_reason(|p| p.flags = 1), RejectReason::NoValue);
}

#[test]
fn values_must_be_finite_and_not_larger_than_anything_that_is_measured() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let value = Some(value);
        let number = value.map(number_data_point::Value::AsDouble);
        assert_eq!(gauge_reason(|p| p.value = number), RejectReason::NotFinite);
        assert_eq!(wait_reason(|p| p.sum = value), RejectReason::NotFinite);
        assert_eq!(wait_reason(|p| p.min = value), RejectReason::NotFinite);
        assert_eq!(wait_reason(|p| p.max = value), RejectReason::NotFinite);
    }
    let iterations = attribute_reason(double(attribute::ITERATIONS, f64::NAN));
    assert_eq!(iterations, RejectReason::NotFinite);
    for value in [1.1e24, -1.1e24, f64::MAX] {
        let number = Some(number_data_point::Value::AsDouble(value));
        assert_eq!(gauge_reason(|p| p.value = number), RejectReason::TooLarge);
    }
}

#[test]
fn durations_are_never_negative_but_other_values_may_be() {
    let below_zero = |name, unit| reasons(rank_2(), vec![gauges(name, unit, vec![gauge(-1.0)])]);
    for (name, unit) in [
        ("x", "ns"),
        ("x", "us"),
        ("x", "ms"),
        ("x", "s"),
        ("x", "min"),
        ("x", "h"),
        ("x_ns", ""),
        ("x_us", ""),
        ("x_ms", ""),
        ("x_s", ""),
        ("x_seconds", ""),
        (metric::ARRIVAL, ""),
    ] {
        let reasons = below_zero(name, unit);
        assert_eq!(reasons, [RejectReason::NegativeDuration], "{name} {unit}");
    }
    let wait = wait_reason(|point| {
        point.min = Some(-0.5);
    });
    assert_eq!(wait, RejectReason::NegativeDuration);
    for (name, unit) in [
        ("temperature", "Cel"),
        ("clock.offset", "ns"),
        ("clock_skew_seconds", "s"),
        ("consumer.lag", "ms"),
        ("time_diff_us", ""),
        ("drift_ms_per_s", ""),
    ] {
        let metrics = vec![gauges(name, unit, vec![gauge(-1.0)])];
        let decoded = decode(request(rank_2(), metrics), RECEIVED);
        assert_eq!(decoded.events.len(), 1, "{name} {unit}");
    }
}

#[test]
fn a_histogram_with_samples_needs_a_sum() {
    let reason = wait_reason(|point| point.sum = None);
    assert_eq!(reason, RejectReason::HistogramWithoutSum);
}

#[test]
fn a_distribution_must_be_consistent() {
    let contradictions: [fn(&mut HistogramDataPoint); 6] = [
        |point| (point.min, point.max) = (Some(3.0), Some(1.0)),
        |point| point.sum = Some(289.0),
        |point| point.sum = Some(15.0),
        |point| (point.min, point.sum) = (Some(1e24), Some(1e24)),
        |point| point.count = 0,
        |point| (point.count, point.min) = (u64::MAX, None),
    ];
    for change in contradictions {
        assert_eq!(wait_reason(change), RejectReason::InconsistentHistogram);
    }
}

#[test]
fn times_must_be_plausible() {
    let at = |time: u64| wait_reason(|point| point.time_unix_nano = time);
    for time in [0, 1, 9_223_372_036_854_775_807, u64::MAX] {
        assert_eq!(at(time), RejectReason::ImplausibleTime);
    }
    let since = |start: u64| wait_reason(|point| point.start_time_unix_nano = start);
    for start in [1, END + 1, u64::MAX] {
        assert_eq!(since(start), RejectReason::ImplausibleTime);
    }
}

#[test]
fn a_clock_may_be_ahead_by_at_most_a_day() {
    let now = u64::try_from(RECEIVED.value()).unwrap();
    let decoded = |time| {
        let mut point = wait();
        point.time_unix_nano = time;
        decode(request(rank_2(), vec![waits(vec![point])]), RECEIVED)
    };
    assert_eq!(decoded(now + DAY).events.len(), 1);
    let rejections = decoded(now + DAY + 1).rejections;
    assert_eq!(rejections.count(RejectReason::TimeInFuture), 1);
}

#[test]
fn a_communicator_must_be_hexadecimal() {
    for comm in [
        text(attribute::COMM_ID, "not-hex"),
        text(attribute::COMM_ID, "36210ed1bd447fe00"),
        int(attribute::COMM_ID, 5),
    ] {
        assert_eq!(attribute_reason(comm), RejectReason::InvalidComm);
    }
}

#[test]
fn sequence_ranges_must_have_a_first_and_last_number_in_order() {
    for seq in [
        int(attribute::SEQ_FIRST, 64),
        int(attribute::SEQ_FIRST, -1),
        double(attribute::SEQ_LAST, 63.5),
        int(attribute::ANCHOR_SEQ, -1),
    ] {
        let reason = wait_reason(|point| {
            set(point, double(attribute::ANCHOR_OFFSET_MS, 1.0));
            set(point, seq.clone());
        });
        assert_eq!(reason, RejectReason::InvalidSequence);
    }
    let open = wait_reason(|point| point.attributes.retain(|kv| kv.key != attribute::SEQ_LAST));
    assert_eq!(open, RejectReason::InvalidSequence);
}

#[test]
fn a_source_must_be_host_or_device() {
    for odd in ["gpu", "Host"] {
        let reason = wait_reason(|point| {
            point.attributes.retain(|kv| kv.key != attribute::SOURCE);
            point.attributes.push(text(attribute::SOURCE, odd));
        });
        assert_eq!(reason, RejectReason::InvalidSource, "{odd}");
    }
}

#[test]
fn roles_and_iterations_must_be_valid() {
    let role = attribute_reason(text(attribute::ROLE, "stage-1"));
    assert_eq!(role, RejectReason::InvalidRole);
    for iterations in [0.0, -1.0] {
        let reason = attribute_reason(double(attribute::ITERATIONS, iterations));
        assert_eq!(reason, RejectReason::InvalidIterations);
    }
}

#[test]
fn an_invalid_sample_rejects_its_point() {
    let sampled = |seq: i64, value: f64, time_unix_nano: u64| {
        wait_reason(|point| {
            point.exemplars = vec![Exemplar {
                filtered_attributes: vec![int(attribute::SEQ, seq)],
                time_unix_nano,
                value: Some(exemplar::Value::AsDouble(value)),
                ..Exemplar::default()
            }];
        })
    };
    assert_eq!(sampled(-1, 1.0, END), RejectReason::InvalidSequence);
    assert_eq!(sampled(1, f64::NAN, END), RejectReason::NotFinite);
    assert_eq!(sampled(1, -1.0, END), RejectReason::NegativeDuration);
    assert_eq!(sampled(1, 1.0, 0), RejectReason::ImplausibleTime);
}

#[test]
fn attributes_of_more_than_16_kib_are_rejected() {
    let long = text("note", &"x".repeat(16 * 1024));
    assert_eq!(attribute_reason(long), RejectReason::AttributesTooLarge);
    let many = wait_reason(|point| {
        let notes = (0..5_000).map(|n| int(&format!("n{n}"), n));
        point.attributes.extend(notes);
    });
    assert_eq!(many, RejectReason::AttributesTooLarge);
}

#[test]
fn names_after_thousands_of_attributes_are_found() {
    let notes = (0..5_000).map(|n| int(&format!("n{n}"), n));
    let mut point = gauge(1.0);
    point.attributes = notes.chain(rank_2()).collect();
    let reasons = reasons(Vec::new(), vec![gauges("m", "", vec![point])]);
    assert_eq!(reasons, [RejectReason::AttributesTooLarge]);
}

#[test]
fn a_small_request_cannot_expand_to_gigabytes() {
    let mut resource = rank_2();
    resource.push(text("ballast", &"x".repeat(16_000)));
    let points = (0..10_000).map(|n| {
        let mut point = gauge(1.0);
        point.attributes = vec![int("n", n)];
        point
    });
    let metrics = vec![gauges("m", "", points.collect())];
    let decoded = decode(request(resource, metrics), RECEIVED);
    let bytes: usize = decoded.events.iter().map(|event| event.attrs.len()).sum();
    assert!(bytes <= 32 * 1024 * 1024, "{bytes}");
    let too_large = decoded.rejections.count(RejectReason::AttributesTooLarge);
    assert_eq!(decoded.events.len() as u64 + too_large, 10_000);
    assert!(too_large > 0);
}

#[test]
fn a_health_score_must_be_from_0_to_1() {
    for (point, expected) in [
        (gauge(1.01), vec![RejectReason::ScoreOutOfRange]),
        (gauge(-0.01), vec![RejectReason::ScoreOutOfRange]),
        (gauge(f64::NAN), vec![RejectReason::NotFinite]),
        (gauge(0.0), Vec::new()),
        (gauge(1.0), Vec::new()),
    ] {
        let sent = request(
            rank_2(),
            vec![gauges(metric::INGERO_HEALTH_SCORE, "", vec![point.clone()])],
        );
        let rejections = decode(sent, RECEIVED).rejections;
        let reasons: Vec<_> = rejections.iter().map(|(reason, _)| reason).collect();
        assert_eq!(reasons, expected, "{point:?}");
    }
}

#[test]
fn a_body_that_is_not_a_request_is_malformed() {
    for payload in [Payload::Metrics, Payload::Logs] {
        let error = decode_body(payload, &[0xff; 64], RECEIVED, None).unwrap_err();
        assert!(error.to_string().contains(payload.message()));
    }
}
