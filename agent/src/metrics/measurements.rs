//! Measurements of the host as text for Prometheus: dots become underscores, and units words.

use std::fmt;

use fleet_agent_core::measurement::{Attribute, AttributeValue, Kind, Measurement, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Takes the measurements on each scrape.
pub(super) struct MeasurementCollector(pub(super) Box<dyn Fn() -> Vec<Measurement> + Send + Sync>);

impl fmt::Debug for MeasurementCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MeasurementCollector")
    }
}

impl Collector for MeasurementCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for measurement in (self.0)() {
            encode(&mut encoder, &measurement)?;
        }
        Ok(())
    }
}

fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    measurement: &Measurement,
) -> Result<(), fmt::Error> {
    let kind = match measurement.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let name = underscored(measurement.name);
    let unit = unit(measurement.unit);
    let mut family =
        encoder.encode_descriptor(&name, measurement.description, unit.as_ref(), kind)?;
    for point in &measurement.points {
        let labels: Vec<(String, String)> = point.attributes.iter().map(label).collect();
        if labels.is_empty() {
            return encode_value(family, measurement.kind, &point.value);
        }
        encode_value(
            family.encode_family(&labels)?,
            measurement.kind,
            &point.value,
        )?;
    }
    Ok(())
}

fn encode_value(
    mut encoder: MetricEncoder<'_>,
    kind: Kind,
    value: &Value,
) -> Result<(), fmt::Error> {
    match (kind, value) {
        (Kind::Counter, Value::Count(count)) => ConstCounter::new(*count).encode(encoder),
        (Kind::Counter, Value::Number(number)) => ConstCounter::new(*number).encode(encoder),
        (_, Value::Count(count)) => ConstGauge::new(*count).encode(encoder),
        (_, Value::Number(number)) => ConstGauge::new(*number).encode(encoder),
        // Sum and count only: buckets of each function of each process would be too many series.
        (_, Value::Distribution(distribution)) => {
            let (count, sum) = (distribution.histogram.count(), distribution.sum());
            encoder.encode_histogram::<Vec<(String, String)>>(
                sum,
                count,
                &[(f64::INFINITY, count)],
                None,
            )
        }
    }
}

fn label(attribute: &Attribute) -> (String, String) {
    let value = match &attribute.value {
        AttributeValue::Text(text) => text.clone().into_owned(),
        AttributeValue::Number(number) => number.to_string(),
    };
    (underscored(attribute.key), value)
}

fn underscored(name: &str) -> String {
    name.replace('.', "_")
}

/// Returns the unit as a word at the end of the name; `None` for counts.
fn unit(unit: &str) -> Option<Unit> {
    match unit {
        "s" => Some(Unit::Seconds),
        "By" => Some(Unit::Bytes),
        "Cel" => Some(Unit::Celsius),
        "1" => Some(Unit::Other("ratio".to_owned())),
        "W" => Some(Unit::Other("watts".to_owned())),
        "Hz" => Some(Unit::Other("hertz".to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::event::LogHistogram;
    use fleet_agent_core::measurement::{Distribution, Octaves, Sample};
    use prometheus_client::encoding::text;
    use prometheus_client::registry::Registry;

    use super::*;

    fn measurement(
        name: &'static str,
        unit: &'static str,
        kind: Kind,
        value: Value,
    ) -> Measurement {
        let attributes = vec![
            Attribute::number("process.pid", 7),
            Attribute::text("gpu.call.function", "cudaMalloc"),
        ];
        Measurement {
            name,
            description: "Something",
            unit,
            kind,
            points: vec![Sample {
                since_ns: 0,
                attributes,
                value,
            }],
        }
    }

    fn measured() -> Vec<Measurement> {
        let mut histogram = LogHistogram::default();
        histogram.record(1_500, 2);
        let distribution = Value::Distribution(Distribution {
            histogram,
            total: 3_000_000_000,
            scale: 1e-9,
            octaves: Octaves { first: 1, last: 2 },
        });
        vec![
            measurement("gpu.memory.copies", "By", Kind::Counter, Value::Count(5)),
            measurement("hw.power", "W", Kind::Gauge, Value::Number(312.5)),
            measurement("gpu.call.duration", "s", Kind::Histogram, distribution),
        ]
    }

    #[test]
    fn measurements_have_names_and_units_of_prometheus() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(MeasurementCollector(Box::new(measured))));
        let mut text = String::new();
        text::encode(&mut text, &registry).unwrap();
        let labels = "process_pid=\"7\",gpu_call_function=\"cudaMalloc\"";
        for line in [
            format!("gpu_memory_copies_bytes_total{{{labels}}} 5"),
            format!("hw_power_watts{{{labels}}} 312.5"),
            format!("gpu_call_duration_seconds_sum{{{labels}}} 3.0"),
            format!("gpu_call_duration_seconds_count{{{labels}}} 2"),
            format!("gpu_call_duration_seconds_bucket{{le=\"+Inf\",{labels}}} 2"),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
        }
    }
}
