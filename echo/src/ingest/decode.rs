//! From an OTLP request of metrics or log records to events. Pure: no clock, no task, no log line.
//!
//! Every data point or record becomes one [`Event`] or one counted rejection, and never fails its neighbours. Identity and
//! the collectives that a point covers are lifted out of the attributes (names in [`fleet_proto::attribute`]):
//! the resource wins over the point, and within one list the name that is listed first. What became a column is
//! removed; everything else is kept as JSON.
//!
//! Invariant: accepted events hold finite, consistent values and plausible times, so that no later layer checks
//! again. Work and memory are bounded by the size of the request even if it was made to hurt.

use std::sync::Arc;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{Metric, ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use self::attributes::{Columns, Picked, Taken};
use self::names::Names;
use self::point::{Point, Quantity};
use self::reject::{RejectReason, Rejections};
use self::rest::{Rest, Temporality};
use crate::ids::MetricName;
use crate::model::event::{Event, Origin};
use crate::units::Nanos;

mod attributes;
mod block;
mod identity;
mod logs;
mod names;
mod point;
pub mod reject;
mod rest;
#[cfg(test)]
mod tests;
pub mod unfold;

/// What became of the points of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The points that are fit to be stored, in the order of the request.
    pub events: Vec<Event>,
    /// The others.
    pub rejections: Rejections,
}

impl Decoded {
    /// What the request costs to keep: its events and the operations sampled in them.
    pub fn weight(&self) -> usize {
        let samples: usize = self.events.iter().map(|event| event.samples.len()).sum();
        self.events.len() + samples
    }
}

/// What a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// Data points: an `ExportMetricsServiceRequest`.
    Metrics,
    /// Log records: an `ExportLogsServiceRequest`.
    Logs,
}

impl Payload {
    /// Name of the message that such a request is.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Metrics => "ExportMetricsServiceRequest",
            Self::Logs => "ExportLogsServiceRequest",
        }
    }
}

/// The bytes are no OTLP request of that kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the body is not an OTLP {}: {reason}", .payload.message())]
pub struct Malformed {
    payload: Payload,
    reason: String,
}

/// Decodes the body of a request that arrived at `received`.
pub fn decode_body(payload: Payload, body: Bytes, received: Nanos) -> Result<Decoded, Malformed> {
    let decoded = match payload {
        Payload::Metrics => {
            ExportMetricsServiceRequest::decode(body).map(|request| decode(request, received))
        }
        Payload::Logs => {
            ExportLogsServiceRequest::decode(body).map(|request| logs::decode(request, received))
        }
    };
    decoded.map_err(|error| Malformed {
        payload,
        reason: error.to_string(),
    })
}

/// Turns a request of metrics that arrived at `received` into events.
pub fn decode(request: ExportMetricsServiceRequest, received: Nanos) -> Decoded {
    let mut decoder = Decoder::new(received);
    for resource in &request.resource_metrics {
        decoder.resource(resource);
    }
    decoder.finish()
}

struct Decoder<'a> {
    received: Nanos,
    names: Names<'a>,
    events: Vec<Event>,
    rejections: Rejections,
}

/// What all points of one metric have in common.
struct Series {
    metric: MetricName,
    unit: Arc<str>,
    quantity: Quantity,
    temporality: Temporality,
}

/// The points of one resource, with the identity of the point before: neighbours mostly share it.
struct Sender<'r, 'a> {
    columns: &'r Columns<'a>,
    last: Option<Identity<'a>>,
}

struct Identity<'a> {
    of_point: [Option<&'a Value>; identity::COLUMNS.len()],
    found: Result<(Arc<Origin>, Taken), RejectReason>,
}

impl<'r, 'a> Sender<'r, 'a> {
    const fn new(columns: &'r Columns<'a>) -> Self {
        Self {
            columns,
            last: None,
        }
    }

