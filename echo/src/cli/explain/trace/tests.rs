use clap::Parser;

use super::*;
use crate::cli::explain;
use crate::cli::screen::Screen;
use crate::cli::tests::Server;

#[derive(Debug, Parser)]
struct Program {
    #[command(flatten)]
    args: ExplainArgs,
}

/// Block of a rank that ends at this time, microseconds.
fn block(rank: u32, seq: u64, end_us: i64) -> Value {
    json!({
        "kind": "histogram",
        "metric_name": "fleet.rank.host_gap_ms",
        "source": "host",
        "op": "AllReduce",
        "comm_id": "00000000000000aa",
        "node_id": format!("node-{rank}"),
        "rank": rank,
        "timestamp_ns": end_us * 1000,
        "seq_first": seq,
        "seq_last": seq + 63,
        "count": 64,
        "sum": 128.0,
        "min": 1.0,
        "max": 3.0,
        "unit": "ms",
    })
}

fn answer() -> Value {
    json!({
        "who": {"rank": 2, "node_id": "node-2", "job": "train"},
        "incidents": [{
            "incident_id": "0123456789abcdef",
            "role": "culprit",
            "victims": [5],
            "first_seen": "2026-06-01T12:00:01Z",
            "last_seen": "2026-06-01T12:00:09Z",
            "cleared_at": null,
            "reason": "it is late",
        }],
    })
}

fn slices(trace: &Value, pid: u32) -> Vec<(f64, f64)> {
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let own = events.filter(|event| event["ph"] == "X" && event["pid"] == pid);
    let times = |event: &Value| {
        let number = |name: &str| event[name].as_f64().unwrap();
        (number("ts"), number("dur"))
    };
    own.map(times).collect()
}

#[test]
fn the_first_victim_is_shown_beside_its_culprit() {
    assert_eq!(peer(&answer(), 2), 5);
    let victim = json!({"victim_of": [{"victim_of": [7]}]});
    assert_eq!(peer(&victim, 2), 7);
    assert_eq!((peer(&json!({}), 0), peer(&json!({}), 2)), (1, 0));
}

#[test]
fn blocks_are_slices_and_the_peer_is_aligned_by_common_blocks() {
    let own = [0, 64, 128].map(|seq| block(2, seq, 10_000 * i64::try_from(seq).unwrap()));
    // The clock of the peer is 5 s ahead.
    let ahead = |seq: u64| block(5, seq, 10_000 * i64::try_from(seq).unwrap() + 5_000_000);
    let others = [0, 64, 128].map(ahead);
    let trace = trace(&answer(), (2, &own), (5, &others));
    let expected = [(0.0, 640_000.0), (640_000.0, 640_000.0)];
    assert_eq!(slices(&trace, 1), expected);
    assert_eq!(slices(&trace, 2), expected);
}

#[test]
fn an_incident_is_a_span_from_its_beginning_to_its_end() {
    let trace = trace(&answer(), (2, &[]), (5, &[]));
    let [(start, duration)] = slices(&trace, 3)[..] else {
        panic!("{trace}")
    };
    assert_eq!((start, duration), (1_780_315_201e6, 8e6));
}

#[test]
fn a_trace_is_written_beside_the_answer() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rank2.json");
    let url = format!("http://{}", server.address);
    let name = file.to_str().unwrap();
    let words = ["explain", "--cluster", "prod", "--rank", "2"];
    let words = words.into_iter().chain(["--trace", name, "--server", &url]);
    let Program { args } = Program::parse_from(words);
    let mut printed = Vec::new();
    explain::run(&args, &mut Screen::plain(&mut printed)).unwrap();
    assert!(!printed.is_empty());
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let count = |phase: &str, pid: u32| {
        let of_rank = |event: &&Value| event["ph"] == phase && event["pid"] == pid;
        events.iter().filter(of_rank).count()
    };
    // The fixture has an iteration time of each rank every five seconds, in ten minutes.
    assert!(count("C", 1) >= 120 && count("C", 2) >= 120, "{trace}");
    let is_culprit = |event: &Value| event["pid"] == 3 && event["name"] == "culprit";
    assert!(events.iter().any(is_culprit), "{trace}");
}
