//! Planted causes in Python programs, each explained with its line.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::PROBES;
use crate::delays::with_priority;
use crate::explain::process;
use crate::fixture::Gpu;
use crate::job::Job;
use crate::tracing::{LONG_PERIOD, Watching, chain, held_chain, is_placed};

/// Allocates and makes a graph in each step, for two milliseconds each.
const CALLS: &str = "\
import ctypes
import time

ctypes.CDLL('libcuda.so.1', ctypes.RTLD_GLOBAL)
cuda = ctypes.CDLL('libcudart.so.13')
pointer = ctypes.c_void_p()

def allocate():
    cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(2_000_000))

def capture():
    cuda.cudaStreamBeginCapture(None, 0)
    cuda.cudaStreamEndCapture(None, ctypes.byref(pointer))
    cuda.cudaGraphInstantiate(ctypes.byref(pointer), None, ctypes.c_ulonglong(2_000_000))

while True:
    allocate()
    capture()
    time.sleep(0.004)
";

/// Rank of a job whose late rank sleeps for each sample of its batch, a millisecond at a time, or makes
/// a graph in every second step, in 0.3 ms.
const RANK: &str = "\
import ctypes
import os
import sys
import time

cuda = ctypes.CDLL('libcudart.so.13')
nccl = ctypes.CDLL('libnccl.so.2')
rank = int(os.environ['RANK'])
is_late = sys.argv[1] == str(rank)
cause = sys.argv[3]

class UniqueId(ctypes.Structure):
    _fields_ = [('internal', ctypes.c_char * 128)]

comm = ctypes.c_void_p()
cuda.fake_cuda_gpu(nccl.fake_nccl_complete)
nccl.ncclCommInitRankConfig(ctypes.byref(comm), 2, UniqueId(sys.argv[2].encode()), rank, None)

def sample():
    time.sleep(0.001)

def capture():
    pointer = ctypes.c_void_p()
    cuda.cudaStreamBeginCapture(None, 0)
    cuda.cudaStreamEndCapture(None, ctypes.byref(pointer))
    cuda.cudaGraphInstantiate(ctypes.byref(pointer), None, ctypes.c_ulonglong(300_000))
    cuda.cudaGraphLaunch(pointer, None)

def step(number):
    for _ in range(5):
        if is_late and cause == 'sleep':
            sample()
    if is_late and cause == 'graph' and number % 2 == 0:
        capture()
    nccl.ncclAllReduce(None, None, ctypes.c_size_t(1000), 7, 0, comm, None)
    cuda.cudaStreamSynchronize(None)

number = 0
while True:
    step(number)
    number += 1
";

/// Starts a Python program so many times, as the ranks of a job if it calls NCCL.
fn start(gpu: &Gpu, text: &str, ranks: u32, arguments: &[&str]) -> Job {
    let script = gpu.path().join("train.py");
    fs::write(&script, text).unwrap();
    let words = with_priority(-15);
    let command = || {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .arg("python3")
            .arg(&script)
            .args(arguments)
            .env("LD_LIBRARY_PATH", gpu.path())
            .env("FAKE_NCCL_COMPUTE_US", "10000");
        command
    };
    gpu.start((0..ranks).map(|rank| (rank, command())), ranks)
}

/// Asserts that a chain names a function, and the line of the program beside it.
#[track_caller]
fn assert_place(chain: &Value, function: &str, line: &str) {
    assert_eq!(chain["function"], function, "{chain:#}");
    assert_line(chain, line);
}

#[track_caller]
fn assert_line(chain: &Value, line: &str) {
    let stack = chain["stack"].as_array().unwrap().iter();
    let mut stack = stack.map(|frame| frame.as_str().unwrap());
    let innermost = stack.find(|frame| frame.contains(".py:")).unwrap();
    assert!(innermost.ends_with(line), "{chain:#}");
}

