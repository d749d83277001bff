//! Estimate of the memory that the events of a body need, before it is decoded. A data point of a
//! few bytes becomes an event of about 300 bytes, so a body of a few megabytes can expand to half a
//! gigabyte. The estimate counts points without reading them, and stops where the body is
//! malformed, as the decoder does. Other memory of the decoder is small: it reads strings and lists
//! in place, and keeps a bounded list of attributes of one resource and one point at a time.

use echo_core::model::event::Event;

use super::wire::Fields;
use super::wire::metrics::{contents, n_points, scopes};
use super::{Decoded, Payload};

/// Memory that an event or a sampled operation takes until it is stored, beside its texts, in
/// bytes: in a list that grows by doubling, then in the columns that are appended, then in the
/// engine's transaction.
pub const EVENT_BYTES: usize = 1024;

const _: () = assert!(EVENT_BYTES >= 2 * size_of::<Event>());

/// Estimates the memory of the decoded body, in bytes. Strings need as much as in the body.
pub fn estimate_decoded_bytes(payload: Payload, body: &[u8]) -> usize {
    let contents = Fields::new(body).all(1).flat_map(scopes).flat_map(contents);
    let events: usize = match payload {
        Payload::Metrics => contents.map(n_points).sum(),
        Payload::Logs | Payload::Traces => contents.count(),
    };
    body.len() + events * EVENT_BYTES
}

/// Returns the memory of a decoded body of `body` bytes until it is stored, in bytes.
pub fn decoded_bytes(decoded: &Decoded, body: usize) -> usize {
    body + decoded.n_events_and_samples() * EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
    use prost::Message;

    use super::{EVENT_BYTES, Payload, estimate_decoded_bytes};
    use crate::fixture::{rank_2, records, request, span, spans, straggler, wait, waits};

    #[test]
    fn empty_records_count_as_events() {
        let body = records(Vec::new(), vec![LogRecord::default(); 1_000]).encode_to_vec();
        assert!(body.len() < 3_000);
        let estimate = estimate_decoded_bytes(Payload::Logs, &body);
        assert_eq!(estimate, body.len() + 1_000 * EVENT_BYTES);
    }

    #[test]
    fn empty_points_count_as_events() {
        let points = vec![HistogramDataPoint::default(); 1_000];
        let body = request(Vec::new(), vec![waits(points)]).encode_to_vec();
        assert!(body.len() < 3_000);
        let estimate = estimate_decoded_bytes(Payload::Metrics, &body);
        assert_eq!(estimate, body.len() + 1_000 * EVENT_BYTES);
    }

    #[test]
    fn an_ordinary_request_expands_to_several_times_its_size() {
        let metrics = request(rank_2(), vec![waits(vec![wait(); 1_000])]).encode_to_vec();
        let logs = records(rank_2(), vec![straggler(); 1_000]).encode_to_vec();
        let traces = spans(rank_2(), vec![span(); 1_000]).encode_to_vec();
        for (payload, body) in [
            (Payload::Metrics, metrics),
            (Payload::Logs, logs),
            (Payload::Traces, traces),
        ] {
            let times = estimate_decoded_bytes(payload, &body) / body.len();
            assert!((2..20).contains(&times), "{times}");
        }
    }

    #[test]
    fn a_cut_off_body_ends_the_count() {
        let body = request(rank_2(), vec![waits(vec![wait(); 10])]).encode_to_vec();
        let whole = estimate_decoded_bytes(Payload::Metrics, &body);
        for end in 0..body.len() {
            assert!(estimate_decoded_bytes(Payload::Metrics, &body[..end]) <= whole);
        }
    }
}
