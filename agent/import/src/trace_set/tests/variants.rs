//! The same job in traces as they are found: damaged, with other names of files and of kernels.

use crate::trace_set::TraceSet;

const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";

/// Thirty steps of 40 ms of one of four ranks. Rank 2 arrives 8 ms after the others. `known` is what is
/// known of the rank, and `extra` is an event after each operation.
fn trace(rank: u32, known: &str, kernel: &str, extra: &str) -> String {
    let waits_us = if rank == 2 { 2_000 } else { 10_000 };
    let steps = (0..30).map(|step| {
        let (begin, end) = (step * 40_000, (step + 1) * 40_000);
        let arrival = end - waits_us;
        let extra = extra.replace("START", &arrival.to_string());
        let extra = extra.replace("WAIT", &waits_us.to_string());
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": {begin}, "dur": {}, "args": {{"stream": 7}}}},
            {{"ph": "X", "cat": "kernel", "name": "{kernel}", "pid": 0, "tid": 4, "ts": {arrival}, "dur": {waits_us}, "args": {{"stream": 4}}}}{extra}"#,
            arrival - begin,
        )
    });
    let steps = steps.collect::<Vec<_>>().join(",\n");
    format!(r#"{{"schemaVersion": 1, {known} "traceEvents": [{steps}], "otherData": []}}"#)
}

fn known(rank: u32) -> String {
    format!(r#""distributedInfo": {{"rank": {rank}, "world_size": 4}},"#)
}

/// Ranks that arrive last in these traces of ranks 0 to 3.
fn late(name: impl Fn(u32) -> String, content: impl Fn(u32) -> Vec<u8>) -> Vec<u32> {
    let mut set = TraceSet::default();
    for rank in 0..4 {
        set.add(&name(rank), &content(rank)).unwrap();
    }
    let report = set.finish().unwrap().report;
    assert_eq!(report.refusal, None, "{report}");
    report.late.iter().map(|one| one.rank).collect()
}

fn plain_name(rank: u32) -> String {
    format!("rank{rank}.json")
}

#[test]
fn the_late_rank_of_damaged_traces_is_named() {
    let replaced = |from: &str, to: &[u8]| {
        let (from, to) = (from.to_owned(), to.to_owned());
        move |rank| {
            let text = trace(rank, &known(rank), ALL_REDUCE, "");
            let (before, after) = text.split_once(&from).unwrap();
            [before.as_bytes(), &to, after.as_bytes()].concat()
        }
    };
    for (from, to) in [
        ("gemm", &b"C:\\users\\x"[..]),
        ("gemm", b"\xff"),
        ("gemm", b"a\x01b"),
        ("gemm", br#"a "b" c"#),
        (r#""gemm""#, b"null"),
        (r#""ts": 0"#, br#""ts": nan"#),
        (r#"{"stream": 7}"#, b"7"),
        (
            r#"{"stream": 7}"#,
            br#"{"stream": 7, "occupancy": inf, "x": N/A}"#,
        ),
        (r#""otherData": []"#, br#""otherData": ["a "b" c"]"#),
        (r#""world_size": 4"#, br#""world_size": "4""#),
    ] {
        let damage = String::from_utf8_lossy(to).into_owned();
        assert_eq!(late(plain_name, replaced(from, to)), [2], "{damage}");
    }
    let cut_off = |rank| {
        let text = trace(rank, &known(rank), ALL_REDUCE, "");
        text.as_bytes()[..text.len() * 9 / 10].to_vec()
    };
    assert_eq!(late(plain_name, cut_off), [2]);
}

#[test]
fn the_late_rank_is_named_whatever_the_files_are_called() {
    for name in [
        "t_RANK.json",
        "rankRANK_iter16_18.json",
        "Qwen1.5_tpRANK.json",
        "1708722576.381-TP-RANK.trace.json",
        "host_4123RANK.170872257631.pt.trace.json",
        "nodeRANK_123.170872257631.pt.trace.json",
    ] {
        let named = |rank: u32| name.replace("RANK", &rank.to_string());
        let content = |rank| trace(rank, "", ALL_REDUCE, "").into_bytes();
        assert_eq!(late(named, content), [2], "{name}");
    }
}

#[test]
fn collectives_are_recognised_by_kernels_of_all_kinds_and_by_the_spans_over_them() {
    let span = r#", {"ph": "X", "cat": "gpu_user_annotation", "name": "nccl:all_to_all", "pid": 0, "tid": 4, "ts": START, "dur": WAIT}"#;
    for (kernel, extra) in [
        ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(x)", ""),
        ("ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(x)", ""),
        ("nccldevkernel_allreduce_sum_f32(x)", ""),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x)",
            "",
        ),
        ("void vllm::cross_device_reduce_1stage<__half, 8>(x)", ""),
        ("ncclDevKernel_Generic_1(x)", ""),
        ("ncclDevKernel_Generic_1(x)", span),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", span),
    ] {
        let content = |rank| trace(rank, &known(rank), kernel, extra).into_bytes();
        assert_eq!(late(plain_name, content), [2], "{kernel}");
    }
    let mut set = TraceSet::default();
    let transfers = trace(0, &known(0), "ncclKernel_SendRecv(x)", "");
    set.add("rank0.json", transfers.as_bytes()).unwrap();
    assert_eq!(set.finish().unwrap().report.transfers, 30);
}