#[test]
#[needs(PROBES)]
fn allocations_and_graphs_of_a_process_without_a_rank_are_explained_with_their_lines_live_and_from_a_recording()
 {
    let gpu = Gpu::new();
    let job = start(&gpu, CALLS, 1, &[]);
    let pid = job.pids()[0];
    let file = gpu.path().join("host.jsonl");
    let file = file.to_str().unwrap();
    let recording = Watching::start(&["record", file]);
    let explaining = Watching::start(&["explain", LONG_PERIOD, "--duration", "10m"]);
    let live = Watching::start(&["trace", LONG_PERIOD, "--pid", &pid.to_string()]);
    let expected = [
        (
            "memory_allocation",
            "cudaMalloc",
            "train.py:9 in allocate()",
        ),
        (
            "graph_creation",
            "cudaGraphInstantiate",
            "train.py:14 in capture()",
        ),
    ];
    let has_all = |report: &Value| {
        expected
            .iter()
            .all(|(cause, ..)| chain(report, cause).is_some_and(is_placed))
    };
    let report = live.find("both causes", |report| Some(report).filter(has_all));
    live.wait_for_other(pid);
    live.stop();
    let explanation = explaining.stop().remove(0);
    let recorded = recording.stop().remove(0);
    drop(job);
    assert_eq!(recorded["processes"], 0, "{recorded}");
    assert_eq!(recorded["unranked_processes"], 1, "{recorded}");
    let opened = Watching::start(&["explain", LONG_PERIOD, file])
        .rest()
        .remove(0);
    for (cause, function, line) in expected {
        assert_place(chain(&report, cause).unwrap(), function, line);
        for explanation in [&explanation, &opened] {
            let own = process(explanation, pid);
            assert_eq!(own["rank"], Value::Null);
            assert_place(held_chain(own, cause).unwrap(), function, line);
        }
    }
}

/// Number of reports of a rank after which a cause would have been named: it has to stand out in two
/// periods, and its samples are those of three.
const ENOUGH: usize = 5;

#[test]
#[needs(PROBES)]
fn of_two_ranks_the_one_that_sleeps_is_explained_with_its_line_and_none_of_a_job_beside_them() {
    let gpu = Gpu::new();
    let late = start(&gpu, RANK, 2, &["1", "late", "sleep"]);
    let healthy = start(&gpu, RANK, 2, &["none", "healthy", "sleep"]);
    let (late_pid, healthy_pid) = (late.pids()[1], healthy.pids()[1]);
    let live = Watching::start(&["trace", LONG_PERIOD]);
    let (mut own_code, mut n_healthy) = (None, 0);
    let found = live.find("a line of one rank", |report| {
        let found = chain(&report, "own_code");
        if report["pid"] == late_pid {
            own_code = own_code.take().or_else(|| found.cloned());
        } else {
            assert_eq!(found, None, "{report:#}");
            n_healthy += usize::from(report["pid"] == healthy_pid);
        }
        own_code.clone().filter(|_| n_healthy >= ENOUGH)
    });
    live.stop();
    assert_line(&found, "train.py:20 in sample()");
}

#[test]
#[needs(PROBES)]
fn graphs_in_calls_that_samples_do_not_meet_are_explained_with_their_line() {
    let gpu = Gpu::new();
    let job = start(&gpu, RANK, 2, &["1", "job", "graph"]);
    let pids = job.pids();
    let live = Watching::start_with_priority(-15, &["trace"]);
    let found = live.find("graph_creation", |report| {
        let chain = chain(&report, "graph_creation").cloned();
        let of_peer = chain.as_ref().filter(|_| report["pid"] == pids[0]);
        assert_eq!(of_peer, None);
        // On a busy machine a sample may meet one of the shorter calls in a period.
        let is_longest = |chain: &Value| chain["function"] == "cudaGraphInstantiate";
        chain.filter(is_placed).filter(is_longest)
    });
    live.stop();
    assert_place(&found, "cudaGraphInstantiate", "train.py:26 in capture()");
}
