//! Random spans.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{attributes, key_value, perhaps, resource, scope, several, time, words};

fn event(rng: &mut ChaCha8Rng) -> Event {
    Event {
        time_unix_nano: time(rng),
        name: words(rng),
        attributes: several(rng, key_value),
        dropped_attributes_count: rng.random(),
    }
}

fn link(rng: &mut ChaCha8Rng) -> Link {
    Link {
        trace_id: vec![3; 16],
        span_id: vec![4; 8],
        trace_state: words(rng),
        attributes: several(rng, key_value),
        dropped_attributes_count: rng.random(),
        flags: rng.random(),
    }
}

fn status(rng: &mut ChaCha8Rng) -> Status {
    Status {
        message: words(rng),
        code: rng.random_range(-1..4),
    }
}

pub(in super::super) fn span(rng: &mut ChaCha8Rng) -> Span {
    Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        trace_state: words(rng),
        parent_span_id: perhaps(rng, |_| vec![5; 8]).unwrap_or_default(),
        flags: rng.random(),
        name: words(rng),
        kind: rng.random_range(-1..7),
        start_time_unix_nano: time(rng),
        end_time_unix_nano: time(rng),
        attributes: attributes(rng, Vec::new()),
        dropped_attributes_count: rng.random(),
        events: several(rng, event),
        dropped_events_count: rng.random(),
        links: several(rng, link),
        dropped_links_count: rng.random(),
        status: perhaps(rng, status),
    }
}

pub(in crate::decode) fn traces(rng: &mut ChaCha8Rng) -> ExportTraceServiceRequest {
    let scopes = |rng: &mut ChaCha8Rng| ScopeSpans {
        scope: perhaps(rng, scope),
        spans: several(rng, span),
        schema_url: words(rng),
    };
    let resources = several(rng, resource);
    let resource_spans = resources.into_iter().map(|resource| ResourceSpans {
        resource: Some(resource),
        scope_spans: several(rng, scopes),
        schema_url: words(rng),
    });
    ExportTraceServiceRequest {
        resource_spans: resource_spans.collect(),
    }
}
