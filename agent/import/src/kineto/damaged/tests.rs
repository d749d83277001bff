use super::super::read;
use crate::trace::RankTrace;

/// A collective as Kineto writes it, with this name of another kernel after it.
fn events(middle: &str) -> String {
    let collective = |ts: u32| {
        format!(
            r#"{{
    "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "pid": 0, "tid": 7, "ts": {ts}, "dur": 2.5,
    "args": {{ "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "In msg nelems": 8, "Seq": {ts}, "stream": 7 }}
  }}"#
        )
    };
    format!("{},\n  {middle},\n  {}", collective(1), collective(9))
}

fn trace(events: &str) -> RankTrace {
    let text = format!(
        "{{\n\"schemaVersion\": 1,\n\"distributedInfo\": {{\"rank\": 1, \"world_size\": 2}},\n\"deviceProperties\": [\n{{\"id\": 0, \"name\": \"NVIDIA H200\"}}\n],\n\"traceEvents\": [\n{events}\n], \"traceName\": \"x\"}}"
    );
    read(text.as_bytes(), "trace.json").unwrap()
}

/// Checks what surrounds a damaged event: rank, GPU and two collectives.
#[track_caller]
fn assert_rest_is_read(read: &RankTrace) {
    assert_eq!((read.rank, read.world_size), (Some(1), Some(2)));
    assert_eq!(read.gpu_model.as_deref(), Some("NVIDIA H200"));
    let seqs: Vec<Option<u64>> = read.collectives.iter().map(|one| one.seq).collect();
    assert_eq!(seqs, [Some(1), Some(9)], "{read:?}");
    assert_eq!(read.groups["0"], [0, 1]);
}

#[test]
fn an_event_with_a_damaged_name_or_argument_is_mended() {
    for damage in [
        r#""name": "C:\users\x", "ts": 3, "dur": 4"#,
        "\"name\": \"a\u{1}\n\", \"ts\": 3, \"dur\": 4",
        r#""name": "a", "ts": 3, "dur": 4, "args": {"est. achieved occupancy %": inf, "x": -inf, "y": nan, "z": N/A}"#,
        r#""name": "a", "ts": "3", "dur": "4""#,
        r#""name": null, "ts": 3, "dur": 4"#,
        r#""name": "a", "ts": 3, "dur": 4, "args": 7"#,
        r#""name": "a", "ts": 3, "dur": 4, "args": {"In msg nelems": -1, "Collective name": 7}"#,
    ] {
        let read = trace(&events(&format!(
            r#"{{ "ph": "X", "cat": "kernel", {damage} }}"#
        )));
        assert_rest_is_read(&read);
        assert_eq!((read.busy_ns, read.n_unread), (Some(4_000), 0), "{damage}");
    }
}

#[test]
fn an_event_that_cannot_be_mended_is_counted_and_left_out() {
    for damage in [
        r#""name": "a "quoted" b", "ts": 3, "dur": 4"#,
        r#""name": "one " quote", "ts": 3, "dur": 4"#,
        r#""name": "a "}]" b", "ts": 3, "dur": 4"#,
        r#""name": "a", "ts": 3, "dur": null"#,
        r#""name": "a", "ts": nan, "dur": 4"#,
        r#""name": "a", "ts" 3, "dur": 4"#,
    ] {
        let read = trace(&events(&format!(
            r#"{{ "ph": "X", "cat": "kernel", {damage} }}"#
        )));
        assert_rest_is_read(&read);
        assert_eq!((read.busy_ns, read.n_unread), (None, 1), "{damage}");
    }
}

#[test]
fn a_name_that_is_no_utf_8_is_mended() {
    let text = format!(
        "{{\"traceEvents\": [{}]}}",
        events(r#"{ "ph": "X", "cat": "kernel", "name": "?", "ts": 3, "dur": 4 }"#)
    );
    let mut bytes = text.into_bytes();
    let place = bytes.iter().position(|byte| *byte == b'?').unwrap();
    bytes[place] = 0xff;
    let read = read(&bytes, "rank1.json").unwrap();
    assert_eq!((read.collectives.len(), read.busy_ns), (2, Some(4_000)));
}

#[test]
fn a_trace_that_is_cut_off_is_read_to_its_last_whole_event() {
    let text = format!("{{\"traceEvents\": [{}]}}", events(r#"{ "ph": "M" }"#));
    for (end, n_collectives) in [
        (text.len() - 2, 2),
        (text.len() - 9, 1),
        (text.len() / 2, 1),
    ] {
        let read = read(&text.as_bytes()[..end], "rank1.json").unwrap();
        assert_eq!(read.collectives.len(), n_collectives, "{end} of {text}");
        assert_eq!(read.n_unread, 1, "{end} of {text}");
    }
}

#[test]
fn after_a_lost_collective_those_without_numbers_are_not_read() {
    let without = |text: String| text.replace("\"Seq\": 1, ", "").replace("\"Seq\": 9, ", "");
    let lost = r#"{ "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce(x)", "ts": nan, "dur": 4 }"#;
    let read = trace(&without(events(lost)));
    assert_eq!((read.collectives.len(), read.n_unread), (1, 2));
    let read = trace(&events(lost));
    assert_eq!((read.collectives.len(), read.n_unread), (2, 1));
}

#[test]
fn damaged_metadata_beside_the_events_costs_no_event() {
    let text = format!(
        r#"{{"distributedInfo": {{"rank": "1", "world_size": "2"}}, "traceEvents": [{}], "otherData": ["a "b" c"]}}"#,
        events(r#"{ "ph": "M" }"#)
    );
    let read = read(text.as_bytes(), "trace.json").unwrap();
    assert_eq!(
        (read.rank, read.world_size, read.n_unread),
        (Some(1), Some(2), 0)
    );
    assert_eq!(read.collectives.len(), 2);
}

#[test]
fn a_file_without_an_event_is_refused_with_the_place_of_the_damage() {
    let error = read(b"{\"traceEvents\": [{]", "rank0.json").unwrap_err();
    assert!(error.to_string().contains("line 1 column 19"), "{error}");
}
