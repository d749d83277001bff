//! End to end: probes, agent, OTLP, Echo, and the query that names the slow rank.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::task::Poll;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{Gpu, Linking, agent};
use crate::gpu_neighbour::{Neighbour, agent_with_nvml};
use crate::job::wait_for;
use crate::running::Running;
use crate::running::output::Output;
use crate::{ECHO, PROBES};

/// Echo's program, which `make test` builds beside the agent's.
pub(crate) fn program() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_fleet-agent")).with_file_name("fleet-echo")
}

/// Running Echo.
pub(crate) struct Echo {
    child: Child,
    otlp: String,
    http: String,
}

impl Echo {
    /// Starts it on the database in a directory, with these addresses for OTLP and HTTP.
    fn start(folder: &Path, addresses: [&str; 2]) -> Self {
        Self::start_with(folder, addresses, &[])
    }

    /// Like `start`, with more flags.
    pub(crate) fn start_with(folder: &Path, [otlp, http]: [&str; 2], flags: &[&str]) -> Self {
        let mut command = Command::new(program());
        command
            .args(["serve", "--insecure-no-tls", "--db"])
            .arg(folder.join("echo.db"));
        command.args([
            "--otlp-listen",
            otlp,
            "--http-listen",
            http,
            "--otlp-http-listen",
            "127.0.0.1:0",
        ]);
        command.args(flags);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = Output::read(child.stdout.take().unwrap());
        let line = wait_for("Echo", || match output.next() {
            Poll::Ready(Some(line)) if line.contains("is ready") => Ok(line),
            Poll::Ready(None) => panic!("Echo ended"),
            other => Err(format!("{other:?}")),
        });
        let address = |name: &str| {
            let mut words = line.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .unwrap()
                .to_owned()
        };
        let (otlp, http) = (address("otlp"), address("http"));
        Self { child, otlp, http }
    }

    /// Waits until Echo names an outlier with these properties, and returns it. On a busy machine it
    /// can name others as well.
    #[track_caller]
    pub(crate) fn wait_for_outlier(&self, expected: &Value) -> Value {
        let expected = expected.as_object().unwrap();
        let is_expected =
            |outlier: &&Value| expected.iter().all(|(key, value)| outlier[key] == *value);
        wait_for(&format!("an outlier with {expected:?}"), || {
            let answer = self.outliers().unwrap_or_default();
            let outliers = answer["outliers"].as_array().into_iter().flatten();
            let found = outliers.into_iter().find(is_expected).cloned();
            found.ok_or(answer)
        })
    }

    /// Returns the outliers and conditions of the cluster, once it is known.
    pub(crate) fn outliers(&self) -> Option<Value> {
        let tool = "fleet.cluster.find_outlier_nodes";
        self.call_tool(tool, &json!({"cluster": "live"}))
    }

    /// Waits for stacks of a rank that contain a text. It may have been sampled before its fault, too.
    #[track_caller]
    pub(crate) fn wait_for_stacks(&self, rank: u32, text: &str) {
        let arguments = json!({"cluster": "live", "rank": rank});
        wait_for("stacks of the rank", || {
            let answer = self.call_tool("fleet.host.get_stacks", &arguments);
            let answer = answer.unwrap_or_default();
            if answer["stacks"].to_string().contains(text) {
                Ok(())
            } else {
                Err(answer)
            }
        });
    }

    /// Waits until the archive of an incident has a file, and returns its content.
    #[track_caller]
    pub(crate) fn wait_for_file(&self, incident: &str, path: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("incident.tar.gz");
        wait_for(path, || {
            let mut bundle = Command::new(program());
            bundle.args([
                "bundle",
                incident,
                "--server",
                &format!("http://{}", self.http),
            ]);
            let bundled = bundle.arg("--file").arg(&archive).output().unwrap();
            assert!(bundled.status.success(), "{bundled:?}");
            let mut extract = Command::new("tar");
            extract.arg("-xzOf").arg(&archive);
            let extracted = extract
                .arg(format!("incident-{incident}/{path}"))
                .output()
                .unwrap();
            if extracted.status.success() {
                Ok(String::from_utf8(extracted.stdout).unwrap())
            } else {
                Err(String::from_utf8_lossy(&extracted.stderr).into_owned())
            }
        })
    }

    /// Returns the agent's own metric as stored by Echo.
    pub(crate) fn agent_metric(&self, metric: &str) -> Vec<i64> {
        let events = self.events(metric);
        events
            .iter()
            .map(|event| event["value_int"].as_i64().unwrap())
            .collect()
    }

    /// Returns rank, first and last operation of each block.
    fn blocks(&self) -> Vec<(u64, u64, u64)> {
        let number = |event: &Value, key: &str| event[key].as_u64().unwrap();
        let block = |event: &Value| {
            (
                number(event, "rank"),
                number(event, "seq_first"),
                number(event, "seq_last"),
            )
        };
        self.events("nccl.collective.arrival_ms")
            .iter()
            .map(block)
            .collect()
    }

