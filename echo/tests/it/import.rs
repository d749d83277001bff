//! `fleet-echo import` on traces and dumps that other tools wrote.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use fleet_test_harness::MOUNTS;
use serde_json::{Deserializer, Value, json};

use crate::testbed::{ECHO, Echo, agent};
use crate::volume::Mounted;

mod output;

fn thirdparty(folder: &str) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    repository.join("testdata/thirdparty").join(folder)
}

fn command(path: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(ECHO);
    command.args(["--log", "error", "import"]).arg(path);
    command.args(flags).arg("--agent").arg(agent());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the command. Returns exit code, standard output and standard error.
fn import(path: &Path, flags: &[&str]) -> (i32, String, String) {
    let output = command(path, flags).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn traces_of_a_pipeline_name_the_slow_rank_and_none_that_waits_for_it() {
    for traces in ["kineto", "../../bytedance/trace-AR.parquet"] {
        let (code, printed, errors) = import(&thirdparty("bytedance-AR").join(traces), &[]);
        assert_eq!(code, 0, "{errors}");
        let expected = [
            " 44 iterations",
            "arrival  ranks 0, 4, 8, 12 each arrive last in their communicator: one cascade; only the \
             GPU of rank 0 computed longer than those of its peers",
            "verdict  rank 0, by its arrivals and its computation",
        ];
        for line in expected {
            assert!(printed.contains(line), "{printed}");
        }
    }
}

/// Returns the ranks that the detector names.
fn outliers(path: &Path) -> Vec<u64> {
    let (code, printed, errors) = import(path, &["--json"]);
    assert_eq!(code, 0, "{errors}");
    let answer: Value = serde_json::from_str(&printed).unwrap();
    let outliers = answer["outliers"]["outliers"].as_array().unwrap();
    let ranks = outliers.iter().map(|outlier| outlier["rank"].as_u64());
    ranks.collect::<Option<_>>().unwrap()
}

#[test]
fn parquet_of_a_job_with_unequal_sequences_names_no_worker() {
    assert!(outliers(&thirdparty("../bytedance/trace-SE.parquet")).is_empty());
}

#[test]
fn a_table_of_call_times_names_the_rank_that_sleeps() {
    let (code, printed, errors) = import(&thirdparty("gf-bench"), &[]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        printed.contains("verdict  rank 1, by its arrivals alone"),
        "{printed}"
    );
}

/// Writes profiler traces of four ranks, of which rank 1 arrives last from the 31st step on.
fn late_rank(folder: &Path, gpu_model: &str) {
    traces(folder, gpu_model, |rank, step| step > 30 && rank != 1);
}

/// Writes profiler traces of four ranks, which wait for 8 ms at these steps.
fn traces(folder: &Path, gpu_model: &str, waits: impl Fn(u32, u32) -> bool) {
    for rank in 0..4_u32 {
        let event = |step: u32| {
            let duration_us = if waits(rank, step) { 9_000 } else { 1_000 };
            let end_us = (step + 1) * 20_000;
            json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
                   "ts": end_us - duration_us, "dur": duration_us,
                   "args": {"Process Group Name": "0", "Seq": step,
                            "Process Group Ranks": "[0, 1, 2, 3]"}})
        };
        let events: Vec<Value> = (0..80).map(event).collect();
        let trace = json!({"deviceProperties": [{"name": gpu_model}], "traceEvents": events,
                           "distributedInfo": {"rank": rank, "world_size": 4}});
        let path = folder.join(format!("rank{rank}.json"));
        std::fs::write(path, trace.to_string()).unwrap();
    }
}

/// What is printed of traces whose ranks wait at these steps.
fn printed(waits: impl Fn(u32, u32) -> bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    traces(folder.path(), "H200", waits);
    let (code, printed, errors) = import(folder.path(), &[]);
    assert_eq!(code, 0, "{errors}");
    printed
}

