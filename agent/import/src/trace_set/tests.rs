use std::io::Read;
use std::path::Path;

use serde_json::json;

use super::*;

mod hangs;
mod variants;

/// Reads a folder of the test data; `keep` selects files by name.
fn import(folder: &str, keep: impl Fn(&str) -> bool) -> Imported {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/thirdparty");
    let mut set = TraceSet::default();
    let files = std::fs::read_dir(testdata.join(folder)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = std::fs::read(&path).unwrap();
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let packed = std::mem::take(&mut bytes);
            let mut reader = flate2::read::GzDecoder::new(&packed[..]);
            reader.read_to_end(&mut bytes).unwrap();
        }
        if keep(&name)
            && let Err(error) = set.add(&name, &bytes)
        {
            set.skip(&error);
        }
    }
    set.finish().unwrap()
}

fn late(imported: &Imported) -> Vec<u32> {
    imported.report.late.iter().map(|one| one.rank).collect()
}

#[test]
fn inspector_lines_of_a_pipeline_yield_one_cascade_and_no_verdict() {
    let imported = import("bytedance-AR/inspector", |_| true);
    let report = &imported.report;
    assert_eq!((report.files, report.world_size), (16, 16));
    assert_eq!(late(&imported), [0, 4, 8, 12]);
    assert!(imported.points.is_empty());
    assert!(
        report
            .to_string()
            .contains("ranks 0, 4, 8, 12 each arrive last"),
        "{report}"
    );
}

#[test]
fn dumps_with_durations_yield_the_same_cascade_and_no_hang() {
    let imported = import("bytedance-AR/flight-recorder", |_| true);
    assert_eq!(late(&imported), [0, 4, 8, 12]);
    assert!(imported.report.hang.is_none() && imported.points.is_empty());
}

#[test]
fn traces_yield_the_points_of_each_iteration() {
    let imported = import("bytedance-AR/kineto", |_| true);
    assert_eq!(imported.report.iterations, Some(44));
    assert_eq!(imported.points.len(), 16);
    assert!(imported.points.iter().all(|own| own.blocks.len() == 44));
}

#[test]
fn kernels_that_seem_to_communicate_and_are_not_understood_are_named() {
    let mut set = TraceSet::default();
    for rank in 0..2 {
        let kernel = |name: &str, step: u64| {
            let ts = step * 10_000;
            format!(
                r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{ts},"dur":1500,"args":{{"stream":7}}}}"#
            )
        };
        let reduce =
            (1..=20).map(|step| kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", step));
        let others = (1..=2).map(|step| kernel("void nvshmemi_transfer<4>(x)", 100 + step));
        let events: Vec<String> = reduce.chain(others).collect();
        let trace = format!(
            r#"{{"distributedInfo":{{"rank":{rank},"world_size":2}},"traceEvents":[{}]}}"#,
            events.join(",")
        );
        set.add(&format!("rank-{rank}.json"), trace.as_bytes())
            .unwrap();
    }
    let report = set.finish().unwrap().report;
    assert_eq!(report.transfers, 0);
    let note = "not understood: 4 kernels nvshmemi_transfer that seem to communicate, 6.0 ms";
    assert!(report.to_string().contains(note), "{report}");
}

#[test]
fn a_table_of_calls_names_the_rank_that_calls_last() {
    let imported = import("gf-bench", |name| name == "slow_trial_1_1_6_calls.csv");
    assert_eq!(late(&imported), [1]);
    assert_eq!((imported.report.files, imported.points.len()), (2, 2));
    let lateness = imported.report.lateness().unwrap();
    assert!(
        lateness.starts_with("rank 1 arrives last at 16 of 16"),
        "{lateness}"
    );
}

#[test]
fn parquet_of_a_pipeline_yields_the_same_ranks_as_its_traces() {
    let parquet = import("../bytedance", |name| name == "trace-AR.parquet");
    let traces = import("bytedance-AR/kineto", |_| true);
    assert_eq!(parquet.report.world_size, 16);
    assert_eq!(parquet.report.iterations, Some(44));
    assert_eq!(parquet.report.collectives, traces.report.collectives);
    assert_eq!(late(&parquet), late(&traces));
    let busy = |imported: &Imported, rank| imported.traces[&rank].busy_ns.unwrap() / 1_000_000;
    for rank in 0..16 {
        assert_eq!(busy(&parquet, rank), busy(&traces, rank), "{rank}");
    }
}

