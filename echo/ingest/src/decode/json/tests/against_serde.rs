//! Requests made at random, written as JSON by `opentelemetry-proto`. (It is no judge of reading: it passes over errors
//! inside points, and refuses some of what it writes.)

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use super::LIMIT;
use crate::decode::Payload;
use crate::decode::json::to_protobuf;
use crate::decode::tests::differential::made;

/// The request with every number finite: it writes null for the others.
fn finite<M: Message + Default>(request: &M) -> M {
    let mut bytes = request.encode_to_vec();
    for place in 0..bytes.len().saturating_sub(7) {
        let found: [u8; 8] = bytes[place..place + 8].try_into().unwrap();
        if [f64::NAN, f64::INFINITY]
            .iter()
            .any(|number| number.to_le_bytes() == found)
        {
            bytes[place..place + 8].copy_from_slice(&64.0_f64.to_le_bytes());
        }
    }
    M::decode(&*bytes).unwrap()
}

fn compare<M: Message + Default + PartialEq + Serialize>(payload: Payload, request: &M) {
    let request = finite(request);
    let json = serde_json::to_string(&request).unwrap();
    let body = to_protobuf(payload, json.as_bytes(), LIMIT);
    let body = body.unwrap_or_else(|error| panic!("{error}: {json}"));
    assert!(M::decode(&*body).unwrap() == request, "{json}");
}

#[test]
fn random_requests_come_back_from_json_as_they_went() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..500 {
        let metrics: ExportMetricsServiceRequest = made::metrics(&mut rng);
        compare(Payload::Metrics, &metrics);
        let logs: ExportLogsServiceRequest = made::logs(&mut rng);
        compare(Payload::Logs, &logs);
        let traces: ExportTraceServiceRequest = made::traces(&mut rng);
        compare(Payload::Traces, &traces);
    }
}
