//! Tests of the built library, driven by a C++ program in place of NCCL.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "all of this is tests, which clippy does not detect with a custom runner"
)]

#[macro_use]
extern crate fleet_test_harness;

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};
use std::sync::OnceLock;
use std::time::Duration;

use fleet_nccl_profiler::record::{RECORD_BYTES, RECORD_VERSION, Record, RecordKind, UNKNOWN};
use fleet_test_harness::{NIGHTLY, Need};
use tempfile::TempDir;

/// The checker of memory accesses.
static VALGRIND: Need = Need::program("valgrind", "valgrind");

/// Versions of the interface that the library implements.
const VERSIONS: [&str; 4] = ["4", "5", "6", "7"];

fn main() -> ExitCode {
    fleet_test_harness::run()
}

fn plugin() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libfleet_nccl_profiler.so")
}

/// The program, compiled once; with NCCL's own headers if `NCCL_PROFILER_HEADERS` names their
/// directory.
fn host() -> &'static Path {
    static HOST: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = HOST.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("host");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/nccl-profiler");
        let mut compiler = Command::new("c++");
        compiler.args(["-O1", "-g", "-Wall", "-Werror", "-std=c++17", "-rdynamic"]);
        if let Some(headers) = std::env::var_os("NCCL_PROFILER_HEADERS") {
            compiler.arg("-DNCCL_HEADERS").arg("-I").arg(headers);
        }
        let compiled = compiler
            .arg(source.join("host.cpp"))
            .args(["-ldl", "-lpthread", "-o"])
            .arg(&program)
            .status();
        assert!(compiled.unwrap().success());
        (dir, program)
    });
    program
}

fn run(program: &mut Command, arguments: &[&str]) -> Output {
    run_with(&plugin(), program, arguments)
}

fn run_with(plugin: &Path, program: &mut Command, arguments: &[&str]) -> Output {
    let output = program
        .arg(plugin)
        .args(arguments)
        .env("FLEET_NCCL_OFF_FILE", "/nonexistent/off")
        .output();
    output.unwrap()
}

#[track_caller]
fn assert_success(output: &Output) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {message}", output.status);
}

/// Records of the program, field by field.
fn records(version: &str) -> Vec<Record> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut program = Command::new(host());
    assert_success(&run(
        program.env("FLEET_NCCL_SOCKET", &path),
        &["fields", version],
    ));
    let mut records = Vec::new();
    let mut bytes = [0; 2 * RECORD_BYTES];
    while let Ok(n) = socket.recv(&mut bytes) {
        assert_eq!(n, RECORD_BYTES);
        records.push(read(&bytes));
    }
    records
}

fn read(bytes: &[u8]) -> Record {
    let long = |at: usize| u64::from_ne_bytes(bytes[at..][..8].try_into().unwrap());
    let int = |at: usize| u32::from_ne_bytes(bytes[at..][..4].try_into().unwrap());
    Record {
        version: int(0),
        kind: int(4),
        comm_id: long(8),
        seq: long(16),
        nccl_seq: long(24),
        count: long(32),
        host_ns: long(40),
        gpu_start_ns: long(48),
        gpu_stop_ns: long(56),
        seen_ns: long(64),
        rank: int(72),
        nranks: int(76),
        function: int(80),
        datatype: int(84),
        peer: int(88).cast_signed(),
        channels: int(92),
        nth: int(96),
        lost: int(100),
    }
}

