//! Decoder from OTLP requests of metrics, log records or spans to events. Pure: no clock, no task,
//! no log line. Every data point, record or span becomes one [`Event`] or one counted rejection,
//! and never affects its neighbours.
//!
//! Identity and the collectives that a point covers are extracted from the attributes (names in
//! [`fleet_proto::attribute`]). The resource takes precedence over the point, and within one list
//! the name that is listed first there. Extracted attributes are removed; all others are kept as
//! JSON.
//!
//! Invariant: accepted events have bounded, consistent values and plausible times, so that no later
//! layer checks again. Work and memory are bounded by the size of the request, even for a hostile
//! one.

use std::sync::Arc;

use echo_core::ids::{ClusterId, MetricName};
use echo_core::model::event::{Event, Origin};
use echo_core::units::Nanos;

use self::attributes::{ColumnCache, ColumnReader, Columns, UsedColumns, empty_list};
use self::extra_attributes::ExtraAttributes;
use self::interner::Interner;
use self::point::{Quantity, Temporality};
use self::reject::{RejectReason, Rejections};
use self::wire::attributes::Attributes;
use self::wire::metrics::{Metric, Scope, contents, resources, scopes};
use self::wire::point::{Exemplar, Kind, Lists, Point};
use self::wire::value::Value;
use self::wire::{Fields, WireError, metrics};

mod attributes;
mod block;
mod extra_attributes;
mod identity;
mod interner;
pub mod json;
mod label;
mod logs;
pub mod memory_estimate;
mod point;
pub mod reject;
#[cfg(test)]
mod tests;
mod traces;
mod wire;

/// Typical size of a point of an agent, bytes.
const TYPICAL_POINT_BYTES: usize = 320;

/// Maximum number of events for which a list is allocated before they are found.
const MAX_EXPECTED_EVENTS: usize = 256;

/// Result of decoding a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// Valid points, in the order of the request.
    pub events: Vec<Event>,
    /// Rejected points.
    pub rejections: Rejections,
}

impl Decoded {
    /// Returns the number of events plus the operations sampled in them.
    pub fn n_events_and_samples(&self) -> usize {
        let samples: usize = self.events.iter().map(|event| event.samples.len()).sum();
        self.events.len() + samples
    }

    /// Rejects the events at these indexes, which must be in ascending order.
    pub fn reject_at(&mut self, rejected: impl IntoIterator<Item = (usize, RejectReason)>) {
        let mut rejected = rejected.into_iter().peekable();
        let mut index = 0..;
        let rejections = &mut self.rejections;
        self.events.retain(|_| {
            let current = index.next();
            let rejected_here = rejected.next_if(|(index, _)| Some(*index) == current);
            if let Some((_, reason)) = rejected_here {
                rejections.reject(reason);
            }
            rejected_here.is_none()
        });
    }
}

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Payload {
    /// Data points: an `ExportMetricsServiceRequest`.
    Metrics,
    /// Log records: an `ExportLogsServiceRequest`.
    Logs,
    /// Spans: an `ExportTraceServiceRequest`.
    Traces,
}

impl Payload {
    /// Returns the name of the protobuf message.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Metrics => "ExportMetricsServiceRequest",
            Self::Logs => "ExportLogsServiceRequest",
            Self::Traces => "ExportTraceServiceRequest",
        }
    }
}

/// Error for a body that is not an OTLP request of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is not an OTLP {}: {reason}", .payload.message())]
pub struct Malformed {
    payload: Payload,
    reason: WireError,
}

/// Decodes the body of a request that arrived at `received`.
/// Points, records and spans that name no cluster belong to `default_cluster`, if there is one.
pub fn decode_body(
    payload: Payload,
    body: &[u8],
    received: Nanos,
    default_cluster: Option<ClusterId>,
) -> Result<Decoded, Malformed> {
    let decoder = Decoder::new(received, body.len(), default_cluster);
    let request = Fields::new(body);
    let decoded = match payload {
        Payload::Metrics => decoder.decode(request, Decoder::scope),
        Payload::Logs => decoder.decode(request, Decoder::records),
        Payload::Traces => decoder.decode(request, Decoder::spans),
    };
    decoded.map_err(|reason| Malformed { payload, reason })
}

struct Decoder<'a> {
    received: Nanos,
    default_cluster: Option<ClusterId>,
    interner: Interner<'a>,
    events: Vec<Event>,
    rejections: Rejections,
}

/// Reused buffers for the lists of a point, record or span.
struct Scratch<'a> {
    attributes: Attributes<'a>,
    cache: ColumnCache<'a>,
    exemplars: Vec<Exemplar<'a>>,
}

/// Properties that all points of a metric share.
struct Series {
    metric: MetricName,
    unit: Arc<str>,
    kind: Kind,
    quantity: Quantity,
    temporality: Temporality,
}

/// Sender of one resource, with the identity of the previous point, which most neighbours share.
struct Sender<'r, 'a> {
    columns: &'r Columns<'r, 'a>,
    last: Option<Identity<'a>>,
}

struct Identity<'a> {
    /// Identity attributes of the point; `None` if it has none.
    point_columns: Option<[Option<Value<'a>>; identity::COLUMNS.len()]>,
    found: Result<(Arc<Origin>, UsedColumns), RejectReason>,
}

impl<'r, 'a> Sender<'r, 'a> {
    const fn new(columns: &'r Columns<'r, 'a>) -> Self {
        Self {
            columns,
            last: None,
        }
    }

