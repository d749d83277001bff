//! Recordings of GPU operations.

use std::io::Cursor;

use fleet_agent_core::event::{CallKind, Event, GpuOperation};

use crate::recording::Recording;
use crate::source::{EventSource, SourceError};

const HEADER: &str = r#"{"kind":"header","processes":[{"pid":70,"rank":0,"world_size":2},{"pid":71,"rank":1,"world_size":2}]}"#;

fn read(rows: &[String]) -> Result<Vec<Event>, SourceError> {
    let text = format!("{HEADER}\n{}\n", rows.join("\n"));
    let mut recording = Recording::new("test", Cursor::new(text.into_bytes()))?;
    let mut events = Vec::new();
    while let Some(event) = recording.next_event()? {
        events.push(event);
    }
    Ok(events)
}

/// Returns a row of a communicator.
fn row(comm: &str, (rank, nranks): (u32, u32), host_ns: u64, gpu_ns: (u64, u64)) -> String {
    let (start, stop) = gpu_ns;
    format!(
        r#"{{"kind":"coll","comm":"{comm}","seq":0,"func":"AllReduce","datatype":"ncclBfloat16","count":8,"rank":{rank},"nranks":{nranks},"host_ns":{host_ns},"gpu_start_ns":{start},"gpu_stop_ns":{stop},"channels":1}}"#
    )
}

fn gpu_operations(events: &[Event]) -> Vec<GpuOperation> {
    let operations = events.iter().filter_map(|event| match event {
        Event::GpuOperation(operation) => Some(*operation),
        _ => None,
    });
    operations.collect()
}

#[test]
fn rows_become_calls_and_gpu_operations_in_order_of_time() {
    // The GPU of rank 0 is 1 s ahead of the host's clock, that of rank 1 is 2 s ahead.
    let rows = [
        row("a1", (1, 2), 3_000, (2_000_003_500, 2_000_004_000)),
        row("a1", (0, 2), 1_000, (1_000_001_000, 1_000_004_000)),
        row("a1", (1, 2), 500, (2_000_000_500, 2_000_000_900)),
    ];
    let events = read(&rows).unwrap();
    let times: Vec<u64> = events.iter().map(Event::ts_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
    let seen: Vec<(u32, u64, u64)> = gpu_operations(&events)
        .iter()
        .map(|operation| (operation.pid, operation.seq, operation.ts_ns))
        .collect();
    assert_eq!(seen, [(71, 0, 900), (70, 0, 4_000), (71, 1, 4_000)]);
    let calls = events.iter().filter(
        |event| matches!(event, Event::Call(call) if matches!(call.kind, CallKind::Operation(_))),
    );
    assert_eq!(calls.count(), 3);
}

#[test]
fn rows_of_other_communicators_belong_to_the_process_with_the_same_gpu_offset() {
    let rows = [
        row("a1", (0, 2), 1_000, (1_000_001_000, 1_000_004_000)),
        row("a1", (1, 2), 1_000, (2_000_001_000, 2_000_004_000)),
        row("b2", (0, 1), 5_000, (2_000_005_100, 2_000_006_000)),
    ];
    let events = read(&rows).unwrap();
    let of_part = gpu_operations(&events);
    let part = of_part
        .iter()
        .find(|operation| operation.comm_id == 0xb2)
        .unwrap();
    assert_eq!(part.pid, 71);
}

#[test]
fn ambiguous_rows_are_an_error() {
    let rows = [
        row("a1", (0, 2), 1_000, (1_000_001_000, 1_000_004_000)),
        row("a1", (1, 2), 1_000, (1_000_001_400, 1_000_004_000)),
        row("b2", (0, 1), 5_000, (1_000_005_200, 1_000_006_000)),
    ];
    let error = read(&rows).unwrap_err().to_string();
    assert!(error.contains("cannot determine which process"), "{error}");
}

#[test]
fn a_row_with_a_process_is_read_in_place() {
    let row = r#"{"kind":"coll","ts":900,"pid":71,"comm":"b2","seq":3,"comm_seq":9,"comm_nth":1,"func":"Send","count":8,"rank":0,"nranks":2,"host_ns":500,"gpu_start_ns":0,"gpu_stop_ns":0,"channels":0}"#;
    let events = read(&[row.to_owned()]).unwrap();
    let [operation] = gpu_operations(&events).try_into().unwrap();
    assert_eq!(
        (operation.pid, operation.seq, operation.nth, operation.timer),
        (71, 9, 1, None)
    );
}

#[test]
fn an_inconsistent_row_is_an_error() {
    let known = row("a1", (0, 2), 1, (2, 3));
    for (from, to) in [
        ("AllReduce", "Sort"),
        ("\"rank\":0", "\"rank\":2"),
        ("\"a1\"", "\"?\""),
    ] {
        assert!(read(&[known.replace(from, to)]).is_err(), "{to}");
    }
}
