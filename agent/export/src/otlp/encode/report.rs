//! Encoding of what processes lose time to.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fleet_agent_core::batch::ResourceReport;
use fleet_agent_core::captured_file::CapturedFile;
use fleet_agent_core::event::{FunctionDurations, Stack};
use fleet_agent_core::explain::CausalChain;
use fleet_agent_core::signal::millis;
use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};

use crate::otlp::encode::{double, int, resource, scope, text, unit};

/// Maximum number of frames of a stack that are sent.
const MAX_FRAMES: usize = 32;

pub(super) fn resource_metrics(own: &ResourceReport) -> ResourceMetrics {
    let report = &own.report;
    let period = (report.from_ns, report.to_ns);
    let functions = report.functions().into_iter();
    let calls = functions.map(|calls| duration_point(calls, period));
    let chains = report.chains.iter().map(|chain| chain_point(chain, period));
    let stacks = report.stacks().into_iter();
    let stacks = stacks.map(|(call, stack, samples)| stack_point(call, stack, samples, period));
    let files = report.files.iter();
    let files = files.flat_map(|file| file_points(file, report.to_ns));
    let mut data = vec![
        (
            metric::CALLS,
            Data::Histogram(Histogram {
                data_points: calls.collect(),
                aggregation_temporality: AggregationTemporality::Delta.into(),
            }),
        ),
        (
            metric::CHAIN,
            Data::Gauge(Gauge {
                data_points: chains.collect(),
            }),
        ),
        (
            metric::STACK_SAMPLES,
            Data::Sum(Sum {
                data_points: stacks.collect(),
                aggregation_temporality: AggregationTemporality::Delta.into(),
                is_monotonic: true,
            }),
        ),
    ];
    if !report.files.is_empty() {
        let data_points = files.collect();
        data.push((metric::FILE, Data::Gauge(Gauge { data_points })));
    }
    let metrics = data.into_iter().map(|(name, data)| Metric {
        name: name.to_owned(),
        unit: unit(name).to_owned(),
        data: Some(data),
        ..Metric::default()
    });
    let mut resource = resource(&own.resource);
    let program = own.program.as_deref();
    let program = program.map(|name| text(attribute::PROCESS_NAME, name));
    resource.attributes.extend(program);
    ResourceMetrics {
        resource: Some(resource),
        scope_metrics: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics: metrics.collect(),
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    }
}

fn duration_point(calls: &FunctionDurations, (from_ns, to_ns): (u64, u64)) -> HistogramDataPoint {
    let mut attributes = vec![text(attribute::FUNCTION, &calls.label())];
    let percentiles = [
        (attribute::P50_MS, 50),
        (attribute::P95_MS, 95),
        (attribute::P99_MS, 99),
    ];
    for (key, percent) in percentiles {
        let ns = calls.percentile_ns(percent);
        attributes.extend(ns.map(|ns| double(key, millis(ns))));
    }
    let durations = calls.histogram.estimates();
    let durations: Vec<String> = durations
        .map(|(ns, times)| format!("{ns}={times}"))
        .collect();
    attributes.push(text(attribute::DURATIONS_NS, &durations.join(" ")));
    if calls.bytes > 0 {
        let bytes = i64::try_from(calls.bytes).unwrap_or(i64::MAX);
        attributes.push(int(attribute::BYTES, bytes));
    }
    HistogramDataPoint {
        attributes,
        start_time_unix_nano: from_ns,
        time_unix_nano: to_ns,
        count: calls.calls(),
        sum: Some(millis(calls.total_ns)),
        max: Some(millis(calls.longest_ns)),
        ..HistogramDataPoint::default()
    }
}

fn chain_point(chain: &CausalChain, (_, to_ns): (u64, u64)) -> NumberDataPoint {
    let mut attributes = vec![
        text(attribute::CHAIN_CAUSE, chain.cause.name()),
        text(attribute::CHAIN_SEVERITY, chain.severity().name()),
        text(attribute::CHAIN_SUMMARY, &chain.to_string()),
        text(attribute::CHAIN_LINKS, &chain.links.join("\n")),
    ];
    let place = chain.place.as_ref();
    attributes.extend(place.map(|place| {
        let mut lines = place.lines();
        lines.truncate(MAX_FRAMES);
        text(attribute::CHAIN_STACK, &lines.join("\n"))
    }));
    if !chain.advice.is_empty() {
        attributes.push(text(attribute::CHAIN_ADVICE, &chain.advice.join("\n")));
    }
    NumberDataPoint {
        attributes,
        start_time_unix_nano: chain.since_ns,
        time_unix_nano: to_ns,
        value: Some(number_data_point::Value::AsDouble(chain.share)),
        ..NumberDataPoint::default()
    }
}

