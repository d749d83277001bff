//! Damaged files, and inputs that must not change the result of a replay.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use fleet_agent::replay::ReplayError;
use fleet_agent_core::signal::{Exemplar, Value};
use fleet_agent_sources::source::SourceError;
use fleet_proto::metric;

use crate::collect::{Sent, recording, run};

fn lines(name: &str) -> Vec<String> {
    let mut text = String::new();
    let bytes = std::fs::read(recording(name)).unwrap();
    MultiGzDecoder::new(bytes.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    text.lines().map(str::to_owned).collect()
}

fn write(path: &Path, lines: &[String]) {
    let mut encoder = GzEncoder::new(std::fs::File::create(path).unwrap(), Compression::fast());
    encoder.write_all(lines.join("\n").as_bytes()).unwrap();
    encoder.write_all(b"\n").unwrap();
    encoder.finish().unwrap();
}

#[test]
fn truth_rows_never_influence_what_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no-truth.jsonl.gz");
    let mut lines = lines("host-sleep-rank2");
    let with_truth = lines.len();
    lines.retain(|line| !line.starts_with("{\"kind\":\"truth\""));
    assert_eq!(with_truth - lines.len(), 4);
    write(&path, &lines);
    let original = run(&recording("host-sleep-rank2"), &[]);
    assert_eq!(original.sent, run(&path, &[]).sent);
    assert!(!original.sent.is_empty());
}

#[test]
fn a_truncated_recording_sends_the_blocks_that_were_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.jsonl.gz");
    let bytes = std::fs::read(recording("healthy")).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() * 3 / 4]).unwrap();
    let (cut, whole) = (run(&path, &[]), run(&recording("healthy"), &[]));
    let Err(ReplayError::Source(error @ SourceError::Truncated { .. })) = cut.result else {
        panic!("{:?}", cut.result);
    };
    assert!(
        error.to_string().contains("recording ends early at line "),
        "{error}"
    );
    assert!(!cut.sent.is_empty() && cut.sent.len() < whole.sent.len());
    for sent in &cut.sent {
        let (first, last) = (sent.point.block.seq_first, sent.point.block.seq_last);
        let is_whole_block = !matches!(
            sent.point.value,
            Value::Gauge(_)
                | Value::Elapsed { .. }
                | Value::Issued { .. }
                | Value::Durations { .. }
        );
        assert!(
            !is_whole_block || (last + 1).is_multiple_of(16),
            "{first}..{last}"
        );
    }
}

#[test]
fn a_file_that_is_not_a_recording_is_refused_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.json");
    std::fs::write(&path, "{\"resourceMetrics\":[]}\n").unwrap();
    let replayed = run(&path, &[]);
    let Err(ReplayError::Source(SourceError::Foreign { line: 1, .. })) = replayed.result else {
        panic!("{:?}", replayed.result);
    };
    assert!(replayed.sent.is_empty());
}

#[test]
fn a_rank_that_is_not_in_the_file_is_refused() {
    let result = run(&recording("healthy"), &["--only-rank", "4"]).result;
    assert!(
        matches!(result, Err(ReplayError::NoSuchRank { rank: 4, .. })),
        "{result:?}"
    );
}

#[test]
fn clock_skew_shifts_times_and_nothing_else() {
    let exact = run(&recording("host-sleep-rank2"), &["--node-per-rank"]).sent;
    let skewed = run(
        &recording("host-sleep-rank2"),
        &["--node-per-rank", "--clock-skew", "9s"],
    )
    .sent;
    assert_eq!(exact.len(), skewed.len());
    for (exact, skewed) in exact.iter().zip(skewed) {
        let shift_ns = match exact.rank() {
            0 => -9_000_000_000,
            1 => 3_000_000_000,
            2 => -3_000_000_000,
            _ => 9_000_000_000,
        };
        assert_eq!(shifted(exact, shift_ns), skewed);
    }
}

fn shifted(sent: &Sent, by_ns: i64) -> Sent {
    let mut sent = sent.clone();
    let shift = |ns: &mut u64| *ns = ns.checked_add_signed(by_ns).unwrap();
    shift(&mut sent.point.start_ns);
    shift(&mut sent.point.time_ns);
    if let Value::Summary { exemplars, .. } = &mut sent.point.value {
        for Exemplar { time_ns, .. } in exemplars {
            shift(time_ns);
        }
    }
    sent
}

