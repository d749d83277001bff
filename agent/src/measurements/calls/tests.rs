use fleet_agent_core::event::{ActivitySample, CopiedBytes, Ended, Labels, Process as Rank};
use fleet_agent_core::measurement::AttributeValue;

use super::*;

const SECOND: u64 = 1_000_000_000;

fn durations(ts_s: u64, pid: u32, calls: Vec<FunctionDurations>) -> Event {
    Event::CallDurations(Box::new(CallDurations {
        ts_ns: ts_s * SECOND,
        pid,
        calls,
        launch_sizes: None,
    }))
}

fn calls(function: &str, ns: u64, times: u64) -> FunctionDurations {
    let mut histogram = LogHistogram::default();
    histogram.record(ns, times);
    FunctionDurations {
        function: function.to_owned(),
        histogram,
        total_ns: ns * times,
        longest_ns: ns,
        bytes: 10 * times,
        ..FunctionDurations::default()
    }
}

fn started(pid: u32) -> Event {
    Event::Started(Box::new(Started {
        ts_ns: SECOND,
        process: Rank {
            pid,
            rank: 3,
            world_size: 8,
        },
        labels: Labels {
            job: Some("train".to_owned()),
            ..Labels::default()
        },
    }))
}

/// Points of a metric at some time, with their attributes.
fn points(meter: &mut CallMeter, now_s: u64, name: &str) -> Vec<(String, Value)> {
    let mut set = MeasurementSet::default();
    meter.measure(now_s * SECOND, &mut set);
    let labels = |attributes: &[Attribute]| {
        let texts = attributes.iter().map(|attribute| match &attribute.value {
            AttributeValue::Text(text) => format!("{}={text}", attribute.key),
            AttributeValue::Number(number) => format!("{}={number}", attribute.key),
        });
        texts.collect::<Vec<_>>().join(" ")
    };
    let points = set.0.remove(name).map(|measurement| measurement.points);
    let points = points.unwrap_or_default().into_iter();
    points
        .map(|point| (labels(&point.attributes), point.value))
        .collect()
}

fn meter(events: &[Event]) -> (CallMeter, tempfile::TempDir) {
    let proc = tempfile::tempdir().unwrap();
    let processes = Processes::new(proc.path());
    let mut meter = CallMeter::default();
    for event in events {
        meter.record_event(event, &processes);
    }
    (meter, proc)
}

#[test]
fn durations_add_up_and_percentiles_are_those_of_the_last_minute() {
    let (mut meter, _proc) = meter(&[
        started(7),
        durations(2, 7, vec![calls("cudaMalloc", 8_000_000, 100)]),
        durations(100, 7, vec![calls("cudaMalloc", 1_000, 10)]),
    ]);
    let all = points(&mut meter, 101, DURATION.name);
    let [(labels, Value::Distribution(distribution))] = all.as_slice() else {
        panic!("{all:?}");
    };
    assert_eq!(
        labels,
        "process.pid=7 fleet.rank=3 fleet.job.id=train gpu.call.function=cudaMalloc"
    );
    assert_eq!(distribution.histogram.count(), 110);
    assert_eq!(distribution.total, 800_010_000);
    let quantiles = points(&mut meter, 101, QUANTILE.name);
    assert_eq!(quantiles.len(), 3);
    for (labels, value) in quantiles {
        let Value::Number(seconds) = value else {
            panic!("{value:?}");
        };
        assert!(labels.contains("quantile="), "{labels}");
        assert!((seconds - 1e-6).abs() < 1e-6 / 9.0, "{seconds}");
    }
}

#[test]
fn a_process_without_a_rank_has_its_process_id_only() {
    let (mut meter, _proc) = meter(&[durations(1, 9, vec![calls("cudaFree", 500, 1)])]);
    let all = points(&mut meter, 1, DURATION.name);
    assert_eq!(all[0].0, "process.pid=9 gpu.call.function=cudaFree");
}

#[test]
fn bytes_are_those_that_were_measured_else_those_that_were_counted() {
    let activity = |to_device| {
        Event::Activity(ActivitySample {
            from_ns: 0,
            ts_ns: SECOND,
            pid: 7,
            activity: Activity {
                launches: Some(40),
                graph_launches: Some(5),
                memcpy_bytes: Some(CopiedBytes {
                    to_device,
                    ..CopiedBytes::default()
                }),
                ..Activity::default()
            },
        })
    };
    let copy = FunctionDurations {
        direction: Some(Direction::ToHost),
        ..calls("cudaMemcpy", 500, 3)
    };
    let (mut counted, _proc) = meter(&[started(7), activity(100), activity(20)]);
    assert!(
        points(&mut counted, 2, COPIES.name)
            .iter()
            .any(
                |(labels, value)| labels.ends_with("host_to_device") && *value == Value::Count(120)
            )
    );
    assert_eq!(
        points(&mut counted, 2, LAUNCHES.name)[0].1,
        Value::Count(80)
    );
    let graph = calls("cudaGraphInstantiate", 500, 2);
    let (mut measured, _proc) = meter(&[
        started(7),
        activity(100),
        durations(2, 7, vec![copy, calls("cudaLaunchKernel", 500, 7), graph]),
    ]);
    let copies = points(&mut measured, 2, COPIES.name);
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0].1, Value::Count(30));
    assert_eq!(
        points(&mut measured, 2, LAUNCHES.name)[0].1,
        Value::Count(7)
    );
    let graphs = points(&mut measured, 2, GRAPHS.name);
    let values: Vec<&Value> = graphs.iter().map(|(_, value)| value).collect();
    assert_eq!(values, [&Value::Count(2), &Value::Count(5)]);
}

#[test]
fn an_ended_process_is_kept_for_a_minute_and_a_new_one_with_its_id_starts_from_zero() {
    let end = Event::Ended(Ended {
        exit: None,
        ts_ns: 10 * SECOND,
        pid: 7,
    });
    let malloc = || vec![calls("cudaMalloc", 500, 1)];
    let events = [started(7), durations(2, 7, malloc()), end];
    let (mut meter, proc) = meter(&events);
    assert_eq!(points(&mut meter, 60, ALLOCATIONS.name).len(), 1);
    let processes = Processes::new(proc.path());
    meter.record_event(&durations(65, 7, malloc()), &processes);
    assert_eq!(
        points(&mut meter, 66, ALLOCATIONS.name),
        [(
            "process.pid=7 gpu.call.function=cudaMalloc".to_owned(),
            Value::Count(10)
        )]
    );
    let (mut ended, _proc) = {
        let proc = tempfile::tempdir().unwrap();
        let processes = Processes::new(proc.path());
        let mut meter = CallMeter::default();
        for event in &events {
            meter.record_event(event, &processes);
        }
        (meter, proc)
    };
    assert!(points(&mut ended, 71, ALLOCATIONS.name).is_empty());
}