#[test]
fn one_rank_without_a_file_is_listed_and_the_others_are_judged() {
    let imported = import("bytedance-AR/kineto", |name| !name.starts_with("rank5."));
    assert_eq!(imported.report.missing_ranks, [5]);
    assert_eq!(imported.report.refusal, None);
    assert_eq!(imported.points.len(), 15);
}

/// Trace of one of 128 ranks: eight all-reduces, in which all but rank 5 wait. The clocks of the
/// ranks are hours apart.
fn trace_of_128(rank: u32) -> String {
    let ranks: Vec<u32> = (0..128).collect();
    let event = |step: u32| {
        let duration_us = if rank == 5 { 1_000.0 } else { 9_000.0 };
        let end_us = f64::from(rank).mul_add(3.6e9, f64::from(step + 1) * 20_000.0);
        json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
               "ts": end_us - duration_us, "dur": duration_us,
               "args": {"Process Group Name": "0", "Seq": step,
                        "Process Group Ranks": format!("{ranks:?}")}})
    };
    let events: Vec<_> = (0..8).map(event).collect();
    let info = json!({"rank": rank, "world_size": 128});
    json!({"distributedInfo": info, "traceEvents": events}).to_string()
}

#[test]
fn one_missing_rank_of_128_and_clocks_hours_apart_do_not_hide_the_late_rank() {
    let mut set = TraceSet::default();
    for rank in (0..128).filter(|rank| *rank != 77) {
        set.add(&format!("{rank}.json"), trace_of_128(rank).as_bytes())
            .unwrap();
    }
    let imported = set.finish().unwrap();
    assert_eq!(imported.report.missing_ranks, [77]);
    assert_eq!(late(&imported), [5]);
    assert_eq!(imported.points.len(), 127);
    let longest_ns = imported.points.iter().map(RankPoints::span_ns).max();
    assert!(longest_ns < Some(1_000_000_000), "{longest_ns:?}");
}

#[test]
fn two_ranks_of_128_are_refused_with_the_reason() {
    let mut set = TraceSet::default();
    for rank in [5, 6] {
        set.add(&format!("{rank}.json"), trace_of_128(rank).as_bytes())
            .unwrap();
    }
    let imported = set.finish().unwrap();
    let reason = imported.report.refusal.unwrap();
    assert!(reason.starts_with("2 of 128 ranks have a file"), "{reason}");
    assert!(imported.points.is_empty() && imported.report.late.is_empty());
}

#[test]
fn two_ranks_of_many_are_refused_with_the_reason() {
    let imported = import("bytedance-AR/kineto", |name| {
        name.starts_with("rank1.") || name.starts_with("rank6.")
    });
    let reason = imported.report.refusal.unwrap();
    assert!(reason.starts_with("2 of 16 ranks have a file"), "{reason}");
    assert!(imported.points.is_empty() && imported.report.late.is_empty());
}

#[test]
fn files_of_other_formats_are_listed_and_named() {
    let imported = import("flight-recorder/gpu_error_1st", |_| true);
    let skipped = &imported.report.skipped;
    assert_eq!(skipped.len(), 1);
    assert!(
        skipped[0]
            .reason
            .starts_with("fault_injection.log: none of"),
        "{skipped:?}"
    );
    let text = imported.report.to_string();
    assert!(text.contains("hang: did not join rank 12\n"), "{text}");
}

#[test]
fn files_that_do_not_fit_together_are_refused() {
    let mut set = TraceSet::default();
    let trace = br#"{"traceEvents":[]}"#;
    set.add("a/rank0.json", trace).unwrap();
    let same = set.add("b/rank0.json", trace).unwrap_err().to_string();
    assert_eq!(
        same,
        "b/rank0.json and a/rank0.json are both of rank 0: give one file per rank"
    );
    let mixed = set.add("dump_1", b"\x80\x02}.").unwrap_err();
    assert!(matches!(mixed, ImportError::Mixed { .. }), "{mixed}");
    assert!(set.add("rank1", b"\x80\x02cos\nsystem\n.").is_err());
}

/// Line of the Inspector about an operation of a communicator of two ranks.
const LINE: &str = r#"{"header":{"id":"0xd0","rank":1,"n_ranks":2},"metadata":{"hostname":"a"},"coll_perf":{"coll":"AllReduce","coll_sn":3,"coll_exec_time_us":5}}"#;

