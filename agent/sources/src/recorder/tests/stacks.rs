//! Stacks in recordings.

use fleet_agent_core::event::{Frame, Stack};

use super::*;

fn sample(pid: u32, line: u32, call: Option<&str>, samples: u64) -> StackSample {
    let frame = Frame::Python {
        file: "/app/train.py".to_owned(),
        line,
        function: "forward".to_owned(),
    };
    StackSample {
        ts_ns: 0,
        pid,
        tid: pid,
        is_worker: false,
        call: call.map(str::to_owned),
        stack: Stack {
            frames: vec![frame],
        },
        samples,
        outside: if call.is_none() { samples - 1 } else { 0 },
    }
}

#[test]
fn a_stack_is_stored_once_and_its_samples_are_read_back() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let mut text = Vec::new();
    let launch = call("ncclAllReduce", 7, 10, 5);
    text.extend(recorder.record(&polled(100, &[launch], &[]), None, 0));
    // Process 9 has no rank.
    let samples = [
        vec![
            sample(7, 142, None, 3),
            sample(7, 142, Some("cudaMalloc"), 1),
        ],
        vec![
            sample(7, 142, None, 2),
            sample(7, 17, None, 4),
            sample(9, 1, None, 5),
        ],
    ];
    for (until_ns, samples) in [200, 300].into_iter().zip(samples) {
        recorder.push_samples(until_ns, samples);
        text.extend(recorder.record(&polled(until_ns, &[], &[]), None, 0));
    }
    let lines = String::from_utf8(text).unwrap();
    let n_stacks = lines.lines().filter(|line| line.contains("\"frames\""));
    assert_eq!(n_stacks.count(), 2, "{lines}");
    let file = Header::default().line(recorder.processes(), &[]) + &lines;
    let mut recording = Recording::new("test", std::io::Cursor::new(file)).unwrap();
    let mut read = Vec::new();
    while let Some(event) = recording.next_event().unwrap() {
        if let Event::Stack(sample) = event {
            read.push(*sample);
        }
    }
    let expected = [
        (200, sample(7, 142, None, 3)),
        (200, sample(7, 142, Some("cudaMalloc"), 1)),
        (300, sample(7, 142, None, 2)),
        (300, sample(7, 17, None, 4)),
    ];
    let expected = expected.map(|(ts_ns, sample)| StackSample { ts_ns, ..sample });
    assert_eq!(read, expected);
}