fn stack_point(
    call: Option<&str>,
    stack: &Stack,
    samples: u64,
    (from_ns, to_ns): (u64, u64),
) -> NumberDataPoint {
    let mut attributes: Vec<KeyValue> = vec![text(attribute::STACK, &frames(stack))];
    attributes.extend(call.map(|call| text(attribute::FUNCTION, call)));
    NumberDataPoint {
        attributes,
        start_time_unix_nano: from_ns,
        time_unix_nano: to_ns,
        value: Some(number_data_point::Value::AsInt(
            i64::try_from(samples).unwrap_or(i64::MAX),
        )),
        ..NumberDataPoint::default()
    }
}

/// Parts of a file.
fn file_points(file: &CapturedFile, to_ns: u64) -> impl Iterator<Item = NumberDataPoint> {
    let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let parts = file.parts();
    let n_parts = number(parts.len());
    parts
        .enumerate()
        .map(move |(part, content)| NumberDataPoint {
            attributes: vec![
                text(attribute::FILE_NAME, file.name),
                int(attribute::FILE_PART, number(part)),
                int(attribute::FILE_PARTS, n_parts),
                text(attribute::FILE_CONTENT, &STANDARD.encode(content)),
            ],
            time_unix_nano: to_ns,
            value: Some(number_data_point::Value::AsInt(
                i64::try_from(file.size).unwrap_or(i64::MAX),
            )),
            ..NumberDataPoint::default()
        })
}

