//! How much memory a body will take once it is decoded, found out before it is.
//!
//! An empty data point is two bytes on the wire and some two hundred in memory, so that a body of a few megabytes
//! can unfold into gigabytes. This walks the wire format with the shape of OTLP in hand and adds up the
//! sizes of the messages; it stops where the body is malformed, as the decoder will.

use opentelemetry_proto::tonic::common::v1::{AnyValue, EntityRef, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogramDataPoint, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, SummaryDataPoint, summary_data_point::ValueAtQuantile,
};

use super::Payload;

/// Deepest nesting that the decoder follows.
const MAX_DEPTH: u32 = 100;

/// A message of OTLP, by what it can hold.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Logs,
    ResourceLogs,
    ScopeLogs,
    Record,
    Metrics,
    ResourceMetrics,
    Resource,
    EntityRef,
    ScopeMetrics,
    Scope,
    Metric,
    Numbers,
    Histograms,
    Exponentials,
    Summaries,
    Number,
    Histogram,
    Exponential,
    Summary,
    Exemplar,
    KeyValue,
    AnyValue,
    Array,
    List,
    /// Holds nothing that grows.
    Leaf,
}

impl Shape {
    /// What the field is, and how much memory one of it takes where it is kept in a list.
    const fn field(self, number: u64) -> Option<(Self, usize)> {
        Some(match (self, number) {
            (Self::Logs, 1) => (Self::ResourceLogs, size_of::<ResourceLogs>()),
            (Self::ResourceLogs, 2) => (Self::ScopeLogs, size_of::<ScopeLogs>()),
            (Self::ScopeLogs, 2) => (Self::Record, size_of::<LogRecord>()),
            (Self::Record, 5) | (Self::KeyValue, 2) => (Self::AnyValue, 0),
            (Self::Metrics, 1) => (Self::ResourceMetrics, size_of::<ResourceMetrics>()),
            (Self::ResourceMetrics | Self::ResourceLogs, 1) => (Self::Resource, 0),
            (Self::ResourceMetrics, 2) => (Self::ScopeMetrics, size_of::<ScopeMetrics>()),
            (Self::Resource, 3) => (Self::EntityRef, size_of::<EntityRef>()),
            (Self::EntityRef, 3 | 4) => (Self::Leaf, size_of::<String>()),
            (Self::ScopeMetrics | Self::ScopeLogs, 1) => (Self::Scope, 0),
            (Self::ScopeMetrics, 2) => (Self::Metric, size_of::<Metric>()),
            (Self::Metric, 5 | 7) => (Self::Numbers, 0),
            (Self::Metric, 9) => (Self::Histograms, 0),
            (Self::Metric, 10) => (Self::Exponentials, 0),
            (Self::Metric, 11) => (Self::Summaries, 0),
            (Self::Numbers, 1) => (Self::Number, size_of::<NumberDataPoint>()),
            (Self::Histograms, 1) => (Self::Histogram, size_of::<HistogramDataPoint>()),
            (Self::Exponentials, 1) => (
                Self::Exponential,
                size_of::<ExponentialHistogramDataPoint>(),
            ),
            (Self::Summaries, 1) => (Self::Summary, size_of::<SummaryDataPoint>()),
            (Self::Summary, 6) => (Self::Leaf, size_of::<ValueAtQuantile>()),
            (Self::Number, 5) | (Self::Histogram, 8) | (Self::Exponential, 11) => {
                (Self::Exemplar, size_of::<Exemplar>())
            }
            (Self::Resource | Self::Exponential | Self::List, 1)
            | (Self::Scope, 3)
            | (Self::Metric, 12)
            | (Self::Record, 6)
            | (Self::Number | Self::Summary | Self::Exemplar, 7)
            | (Self::Histogram, 9) => (Self::KeyValue, size_of::<KeyValue>()),
            (Self::AnyValue, 5) => (Self::Array, 0),
            (Self::AnyValue, 6) => (Self::List, 0),
            (Self::Array, 1) => (Self::AnyValue, size_of::<AnyValue>()),
            _ => return None,
        })
    }
}

/// Memory that the body takes once decoded, in bytes: its messages, and its texts as often as they are long.
pub fn unfolded_bytes(payload: Payload, body: &[u8]) -> usize {
    let shape = match payload {
        Payload::Metrics => Shape::Metrics,
        Payload::Logs => Shape::Logs,
    };
    let mut messages = 0;
    walk(body, shape, MAX_DEPTH, &mut messages);
    messages + body.len()
}

/// Adds the messages inside `message` to `total`; nothing when the message is malformed, which ends the walk.
fn walk(message: &[u8], shape: Shape, depth: u32, total: &mut usize) -> Option<()> {
    let mut rest = message;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let skip = match key & 7 {
            0 => {
                varint(&mut rest)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut rest)?).ok()?,
            5 => 4,
            // Groups are unknown to OTLP; what is inside counts as if it stood outside.
            3 | 4 => 0,
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(skip)?;
        rest = after;
        if key & 7 == 2
            && let Some((inner, size)) = shape.field(key >> 3)
        {
            *total += size;
            walk(content, inner, depth.checked_sub(1)?, total)?;
        }
    }
    Some(())
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
    use prost::Message;

    use super::{Payload, unfolded_bytes};
    use crate::ingest::fixture::{rank_2, records, request, wait, waits};

    #[test]
    fn empty_records_weigh_what_they_take_in_memory() {
        let body = records(Vec::new(), vec![LogRecord::default(); 1_000]).encode_to_vec();
        assert!(body.len() < 3_000);
        let records = 1_000 * size_of::<LogRecord>();
        let unfolded = unfolded_bytes(Payload::Logs, &body);
        assert!((records..records + 5_000).contains(&unfolded), "{unfolded}");
    }

    #[test]
    fn empty_points_weigh_what_they_take_in_memory() {
        let points = vec![HistogramDataPoint::default(); 1_000];
        let body = request(Vec::new(), vec![waits(points)]).encode_to_vec();
        assert!(body.len() < 3_000);
        let points = 1_000 * size_of::<HistogramDataPoint>();
        let unfolded = unfolded_bytes(Payload::Metrics, &body);
        assert!((points..points + 5_000).contains(&unfolded), "{unfolded}");
    }

    #[test]
    fn an_ordinary_request_unfolds_to_several_times_its_size() {
        let body = request(rank_2(), vec![waits(vec![wait(); 1_000])]).encode_to_vec();
        let times = unfolded_bytes(Payload::Metrics, &body) / body.len();
        assert!((2..10).contains(&times), "{times}");
    }

    #[test]
    fn a_cut_off_body_ends_the_walk() {
        let body = request(rank_2(), vec![waits(vec![wait(); 10])]).encode_to_vec();
        let whole = unfolded_bytes(Payload::Metrics, &body);
        for end in 0..body.len() {
            assert!(unfolded_bytes(Payload::Metrics, &body[..end]) <= whole);
        }
    }
}