#[test]
fn the_speed_changes_nothing_that_is_sent() {
    let fast = run(&recording("healthy"), &[]).sent;
    let slow = run(&recording("healthy"), &["--speed", "20"]).sent;
    assert_eq!(fast, slow);
}

/// The arguments of the other ranks' calls are not read then.
#[test]
fn a_lone_rank_sends_what_it_sends_among_the_others() {
    let name = "mesh-host-sleep-rank3";
    let all = run(&recording(name), &["--node-per-rank"]);
    for rank in 0..4 {
        let lone = run(&recording(name), &["--only-rank", &rank.to_string()]);
        let of_rank = all.sent.iter().filter(|sent| sent.rank() == rank);
        assert!(of_rank.eq(&lone.sent), "rank {rank}");
        assert_eq!(lone.summary.events, all.summary.events);
        assert_eq!(lone.sent[0].resource.node, format!("node-{rank}"));
    }
}

#[test]
fn recordings_replayed_in_a_row_follow_each_other_in_time() {
    let second = recording("healthy");
    let both = run(&recording("gpu-extra-rank1"), &[second.to_str().unwrap()]);
    assert!(both.result.is_ok());
    let job = |sent: &Sent| sent.resource.job.clone();
    let first_job = job(&both.sent[0]);
    let is_first = |sent: &&Sent| job(sent) == first_job;
    let end = both
        .sent
        .iter()
        .filter(is_first)
        .map(|sent| sent.point.time_ns)
        .max();
    let start = both
        .sent
        .iter()
        .filter(|sent| !is_first(sent))
        .map(|sent| sent.point.start_ns)
        .min();
    assert!(end.unwrap() < start.unwrap());
}

/// Returns the lines of a recording as if tracing had begun after some communicators were created.
fn without_inits(name: &str, is_missing: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines = lines(name);
    lines.retain(|line| !(line.contains("\"ncclCommInitRank") && is_missing(line)));
    lines
}

#[test]
fn operations_on_communicators_created_before_tracing_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attached.jsonl.gz");
    write(&path, &without_inits("healthy", |_| true));
    let replayed = run(&path, &[]);
    assert!(replayed.result.is_ok(), "{:?}", replayed.result);
    // Unknown sequence numbers are not guessed, so nothing can be compared.
    assert_eq!(replayed.sent, []);
    let lines = lines("healthy");
    let is_operation = |line: &&String| {
        ["AllReduce", "Broadcast", "AllGather"]
            .iter()
            .any(|op| line.contains(&format!("\"nccl{op}\"")))
    };
    let n_operations = lines.iter().filter(is_operation).count() as u64;
    assert_eq!(replayed.summary.unknown_comm_ops, n_operations);
    let counted = format!("; {n_operations} operations on unknown communicators");
    assert!(replayed.summary.to_string().contains(&counted));
}

#[test]
fn a_pipeline_older_than_the_agent_is_judged_by_the_records_of_its_transfers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attached.jsonl.gz");
    // Its few collectives would let the agent adopt the communicator.
    let mut lines = without_inits("real-loops/pp-cpu1", |_| true);
    lines.retain(|line| !line.contains("AllReduce"));
    write(&path, &lines);
    let replayed = run(&path, &[]);
    assert!(replayed.result.is_ok(), "{:?}", replayed.result);
    let jobs = replayed.sent.iter().map(|sent| &sent.resource.job);
    let job = Some("e097cf8ac486b849".to_owned());
    assert_eq!(jobs.collect::<BTreeSet<_>>(), BTreeSet::from([&job]));
    let is_duration = |sent: &&Sent| sent.point.metric == metric::DURATION;
    let ranks = replayed.sent.iter().filter(is_duration).map(Sent::rank);
    assert_eq!(ranks.collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]));
    let unknown = replayed.summary.unknown_comm_ops;
    assert!(unknown < 40, "{unknown}");
}

#[test]
fn communicators_created_during_tracing_are_followed_beside_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attached.jsonl.gz");
    write(
        &path,
        &without_inits("mesh-host-sleep-rank3", |line| {
            line.contains("\"nranks\":4")
        }),
    );
    let replayed = run(&path, &[]);
    assert!(replayed.result.is_ok(), "{:?}", replayed.result);
    assert!(replayed.summary.unknown_comm_ops > 0);
    assert!(
        replayed
            .sent
            .iter()
            .all(|sent| sent.point.block.comm_nranks == 2)
    );
}
