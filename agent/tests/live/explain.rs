//! The commands `explain` and `trace`, which say what processes lose time to.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::Test;
use crate::delays::{Hog, pinned_to};
use crate::fixture::{Gpu, Linking};
use crate::job::Job;

pub(crate) const TESTS: &[Test] = &[
    (
        "the_task_that_takes_the_cpu_of_a_rank_is_explained_and_its_peers_are_not",
        contention,
    ),
    (
        "a_process_without_a_rank_that_allocates_in_its_loop_is_explained",
        allocation,
    ),
    (
        "a_lock_is_explained_beside_a_thread_that_waits_for_work",
        lock,
    ),
    ("a_recording_says_what_the_live_host_said", recorded),
    (
        "a_process_without_a_rank_is_recorded_and_explained",
        recorded_alone,
    ),
];

/// Starts `fleet-agent` and returns when it is watching.
fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_fleet-agent"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn json_of(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Releases a job, explains it while it runs, and ends it; returns its processes by rank.
pub(crate) fn explained(gpu: &Gpu, job: &Job) -> Vec<Value> {
    job.release();
    let explanation = json_of(start(&["explain", "--duration", "17s", "--json"]));
    fs::write(gpu.gate("end"), "").unwrap();
    let pids = job.pids();
    let processes = pids.iter().map(|pid| process(&explanation, *pid).clone());
    processes.collect()
}

/// Finds a process in an explanation.
fn process(explanation: &Value, pid: u32) -> &Value {
    let mut all = explanation["processes"].as_array().unwrap().iter();
    all.find(|own| own["pid"] == pid)
        .unwrap_or_else(|| panic!("no process {pid} in {explanation:#}"))
}

pub(crate) fn causes(process: &Value) -> Vec<&str> {
    let chains = process["chains"].as_array().unwrap().iter();
    chains
        .map(|held| held["chain"]["cause"].as_str().unwrap())
        .collect()
}

/// Starts three ranks until the gate `end` opens, rank 0 with a wrapper.
pub(crate) fn job(gpu: &Gpu, wrapper: &[String], options: &[&str]) -> Job {
    let command = |rank: u32| {
        let program = gpu.path().join(Linking::Dynamic.program());
        // Whatever else the machine does, the peers have a CPU when they want one.
        let mut words = match rank {
            0 => wrapper.to_vec(),
            _ => ["nice", "-n", "-15"].map(str::to_owned).to_vec(),
        };
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args([rank, 3, 0].map(|n| n.to_string()))
            .args(["import=0", "compute=50"])
            .args(options)
            .arg(format!("init={}", gpu.gate("go").display()))
            .arg(format!("end={}", gpu.gate("end").display()))
            .env("LD_LIBRARY_PATH", gpu.path());
        command
    };
    gpu.start((0..3).map(|rank| (rank, command(rank))), 3)
}

fn contention() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let job = job(&gpu, &pinned_to(0), &["step=5", "delay=0:spin:20"]);
    let ranks = explained(&gpu, &job);
    job.issued();
    let late = &ranks[0];
    assert!(causes(late).contains(&"cpu_contention"), "{late:#}");
    let chain = &late["chains"][0]["chain"];
    assert_eq!(chain["cause"], "cpu_contention", "{late:#}");
    let first = chain["links"][0].as_str().unwrap();
    assert!(first.starts_with("cpu-hog ran on cpu 0 "), "{chain:#}");
    let advice = chain["advice"][0].as_str().unwrap();
    assert!(advice.contains("cpu-hog"), "{chain:#}");
    for peer in &ranks[1..] {
        assert_eq!(causes(peer), [""; 0], "{peer:#}");
    }
}

/// Starts a process without a rank that allocates memory in its loop.
fn allocating(gpu: &Gpu) -> Child {
    fs::write(gpu.gate("go"), "").unwrap();
    Command::new(gpu.path().join("alone"))
        .arg("1000000")
        .arg(gpu.gate("go"))
        .env("LD_LIBRARY_PATH", gpu.path())
        .spawn()
        .unwrap()
}

fn allocation() {
    let gpu = Gpu::new();
    let mut alone = allocating(&gpu);
    let pid = alone.id();
    // Calls have to stand out in three periods, of up to nine seconds on a busy machine.
    let explanation = json_of(start(&["explain", "--duration", "30s", "--json"]));
    alone.kill().unwrap();
    alone.wait().unwrap();
    let own = process(&explanation, pid);
    assert_eq!(own["rank"], Value::Null);
    assert_eq!(causes(own), ["memory_allocation"], "{own:#}");
}

/// All ranks wait for a lock most of the time: in each step the first thread waits for the other
/// one, which waits for work otherwise. Rank 0 waits for a third one a tenth of its time.
fn lock() {
    let gpu = Gpu::new();
    let options = ["step=15", "backward=5", "delay=0:lock:3"];
    let job = job(&gpu, &[], &options);
    let ranks = explained(&gpu, &job);
    job.issued();
    assert!(causes(&ranks[0]).contains(&"lock"), "{ranks:#?}");
    for peer in &ranks[1..] {
        assert!(!causes(peer).contains(&"lock"), "{peer:#}");
    }
}

fn recorded() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let job = job(&gpu, &pinned_to(0), &["step=5", "delay=0:spin:20"]);
    job.release();
    let file = gpu.path().join("host.jsonl.gz");
    let file = file.to_str().unwrap();
    let recording = start(&["record", file, "--duration", "26s", "--json"]);
    let live = start(&["explain", "--duration", "22s", "--json"]);
    let (live, recorded) = (json_of(live), json_of(recording));
    fs::write(gpu.gate("end"), "").unwrap();
    let pids = job.pids();
    job.issued();
    assert_eq!(recorded["processes"], 3, "{recorded}");
    let opened = json_of(start(&["explain", file, "--json"]));
    for explanation in [&live, &opened] {
        let late = process(explanation, pids[0]);
        assert!(causes(late).contains(&"cpu_contention"), "{late:#}");
        let chains = late["chains"].as_array().unwrap().iter();
        let mut chains = chains.map(|held| &held["chain"]);
        let chain = chains
            .find(|chain| chain["cause"] == "cpu_contention")
            .unwrap();
        // On a busy machine other tasks run there as well.
        let links = chain["links"].to_string();
        assert!(links.contains("cpu-hog ran on cpu 0 "), "{chain:#}");
        let stacks = late["stacks"].to_string();
        assert!(
            stacks.contains("delay_step") || stacks.contains("main+"),
            "{stacks}"
        );
        for pid in &pids[1..] {
            assert!(!causes(process(explanation, *pid)).contains(&"cpu_contention"));
        }
    }
}

fn recorded_alone() {
    let gpu = Gpu::new();
    let mut alone = allocating(&gpu);
    let file = gpu.path().join("host.jsonl");
    let file = file.to_str().unwrap();
    let recorded = json_of(start(&["record", file, "--duration", "30s", "--json"]));
    alone.kill().unwrap();
    alone.wait().unwrap();
    assert_eq!(recorded["processes"], 0, "{recorded}");
    assert_eq!(recorded["unranked_processes"], 1, "{recorded}");
    let opened = json_of(start(&["explain", file, "--json"]));
    let own = process(&opened, alone.id());
    assert_eq!(causes(own), ["memory_allocation"], "{own:#}");
    // It is nearly always in the function of the driver, which `cudaMalloc` calls.
    let stacks = own["stacks"].to_string();
    assert!(
        stacks.contains("cuMemAlloc") || stacks.contains("cudaMalloc"),
        "{stacks}"
    );
}
