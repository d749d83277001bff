//! Decoder of spans. A span is stored as an event whose metric is its name and whose reading is its
//! duration. Its identity, kind and status are kept as attributes; its events and links are
//! dropped. It covers no collectives, whatever its attributes, and may not have the name of a
//! signal, because only data points are analysed.

use echo_core::model::event::{Event, Reading};
use echo_core::units::Nanos;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;

use super::attributes::{Columns, empty_list};
use super::extra_attributes::ExtraAttributes;
use super::point::instant;
use super::reject::RejectReason;
use super::wire::metrics::{Scope, contents};
use super::wire::spans::Span;
use super::wire::value::Value;
use super::wire::{Fields, WireError};
use super::{Decoder, Scratch, Sender};

/// Unit of the duration.
const UNIT: &str = "ms";

/// Prefixes of the names of signals and verdicts.
const RESERVED: [&str; 3] = ["fleet.", "ingero.", "nccl.collective."];

const NANOS_PER_MS: f64 = 1e6;

impl<'a> Decoder<'a> {
    /// Turns the spans of a scope into events.
    pub(super) fn spans(
        &mut self,
        scope_spans: Fields<'a>,
        sender: &mut Sender<'_, 'a>,
        scratch: &mut Scratch<'a>,
    ) -> Result<(), WireError> {
        let scope = Scope::read(scope_spans, empty_list())?;
        let mut extra = ExtraAttributes::new(sender.columns, &scope);
        for span in contents(scope_spans) {
            let span = Span::read(span, &mut scratch.attributes)?;
            self.rejections.count_point();
            match self.span(&span, scratch, sender, &mut extra) {
                Ok(event) => self.events.push(event),
                Err(reason) => self.rejections.reject(reason),
            }
        }
        Ok(())
    }

    fn span(
        &mut self,
        span: &Span<'a>,
        scratch: &mut Scratch<'a>,
        sender: &mut Sender<'_, 'a>,
        extra: &mut ExtraAttributes<'_, 'a>,
    ) -> Result<Event, RejectReason> {
        if RESERVED
            .iter()
            .any(|reserved| span.name.starts_with(reserved))
        {
            return Err(RejectReason::ReservedName);
        }
        let columns = Columns::new(scratch.attributes.present(), &mut scratch.cache);
        let (origin, used) =
            sender.identity(&columns, self.default_cluster.as_ref(), &mut self.interner)?;
        let end = instant(span.end, self.received)?;
        let start = Nanos::plausible(span.start).filter(|start| *start <= end);
        let start = start.ok_or(RejectReason::ImplausibleTime)?;
        let attrs = extra.text_for_span(&columns, used, &span_fields(span), &mut self.interner)?;
        Ok(Event {
            timestamp: end,
            start: Some(start),
            origin,
            metric: self.interner.metric(span.name)?,
            unit: self.interner.unit(UNIT)?,
            reading: Reading::Double(duration_ms(start, end)),
            block: None,
            attrs,
            samples: Vec::new(),
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "years in nanoseconds are off by less than a microsecond"
)]
fn duration_ms(start: Nanos, end: Nanos) -> f64 {
    (end.value() - start.value()) as f64 / NANOS_PER_MS
}

/// Returns the fields of the span itself as attributes.
fn span_fields<'a>(span: &Span<'a>) -> Vec<(&'static str, Value<'a>)> {
    let mut fields = vec![("otel.kind", Value::Text("span"))];
    let ids = [
        ("otel.trace_id", span.trace_id),
        ("otel.span_id", span.span_id),
        ("otel.parent_span_id", span.parent_span_id),
    ];
    let ids = ids.into_iter().filter(|(_, id)| !id.is_empty());
    fields.extend(ids.map(|(name, id)| (name, Value::Bytes(id))));
    let texts = [
        ("otel.span_kind", kind(span.kind)),
        ("otel.status_code", status(span.status.code)),
        ("otel.status_description", span.status.message),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    fields.extend(texts.map(|(name, text)| (name, Value::Text(text))));
    fields
}

/// Returns the name of the kind; empty if it is unspecified or unknown.
fn kind(number: i32) -> &'static str {
    match SpanKind::try_from(number) {
        Ok(SpanKind::Internal) => "internal",
        Ok(SpanKind::Server) => "server",
        Ok(SpanKind::Client) => "client",
        Ok(SpanKind::Producer) => "producer",
        Ok(SpanKind::Consumer) => "consumer",
        Ok(SpanKind::Unspecified) | Err(_) => "",
    }
}

/// Returns the name of the status; empty if it is unset or unknown.
fn status(number: i32) -> &'static str {
    match StatusCode::try_from(number) {
        Ok(StatusCode::Ok) => "OK",
        Ok(StatusCode::Error) => "ERROR",
        Ok(StatusCode::Unset) | Err(_) => "",
    }
}