#[test]
fn ranks_that_are_late_together_and_a_rank_that_pauses_are_named_with_what_the_others_waited() {
    let half = printed(|rank, step| step > 30 && rank < 2);
    assert!(
        half.contains("arrival  ranks 2, 3 arrive last together at 49 of 80 operations"),
        "{half}"
    );
    assert!(
        half.contains("verdict  ranks 2, 3, by their arrivals alone"),
        "{half}"
    );
    // 49 times 8 ms on four GPUs.
    assert!(half.contains("cost     about 1.57 GPU-seconds, "), "{half}");
    let folder = tempfile::tempdir().unwrap();
    traces(folder.path(), "H200", |rank, step| step > 30 && rank < 2);
    let (_, printed_json, _) = import(folder.path(), &["--json"]);
    let json: Value = serde_json::from_str(&printed_json).unwrap();
    assert_eq!(json["cost"], Value::Null);
    assert!(json["cost_unknown"].is_string(), "{printed_json}");
    let lost = json["loss_by_arrivals"]["gpu_s"].as_f64().unwrap();
    assert!((lost - 1.568).abs() < 1e-6, "{printed_json}");
    let pauses = printed(|rank, step| step % 8 == 5 && rank != 3);
    assert!(
        pauses.contains("verdict  rank 3, by its arrivals alone"),
        "{pauses}"
    );
    let arrival =
        "rank 3 arrives last at 10 of 80 operations of one kind after the first 5, 8.0 ms behind";
    assert!(pauses.contains(arrival), "{pauses}");
    assert!(
        pauses.contains("cost     about 0.32 GPU-seconds, "),
        "{pauses}"
    );
    let by_turns = printed(|rank, step| step % 4 != rank);
    let verdict = "verdict  no rank is named: 4 ranks arrive last by turns, at 80 operations";
    assert!(by_turns.contains(verdict), "{by_turns}");
    assert!(
        by_turns.contains("the ranks waited 1.92 GPU-seconds for one another"),
        "{by_turns}"
    );
}

#[test]
fn a_model_with_control_characters_does_not_prevent_that_a_trace_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    late_rank(folder.path(), "NVIDIA\u{7} H200");
    let (code, printed, errors) = import(folder.path(), &["--json"]);
    assert_eq!(code, 0, "{errors}");
    let answer: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(answer["points_rejected"], 0);
    assert_eq!(answer["report"]["late"][0]["rank"], 1);
}

#[test]
fn an_import_of_which_every_point_is_rejected_says_why() {
    let folder = tempfile::tempdir().unwrap();
    late_rank(folder.path(), "H200");
    let mut command = command(folder.path(), &[]);
    command.env("FLEET_AGENT_GPU_MODEL", "a\u{7}");
    let output = command.output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(65), "{errors}");
    assert!(errors.contains("points were rejected ("), "{errors}");
}

#[test]
fn json_of_an_import_that_is_served_has_the_address_of_its_page() {
    let mut command = command(&thirdparty("gf-bench"), &["--json", "--serve"]);
    let mut child = command.spawn().unwrap();
    let mut printed = child.stdout.take().unwrap();
    let mut answers = Deserializer::from_reader(&mut printed).into_iter::<Value>();
    let answer = answers.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let page = answer["page"].as_str().unwrap();
    assert!(page.starts_with("http://127.0.0.1:"), "{page}");
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.trim(), "");
}

#[test]
fn an_export_of_nsight_systems_with_transfers_only_names_no_gpu() {
    let (code, printed, errors) = import(&thirdparty("nsys-ai"), &[]);
    assert_eq!(code, 65, "{printed}");
    assert!(
        printed.contains("66 transfers do not tell which rank is late"),
        "{printed}"
    );
    assert_eq!(errors, "");
}

#[test]
fn a_recording_is_recognised_and_judged_as_its_replay() {
    let (code, printed, errors) = import(
        &thirdparty("../recordings/host-sleep-rank2.jsonl.gz"),
        &["--json"],
    );
    assert_eq!(code, 0, "{errors}");
    let answer: Value = serde_json::from_str(&printed).unwrap();
    let outliers = answer["outliers"]["outliers"].as_array().unwrap();
    let ranks: Vec<&Value> = outliers.iter().map(|outlier| &outlier["rank"]).collect();
    assert_eq!(ranks, [2], "{answer:#}");
    assert_eq!(answer["report"]["format"], "recording");
    assert_eq!(answer["report"]["files"], 4);
}

#[test]
fn a_recording_that_ends_early_is_judged_up_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.jsonl.gz");
    let whole = std::fs::read(thirdparty("../recordings/healthy.jsonl.gz")).unwrap();
    let (half, _) = whole.split_at(whole.len() / 2);
    std::fs::write(&cut, half).unwrap();
    let (code, printed, errors) = import(&cut, &["--json"]);
    assert_eq!(code, 0, "{errors}");
    let answer: Value = serde_json::from_str(&printed).unwrap();
    let skipped = answer["report"]["skipped"][0]["reason"].as_str().unwrap();
    assert!(
        skipped.contains("recording ends early at line "),
        "{skipped}"
    );
    assert!(answer["outliers"].is_object());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let (code, _, errors) = import(Path::new("/no/such/recording"), &[]);
    assert_eq!(code, 65);
    assert!(
        errors.contains("/no/such/recording: cannot be read (No such file"),
        "{errors}"
    );
}