#[test]
fn every_table_records_the_right_fields() {
    for version in VERSIONS {
        let mut records = records(version);
        // The slots of the operations in flight are announced after the first record, once per second at most.
        let slots = records.remove(1);
        assert_eq!(slots.kind, RecordKind::Slots as u32);
        assert_eq!((slots.seq, slots.nccl_seq), (4096, 104));
        assert_ne!(slots.count, 0);
        let kinds: Vec<u32> = records.iter().map(|record| record.kind).collect();
        let [joined, collective, transfer, left] = [
            RecordKind::Joined,
            RecordKind::Collective,
            RecordKind::Transfer,
            RecordKind::Left,
        ]
        .map(|kind| kind as u32);
        // The record without times, then the records in the order in which they end on the GPU; the
        // one that ends before it begins is left out.
        assert_eq!(
            kinds,
            [joined, collective, transfer, collective, left],
            "{version}"
        );
        for record in &records {
            assert_eq!((record.version, record.nth), (RECORD_VERSION, 0));
            assert_eq!(record.comm_id, 0xabcd_ef01_2345_6789);
            assert_eq!((record.rank, record.nranks), (3, 8));
            assert!(record.host_ns > 0 && record.seen_ns >= record.host_ns);
        }
        let [_, untimed, send, coll, gone] = records.try_into().unwrap();
        assert_eq!(
            (untimed.seq, untimed.function, untimed.gpu_stop_ns),
            (2, 1, 0)
        );
        let times = |record: &Record| (record.gpu_start_ns, record.gpu_stop_ns);
        assert_eq!(
            (send.seq, send.function, send.datatype, send.count),
            (0, 8, 7, 64)
        );
        assert_eq!(
            (send.peer, send.channels, times(&send)),
            (6, 2, (3001, 3500))
        );
        assert_eq!((coll.seq, coll.nccl_seq, coll.function), (0, 41, 2));
        assert_eq!((coll.count, coll.datatype, coll.peer), (1000, 9, -1));
        assert_eq!((coll.channels, times(&coll)), (24, (1023, 2000)));
        assert_eq!((gone.lost, gone.function), (1, 0));
        assert_ne!(coll.function, UNKNOWN);
    }
}

#[test]
fn the_library_survives_arbitrary_calls() {
    for version in VERSIONS {
        assert_success(&run(&mut Command::new(host()), &["stress", version]));
    }
}

#[test]
#[needs(VALGRIND, NIGHTLY)]
fn valgrind_finds_no_leak_and_no_invalid_access() {
    // Valgrind cannot run a breakpoint, and every agent on the host puts some into the plugin,
    // which it knows by the name of the file.
    let dir = tempfile::tempdir().unwrap();
    let unprobed = dir.path().join("unprobed.so");
    std::fs::copy(plugin(), &unprobed).unwrap();
    for version in VERSIONS {
        let mut program = Command::new("valgrind");
        // Memory that the loader keeps for an unloaded library is only "possibly" lost.
        program
            .args(["-q", "--leak-check=full", "--error-exitcode=9"])
            .args([
                "--show-leak-kinds=definite,indirect",
                "--errors-for-leak-kinds=definite,indirect",
            ])
            .arg(host());
        assert_success(&run_with(&unprobed, &mut program, &["stress", version]));
    }
}

fn joined(release: &str, version: &str, more: &[(&str, &str)]) -> String {
    let mut program = Command::new(host());
    program.env("FAKE_NCCL_VERSION", release);
    for (name, value) in more {
        program.env(name, value);
    }
    let output = program
        .arg(plugin())
        .args(["refused", version])
        .output()
        .unwrap();
    assert_success(&output);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_version_that_a_profiler_slows_down_runs_without_it() {
    let message = joined("23102", "7", &[]);
    assert!(
        message.starts_with("fleet: profiling disabled: a profiler slows down"),
        "{message}"
    );
    assert!(
        message.ends_with("result 5 mask 0 context 0\n"),
        "{message}"
    );
    assert_eq!(joined("23203", "7", &[]), "result 0 mask 70 context 1\n");
    let forced = [("FLEET_NCCL_ANY_VERSION", "1")];
    assert_eq!(
        joined("23102", "7", &forced),
        "result 0 mask 70 context 1\n"
    );
}

#[test]
fn while_the_kill_switch_file_exists_no_events_are_requested() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("off");
    std::fs::write(&file, "").unwrap();
    let off = [("FLEET_NCCL_OFF_FILE", file.to_str().unwrap())];
    assert_eq!(joined("22907", "6", &off), "result 0 mask 0 context 1\n");
}