#[test]
fn joined_logs_of_the_inspector_are_divided_by_process() {
    let other = LINE.replace("\"rank\":1", "\"rank\":0");
    let other = other.replace("\"a\"", "\"b\"");
    let mut set = TraceSet::default();
    set.add("all.log", format!("{LINE}\n{other}\n").as_bytes())
        .unwrap();
    let imported = set.finish().unwrap();
    assert_eq!(imported.report.files, 2);
    let nodes = imported.traces.values().map(|trace| trace.node.as_deref());
    assert!(nodes.eq([Some("b"), Some("a")]));
}

#[test]
fn logs_of_the_inspector_that_are_of_one_rank_are_refused() {
    let mut set = TraceSet::default();
    for file in ["host-0-pid7.log", "host-0-pid8.log"] {
        set.add(file, LINE.as_bytes()).unwrap();
    }
    let error = set.finish().unwrap_err().to_string();
    assert_eq!(
        error,
        "host-0-pid8.log and host-0-pid7.log are both of rank 1: give one file per rank"
    );
}

#[test]
fn a_log_of_the_inspector_without_a_rank_is_listed() {
    let mut set = TraceSet::default();
    for (file, group) in [("a.log", "0xa"), ("b.log", "0xb"), ("rank2.log", "0xc")] {
        set.add(file, LINE.replace("0xd0", group).as_bytes())
            .unwrap();
    }
    let skipped = set.finish().unwrap().report.skipped;
    let [one, other] = &skipped[..] else {
        panic!("{skipped:?}")
    };
    assert!(
        one.reason
            .starts_with("a.log: neither the content nor the name")
    );
    assert!(other.reason.starts_with("b.log: "));
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    for text in [
        "rank,op_count,call_time_s\n0,1,1.5\n",
        r#"{"traceEvents":[]}"#,
    ] {
        let mut set = TraceSet::default();
        set.add("rank0", format!("\u{feff}{text}").as_bytes())
            .unwrap();
        assert_eq!(set.finish().unwrap().report.files, 1);
    }
}

#[test]
fn an_error_does_not_quote_the_whole_file() {
    let mut set = TraceSet::default();
    let dump = json!({"entries": "x".repeat(10_000), "pg_config": {}});
    let error = set.add("rank0", dump.to_string().as_bytes()).unwrap_err();
    let error = error.to_string();
    assert!(error.len() < 400 && error.contains("not a Flight Recorder dump"));
}

#[test]
fn a_set_without_collectives_says_so() {
    assert_eq!(TraceSet::default().finish(), Err(ImportError::Empty));
    let mut set = TraceSet::default();
    set.add("rank0.json", br#"{"traceEvents":[]}"#).unwrap();
    let report = set.finish().unwrap().report;
    assert!(
        report
            .refusal
            .unwrap()
            .starts_with("no collective operation was found")
    );
}

#[test]
fn a_hang_of_transfers_alone_names_the_peers_that_are_waited_for() {
    let mut set = TraceSet::default();
    for (rank, name) in [(0, "nccl:recv 0<-1"), (1, "nccl:recv 1<-0")] {
        let entry = json!({"process_group": ["0", ""], "profiling_name": name, "is_p2p": true,
                           "p2p_seq_id": 3, "state": "scheduled"});
        let dump = json!({"pg_config": {"0": {"ranks": "[0, 1]"}}, "entries": [entry]});
        let file = format!("rank_{rank}");
        set.add(&file, dump.to_string().as_bytes()).unwrap();
    }
    let imported = set.finish().unwrap();
    assert_eq!(imported.progress.len(), 2);
    let text = imported.report.to_string();
    let verdict = "hang: ranks 0, 1 wait for each other, such as for the other half of recv 3";
    assert!(text.contains(verdict), "{text}");
    assert!(
        text.contains("recv 3 of communicator 0: rank 0 waits for rank 1, which did not enqueue"),
        "{text}"
    );
}

#[test]
fn the_rank_that_sleeps_while_others_wait_did_not_join() {
    let imported = import("../torch/hang4", |_| true);
    assert_eq!(imported.report.hang.unwrap().missing, [3]);
}

#[test]
fn a_rank_with_a_slow_loader_arrives_last_and_none_does_in_the_healthy_job() {
    let slow = import("../torch/ddp4-loader2", |_| true);
    assert_eq!(late(&slow), [2]);
    let healthy = import("../torch/ddp4-healthy", |_| true);
    assert!(late(&healthy).is_empty(), "{}", healthy.report);
}