#[cfg(test)]
mod tests {
    use echo_core::model::event::Reading;
    use opentelemetry_proto::tonic::trace::v1::Span;
    use prost::Message;
    use serde_json::{Value, json};

    use crate::decode::reject::RejectReason;
    use crate::decode::{Decoded, Payload, decode_body};
    use crate::fixture::{END, RECEIVED, START, int, rank_2, span, spans, text};

    fn decoded(span: Span) -> Decoded {
        let body = spans(rank_2(), vec![span]).encode_to_vec();
        decode_body(Payload::Traces, &body, RECEIVED, None).unwrap()
    }

    fn rejected(span: Span) -> Option<RejectReason> {
        let first = decoded(span).rejections.iter().next();
        first.map(|(reason, _)| reason)
    }

    #[test]
    fn a_span_becomes_an_event_with_duration_and_other_attributes() {
        let decoded = decoded(span());
        let [event] = &decoded.events[..] else {
            panic!("{decoded:?}");
        };
        assert_eq!(event.metric.as_str(), "load batch");
        assert_eq!(event.reading, Reading::Double(2_000.0));
        assert_eq!(&*event.unit, "ms");
        assert_eq!(event.timestamp.value(), i64::try_from(END).unwrap());
        assert_eq!(event.start.unwrap().value(), i64::try_from(START).unwrap());
        assert_eq!(event.origin.rank.unwrap().rank().value(), 2);
        assert_eq!(event.block, None);
        let attrs: Value = serde_json::from_str(&event.attrs).unwrap();
        let expected = json!({
            "service.name": "trainer",
            "otel.kind": "span",
            "otel.trace_id": "0102030405060708090a0b0c0d0e0f10",
            "otel.span_id": "aa00000000000001",
            "otel.span_kind": "client",
            "otel.status_code": "ERROR",
            "otel.status_description": "no such file",
            "file": "shard-7",
        });
        assert_eq!(attrs, expected);
    }

    #[test]
    fn a_span_covers_no_collectives_and_attributes_do_not_override_its_ids() {
        let mut span = span();
        span.attributes = vec![
            text("nccl.comm_id_hash", "1f"),
            int("nccl.seq_first", 1),
            text("otel.span_id", "forged"),
        ];
        let decoded = decoded(span);
        let event = &decoded.events[0];
        assert_eq!(event.block, None);
        let attrs: Value = serde_json::from_str(&event.attrs).unwrap();
        assert_eq!(attrs["nccl.comm_id_hash"], "1f");
        assert_eq!(attrs["otel.span_id"], "aa00000000000001");
    }

    #[test]
    fn spans_are_rejected_one_by_one() {
        let with = |change: fn(&mut Span)| {
            let mut span = span();
            change(&mut span);
            rejected(span)
        };
        assert_eq!(with(|_| ()), None);
        let unnamed = with(|span| span.name.clear());
        assert_eq!(unnamed, Some(RejectReason::EmptyMetricName));
        let reserved = with(|span| "ingero.node.health_score".clone_into(&mut span.name));
        assert_eq!(reserved, Some(RejectReason::ReservedName));
        let backwards = with(|span| span.start_time_unix_nano = END + 1);
        assert_eq!(backwards, Some(RejectReason::ImplausibleTime));
        let open = with(|span| span.end_time_unix_nano = 0);
        assert_eq!(open, Some(RejectReason::ImplausibleTime));
        let no_start = with(|span| span.start_time_unix_nano = 0);
        assert_eq!(no_start, Some(RejectReason::ImplausibleTime));
        let request = spans(Vec::new(), vec![span()]).encode_to_vec();
        let anonymous = decode_body(Payload::Traces, &request, RECEIVED, None).unwrap();
        assert_eq!(anonymous.rejections.count(RejectReason::MissingCluster), 1);
    }
}
