//! The commands `explain` and `trace`, which say what processes lose time to.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::PROBES;
use crate::delays::{Hog, pinned_to, undisturbed};
use crate::fixture::{Gpu, Linking};
use crate::job::Job;
use crate::tracing::{LONG_PERIOD, Watching, chain, held_chain};

/// What `trace` has reported of a job up to the cause of its rank 0.
pub(crate) struct Explained {
    /// Report with the cause.
    pub(crate) report: Value,
    /// Reports of the other ranks up to then.
    pub(crate) peers: Vec<Value>,
}

impl Explained {
    /// Asserts that no peer had a cause, and returns the chain of the cause.
    pub(crate) fn chain(&self, cause: &str) -> &Value {
        for peer in &self.peers {
            assert!(chain(peer, cause).is_none(), "{peer:#}");
        }
        chain(&self.report, cause).unwrap()
    }
}

/// Releases a job, watches it until a cause of its rank 0 is known, and ends it.
pub(crate) fn explained(gpu: &Gpu, job: &Job, cause: &str) -> Explained {
    job.release();
    let live = Watching::start(&["trace"]);
    let explained = until(&live, job, cause);
    live.stop();
    fs::write(gpu.gate("end"), "").unwrap();
    explained
}

/// Reads reports until a cause of rank 0 is known, and those of the same period.
#[track_caller]
fn until(live: &Watching, job: &Job, cause: &str) -> Explained {
    let pids = job.pids();
    let (mut found, mut peers) = (None, Vec::new());
    live.find(cause, |report| {
        if report["pid"] == pids[0] {
            if let Some(report) = found.take() {
                let peers = std::mem::take(&mut peers);
                return Some(Explained { report, peers });
            }
            found = Some(report).filter(|report| chain(report, cause).is_some());
        } else if pids.iter().any(|pid| report["pid"] == *pid) {
            peers.push(report);
        }
        None
    })
}

/// Finds a process in an explanation.
pub(crate) fn process(explanation: &Value, pid: u32) -> &Value {
    let mut all = explanation["processes"].as_array().unwrap().iter();
    all.find(|own| own["pid"] == pid)
        .unwrap_or_else(|| panic!("no process {pid} in {explanation:#}"))
}