    fn events(&self, metric: &str) -> Vec<Value> {
        let arguments = json!({"cluster": "live", "metric": metric, "limit": 1000});
        let answer = self
            .call_tool("fleet.cluster.event_history", &arguments)
            .unwrap();
        answer["events"].as_array().unwrap().clone()
    }

    /// Calls a tool; none while the cluster is unknown. On a busy machine an answer can take longer than
    /// its deadline, so the tool is called again.
    pub(crate) fn call_tool(&self, tool: &str, arguments: &Value) -> Option<Value> {
        let response = wait_for("an answer in time", || {
            let response = self.post(tool, arguments);
            if response.starts_with("HTTP/1.1 504") {
                Err(response)
            } else {
                Ok(response)
            }
        });
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        if head.starts_with("HTTP/1.1 404") {
            return None;
        }
        assert!(head.starts_with("HTTP/1.1 200"), "{response}");
        Some(serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}")))
    }

    fn post(&self, tool: &str, arguments: &Value) -> String {
        let body = arguments.to_string();
        let mut stream = TcpStream::connect(&self.http).unwrap();
        write!(
            stream,
            "POST /api/v1/tools/{tool} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.http,
            body.len()
        )
        .unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
#[needs(PROBES, ECHO)]
fn a_killed_rank_is_named_by_echo_though_its_job_ends_at_once() {
    let gpu = Gpu::new();
    let echo = Echo::start(gpu.path(), ["127.0.0.1:0"; 2]);
    let mut running = reporting(&echo, &["--pin=none"]);
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 4, 0, &["step=4", "compute=50", &end]);
    running.follow(&gpu, &job);
    running.wait_for_metric("fleet_agent_points_sent_total", |sent| sent > 50);
    job.end(2, Signal::KILL);
    // As launchers do.
    for peer in [0, 1, 3] {
        job.end(peer, Signal::TERM);
    }
    let crash = wait_for("the crash", || {
        let answer = echo.outliers().unwrap_or_default();
        let conditions = answer["conditions"].as_array().into_iter().flatten();
        let crash = conditions.into_iter().find(|one| one["kind"] == "crash");
        crash.cloned().ok_or(answer)
    });
    assert_eq!(crash["ranks"], json!([2]), "{crash:#}");
    let reason = crash["reason"].as_str().unwrap();
    let is_killed = reason.starts_with("the process of rank 2 ended by SIGKILL, then ");
    assert!(
        is_killed && reason.contains("rank 3 by SIGTERM"),
        "{reason}"
    );
    running.stop();
}

#[test]
#[needs(PROBES, ECHO)]
fn a_slow_gpu_is_named_by_echo_through_a_probe_in_the_plugin() {
    let gpu = Gpu::new();
    let plugin = gpu.plugin("libfleet_nccl_profiler.so");
    slow_gpu_is_named(
        &gpu,
        &[("NCCL_PROFILER_PLUGIN", plugin)],
        &["--pin=none", "--block-ops=64"],
    );
}

#[test]
#[needs(PROBES, ECHO)]
fn a_slow_gpu_is_named_by_echo_through_a_socket_without_a_probe() {
    let gpu = Gpu::new();
    // A name that agents do not look for.
    let plugin = gpu.plugin("libother.so");
    let socket = gpu.gate("nccl.sock");
    let flag = format!("--nccl-socket={}", socket.display());
    let environment = [
        ("NCCL_PROFILER_PLUGIN", plugin),
        ("FLEET_NCCL_SOCKET", socket),
    ];
    slow_gpu_is_named(&gpu, &environment, &["--pin=none", "--block-ops=64", &flag]);
}

#[test]
#[needs(PROBES, ECHO)]
fn the_rank_whose_gpu_is_in_no_operation_is_named_though_all_ranks_wait() {
    let gpu = Gpu::new();
    let echo = Echo::start_with(gpu.path(), ["127.0.0.1:0"; 2], &["--hang-after", "6s"]);
    let mut running = reporting(&echo, &["--pin=none"]);
    let plugin = gpu.plugin("libfleet_nccl_profiler.so");
    let environment = [("NCCL_PROFILER_PLUGIN", plugin)];
    let end = format!("end={}", gpu.gate("end").display());
    let arguments = ["step=4", "compute=50", "gpu=2:600000:250:251", &end];
    let job = gpu.job_in(&environment, Linking::Dynamic, (4, 0), &arguments);
    running.follow(&gpu, &job);
    let condition = wait_for("the hang", || {
        let answer = echo.outliers().unwrap_or_default();
        let conditions = answer["conditions"].as_array().into_iter().flatten();
        let named = conditions
            .into_iter()
            .find(|one| one["ranks"] == json!([2]));
        named.cloned().ok_or(answer)
    });
    let reason = condition["reason"].as_str().unwrap();
    assert!(
        reason.contains("the GPU of rank 2 is in no NCCL operation"),
        "{reason}"
    );
    drop(job);
    running.stop();
}

/// The GPU of rank 2 has more work than its peers' after six seconds, the healthy past that Echo
/// needs, and no host waits longer than the others. The driver lists a neighbour on that GPU.
fn slow_gpu_is_named(gpu: &Gpu, environment: &[(&str, PathBuf)], flags: &[&str]) {
    let echo = Echo::start(gpu.path(), ["127.0.0.1:0"; 2]);
    let mut running = report_by(agent_with_nvml(gpu), &echo, flags);
    let end = format!("end={}", gpu.gate("end").display());
    let options = ["step=4", "compute=50", "gpu=2:8:1500:1000000000", &end];
    let job = gpu.job_in(environment, Linking::Dynamic, (4, 0), &options);
    let neighbour = Neighbour::start();
    neighbour.computes_beside(gpu, &job, 2);
    running.follow(gpu, &job);
    let named = echo.wait_for_outlier(&json!({"rank": 2, "role": "culprit", "source": "device"}));
    // The queues tell why only where hosts run ahead of their GPUs, which those of the stand-in do on
    // a busy machine.
    let is_right = ["inconclusive", "device"].contains(&named["class"].as_str().unwrap());
    assert!(is_right, "{named:?}");
    let advice = format!("stop or move {}", neighbour.name());
    wait_for("the neighbour in the explanation", || {
        let rank = json!({"cluster": "live", "rank": 2});
        let explained = echo.call_tool("fleet.cluster.explain_rank", &rank).unwrap();
        let has_advice = explained.to_string().contains(&advice);
        has_advice.then_some(()).ok_or(explained)
    });
    fs::write(gpu.gate("end"), "").unwrap();
    job.issued();
    running.stop();
}

#[test]
#[needs(PROBES, ECHO)]
fn while_echo_is_unreachable_points_are_spooled_and_none_is_lost_or_stored_twice() {
    let gpu = Gpu::new();
    let echo = Echo::start(gpu.path(), ["127.0.0.1:0"; 2]);
    let spool = format!("--spool={}", gpu.path().join("spool").display());
    let flags = ["--pin=none", "--spool-after=500ms", &spool];
    let mut running = reporting(&echo, &flags);
    let end = format!("end={}", gpu.gate("end").display());
    let job = gpu.job(Linking::Dynamic, 2, 0, &["step=4", &end]);
    running.follow(&gpu, &job);
    running.wait_for_metric("fleet_agent_points_sent_total", |sent| sent > 50);
    let addresses = [echo.otlp.clone(), echo.http.clone()];
    drop(echo);
    running.wait_for_metric("fleet_agent_spool_bytes", |bytes| bytes > 3 * 4096);
    let before = running.metric("fleet_agent_points_sent_total");
    let echo = Echo::start(gpu.path(), addresses.each_ref().map(String::as_str));
    running.wait_for_metric("fleet_agent_points_sent_total", |sent| sent > before);
    // A busy machine may spool faster than it sends, as long as the job runs.
    fs::write(gpu.gate("end"), "").unwrap();
    let issued = job.issued();
    running.wait_for_log("a rank ended");
    running.wait_for_log("a rank ended");
    running.wait_for_metric("fleet_agent_spool_bytes", |bytes| bytes == 0);
    assert_eq!(running.metric("fleet_agent_points_dropped_total"), 0);
    running.stop();
    // Every block of every rank is stored once: each begins where the previous one ended.
    let mut blocks = echo.blocks();
    blocks.sort_unstable();
    let gaps: Vec<_> = blocks
        .windows(2)
        .filter(|pair| pair[0].0 == pair[1].0 && pair[0].2 + 1 != pair[1].1)
        .collect();
    assert!(
        gaps.is_empty() && blocks.len() > 10,
        "{gaps:?} of {}",
        blocks.len()
    );
    let last = blocks.iter().map(|(_, _, last)| last + 1).max();
    assert_eq!(last, issued.into_values().max());
}

/// Starts an agent that reports to Echo as `node-7` of the cluster `live`.
pub(crate) fn reporting(echo: &Echo, flags: &[&str]) -> Running {
    report_by(agent(), echo, flags)
}

/// Like `reporting`, with the command of the agent.
fn report_by(agent: Command, echo: &Echo, flags: &[&str]) -> Running {
    let mut all = vec!["--node=node-7"];
    all.extend_from_slice(flags);
    Running::reporting(agent, &format!("http://{}", echo.otlp), &all)
}
