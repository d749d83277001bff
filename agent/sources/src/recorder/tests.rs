mod stacks;

use std::fs;

use crate::functions::FUNCTIONS;
use crate::recording::Recording;
use crate::source::EventSource;
use fleet_agent_bpf::layout::{CallSum, DelayKind};
use fleet_agent_core::event::{
    Activity, ActivitySample, Call, CommInit, DelaySample, Delays, Entered, Launches,
};
use tempfile::TempDir;

use super::*;
use crate::recorder::header::Header;

/// Creates two ranks with an environment, and a process without a launcher.
fn host() -> (TempDir, Processes) {
    let proc = tempfile::tempdir().unwrap();
    for (pid, environ) in [
        (7, "RANK=0\0WORLD_SIZE=2\0"),
        (8, "RANK=1\0WORLD_SIZE=2\0"),
        (9, "HOME=/\0"),
    ] {
        let folder = proc.path().join(pid.to_string());
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("environ"), environ).unwrap();
        fs::write(folder.join("cgroup"), "0::/\n").unwrap();
    }
    let processes = Processes::new(proc.path());
    (proc, processes)
}

fn op(name: &str) -> u8 {
    let at = FUNCTIONS.iter().position(|function| function.name == name);
    u8::try_from(at.unwrap()).unwrap()
}

fn call(name: &str, tgid: u32, entered_ns: u64, duration_ns: u64) -> CallRecord {
    CallRecord {
        op: op(name),
        tgid,
        tid: tgid + 100,
        entered_ns,
        duration_ns,
        comm: 0xabc0,
        comm_id: 0xfeed,
        handle: 0x99,
        count: 1000,
        datatype: 7,
        rank: 1,
        nranks: 2,
        ..CallRecord::default()
    }
}

fn polled(until_ns: u64, returned: &[CallRecord], in_flight: &[CallRecord]) -> PollResult {
    PollResult {
        now_ns: until_ns + 1_000_000,
        until_ns,
        returned: returned.to_vec(),
        in_flight: in_flight.to_vec(),
        ..PollResult::default()
    }
}

/// Reads the lines back.
fn read(recorder: &Recorder, lines: &[u8]) -> (Vec<Process>, Vec<Event>) {
    let mut file = Header::default()
        .line(recorder.processes(), &[])
        .into_bytes();
    file.extend_from_slice(lines);
    let mut recording = Recording::new("file", std::io::Cursor::new(file)).unwrap();
    let events = std::iter::from_fn(|| recording.next_event().unwrap()).collect();
    (recording.processes().to_vec(), events)
}

fn event(record: &CallRecord) -> Event {
    Event::Call(Call {
        ts_ns: record.entered_ns,
        dur_ns: record.duration_ns,
        pid: record.tgid,
        tid: record.tid,
        kind: functions::call_kind(record).unwrap(),
    })
}

#[test]
fn recorded_events_are_read_back_unchanged() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let names = FUNCTIONS.iter().filter(|function| function.returns());
    let is_event = |name| functions::call_kind(&call(name, 8, 1, 1)).is_some();
    let reported = names.filter(|function| is_event(function.name));
    let mut calls: Vec<CallRecord> = (1_u64..)
        .zip(reported)
        .map(|(at, function)| CallRecord {
            seq: (at % 2 == 0).then_some(at),
            ..call(function.name, 8, at * 100, at)
        })
        .collect();
    let expected: Vec<Event> = calls.iter().map(event).collect();
    // Calls arrive in order of return.
    calls.reverse();
    let lines = recorder.record(&polled(1_000_000, &calls, &[]), None, 0);
    let (processes, events) = read(&recorder, &lines);
    let rank = Process {
        pid: 8,
        rank: 1,
        world_size: 2,
    };
    assert_eq!(processes, [rank]);
    assert!(expected.len() > 30);
    assert_eq!(events, expected);
}

#[test]
fn a_call_that_does_not_return_is_recorded_with_its_entry() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let first = call("ncclAllReduce", 8, 50, 5);
    let hung = call("cudaStreamSynchronize", 8, 100, 0);
    let mut lines = recorder.record(&polled(1000, &[first], &[hung]), None, 0);
    let later = call("ncclAllReduce", 8, 2000, 5);
    lines.extend(recorder.record(&polled(3000, &[later], &[hung]), None, 0));
    assert_eq!(read(&recorder, &lines).1, [event(&first)]);
    recorder.stop_waiting();
    lines.extend(recorder.record(&polled(4000, &[], &[hung]), None, 0));
    let entered = Event::Entered(Entered {
        ts_ns: 100,
        pid: 8,
        tid: 108,
        kind: CallKind::Synchronize,
    });
    assert_eq!(
        read(&recorder, &lines).1,
        [event(&first), entered, event(&later)]
    );
}

