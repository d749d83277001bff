//! From an OTLP request of metrics, log records or spans to events. Pure: no clock, no task, no log line.
//!
//! Every data point, record or span becomes one [`Event`] or one counted rejection, and never fails its neighbours. Identity and
//! the collectives that a point covers are lifted out of the attributes (names in [`fleet_proto::attribute`]):
//! the resource wins over the point, and within one list the name that is listed first. What became a column is
//! removed; everything else is kept as JSON.
//!
//! Invariant: accepted events hold finite, consistent values and plausible times, so that no later layer checks
//! again. Work and memory are bounded by the size of the request even if it was made to hurt.

use std::sync::Arc;

use echo_core::ids::MetricName;
use echo_core::model::event::{Event, Origin};
use echo_core::units::Nanos;

use self::attributes::{Classes, Columns, Picked, Taken, list};
use self::extra_attributes::Rest;
use self::interner::Names;
use self::point::{Quantity, Temporality};
use self::reject::{RejectReason, Rejections};
use self::wire::attributes::Attributes;
use self::wire::metrics::{Metric, Scope, contents, resources, scopes};
use self::wire::point::{Exemplar, Kind, Lists, Point};
use self::wire::value::Value;
use self::wire::{Broken, Fields, metrics};

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

/// What became of the points of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The points that are fit to be stored, in the order of the request.
    pub events: Vec<Event>,
    /// The others.
    pub rejections: Rejections,
}

impl Decoded {
    /// Events and the operations sampled in them.
    pub fn weight(&self) -> usize {
        let samples: usize = self.events.iter().map(|event| event.samples.len()).sum();
        self.events.len() + samples
    }

    /// Turns away after all the events at these places, which are in order.
    pub fn refuse(&mut self, places: impl IntoIterator<Item = (usize, RejectReason)>) {
        let mut places = places.into_iter().peekable();
        let mut place = 0..;
        let rejections = &mut self.rejections;
        self.events.retain(|_| {
            let here = place.next();
            let refused = places.next_if(|(place, _)| Some(*place) == here);
            if let Some((_, reason)) = refused {
                rejections.reject(reason);
            }
            refused.is_none()
        });
    }
}

/// What a request carries.
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
    /// Name of the message that such a request is.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Metrics => "ExportMetricsServiceRequest",
            Self::Logs => "ExportLogsServiceRequest",
            Self::Traces => "ExportTraceServiceRequest",
        }
    }
}

/// The bytes are no OTLP request of that kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is not an OTLP {}: {reason}", .payload.message())]
pub struct Malformed {
    payload: Payload,
    reason: Broken,
}

/// Decodes the body of a request that arrived at `received`.
pub fn decode_body(payload: Payload, body: &[u8], received: Nanos) -> Result<Decoded, Malformed> {
    let decoder = Decoder::new(received);
    let request = Fields::of(body);
    let decoded = match payload {
        Payload::Metrics => decoder.decode(request, Decoder::scope),
        Payload::Logs => decoder.decode(request, Decoder::records),
        Payload::Traces => decoder.decode(request, Decoder::spans),
    };
    decoded.map_err(|reason| Malformed { payload, reason })
}

struct Decoder<'a> {
    received: Nanos,
    names: Names<'a>,
    events: Vec<Event>,
    rejections: Rejections,
}

/// The lists of the point, record or span that is being read.
struct Sheet<'a> {
    attributes: Attributes<'a>,
    classes: Classes<'a>,
    exemplars: Vec<Exemplar<'a>>,
}

/// What all points of one metric have in common.
struct Series {
    metric: MetricName,
    unit: Arc<str>,
    kind: Kind,
    quantity: Quantity,
    temporality: Temporality,
}

/// The points of one resource, with the identity of the point before: neighbours mostly share it.
struct Sender<'r, 'a> {
    columns: &'r Columns<'r, 'a>,
    last: Option<Identity<'a>>,
}

