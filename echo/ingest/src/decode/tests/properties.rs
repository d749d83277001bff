//! Properties that hold for every request, valid or hostile.

use echo_core::model::event::{Event, Reading};
use echo_core::units::Nanos;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, HistogramDataPoint, Metric, NumberDataPoint, exemplar, number_data_point,
};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

use super::decode;
use crate::decode::{Decoded, Payload, decode_body};
use crate::fixture::{
    END, RECEIVED, double, gauges, int, records, request, straggler, text, waits,
};

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => 0.0..100.0_f64,
        1 => any::<f64>(),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, -0.0, f64::MAX, f64::MIN_POSITIVE]),
    ]
}

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![4 => END - 1_000_000..=END, 1 => Just(0), 1 => any::<u64>()]
}

fn any_attribute() -> impl Strategy<Value = KeyValue> {
    let key = prop::sample::select(vec![
        "fleet.cluster.id",
        "k8s.cluster.name",
        "fleet.node.id",
        "host.name",
        "nccl.rank",
        "fleet.rank",
        "nccl.nranks",
        "fleet.world_size",
        "nccl.comm_id_hash",
        "nccl.op_type",
        "nccl.seq_first",
        "nccl.seq_last",
        "fleet.role",
        "fleet.iterations",
        "fleet.anchor_seq",
        "fleet.anchor_offset_ms",
        "gpu.uuid",
        "note",
    ]);
    prop_oneof![
        4 => (key.clone(), "[0-9a-f]{0,17}").prop_map(|(key, value)| text(key, &value)),
        2 => (key.clone(), -1..9_i64).prop_map(|(key, value)| int(key, value)),
        1 => (key.clone(), any::<String>()).prop_map(|(key, value)| text(key, &value)),
        1 => (key, any_number()).prop_map(|(key, value)| double(key, value)),
        1 => any::<String>().prop_map(|key| int(&key, 1)),
    ]
}

fn any_resource() -> impl Strategy<Value = Vec<KeyValue>> {
    (any::<bool>(), vec(any_attribute(), 0..6)).prop_map(|(named, mut attributes)| {
        if named {
            attributes.push(text("fleet.cluster.id", "c"));
            attributes.push(text("fleet.node.id", "n"));
        }
        attributes
    })
}

prop_compose! {
    fn any_exemplar()(
        filtered_attributes in vec(any_attribute(), 0..2),
        seq in prop::option::of(-1..9_i64),
        time_unix_nano in any_time(),
        value in prop::option::of(any_number()),
    ) -> Exemplar {
        let mut filtered_attributes = filtered_attributes;
        filtered_attributes.extend(seq.map(|seq| int("nccl.seq", seq)));
        Exemplar {
            filtered_attributes,
            time_unix_nano,
            value: value.map(exemplar::Value::AsDouble),
            ..Exemplar::default()
        }
    }
}

prop_compose! {
    fn any_histogram()(
        attributes in vec(any_attribute(), 0..8),
        start_time_unix_nano in any_time(),
        time_unix_nano in any_time(),
        count in prop_oneof![0..3_u64, any::<u64>()],
        sum in prop::option::of(any_number()),
        min in prop::option::of(any_number()),
        max in prop::option::of(any_number()),
        exemplars in vec(any_exemplar(), 0..2),
    ) -> HistogramDataPoint {
        HistogramDataPoint {
            attributes, start_time_unix_nano, time_unix_nano, count, sum, min, max, exemplars,
            ..HistogramDataPoint::default()
        }
    }
}

prop_compose! {
    fn any_gauge()(
        attributes in vec(any_attribute(), 0..8),
        time_unix_nano in any_time(),
        value in prop::option::of(any_number()),
    ) -> NumberDataPoint {
        NumberDataPoint {
            attributes,
            time_unix_nano,
            value: value.map(number_data_point::Value::AsDouble),
            ..NumberDataPoint::default()
        }
    }
}

prop_compose! {
    fn any_request()(
        resource in any_resource(),
        gauge_points in vec(any_gauge(), 0..6),
        histogram_points in vec(any_histogram(), 0..6),
        name in prop_oneof![Just("fleet.rank.period_ms".to_owned()), any::<String>()],
    ) -> ExportMetricsServiceRequest {
        request(resource, vec![gauges(&name, "ms", gauge_points), waits(histogram_points)])
    }
}

