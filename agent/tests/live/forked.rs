//! Processes that probed ranks fork.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::PROBES;
use crate::fixture::{Gpu, Linking, agent};
use crate::running::Running;

/// Linux 6.18 replaces the probed instruction of the plugin by a call into a page that a child of a
/// `fork` does not get.
#[test]
#[needs(PROBES)]
fn a_child_of_a_probed_rank_survives_the_use_of_the_plugin() {
    let gpu = Gpu::new();
    let plugin = gpu.plugin("libfleet_nccl_profiler.so");
    let host = gpu.path().join("host");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/nccl-profiler/host.cpp");
    let mut compiler = Command::new("c++");
    compiler.args(["-O1", "-std=c++17", "-rdynamic", "-o"]);
    let compiled = compiler.arg(&host).arg(source).args(["-ldl", "-lpthread"]);
    assert!(compiled.status().unwrap().success());

    let mut running = Running::start(agent(), &["--pin=none"]);
    let end = format!("end={}", gpu.gate("end").display());
    let environment = [("NCCL_PROFILER_PLUGIN", plugin.clone())];
    let job = gpu.job_in(&environment, Linking::Dynamic, (2, 0), &["step=4", &end]);
    job.release();
    let path = plugin.display().to_string();
    running.wait_for_lines("probes of the plugin", |log| log.contains(&path));
    // Its threads use the plugin first, and then a child does.
    let forked = Command::new(&host)
        .arg(&plugin)
        .args(["stress", "7"])
        .output();
    fs::write(gpu.gate("end"), "").unwrap();
    let forked = forked.unwrap();
    assert!(
        forked.status.success(),
        "{}",
        String::from_utf8_lossy(&forked.stderr)
    );
    job.issued();
    running.stop();
}
