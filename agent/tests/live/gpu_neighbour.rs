//! Program that computes on the GPU of a rank, by the stand-in for NVML.

use std::fmt::Write;
use std::fs;
use std::process::{Child, Command};

use crate::PROBES;
use crate::explain::process;
use crate::fixture::{Gpu, Linking, agent};
use crate::job::Job;
use crate::tracing::{LONG_PERIOD, Watching, chain, held_chain};

/// Idle process that the driver lists with half of a GPU, killed on drop.
pub(crate) struct Neighbour(Child);

impl Neighbour {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("300").spawn().unwrap())
    }

    /// Makes the driver list the ranks of a job, each on its own GPU, and this process on that of a
    /// rank.
    pub(crate) fn computes_beside(&self, gpu: &Gpu, job: &Job, rank: usize) {
        let mut table = format!("{rank} {} 50\n", self.0.id());
        for (on, pid) in job.pids().iter().enumerate() {
            writeln!(table, "{on} {pid} 50").unwrap();
        }
        fs::write(gpu.gate("nvml"), table).unwrap();
    }

    pub(crate) fn name(&self) -> String {
        format!("sleep (PID {})", self.0.id())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Command of an agent that loads the stand-in.
pub(crate) fn agent_with_nvml(gpu: &Gpu) -> Command {
    let mut command = agent();
    command.env("LD_LIBRARY_PATH", gpu.path());
    command.env("FAKE_NVML", gpu.gate("nvml"));
    command
}

#[test]
#[needs(PROBES)]
fn the_neighbour_on_the_gpu_of_a_rank_is_explained_live_and_from_a_recording() {
    let gpu = Gpu::new();
    let neighbour = Neighbour::start();
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 3, 0, &["step=5", &end]);
    neighbour.computes_beside(&gpu, &job, 0);
    let pids = job.pids();
    let late = pids[0];
    let file = gpu.path().join("host.jsonl");
    let file = file.to_str().unwrap();
    let recording = Watching::run(agent_with_nvml(&gpu), &["record", file]);
    let live = Watching::run(agent_with_nvml(&gpu), &["trace"]);
    job.release();
    let report = live.find("the neighbour", |report| {
        let has_neighbour = chain(&report, "gpu_sharing").is_some();
        let is_peer = pids[1..].iter().any(|pid| report["pid"] == *pid);
        assert!(!(has_neighbour && is_peer), "{report:#}");
        (has_neighbour && report["pid"] == late).then_some(report)
    });
    live.wait_for_other(late);
    live.stop();
    recording.stop();
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    let opened = Watching::start(&["explain", LONG_PERIOD, file])
        .rest()
        .remove(0);
    let of_recording = held_chain(process(&opened, late), "gpu_sharing").unwrap();
    for chain in [chain(&report, "gpu_sharing").unwrap(), of_recording] {
        let advice = chain["advice"][0].as_str().unwrap();
        assert!(advice.contains(&neighbour.name()), "{chain:#}");
    }
}