/// Starts three ranks until the gate `end` opens, rank 0 with a wrapper, its peers undisturbed.
pub(crate) fn job(gpu: &Gpu, wrapper: &[String], options: &[&str]) -> Job {
    let command = |rank: u32| {
        let program = gpu.path().join(Linking::Dynamic.program());
        let mut words = match rank {
            0 => wrapper.to_vec(),
            _ => undisturbed(),
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

fn strings(texts: &Value) -> impl Iterator<Item = &str> {
    texts
        .as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
}

/// Returns the time that the hog took from a process on CPU 0, milliseconds per second, if its chain
/// names it.
fn time_of_hog(chain: &Value) -> Option<f64> {
    let mut links = strings(&chain["links"]);
    let time = links.find_map(|link| link.strip_prefix("cpu-hog ran on cpu 0 "))?;
    Some(time.strip_suffix(" ms/s").unwrap().parse().unwrap())
}

/// Starts a process without a rank that computes and waits for the GPU, with a delay.
pub(crate) fn delayed_alone(gpu: &Gpu, wrapper: &[String], delay: &[&str]) -> Job {
    fs::write(gpu.gate("go"), "").unwrap();
    let program = gpu.path().join("alone").display().to_string();
    let words = [wrapper, &[program]].concat();
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .arg("1000000")
        .arg(gpu.gate("go"))
        .args(delay)
        .env("LD_LIBRARY_PATH", gpu.path());
    gpu.start(std::iter::once((0, command)), 1)
}

#[test]
#[needs(PROBES)]
fn the_task_that_takes_the_cpu_of_a_process_without_a_rank_is_explained() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let alone = delayed_alone(&gpu, &pinned_to(0), &["spin:20"]);
    let pid = alone.pids()[0];
    let live = Watching::start(&["trace"]);
    live.find("the hog", |report| {
        let is_own = report["pid"] == pid && report["rank"] == Value::Null;
        let chain = chain(&report, "cpu_contention").filter(|_| is_own)?;
        time_of_hog(chain)
    });
    live.stop();
    drop(alone);
}

/// The second thread of a rank called last and waits for work, as that of a backward pass does, while
/// the first one waits for another process.
#[test]
#[needs(PROBES)]
fn a_pipe_is_explained_beside_a_thread_that_waits_for_work() {
    let gpu = Gpu::new();
    let options = ["step=15", "backward=5", "delay=0:pipe:10"];
    let job = job(&gpu, &[], &options);
    let explained = explained(&gpu, &job, "pipe");
    job.issued();
    explained.chain("pipe");
    assert!(
        chain(&explained.report, "lock").is_none(),
        "{:#}",
        explained.report
    );
}

/// All ranks wait for a lock most of the time: in each step the first thread waits for the other
/// one, which waits for work otherwise. Rank 0 waits for a third one a tenth of its time.
#[test]
#[needs(PROBES)]
fn a_lock_is_explained_beside_a_thread_that_waits_for_work() {
    let gpu = Gpu::new();
    let options = ["step=15", "backward=5", "delay=0:lock:3"];
    let job = job(&gpu, &[], &options);
    let explained = explained(&gpu, &job, "lock");
    job.issued();
    explained.chain("lock");
}

/// Asserts that a chain names the hog, and advises about a task that it names, and that no chain of the
/// peers does.
fn assert_names_the_hog(found: &Value, peers: &[Value]) {
    // On a busy machine other tasks run there as well, and on the CPUs of the peers.
    let ms_per_s = time_of_hog(found).unwrap();
    assert!(ms_per_s > 0.0, "{found:#}");
    let named = strings(&found["links"]).filter_map(|link| link.split_once(" ran on cpu "));
    let advice = found["advice"][0].as_str().unwrap();
    assert!(
        named.into_iter().any(|(task, _)| advice.contains(task)),
        "{found:#}"
    );
    for chain in peers
        .iter()
        .flat_map(|peer| peer["chains"].as_array().unwrap())
    {
        assert_eq!(time_of_hog(chain), None, "{chain:#}");
    }
}

#[test]
#[needs(PROBES)]
fn the_task_that_takes_the_cpu_of_a_rank_is_explained_live_and_from_a_recording() {
    let gpu = Gpu::new();
    let _hog = Hog::start(&gpu, "cpu-hog", 0);
    let job = job(&gpu, &pinned_to(0), &["step=5", "delay=0:spin:20"]);
    job.release();
    let file = gpu.path().join("host.jsonl.gz");
    let file = file.to_str().unwrap();
    let recording = Watching::start(&["record", file]);
    let live = Watching::start(&["trace", LONG_PERIOD]);
    let explained = until(&live, &job, "cpu_contention");
    live.wait_for_other(job.pids()[0]);
    live.stop();
    let recorded = recording.stop().remove(0);
    fs::write(gpu.gate("end"), "").unwrap();
    let pids = job.pids();
    job.issued();
    assert_names_the_hog(
        chain(&explained.report, "cpu_contention").unwrap(),
        &explained.peers,
    );
    assert_eq!(recorded["processes"], 3, "{recorded}");
    let opened = Watching::start(&["explain", LONG_PERIOD, file])
        .rest()
        .remove(0);
    let late = process(&opened, pids[0]);
    // On a busy machine other tasks run there as well.
    let links = held_chain(late, "cpu_contention").unwrap()["links"].to_string();
    assert!(links.contains("cpu-hog ran on cpu 0 "), "{links}");
    for seen in [&explained.report, late] {
        let stacks = seen["stacks"].to_string();
        assert!(
            stacks.contains("delay_step") || stacks.contains("main+"),
            "{stacks}"
        );
    }
    for pid in &pids[1..] {
        let peer = process(&opened, *pid);
        assert!(held_chain(peer, "cpu_contention").is_none(), "{peer:#}");
    }
}
