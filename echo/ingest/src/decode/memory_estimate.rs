//! How much memory the events of a body take, found out before they are made.
//!
//! A data point of a few bytes becomes an event of some three hundred, so that a body of a few megabytes can unfold
//! into half a gigabyte. This counts the points without reading them; it stops where the body is malformed, as the
//! decoder will. What the decoder holds beside the events is small: it reads texts and lists where they lie, keeps the
//! attributes of one resource and of one point at a time, and not more of them than a text can hold.

use echo_core::model::event::Event;

use super::wire::Fields;
use super::wire::metrics::{contents, n_points, scopes};
use super::{Decoded, Payload};

/// Memory that an event or a sampled operation takes until it is stored, beside its texts, in bytes: in a list that grows by
/// doubling, then in the columns that are appended, then in the engine's transaction.
pub const EVENT_BYTES: usize = 1024;

const _: () = assert!(EVENT_BYTES >= 2 * size_of::<Event>());

/// Memory that the body takes once it is decoded, in bytes. Texts take as much as in the body.
pub fn unfolded_bytes(payload: Payload, body: &[u8]) -> usize {
    let contents = Fields::of(body).all(1).flat_map(scopes).flat_map(contents);
    let events: usize = match payload {
        Payload::Metrics => contents.map(n_points).sum(),
        Payload::Logs | Payload::Traces => contents.count(),
    };
    body.len() + events * EVENT_BYTES
}

/// Memory that a decoded body of so many bytes takes until it is stored, in bytes.
pub fn kept_bytes(decoded: &Decoded, body: usize) -> usize {
    body + decoded.weight() * EVENT_BYTES
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
    use prost::Message;

    use super::{EVENT_BYTES, Payload, unfolded_bytes};
    use crate::fixture::{rank_2, records, request, span, spans, straggler, wait, waits};

    #[test]
    fn empty_records_count_as_events() {
        let body = records(Vec::new(), vec![LogRecord::default(); 1_000]).encode_to_vec();
        assert!(body.len() < 3_000);
        let unfolded = unfolded_bytes(Payload::Logs, &body);
        assert_eq!(unfolded, body.len() + 1_000 * EVENT_BYTES);
    }

    #[test]
    fn empty_points_count_as_events() {
        let points = vec![HistogramDataPoint::default(); 1_000];
        let body = request(Vec::new(), vec![waits(points)]).encode_to_vec();
        assert!(body.len() < 3_000);
        let unfolded = unfolded_bytes(Payload::Metrics, &body);
        assert_eq!(unfolded, body.len() + 1_000 * EVENT_BYTES);
    }

    #[test]
    fn an_ordinary_request_unfolds_to_several_times_its_size() {
        let metrics = request(rank_2(), vec![waits(vec![wait(); 1_000])]).encode_to_vec();
        let logs = records(rank_2(), vec![straggler(); 1_000]).encode_to_vec();
        let traces = spans(rank_2(), vec![span(); 1_000]).encode_to_vec();
        for (payload, body) in [
            (Payload::Metrics, metrics),
            (Payload::Logs, logs),
            (Payload::Traces, traces),
        ] {
            let times = unfolded_bytes(payload, &body) / body.len();
            assert!((2..20).contains(&times), "{times}");
        }
    }

    #[test]
    fn a_cut_off_body_ends_the_count() {
        let body = request(rank_2(), vec![waits(vec![wait(); 10])]).encode_to_vec();
        let whole = unfolded_bytes(Payload::Metrics, &body);
        for end in 0..body.len() {
            assert!(unfolded_bytes(Payload::Metrics, &body[..end]) <= whole);
        }
    }
}