#[test]
fn launches_and_copies_are_recorded_at_the_end_of_their_window() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let sum = |tgid, op, calls, bytes| FunctionSum {
        tgid,
        op,
        sum: CallSum {
            calls,
            bytes,
            ..CallSum::default()
        },
    };
    let sums = |calls| {
        [
            sum(8, u32::from(op("cudaLaunchKernel")), calls, 0),
            sum(8, u32::from(op("cudaMemcpyAsync")) | 1 << 8, 1, 64),
            sum(4711, u32::from(op("cudaLaunchKernel")), calls, 0),
        ]
    };
    let before = call("ncclAllReduce", 8, 50, 5);
    let after = call("ncclAllReduce", 8, 1500, 5);
    let mut lines = recorder.record(&polled(1000, &[before], &[]), Some(&sums(5)), 0);
    lines.extend(recorder.record(&polled(2000, &[after], &[]), Some(&sums(7)), 3));
    let copied = fleet_agent_core::event::CopiedBytes {
        to_device: 64,
        ..Default::default()
    };
    let launches = |ts_ns, n| Event::Launches(Launches { ts_ns, pid: 8, n });
    let copies = Event::Activity(ActivitySample {
        from_ns: 0,
        ts_ns: 1000,
        pid: 8,
        activity: Activity {
            memcpy_bytes: Some(copied),
            ..Activity::default()
        },
    });
    let lost = Event::Lost(fleet_agent_core::event::Lost {
        ts_ns: 2000,
        events: 3,
    });
    assert_eq!(
        read(&recorder, &lines).1,
        [
            event(&before),
            launches(1000, 5),
            copies,
            event(&after),
            launches(2000, 2),
            lost
        ]
    );
    let Counts { windows, lost, .. } = recorder.counts();
    assert_eq!((windows, lost), (3, 3));
}

#[test]
fn delays_are_recorded_at_the_end_of_their_window() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let first = call("ncclAllReduce", 8, 50, 5);
    let mut lines = recorder.record(&polled(1000, &[first], &[]), None, 0);
    let interrupt = |tgid| {
        let kind = DelayKind::Interrupt;
        let (ns, count, cpu) = (5, 1, 0);
        (
            DelayKey { tgid, kind },
            DelaySum {
                ns,
                count,
                cpu,
                longest_ns: ns,
            },
        )
    };
    recorder.push_delays(2000, &[8, 4711].map(interrupt));
    lines.extend(recorder.record(&polled(2000, &[], &[]), None, 0));
    let delays = Event::Delays(Box::new(DelaySample {
        from_ns: 0,
        ts_ns: 2000,
        pid: 8,
        delays: Delays {
            interrupt_ns: Some(5),
            ..Delays::default()
        },
    }));
    assert_eq!(read(&recorder, &lines).1, [event(&first), delays]);
}

#[test]
fn only_the_selected_processes_are_recorded() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[7], processes, 0);
    let calls = [7, 8].map(|pid| call("ncclAllReduce", pid, 100 + u64::from(pid), 5));
    let lines = recorder.record(&polled(1000, &calls, &[]), None, 0);
    assert_eq!(read(&recorder, &lines).1, [event(&calls[0])]);
    assert!(recorder.take_observed(8) && !recorder.take_observed(9));
}

#[test]
fn a_process_without_a_launcher_is_identified_by_its_communicator() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let early = call("ncclAllReduce", 9, 100, 5);
    recorder.record(&polled(1000, &[early], &[]), None, 0);
    assert_eq!(recorder.counts().unplaced, 1);
    let init = call("ncclCommInitRankConfig", 9, 2000, 5);
    let lines = recorder.record(&polled(3000, &[init], &[]), None, 0);
    let (processes, events) = read(&recorder, &lines);
    assert_eq!((processes[0].rank, processes[0].world_size), (1, 2));
    let made = CommInit {
        nranks: 2,
        rank: 1,
        unique_id: 0xfeed,
        comm: Some(0xabc0),
    };
    assert!(
        matches!(events[0], Event::Call(Call { kind: CallKind::CommInit(init), .. }) if init == made)
    );
    assert_eq!(recorder.counts().unplaced, 0);
}

