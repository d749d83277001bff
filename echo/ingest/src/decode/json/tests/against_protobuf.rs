//! Random requests decode to the same events from JSON and from protobuf.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use super::LIMIT;
use crate::decode::json::to_protobuf;
use crate::decode::tests::differential::made;
use crate::decode::{Payload, decode_body};
use crate::fixture::RECEIVED;

/// Makes all numbers of the request finite: the library writes null for others.
fn finite<M: Message + Default>(request: &M) -> M {
    let mut bytes = request.encode_to_vec();
    for index in 0..bytes.len().saturating_sub(7) {
        let found: [u8; 8] = bytes[index..index + 8].try_into().unwrap();
        if [f64::NAN, f64::INFINITY]
            .iter()
            .any(|number| number.to_le_bytes() == found)
        {
            bytes[index..index + 8].copy_from_slice(&64.0_f64.to_le_bytes());
        }
    }
    M::decode(&*bytes).unwrap()
}

/// Compares both, unless the request has indexes into a string table, which are for profiles and
/// not read from JSON.
fn compare<M: Message + Default + Serialize>(payload: Payload, request: &M) -> u32 {
    let request = finite(request);
    let json = serde_json::to_string(&request).unwrap();
    if json.contains("stringValueStrindex") {
        return 0;
    }
    let body = to_protobuf(payload, json.as_bytes(), LIMIT);
    let body = body.unwrap_or_else(|error| panic!("{error}: {json}"));
    let expected = decode_body(payload, &request.encode_to_vec(), RECEIVED, None);
    assert_eq!(
        decode_body(payload, &body, RECEIVED, None),
        expected,
        "{json}"
    );
    1
}

#[test]
fn random_requests_decode_to_the_same_events_from_json_and_protobuf() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut compared = 0;
    for _ in 0..500 {
        let metrics: ExportMetricsServiceRequest = made::metrics(&mut rng);
        compared += compare(Payload::Metrics, &metrics);
        let logs: ExportLogsServiceRequest = made::logs(&mut rng);
        compared += compare(Payload::Logs, &logs);
        let traces: ExportTraceServiceRequest = made::traces(&mut rng);
        compared += compare(Payload::Traces, &traces);
    }
    assert!(compared > 200, "{compared}");
}