    fn identity(
        &mut self,
        point: &Columns<'_, 'a>,
        default_cluster: Option<&ClusterId>,
        interner: &mut Interner<'a>,
    ) -> Result<(Arc<Origin>, UsedColumns), RejectReason> {
        let point_columns = point
            .fills(identity::SET)
            .then(|| identity::COLUMNS.map(|column| point.value(column)));
        if let Some(last) = &self.last
            && last.point_columns == point_columns
        {
            return last.found.clone();
        }
        let mut reader = ColumnReader::new(self.columns, point, UsedColumns::default());
        let found = identity::origin(&mut reader, default_cluster, interner)
            .map(|origin| (interner.origin(origin), reader.used()));
        self.last = Some(Identity {
            point_columns,
            found: found.clone(),
        });
        found
    }
}

impl Scratch<'_> {
    fn new() -> Self {
        Self {
            attributes: empty_list(),
            cache: ColumnCache::default(),
            exemplars: Vec::new(),
        }
    }
}

impl<'a> Decoder<'a> {
    fn new(received: Nanos, body_bytes: usize, default_cluster: Option<ClusterId>) -> Self {
        let expected = (body_bytes / TYPICAL_POINT_BYTES).min(MAX_EXPECTED_EVENTS);
        Self {
            received,
            default_cluster,
            interner: Interner::default(),
            events: Vec::with_capacity(expected),
            rejections: Rejections::default(),
        }
    }

    fn finish(self) -> Decoded {
        Decoded {
            events: self.events,
            rejections: self.rejections,
        }
    }

    /// Decodes all resources; `each` turns the contents of one scope into events.
    fn decode(
        mut self,
        request: Fields<'a>,
        each: impl Fn(
            &mut Self,
            Fields<'a>,
            &mut Sender<'_, 'a>,
            &mut Scratch<'a>,
        ) -> Result<(), WireError>,
    ) -> Result<Decoded, WireError> {
        let (mut attributes, mut cache) = (empty_list(), ColumnCache::default());
        let mut scratch = Scratch::new();
        resources(request, |resource| {
            metrics::attributes(resource, &mut attributes)?;
            let columns = Columns::new(attributes.present(), &mut cache);
            let mut sender = Sender::new(&columns);
            scopes(resource).try_for_each(|scope| each(&mut self, scope, &mut sender, &mut scratch))
        })?;
        Ok(self.finish())
    }

    fn scope(
        &mut self,
        scope_metrics: Fields<'a>,
        sender: &mut Sender<'_, 'a>,
        scratch: &mut Scratch<'a>,
    ) -> Result<(), WireError> {
        let scope = Scope::read(scope_metrics, empty_list())?;
        let mut extra = ExtraAttributes::new(sender.columns, &scope);
        for metric in contents(scope_metrics) {
            self.metric(&Metric::read(metric)?, sender, &mut extra, scratch)?;
        }
        Ok(())
    }

    fn metric(
        &mut self,
        metric: &Metric<'a>,
        sender: &mut Sender<'_, 'a>,
        extra: &mut ExtraAttributes<'_, 'a>,
        scratch: &mut Scratch<'a>,
    ) -> Result<(), WireError> {
        let Some(data) = &metric.data else {
            // The points of an unknown kind cannot be read; it counts as one point, so that the
            // sender gets a rejection.
            self.rejections.count_point();
            self.rejections.reject(RejectReason::UnsupportedKind);
            return Ok(());
        };
        let series = self.series(metric, data.kind, point::temporality(data));
        let lists = Lists {
            attributes: &mut scratch.attributes,
            exemplars: &mut scratch.exemplars,
        };
        let cache = &mut scratch.cache;
        metric.points(lists, |point, lists| {
            self.rejections.count_point();
            let event = series
                .as_ref()
                .map_err(|reason| *reason)
                .and_then(|series| {
                    let columns = Columns::new(lists.attributes.present(), cache);
                    self.event((point, lists.exemplars), &columns, series, (sender, extra))
                });
            match event {
                Ok(event) => self.events.push(event),
                Err(reason) => self.rejections.reject(reason),
            }
        })
    }

    fn series(
        &mut self,
        metric: &Metric<'a>,
        kind: Kind,
        temporality: Temporality,
    ) -> Result<Series, RejectReason> {
        let (name, unit, quantity) = self.interner.series(metric)?;
        Ok(Series {
            metric: name,
            unit,
            kind,
            quantity,
            temporality,
        })
    }

    fn event(
        &mut self,
        (point, exemplars): (&Point, &[Exemplar<'a>]),
        columns: &Columns<'_, 'a>,
        series: &Series,
        (sender, extra): (&mut Sender<'_, 'a>, &mut ExtraAttributes<'_, 'a>),
    ) -> Result<Event, RejectReason> {
        let (origin, used) =
            sender.identity(columns, self.default_cluster.as_ref(), &mut self.interner)?;
        let (start, timestamp) = point::times(point, self.received)?;
        let reading = point::reading(point, series.kind, series.quantity)?;
        let mut reader = ColumnReader::new(sender.columns, columns, used);
        let block = block::block(&mut reader, &mut self.interner)?;
        let samples = match &block {
            Some(_) => point::samples(exemplars, series.quantity, self.received)?,
            // Sequence numbers have no meaning without a communicator.
            None => Vec::new(),
        };
        let attrs = extra.text(
            columns,
            reader.used(),
            series.temporality,
            &mut self.interner,
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