#[test]
fn the_last_calls_of_a_process_are_written_after_its_exit() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let held_up = call("cudaStreamSynchronize", 7, 50, 0);
    let last = call("ncclCommDestroy", 8, 1_000_500, 5);
    let first = PollResult {
        exited: vec![8],
        ..polled(1_000_000, &[last], &[held_up])
    };
    assert!(recorder.record(&first, None, 0).is_empty());
    let returned = call("cudaStreamSynchronize", 7, 50, 9_000_000);
    let lines = recorder.record(&polled(10_000_000, &[returned], &[]), None, 0);
    assert_eq!(read(&recorder, &lines).1, [event(&returned), event(&last)]);
    assert!(!recorder.jobs.is_announced(8));
}

#[test]
fn a_process_id_reused_by_another_rank_is_omitted() {
    let (proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let first = call("ncclAllReduce", 8, 100, 5);
    let ended = PollResult {
        exited: vec![8],
        ..polled(1000, &[first], &[])
    };
    recorder.record(&ended, None, 0);
    recorder.record(&polled(9_000_000, &[], &[]), None, 0);
    fs::write(proc.path().join("8/environ"), "RANK=0\0WORLD_SIZE=2\0").unwrap();
    let second = call("ncclAllReduce", 8, 10_000_000, 5);
    assert!(
        recorder
            .record(&polled(11_000_000, &[second], &[]), None, 0)
            .is_empty()
    );
    assert_eq!(
        (recorder.processes().len(), recorder.counts().left_out),
        (1, 1)
    );
}

#[test]
fn an_hour_without_a_call_is_bridged_by_quiet_lines() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let mut lines = Vec::new();
    let end_ns = 5 * QUIET_NS;
    let (first, last) = (
        call("ncclAllReduce", 8, 100, 5),
        call("ncclAllReduce", 8, end_ns, 5),
    );
    lines.extend(recorder.record(&polled(1000, &[first], &[]), None, 0));
    for quarter in 1..20 {
        lines.extend(recorder.record(&polled(quarter * end_ns / 20, &[], &[]), None, 0));
    }
    lines.extend(recorder.record(&polled(end_ns + 1, &[last], &[]), None, 0));
    assert_eq!(read(&recorder, &lines).1, [event(&first), event(&last)]);
}

#[test]
fn gpu_operations_are_written_among_the_calls_and_read_back() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let record = fleet_agent_bpf::layout::PluginRecord {
        seen_ns: 500,
        tgid: 8,
        what: 2,
        comm_id: 0xb2,
        seq: 9,
        nth: 1,
        rank: 1,
        nranks: 2,
        host_ns: 110,
        gpu_start_ns: 1_000,
        gpu_stop_ns: 1_300,
        ..Default::default()
    };
    let calls = [100, 900].map(|at| call("ncclAllReduce", 8, at, 5));
    let seen = PollResult {
        plugin_records: vec![record],
        ..polled(1000, &calls, &[])
    };
    let lines = recorder.record(&seen, None, 0);
    let events = read(&recorder, &lines).1;
    let times: Vec<u64> = events.iter().map(Event::ts_ns).collect();
    assert_eq!(times, [100, 500, 900]);
    let Event::GpuOperation(operation) = &events[1] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (
            operation.pid,
            operation.seq,
            operation.nth,
            operation.host_ns
        ),
        (8, 9, 1, 110)
    );
    assert_eq!(operation.timer.unwrap().stop_ns, 1_300);
    assert_eq!((recorder.counts().calls, recorder.counts().windows), (2, 0));
}

#[test]
fn the_state_of_a_communicator_older_than_the_recording_is_written() {
    let (_proc, processes) = host();
    let mut recorder = Recorder::new(&[], processes, 0);
    let preexisting = CallRecord {
        comm_id: 0,
        ..call("ncclAllReduce", 8, 100, 5)
    };
    recorder.record(&polled(200, &[preexisting], &[]), None, 0);
    assert_eq!(recorder.due_reads(), [(8, 0xabc0)]);
    let state = CommState {
        from_ns: 300,
        ts_ns: 310,
        pid: 8,
        pointer: 0xabc0,
        comm_id: 0xfeed,
        rank: 1,
        nranks: 2,
        collectives: 77,
    };
    recorder.push_state(state);
    let lines = recorder.record(&polled(1000, &[], &[]), None, 0);
    let events = read(&recorder, &lines).1;
    assert_eq!(events, [Event::CommState(state)]);
    let counts = recorder.counts();
    assert_eq!((counts.unknown_comm_ops, counts.windows), (1, 0));
}
