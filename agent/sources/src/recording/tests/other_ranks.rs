//! Calls of ranks that are not replayed.

use fleet_agent_core::event::Event;

use super::{ALL_REDUCE, HEADER, SourceError, open, read};

#[test]
fn only_calls_of_other_ranks_are_read_without_their_arguments() {
    let header = r#"{"kind":"header","processes":[{"pid":7,"rank":1,"world_size":2},{"pid":9,"rank":0,"world_size":2}]}"#;
    let of_process = |pid: u32| {
        [
            r#"{"kind":"call","ts":5,"dur":2,"pid":PID,"tid":8,"fn":"cudaMemcpyAsync","bytes":64}"#,
            r#"{"kind":"entered","ts":6,"pid":PID,"tid":8,"fn":"cuCtxSynchronize"}"#,
            r#"{"kind":"returned","ts":6,"dur":3,"pid":PID,"tid":8,"fn":"cuCtxSynchronize"}"#,
            r#"{"kind":"launches","ts":7,"window_ns":3,"pid":PID,"fn":"cudaLaunchKernel","n":12}"#,
            r#"{"kind":"copies","ts":8,"window_ns":3,"pid":PID,"fn":"cudaMemcpy","memcpy_kind":2,"n":2}"#,
            r#"{"kind":"call","pid":PID,"ts":9,"dur":2,"fn":"cudaMemcpyAsync","bytes":64}"#,
            r#"{"kind":"sched_switch","ts":10,"prev_tid":8,"prev_state":"R","next_tid":9}"#,
        ]
        .map(|line| line.replace("PID", &pid.to_string()) + "\n")
        .concat()
    };
    let text = format!("{header}\n{}{}", of_process(7), of_process(9));
    let whole = read(&mut open(text.as_bytes()).unwrap()).0;
    let (events, error) = read(&mut open(text.as_bytes()).unwrap().with_arguments_of(1));
    assert!(error.is_none(), "{error:?}");
    let identity = |event: &Event| (event.ts_ns(), event.pid(), std::mem::discriminant(event));
    let identities = |events: &[Event]| events.iter().map(identity).collect::<Vec<_>>();
    assert_eq!(identities(&events), identities(&whole));
    let pairs = events.iter().zip(&whole);
    let changed = pairs.filter(|(event, whole)| event != whole);
    let changed: Vec<_> = changed
        .map(|(event, _)| (event.pid(), event.ts_ns()))
        .collect();
    assert_eq!(changed, [5, 6, 9, 7].map(|ts_ns| (Some(9), ts_ns)));
}

#[test]
fn a_truncated_call_of_another_rank_is_detected() {
    let (half, _) = ALL_REDUCE.split_at(60);
    let cut = format!("{HEADER}\n{half}");
    let (_, error) = read(&mut open(cut.as_bytes()).unwrap().with_arguments_of(0));
    assert!(
        matches!(error, Some(SourceError::Truncated { line: 2, .. })),
        "{error:?}"
    );
}