fn points(request: &ExportMetricsServiceRequest) -> u64 {
    let metrics = request.resource_metrics.iter().flat_map(|resource| {
        let scopes = resource.scope_metrics.iter();
        scopes.flat_map(|scope| &scope.metrics)
    });
    metrics.map(points_of).sum()
}

fn points_of(metric: &Metric) -> u64 {
    let points = match &metric.data {
        None => 1,
        Some(Data::Gauge(gauge)) => gauge.data_points.len(),
        Some(Data::Sum(sum)) => sum.data_points.len(),
        Some(Data::Histogram(histogram)) => histogram.data_points.len(),
        Some(Data::ExponentialHistogram(histogram)) => histogram.data_points.len(),
        Some(Data::Summary(summary)) => summary.data_points.len(),
    };
    points as u64
}

fn assert_valid(event: &Event) {
    assert!((Nanos::EARLIEST..Nanos::LATEST).contains(&event.timestamp));
    assert!(event.start.is_none_or(|start| start <= event.timestamp));
    match event.reading {
        Reading::Int(_) => {}
        Reading::Double(value) => assert!(value.is_finite()),
        Reading::Histogram(summary) => {
            let numbers = [Some(summary.sum), summary.min, summary.max];
            assert!(numbers.into_iter().flatten().all(f64::is_finite));
            if let (Some(min), Some(max)) = (summary.min, summary.max) {
                assert!(min <= max);
                let mean = summary.mean().unwrap();
                let slack = 1e-5 * mean.abs().max(max.abs()).max(min.abs());
                assert!(min - slack <= mean && mean <= max + slack, "{summary:?}");
            }
        }
    }
    if let Some(block) = &event.block {
        assert!(block.iterations.is_none_or(|n| n.is_finite() && n > 0.0));
        let offset = block.anchor.map(|anchor| anchor.offset_ms);
        assert!(offset.is_none_or(f64::is_finite));
    }
    assert!(event.samples.iter().all(|sample| sample.value.is_finite()));
    let attrs: serde_json::Value = serde_json::from_str(&event.attrs).unwrap();
    assert!(attrs.is_object());
    assert!(event.attrs.len() <= 16 * 1024);
}

fn assert_complete(decoded: &Decoded, sent: u64) {
    assert_eq!(decoded.rejections.points(), sent);
    let accepted = decoded.events.len() as u64;
    assert_eq!(accepted + decoded.rejections.total(), sent);
    decoded.events.iter().for_each(assert_valid);
}

proptest! {
    #[test]
    fn every_point_is_a_valid_event_or_a_counted_rejection(request in any_request()) {
        let sent = points(&request);
        assert_complete(&decode(request, RECEIVED), sent);
    }

    #[test]
    fn arbitrary_bytes_do_not_break_the_decoder(bytes in vec(any::<u8>(), 0..256)) {
        for payload in [Payload::Metrics, Payload::Logs] {
            if let Ok(decoded) = decode_body(payload, &bytes, RECEIVED, None) {
                assert_complete(&decoded, decoded.rejections.points());
            }
        }
    }

    #[test]
    fn flipped_bytes_do_not_break_the_decoder_of_records(
        attributes in vec(any_attribute(), 0..8),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut record = straggler();
        record.attributes.extend(attributes.clone());
        let mut bytes = records(attributes, vec![record, straggler()]).encode_to_vec();
        for (index, value) in flips {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Ok(decoded) = decode_body(Payload::Logs, &bytes, RECEIVED, None) {
            assert_complete(&decoded, decoded.rejections.points());
        }
    }

    #[test]
    fn flipped_bytes_do_not_break_the_decoder(
        request in any_request(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = request.encode_to_vec();
        for (index, value) in flips {
            if !bytes.is_empty() {
                let index = index.index(bytes.len());
                bytes[index] = value;
            }
        }
        if let Ok(request) = ExportMetricsServiceRequest::decode(&*bytes) {
            let sent = points(&request);
            assert_complete(&decode(request, RECEIVED), sent);
        }
    }

    #[test]
    fn decoding_is_repeatable(request in any_request()) {
        let again = decode(request.clone(), RECEIVED);
        prop_assert_eq!(decode(request, RECEIVED), again);
    }
}