/// Lines of a stack, innermost frame first.
fn frames(stack: &Stack) -> String {
    let mut lines = stack.lines();
    lines.truncate(MAX_FRAMES);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use fleet_agent_core::batch::Resource;
    use fleet_agent_core::event::{Frame, LogHistogram};
    use fleet_agent_core::explain::{Cause, Observation, Place, ProcessReport, Reference};
    use opentelemetry_proto::tonic::common::v1::AnyValue;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;

    use super::*;

    fn stack() -> Stack {
        let frame = |line| Frame::Python {
            file: "/app/train.py".to_owned(),
            line,
            function: "forward".to_owned(),
        };
        Stack {
            frames: vec![frame(142), frame(210)],
        }
    }

    fn report() -> ResourceReport {
        let mut histogram = LogHistogram::default();
        histogram.record(7, 100);
        let calls = FunctionDurations {
            function: "cudaMalloc".to_owned(),
            histogram,
            total_ns: 700_000_000,
            longest_ns: 9_000_000,
            bytes: 4096,
            ..FunctionDurations::default()
        };
        let mut seen = Observation::default();
        seen.calls.insert(calls.label(), calls);
        let call = Some("cudaMalloc".to_owned());
        seen.stacks.insert((call, stack()), 30);
        let chain = CausalChain {
            cause: Cause::MemoryAllocation,
            share: 0.07,
            reference: Reference::None,
            since_ns: 5,
            links: vec!["first".to_owned(), "second".to_owned()],
            place: Some(Place {
                call: Some("cudaMalloc".to_owned()),
                stack: stack(),
                share: 1.0,
            }),
            advice: vec!["allocate once".to_owned()],
        };
        ResourceReport {
            resource: Resource {
                cluster: "c".to_owned(),
                node: "n".to_owned(),
                job: None,
                gpu_model: None,
                gpu_uuid: None,
                pod: None,
                namespace: None,
                rank: None,
                world_size: None,
                pid: 4711,
            },
            program: Some("train.py".to_owned()),
            report: ProcessReport {
                pid: 4711,
                process: None,
                from_ns: 10,
                to_ns: 10_000_000_010,
                seen,
                chains: vec![chain],
                files: vec![CapturedFile {
                    name: "threads.txt",
                    size: 40_000,
                    gzip: vec![7; 10_000],
                }],
            },
        }
    }

    fn texts(attributes: &[KeyValue]) -> Vec<(&str, String)> {
        let text = |value: &Option<AnyValue>| match value.as_ref()?.value.as_ref()? {
            Any::StringValue(text) => Some(text.clone()),
            Any::IntValue(number) => Some(number.to_string()),
            Any::DoubleValue(number) => Some(number.to_string()),
            _ => None,
        };
        let attributes = attributes.iter();
        attributes
            .filter_map(|attribute| Some((attribute.key.as_str(), text(&attribute.value)?)))
            .collect()
    }

    fn owned((key, value): (&'static str, &str)) -> (&'static str, String) {
        (key, value.to_owned())
    }

    #[test]
    fn a_report_becomes_points_with_calls_chains_and_stacks() {
        let encoded = resource_metrics(&report());
        let resource = encoded.resource.clone().unwrap().attributes;
        assert!(texts(&resource).contains(&("process.pid", "4711".to_owned())));
        let name = ("process.executable.name", "train.py".to_owned());
        assert!(texts(&resource).contains(&name));
        assert!(!resource.iter().any(|own| own.key == attribute::FLEET_RANK));
        let [calls, chains, stacks, ..] = encoded.scope_metrics[0].metrics.as_slice() else {
            panic!("{encoded:?}")
        };
        let Some(Data::Histogram(histogram)) = &calls.data else {
            panic!("{calls:?}")
        };
        assert_eq!(
            (calls.name.as_str(), calls.unit.as_str()),
            (metric::CALLS, "ms")
        );
        let point = &histogram.data_points[0];
        let sums = (point.count, point.sum, point.max);
        assert_eq!(sums, (100, Some(700.0), Some(9.0)));
        let expected = [
            ("fleet.function", "cudaMalloc"),
            ("fleet.p50_ms", "0.000007"),
            ("fleet.p95_ms", "0.000007"),
            ("fleet.p99_ms", "0.000007"),
            ("fleet.durations_ns", "7=100"),
            ("fleet.bytes", "4096"),
        ];
        assert_eq!(texts(&point.attributes), expected.map(owned));
        let Some(Data::Gauge(gauge)) = &chains.data else {
            panic!("{chains:?}")
        };
        let point = &gauge.data_points[0];
        assert_eq!(point.start_time_unix_nano, 5);
        let expected = [
            ("fleet.chain.cause", "memory_allocation"),
            ("fleet.chain.severity", "medium"),
            (
                "fleet.chain.summary",
                "allocating and freeing GPU memory for 7.0 % of its time",
            ),
            ("fleet.chain.links", "first\nsecond"),
            (
                "fleet.chain.stack",
                "cudaMalloc\ntrain.py:142 in forward()\ntrain.py:210 in forward()",
            ),
            ("fleet.chain.advice", "allocate once"),
        ];
        assert_eq!(texts(&point.attributes), expected.map(owned));
        let Some(Data::Sum(sum)) = &stacks.data else {
            panic!("{stacks:?}")
        };
        let expected = [
            (
                "fleet.stack",
                "train.py:142 in forward()\ntrain.py:210 in forward()",
            ),
            ("fleet.function", "cudaMalloc"),
        ];
        assert_eq!(texts(&sum.data_points[0].attributes), expected.map(owned));
    }

    #[test]
    fn a_file_is_sent_in_parts() {
        let encoded = resource_metrics(&report());
        let files = encoded.scope_metrics[0].metrics.last().unwrap();
        let Some(Data::Gauge(gauge)) = &files.data else {
            panic!("{files:?}")
        };
        let parts = gauge
            .data_points
            .iter()
            .map(|point| texts(&point.attributes));
        let parts: Vec<(String, usize)> = parts
            .map(|of| {
                let [(_, name), (_, part), (_, parts), (_, content)] = &of[..] else {
                    panic!("{of:?}")
                };
                (format!("{name} {part} of {parts}"), content.len())
            })
            .collect();
        let expected = [
            ("threads.txt 0 of 2", 12_000),
            ("threads.txt 1 of 2", 1_336),
        ];
        assert_eq!(parts, expected.map(|(part, len)| (part.to_owned(), len)));
    }
}
