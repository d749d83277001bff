//! Tests of valid and invalid names.

use fleet_proto::attribute;
use opentelemetry_proto::tonic::common::v1::KeyValue;

use super::{attribute_reason, reasons, resource_reason};
use crate::decode::reject::RejectReason;
use crate::decode::tests::decode;
use crate::fixture::{RECEIVED, gauge, gauges, int, rank_2, request, text, wait, waits};

#[test]
fn names_that_are_no_short_printable_texts_are_rejected() {
    let named = |key: &str, value: KeyValue| {
        resource_reason(|resource| {
            resource.retain(|kv| kv.key != key);
            resource.push(value.clone());
        })
    };
    for value in [
        text("fleet.cluster.id", "a\nb"),
        text("fleet.cluster.id", " \u{a0}"),
        text("fleet.cluster.id", "prod\u{202e}1-edon"),
        text("fleet.cluster.id", "pro\u{200b}d"),
        text("fleet.cluster.id", "\u{3164}"),
        text("fleet.cluster.id", &"x".repeat(257)),
        int("fleet.cluster.id", 5),
    ] {
        let reason = named("fleet.cluster.id", value);
        assert_eq!(reason, RejectReason::InvalidName);
    }
    let pod = named("k8s.pod.name", text("k8s.pod.name", "p\0"));
    assert_eq!(pod, RejectReason::InvalidName);
    for key in ["fleet.node.id", "slurm.job.id", "gpu.uuid"] {
        let reason = named(key, text(key, "a\u{2066}b"));
        assert_eq!(reason, RejectReason::InvalidName, "{key}");
    }
    for op in ["\u{7f}", " ", "All\u{ad}Reduce"] {
        let reason = attribute_reason(text(attribute::OP, op));
        assert_eq!(reason, RejectReason::InvalidName, "{op:?}");
    }
    for metric in ["m\t", " ", "m\u{feff}"] {
        let reasons = reasons(rank_2(), vec![gauges(metric, "", vec![gauge(1.0)])]);
        assert_eq!(reasons, [RejectReason::InvalidName], "{metric:?}");
    }
    let unit = reasons(rank_2(), vec![gauges("m", "m\ts", vec![gauge(1.0)])]);
    assert_eq!(unit, [RejectReason::InvalidName]);
}

#[test]
fn names_that_operators_give_are_taken_as_they_are() {
    for name in ["rack 7/größe", "数据中心-1", "<script>", "a.b_c:d@e"] {
        let resource = vec![
            text("fleet.cluster.id", name),
            text("fleet.node.id", name),
            // A label may be empty.
            text("k8s.pod.name", ""),
        ];
        let decoded = decode(request(resource, vec![waits(vec![wait()])]), RECEIVED);
        let origin = &decoded.events[0].origin;
        assert_eq!(
            (origin.cluster.as_str(), origin.node.as_str()),
            (name, name)
        );
    }
}
