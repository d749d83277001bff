//! Measurements of a host for any OTLP receiver.

use std::sync::Arc;

use fleet_agent_core::host::WallClock;
use fleet_agent_core::measurement::{Attribute, AttributeValue, Kind, Measurement, Sample, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tonic::Request;
use tonic::transport::Channel;

use crate::ExportError;
use crate::otlp::encode::key_value;
use crate::otlp::link::Link;
use crate::otlp::status::classify;

/// Name of the instrumentation scope.
const SCOPE: &str = "fleet-agent";

/// Maximum number of points of a request, which keeps it below the 4 MiB that receivers accept.
const MAX_POINTS: usize = 2000;

/// Exporter of measurements to any OTLP/gRPC receiver. It sends no metadata of Echo.
#[derive(Debug, Clone)]
pub struct MeasurementExporter {
    client: MetricsServiceClient<Channel>,
    link: Link,
    resource: Vec<Attribute>,
}

impl MeasurementExporter {
    /// Creates an exporter that connects at the first export, for measurements of a resource.
    pub fn new(link: &Link, resource: Vec<Attribute>) -> Self {
        Self {
            client: MetricsServiceClient::new(link.connect(&Arc::default())),
            link: link.clone(),
            resource,
        }
    }

    /// Sends measurements taken at `now_ns` of the events' clock. What fails is not sent again: the
    /// next measurements contain it.
    pub async fn export(
        &self,
        measurements: Vec<Measurement>,
        clock: WallClock,
        now_ns: u64,
    ) -> Result<(), ExportError> {
        for part in parts(measurements, MAX_POINTS) {
            let mut request = Request::new(encode(&self.resource, &part, clock, now_ns));
            self.link.authorize(request.metadata_mut());
            let sent = self.client.clone().export(request).await;
            sent.map_err(|status| classify(&status))?;
        }
        Ok(())
    }
}

/// Divides measurements into parts of at most `most` points each.
fn parts(measurements: Vec<Measurement>, most: usize) -> Vec<Vec<Measurement>> {
    let mut parts = vec![Vec::new()];
    let mut space = most;
    for mut measurement in measurements {
        while !measurement.points.is_empty() {
            if space == 0 {
                parts.push(Vec::new());
                space = most;
            }
            let rest = measurement
                .points
                .split_off(space.min(measurement.points.len()));
            let points = std::mem::replace(&mut measurement.points, rest);
            space -= points.len();
            if let Some(part) = parts.last_mut() {
                part.push(Measurement {
                    points,
                    ..measurement.clone()
                });
            }
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Encodes measurements of a resource, taken at `now_ns` of the events' clock.
fn encode(
    resource: &[Attribute],
    measurements: &[Measurement],
    clock: WallClock,
    now_ns: u64,
) -> ExportMetricsServiceRequest {
    let times = Times { clock, now_ns };
    let metrics = measurements
        .iter()
        .map(|measurement| times.metric(measurement));
    let scope = InstrumentationScope {
        name: SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes(resource),
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics: metrics.collect(),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

/// Conversion of times.
#[derive(Debug, Clone, Copy)]
struct Times {
    clock: WallClock,
    now_ns: u64,
}

impl Times {
    fn metric(self, measurement: &Measurement) -> Metric {
        let numbers = || {
            let points = measurement.points.iter();
            points.filter_map(|point| self.number(point)).collect()
        };
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match measurement.kind {
            Kind::Counter => Data::Sum(Sum {
                data_points: numbers(),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            Kind::Gauge => Data::Gauge(Gauge {
                data_points: numbers(),
            }),
            Kind::Histogram => Data::Histogram(Histogram {
                data_points: measurement
                    .points
                    .iter()
                    .filter_map(|point| self.distribution(point))
                    .collect(),
                aggregation_temporality: cumulative,
            }),
        };
        Metric {
            name: measurement.name.to_owned(),
            description: measurement.description.to_owned(),
            unit: measurement.unit.to_owned(),
            data: Some(data),
            ..Metric::default()
        }
    }

    /// Returns the start of a point, Unix nanoseconds; 0 for one without a start.
    fn start(self, point: &Sample) -> u64 {
        match point.since_ns {
            0 => 0,
            since_ns => self.clock.unix_ns(since_ns),
        }
    }

    fn number(self, point: &Sample) -> Option<NumberDataPoint> {
        let value = match point.value {
            Value::Count(count) => {
                number_data_point::Value::AsInt(i64::try_from(count).unwrap_or(i64::MAX))
            }
            Value::Number(number) => number_data_point::Value::AsDouble(number),
            Value::Distribution(_) => return None,
        };
        Some(NumberDataPoint {
            attributes: attributes(&point.attributes),
            start_time_unix_nano: self.start(point),
            time_unix_nano: self.clock.unix_ns(self.now_ns),
            value: Some(value),
            ..NumberDataPoint::default()
        })
    }

    fn distribution(self, point: &Sample) -> Option<HistogramDataPoint> {
        let Value::Distribution(distribution) = &point.value else {
            return None;
        };
        let (bounds, bucket_counts) = distribution.buckets();
        Some(HistogramDataPoint {
            attributes: attributes(&point.attributes),
            start_time_unix_nano: self.start(point),
            time_unix_nano: self.clock.unix_ns(self.now_ns),
            count: distribution.histogram.count(),
            sum: Some(distribution.sum()),
            bucket_counts,
            explicit_bounds: bounds
                .into_iter()
                .map(|bound| distribution.scaled(bound))
                .collect(),
            ..HistogramDataPoint::default()
        })
    }
}

fn attributes(attributes: &[Attribute]) -> Vec<KeyValue> {
    let attribute = |attribute: &Attribute| {
        let value = match &attribute.value {
            AttributeValue::Text(text) => Any::StringValue(text.clone().into_owned()),
            AttributeValue::Number(number) => Any::IntValue((*number).into()),
        };
        key_value(attribute.key, value)
    };
    attributes.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::LogHistogram;
    use fleet_agent_core::measurement::{Distribution, Octaves};

    use super::*;

    const CLOCK: WallClock = WallClock {
        origin_ns: 0,
        unix_ns: 1_000,
    };

    fn measurement(kind: Kind, values: Vec<Value>) -> Measurement {
        let points = values.into_iter().map(|value| Sample {
            since_ns: 5,
            attributes: vec![
                Attribute::number("process.pid", 7),
                Attribute::text("gpu.call.function", "cudaMalloc"),
            ],
            value,
        });
        Measurement {
            name: "gpu.call.duration",
            description: "Duration of calls",
            unit: "s",
            kind,
            points: points.collect(),
        }
    }

    #[test]
    fn a_distribution_is_a_cumulative_histogram_in_the_unit_of_its_metric() {
        let mut histogram = LogHistogram::default();
        histogram.record(1_500, 2);
        histogram.record(9_000, 1);
        let distribution = Distribution {
            histogram,
            total: 12_000,
            scale: 1e-9,
            octaves: Octaves {
                first: 10,
                last: 11,
            },
        };
        let calls = measurement(Kind::Histogram, vec![Value::Distribution(distribution)]);
        let metric = Times {
            clock: CLOCK,
            now_ns: 20,
        }
        .metric(&calls);
        let Some(Data::Histogram(sent)) = metric.data else {
            panic!("{metric:?}");
        };
        let cumulative: i32 = AggregationTemporality::Cumulative.into();
        assert_eq!(sent.aggregation_temporality, cumulative);
        let point = &sent.data_points[0];
        assert_eq!((point.count, point.sum), (3, Some(12_000.0 * 1e-9)));
        assert_eq!(point.bucket_counts, [0, 2, 1]);
        assert_eq!(point.explicit_bounds, [1023.0 * 1e-9, 2047.0 * 1e-9]);
        assert_eq!(
            (point.start_time_unix_nano, point.time_unix_nano),
            (1_005, 1_020)
        );
        assert_eq!(point.attributes[0].key, "process.pid");
    }

    #[test]
    fn many_points_are_divided_into_several_requests() {
        let counts = |n: u64| (0..n).map(Value::Count).collect::<Vec<Value>>();
        let all = vec![
            measurement(Kind::Counter, counts(3)),
            measurement(Kind::Gauge, counts(4)),
            measurement(Kind::Gauge, counts(0)),
        ];
        let sizes: Vec<Vec<usize>> = parts(all, 5)
            .iter()
            .map(|part| part.iter().map(|one| one.points.len()).collect())
            .collect();
        assert_eq!(sizes, [vec![3, 2], vec![2]]);
    }
}
