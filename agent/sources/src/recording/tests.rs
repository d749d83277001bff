use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use fleet_agent_core::event::{
    Activity, ActivitySample, Call, CallKind, CommInit, ContextSwitch, CopiedBytes, Direction,
    Entered, Launches, Lost, Op, Operation, SwitchReason,
};

use super::*;

mod other_ranks;

const HEADER: &str = r#"{"kind":"header","processes":[{"pid":7,"rank":1,"world_size":4}],"hardware":"4x NVIDIA H200 (NVLink NV18), one host"}"#;
const ALL_REDUCE: &str = r#"{"kind":"call","ts":5,"dur":2,"pid":7,"tid":8,"fn":"ncclAllReduce","comm":"0xab","count":3,"datatype":7}"#;

fn open(bytes: &[u8]) -> Result<Recording, SourceError> {
    Recording::new("file", std::io::Cursor::new(bytes.to_vec()))
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn read(recording: &mut Recording) -> (Vec<Event>, Option<SourceError>) {
    let mut events = Vec::new();
    loop {
        match recording.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
    }
}

#[test]
fn a_recording_is_read_gzipped_or_plain() {
    let text = format!("{HEADER}\n{ALL_REDUCE}\n");
    for bytes in [text.clone().into_bytes(), gzip(&text)] {
        let mut recording = open(&bytes).unwrap();
        assert_eq!(
            recording.processes(),
            [Process {
                pid: 7,
                rank: 1,
                world_size: 4
            }]
        );
        assert_eq!(recording.gpu_model(), Some("NVIDIA H200"));
        let (events, error) = read(&mut recording);
        assert!(error.is_none(), "{error:?}");
        let operation = Operation {
            op: Op::AllReduce,
            count: 3,
            datatype: 7,
            comm: 0xab,
            seq: None,
            peer: None,
        };
        let kind = CallKind::Operation(operation);
        assert_eq!(
            events,
            [Event::Call(Call {
                ts_ns: 5,
                dur_ns: 2,
                pid: 7,
                tid: 8,
                kind
            })]
        );
    }
}

#[test]
fn truth_and_unknown_kinds_are_dropped() {
    let text = format!(
        "{HEADER}\n{{\"kind\":\"truth\",\"rank\":1,\"rows\":[[1]]}}\n{{\"kind\":\"new\"}}\n"
    );
    assert!(read(&mut open(text.as_bytes()).unwrap()).0.is_empty());
}

#[test]
fn a_truncated_gzip_stream_yields_the_lines_before_and_the_line_number() {
    let lines: Vec<String> = (0..20_000)
        .map(|at| ALL_REDUCE.replace("\"ts\":5", &format!("\"ts\":{}", at * 7919 % 10_007)))
        .collect();
    let bytes = gzip(&format!("{HEADER}\n{}\n", lines.join("\n")));
    let mut recording = open(&bytes[..bytes.len() / 2]).unwrap();
    let (events, error) = read(&mut recording);
    let message = error.unwrap().to_string();
    assert!(!events.is_empty() && events.len() < lines.len());
    let expected = format!("file: recording ends early at line {}", events.len() + 2);
    assert!(message.starts_with(&expected), "{message}");
}

#[test]
fn a_truncated_plain_line_is_distinguished_from_a_damaged_one() {
    let (half, _) = ALL_REDUCE.split_at(40);
    let cut = format!("{HEADER}\n{half}");
    let error = read(&mut open(cut.as_bytes()).unwrap()).1;
    assert!(
        matches!(error, Some(SourceError::Truncated { line: 2, .. })),
        "{error:?}"
    );
    let damaged = format!("{HEADER}\n{half}\n{ALL_REDUCE}\n");
    let error = read(&mut open(damaged.as_bytes()).unwrap()).1;
    assert!(
        matches!(error, Some(SourceError::Damaged { line: 2, .. })),
        "{error:?}"
    );
}

#[test]
fn other_files_are_refused_at_their_first_line() {
    let other_json = br#"{"resourceMetrics":[]}"#;
    for bytes in [
        &b""[..],
        b"\x89PNG\r\n\x1a\n",
        other_json,
        &gzip("hello"),
        &[0x1f, 0x8b, 1, 2],
    ] {
        let error = open(bytes).unwrap_err();
        let is_refused = matches!(
            error,
            SourceError::Foreign { line: 1, .. }
                | SourceError::Damaged { line: 1, .. }
                | SourceError::Truncated { line: 1, .. }
        );
        assert!(is_refused, "{error:?}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn an_endless_line_is_refused() {
    let endless = Recording::new("file", std::io::repeat(b'x'));
    assert!(matches!(endless, Err(SourceError::Damaged { line: 1, .. })));
}

#[test]
fn a_rank_not_below_its_world_size_is_refused() {
    let header = HEADER.replace("\"rank\":1", "\"rank\":4");
    assert!(matches!(
        open(header.as_bytes()),
        Err(SourceError::Foreign { .. })
    ));
}

fn all_reduces_at(times_ns: &[u64]) -> String {
    let line = |ts_ns: &u64| ALL_REDUCE.replace("\"ts\":5", &format!("\"ts\":{ts_ns}"));
    let lines: Vec<String> = times_ns.iter().map(line).collect();
    format!("{HEADER}\n{}\n", lines.join("\n"))
}

#[test]
fn an_event_without_a_time_is_damaged() {
    let timeless = ALL_REDUCE.replace("\"ts\":5,", "");
    for line in [timeless.as_str(), "{\"kind\":\"launches\"}"] {
        let text = format!("{HEADER}\n{ALL_REDUCE}\n{line}\n");
        let (events, error) = read(&mut open(text.as_bytes()).unwrap());
        let message = error.unwrap().to_string();
        assert_eq!(events.len(), 1);
        assert!(
            message.starts_with("file: line 3 is damaged (event without ts)"),
            "{message}"
        );
    }
}

#[test]
fn an_event_far_from_the_previous_one_is_damaged() {
    let (start, hour) = (10_000 * 1_000_000_000, MAX_STEP_NS);
    for far in [start + hour + 1, start - hour - 1, u64::MAX, 0] {
        let text = all_reduces_at(&[start, far]);
        let (events, error) = read(&mut open(text.as_bytes()).unwrap());
        assert_eq!(events.len(), 1);
        assert!(
            matches!(error, Some(SourceError::Damaged { line: 3, ref reason, .. })
                if reason.contains("more than an hour away")),
            "{error:?}"
        );
    }
}

#[test]
fn events_may_be_a_little_out_of_order() {
    let start = 10_000 * 1_000_000_000;
    let text = all_reduces_at(&[start, start + MAX_STEP_NS, start, start - 1]);
    let (events, error) = read(&mut open(text.as_bytes()).unwrap());
    assert!(error.is_none() && events.len() == 4, "{error:?}");
}

#[test]
fn activity_besides_collectives_is_read() {
    let lines = [
        r#"{"kind":"sched_switch","ts":1,"cpu":0,"prev_tid":8,"prev_state":"R+","next_tid":9}"#,
        r#"{"kind":"sched_switch","ts":2,"cpu":0,"prev_tid":9,"prev_state":"D","next_tid":8}"#,
        r#"{"kind":"sched_switch","ts":3,"cpu":0,"prev_tid":8,"prev_state":"Z","next_tid":0}"#,
        r#"{"kind":"launches","ts":4,"window_ns":10000000,"pid":7,"tid":8,"fn":"cudaLaunchKernel","n":12}"#,
        r#"{"kind":"call","ts":5,"dur":2,"pid":7,"tid":8,"fn":"cudaMemcpyAsync","bytes":64,"memcpy_kind":2}"#,
        r#"{"kind":"call","ts":6,"dur":2,"pid":7,"tid":8,"fn":"cudaMemcpyAsync","bytes":32,"memcpy_kind":3}"#,
    ];
    let mut recording = open(format!("{HEADER}\n{}\n", lines.join("\n")).as_bytes()).unwrap();
    let (events, error) = read(&mut recording);
    assert!(error.is_none(), "{error:?}");
    let switch = |ts_ns, prev_tid, reason, next_tid| {
        Event::ContextSwitch(ContextSwitch {
            ts_ns,
            prev_tid,
            reason,
            next_tid,
        })
    };
    assert_eq!(events[0], switch(1, 8, SwitchReason::Preempted, 9));
    assert_eq!(events[1], switch(2, 9, SwitchReason::Blocked, 8));
    assert_eq!(events[2], switch(3, 8, SwitchReason::Exited, 0));
    let launches = Launches {
        ts_ns: 4,
        pid: 7,
        n: 12,
    };
    assert_eq!(events[3], Event::Launches(launches));
    let copies = events[4..].iter().map(|event| match event {
        Event::Call(Call {
            kind: CallKind::MemoryCopy(copy),
            ..
        }) => (copy.bytes, copy.direction),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        copies.collect::<Vec<_>>(),
        [(64, Direction::ToHost), (32, Direction::WithinDevice)]
    );
}

fn events_of(lines: &[&str]) -> Vec<Event> {
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    let (events, error) = read(&mut open(text.as_bytes()).unwrap());
    assert!(error.is_none(), "{error:?}");
    events
}

#[test]
fn a_call_in_two_parts_and_an_exact_communicator_are_read() {
    let call = |ts_ns, dur_ns, kind| Call {
        ts_ns,
        dur_ns,
        pid: 7,
        tid: 8,
        kind,
    };
    let init = CommInit {
        nranks: 4,
        rank: 1,
        unique_id: 0xff,
        comm: Some(0xab),
    };
    let operation = Operation {
        op: Op::AllReduce,
        count: 3,
        datatype: 7,
        comm: 0xab,
        seq: Some(9),
        peer: None,
    };
    let events = events_of(&[
        r#"{"kind":"call","ts":1,"dur":2,"pid":7,"tid":8,"fn":"ncclCommInitRankScalable","nranks":4,"rank":1,"comm":"0xab","unique_id_splitmix64":"ff"}"#,
        r#"{"kind":"entered","ts":5,"pid":7,"tid":8,"fn":"ncclAllReduceConfig","comm":"0xab","count":3,"datatype":7,"seq":9}"#,
        r#"{"kind":"returned","ts":5,"dur":6,"pid":7,"tid":8,"fn":"cuCtxSynchronize"}"#,
    ]);
    let expected = [
        Event::Call(call(1, 2, CallKind::CommInit(init))),
        Event::Entered(Entered {
            ts_ns: 5,
            pid: 7,
            tid: 8,
            kind: CallKind::Operation(operation),
        }),
        Event::Returned(call(5, 6, CallKind::Synchronize)),
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_communicator_without_its_size_is_unknown() {
    let events = events_of(&[
        r#"{"kind":"call","ts":1,"dur":2,"pid":7,"tid":8,"fn":"ncclCommSplit","nranks":0,"rank":1,"comm":"0xab","unique_id_splitmix64":"ff"}"#,
    ]);
    let kinds = events.iter().map(|event| match event {
        Event::Call(call) => Some(call.kind),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [Some(CallKind::Other)]);
}

#[test]
fn counted_calls_and_losses_are_read() {
    let measured = |ts_ns, activity| {
        Event::Activity(ActivitySample {
            from_ns: ts_ns - 10,
            ts_ns,
            pid: 7,
            activity,
        })
    };
    let events = events_of(&[
        r#"{"kind":"copies","ts":12,"window_ns":10,"pid":7,"fn":"cudaMemcpy","memcpy_kind":2,"n":2,"bytes":64}"#,
        r#"{"kind":"graph_launches","ts":13,"window_ns":10,"pid":7,"fn":"cudaGraphLaunch","n":3}"#,
        r#"{"kind":"lost","ts":14,"n":11}"#,
    ]);
    let copied = Activity {
        memcpy_bytes: Some(CopiedBytes {
            to_host: 64,
            ..CopiedBytes::default()
        }),
        ..Activity::default()
    };
    let launched = Activity {
        graph_launches: Some(3),
        ..Activity::default()
    };
    let lost = Lost {
        ts_ns: 14,
        events: 11,
    };
    assert_eq!(
        events,
        [
            measured(12, copied),
            measured(13, launched),
            Event::Lost(lost)
        ]
    );
}

#[test]
fn a_recording_without_ranks_is_read() {
    let header = |unranked: &str| {
        let text = format!("{{\"kind\":\"header\",\"processes\":[]{unranked}}}\n");
        Recording::new("test", std::io::Cursor::new(text))
    };
    assert_eq!(header(",\"unranked\":[4711]").unwrap().unranked(), [4711]);
    assert!(header("").is_err());
}

#[test]
fn samples_of_an_unknown_stack_are_skipped() {
    let events = events_of(&[
        r#"{"kind":"stack","ts":12,"stack":"00000000000000aa","frames":[{"fn":"ioctl"}]}"#,
        r#"{"kind":"samples","ts":13,"pid":7,"tid":7,"n":3,"stack":"00000000000000bb"}"#,
        r#"{"kind":"samples","ts":14,"pid":7,"tid":7,"n":3,"stack":"00000000000000aa"}"#,
    ]);
    let times: Vec<u64> = events.iter().map(Event::ts_ns).collect();
    assert_eq!(times, [14]);
}

#[test]
fn a_long_time_without_events_is_bridged_by_a_quiet_line() {
    let (start, hour) = (10_000 * 1_000_000_000, MAX_STEP_NS);
    let text = all_reduces_at(&[start, start + hour + 1]);
    let quiet = format!("{{\"kind\":\"quiet\",\"ts\":{}}}\n", start + hour / 2);
    let second = text.rfind("{\"kind\"").unwrap();
    let (before, after) = text.split_at(second);
    let bridged = format!("{before}{quiet}{after}");
    let (events, error) = read(&mut open(bridged.as_bytes()).unwrap());
    assert!(error.is_none() && events.len() == 2, "{error:?}");
}
