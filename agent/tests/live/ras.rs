//! Hangs that only NCCL's RAS subsystem shows: its port, the agent and Echo as processes.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fleet_test_harness::NETWORKS;
use serde_json::{Value, json};

use crate::echo::{Echo, reporting};
use crate::fixture::Gpu;
use crate::job::wait_for;
use crate::running::Running;
use crate::{ECHO, PROBES};

/// Port of NCCL in a container.
const NCCL_PORT: &str = "28028";

/// What a job answers, with real answers of NCCL 2.28.9 about four ranks.
struct Port {
    process: Child,
    /// Port number.
    number: String,
    answer: PathBuf,
}

impl Port {
    /// Starts it by a command that ends with the interpreter.
    fn start(mut command: Command, folder: &Path, arguments: [&str; 2]) -> Self {
        let answer = folder.join("ras.json");
        let [port, host] = arguments;
        command.arg(recorded("server.py")).arg(port).arg(&answer);
        command.args((!host.is_empty()).then_some(host));
        fs::copy(recorded("healthy.json"), &answer).unwrap();
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "the port has ended");
        Self {
            process,
            number: line.trim().to_owned(),
            answer,
        }
    }

    /// Gives another answer from now on.
    fn answer(&self, name: &str) {
        let new = self.answer.with_extension("new");
        fs::copy(recorded(name), &new).unwrap();
        fs::rename(new, &self.answer).unwrap();
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn recorded(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/nccl-ras");
    folder.join(name)
}

/// Echo, which names a hang after a second.
fn impatient(folder: &Path) -> Echo {
    Echo::start_with(folder, ["127.0.0.1:0"; 2], &["--hang-after", "1s"])
}

/// Waits until Echo names a hang, and returns its ranks and its reason.
#[track_caller]
fn wait_for_hang(echo: &Echo) -> (Value, String) {
    wait_for("a hang", || {
        let answer = echo.outliers().unwrap_or_default();
        let mut conditions = answer["conditions"].as_array().into_iter().flatten();
        let hang = conditions.find(|one| one["kind"] == "hang").cloned();
        let hang = hang.ok_or(answer)?;
        let reason = hang["reason"].as_str().unwrap().to_owned();
        Ok::<_, Value>((hang["ranks"].clone(), reason))
    })
}

#[track_caller]
fn assert_rank_3_is_named(echo: &Echo) {
    let (ranks, reason) = wait_for_hang(echo);
    assert_eq!(ranks, json!([3]), "{reason}");
    assert!(reason.starts_with("3 of 4 ranks entered"), "{reason}");
    assert!(reason.ends_with("missing rank 3"), "{reason}");
}

fn follow(running: &mut Running) -> String {
    running.wait_for_log("NCCL RAS reports ranks that no probe follows")
}

#[test]
#[needs(PROBES, ECHO)]
fn a_rank_that_stays_behind_is_named_by_the_counts_of_ras() {
    let gpu = Gpu::new();
    let port = Port::start(Command::new("python3"), gpu.path(), ["0", "127.0.0.1"]);
    let echo = impatient(gpu.path());
    let ras = format!("--ras=127.0.0.1:{}", port.number);
    let flags = ["--pin=none", "--ras-interval=200ms", &ras];
    let mut running = reporting(&echo, &flags);
    follow(&mut running);
    port.answer("behind.json");
    assert_rank_3_is_named(&echo);
    // The process of rank 3 is stopped: NCCL 2.28.9 omits a comma where it says so.
    port.answer("stopped.json");
    let log_text = running.wait_for_log("a rank does not answer NCCL RAS");
    assert!(!log_text.contains("cannot use the answer"), "{log_text}");
    assert_rank_3_is_named(&echo);
    running.stop();
}

#[test]
#[needs(PROBES, ECHO, NETWORKS)]
fn ras_is_queried_in_the_network_namespace_of_a_container() {
    let gpu = Gpu::new();
    // The address of the job's host exists in its namespace only.
    let mut container = Command::new("unshare");
    container.args(["--net", "sh", "-c"]);
    container.arg("ip link set lo up && ip address add 192.0.2.2/32 dev lo && exec \"$@\"");
    container.args(["sh", "python3"]);
    let port = Port::start(container, gpu.path(), [NCCL_PORT, ""]);
    let echo = impatient(gpu.path());
    let mut running = reporting(&echo, &["--pin=none", "--ras-interval=200ms"]);
    follow(&mut running);
    port.answer("behind.json");
    assert_rank_3_is_named(&echo);
    running.stop();
}