    fn identity(
        &mut self,
        point: &Columns<'a>,
        names: &mut Names<'a>,
    ) -> Result<(Arc<Origin>, Taken), RejectReason> {
        let of_point = identity::COLUMNS.map(|column| point.value(column));
        if let Some(last) = &self.last
            && last.of_point == of_point
        {
            return last.found.clone();
        }
        let mut picked = Picked::new(self.columns, point, Taken::default());
        let found =
            identity::origin(&mut picked).map(|origin| (names.origin(origin), picked.taken()));
        self.last = Some(Identity {
            of_point,
            found: found.clone(),
        });
        found
    }
}

/// The columns of a resource; one that is absent has none.
fn columns_of(resource: Option<&Resource>) -> Columns<'_> {
    Columns::of(resource.map_or(&[][..], |resource| &resource.attributes))
}

impl<'a> Decoder<'a> {
    fn new(received: Nanos) -> Self {
        Self {
            received,
            names: Names::default(),
            events: Vec::new(),
            rejections: Rejections::default(),
        }
    }

    fn finish(self) -> Decoded {
        Decoded {
            events: self.events,
            rejections: self.rejections,
        }
    }

    fn resource(&mut self, resource: &'a ResourceMetrics) {
        let columns = columns_of(resource.resource.as_ref());
        let mut sender = Sender::new(&columns);
        for scope in &resource.scope_metrics {
            self.scope(scope, &mut sender);
        }
    }

    fn scope(&mut self, scope: &'a ScopeMetrics, sender: &mut Sender<'_, 'a>) {
        let mut rest = Rest::new(sender.columns, scope.scope.as_ref());
        for metric in &scope.metrics {
            self.metric(metric, sender, &mut rest);
        }
    }

    fn metric(&mut self, metric: &'a Metric, sender: &mut Sender<'_, 'a>, rest: &mut Rest<'_, 'a>) {
        let Some(data) = &metric.data else {
            // A kind that this build does not know hides its points; it counts as one, so that the sender hears of it.
            self.rejections.saw_point();
            self.rejections.reject(RejectReason::UnsupportedKind);
            return;
        };
        let temporality = point::temporality(data);
        let series = self.series(metric, temporality);
        point::for_each(data, |point| {
            self.rejections.saw_point();
            let event = match &series {
                Ok(series) => self.event(point, series, sender, rest),
                Err(reason) => Err(*reason),
            };
            match event {
                Ok(event) => self.events.push(event),
                Err(reason) => self.rejections.reject(reason),
            }
        });
    }

    fn series(
        &mut self,
        metric: &'a Metric,
        temporality: Temporality,
    ) -> Result<Series, RejectReason> {
        Ok(Series {
            metric: self.names.metric(&metric.name)?,
            unit: self.names.unit(&metric.unit)?,
            quantity: Quantity::of(metric),
            temporality,
        })
    }

    fn event(
        &mut self,
        point: Point<'a>,
        series: &Series,
        sender: &mut Sender<'_, 'a>,
        rest: &mut Rest<'_, 'a>,
    ) -> Result<Event, RejectReason> {
        let columns = Columns::of(point.attributes());
        let (origin, taken) = sender.identity(&columns, &mut self.names)?;
        let (start, timestamp) = point.times(self.received)?;
        let reading = point.reading(series.quantity)?;
        let mut picked = Picked::new(sender.columns, &columns, taken);
        let block = block::block(&mut picked, &mut self.names)?;
        let samples = match &block {
            Some(_) => point.samples(series.quantity, self.received)?,
            // Sequence numbers mean nothing without their communicator.
            None => Vec::new(),
        };
        let attrs = rest.text(
            &columns,
            picked.taken(),
            series.temporality,
            &mut self.names,
        )?;
        Ok(Event {
            timestamp,
            start,
            origin,
            metric: series.metric.clone(),
            unit: Arc::clone(&series.unit),
            reading,
            block,
            attrs,
            samples,
        })
    }
}
