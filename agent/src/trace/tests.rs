use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::sync::OnceLock;

use flate2::read::MultiGzDecoder;
use serde_json::Value;
use tempfile::TempDir;

use super::*;

fn recording(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Those at the speed at which they were taken.
    let folder = if name.contains('/') { "" } else { "short" };
    root.join("testdata/recordings")
        .join(folder)
        .join(format!("{name}.jsonl.gz"))
}

/// Four ranks of one host, of which rank 2 sleeps before its collectives, and a few of their 61,448
/// memory copies.
fn sleeping() -> &'static Path {
    static PATH: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PATH.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sleeping.jsonl");
        let whole = text(&recording("host-sleep-rank2"));
        let mut file = String::new();
        for (number, line) in whole.lines().enumerate() {
            if number % 64 == 0 || !line.contains("cudaMemcpyAsync") {
                file.push_str(line);
                file.push('\n');
            }
        }
        fs::write(&path, file).unwrap();
        (folder, path)
    });
    path
}

fn text(path: &Path) -> String {
    let mut text = String::new();
    let file = File::open(path).unwrap();
    MultiGzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

/// Exports to a name in a new directory.
fn exported(files: &[&Path], name: &str) -> (TempDir, ExportSummary) {
    let folder = tempfile::tempdir().unwrap();
    let args = ExportArgs {
        files: files.iter().map(|file| file.to_path_buf()).collect(),
        output: folder.path().join(name),
    };
    let summary = export(&args).unwrap();
    (folder, summary)
}

fn events(path: &Path) -> Vec<Value> {
    let trace: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

fn is(event: &Value, name: &str, value: &str) -> bool {
    event[name] == value
}

/// Lines of the recording that are calls of these functions.
fn calls(is_wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let lines = fs::read_to_string(sleeping()).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let calls = lines.filter(|line: &Value| {
        is(line, "kind", "call") && line["fn"].as_str().is_some_and(&is_wanted)
    });
    calls.collect()
}

fn is_collective(function: &str) -> bool {
    ["ncclAllReduce", "ncclBroadcast", "ncclAllGather"].contains(&function)
}

/// Process of each rank in a trace.
fn processes(events: &[Value]) -> BTreeMap<String, u64> {
    let names = events
        .iter()
        .filter(|event| is(event, "name", "process_name"));
    let row = |event: &Value| {
        let name = event["args"]["name"].as_str().unwrap().to_owned();
        (name, event["pid"].as_u64().unwrap())
    };
    names.map(row).collect()
}

#[test]
fn a_perfetto_trace_has_a_process_per_rank_and_each_collective_at_its_time() {
    let (_folder, summary) = exported(&[sleeping()], "trace.json");
    let events = events(&summary.file);
    let names: Vec<String> = processes(&events).into_keys().collect();
    let expected = [0, 1, 2, 3].map(|rank| format!("rank {rank} (host 0)"));
    assert_eq!(names, expected);
    let issued = calls(is_collective);
    assert_eq!(summary.collectives, issued.len());
    let slices = events
        .iter()
        .filter(|event| is(event, "ph", "X") && event["args"].get("seq").is_some());
    let key = |ts: f64, dur: f64, pid: u64| (ts.to_bits(), dur.to_bits(), pid);
    let mut written: Vec<_> = slices
        .map(|event| {
            let number = |name: &str| event[name].as_f64().unwrap();
            key(number("ts"), number("dur"), event["pid"].as_u64().unwrap())
        })
        .collect();
    let mut recorded: Vec<_> = issued
        .iter()
        .map(|call| {
            let micros = |name: &str| call[name].as_f64().unwrap() / 1e3;
            key(micros("ts"), micros("dur"), call["pid"].as_u64().unwrap())
        })
        .collect();
    written.sort_unstable();
    recorded.sort_unstable();
    assert_eq!(written, recorded);
}

#[test]
fn a_perfetto_trace_shows_waits_copies_time_off_the_cpu_and_evidence() {
    let (_folder, summary) = exported(&[sleeping()], "trace.json");
    let events = events(&summary.file);
    let count = |phase: &str, name: &str| {
        let of_name = |event: &&Value| is(event, "ph", phase) && is(event, "name", name);
        events.iter().filter(of_name).count()
    };
    let waits = calls(|function| function.ends_with("Synchronize"));
    assert_eq!(count("X", "wait for the GPU"), waits.len());
    let copies = calls(|function| function == "cudaMemcpyAsync");
    assert_eq!(count("X", "memory copy"), copies.len());
    assert!(count("X", "blocked") > 0);
    assert!(count("C", "kernel launches") > 0);
    assert_eq!(count("b", "AllReduce"), count("e", "AllReduce"));
    assert!(count("b", "AllReduce") > 5000);
}

#[test]
fn the_sleeping_rank_enters_after_its_peers_in_the_trace() {
    let (_folder, summary) = exported(&[sleeping()], "trace.json");
    let events = events(&summary.file);
    let processes = processes(&events);
    let late = |rank: u32| -> f64 {
        let pid = processes[&format!("rank {rank} (host 0)")];
        let own = events
            .iter()
            .filter(|event| is(event, "ph", "X") && event["pid"] == pid);
        let late = own.filter_map(|event| event["args"]["after the first rank (us)"].as_f64());
        late.sum()
    };
    let all = [0, 1, 2, 3].map(late);
    assert!(
        [0, 1, 3].iter().all(|rank| all[2] > 2.0 * all[*rank]),
        "{all:?}"
    );
}

/// Writes the ranks of a recording that are wanted to a file whose clock is ahead by `ahead_ns`.
fn part(folder: &Path, name: &str, ranks: &[u64], ahead_ns: u64) -> PathBuf {
    let whole = fs::read_to_string(sleeping()).unwrap();
    let mut lines = whole.lines();
    let mut header: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let kept: Vec<Value> = header["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|process| ranks.contains(&process["rank"].as_u64().unwrap()))
        .cloned()
        .collect();
    let pids: Vec<Value> = kept.iter().map(|process| process["pid"].clone()).collect();
    header["processes"] = kept.into();
    let mut file = format!("{header}\n");
    for line in lines {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if is(&line, "kind", "call") && pids.contains(&line["pid"]) {
            line["ts"] = (line["ts"].as_u64().unwrap() + ahead_ns).into();
            file.push_str(&line.to_string());
            file.push('\n');
        }
    }
    let path = folder.join(name);
    fs::write(&path, file).unwrap();
    path
}

/// Entry of each all-reduce of a rank, microseconds.
fn entries(path: &Path, rank: &str) -> Vec<f64> {
    let events = events(path);
    let pid = processes(&events)[rank];
    let own = events.iter().filter(|event| {
        is(event, "ph", "X") && is(event, "name", "AllReduce") && event["pid"] == pid
    });
    own.map(|event| event["ts"].as_f64().unwrap()).collect()
}

#[test]
fn recordings_of_two_hosts_are_aligned_by_common_collectives() {
    let folder = tempfile::tempdir().unwrap();
    let first = part(folder.path(), "first.jsonl", &[0, 1], 0);
    let second = part(folder.path(), "second.jsonl", &[2, 3], 7_000_000_000);
    let (_folder, summary) = exported(&[&first, &second], "trace.json");
    assert_eq!(summary.unaligned, Vec::<String>::new());
    let aligned = entries(&summary.file, "rank 2 (host 1)");
    let (_folder, whole) = exported(&[sleeping()], "trace.json");
    let recorded = entries(&whole.file, "rank 2 (host 0)");
    assert_eq!(aligned.len(), recorded.len());
    let error = aligned.iter().zip(&recorded).map(|(a, b)| (a - b).abs());
    let error = error.fold(0.0, f64::max);
    assert!(error < 200.0, "{error} us");
}

#[test]
fn recordings_without_a_common_collective_are_named() {
    let other = recording("device/gpu-extra-rank1");
    let files = [sleeping(), &other];
    let (_folder, summary) = exported(&files, "trace.json.gz");
    assert_eq!(summary.unaligned, [other.display().to_string()]);
    let trace: Value = serde_json::from_str(&text(&summary.file)).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(processes(events).len(), 8);
    // The other recording has the GPU's own times.
    let on_gpu = |event: &&Value| is(event, "ph", "b") && is(event, "cat", "on the GPU");
    let timed = text(&other).matches("{\"kind\":\"coll\"").count();
    assert_eq!(events.iter().filter(on_gpu).count(), timed);
}

#[test]
fn a_recording_that_ends_early_is_exported_up_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let cut = folder.path().join("cut.jsonl");
    let whole = fs::read(sleeping()).unwrap();
    fs::write(&cut, whole.split_at(whole.len() / 2).0).unwrap();
    let (_folder, summary) = exported(&[&cut], "trace.json");
    assert!(summary.collectives > 0 && summary.file.exists());
    let text = summary.to_string();
    assert!(text.contains("cut.jsonl: recording ends early"), "{text}");
}

#[test]
fn a_recording_without_collectives_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.jsonl");
    let header = r#"{"kind":"header","processes":[{"pid":1,"rank":0,"world_size":2}]}"#;
    fs::write(&path, format!("{header}\n")).unwrap();
    let args = ExportArgs {
        files: vec![path],
        output: folder.path().join("trace.json"),
    };
    let result = export(&args);
    assert!(matches!(result, Err(ExportError::Empty(_))), "{result:?}");
    assert!(!args.output.exists());
}