struct Identity<'a> {
    /// Absent when the point says nothing on identity.
    of_point: Option<[Option<Value<'a>>; identity::COLUMNS.len()]>,
    found: Result<(Arc<Origin>, Taken), RejectReason>,
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
        names: &mut Names<'a>,
    ) -> Result<(Arc<Origin>, Taken), RejectReason> {
        let of_point = point
            .fills(identity::SET)
            .then(|| identity::COLUMNS.map(|column| point.value(column)));
        if let Some(last) = &self.last
            && last.of_point == of_point
        {
            return last.found.clone();
        }
        let mut picked = Picked::new(self.columns, point, Taken::default());
        let found = identity::origin(&mut picked, names)
            .map(|origin| (names.origin(origin), picked.taken()));
        self.last = Some(Identity {
            of_point,
            found: found.clone(),
        });
        found
    }
}

impl Sheet<'_> {
    fn new() -> Self {
        Self {
            attributes: list(),
            classes: Classes::default(),
            exemplars: Vec::new(),
        }
    }
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

    /// Goes through the scopes of all resources; `each` turns what lies in one into events.
    fn decode(
        mut self,
        request: Fields<'a>,
        each: impl Fn(&mut Self, Fields<'a>, &mut Sender<'_, 'a>, &mut Sheet<'a>) -> Result<(), Broken>,
    ) -> Result<Decoded, Broken> {
        let (mut attributes, mut classes) = (list(), Classes::default());
        let mut sheet = Sheet::new();
        resources(request, |resource| {
            metrics::attributes(resource, &mut attributes)?;
            let columns = Columns::of(attributes.present(), &mut classes);
            let mut sender = Sender::new(&columns);
            scopes(resource).try_for_each(|scope| each(&mut self, scope, &mut sender, &mut sheet))
        })?;
        Ok(self.finish())
    }

    fn scope(
        &mut self,
        scope_metrics: Fields<'a>,
        sender: &mut Sender<'_, 'a>,
        sheet: &mut Sheet<'a>,
    ) -> Result<(), Broken> {
        let scope = Scope::read(scope_metrics, list())?;
        let mut rest = Rest::new(sender.columns, &scope);
        for metric in contents(scope_metrics) {
            self.metric(&Metric::read(metric)?, sender, &mut rest, sheet)?;
        }
        Ok(())
    }

    fn metric(
        &mut self,
        metric: &Metric<'a>,
        sender: &mut Sender<'_, 'a>,
        rest: &mut Rest<'_, 'a>,
        sheet: &mut Sheet<'a>,
    ) -> Result<(), Broken> {
        let Some(data) = &metric.data else {
            // A kind that this build does not know hides its points; it counts as one, so that the sender hears of it.
            self.rejections.saw_point();
            self.rejections.reject(RejectReason::UnsupportedKind);
            return Ok(());
        };
        let series = self.series(metric, data.kind, point::temporality(data));
        let lists = Lists {
            attributes: &mut sheet.attributes,
            exemplars: &mut sheet.exemplars,
        };
        let classes = &mut sheet.classes;
        metric.points(lists, |point, lists| {
            self.rejections.saw_point();
            let event = series
                .as_ref()
                .map_err(|reason| *reason)
                .and_then(|series| {
                    let columns = Columns::of(lists.attributes.present(), classes);
                    self.event((point, lists.exemplars), &columns, series, (sender, rest))
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
        let (name, unit, quantity) = self.names.series(metric)?;
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
        (sender, rest): (&mut Sender<'_, 'a>, &mut Rest<'_, 'a>),
    ) -> Result<Event, RejectReason> {
        let (origin, taken) = sender.identity(columns, &mut self.names)?;
        let (start, timestamp) = point::times(point, self.received)?;
        let reading = point::reading(point, series.kind, series.quantity)?;
        let mut picked = Picked::new(sender.columns, columns, taken);
        let block = block::block(&mut picked, &mut self.names)?;
        let samples = match &block {
            Some(_) => point::samples(exemplars, series.quantity, self.received)?,
            // Sequence numbers mean nothing without their communicator.
            None => Vec::new(),
        };
        let attrs = rest.text(columns, picked.taken(), series.temporality, &mut self.names)?;
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