#[test]
fn recordings_that_do_not_fit_together_are_refused_with_their_names() {
    let (code, _, errors) = import(&thirdparty("../recordings"), &[]);
    assert_eq!(code, 65);
    assert!(
        errors.contains("gpu-extra-rank1.jsonl.gz are both recordings of rank 0: import jobs one"),
        "{errors}"
    );
    let mixed = thirdparty("README.md");
    let flags = [mixed.to_str().unwrap()];
    let (code, _, errors) = import(&thirdparty("../recordings/healthy.jsonl.gz"), &flags);
    assert_eq!(code, 65);
    assert!(
        errors.contains("README.md is not: import them separately"),
        "{errors}"
    );
}

#[test]
fn dumps_of_a_hang_name_the_ranks_that_did_not_join() {
    for (set, verdict) in [
        ("gpu_error_1st", "hang: did not join rank 12\n"),
        ("lock_gil_2nd", "hang: did not join ranks 10, 15\n"),
    ] {
        let (code, printed, errors) = import(&thirdparty("flight-recorder").join(set), &[]);
        assert_eq!(code, 0, "{errors}");
        assert!(printed.contains(verdict), "{printed}");
    }
}

#[test]
fn a_hang_of_dumps_is_stored_with_the_ranks_that_did_not_join() {
    for (set, missing) in [
        ("../torch/hang4", &[3][..]),
        ("flight-recorder/gpu_error_1st", &[12]),
        ("flight-recorder/lock_gil_2nd", &[10, 15]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("fleet.duckdb");
        let flags = ["--json", "--db", db.to_str().unwrap()];
        let (code, printed, errors) = import(&thirdparty(set), &flags);
        assert_eq!(code, 0, "{errors}");
        let answer: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(named(&answer["outliers"]), missing, "{set}: {answer:#}");

        let echo = Echo::serve(&db);
        let stored = echo.query("find_outlier_nodes", "import");
        assert_eq!(named(&stored), missing, "{set}: {stored:#}");
    }
}

/// Returns the ranks that the conditions name as missing; all must be hangs.
fn named(outliers: &Value) -> Vec<u64> {
    let conditions = outliers["conditions"].as_array().unwrap();
    assert!(
        conditions.iter().all(|one| one["kind"] == "hang"),
        "{outliers:#}"
    );
    let ranks = conditions
        .iter()
        .flat_map(|one| one["ranks"].as_array().unwrap());
    let ranks: BTreeSet<u64> = ranks.map(|rank| rank.as_u64().unwrap()).collect();
    ranks.into_iter().collect()
}

#[test]
#[needs(MOUNTS)]
fn dumps_are_analysed_and_the_reason_is_named_if_no_event_can_be_stored() {
    let volume = Mounted::ext4(64);
    let db = volume.db();
    let flags = ["--db", db.to_str().unwrap()];
    let (code, printed, errors) = import(&thirdparty("../torch/hang4"), &flags);
    assert_eq!(code, 74, "{printed}{errors}");
    assert!(printed.contains("hang: did not join rank 3\n"), "{printed}");
    assert!(
        errors.contains("the events were not stored: the volume of the database is nearly full"),
        "{errors}"
    );
}

#[test]
fn a_format_without_iterations_yields_no_verdict_about_a_rank() {
    let (code, printed, errors) = import(&thirdparty("bytedance-AR/inspector"), &[]);
    assert_eq!(code, 0, "{errors}");
    assert!(
        printed.contains("ranks 0, 4, 8, 12 each arrive last") && !printed.contains("verdict"),
        "{printed}"
    );
}

#[test]
fn files_without_a_verdict_end_the_command_with_the_reason() {
    let two = tempfile::tempdir().unwrap();
    for rank in [1, 6] {
        let name = format!("rank{rank}.pt.trace.json.gz");
        let from = thirdparty("bytedance-AR/kineto").join(&name);
        std::fs::copy(from, two.path().join(&name)).unwrap();
    }
    let (code, printed, errors) = import(two.path(), &[]);
    assert_eq!(code, 65, "{printed}");
    assert!(printed.contains("2 of 16 ranks have a file"), "{printed}");
    assert_eq!(errors, "", "the reason is printed once");
    let (code, _, errors) = import(two.path(), &["--json"]);
    assert_eq!(code, 65);
    assert!(errors.contains("2 of 16 ranks have a file"), "{errors}");
    let (code, _, errors) = import(&thirdparty("README.md"), &[]);
    assert_eq!(code, 65);
    assert!(
        errors.contains("README.md: none of the formats"),
        "{errors}"
    );
}
